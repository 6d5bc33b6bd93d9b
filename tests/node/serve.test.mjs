// The development server: types, headers, ranges, and no way out of its folder.
import assert from "node:assert/strict";
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { serve } from "../../scripts/serve.mjs";

const parent = mkdtempSync(join(tmpdir(), "gradloom-serve-"));
let server;

before(async () => {
  mkdirSync(join(parent, "site"));
  writeFileSync(join(parent, "secret.txt"), "secret");
  writeFileSync(join(parent, "site/index.html"), "<p>hello</p>");
  writeFileSync(join(parent, "site/a.wasm"), Uint8Array.of(0, 1, 2, 3, 4, 5));
  writeFileSync(join(parent, "site/empty.bin"), "");
  server = await serve({ "/": join(parent, "site"), "/more": parent });
});

after(async () => {
  await server.close();
  rmSync(parent, { recursive: true });
});

/** A request as written: fetch would tidy the path. */
function raw(path) {
  return new Promise((done, fail) => {
    let text = "";
    const socket = connect(server.port, "127.0.0.1", () => socket.write(`GET ${path} HTTP/1.0\r\n\r\n`));
    socket.on("data", (bytes) => (text += bytes)).on("end", () => done(text)).on("error", fail);
  });
}

test("files have their types and the isolation headers", async () => {
  const page = await fetch(`${server.url}/`);
  assert.equal(await page.text(), "<p>hello</p>");
  assert.equal(page.headers.get("content-type"), "text/html; charset=utf-8");
  assert.equal(page.headers.get("cross-origin-embedder-policy"), "require-corp");
  const wasm = await fetch(`${server.url}/a.wasm`);
  assert.equal(wasm.headers.get("content-type"), "application/wasm");
  assert.equal((await wasm.arrayBuffer()).byteLength, 6);
  assert.equal((await fetch(`${server.url}/empty.bin`)).status, 200);
});

test("the longest prefix wins", async () => {
  assert.equal(await (await fetch(`${server.url}/more/secret.txt`)).text(), "secret");
  assert.equal((await fetch(`${server.url}/moresecret.txt`)).status, 404);
});

test("ranges are answered with parts", async () => {
  const part = async (range) => {
    const answer = await fetch(`${server.url}/a.wasm`, { headers: { Range: range } });
    return [answer.status, [...new Uint8Array(await answer.arrayBuffer())]];
  };
  assert.deepEqual(await part("bytes=1-2"), [206, [1, 2]]);
  assert.deepEqual(await part("bytes=4-"), [206, [4, 5]]);
  assert.deepEqual(await part("bytes=-2"), [206, [4, 5]]);
  assert.equal((await part("bytes=9-"))[0], 416);
});

test("no path leads out of the folder", async () => {
  for (const path of ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/x/../../secret.txt", "/%00", "/%"]) {
    assert.doesNotMatch(await raw(path), /secret$/);
  }
});

test("only reading is allowed", async () => {
  assert.equal((await fetch(`${server.url}/`, { method: "POST" })).status, 405);
});

test("text and modules go compressed to whoever takes that, whole and as they are by then", async (t) => {
  const file = join(parent, "site/long.txt");
  writeFileSync(file, "warp and weft ".repeat(1000));
  const there = await serve({ "/": join(parent, "site") }, { brotli: true });
  t.after(() => there.close());
  const get = (path, headers = {}) => fetch(`${there.url}/${path}`, { headers: { "Accept-Encoding": "gzip, br", ...headers } });
  const long = await get("long.txt");
  assert.equal(long.headers.get("content-encoding"), "br");
  assert.ok(Number(long.headers.get("content-length")) < 100);
  assert.equal(await long.text(), "warp and weft ".repeat(1000));
  writeFileSync(file, "shed");
  assert.equal(await (await get("long.txt")).text(), "shed");
  for (const [path, headers] of [["long.txt", { "Accept-Encoding": "gzip" }], ["long.txt", { Range: "bytes=0-3" }], ["empty.bin", {}]]) {
    const plain = await get(path, headers);
    assert.equal(plain.headers.get("content-encoding"), null);
    assert.equal(await plain.text(), path === "long.txt" ? "shed" : "");
  }
});
