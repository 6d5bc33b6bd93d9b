// The numeric contract (docs/numerics.md) on the devices of JavaScript hosts: differences that are not listed fail, and the columns of the
// page's table are those of tests/fixtures/numerics/hosts.txt. With BLESS=1 (`npm run numerics`) that file is written instead.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const file = new URL("../fixtures/numerics/hosts.txt", import.meta.url);
const KEY_COLUMNS = ["records", "operator", "of"];
/** Where sums and products may be fused (relaxed SIMD), the WASM device may give other last bits. */
export const COLUMNS = ["wasm", "wasm relaxed", "webgpu"];

/** The cells of each row, named by its first three fields. */
function readTable() {
  if (!existsSync(file)) return new Map();
  const [head, ...lines] = readFileSync(file, "utf8").trimEnd().split("\n").map((line) => line.split("\t"));
  assert.deepEqual(head, [...KEY_COLUMNS, ...COLUMNS], "the columns of hosts.txt");
  return new Map(lines.map((fields) => [fields.slice(0, 3).join("\t"), fields.slice(3)]));
}

function writeColumn(at, measured) {
  const rows = readTable();
  for (const cells of rows.values()) cells[at] = "";
  for (const [row, cell] of measured) {
    if (!rows.has(row)) rows.set(row, COLUMNS.map(() => ""));
    rows.get(row)[at] = cell;
  }
  const lines = [...rows].filter(([, cells]) => cells.some((cell) => cell !== "")).map(([row, cells]) => [row, ...cells].join("\t"));
  writeFileSync(file, [[...KEY_COLUMNS, ...COLUMNS].join("\t"), ...lines.sort(), ""].join("\n"));
}

/**
 * Checks what `numerics` of the test module returned. The table must be that of one of `columns`; without any, only differences that are
 * not listed fail. How many rows the table has.
 */
export function check(lines, columns) {
  const linesMarked = (mark) => lines.filter((line) => line.startsWith(`${mark} `)).map((line) => line.slice(2));
  const wrong = linesMarked("!");
  assert.deepEqual(wrong.slice(0, 40), [], `${wrong.length} differences that differences.txt does not list`);
  const measured = new Map(lines.filter((line) => !/^[!?] /.test(line)).map((line) => line.split(/\t(?=[^\t]*$)/)));
  if (columns.length > 0) {
    assert.deepEqual(linesMarked("?"), [], "differences.txt names this device in lines that nothing needs");
    if (process.env.BLESS) writeColumn(COLUMNS.indexOf(columns[0]), measured);
    const rows = [...readTable()];
    const differ = columns.map((column) => {
      const at = COLUMNS.indexOf(column);
      const other = rows.filter(([row, cells]) => (measured.get(row) ?? "") !== cells[at]);
      const fresh = [...measured.keys()].filter((row) => !rows.some(([name]) => name === row));
      return [...other.map(([row, cells]) => `${row}: ${measured.get(row)}, kept as ${cells[at]}`), ...fresh];
    });
    if (!differ.some((rows) => rows.length === 0)) assert.deepEqual(differ[0], [], "`npm run numerics -- --keep` writes hosts.txt and the page");
  }
  return measured.size;
}
