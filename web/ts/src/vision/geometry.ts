// The geometry and number format of a picture in a tensor: which part of it, at which size and position, with which
// scaling. Does not touch pixels.
import type { DType } from "../dtype.js";
import { ValueError } from "../errors.js";
import type { Placement } from "./boxes.js";
import type { ColourOptions, ImageOptions, PerChannel, PictureOptions } from "./image.js";

const LAYOUTS = ["nchw", "nhwc", "chw", "hwc"];
const CHANNEL_ORDERS: Record<string, readonly number[]> = { rgb: [0, 1, 2], bgr: [2, 1, 0], rgba: [0, 1, 2, 3], grey: [0] };
/** The largest side in pixels, more than any canvas has. */
const MAX_SIDE = 1 << 15;

/** The indices of the channels within RGBA. */
export function channelOrder(channels: ColourOptions["channels"] = "rgb"): readonly number[] {
  const order = CHANNEL_ORDERS[channels];
  if (!order) throw new ValueError("E_VALUE", `there are no channels \`${String(channels)}\`; there are ${Object.keys(CHANNEL_ORDERS).join(", ")}`);
  return order;
}

/** Rounds to the nearest integer, ties to even. */
function roundHalfToEven(x: number): number {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low & 1) : Math.round(x);
}

function sizeOf({ size }: ImageOptions, defaultSize: readonly [number, number]): readonly [number, number] {
  const [height, width] = size === undefined ? defaultSize : typeof size === "number" ? [size, size] : size;
  if (![height, width].every((n) => Number.isInteger(n) && n > 0 && n < MAX_SIDE)) {
    throw new ValueError("E_VALUE", `a picture cannot be ${height} pixels high and ${width} wide`);
  }
  return [height, width];
}

/**
 * The placement of a picture: the part that is used, its size after scaling, and its position in a tensor that may be
 * larger or smaller.
 */
export interface PictureGeometry {
  part: { x: number; y: number; width: number; height: number };
  /** The size to which the part is scaled. */
  w: number;
  h: number;
  /** The size of the tensor, and the position of the scaled part in it. */
  width: number;
  height: number;
  left: number;
  top: number;
  placement: Placement;
}

/** The placement of a picture of the given size. */
export function geometryOf(from: { readonly width: number; readonly height: number }, options: ImageOptions): PictureGeometry {
  const { fit: fitMode = "fill", align = "center" } = options;
  const part = options.crop ?? { x: 0, y: 0, width: from.width, height: from.height };
  const isInside = part.x >= 0 && part.y >= 0 && part.width > 0 && part.height > 0 && part.x + part.width <= from.width && part.y + part.height <= from.height;
  if (!isInside) {
    throw new ValueError("E_VALUE", `crop: ${part.width} x ${part.height} at ${part.x}, ${part.y} is not inside ${from.width} x ${from.height} pixels`);
  }
  const [height, width] = sizeOf(options, [Math.max(1, Math.round(part.height)), Math.max(1, Math.round(part.width))]);
  let [w, h, left, top] = [width, height, 0, 0];
  if (fitMode === "contain") {
    const scale = Math.min(width / part.width, height / part.height);
    [w, h] = [Math.max(1, roundHalfToEven(part.width * scale)), Math.max(1, roundHalfToEven(part.height * scale))];
    if (align === "center") [left, top] = [Math.floor((width - w) / 2), Math.floor((height - h) / 2)];
  } else if (fitMode === "cover") {
    const shortSide = Math.min(part.width, part.height);
    const scale = Math.max(width / part.width, height / part.height, (options.shortSide ?? 0) / shortSide);
    // tolerate floating-point error in a size that should be an integer
    const scaledSize = (n: number, min: number): number => Math.max(min, Math.floor(n * scale + 1e-9));
    [w, h] = [scaledSize(part.width, width), scaledSize(part.height, height)];
    [left, top] = [-roundHalfToEven((w - width) / 2), -roundHalfToEven((h - height) / 2)];
  } else if (fitMode !== "fill") {
    throw new ValueError("E_VALUE", `there is no fit \`${String(fitMode)}\`; there are fill, cover, contain`);
  }
  const [scaleX, scaleY] = [w / part.width, h / part.height];
  const placement = { width: from.width, height: from.height, scaleX, scaleY, left: left - part.x * scaleX, top: top - part.y * scaleY };
  return { part, w, h, width, height, left, top, placement };
}

const perChannel = (value: PerChannel | undefined, channels: number, defaultValue: number, what: string): readonly number[] => {
  const list = typeof value === "object" ? value : new Array<number>(channels).fill(value ?? defaultValue);
  if (list.length !== channels) throw new ValueError("E_VALUE", `${what}: ${list.length} numbers for ${channels} channels`);
  return list;
};

/** The factor and offset of each channel; undefined if the bytes are used as they are. */
export function affine(dtype: DType, options: ColourOptions, channels: number): { times: number[]; plus: number[] } | undefined {
  const { scale, mean, std } = options;
  if (!dtype.includes("f")) {
    if ((scale ?? 1) === 1 && mean === undefined && std === undefined) return undefined;
    throw new ValueError("E_VALUE", `scale, mean and std make floats, not ${dtype}`);
  }
  const [means, stds] = [perChannel(mean, channels, 0, "mean"), perChannel(std, channels, 1, "std")];
  return { times: stds.map((s) => (scale ?? 1 / 255) / s), plus: means.map((m, c) => -m / (stds[c] as number)) };
}

/** Decodes a layout: whether channels come first, and whether there is a batch axis. */
export function layoutOf({ layout = "nchw" }: ImageOptions): { channelsFirst: boolean; batch: boolean } {
  if (!LAYOUTS.includes(layout)) throw new ValueError("E_VALUE", `there is no layout \`${String(layout)}\`; there are ${LAYOUTS.join(", ")}`);
  return { channelsFirst: layout.endsWith("chw"), batch: layout.length === 4 };
}

/** How a tensor is interpreted as a picture: its channels as indices within RGBA, and whether they come first. */
interface PictureShape {
  channels: number;
  height: number;
  width: number;
  channelsFirst: boolean;
  order: readonly number[];
}

/** The interpretation of a tensor's shape as a picture. */
export function pictureShapeOf(shape: readonly number[], options: PictureOptions): PictureShape {
  let sizes = shape;
  while (sizes.length > 3 && sizes[0] === 1) sizes = sizes.slice(1);
  if (sizes.length === 2) sizes = [1, ...sizes];
  const isChannelCount = (n: number | undefined): boolean => n === 1 || n === 3 || n === 4;
  const channelsFirst = shape.length === 2 || (options.layout ?? (isChannelCount(sizes[0]) ? "chw" : "hwc")) === "chw";
  const [channels, height, width] = (channelsFirst ? sizes : [sizes[2], sizes[0], sizes[1]]) as [number, number, number];
  if (sizes.length !== 3 || !isChannelCount(channels) || height * width === 0) {
    throw new ValueError("E_VALUE", `shape [${shape.join(", ")}] is not that of a picture with 1, 3 or 4 channels`);
  }
  const order = channels === 4 ? [0, 1, 2, 3] : channels === 1 ? [0] : options.channels === "bgr" ? [2, 1, 0] : [0, 1, 2];
  return { channels, height, width, channelsFirst, order };
}
