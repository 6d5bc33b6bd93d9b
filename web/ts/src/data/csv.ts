// Reads tables of text (CSV, RFC 4180; also with tabs or semicolons) as data sets.
import { FormatError, ValueError } from "../errors.js";
import { type FetchOptions, type FileSource, readSource } from "../progress.js";
import { Arrays, type HostArray } from "./examples.js";

/** Options of `csv`. */
export interface CsvOptions extends FetchOptions {
  /** What separates columns. Default: a comma, semicolon or tab, whichever is most frequent in the first line. */
  delimiter?: string;
  /** Whether the first line has the names of the columns. Default: true. Without it they are called "0", "1" and so on. */
  header?: boolean;
  /** The columns to read, in this order. Default: all. */
  columns?: readonly string[];
  /** Joins these columns of numbers to one field `x`, `[batch, features]`; the others stay fields of their own. */
  features?: readonly string[];
  /** The column that becomes the field `y`, i32 if all its numbers are whole, as losses of classes take it. */
  label?: string;
  /** The number for empty cells. Default: an empty cell of a column of numbers is an error. */
  missing?: number;
}

/** A table as a data set: columns of numbers are f32, columns of texts are i32, the indices of their values in `classes`. */
export class Table extends Arrays {
  /** For each column of texts its different values, sorted: an example's number is an index in this list. */
  readonly classes: Readonly<Record<string, readonly string[]>>;

  constructor(arrays: Readonly<Record<string, HostArray>>, classes: Readonly<Record<string, readonly string[]>>) {
    super(arrays);
    this.classes = classes;
  }
}

/** A line of a table, with its number in the file from 1. */
interface Line {
  at: number;
  cells: string[];
}

/**
 * Reads a table of text as a data set with one field per column, or with `x` and `y` as `features` and `label` say. Fails
 * with `E_FORMAT`, naming the line, where a line has another number of cells, a quote does not end, or a number is
 * expected; with `E_VALUE` for a column that is not there; with `E_FETCH`.
 */
export async function csv(from: FileSource, options: CsvOptions = {}): Promise<Table> {
  const { delimiter, header = true, columns, features = [], label, missing, ...fetching } = options;
  const bytes = await readSource(from, fetching);
  const text = new TextDecoder("utf-8").decode(bytes);
  const lines = linesOf(text, delimiter ?? guessDelimiter(text));
  const names = header ? lines.shift()?.cells.map((name) => name.trim()) : lines[0]?.cells.map((_, at) => String(at));
  if (!names || lines.length === 0) throw new FormatError("E_FORMAT", "csv: the table has no rows");
  const repeated = names.find((name, at) => names.indexOf(name) !== at);
  if (repeated !== undefined) throw new FormatError("E_FORMAT", `csv: two columns are called ${JSON.stringify(repeated)}`);
  const ragged = lines.find(({ cells }) => cells.length !== names.length);
  if (ragged) throw new FormatError("E_FORMAT", `csv: line ${ragged.at} has ${ragged.cells.length} cells where ${names.length} are expected`);
  const wanted = columns ?? names;
  const unknown = [...wanted, ...features, ...(label === undefined ? [] : [label])].find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new ValueError("E_VALUE", `csv: there is no column ${JSON.stringify(unknown)}`, { hint: `there are ${names.join(", ")}` });
  }
  const classes: Record<string, readonly string[]> = {};
  const arrays: Record<string, HostArray> = {};
  const add = (field: string, name: string): void => {
    const cells = lines.map((line) => (line.cells[names.indexOf(name)] as string).trim());
    if (cells.every((cell) => cell === "" || isNumber(cell))) {
      const numbers = numbersOf(cells, name, lines, missing);
      const isClass = field === "y" && numbers.every((value) => Number.isInteger(value));
      arrays[field] = isClass ? integers(Int32Array.from(numbers)) : floats([lines.length], numbers);
      return;
    }
    const values = [...new Set(cells)].sort();
    classes[field] = values;
    const index = new Map(values.map((value, at) => [value, at]));
    arrays[field] = integers(Int32Array.from(cells, (cell) => index.get(cell) as number));
  };
  if (features.length > 0) {
    const parts = features.map((name) => numbersOf(lines.map(({ cells }) => (cells[names.indexOf(name)] as string).trim()), name, lines, missing));
    const all = Float32Array.from({ length: lines.length * features.length }, (_, at) => parts[at % features.length]?.[Math.floor(at / features.length)] ?? 0);
    arrays["x"] = floats([lines.length, features.length], all);
  }
  if (label !== undefined) add("y", label);
  const used = new Set([...features, ...(label === undefined ? [] : [label])]);
  if (columns !== undefined || (features.length === 0 && label === undefined)) for (const name of wanted) if (!used.has(name)) add(name, name);
  return new Table(arrays, classes);
}

const isNumber = (cell: string): boolean => cell !== "" && Number.isFinite(Number(cell));
const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array => new Uint8Array(buffer, byteOffset, byteLength);
const floats = (shape: number[], values: Float32Array): HostArray => ({ dtype: "f32", shape, bytes: bytesOf(values) });

const integers = (values: Int32Array): HostArray => ({ dtype: "i32", shape: [values.length], bytes: bytesOf(values) });

function numbersOf(cells: readonly string[], name: string, lines: readonly Line[], missing: number | undefined): Float32Array {
  return Float32Array.from(cells, (cell, at) => {
    if (isNumber(cell)) return Number(cell);
    if (cell === "" && missing !== undefined) return missing;
    const hint = cell === "" ? "`missing: 0` (or another number) fills empty cells" : undefined;
    throw new FormatError("E_FORMAT", `csv: line ${lines[at]?.at}, column ${name}: ${JSON.stringify(cell)} is no number`, { hint });
  });
}

/** The separator that occurs most often in the first line. */
function guessDelimiter(text: string): string {
  const [first = ""] = text.split("\n", 1);
  const counts = [",", ";", "\t"].map((each) => [first.split(each).length, each] as const);
  return counts.reduce((best, each) => (each[0] > best[0] ? each : best))[1];
}

/** Splits a table into lines of cells. Cells in quotes may hold separators, line breaks and doubled quotes. */
function linesOf(text: string, delimiter: string): Line[] {
  const found: Line[] = [];
  let [at, lineNumber] = [text.startsWith("\ufeff") ? 1 : 0, 1];
  while (at < text.length) {
    const line: Line = { at: lineNumber, cells: [] };
    for (;;) {
      let cell = "";
      if (text[at] === '"') {
        const begin = lineNumber;
        for (at += 1; ; at += 1) {
          if (at >= text.length) throw new FormatError("E_FORMAT", `csv: a quote in line ${begin} does not end`);
          if (text[at] === '"' && text[at + 1] !== '"') break;
          if (text[at] === '"') at += 1;
          if (text[at] === "\n") lineNumber += 1;
          cell += text[at];
        }
        at += 1;
      }
      const end = at;
      while (at < text.length && text[at] !== delimiter && text[at] !== "\n") at += 1;
      line.cells.push(cell + text.slice(end, at).replace(/\r$/, ""));
      if (text[at] !== delimiter) break;
      at += 1;
    }
    at += 1;
    lineNumber += 1;
    // empty lines are no examples
    if (line.cells.length > 1 || line.cells[0] !== "") found.push(line);
  }
  return found;
}
