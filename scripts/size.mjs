// Sizes, raw, gzip and brotli: of the files in a folder given as argument, or of the built npm package against its budget.
// Everything that every page downloads counts, JavaScript and wasm; modules that are loaded on first use have a budget each.
// Exit status 1 when one is broken.
import { readdirSync, readFileSync } from "node:fs";
import { join, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

/** What every page downloads, brotli, in bytes. */
const BUDGET_BYTES = 702_000;
/** One module that is loaded on first use. */
const EXTRA_BYTES = 280_000;

const root = fileURLToPath(new URL("..", import.meta.url));

/** The sizes of every JavaScript and wasm file below a folder. */
export function sizes(folder) {
  const rows = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || ![".js", ".mjs", ".wasm"].includes(extname(entry.name))) continue;
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
const CORE = /^(index|core|worker)\.js$|gradloom_web(_bg)?\.(js|wasm)$/;

/** The module that a file belongs to, if that is loaded on first use. */
const extraOf = (file) => {
  if (CORE.test(file)) return undefined;
  const [, folder] = /^(train|shared)\//.exec(file) ?? [];
  return folder ?? /(?:gradloom_)?(\w+?)(?:_bg)?\.(?:js|wasm)$/.exec(file)[1];
};

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
  return new Map([...totals].map(([name, { brotli }]) => [name, brotli]));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2];
  const totals = printSizes(sizes(join(root, folder ?? "web/ts/dist")));
  if (!folder) {
    for (const [name, total] of totals) {
      const budget = name === "core" ? BUDGET_BYTES : EXTRA_BYTES;
      if (total <= budget) continue;
      console.error(`size: ${name}: ${total} bytes of brotli are over the budget of ${budget}`);
      process.exitCode = 1;
    }
  }
}
