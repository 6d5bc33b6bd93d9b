// Groups parts of a file into requests, and limits how many requests run at once.

/** Neighbouring parts with a gap of at most this many bytes are read in one request, gap included. */
const GAP_BYTES = 1 << 16;
/** The size limit of a request that joins several parts; a single larger part is still one request. */
const REQUEST_BYTES = 1 << 23;
/** The most concurrent requests, and the most bytes that they read together if there is more than one. */
const PARALLEL = 4;
const PARALLEL_BYTES = 1 << 26;

/** A byte range of a file. */
export interface Span {
  start: number;
  end: number;
}

/** Neighbouring parts that are read in one request. */
export interface Run<T> extends Span {
  items: T[];
}

/** Joins neighbouring items to runs; `items` are in the order of the file. */
export function runsOf<T>(items: readonly T[], where: (item: T) => Span): Run<T>[] {
  const runs: Run<T>[] = [];
  for (const item of items) {
    const { start, end } = where(item);
    const run = runs.at(-1);
    if (!run || start - run.end > GAP_BYTES || end - run.start > REQUEST_BYTES) runs.push({ start, end, items: [item] });
    else {
      run.end = end;
      run.items.push(item);
    }
  }
  return runs;
}

/** Processes runs in order, a limited number concurrently. Rejects with the first failure. */
export async function inTurn<T extends Span>(runs: readonly T[], work: (run: T) => Promise<void>): Promise<void> {
  const under = new Set<Promise<void>>();
  let held = 0;
  const failures: unknown[] = [];
  for (const run of runs) {
    const bytes = run.end - run.start;
    while (under.size > 0 && (under.size >= PARALLEL || held + bytes > PARALLEL_BYTES)) await Promise.race(under);
    if (failures.length > 0) break;
    held += bytes;
    const one: Promise<void> = work(run)
      .catch((error: unknown) => void failures.push(error))
      .finally(() => {
        held -= bytes;
        under.delete(one);
      });
    under.add(one);
  }
  while (under.size > 0 && failures.length === 0) await Promise.race(under);
  if (failures.length > 0) throw failures[0];
}
