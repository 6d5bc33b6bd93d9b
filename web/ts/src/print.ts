// Formats the elements of tensors as text, in the manner of NumPy.

/** In tensors of more than `MANY` elements, axes longer than `2 * EDGE` show only this many elements at each end. */
const EDGE = 3;
const MANY = 1000;

/** A heading, followed by the elements in nested brackets, in aligned columns. */
export function written(values: ArrayLike<number | bigint>, shape: readonly number[], heading: string): string {
  const size = shape.reduce((product, n) => product * n, 1);
  const places = (n: number): number[] => {
    const all = size > MANY && n > 2 * EDGE;
    return all ? [...Array(EDGE).keys(), -1, ...Array.from({ length: EDGE }, (_, at) => n - EDGE + at)] : [...Array(n).keys()];
  };
  const shown: number[] = [];
  const collect = (axis: number, at: number): void => {
    if (axis === shape.length) return void shown.push(at);
    for (const i of places(shape[axis] as number)) if (i >= 0) collect(axis + 1, at * (shape[axis] as number) + i);
  };
  collect(0, 0);
  const numbers = shown.map((at) => values[at] as number | bigint);
  const fractions = numbers.some((v) => typeof v === "number" && Number.isFinite(v) && !Number.isInteger(v));
  const sizes = numbers.map((v) => Math.abs(Number(v))).filter((v) => v > 0 && Number.isFinite(v));
  // use exponents if the magnitudes are extreme, since one outlier would widen every column
  const powers = fractions && (Math.max(...sizes) >= 1e6 || Math.min(...sizes) < 1e-4);
  const one = (v: number | bigint): string => {
    if (typeof v === "bigint" || !Number.isFinite(v)) return String(v);
    if (powers) return v.toExponential(4);
    return fractions ? v.toFixed(4) : String(v);
  };
  const words = new Map(shown.map((at) => [at, one(values[at] as number | bigint)]));
  const width = Math.max(0, ...[...words.values()].map((word) => word.length));
  const write = (axis: number, at: number): string => {
    if (axis === shape.length) return (words.get(at) as string).padStart(width);
    const last = axis === shape.length - 1;
    const parts = places(shape[axis] as number).map((i) => (i < 0 ? ".." : write(axis + 1, at * (shape[axis] as number) + i)));
    return `[${parts.join(last ? ", " : `,${"\n".repeat(shape.length - 1 - axis)}${" ".repeat(axis + 1)}`)}]`;
  };
  return `${heading}\n${write(0, 0)}`;
}
