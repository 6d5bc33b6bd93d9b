// A static server for development and tests, on localhost only, without dependencies.
//
// usage: node scripts/serve.mjs [DIR] [--port N] [--no-isolation] [--cross-origin]
//
// Cross-origin isolation headers are on by default, because SharedArrayBuffer (wasm threads) requires them.
// --cross-origin lets pages of other origins load the files, as a CDN does.
import { createReadStream, readFileSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, constants } from "node:zlib";

const TYPES = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".ico": "image/x-icon",
  ".jpg": "image/jpeg",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json; charset=utf-8",
  ".map": "application/json; charset=utf-8",
  ".mjs": "text/javascript; charset=utf-8",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
  ".wav": "audio/wav",
  ".webmanifest": "application/manifest+json",
  ".webp": "image/webp",
};

/** Files of at most this many bytes are sent at once, since streaming them takes longer than everything else. */
const MAX_BUFFERED_BYTES = 4 << 20;

/** File types that are compressed. */
const COMPRESSED = [".css", ".html", ".js", ".json", ".mjs", ".svg", ".txt", ".wasm"];
/** The brotli quality: the best that is fast enough on request. */
const QUALITY = 9;

/** A cache of brotli-compressed files; each is compressed once, as long as it does not change. */
class Brotli {
  #files = new Map();

  of(file, { mtimeMs, size }) {
    const known = this.#files.get(file);
    if (known?.mtimeMs === mtimeMs && known.size === size) return known.bytes;
    const params = { [constants.BROTLI_PARAM_QUALITY]: QUALITY, [constants.BROTLI_PARAM_SIZE_HINT]: size };
    const bytes = promisify(brotliCompress)(readFileSync(file), { params });
    this.#files.set(file, { mtimeMs, size, bytes });
    return bytes;
  }
}

/**
 * Maps a URL path to a file: of the mount with the longest matching prefix, with index.html for a folder; null if there
 * is none.
 */
function locate(mounts, path) {
  const prefix = Object.keys(mounts)
    .filter((mount) => path === mount || path.startsWith(mount.endsWith("/") ? mount : `${mount}/`))
    .sort((a, b) => b.length - a.length)[0];
  if (prefix === undefined || path.includes("\0")) return null;
  const folder = resolve(mounts[prefix]);
  let file = normalize(join(folder, path.slice(prefix.length)));
  if (file !== folder && !file.startsWith(folder + sep)) return null;
  let info = statSync(file, { throwIfNoEntry: false });
  if (info?.isDirectory()) {
    file = join(file, "index.html");
    info = statSync(file, { throwIfNoEntry: false });
  }
  return info?.isFile() ? { file, info } : null;
}

/** Parses a Range header: [first, last], null without a header, "bad" if the range cannot be satisfied. */
function rangeOf(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return null;
  const first = match[1] === "" ? Math.max(0, size - Number(match[2])) : Number(match[1]);
  const last = match[1] === "" || match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1);
  return first > last ? "bad" : [first, last];
}

/**
 * Serves folders: `mounts` maps URL prefixes to them. Port 0 selects a free one. Resolves to {url, port, close}.
 * `isolation` sends the COOP and COEP headers (`"pages"`: with HTML files only), `crossOrigin` the CORS and CORP headers
 * that let pages of other origins load the files, `csp` a Content-Security-Policy, `etags` the headers that permit a
 * page to store files. With `brotli`, text and modules are compressed for clients that accept it, as on a real host.
 */
export function serve(mounts, { port = 0, isolation = true, crossOrigin = false, csp = null, etags = false, brotli = false } = {}) {
  const compressed = brotli ? new Brotli() : null;
  const server = createServer((request, response) => {
    response.setHeader("Cache-Control", etags ? "no-cache" : "no-store");
    response.setHeader("Cross-Origin-Resource-Policy", crossOrigin ? "cross-origin" : "same-origin");
    if (crossOrigin) response.setHeader("Access-Control-Allow-Origin", "*");
    if (isolation === "pages" ? /(\/|\.html)(\?|$)/.test(request.url) : isolation) {
      response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
      response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
    }
    if (csp) response.setHeader("Content-Security-Policy", csp);
    const fail = (status, text) => {
      response.writeHead(status, { "Content-Type": "text/plain; charset=utf-8" });
      response.end(text);
    };
    if (request.method !== "GET" && request.method !== "HEAD") return fail(405, "only GET and HEAD");
    let path;
    try {
      path = decodeURIComponent(new URL(request.url, "http://localhost").pathname);
    } catch {
      return fail(400, "not a path");
    }
    if (path === "/favicon.ico" && !locate(mounts, path)) {
      response.writeHead(204);
      return response.end();
    }
    const found = locate(mounts, path);
    if (!found) return fail(404, `no file for ${path}`);
    const range = rangeOf(request.headers.range, found.info.size);
    if (range === "bad") return fail(416, "no such range");
    const [first, last] = range ?? [0, found.info.size - 1];
    const headers = {
      "Content-Type": TYPES[extname(found.file)] ?? "application/octet-stream",
      "Content-Length": last - first + 1,
      "Accept-Ranges": "bytes",
    };
    if (etags) headers.ETag = `"${found.info.size}-${found.info.mtimeMs}"`;
    if (range) headers["Content-Range"] = `bytes ${first}-${last}/${found.info.size}`;
    if (compressed && COMPRESSED.includes(extname(found.file))) {
      headers.Vary = "Accept-Encoding";
      if (!range && request.method === "GET" && /\bbr\b/.test(request.headers["accept-encoding"] ?? "")) {
        const send = (bytes) => response.writeHead(200, { ...headers, "Content-Encoding": "br", "Content-Length": bytes.length }).end(bytes);
        return void compressed.of(found.file, found.info).then(send, () => response.destroy());
      }
    }
    response.writeHead(range ? 206 : 200, headers);
    if (request.method === "HEAD" || found.info.size === 0) return response.end();
    if (found.info.size <= MAX_BUFFERED_BYTES) return response.end(readFileSync(found.file).subarray(first, last + 1));
    createReadStream(found.file, { start: first, end: last }).on("error", () => response.destroy()).pipe(response);
  });
  return new Promise((done, fail) => {
    server.on("error", fail);
    server.listen(port, "127.0.0.1", () => {
      const { port: taken } = server.address();
      const close = () => {
        server.closeAllConnections();
        return new Promise((closed) => server.close(closed));
      };
      done({ url: `http://127.0.0.1:${taken}`, port: taken, close });
    });
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2);
  const at = args.indexOf("--port");
  const port = at < 0 ? 8080 : Number(args.splice(at, 2)[1]);
  const isolation = !args.includes("--no-isolation");
  const crossOrigin = args.includes("--cross-origin");
  const folder = args.find((arg) => !arg.startsWith("--")) ?? ".";
  const server = await serve({ "/": folder }, { port, isolation, crossOrigin });
  console.log(`${resolve(folder)} is at ${server.url}`);
}
