// What GGUF files say of themselves, read from their beginnings: the tensors behind stay where they are. Loaded with the first such file.
import { FormatError } from "./errors.js";
import { type Expected, explained } from "./sniff.js";
import { type FetchOptions, type FileSource, room } from "./progress.js";
import { openRanges } from "./ranges.js";

/** No vocabulary takes more. */
const MOST_BYTES = 100_000_000;

/** What `parse` makes of a GGUF file's metadata. It is given the beginning of the file, with the index of tensors taken out. */
export async function readMetadata<T>(expected: Expected, from: FileSource, options: FetchOptions, parse: (start: Uint8Array) => T): Promise<T> {
  const { onProgress } = options;
  let loaded = 0;
  const told = (bytes: number): void => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total: 0 });
  };
  const file = await openRanges(from, options, told);
  try {
    let start = file.head;
    for (;;) {
      try {
        return parse(withoutTensors(start));
      } catch (error) {
        const all = Math.min(file.size, MOST_BYTES);
        // it may be that there is more of it; nothing tells in advance how long it is
        if (!(error instanceof FormatError) || start.length >= all || !isGguf(start)) throw explained(error, expected, from, start, file.size);
        const longer = room(Math.min(4 * start.length, all));
        longer.set(start);
        longer.set(await file.read(start.length, longer.length, told), start.length);
        start = longer;
      }
    }
  } finally {
    await file.close();
  }
}

const isGguf = (bytes: Uint8Array): boolean => String.fromCharCode(...bytes.subarray(0, 4)) === "GGUF";

/** The header's number of tensors as 0, so that what follows the metadata is not looked at. */
function withoutTensors(start: Uint8Array): Uint8Array {
  if (!isGguf(start) || start.length < 16) return start;
  const copy = start.slice();
  copy.fill(0, 8, 16);
  return copy;
}
