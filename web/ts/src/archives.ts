// Files of torch.save and npz archives, read by ranges: where their tensors lie, and what was read as a smaller file of the same kind, which the module
// takes as any other. What is not as usual is read whole instead.
import { UnsupportedError } from "./errors.js";
import { Cut, Machine, Storage, View, bytesIn, keysIn, pickleOf, pickleOfKeys, tensorsIn } from "./pickle.js";
import type { Ranged, Told } from "./ranges.js";
import type { Span } from "./runs.js";
import { type Member, TAIL_BYTES, archiveOf, contentIn, crc32, joined, membersOf, partOf } from "./zip.js";

/** The longest index that is read by itself. */
const MOST_BYTES = 100_000_000;
/** What the format before PyTorch 1.6 begins with: a number as a pickle. */
const OLD = [0x80, 2, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e];

/** Tensors of an archive that lie in one piece. */
export interface Piece extends Span {
  names: readonly string[];
}

/** An archive that can be read in parts. */
export interface Archive {
  /** Names in the order of the file. */
  names: readonly string[];
  /** In the order of their data. */
  pieces: readonly Piece[];
  /** A small file of what is wanted of some pieces. `bytes` are those of the archive from `start` on. */
  part(pieces: readonly Piece[], bytes: Uint8Array, start: number, wanted: (name: string) => boolean): Uint8Array;
}

const sorted = <T extends Span>(pieces: readonly T[]): T[] => [...pieces].sort((a, b) => a.start - b.start);

/** Undefined for what is read whole. `check` is given a file without data if its index is not understood here, and may throw. */
export async function openArchive(file: Ranged, told: Told, check: (file: Uint8Array) => void): Promise<Archive | undefined> {
  // as many requests as the rest takes
  if (file.size - file.head.length <= TAIL_BYTES) return undefined;
  if (OLD.every((byte, i) => file.head[i] === byte)) return ofOld(file, told);
  const members = await membersOf(file, told);
  if (!members) return undefined;
  if (members.every(({ name }) => name.endsWith(".npy"))) return ofNpz(members);
  return ofTorch(file, members, told, check);
}

/** `numpy.savez` and `savez_compressed`. */
function ofNpz(members: readonly Member[]): Archive {
  const plain = ({ name }: Member): string => name.slice(0, -".npy".length);
  const pieces = members.map((member) => ({ ...member, names: [plain(member)] }));
  return {
    names: members.map(plain),
    pieces: sorted(pieces),
    part: (some, bytes, start) => archiveOf(some as typeof pieces, bytes, start),
  };
}

/** Tensors by their storages. */
function byStorage(tensors: ReadonlyMap<string, View>): Map<Storage, string[]> {
  const names = new Map<Storage, string[]>();
  for (const [name, { storage }] of tensors) names.set(storage, [...(names.get(storage) ?? []), name]);
  return names;
}

/** The tensors among these that are wanted. */
function pickled(tensors: ReadonlyMap<string, View>, pieces: readonly Piece[], wanted: (name: string) => boolean): Uint8Array {
  const names = pieces.flatMap((piece) => piece.names).filter(wanted);
  return pickleOf(names.map((name) => [name, tensors.get(name) as View]));
}

/** `torch.save` since PyTorch 1.6: an archive of a pickle and a file for each storage. */
async function ofTorch(file: Ranged, members: readonly Member[], told: Told, check: (file: Uint8Array) => void): Promise<Archive | undefined> {
  const index = members.find(({ name }) => name.endsWith("/data.pkl"));
  if (!index || index.packed > MOST_BYTES) return undefined;
  const folder = index.name.slice(0, -"data.pkl".length);
  const by = new Map(members.map((member) => [member.name, member]));
  const content = async (member: Member): Promise<Uint8Array | undefined> => {
    const bytes = contentIn(await partOf(file, member.start, member.end, told), member);
    return member.method === 0 && crc32(bytes) === member.crc ? bytes : undefined;
  };
  const order = by.get(`${folder}byteorder`);
  if (by.has(`${folder}constants.pkl`) || (order && String.fromCharCode(...((await content(order)) ?? [])) !== "little")) return undefined;
  const text = await content(index);
  if (!text) return undefined;
  const tensors = known(() => tensorsIn(new Machine(text).run()));
  if (!tensors || tensors === CUT) {
    try {
      check(archiveOf([], new Uint8Array(), 0, { name: index.name, bytes: text }));
    } catch (error) {
      // as an object of a class: the rest is not asked for
      if (error instanceof UnsupportedError) throw error;
    }
    return undefined;
  }
  const pieces: (Piece & Member)[] = [];
  for (const [storage, names] of byStorage(tensors)) {
    const member = by.get(`${folder}data/${storage.key}`);
    if (!member || member.method !== 0) return undefined;
    pieces.push({ ...member, names });
  }
  return {
    names: [...tensors.keys()],
    pieces: sorted(pieces),
    part: (some, bytes, start, wanted) => {
      return archiveOf(some as typeof pieces, bytes, start, { name: index.name, bytes: pickled(tensors, some, wanted) });
    },
  };
}

/** `torch.save` before that: pickles, and the storages in the order of a list, each behind the number of its elements. */
async function ofOld(file: Ranged, told: Told): Promise<Archive | undefined> {
  let start = file.head;
  for (;;) {
    const found = known(() => oldIndex(start, file.size));
    if (found !== CUT) return found;
    const longer = Math.min(4 * start.length, file.size, MOST_BYTES);
    if (longer <= start.length) return undefined;
    start = joined([start, await file.read(start.length, longer, told)]);
  }
}

function oldIndex(bytes: Uint8Array, size: number): Archive {
  const machine = new Machine(bytes, OLD.length);
  machine.run();
  machine.run();
  const before = bytes.subarray(0, machine.at);
  const tensors = tensorsIn(machine.run());
  const names = byStorage(tensors);
  const storages = new Map([...names.keys()].map((storage) => [storage.key, storage]));
  const pieces: (Piece & { key: string })[] = [];
  let at = -1;
  for (const key of keysIn(machine.run())) {
    at = at < 0 ? machine.at : at;
    const storage = storages.get(key);
    // of a storage without tensors nothing tells how long it is
    if (!storage) throw new TypeError(`nothing uses the storage ${key}`);
    storages.delete(key);
    const end = at + 8 + bytesIn(storage);
    pieces.push({ key, start: at, end, names: names.get(storage) as string[] });
    at = end;
  }
  if (storages.size > 0 || at > size) throw new TypeError("another length");
  return {
    names: [...tensors.keys()],
    pieces,
    part: (some, all, from, wanted) => {
      const data = some.map((piece) => all.subarray(piece.start - from, piece.end - from));
      return joined([before, pickled(tensors, some, wanted), pickleOfKeys((some as typeof pieces).map(({ key }) => key)), ...data]);
    },
  };
}

const CUT: unique symbol = Symbol();

/** What is found, or that there is more to be read; undefined if it is none of what is known. */
function known<T>(find: () => T): T | typeof CUT | undefined {
  try {
    return find();
  } catch (error) {
    return error instanceof Cut ? CUT : undefined;
  }
}
