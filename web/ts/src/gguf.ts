// The beginnings of GGUF files, which say what there is: the tensors behind stay where they are. Loaded with the first such file.
import { FormatError } from "./errors.js";
import { type Expected, explained } from "./sniff.js";
import { type FetchOptions, type FileSource, room } from "./progress.js";
import { type Ranged, type Told, openRanges } from "./ranges.js";

/** No vocabulary takes more. */
const MOST_BYTES = 100_000_000;

/** What `parse` makes of the beginning of a file: more of it is read while `parse` takes it for cut, as nothing tells how long it is. */
export async function parsedStart<T>(file: Ranged, told: Told, parse: (start: Uint8Array) => T): Promise<T> {
  let start = file.head;
  for (;;) {
    try {
      return parse(start);
    } catch (error) {
      const all = Math.min(file.size, MOST_BYTES);
      if (!(error instanceof FormatError) || start.length >= all || !isGguf(start)) throw error;
      const longer = room(Math.min(4 * start.length, all));
      longer.set(start);
      longer.set(await file.read(start.length, longer.length, told), start.length);
      start = longer;
    }
  }
}

/** What `parse` makes of a GGUF file's metadata. It is given the beginning of the file, with the index of tensors taken out. */
export async function readMetadata<T>(expected: Expected, from: FileSource, options: FetchOptions, parse: (start: Uint8Array) => T): Promise<T> {
  const { onProgress } = options;
  let loaded = 0;
  const told = (bytes: number): void => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total: 0 });
  };
  const file = await openRanges(from, options, told);
  try {
    return await parsedStart(file, told, (start) => parse(withoutTensors(start)));
  } catch (error) {
    throw explained(error, expected, from, file.head, file.size);
  } finally {
    await file.close();
  }
}

const isGguf = (bytes: Uint8Array): boolean => String.fromCharCode(...bytes.subarray(0, 4)) === "GGUF";

/** The header's number of tensors as 0, so that what follows the metadata is not looked at. */
export function withoutTensors(start: Uint8Array): Uint8Array {
  if (!isGguf(start) || start.length < 16) return start;
  // `slice` of a Buffer of Node would share its memory
  const copy = new Uint8Array(start);
  copy.fill(0, 8, 16);
  return copy;
}
