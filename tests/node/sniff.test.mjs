// Files that are not what a loader expects: each loader's error says what the file is.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { ChatTemplate, FormatError, Tensor, Tokenizer, init, load, loadWeights } from "gradloom";
import * as data from "gradloom/data";

const fixture = (path) => readFileSync(new URL(`../fixtures/${path}`, import.meta.url));
const text = (string) => new TextEncoder().encode(string);
const SILERO = readFileSync(new URL("../models/silero_vad_op15/model.onnx", import.meta.url));

const LOADERS = {
  load: (from) => load(from),
  loadWeights: (from) => loadWeights(from),
  Tokenizer: (from) => Tokenizer.load(from),
  ChatTemplate: (from) => ChatTemplate.load(from),
  readIdx: (from) => data.readIdx(from),
  cifar: (from) => data.cifar(from, 10),
};
const ALL = Object.keys(LOADERS);
const PAGE = "\ufeff\n<!-- x --><!DOCTYPE html><html><head><title>404 Not\n Found</title></head>";
const LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 90313957\n";

/** What a file is, what the error says, its hint, and the loaders that take it for what it is. */
const FILES = {
  "an empty file": [new Uint8Array(0), /is empty/, /cut off/, ["cifar"]],
  "a web page": [text(PAGE), /a web page with the title "404 Not Found"/, /address right/, []],
  "a page without a title": [text("<html><body>no"), /is a web page,/, /address right/, []],
  "a pointer": [text(LFS), /a Git LFS pointer to a file of 90313957 bytes/, /git lfs pull/, []],
  "an answer in JSON": [text('{"error":"Repository not found"}'), /the server's answer "Repository not found"/, /login/, []],
  "an answer in XML": [text('<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'), /an XML document that says "AccessDenied"/, /address right/, []],
  "a plain answer": [text("Not found\n"), /text that begins "Not found"/, undefined, []],
  "a gzipped file": [gzipSync(SILERO), /gzipped/, /Content-Encoding/, ["readIdx", "cifar"]],
  "a zip archive": [fixture("io/small.zip"), /a zip archive/, /unpack/, ["loadWeights", "readIdx", "cifar"]],
  "a picture": [fixture("images/bird/rgb.png"), /a PNG picture/, undefined, []],
  safetensors: [fixture("io/small.safetensors"), /a safetensors file/, /loadWeights reads it/, ["loadWeights"]],
  GGUF: [fixture("io/quants.gguf"), /a GGUF file/, /loadWeights reads/, ["loadWeights", "Tokenizer", "ChatTemplate"]],
  npz: [fixture("io/stored.npz"), /an npz file/, /loadWeights/, ["loadWeights", "readIdx", "cifar"]],
  npy: [fixture("io/c_f32.npy"), /an npy file/, /fromUrl/, []],
  "torch.save": [fixture("io/torch_zip.pt"), /a file that torch.save wrote/, /loadWeights/, ["loadWeights"]],
  "torch.save of old": [fixture("io/torch_old.pt"), /a pickle/, /loadWeights/, ["loadWeights"]],
  ONNX: [SILERO, /an ONNX model/, /`load` reads it/, ["load"]],
  TFLite: [readFileSync(new URL("../models/selfie_segmentation/model.tflite", import.meta.url)), /a TensorFlow Lite model/, /`load`/, ["load"]],
  "a tokenizer": [fixture("text/bert.json"), /JSON text/, undefined, ["Tokenizer", "ChatTemplate"]],
};

let server;
let url;

before(async () => {
  await init({ device: "wasm" });
  server = createServer((request, response) => response.end(FILES[decodeURIComponent(request.url.slice(1).split("?")[0])][0]));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  url = `http://127.0.0.1:${server.address().port}`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

for (const [name, [bytes, message, hint, takers]] of Object.entries(FILES)) {
  test(`${name} is named by every loader that does not take it`, async () => {
    for (const loader of ALL) {
      if (takers.includes(loader)) continue;
      const error = await LOADERS[loader](bytes).then(() => undefined, (e) => e);
      assert.ok(error instanceof FormatError, `${loader}: ${error}`);
      assert.equal(error.code, "E_FORMAT");
      assert.match(error.message, message, loader);
      assert.match(error.message, /^the file is .*, not (a|an) /s, loader);
      if (hint) assert.match(error.hint, hint, loader);
      assert.ok(error.cause, `${loader}: the reader's own words are its cause`);
    }
  });
}

test("the error names the address", async () => {
  for (const loader of ["load", "loadWeights", "Tokenizer", "ChatTemplate"]) {
    const address = `${url}/a%20web%20page`;
    await assert.rejects(LOADERS[loader](address), ({ message }) => message.startsWith(`${address} is a web page`));
  }
  await assert.rejects(loadWeights(`${url}/a%20pointer?x=.index.json`), { message: /a Git LFS pointer/ });
});

test("an array's file that is a page says so where its shape does not fit", async () => {
  const page = FILES["a web page"][0];
  assert.equal((await Tensor.fromUrl(page)).size, page.length);
  await assert.rejects(Tensor.fromUrl(page, { shape: [3, 3] }), { code: "E_FORMAT", message: /a web page/ });
  await assert.rejects(Tensor.fromUrl(new Uint8Array([0, 1, 2]), { shape: [2] }), { code: "E_VALUE" });
});

test("a damaged file of the right kind keeps its reader's words", async () => {
  await assert.rejects(load(SILERO.subarray(0, 5000)), ({ message }) => !/is an ONNX model/.test(message));
  await assert.rejects(loadWeights(fixture("io/small.safetensors").subarray(0, 60)), ({ message }) => !/is a safetensors/.test(message));
  await assert.rejects(loadWeights(fixture("io/quants.gguf").subarray(0, 60)), ({ message }) => !/is a GGUF/.test(message));
  await assert.rejects(Tokenizer.fromJson('{"model": 7}'), ({ message }) => !/JSON text/.test(message));
});
