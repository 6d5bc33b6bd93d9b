// Reads PNG files of 8 bits a channel without interlacing (PNG specification, sections 5, 9 and 11), since Node decodes no pictures.
import { inflateSync } from "node:zlib";

/** Channels by colour type: grey, RGB, grey and alpha, RGBA. */
const CHANNELS = { 0: 1, 2: 3, 4: 2, 6: 4 };

/** What a byte of each filter adds to: nothing, the byte to the left, above, their mean, or the nearest of three (Paeth). */
const PREDICTORS = [
  () => 0,
  (left) => left,
  (_, up) => up,
  (left, up) => (left + up) >> 1,
  (left, up, corner) => {
    const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)];
    return a <= b && a <= c ? left : b <= c ? up : corner;
  },
];

/** The pixels of a file: `{ data, width, height }` with one byte a channel. */
export function readPng(file) {
  const parts = [];
  let header;
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at);
    const kind = file.toString("latin1", at + 4, at + 8);
    const body = file.subarray(at + 8, at + 8 + length);
    if (kind === "IHDR") header = body;
    if (kind === "IDAT") parts.push(body);
    at += length + 12;
  }
  const [width, height, bits, kind, interlace] = [header.readUInt32BE(0), header.readUInt32BE(4), header[8], header[9], header[12]];
  const channels = CHANNELS[kind];
  if (bits !== 8 || !channels || interlace !== 0) throw new Error(`a PNG of ${bits} bits and colour type ${kind}`);
  const raw = inflateSync(Buffer.concat(parts));
  const row = width * channels;
  const data = new Uint8Array(row * height);
  for (let y = 0; y < height; y += 1) {
    const predict = PREDICTORS[raw[y * (row + 1)]];
    for (let x = 0; x < row; x += 1) {
      const at = y * row + x;
      const inRow = x >= channels;
      const corner = inRow && y > 0 ? data[at - row - channels] : 0;
      data[at] = raw[y * (row + 1) + 1 + x] + predict(inRow ? data[at - channels] : 0, y > 0 ? data[at - row] : 0, corner);
    }
  }
  return { data, width, height };
}
