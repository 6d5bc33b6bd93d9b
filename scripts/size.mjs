// Reports sizes, raw, gzip and brotli: of the files in a folder given as argument, or of the built npm package against
// its budget. The budget covers everything that every page downloads, JavaScript and wasm; code that is loaded on first
// use has separate budgets, and the total downloads of some kinds of pages are summed up. Exit status 1 if a budget is
// exceeded.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

/** The budget of what every page downloads, in bytes of brotli. */
const BUDGET_BYTES = 399_000;
/** The budget of each module, or part of a module, that is loaded on first use. */
const EXTRA_BYTES = 280_000;
/**
 * The budget of language models: their module, the entry, and the script of their worker, which includes the core's
 * JavaScript.
 */
const LLM_BYTES = 252_000;
/** What kinds of pages download besides the core. */
export const PAGES = {
  "tensors on WASM": ["wasm"],
  "tensors on WebGPU": ["webgpu"],
  "an ONNX model on WASM": ["wasm", "onnx", "remote"],
  "an ONNX model on WebGPU": ["webgpu", "onnx", "remote"],
  "a language model on WASM": ["wasm", "graphs", "llm", "chat"],
  "a language model on WebGPU": ["webgpu", "graphs", "llm", "chat"],
  "an encoder on WASM": ["wasm", "graphs", "encoder"],
  "an encoder on WebGPU": ["webgpu", "graphs", "encoder"],
};
/** The budgets of kinds of pages, by name pattern. */
const PAGE_BYTES = [[/^tensors/, 459_000], [/^an ONNX model/, 669_500]];
/** The module with all its parts, for hosts that can load only one file; no page loads it in addition. */
const WHOLE = "gradloom_whole_bg.wasm";

const root = fileURLToPath(new URL("..", import.meta.url));

/** The sizes of all JavaScript and wasm files in a folder. */
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

/**
 * Files that every page downloads: the entry and its imports, the wasm module, and the script of its worker threads.
 */
const CORE = /^(index|core|page|worker)\.js$|gradloom_web(_bg)?\.(js|wasm)$/;

/** The lazily loaded module to which a file belongs; undefined for core files. */
const extraOf = (file) => {
  if (CORE.test(file)) return undefined;
  const [, script] = /^(llm|remote|encoder)\W/.exec(file) ?? [];
  if (script) return script;
  const [, folder] = /^(train|shared)\//.exec(file) ?? [];
  return folder ?? /(?:gradloom_)?(\w+?)(?:_bg)?\.(?:js|wasm)$/.exec(file)[1];
};

/** The total download of a kind of page, or 0 if not all of its parts were measured. */
export function downloads(page, brotli) {
  const parts = ["core", ...PAGES[page].map((name) => `extra: ${name}`)];
  return parts.every((name) => brotli.has(name)) ? parts.reduce((sum, name) => sum + brotli.get(name), 0) : 0;
}

/** Prints the table and returns the brotli totals: of the core, and of each lazily loaded module. */
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
    // the site displays the sizes
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
