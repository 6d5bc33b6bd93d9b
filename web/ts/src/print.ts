// Formats the elements of tensors as text, in the manner of NumPy.

/**
 * In tensors of more than `THRESHOLD` elements, axes longer than `2 * EDGE_ITEMS` show only this many elements at each
 * end.
 */
const EDGE_ITEMS = 3;
const THRESHOLD = 1000;

/** A heading, followed by the elements in nested brackets, in aligned columns. */
export function formatElements(values: ArrayLike<number | bigint>, shape: readonly number[], heading: string): string {
  const size = shape.reduce((product, n) => product * n, 1);
  const shownIndices = (n: number): number[] => {
    const isAbbreviated = size > THRESHOLD && n > 2 * EDGE_ITEMS;
    return isAbbreviated ? [...Array(EDGE_ITEMS).keys(), -1, ...Array.from({ length: EDGE_ITEMS }, (_, at) => n - EDGE_ITEMS + at)] : [...Array(n).keys()];
  };
  const shownOffsets: number[] = [];
  const collectOffsets = (axis: number, at: number): void => {
    if (axis === shape.length) return void shownOffsets.push(at);
    for (const i of shownIndices(shape[axis] as number)) if (i >= 0) collectOffsets(axis + 1, at * (shape[axis] as number) + i);
  };
  collectOffsets(0, 0);
  const numbers = shownOffsets.map((at) => values[at] as number | bigint);
  const fractions = numbers.some((v) => typeof v === "number" && Number.isFinite(v) && !Number.isInteger(v));
  const magnitudes = numbers.map((v) => Math.abs(Number(v))).filter((v) => v > 0 && Number.isFinite(v));
  // use exponents if the magnitudes are extreme, since one outlier would widen every column
  const useExponents = fractions && (Math.max(...magnitudes) >= 1e6 || Math.min(...magnitudes) < 1e-4);
  const formatNumber = (v: number | bigint): string => {
    if (typeof v === "bigint" || !Number.isFinite(v)) return String(v);
    if (useExponents) return v.toExponential(4);
    return fractions ? v.toFixed(4) : String(v);
  };
  const texts = new Map(shownOffsets.map((at) => [at, formatNumber(values[at] as number | bigint)]));
  const width = Math.max(0, ...[...texts.values()].map((text) => text.length));
  const format = (axis: number, at: number): string => {
    if (axis === shape.length) return (texts.get(at) as string).padStart(width);
    const last = axis === shape.length - 1;
    const parts = shownIndices(shape[axis] as number).map((i) => (i < 0 ? ".." : format(axis + 1, at * (shape[axis] as number) + i)));
    return `[${parts.join(last ? ", " : `,${"\n".repeat(shape.length - 1 - axis)}${" ".repeat(axis + 1)}`)}]`;
  };
  return `${heading}\n${format(0, 0)}`;
}
