// Sizes, raw, gzip and brotli: of the files in a folder given as argument, or of the built npm package against its budget.
// Everything that every page downloads counts, JavaScript and wasm; what is loaded on first use has a budget each, and what some kinds of
// pages download in all is added up.
// Exit status 1 when one is broken.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

/** What every page downloads, brotli, in bytes. */
const BUDGET_BYTES = 389_600;
/** A module or a part of one that is loaded on first use. */
const EXTRA_BYTES = 280_000;
/** Language models: their module, the entry, and the script of their worker, which has the core's JavaScript in it. */
const LLM_BYTES = 244_000;
/** What pages download besides the core, by what they do. */
const PAGES = {
  "tensors on WASM": ["wasm"],
  "tensors on WebGPU": ["webgpu"],
  "an ONNX model on WASM": ["wasm", "onnx", "remote"],
  "an ONNX model on WebGPU": ["webgpu", "onnx", "remote"],
  "a language model on WASM": ["wasm", "graphs", "llm", "chat"],
  "a language model on WebGPU": ["webgpu", "graphs", "llm", "chat"],
};
/** What kinds of pages download at most, by how they are called. */
const PAGE_BYTES = [[/^tensors/, 449_700], [/^an ONNX model/, 660_500]];
/** The module with all its parts, which is for hosts that load no other file: no page loads it besides. */
const WHOLE = "gradloom_whole_bg.wasm";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The sizes of every JavaScript and wasm file below a folder. */
export function sizes(folder) {
  const rows = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || ![".js", ".mjs", ".wasm"].includes(extname(entry.name)) || entry.name === WHOLE) continue;
    const file = join(entry.parentPath, entry.name);
    const bytes = readFileSync(file);
    const params = { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
    rows.push({
      file: file.slice(folder.length).replace(/^\//, ""),
      raw: bytes.length,
      gzip: gzipSync(bytes, { level: 9 }).length,
      brotli: brotliCompressSync(bytes, { params }).length,
    });
  }
  return rows;
}

const kilo = (n) => (n / 1000).toFixed(1).padStart(9);

/** What every page downloads: the entry, what is behind it, its wasm, and the script of its workers. */
const CORE = /^(index|core|page|worker)\.js$|gradloom_web(_bg)?\.(js|wasm)$/;

/** The module that a file belongs to, if that is loaded on first use. */
const extraOf = (file) => {
  if (CORE.test(file)) return undefined;
  const [, script] = /^(llm|remote)\W/.exec(file) ?? [];
  if (script) return script;
  const [, folder] = /^(train|shared)\//.exec(file) ?? [];
  return folder ?? /(?:gradloom_)?(\w+?)(?:_bg)?\.(?:js|wasm)$/.exec(file)[1];
};

/** What a kind of pages downloads in all, if all of it was measured. */
function downloads(page, brotli) {
  const parts = ["core", ...PAGES[page].map((name) => `extra: ${name}`)];
  return parts.every((name) => brotli.has(name)) ? parts.reduce((sum, name) => sum + brotli.get(name), 0) : 0;
}

/** Prints the table and returns the brotli totals: of the core, and of each module that is loaded on first use. */
export function printSizes(rows) {
  const totals = new Map();
  for (const row of rows) {
    const extra = extraOf(row.file);
    const name = extra ? `extra: ${extra}` : "core";
    const total = totals.get(name) ?? { file: name, raw: 0, gzip: 0, brotli: 0 };
    for (const key of ["raw", "gzip", "brotli"]) total[key] += row[key];
    totals.set(name, total);
  }
  console.log(`size:  ${"kB".padEnd(28)}      raw     gzip   brotli`);
  for (const row of [...rows, ...totals.values()]) {
    console.log(`size:  ${row.file.padEnd(28)}${kilo(row.raw)}${kilo(row.gzip)}${kilo(row.brotli)}`);
  }
  const brotli = new Map([...totals].map(([name, total]) => [name, total.brotli]));
  for (const page of Object.keys(PAGES)) {
    const bytes = downloads(page, brotli);
    if (bytes) console.log(`size:  a page of ${page} downloads ${kilo(bytes).trim()} kB`);
  }
  return brotli;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2];
  const totals = printSizes(sizes(join(root, folder ?? "web/ts/dist")));
  if (!folder) {
    // the site says them
    mkdirSync(join(root, "dist"), { recursive: true });
    writeFileSync(join(root, "dist/sizes.json"), JSON.stringify(Object.fromEntries(totals)));
    for (const [name, total] of totals) {
      const budget = { core: BUDGET_BYTES, "extra: llm": LLM_BYTES }[name] ?? EXTRA_BYTES;
      if (total <= budget) continue;
      console.error(`size: ${name}: ${total} bytes of brotli are over the budget of ${budget}`);
      process.exitCode = 1;
    }
    for (const page of Object.keys(PAGES)) {
      const total = downloads(page, totals);
      const budget = PAGE_BYTES.find(([kind]) => kind.test(page))?.[1] ?? Infinity;
      if (total <= budget) continue;
      console.error(`size: a page of ${page}: ${total} bytes of brotli are over the budget of ${budget}`);
      process.exitCode = 1;
    }
  }
}
