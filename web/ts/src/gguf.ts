// Reads the metadata at the start of GGUF files without downloading the tensors behind it. Loaded with the first such
// file.
import { FormatError } from "./errors.js";
import { type Expected, explainError } from "./sniff.js";
import { type FetchOptions, type FileSource, allocate } from "./progress.js";
import { type RangeReader, type OnBytes, openRanges } from "./ranges.js";

/** The most bytes that are read in search of the metadata's end; vocabularies, its largest part, stay below. */
const MAX_METADATA_BYTES = 100_000_000;

/**
 * Parses the start of a file. Its length is not known in advance, so more is read for as long as `parse` reports
 * truncated input.
 */
export async function parseGrowingHead<T>(file: RangeReader, onBytes: OnBytes, parse: (start: Uint8Array) => T): Promise<T> {
  let start = file.head;
  for (;;) {
    try {
      return parse(start);
    } catch (error) {
      const limit = Math.min(file.size, MAX_METADATA_BYTES);
      if (!(error instanceof FormatError) || start.length >= limit || !isGguf(start)) throw error;
      const longerStart = allocate(Math.min(4 * start.length, limit));
      longerStart.set(start);
      longerStart.set(await file.read(start.length, longerStart.length, onBytes), start.length);
      start = longerStart;
    }
  }
}

/**
 * Parses a GGUF file's metadata. `parse` receives the beginning of the file, with a header that announces 0 tensors.
 */
export async function readMetadata<T>(expected: Expected, from: FileSource, options: FetchOptions, parse: (start: Uint8Array) => T): Promise<T> {
  const { onProgress } = options;
  let loaded = 0;
  const onBytes = (bytes: number): void => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total: 0 });
  };
  const file = await openRanges(from, options, onBytes);
  try {
    return await parseGrowingHead(file, onBytes, (start) => parse(withoutTensors(start)));
  } catch (error) {
    throw explainError(error, expected, from, file.head, file.size);
  } finally {
    await file.close();
  }
}

const isGguf = (bytes: Uint8Array): boolean => String.fromCharCode(...bytes.subarray(0, 4)) === "GGUF";

/** A copy of the file's start whose header announces 0 tensors, so that a parser stops after the metadata. */
export function withoutTensors(start: Uint8Array): Uint8Array {
  if (!isGguf(start) || start.length < 16) return start;
  // `slice` of a Buffer of Node would share its memory
  const copy = new Uint8Array(start);
  copy.fill(0, 8, 16);
  return copy;
}
