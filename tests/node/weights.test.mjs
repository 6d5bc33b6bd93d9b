// Files of weights that are read by ranges: what is asked of a server, and what becomes of answers that are wrong.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { gzipSync } from "node:zlib";
import { Tensor, init, loadWeights, memory } from "gradloom";

const MB = 1 << 20;
const HEAD = 1 << 16;

/** A safetensors file: `[name, dtype, shape, bytes]` in order, with a header of at least so many bytes. */
function safetensors(tensors, { header = 0, edit = (entries) => entries } = {}) {
  let at = 0;
  const entries = tensors.map(([name, dtype, shape, bytes]) => [name, { dtype, shape, data_offsets: [at, (at += bytes.length)] }]);
  // fromEntries keeps a name such as `__proto__`
  const text = JSON.stringify(Object.fromEntries(edit(entries)));
  const padded = text.padEnd(Math.max(header, Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  return Buffer.concat([length, Buffer.from(padded), ...tensors.map(([, , , bytes]) => bytes)]);
}

const floats = (n, first) => Buffer.from(Float32Array.from({ length: n }, (_, i) => first + (i % 1000)).buffer);
const MANY = ["a", "b", "c", "d", "e"].map((name, i) => [name, "F32", [MB], floats(MB, i * 1000)]);
const BIG = safetensors([...MANY, ["none", "F32", [0, 3], Buffer.alloc(0)], ["half", "F16", [2], Buffer.from([0, 0x3c, 0, 0xc0])]]);

let server;
let url;
/** Files by path: bytes, or a function that answers. */
const files = new Map();
/** What was asked for: `[path, range]`, and how many bytes were sent. Of a path, since what was given up may still arrive. */
const asked = [];
let counted;
let sent = 0;

function ranged(request, response, bytes, { change = (headers) => headers, body = (part) => part } = {}) {
  const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
  const [start, end] = from === undefined ? [0, bytes.length] : [Number(from), Math.min(Number(to) + 1, bytes.length)];
  if (from !== undefined && start >= bytes.length) return response.writeHead(416).end();
  const headers = from === undefined ? {} : { "Content-Range": `bytes ${start}-${end - 1}/${bytes.length}` };
  const part = body(bytes.subarray(start, end), start);
  if (request.url === counted) sent += part.length;
  response.writeHead(from === undefined ? 200 : 206, change(headers, start)).end(part);
}

before(async () => {
  await init({ device: "wasm" });
  server = createServer((request, response) => {
    asked.push([request.url, request.headers.range]);
    const found = files.get(request.url.split("?")[0]);
    if (!found) return response.writeHead(404).end();
    if (typeof found === "function") return found(request, response);
    ranged(request, response, found);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  url = `http://127.0.0.1:${server.address().port}`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

/** Puts a file at a new path. */
function start(name, file) {
  const path = `/${files.size}/${name}`;
  files.set(path, file);
  [counted, sent] = [path, 0];
  return url + path;
}

/** The ranges that were asked for of a file. */
const ranges = (from) => asked.filter(([path]) => url + path === String(from)).map(([, range]) => range);

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc");

/** Tensors that somebody refers to: what an earlier test left behind would go at any time. */
async function tensors() {
  for (let last = -1; ;) {
    gc();
    // what is collected is told of in tasks of its own
    for (let turn = 0; turn < 5; turn += 1) await new Promise((next) => setImmediate(next));
    const now = (await memory()).reduce((sum, each) => sum + each.tensors, 0);
    if (now === last) return now;
    last = now;
  }
}

/** Checks the tensors of BIG, and frees them. */
async function isBig(got, names = ["a", "b", "c", "d", "e", "none", "half"]) {
  assert.deepEqual(Object.keys(got), names);
  for (const [name, t] of Object.entries(got)) {
    if (name === "half") assert.deepEqual([t.dtype, [...(await t.data())]], ["f16", [1, -2]]);
    else if (name === "none") assert.deepEqual(t.shape, [0, 3]);
    else {
      const data = await t.data("f32");
      const first = names.indexOf(name) < 0 ? 0 : MANY.findIndex(([each]) => each === name) * 1000;
      assert.deepEqual([data.length, data[0], data[999], data[MB - 1]], [MB, first, first + 999, first + ((MB - 1) % 1000)], name);
    }
    t.dispose();
  }
}

test("a server that takes ranges is asked for parts, never for the file", async () => {
  const from = start("model.safetensors", BIG);
  const told = [];
  await isBig(await loadWeights(from, { onProgress: (p) => told.push(p) }));
  assert.equal(ranges(from)[0], `bytes=0-${HEAD - 1}`);
  const sizes = ranges(from).map((range) => range.match(/\d+/g).map(Number)).map(([a, b]) => b - a + 1);
  assert.ok(sizes.length >= 4 && sizes.every((n) => n <= 8 * MB), `${sizes}`);
  assert.ok(sent <= BIG.length + HEAD, `${sent} bytes were sent`);
  assert.ok(told.every((p, i) => p.phase === "download" && p.loaded >= (told[i - 1]?.loaded ?? 0)));
  const last = told.at(-1);
  assert.deepEqual([last.loaded, last.total], [sent, sent]);
});

test("only the tensors that are asked for are read", async () => {
  const from = start("model.safetensors", BIG);
  await isBig(await loadWeights(new URL(from), { only: ["d", "half"] }), ["d", "half"]);
  assert.ok(sent < 4.2 * MB, `${sent} bytes were sent`);
  sent = 0;
  await isBig(await loadWeights(from, { only: (name) => name === "a" || name === "c" }), ["a", "c"]);
  assert.ok(sent > 8 * MB && sent < 8.2 * MB, `${sent} bytes were sent`);
  assert.deepEqual(await loadWeights(from, { only: () => false }), {});
  const held = await tensors();
  await assert.rejects(loadWeights(from, { only: ["a", "zz"] }), { code: "E_INPUT", message: /zz/ });
  assert.equal(await tensors(), held);
});

test("a server without ranges gives the whole file, once", async () => {
  const whole = (request, response) => response.writeHead(200).end(BIG);
  const told = [];
  const from = start("whole.safetensors", whole);
  await isBig(await loadWeights(from, { onProgress: (p) => told.push(p) }));
  assert.equal(ranges(from).length, 1);
  assert.equal(told.at(-1).loaded, BIG.length);
  await isBig(await loadWeights(from, { only: ["b"] }), ["b"]);
  // as one of another origin that does not expose where a part lies
  const hidden = start("hidden.safetensors", (request, response) => ranged(request, response, BIG, { change: () => ({}) }));
  await isBig(await loadWeights(hidden));
  assert.deepEqual(ranges(hidden), [`bytes=0-${HEAD - 1}`, undefined]);
  // and one that refuses requests with the header
  const refusing = (at, options) => (options.headers ? Promise.reject(new TypeError("failed")) : fetch(at, options));
  await isBig(await loadWeights(start("refused.safetensors", BIG), { fetch: refusing }));
});

test("files on disk, Blobs and bytes", async () => {
  const folder = mkdtempSync(join(tmpdir(), "gradloom-weights-"));
  const path = join(folder, "model.safetensors");
  writeFileSync(path, BIG);
  await isBig(await loadWeights(path));
  await isBig(await loadWeights(path, { only: ["c"] }), ["c"]);
  rmSync(folder, { recursive: true });
  await isBig(await loadWeights(new Blob([BIG])));
  await isBig(await loadWeights(BIG, { only: ["e", "none"] }), ["e", "none"]);
  await isBig(await loadWeights(BIG.buffer.slice(BIG.byteOffset, BIG.byteOffset + BIG.length)));
  await assert.rejects(loadWeights("/no/such/file.safetensors"), { code: "E_FETCH" });
  await assert.rejects(loadWeights(7), { code: "E_VALUE" });
});

test("headers longer than the first look, names of every kind, and lengths that look like another format", async () => {
  const small = Array.from({ length: 2000 }, (_, i) => [`layer.${i}.weight`, "U8", [3], Buffer.from([i, i >> 8, 7])]);
  const from = start("long.safetensors", safetensors([...small, ["__proto__", "U8", [1], Buffer.from([5])]]));
  const got = await loadWeights(from);
  assert.deepEqual(Object.keys(got).length, 2001);
  assert.deepEqual([...(await got["layer.1999.weight"].data("u8"))], [1999 & 255, 1999 >> 8, 7]);
  assert.deepEqual([...(await Object.getOwnPropertyDescriptor(got, "__proto__").value.data("u8"))], [5]);
  assert.equal(ranges(from).length, 3, "first look, rest of the header, data");
  // 0x80 begins a pickle, "PK" an archive
  for (const header of [0x180, 0x4b50]) {
    const { x } = await loadWeights(start("x.safetensors", safetensors([["x", "I32", [], Buffer.from([9, 0, 0, 0])]], { header })));
    assert.deepEqual([x.shape, await x.item()], [[], 9]);
  }
  // files of other formats have no header to go by
  for (const file of ["torch_zip.pt", "torch_old.pt", "packed.npz"]) {
    const bytes = readFileSync(new URL(`../fixtures/io/${file}`, import.meta.url));
    const of = start(file, bytes);
    const all = await loadWeights(of);
    const [name] = Object.keys(all);
    const one = await loadWeights(of, { only: [name] });
    assert.deepEqual([Object.keys(one), await one[name].tolist()], [[name], await all[name].tolist()]);
  }
  const quants = start("quants.gguf", readFileSync(new URL("../fixtures/io/quants.gguf", import.meta.url)));
  const [name] = Object.keys(await loadWeights(quants));
  assert.deepEqual(Object.keys(await loadWeights(quants, { only: [name] })), [name]);
});

test("an index of files: each is read by ranges, those without wanted tensors not at all", async () => {
  files.set("/m/m-1.safetensors", safetensors([MANY[0], MANY[1], ["stray", "U8", [1], Buffer.from([1])]]));
  files.set("/m/m-2.safetensors", safetensors([MANY[2]]));
  const map = { a: "m-1.safetensors", b: "m-1.safetensors", c: "m-2.safetensors" };
  const index = (name, weight_map) => files.set(`/m/${name}.index.json`, Buffer.from(JSON.stringify({ weight_map }))) && `${url}/m/${name}.index.json`;
  const from = index("model.safetensors", map);
  await isBig(await loadWeights(from), ["a", "b", "c"]);
  const before = asked.length;
  await isBig(await loadWeights(`${from}?download=a/b`, { only: ["c"] }), ["c"]);
  const paths = new Set(asked.slice(before).map(([path]) => path));
  assert.deepEqual([...paths], ["/m/model.safetensors.index.json?download=a/b", "/m/m-2.safetensors"]);
  const held = await tensors();
  const lacking = index("lacking", { ...map, x: "m-2.safetensors" });
  await assert.rejects(loadWeights(lacking), { code: "E_INPUT", message: /tensor x/ });
  await assert.rejects(loadWeights(index("away", { a: "../secret" })), { code: "E_FORMAT" });
  assert.equal(await tensors(), held);
});

test("wrong headers are refused before anything else is read", async () => {
  const with64 = (n, rest = Buffer.alloc(100)) => {
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(n);
    return Buffer.concat([length, rest]);
  };
  const one = (entry) => safetensors([["x", "F32", [2], Buffer.alloc(8)]], { edit: () => [["x", entry]] });
  const bad = [
    Buffer.alloc(0), Buffer.from([1, 2, 3]), with64(2n ** 63n), with64(2n ** 53n), with64(101n), with64(10n, Buffer.from('{"x":1,   ')),
    Buffer.from("<!doctype html><p>not found</p>"), BIG.subarray(0, BIG.length - 1), BIG.subarray(0, 200),
    one({ dtype: "F32", shape: [2], data_offsets: [0, 12] }), one({ dtype: "F32", shape: [3], data_offsets: [0, 8] }),
    one({ dtype: "F32", shape: [2 ** 40], data_offsets: [0, 2 ** 42] }), one({ dtype: "F32", shape: [2], data_offsets: [-8, 0] }), one(null),
  ];
  const held = await tensors();
  for (const [i, bytes] of bad.entries()) {
    const from = start("bad", bytes);
    await assert.rejects(loadWeights(from), { code: "E_FORMAT" }, `over the network, ${i}`);
    assert.ok(ranges(from).length <= 2, `${i}: ${ranges(from)}`);
    await assert.rejects(loadWeights(bytes), { code: "E_FORMAT" }, `of memory, ${i}`);
  }
  // a length that fits the size which a server claims is still none to fetch
  const huge = { "Content-Range": `bytes 0-${HEAD - 1}/${2 ** 50}` };
  const claims = (request, response) => response.writeHead(206, huge).end(with64(2n ** 40n, Buffer.alloc(HEAD - 8)));
  const from = start("claims", claims);
  await assert.rejects(loadWeights(from), { code: "E_FORMAT" });
  assert.equal(ranges(from).length, 1);
  // nor is a tensor as large as that
  const size = 2 ** 52;
  const tensor = safetensors([["x", "U8", [size], Buffer.alloc(0)]], { edit: () => [["x", { dtype: "U8", shape: [size], data_offsets: [0, size] }]] });
  const vast = (request, response) => {
    const [, first, last] = /(\d+)-(\d+)/.exec(request.headers.range).map(Number);
    const all = tensor.length + size;
    const part = Buffer.concat([tensor, Buffer.alloc(HEAD)]).subarray(0, HEAD);
    response.writeHead(206, { "Content-Range": `bytes ${first}-${Math.min(last, all - 1)}/${all}` }).end(part);
  };
  await assert.rejects(loadWeights(start("vast", vast)), { code: "E_FORMAT" });
  assert.equal(await tensors(), held);
});

test("answers that are not what was asked for are errors, and leave nothing behind", async () => {
  const later = (f) => ({ change: (headers, at) => (at === 0 ? headers : f(headers, at)) });
  const size = BIG.length;
  const wrong = {
    "another place": later((_, at) => ({ "Content-Range": `bytes ${at + 1}-${at + 8 * MB}/${size}` })),
    "another size": later((headers) => ({ "Content-Range": headers["Content-Range"].replace(/\d+$/, String(size + 1)) })),
    "no place": later(() => ({})),
    "another file": { change: (headers, at) => ({ ...headers, ETag: `"${at}"` }) },
    "fewer bytes": { body: (part, at) => (at === 0 ? part : part.subarray(1)) },
    "more bytes": { body: (part, at) => (at === 0 ? part : Buffer.concat([part, Buffer.alloc(1)])) },
    "a first part of another place": { change: () => ({ "Content-Range": `bytes 1-${HEAD}/${size}` }) },
    "packed parts": later((headers) => ({ ...headers, "Content-Encoding": "br" })),
  };
  const held = await tensors();
  for (const [what, how] of Object.entries(wrong)) {
    const from = start("wrong", (request, response) => ranged(request, response, BIG, how));
    await assert.rejects(loadWeights(from), { code: "E_FETCH" }, what);
  }
  for (const status of [404, 500, 301, 204]) {
    await assert.rejects(loadWeights(start("status", (request, response) => response.writeHead(status).end())), { code: "E_FETCH" }, `${status}`);
  }
  const first = (request) => request.headers.range === `bytes=0-${HEAD - 1}`;
  const stops = (request, response) => (!first(request) ? response.destroy() : ranged(request, response, BIG));
  await assert.rejects(loadWeights(start("stops", stops)), { code: "E_FETCH" });
  // whole answers after a part: the server has changed its mind
  const moody = (request, response) => (!first(request) ? response.writeHead(200).end(BIG) : ranged(request, response, BIG));
  await assert.rejects(loadWeights(start("moody", moody)), { code: "E_FETCH", message: /status 200/ });
  await assert.rejects(loadWeights("http://127.0.0.1:9/closed"), { code: "E_FETCH" });
  assert.equal(await tensors(), held);
});

test("a signal ends it at any time, with its reason", async () => {
  const held = await tensors();
  const reason = new Error("enough");
  const from = start("model", BIG);
  await assert.rejects(loadWeights(from, { signal: AbortSignal.abort(reason) }), reason);
  assert.equal(ranges(from).length, 0);
  for (const requests of [1, 2, 3]) {
    const stop = new AbortController();
    let count = 0;
    // the answer that is waited for never comes
    const slow = (request, response) => ((count += 1) === requests ? stop.abort(reason) : ranged(request, response, BIG));
    await assert.rejects(loadWeights(start("slow", slow), { signal: stop.signal }), reason, `at request ${requests}`);
  }
  const stop = new AbortController();
  const onProgress = ({ loaded }) => loaded > 5 * MB && stop.abort(reason);
  await assert.rejects(loadWeights(from, { signal: stop.signal, onProgress }), reason);
  assert.equal(await tensors(), held);
});

test("one array by its address", async () => {
  const npy = readFileSync(new URL("../fixtures/io/c_f32.npy", import.meta.url));
  const t = await Tensor.fromUrl(start("x.npy", npy));
  const again = await Tensor.fromUrl(start("x.npy.gz", gzipSync(npy)), { gunzip: true });
  assert.equal(t.dtype, "f32");
  assert.deepEqual([again.shape, await again.tolist()], [t.shape, await t.tolist()]);
  const values = Float32Array.of(1, 2, 3, 4, 5, 6);
  const raw = start("raw", Buffer.from(values.buffer));
  assert.deepEqual(await (await Tensor.fromUrl(raw, { dtype: "f32", shape: [2, 3] })).tolist(), [[1, 2, 3], [4, 5, 6]]);
  const bytes = await Tensor.fromUrl(raw);
  assert.deepEqual([bytes.dtype, bytes.shape, [...(await bytes.data("u8"))]], ["u8", [24], [...new Uint8Array(values.buffer)]]);
  const f64 = await Tensor.fromUrl(new URL("../fixtures/io/big_f64_v3.npy", import.meta.url));
  assert.equal(f64.dtype, "f64");
  await assert.rejects(Tensor.fromUrl(raw, { dtype: "f64", shape: [2] }), { code: "E_VALUE" });
  await assert.rejects(Tensor.fromUrl(raw, { gunzip: true }), { code: "E_FORMAT" });
  await assert.rejects(Tensor.fromUrl(`${url}/none`), { code: "E_FETCH" });
  await assert.rejects(Tensor.fromUrl(npy.subarray(0, 80)), { code: "E_FORMAT" });
});
