// Partial reading of torch.save files and npz archives by byte ranges: finds where each tensor's data lies in the file
// (`Archive.pieces`), and packs the pieces that were read into a smaller file of the same format (`Archive.part`),
// which the wasm module parses like any other. A file whose structure is unusual is read whole instead (`openArchive`
// gives undefined).
import { UnsupportedError } from "./errors.js";
import { TruncatedError, Unpickler, Storage, View, storageBytes, keysIn, pickleOf, pickleOfKeys, tensorsIn } from "./pickle.js";
import type { RangeReader, OnBytes } from "./ranges.js";
import type { ByteRange } from "./requests.js";
import { type Member, TAIL_BYTES, archiveOf, memberContent, crc32, concatBytes, membersOf, readPart } from "./zip.js";

/**
 * The largest index (pickle) in bytes that is read separately from the data; a file with a larger one is read whole.
 */
const MAX_INDEX_BYTES = 100_000_000;
/** The first bytes of a torch.save file from before PyTorch 1.6: its magic number as a pickle. */
const LEGACY_MAGIC = [0x80, 2, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e];

/** One contiguous byte range of an archive and the tensors whose data it holds. */
export interface Piece extends ByteRange {
  names: readonly string[];
}

/** An archive that can be read in parts. */
export interface Archive {
  /** Names of all tensors in the order of the file. */
  names: readonly string[];
  /** The pieces, sorted by their position in the file. */
  pieces: readonly Piece[];
  /**
   * A smaller file of the same format with the `wanted` tensors of some pieces. `bytes` are the archive's bytes from
   * offset `start` on and cover these pieces.
   */
  part(pieces: readonly Piece[], bytes: Uint8Array, start: number, wanted: (name: string) => boolean): Uint8Array;
}

const sortedByStart = <T extends ByteRange>(pieces: readonly T[]): T[] => [...pieces].sort((a, b) => a.start - b.start);

/**
 * Opens an archive for partial reading; undefined if the file has to be read whole. If the index is not understood
 * here, `check` is called with a file of the index alone, without data, and may throw the error that a full read would
 * give.
 */
export async function openArchive(file: RangeReader, onBytes: OnBytes, check: (file: Uint8Array) => void): Promise<Archive | undefined> {
  // the end of the archive would be read first, and here it reaches back into the head: one request for the rest does
  // it all
  if (file.size - file.head.length <= TAIL_BYTES) return undefined;
  if (LEGACY_MAGIC.every((byte, i) => file.head[i] === byte)) return openLegacy(file, onBytes);
  const members = await membersOf(file, onBytes);
  if (!members) return undefined;
  if (members.every(({ name }) => name.endsWith(".npy"))) return openNpz(members);
  return openTorch(file, members, onBytes, check);
}

/** `numpy.savez` and `savez_compressed`. */
function openNpz(members: readonly Member[]): Archive {
  const tensorName = ({ name }: Member): string => name.slice(0, -".npy".length);
  const pieces = members.map((member) => ({ ...member, names: [tensorName(member)] }));
  return {
    names: members.map(tensorName),
    pieces: sortedByStart(pieces),
    part: (selected, bytes, start) => archiveOf(selected as typeof pieces, bytes, start),
  };
}

/** The names of the tensors that view each storage. */
function byStorage(tensors: ReadonlyMap<string, View>): Map<Storage, string[]> {
  const names = new Map<Storage, string[]>();
  for (const [name, { storage }] of tensors) names.set(storage, [...(names.get(storage) ?? []), name]);
  return names;
}

/** A pickle of those tensors of `pieces` that are wanted. */
function pickleOfWanted(tensors: ReadonlyMap<string, View>, pieces: readonly Piece[], wanted: (name: string) => boolean): Uint8Array {
  const names = pieces.flatMap((piece) => piece.names).filter(wanted);
  return pickleOf(names.map((name) => [name, tensors.get(name) as View]));
}

/** torch.save since PyTorch 1.6: a zip archive with a pickle and one member per storage. */
async function openTorch(file: RangeReader, members: readonly Member[], onBytes: OnBytes, check: (file: Uint8Array) => void): Promise<Archive | undefined> {
  const index = members.find(({ name }) => name.endsWith("/data.pkl"));
  if (!index || index.compressedSize > MAX_INDEX_BYTES) return undefined;
  const folder = index.name.slice(0, -"data.pkl".length);
  const membersByName = new Map(members.map((member) => [member.name, member]));
  const readMember = async (member: Member): Promise<Uint8Array | undefined> => {
    const bytes = memberContent(await readPart(file, member.start, member.end, onBytes), member);
    return member.method === 0 && crc32(bytes) === member.crc ? bytes : undefined;
  };
  const byteOrder = membersByName.get(`${folder}byteorder`);
  if (membersByName.has(`${folder}constants.pkl`)) return undefined;
  if (byteOrder && String.fromCharCode(...((await readMember(byteOrder)) ?? [])) !== "little") return undefined;
  const pickle = await readMember(index);
  if (!pickle) return undefined;
  const tensors = attempt(() => tensorsIn(new Unpickler(pickle).run()));
  if (!tensors || tensors === TRUNCATED) {
    try {
      check(archiveOf([], new Uint8Array(), 0, { name: index.name, bytes: pickle }));
    } catch (error) {
      // the pickle holds something unsupported, such as an object of a class: fail before the data is fetched
      if (error instanceof UnsupportedError) throw error;
    }
    return undefined;
  }
  const pieces: (Piece & Member)[] = [];
  for (const [storage, names] of byStorage(tensors)) {
    const member = membersByName.get(`${folder}data/${storage.key}`);
    if (!member || member.method !== 0) return undefined;
    pieces.push({ ...member, names });
  }
  return {
    names: [...tensors.keys()],
    pieces: sortedByStart(pieces),
    part: (selected, bytes, start, wanted) => {
      return archiveOf(selected as typeof pieces, bytes, start, { name: index.name, bytes: pickleOfWanted(tensors, selected, wanted) });
    },
  };
}

/**
 * torch.save before PyTorch 1.6: several pickles, then the storages in the order of a list of keys, each preceded by
 * its number of elements.
 */
async function openLegacy(file: RangeReader, onBytes: OnBytes): Promise<Archive | undefined> {
  let start = file.head;
  for (;;) {
    const found = attempt(() => parseLegacyIndex(start, file.size));
    if (found !== TRUNCATED) return found;
    const longer = Math.min(4 * start.length, file.size, MAX_INDEX_BYTES);
    if (longer <= start.length) return undefined;
    start = concatBytes([start, await file.read(start.length, longer, onBytes)]);
  }
}

function parseLegacyIndex(bytes: Uint8Array, size: number): Archive {
  const unpickler = new Unpickler(bytes, LEGACY_MAGIC.length);
  unpickler.run();
  unpickler.run();
  const leadingPickles = bytes.subarray(0, unpickler.at);
  const tensors = tensorsIn(unpickler.run());
  const names = byStorage(tensors);
  const storages = new Map([...names.keys()].map((storage) => [storage.key, storage]));
  const pieces: (Piece & { key: string })[] = [];
  let at = -1;
  for (const key of keysIn(unpickler.run())) {
    at = at < 0 ? unpickler.at : at;
    const storage = storages.get(key);
    // nothing tells the length of a storage that no tensor uses
    if (!storage) throw new TypeError(`nothing uses the storage ${key}`);
    storages.delete(key);
    const end = at + 8 + storageBytes(storage);
    pieces.push({ key, start: at, end, names: names.get(storage) as string[] });
    at = end;
  }
  if (storages.size > 0 || at > size) throw new TypeError("another length");
  return {
    names: [...tensors.keys()],
    pieces,
    part: (selected, all, from, wanted) => {
      const data = selected.map((piece) => all.subarray(piece.start - from, piece.end - from));
      return concatBytes([leadingPickles, pickleOfWanted(tensors, selected, wanted), pickleOfKeys((selected as typeof pieces).map(({ key }) => key)), ...data]);
    },
  };
}

const TRUNCATED: unique symbol = Symbol();

/** The result of `parse`; `TRUNCATED` if more bytes are needed; undefined if the file is not of a known form. */
function attempt<T>(parse: () => T): T | typeof TRUNCATED | undefined {
  try {
    return parse();
  } catch (error) {
    return error instanceof TruncatedError ? TRUNCATED : undefined;
  }
}
