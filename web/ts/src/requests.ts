// Groups parts of a file into requests, and limits how many requests run at once.

/** Neighbouring parts with a gap of at most this many bytes are read in one request, gap included. */
const MAX_GAP_BYTES = 1 << 16;
/** The size limit of a request that joins several parts, and of the ranges of `cut`; a single larger part is still one request. */
const MAX_REQUEST_BYTES = 1 << 23;
/** The most concurrent requests, and the most bytes that they read together if there is more than one. */
const MAX_PARALLEL = 4;
const MAX_PARALLEL_BYTES = 1 << 26;

/** A byte range of a file. */
export interface ByteRange {
  start: number;
  end: number;
}

/** Neighbouring parts that are read in one request. */
export interface ReadRequest<T> extends ByteRange {
  items: T[];
}

/** Divides a range into ranges of at most the size of a request. */
export function cut({ start, end }: ByteRange): ByteRange[] {
  const ranges: ByteRange[] = [];
  for (let at = start; at < end; at += MAX_REQUEST_BYTES) ranges.push({ start: at, end: Math.min(end, at + MAX_REQUEST_BYTES) });
  return ranges;
}

/** Joins neighbouring items into requests; `items` are in the order of the file. */
export function coalesce<T>(items: readonly T[], rangeOf: (item: T) => ByteRange): ReadRequest<T>[] {
  const requests: ReadRequest<T>[] = [];
  for (const item of items) {
    const { start, end } = rangeOf(item);
    const request = requests.at(-1);
    if (!request || start - request.end > MAX_GAP_BYTES || end - request.start > MAX_REQUEST_BYTES) requests.push({ start, end, items: [item] });
    else {
      request.end = Math.max(request.end, end);
      request.items.push(item);
    }
  }
  return requests;
}

/** Processes requests in order, a limited number concurrently. Rejects with the first failure. */
export async function forEachLimited<T extends ByteRange>(requests: readonly T[], work: (request: T) => Promise<void>): Promise<void> {
  const inFlight = new Set<Promise<void>>();
  let bytesInFlight = 0;
  const failures: unknown[] = [];
  for (const request of requests) {
    const bytes = request.end - request.start;
    while (inFlight.size > 0 && (inFlight.size >= MAX_PARALLEL || bytesInFlight + bytes > MAX_PARALLEL_BYTES)) await Promise.race(inFlight);
    if (failures.length > 0) break;
    bytesInFlight += bytes;
    const task: Promise<void> = work(request)
      .catch((error: unknown) => void failures.push(error))
      .finally(() => {
        bytesInFlight -= bytes;
        inFlight.delete(task);
      });
    inFlight.add(task);
  }
  while (inFlight.size > 0 && failures.length === 0) await Promise.race(inFlight);
  if (failures.length > 0) throw failures[0];
}
