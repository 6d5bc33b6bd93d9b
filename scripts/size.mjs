// Sizes, raw, gzip and brotli: of the files in a folder given as argument, or of the built npm package against its budget.
// Everything a page downloads counts: JavaScript and wasm. Exit status 1 when the budget is broken.
import { readdirSync, readFileSync } from "node:fs";
import { join, extname } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

/** All JavaScript and wasm of the package, brotli, in bytes. */
const BUDGET_BYTES = 700_000;

const root = fileURLToPath(new URL("..", import.meta.url));

/** The sizes of every JavaScript and wasm file below a folder. */
export function sizes(folder) {
  const rows = [];
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || ![".js", ".mjs", ".wasm"].includes(extname(entry.name))) continue;
    const file = join(entry.parentPath, entry.name);
    const bytes = readFileSync(file);
    const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } };
    rows.push({
      file: file.slice(folder.length).replace(/^\//, ""),
      raw: bytes.length,
      gzip: gzipSync(bytes, { level: 9 }).length,
      brotli: brotliCompressSync(bytes, quality).length,
    });
  }
  return rows;
}

const kilo = (n) => (n / 1000).toFixed(1).padStart(9);

/** Prints the table and returns the brotli total. */
export function printSizes(rows) {
  const total = { file: "total", raw: 0, gzip: 0, brotli: 0 };
  for (const row of rows) for (const key of ["raw", "gzip", "brotli"]) total[key] += row[key];
  console.log(`size:  ${"kB".padEnd(28)}      raw     gzip   brotli`);
  for (const row of [...rows, total]) {
    console.log(`size:  ${row.file.padEnd(28)}${kilo(row.raw)}${kilo(row.gzip)}${kilo(row.brotli)}`);
  }
  return total.brotli;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2];
  const total = printSizes(sizes(join(root, folder ?? "web/ts/dist")));
  if (!folder && total > BUDGET_BYTES) {
    console.error(`size: ${total} bytes of brotli are over the budget of ${BUDGET_BYTES}`);
    process.exit(1);
  }
}
