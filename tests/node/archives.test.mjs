// Files of torch.save and npz archives on servers that take ranges: what is asked of them, and that the values are those of the file.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { crc32, deflateRawSync } from "node:zlib";
import { init, loadWeights } from "gradloom";
import { leftOut } from "../lib/left_out.mjs";

const MB = 1 << 20;
const HEAD = 1 << 16;

const le = (value, bytes) => {
  const out = Buffer.alloc(8);
  out.writeBigUInt64LE(BigInt(value));
  return out.subarray(0, bytes);
};

/**
 * A zip archive of `[name, bytes, how]`, as PyTorch writes them: contents begin at multiples of 64, and sizes follow them. `wide` gives it the records of
 * archives of more than 4 GB.
 */
function archive(members, { wide = false, comment = "" } = {}) {
  const parts = [];
  const records = [];
  let at = 0;
  const push = (...list) => list.forEach((each) => at += parts[parts.push(Buffer.from(each)) - 1].length);
  for (const [name, bytes, { deflated = false, crc = crc32(bytes) } = {}] of members) {
    const data = deflated ? deflateRawSync(bytes) : bytes;
    const common = [le(20, 2), le(8 | (1 << 11), 2), le(deflated ? 8 : 0, 2), le(0, 4)];
    const padding = (64 - ((at + 30 + name.length) % 64)) % 64;
    const local = at;
    push("PK\x03\x04", ...common, Buffer.alloc(12), le(name.length, 2), le(padding, 2), name, Buffer.alloc(padding), data);
    push("PK\x07\x08", le(crc, 4), le(data.length, 4), le(bytes.length, 4));
    const extra = wide ? [le(1, 2), le(24, 2), le(bytes.length, 8), le(data.length, 8), le(local, 8)] : [];
    const sizes = wide ? [le(2 ** 32 - 1, 4), le(2 ** 32 - 1, 4)] : [le(data.length, 4), le(bytes.length, 4)];
    const place = wide ? le(2 ** 32 - 1, 4) : le(local, 4);
    records.push("PK\x01\x02", le(20, 2), ...common, le(crc, 4), ...sizes, le(name.length, 2), le(wide ? 28 : 0, 2), Buffer.alloc(10), place, name, ...extra);
  }
  const directory = at;
  push(...records);
  const [size, end] = [at - directory, at];
  if (wide) {
    push("PK\x06\x06", le(44, 8), le(45, 2), le(45, 2), le(0, 8), le(members.length, 8), le(members.length, 8), le(size, 8), le(directory, 8));
    push("PK\x06\x07", le(0, 4), le(end, 8), le(1, 4));
  }
  const [count, where] = wide ? [le(0xffff, 2), le(2 ** 32 - 1, 4)] : [le(members.length, 2), le(directory, 4)];
  push("PK\x05\x06", le(0, 4), count, count, le(size, 4), where, le(comment.length, 2), comment);
  return Buffer.concat(parts);
}

const text = (t) => Buffer.concat([Buffer.from("X"), le(t.length, 4), Buffer.from(t)]);
const whole = (n) => Buffer.concat([Buffer.from("J"), le(n, 4)]);
const global = (path) => Buffer.from(`c${path.replace(" ", "\n")}\n`);
const tuple = (...items) => Buffer.concat([Buffer.from("("), ...items, Buffer.from("t")]);
const storage = (type, key, n) => Buffer.concat([tuple(text("storage"), global(`torch ${type}`), text(key), text("cpu"), whole(n)), Buffer.from("Q")]);
const ordered = Buffer.concat([global("collections OrderedDict"), Buffer.from(")R")]);
const view = (of, offset, shape, strides) => Buffer.concat([
  global("torch._utils _rebuild_tensor_v2"),
  tuple(of, whole(offset), tuple(...shape.map(whole)), tuple(...strides.map(whole)), Buffer.from([0x89]), ordered),
  Buffer.from("R"),
]);
const dict = (entries) => Buffer.concat([ordered, Buffer.from("("), ...entries.flatMap(([key, value]) => [text(key), value]), Buffer.from("u")]);
const pickle = (value) => Buffer.concat([Buffer.from([0x80, 2]), value, Buffer.from(".")]);

const floats = (n, first) => Buffer.from(Float32Array.from({ length: n }, (_, i) => first + (i % 1000)).buffer);
/** Numbers that deflate makes no smaller. */
const noise = (n, seed) => Float32Array.from({ length: n }, (_, i) => Math.fround(Math.sin(seed + i * 12.9898) * 43758.5453));

const DATA = { 0: floats(MB, 0), 1: floats(MB, 1000), 2: floats(MB, 2000), 3: floats(6, 0) };
const full = (key) => view(storage("FloatStorage", key, MB), 0, [1024, 1024], [1024, 1]);
const MODEL = pickle(dict([
  ["epoch", whole(7)],
  ["model", dict([
    ["a.weight", full("0")],
    ["b.weight", full("1")],
    // two tensors of a storage, one of them turned
    ["b.row", view(storage("FloatStorage", "1", MB), 5 * 1024, [4], [1])],
    ["b.turned", view(storage("FloatStorage", "1", MB), 0, [3, 2], [1, 1024])],
    ["c.weight", full("2")],
    ["tiny", view(storage("FloatStorage", "3", 6), 0, [2, 3], [3, 1])],
  ])],
]));
const NAMES = ["a.weight", "b.weight", "b.row", "b.turned", "c.weight", "tiny"].map((name) => `model.${name}`);
const members = (index = MODEL, data = DATA) => [
  ["m/data.pkl", index],
  ["m/byteorder", Buffer.from("little")],
  ...Object.entries(data).map(([key, bytes]) => [`m/data/${key}`, bytes]),
  ["m/version", Buffer.from("3\n")],
];

const npy = (array, shape = [array.length]) => {
  const head = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`.padEnd(117) + "\n";
  return Buffer.concat([Buffer.from("\x93NUMPY\x01\x00", "latin1"), le(head.length, 2), Buffer.from(head), Buffer.from(array.buffer)]);
};

let server;
let url;
const files = new Map();
let asked;
let sent;

before(async () => {
  await init({ device: "wasm" });
  server = createServer((request, response) => {
    const { bytes, hasRanges } = files.get(request.url);
    const { range } = request.headers;
    asked.push(range);
    const [, from, to] = (hasRanges && /^bytes=(\d+)-(\d+)$/.exec(range ?? "")) || [];
    const [start, end] = from === undefined ? [0, bytes.length] : [Number(from), Math.min(Number(to) + 1, bytes.length)];
    sent += end - start;
    const headers = from === undefined ? {} : { "Content-Range": `bytes ${start}-${end - 1}/${bytes.length}` };
    response.writeHead(from === undefined ? 200 : 206, headers).end(bytes.subarray(start, end));
  }).listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  url = `http://127.0.0.1:${server.address().port}`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

/** What a file of a server gives, and what that took. */
async function over(bytes, options, hasRanges = true) {
  const path = `/${files.size}`;
  files.set(path, { bytes, hasRanges });
  [asked, sent] = [[], 0];
  return loadWeights(url + path, options);
}

const plain = async (tensors) => Object.fromEntries(await Promise.all(Object.entries(tensors).map(async ([name, t]) => {
  const out = [name, [t.dtype, t.shape, [...(await t.data())]]];
  t.dispose();
  return out;
})));

/** That every tensor is what the whole file gives. */
const isSame = async (got, bytes) => {
  const all = await plain(await loadWeights(new Uint8Array(bytes)));
  const some = await plain(got);
  assert.deepEqual(some, Object.fromEntries(Object.keys(some).map((name) => [name, all[name]])));
  return Object.keys(some);
};

const isParts = (bytes) => {
  assert.ok(asked.every((range) => range !== undefined), `${asked}`);
  assert.ok(sent <= bytes.length + 2 * HEAD + 100, `${sent} bytes were sent of ${bytes.length}`);
};

for (const wide of [false, true]) {
  test(`a file of torch.save is read by ranges, and only the storages that are asked for${wide ? ", with places of 64 bits" : ""}`, async () => {
    const file = archive(members(), { wide });
    const told = [];
    assert.deepEqual(await isSame(await over(file, { onProgress: (p) => told.push(p) }), file), NAMES);
    isParts(file);
    // the beginning, the end, and the data in requests of at most 8 MB
    assert.equal(asked[0], `bytes=0-${HEAD - 1}`);
    assert.ok(asked.length >= 4 && asked.length <= 5, `${asked}`);
    assert.ok(asked.every((range) => range.match(/\d+/g).reduce((a, b) => b - a + 1) <= 8 * MB), `${asked}`);
    assert.deepEqual([told.at(-1).loaded, told.at(-1).total], [sent, sent]);
    // a storage of 4 MB, for three tensors
    assert.deepEqual(await isSame(await over(file, { only: (name) => name.startsWith("model.b") }), file), NAMES.slice(1, 4));
    assert.ok(asked.length === 3 && sent > 4 * MB && sent < 4.2 * MB, `${sent} bytes by ${asked}`);
    assert.deepEqual(await isSame(await over(file, { only: ["model.tiny"] }), file), ["model.tiny"]);
    assert.ok(asked.length === 3 && sent < 3 * HEAD, `${sent} bytes by ${asked}`);
    await assert.rejects(over(file, { only: ["model.none"] }), { code: "E_INPUT", message: /model\.none/ });
  });
}

test("what PyTorch itself wrote, in an archive and before there were archives", async () => {
  // every type there is, between much else
  const small = readFileSync(new URL("../fixtures/io/torch_zip.pt", import.meta.url));
  const all = await loadWeights(new Uint8Array(small));
  const end = small.lastIndexOf("PK\x05\x06");
  const [size, start] = [small.readUInt32LE(end + 12), small.readUInt32LE(end + 16)];
  const rest = archive([["torch_zip/.pad", Buffer.alloc(4 * HEAD)]]);
  const own = rest.readUInt32LE(rest.length - 6);
  const record = Buffer.from(rest.subarray(own, rest.length - 22));
  record.writeUInt32LE(start, 42);
  const tail = Buffer.from(rest.subarray(rest.length - 22));
  const count = small.readUInt16LE(end + 10) + 1;
  for (const field of [8, 10]) tail.writeUInt16LE(count, field);
  tail.writeUInt32LE(size + record.length, 12);
  tail.writeUInt32LE(start + own, 16);
  const file = Buffer.concat([small.subarray(0, start), rest.subarray(0, own), small.subarray(start, start + size), record, tail]);
  const got = await plain(await over(file));
  assert.deepEqual(got, await plain(all));
  assert.ok(Object.keys(got).length > 15 && sent < 2.1 * HEAD, `${sent} bytes by ${asked}`);
  // 19 MB
  const fetched = new URL("../../.cache/models/efficientnet_lite0/model.pth", import.meta.url);
  if (!existsSync(fetched)) return leftOut("archives", "run `node scripts/fetch-models.mjs` first");
  const old = readFileSync(fetched);
  const names = await isSame(await over(old, { only: (name) => /blocks\.0\.|classifier|fc/.test(name) }), old);
  assert.ok(names.length > 5 && asked.every((range) => range !== undefined), `${names}`);
  const [only] = names;
  await isSame(await over(old, { only: [only] }), old);
  assert.ok(sent < 8 * HEAD, `${sent} bytes by ${asked}`);
  await isSame(await over(old), old);
  isParts(old);
});

test("arrays of an npz are read by ranges, packed or not", async () => {
  const arrays = [0, 1, 2, 3].map((i) => [`layer${i}/kernel:0.npy`, npy(noise(MB, i), [1024, 1024])]);
  for (const deflated of [false, true]) {
    const file = archive([...arrays.map(([name, bytes], i) => [name, bytes, { deflated: deflated && i !== 2 }]), ["bias.npy", npy(Float32Array.of(1, 2))]]);
    const names = ["layer0/kernel:0", "layer1/kernel:0", "layer2/kernel:0", "layer3/kernel:0", "bias"];
    assert.deepEqual(await isSame(await over(file), file), names);
    isParts(file);
    assert.deepEqual(await isSame(await over(file, { only: ["layer3/kernel:0"] }), file), ["layer3/kernel:0"]);
    assert.ok(asked.length === 3 && sent < 4.3 * MB, `${sent} bytes by ${asked}`);
    const blob = await loadWeights(new Blob([file]), { only: ["layer1/kernel:0", "bias"] });
    assert.deepEqual(await isSame(blob, file), ["layer1/kernel:0", "bias"]);
  }
});

test("of a server without ranges it is the whole file, once", async () => {
  for (const file of [archive(members()), archive([["x.npy", npy(noise(MB, 1))]])]) {
    await isSame(await over(file, {}, false), file);
    assert.deepEqual([asked.length, sent], [1, file.length]);
  }
});

test("what is not as usual is read whole, and what is wrong is an error", async () => {
  const pad = ["m/pad", Buffer.alloc(4 * HEAD)];
  const fine = archive([...members(), pad], { comment: "as some archives have" });
  await isSame(await over(fine, { only: ["model.tiny"] }), fine);
  assert.ok(asked.length === 3, `${asked}`);
  // a protocol of text
  const lines = Buffer.from("(dp0\n.");
  const file = archive([["m/data.pkl", lines], pad]);
  assert.deepEqual(await over(file), {});
  assert.equal(asked.at(-1), `bytes=0-${file.length - 1}`);
  const wrong = {
    "a storage that is missing": members(MODEL, { 0: DATA[0], 1: DATA[1], 2: DATA[2] }),
    "a storage that is shorter": members(MODEL, { ...DATA, 1: DATA[3] }),
    "another checksum": [...members(), pad].map(([name, bytes]) => [name, bytes, name === "m/data/1" ? { crc: 7 } : {}]),
    "two of a name": [...members(), ["m/data/0", DATA[0]]],
    "an index that is cut": members(MODEL.subarray(0, 300)),
    "a packed storage": members().map(([name, bytes]) => [name, bytes, { deflated: name === "m/data/2" }]),
    "an array that is none": [["x.npy", Buffer.alloc(4 * HEAD, 1)]],
  };
  for (const [what, list] of Object.entries(wrong)) await assert.rejects(over(archive(list)), { code: "E_FORMAT" }, what);
  await assert.rejects(over(archive(members()).subarray(0, 9 * MB)), { code: "E_FORMAT" });
  const lying = archive(members());
  lying.writeUInt32LE(2 ** 32 - 2, lying.length - 6);
  await assert.rejects(over(lying), { code: "E_FORMAT" });
  // of a file with objects of classes the index alone is read
  const object = pickle(dict([["a", full("0")], ["hook", Buffer.concat([global("os system"), tuple(text("true")), Buffer.from("R")])]]));
  await assert.rejects(over(archive(members(object))), { code: "E_UNSUPPORTED", message: /os\.system/ });
  assert.ok(asked.length === 2 && sent < 3 * HEAD, `${sent} bytes by ${asked}`);
});
