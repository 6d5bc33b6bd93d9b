// Reads the directory of zip archives and writes smaller archives of some of their members. An archive with unusual
// structure gives no directory and is read whole; the wasm module then reports what is wrong. Spec: PKWARE APPNOTE 6.3.
import { allocate } from "./progress.js";
import type { RangeReader, OnBytes } from "./ranges.js";
import type { ByteRange } from "./requests.js";

const [LOCAL, CENTRAL, END, END64, LOCATOR64] = [0x04034b50, 0x02014b50, 0x06054b50, 0x06064b50, 0x07064b50];
/** Bytes of the end-of-central-directory record, and the most of the comment behind it. */
const [END_BYTES, COMMENT_BYTES] = [22, 65_535];
/** The largest directory that is read, in bytes. */
const MAX_DIRECTORY_BYTES = 100_000_000;
const IN_ZIP64 = 0xffffffff;

/** A member of an archive. Its span reaches from its local header to the next one. */
export interface Member extends ByteRange {
  name: string;
  flags: number;
  method: number;
  crc: number;
  /** Compressed and uncompressed size in bytes. */
  compressedSize: number;
  size: number;
}

const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** How many bytes at the end of an archive can contain the end record. */
export const TAIL_BYTES = END_BYTES + COMMENT_BYTES;

/** The members of an archive in the order of its directory. */
export async function membersOf(file: RangeReader, onBytes: OnBytes): Promise<Member[] | undefined> {
  const from = Math.max(0, file.size - TAIL_BYTES);
  const tail = await readPart(file, from, file.size, onBytes);
  const directory = findDirectory(tail, from);
  if (!directory || directory.end > file.size || directory.start > directory.end || directory.end - directory.start > MAX_DIRECTORY_BYTES) return undefined;
  const { start, end } = directory;
  const bytes = start >= from ? tail.subarray(start - from, end - from) : await readPart(file, start, end, onBytes);
  return parseDirectory(bytes, directory);
}

/** Reads a part of a file, from its head if that covers it. */
export async function readPart({ head, read }: RangeReader, start: number, end: number, onBytes: OnBytes): Promise<Uint8Array> {
  return end <= head.length ? head.subarray(start, end) : read(start, end, onBytes);
}

/** Finds the central directory. */
function findDirectory(tail: Uint8Array, from: number): (ByteRange & { count: number }) | undefined {
  const view = viewOf(tail);
  let at = tail.length - END_BYTES;
  while (at >= 0 && !(view.getUint32(at, true) === END && view.getUint16(at + 20, true) === tail.length - at - END_BYTES)) at -= 1;
  if (at < 0) return undefined;
  const [count, size, start] = [view.getUint16(at + 10, true), view.getUint32(at + 12, true), view.getUint32(at + 16, true)];
  const isZip64 = count === 0xffff || size === IN_ZIP64 || start === IN_ZIP64;
  if (!isZip64 || at < 20 || view.getUint32(at - 20, true) !== LOCATOR64) return { start, end: start + size, count };
  const recordStart = Number(view.getBigUint64(at - 12, true)) - from;
  if (!(recordStart >= 0 && recordStart <= at - 76) || view.getUint32(recordStart, true) !== END64) return undefined;
  const [count64, size64, start64] = [32, 40, 48].map((field) => Number(view.getBigUint64(recordStart + field, true))) as [number, number, number];
  return { start: start64, end: start64 + size64, count: count64 };
}

function parseDirectory(bytes: Uint8Array, { start, count }: ByteRange & { count: number }): Member[] | undefined {
  const view = viewOf(bytes);
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  const members: Member[] = [];
  try {
    let at = 0;
    for (let remaining = count; remaining > 0; remaining -= 1) {
      if (view.getUint32(at, true) !== CENTRAL) return undefined;
      const [name, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true)) as [number, number, number];
      const sizes = [24, 20, 42].map((field) => view.getUint32(at + field, true));
      const nameEnd = at + 46 + name;
      const all = sizes.includes(IN_ZIP64) ? withZip64Sizes(sizes, view, nameEnd, nameEnd + extra) : sizes;
      const [size, compressedSize, local] = all as [number, number, number];
      const [flags, method, crc] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true), view.getUint32(at + 16, true)];
      const memberName = text.decode(bytes.subarray(at + 46, nameEnd));
      members.push({ name: memberName, flags, method, crc, compressedSize, size, start: local, end: start });
      at = nameEnd + extra + comment;
    }
    if (at !== bytes.length) return undefined;
  } catch {
    // the directory is truncated, or a name is not valid text
    return undefined;
  }
  const sorted = [...members].sort((a, b) => a.start - b.start);
  for (const [i, member] of sorted.entries()) member.end = sorted[i + 1]?.start ?? start;
  const isConsistent = sorted.every((each) => each.end - each.start >= 30 + each.compressedSize);
  return isConsistent && new Set(members.map(({ name }) => name)).size === members.length ? members : undefined;
}

/** Replaces sizes that did not fit 32 bits by those in the ZIP64 extra field, which holds them in this order. */
function withZip64Sizes(sizes: number[], view: DataView, from: number, end: number): number[] {
  let at = from;
  while (view.getUint16(at, true) !== 1) at += 4 + view.getUint16(at + 2, true);
  at += 4;
  return sizes.map((size) => {
    if (size !== IN_ZIP64) return size;
    if (at + 8 > end) throw new RangeError("no such field");
    at += 8;
    return Number(view.getBigUint64(at - 8, true));
  });
}

/** The content of an uncompressed member, given its bytes from the local header on. */
export function memberContent(bytes: Uint8Array, { compressedSize }: Member): Uint8Array {
  const view = viewOf(bytes);
  const from = 30 + view.getUint16(26, true) + view.getUint16(28, true);
  return bytes.subarray(from, from + compressedSize);
}

/**
 * Writes an archive of members whose bytes lie in `part`, a section of another archive from offset `start` on, plus a
 * file `extraFile`.
 */
export function archiveOf(members: readonly Member[], part: Uint8Array, start: number, extraFile?: { name: string; bytes: Uint8Array }): Uint8Array {
  const all = members.map((member) => ({ ...member, start: member.start - start }));
  const parts = [part];
  const encoder = new TextEncoder();
  let length = part.length;
  const push = (size: number, signature: number, fill: (view: DataView) => void): void => {
    const record = new Uint8Array(size);
    const view = viewOf(record);
    view.setUint32(0, signature, true);
    fill(view);
    parts.push(record);
    length += size;
  };
  /** Writes the fields that local and central headers share, from their first shared field at `at` on. */
  const writeSharedFields = (view: DataView, at: number, { flags, method, crc, compressedSize, size }: Member, name: number): void => {
    [20, flags, method, 0, 0x21].forEach((v, i) => view.setUint16(at + 2 * i, v, true));
    [crc, compressedSize, size].forEach((v, i) => view.setUint32(at + 10 + 4 * i, v, true));
    view.setUint16(at + 22, name, true);
  };
  const append = (bytes: Uint8Array): void => {
    parts.push(bytes);
    length += bytes.length;
  };
  if (extraFile) {
    const { name, bytes } = extraFile;
    const member = { name, flags: 1 << 11, method: 0, crc: crc32(bytes), compressedSize: bytes.length, size: bytes.length, start: length, end: 0 };
    const encoded = encoder.encode(name);
    push(30, LOCAL, (view) => writeSharedFields(view, 4, member, encoded.length));
    append(encoded);
    append(bytes);
    all.push(member);
  }
  const directory = length;
  for (const member of all) {
    const encoded = encoder.encode(member.name);
    push(46, CENTRAL, (view) => {
      view.setUint16(4, 20, true);
      writeSharedFields(view, 6, member, encoded.length);
      view.setUint32(42, member.start, true);
    });
    append(encoded);
  }
  const size = length - directory;
  push(END_BYTES, END, (view) => {
    [8, 10].forEach((field) => view.setUint16(field, all.length, true));
    view.setUint32(12, size, true);
    view.setUint32(16, directory, true);
  });
  return concatBytes(parts, length);
}

/** Concatenates byte arrays. */
export function concatBytes(parts: readonly Uint8Array[], length = parts.reduce((sum, part) => sum + part.length, 0)): Uint8Array {
  const out = allocate(length);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** CRC-32 (IEEE), bit by bit, which is fast enough for indices. */
export function crc32(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}
