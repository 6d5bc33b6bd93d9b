// ONNX models whose weights are in files beside them.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { Tensor, init, load } from "gradloom";
import { model as onnx } from "../bench/browser/onnx.mjs";

const SIDE = 300;
const W = Float32Array.from({ length: SIDE * SIDE }, (_, i) => ((i * 7) % 13) - 6);
const B = Float32Array.from({ length: SIDE }, (_, i) => i / 10);
const data = new Uint8Array(4096 + W.byteLength);
data.set(new Uint8Array(W.buffer), 4096);
const X = Float32Array.from({ length: SIDE }, (_, i) => Math.sin(i));
const WANT = Array.from({ length: SIDE }, (_, j) => X.reduce((sum, v, i) => sum + v * W[i * SIDE + j], B[j]));

/** x times w plus b: w in one file from a place on, b in another one, whole. */
const made = (w = { file: "weights/w.bin", place: { offset: 4096, length: W.byteLength } }, b = { file: "b.bin" }) => onnx(
  { x: { shape: [1, SIDE], dtype: "float32" } },
  { w: { shape: [SIDE, SIDE], dtype: "float32", ...w }, b: { shape: [SIDE], dtype: "float32", ...b } },
  [["MatMul", ["x", "w"], "xw"], ["Add", ["xw", "b"], "y"]],
  [1, SIDE],
);
const FILES = { "/m/model.onnx": made(), "/m/weights/w.bin": data, "/m/b.bin": new Uint8Array(B.buffer) };

async function right(from, options = {}) {
  const model = await load(from, { device: "wasm", ...options });
  const { y } = await model.run({ x: new Tensor(X, [1, SIDE]) });
  const got = await y.data();
  assert.ok(WANT.every((v, i) => Math.abs(v - got[i]) < 1e-2), `${got.slice(0, 4)}`);
  model.dispose();
}

let [folder, server, url, asked] = [];

before(async () => {
  await init({ device: "wasm" });
  folder = mkdtempSync(join(tmpdir(), "gradloom-external-"));
  mkdirSync(join(folder, "m/weights"), { recursive: true });
  for (const [path, bytes] of Object.entries(FILES)) writeFileSync(join(folder, path), bytes);
  server = createServer((request, response) => {
    asked.push([request.url, request.headers.range]);
    const bytes = FILES[request.url.split("?")[0]];
    if (!bytes) return response.writeHead(404).end();
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
    if (from === undefined) return response.end(bytes);
    const end = Math.min(Number(to) + 1, bytes.length);
    response.writeHead(206, { "Content-Range": `bytes ${from}-${end - 1}/${bytes.length}` }).end(bytes.subarray(Number(from), end));
  }).listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  url = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.close();
  rmSync(folder, { recursive: true });
});

test("they are read from beside the model: of a server, by ranges, and of a disk", async () => {
  asked = [];
  const phases = [];
  await right(`${url}/m/model.onnx`, { onProgress: ({ phase, loaded, total }) => phase === "download" && phases.push([loaded, total]) });
  const of = (path) => asked.filter(([each]) => each === path).map(([, range]) => range);
  assert.ok(of("/m/weights/w.bin").every((range) => /^bytes=/.test(range)) && of("/m/b.bin").length > 0, JSON.stringify(asked));
  assert.equal(phases.at(-1)[0], phases.at(-1)[1]);
  await right(new URL(`${url}/m/model.onnx?version=2`));
  await right(join(folder, "m/model.onnx"));
  await right(pathToFileURL(join(folder, "m/model.onnx")));
});

test("or they are given, with a model that has no address", async () => {
  await right(made(), { files: { "weights/w.bin": new Blob([data]), "b.bin": FILES["/m/b.bin"] } });
  const error = await load(made(), { device: "wasm" }).catch((e) => e);
  assert.equal(error.code, "E_UNSUPPORTED");
  assert.match(`${error.message} ${error.hint}`, /weights\/w\.bin.*files:/);
});

test("what is wrong with them is said", async () => {
  const code = async (w, files) => (await load(made(w), { device: "wasm", files }).catch((e) => e)).code;
  for (const file of ["../w.bin", "/etc/passwd", "a\\b", "http://a/b", "%2e%2e/w", "", "a//b", "a/./b", ".w", "w?x", "w.bin "]) {
    assert.equal(await code({ file }, { [file]: data }), "E_FORMAT", file);
  }
  const given = { "w.bin": data, "b.bin": FILES["/m/b.bin"] };
  for (const place of [{ offset: data.length }, { offset: 0, length: data.length + 1 }, { offset: -4 }, { offset: "x" }, { offset: 1e20 }]) {
    assert.equal(await code({ file: "w.bin", place }, given), "E_FORMAT", JSON.stringify(place));
  }
  // too few bytes for the shape
  assert.notEqual(await code({ file: "w.bin", place: { offset: 0, length: 16 } }, given), undefined);
  FILES["/m/alone.onnx"] = made({ file: "none.bin" });
  assert.equal((await load(`${url}/m/alone.onnx`, { device: "wasm" }).catch((e) => e)).code, "E_FETCH");
});

test("tensors that are larger than a request, share bytes or come in another order than in the file", async () => {
  const side = 1700; // 11.6 MB, read in two requests
  const values = Float32Array.from({ length: side * side }, (_, i) => ((i * 31) % 101) - 50);
  FILES["/m/large.bin"] = new Uint8Array(values.buffer);
  const tensor = (offset) => ({ shape: [side], dtype: "float32", file: "large.bin", place: { offset, length: side * 4 } });
  const last = (side - 1) * side * 4;
  FILES["/m/large.onnx"] = onnx(
    { x: { shape: [1, side], dtype: "float32" } },
    {
      late: tensor(last), w: { shape: [side, side], dtype: "float32", file: "large.bin", place: { offset: 0, length: values.byteLength } },
      inside: tensor(last - 4), early: tensor(8),
    },
    [["MatMul", ["x", "w"], "xw"], ["Add", ["xw", "late"], "a"], ["Mul", ["a", "inside"], "b"], ["Add", ["b", "early"], "y"]],
    [1, side],
  );
  const ones = (at) => Float32Array.from({ length: side }, (_, i) => Number(i === at));
  const model = await load(`${url}/m/large.onnx`, { device: "wasm" });
  for (const row of [0, 850, 1233, side - 1]) {
    const { y } = await model.run({ x: new Tensor(ones(row), [1, side]) });
    const got = await y.data();
    const at = last / 4;
    const want = got.map((_, i) => (values[row * side + i] + values[at + i]) * values[at - 1 + i] + values[2 + i]);
    assert.deepEqual(got.filter((v, i) => v !== want[i]), new Float32Array(0), `row ${row}`);
  }
  model.dispose();
});

test("what other requests still bring after one failed goes nowhere", async () => {
  // the file's head is asked for first; of the requests for its tensors one fails, the other ends later
  let late = 0;
  const slow = async (address, options) => {
    const range = options?.headers?.Range ?? "";
    if (!String(address).endsWith("large.bin") || range === "bytes=0-65535") return fetch(address, options);
    if (range.startsWith("bytes=0-")) throw new Error("the line is cut");
    await new Promise((done) => setTimeout(done, 50));
    late += 1;
    return fetch(address, options);
  };
  const error = await load(`${url}/m/large.onnx`, { device: "wasm", fetch: slow }).catch((e) => e);
  assert.equal(error.code, "E_FETCH", error);
  await new Promise((done) => setTimeout(done, 200));
  assert.ok(late > 0);
  await right(`${url}/m/model.onnx`);
});
