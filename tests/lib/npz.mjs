// Zip archives and numpy's npy and npz, reading and writing; runs in pages and in node. Only what our tests and data need:
// stored and deflated entries, little-endian numbers, C order. The package has its own reader; this one checks it.

const TYPES = {
  "|b1": Uint8Array,
  "|u1": Uint8Array,
  "|i1": Int8Array,
  "<u2": Uint16Array,
  "<i2": Int16Array,
  "<u4": Uint32Array,
  "<i4": Int32Array,
  "<u8": BigUint64Array,
  "<i8": BigInt64Array,
  "<f2": Uint16Array,
  "<f4": Float32Array,
  "<f8": Float64Array,
};

const inNode = globalThis.process?.versions?.node !== undefined;
const zlib = inNode ? await import("node:zlib") : null;

async function inflate(bytes) {
  if (zlib) return new Uint8Array(zlib.inflateRawSync(bytes));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The entries of a zip archive whose names pass `wanted`: Map of name to bytes. */
export async function readZip(bytes, wanted = () => true) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  if (end < 0) throw new Error("not a zip archive");
  const entries = new Map();
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    const method = view.getUint16(at + 10, true);
    const packed = view.getUint32(at + 20, true);
    const [nameLength, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
    const local = view.getUint32(at + 42, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameLength));
    at += 46 + nameLength + extra + comment;
    if (!wanted(name)) continue;
    if (method !== 0 && method !== 8) throw new Error(`${name}: compression method ${method}`);
    const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    const body = bytes.subarray(start, start + packed);
    entries.set(name, method === 8 ? await inflate(body) : Uint8Array.from(body));
  }
  return entries;
}

/** One npy file: {dtype, shape, data}. */
export function readNpy(bytes) {
  if (String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY") throw new Error("not an npy file");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const wide = bytes[6] > 1;
  const start = (wide ? 12 : 10) + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(wide ? 12 : 10, start));
  const dtype = /'descr': '([^']+)'/.exec(header)[1];
  if (/'fortran_order': True/.test(header)) throw new Error("Fortran order");
  const shape = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((part) => part.trim()).map(Number);
  const Type = TYPES[dtype];
  if (!Type) throw new Error(`dtype ${dtype}`);
  const count = shape.reduce((product, size) => product * size, 1);
  const data = new Type(bytes.slice(start, start + count * Type.BYTES_PER_ELEMENT).buffer);
  return { dtype, shape, data };
}

/** An npz archive: object of name to {dtype, shape, data}. */
export async function readNpz(bytes) {
  const arrays = {};
  for (const [name, body] of await readZip(bytes)) arrays[name.replace(/\.npy$/, "")] = readNpy(body);
  return arrays;
}

/** An npy file of {dtype, shape, data}. */
function npy({ dtype, shape, data }) {
  const dims = shape.map((size) => `${size},`).join(" ");
  const text = `{'descr': '${dtype}', 'fortran_order': False, 'shape': (${dims}), }`;
  const padded = text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11) + "\n";
  const head = new Uint8Array(10 + padded.length);
  head.set([0x93, 78, 85, 77, 80, 89, 1, 0, padded.length & 255, padded.length >> 8]);
  head.set(new TextEncoder().encode(padded), 10);
  const body = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const bytes = new Uint8Array(head.length + body.length);
  bytes.set(head);
  bytes.set(body, head.length);
  return bytes;
}

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit += 1) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
  return n >>> 0;
});

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = CRC[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** A deflated npz of name to {dtype, shape, data}; node only. The same input gives the same bytes. */
export function writeNpz(arrays) {
  const files = [];
  const directory = [];
  let offset = 0;
  for (const [key, array] of Object.entries(arrays)) {
    const name = new TextEncoder().encode(`${key}.npy`);
    const raw = npy(array);
    const packed = new Uint8Array(zlib.deflateRawSync(raw, { level: 9 }));
    // Signature aside, a local header and the middle of a directory entry are the same 26 bytes.
    const common = new DataView(new ArrayBuffer(26));
    common.setUint16(0, 20, true);
    common.setUint16(4, 8, true);
    common.setUint16(8, 0x21, true);
    common.setUint32(10, crc32(raw), true);
    common.setUint32(14, packed.length, true);
    common.setUint32(18, raw.length, true);
    common.setUint16(22, name.length, true);
    const shared = new Uint8Array(common.buffer);
    files.push(Uint8Array.of(0x50, 0x4b, 3, 4), shared, name, packed);
    const tail = new DataView(new ArrayBuffer(14));
    tail.setUint32(10, offset, true);
    directory.push(Uint8Array.of(0x50, 0x4b, 1, 2, 20, 0), shared, new Uint8Array(tail.buffer), name);
    offset += 30 + name.length + packed.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const end = new DataView(new ArrayBuffer(22));
  end.setUint32(0, 0x06054b50, true);
  for (const field of [8, 10]) end.setUint16(field, Object.keys(arrays).length, true);
  end.setUint32(12, size, true);
  end.setUint32(16, offset, true);
  return Buffer.concat([...files, ...directory, new Uint8Array(end.buffer)]);
}
