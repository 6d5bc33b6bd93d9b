// Parts of a file that are read together, and some of them at once.

/** Parts that lie so close together are read in one request, what is between them too. */
const GAP_BYTES = 1 << 16;
/** A request reads parts of so many bytes, or one. */
const REQUEST_BYTES = 1 << 23;
/** Requests under way at once, and the bytes they read, if there is more than one. */
const PARALLEL = 4;
const PARALLEL_BYTES = 1 << 26;

/** Where something lies. */
export interface Span {
  start: number;
  end: number;
}

/** Neighbours that are read at once. */
export interface Run<T> extends Span {
  items: T[];
}

/** Neighbours put together; items come in the order of the file. */
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

/** Works on runs in order, some at a time. */
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
