// Files that stay from visit to visit, against a server made up here. Two suites run this: one for each place where files are kept.
import { Tensor, init, loadWeights } from "gradloom";
import * as cache from "gradloom/cache";
import { assert, assertEqual, errorOf, test } from "harness";

const MB = 1 << 20;
const BLOCK = 8 * MB;

/** Bytes that differ from place to place. */
function bytesOf(size, seed) {
  const words = new Uint32Array(Math.ceil(size / 4));
  for (let i = 0; i < words.length; i += 1) words[i] = Math.imul(i + seed, 2654435761);
  return new Uint8Array(words.buffer, 0, size);
}

/** A server of one file. `asked` has what it was asked for; `cut` ends the next answer after so many bytes. */
function serverOf(file, etag = '"1"', headers = {}) {
  const server = { file, etag, headers, asked: [], cut: undefined, gone: false };
  server.fetch = async (url, { method = "GET", headers: given = {}, signal } = {}) => {
    signal?.throwIfAborted();
    if (server.gone) throw new TypeError("Failed to fetch");
    const range = given.Range;
    server.asked.push(range ? `${method} ${range}` : method);
    const size = server.file.length;
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(range ?? "") ?? [];
    const start = Number(from ?? 0);
    const end = to ? Math.min(size, Number(to) + 1) : size;
    const answer = new Headers({ "content-length": String(end - start), ...(server.etag && { etag: server.etag }), ...server.headers });
    if (range) answer.set("content-range", `bytes ${start}-${end - 1}/${size}`);
    const stop = server.cut ?? Infinity;
    server.cut = undefined;
    let at = start;
    const body = new ReadableStream({
      pull(controller) {
        if (at - start >= stop) return controller.error(new TypeError("network error"));
        if (at >= end) return controller.close();
        const next = Math.min(end, at + MB, start + stop);
        controller.enqueue(server.file.slice(at, next));
        at = next;
      },
    });
    return new Response(method === "HEAD" ? null : body, { status: range ? 206 : 200, headers: answer });
  };
  return server;
}

/** Equal, as far as one looks in a short time: a word in eleven, and the ends. */
function same(a, b) {
  if (a.length !== b.length || a.at(-1) !== b.at(-1)) return false;
  for (let i = 0; i < a.length; i += 11) if (a[i] !== b[i]) return false;
  return true;
}

export function cases(kind) {
  let count = 0;
  const place = () => `https://files.test/${kind}/${(count += 1)}.bin`;
  const get = async (url, server, options = {}) => {
    const t = await Tensor.fromUrl(url, { fetch: server.fetch, cache: true, ...options });
    const bytes = await t.data("u8");
    t.dispose();
    return bytes;
  };

  test("files are kept where they should be", async () => {
    await init({ device: "wasm" });
    await cache.delete();
    assertEqual(await cache.list(), []);
    assertEqual((await cache.estimate()).kind, kind);
  });

  test("a second visit asks whether the file is the same, and fetches nothing", async () => {
    const [url, file] = [place(), bytesOf(20 * MB + 5, 1)];
    const server = serverOf(file);
    const events = [];
    assert(same(await get(url, server), file));
    assertEqual(server.asked, ["GET"]);
    assert(same(await get(url, server, { onProgress: (p) => events.push(p) }), file));
    assertEqual(server.asked, ["GET", "HEAD"]);
    assertEqual(events.at(-1), { phase: "download", loaded: file.length, total: file.length, cached: file.length });
    const [row] = await cache.list();
    assertEqual([row.url, row.size, row.bytes, row.complete], [url, file.length, file.length, true]);
    assert(Date.now() - row.used < 60_000);
    // a server that cannot be reached
    server.gone = true;
    assert(same(await get(url, server), file));
    // another file at the same address
    const next = bytesOf(9 * MB, 2);
    Object.assign(server, { gone: false, file: next, etag: '"2"', asked: [] });
    assert(same(await get(url, server), next));
    assertEqual(server.asked, ["HEAD", "GET"]);
    assertEqual((await cache.list())[0].size, next.length);
    await cache.delete(url);
    assertEqual(await cache.list(), []);
  });

  test("a download that was cut off goes on where it was", async () => {
    const [url, file] = [place(), bytesOf(3 * BLOCK + 7, 3)];
    const server = serverOf(file);
    server.cut = 2 * BLOCK + MB;
    assertEqual((await errorOf(() => get(url, server))).code, "E_FETCH");
    const [row] = await cache.list();
    assertEqual([row.bytes, row.complete], [2 * BLOCK, false]);
    const events = [];
    server.asked.length = 0;
    assert(same(await get(url, server, { onProgress: (p) => events.push(p) }), file));
    assertEqual(server.asked, ["HEAD", `GET bytes=${2 * BLOCK}-`]);
    assertEqual([events[0].loaded, events.at(-1).loaded, events.at(-1).cached], [2 * BLOCK, file.length, 2 * BLOCK]);
    // what changed meanwhile begins anew
    const other = place();
    const moving = serverOf(file);
    moving.cut = BLOCK + MB;
    await errorOf(() => get(other, moving));
    Object.assign(moving, { etag: '"9"', file: bytesOf(3 * BLOCK + 7, 4), asked: [] });
    assert(same(await get(other, moving), moving.file));
    assertEqual(moving.asked, ["HEAD", "GET"]);
    // an abort keeps what has come, too
    const third = place();
    const stop = new AbortController();
    const slow = serverOf(file);
    const error = await errorOf(() => get(third, slow, { signal: stop.signal, onProgress: ({ loaded }) => loaded > 2 * BLOCK && stop.abort() }));
    assertEqual(error.name, "AbortError");
    await cache.delete();
  });

  test("a hash says which file it must be, and spares the question", async () => {
    const [url, file] = [place(), bytesOf(2 * MB, 5)];
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", file));
    const hash = [...digest].map((b) => b.toString(16).padStart(2, "0")).join("");
    const server = serverOf(file, null);
    assert(same(await get(url, server, { hash }), file));
    assert(same(await get(url, server, { hash: `sha256-${btoa(String.fromCharCode(...digest))}` }), file));
    server.asked.length = 0;
    server.file = bytesOf(2 * MB, 6);
    const wrong = await errorOf(() => get(url, server, { hash: "0".repeat(64) }));
    assert(wrong.code === "E_FETCH" && wrong.message.includes("has the hash"), wrong.message);
    assertEqual((await cache.list()).length, 0);
    assertEqual((await errorOf(() => get(url, server, { hash, cache: false }))).code, "E_FETCH");
    server.file = file;
    assert(same(await get(url, server, { hash }), file));
    server.asked.length = 0;
    assert(same(await get(url, server, { hash }), file));
    assertEqual(server.asked, []);
    await cache.delete();
  });

  test("what should not be kept is not", async () => {
    const file = bytesOf(2 * MB, 7);
    const servers = [serverOf(file, null), serverOf(file, '"1"', { "cache-control": "private, no-store" }), serverOf(bytesOf(1000, 1))];
    for (const server of servers) {
      assert(same(await get(place(), server), server.file));
      assertEqual(await cache.list(), []);
    }
    const server = serverOf(file);
    assert(same(await get(place(), server, { cache: false }), file));
    // a `fetch` of one's own, unless asked for
    assert(same(await get(place(), server, { cache: undefined }), file));
    assertEqual(await cache.list(), []);
  });

  test("of a file that is read in parts, the parts are kept", async () => {
    const floats = 3 * MB;
    const entry = (i) => ({ dtype: "F32", shape: [floats], data_offsets: [4 * i * floats, 4 * (i + 1) * floats] });
    const header = JSON.stringify({ a: entry(0), b: entry(1), c: entry(2) });
    const file = new Uint8Array(8 + header.length + 12 * floats);
    new DataView(file.buffer).setBigUint64(0, BigInt(header.length), true);
    file.set(new TextEncoder().encode(header), 8);
    for (const i of [0, 1, 2]) file.fill(i + 1, 8 + header.length + 4 * i * floats, 8 + header.length + 4 * (i + 1) * floats);
    const [url, server] = [`${place()}.safetensors`, serverOf(file)];
    const read = async (only) => {
      const out = await loadWeights(url, { fetch: server.fetch, cache: true, only, device: "wasm" });
      for (const name of only) {
        const bytes = new Uint8Array((await out[name].data()).buffer);
        const want = "abc".indexOf(name) + 1;
      assert(bytes.length === 4 * floats, name);
      for (let i = 0; i < bytes.length; i += 7) if (bytes[i] !== want) throw new Error(`${name}[${i}] is ${bytes[i]}`);
        out[name].dispose();
      }
    };
    await read(["b"]);
    const [row] = await cache.list();
    assert(row.bytes > 4 * floats && row.bytes < file.length && !row.complete, `${row.bytes} of ${file.length}`);
    server.asked.length = 0;
    await read(["b"]);
    // the first look says which file it is
    assertEqual(server.asked, ["GET bytes=0-65535"]);
    await read(["a", "b", "c"]);
    server.asked.length = 0;
    await read(["a", "c"]);
    assertEqual(server.asked, ["GET bytes=0-65535"]);
    // and the whole, from the same pieces
    assert(same(await get(url, server), file));
    assertEqual(server.asked.slice(1), ["HEAD"]);
    server.etag = '"2"';
    await read(["c"]);
    assert(server.asked.length > 3);
    await cache.delete();
  });

  test("loads of one file at once are all right", async () => {
    const [url, server] = [place(), serverOf(bytesOf(10 * MB, 8))];
    const all = await Promise.all([get(url, server), get(url, server), get(url, server)]);
    assert(all.every((bytes) => same(bytes, server.file)));
    assertEqual((await cache.list())[0].complete, true);
  });
}
