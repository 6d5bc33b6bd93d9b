// Files of pictures as a data set, decoded when their batch is made.
import { loadChunk } from "../chunks.js";
import { ValueError } from "../errors.js";
import { Tensor } from "../tensor.js";
import type { ImageOptions } from "../vision/image.js";
import type { ImageSource } from "../vision/pixels.js";
import { Examples } from "./examples.js";

/** A picture with its class: a file or anything else that `fromImage` takes. */
export interface LabelledPicture {
  image: ImageSource;
  label: string | number;
}

/** Options of `Pictures`: those of `fromImage`, of which `size` is needed, since the pictures of a batch have one size. */
export interface PicturesOptions extends Omit<ImageOptions, "size" | "layout"> {
  /** Height and width in pixels; one number for a square. */
  size: number | readonly [height: number, width: number];
  /**
   * The class of a file. Default: the folder it is in, if a folder was chosen (`<input type="file" webkitdirectory>`) or
   * if files are URLs.
   */
  label?: (source: ImageSource) => string | number | undefined;
}

/**
 * Pictures as a data set: batches have `x`, `[batch, channels, height, width]` as `fromImage` makes it (f32 from 0 to 1),
 * and, if the pictures have classes, `y`, `[batch]` of i32. A picture is decoded when a batch with it is made, so that
 * thousands of files take no memory; a `DataLoader` decodes ahead.
 */
export class Pictures extends Examples<Record<string, Tensor>> {
  readonly length: number;
  /** The names of the classes, sorted: an example's `y` is an index in this list. Empty if the pictures have no classes. */
  readonly classes: readonly string[];
  readonly #images: readonly ImageSource[];
  readonly #labels: readonly number[];
  readonly #options: Omit<PicturesOptions, "label">;

  /** Takes a `FileList`, files, URLs, or pictures with their classes. Fails with `E_VALUE` if only some have a class. */
  constructor(from: Iterable<ImageSource | LabelledPicture> | ArrayLike<ImageSource | LabelledPicture>, { label = folderOf, ...options }: PicturesOptions) {
    super();
    const all = Array.from(from as Iterable<ImageSource | LabelledPicture>);
    const labelled = all.map((each) => (isLabelled(each) ? each : { image: each, label: label(each) }));
    const names = labelled.map((each) => (each.label === undefined ? undefined : String(each.label)));
    const known = names.filter((name): name is string => name !== undefined);
    if (all.length === 0) throw new ValueError("E_VALUE", "there are no pictures");
    if (known.length > 0 && known.length < all.length) {
      throw new ValueError("E_VALUE", `${all.length - known.length} of ${all.length} pictures have no class`, { hint: "`label: (file) => ..` gives it" });
    }
    this.length = all.length;
    this.classes = [...new Set(known)].sort(byNumberOrName);
    this.#images = labelled.map(({ image }) => image);
    this.#labels = known.map((name) => this.classes.indexOf(name));
    this.#options = options;
  }

  async batch(rows: readonly number[]): Promise<Record<string, Tensor>> {
    const outOfRange = rows.find((row) => !(Number.isInteger(row) && row >= 0 && row < this.length));
    if (outOfRange !== undefined) throw new ValueError("E_VALUE", `there is no example ${outOfRange} of ${this.length}`);
    const { fromImage } = await loadChunk("vision", () => import("../vision.js"));
    const images = await Promise.all(rows.map((row) => fromImage(this.#images[row] as ImageSource, { ...this.#options, layout: "chw" })));
    const x = await Tensor.stack(images).realize();
    for (const image of images) image.dispose();
    if (this.classes.length === 0) return { x };
    const y = new Tensor(Int32Array.from(rows, (row) => this.#labels[row] as number), [rows.length], x.device ? { device: x.device } : {});
    return { x, y };
  }
}

const isLabelled = (each: unknown): each is LabelledPicture =>
  typeof each === "object" && each !== null && "image" in each && "label" in each;

/** The folder of a file, if its path is known. */
function folderOf(source: ImageSource): string | undefined {
  const path = (source as { webkitRelativePath?: string }).webkitRelativePath || (typeof source === "string" || source instanceof URL ? String(source) : "");
  return path.split(/[?#]/)[0]?.split("/").at(-2) || undefined;
}

/** Sorts numbers as numbers, so that class 10 follows class 9. */
const byNumberOrName = (a: string, b: string): number => Number(a) - Number(b) || (a < b ? -1 : a > b ? 1 : 0);
