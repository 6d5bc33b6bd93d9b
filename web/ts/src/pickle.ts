// The subset of Python's pickle format, protocols 2 to 5, that `torch.save` writes. The interpreter here finds the
// tensors, their names and their storages; it resolves no classes and calls nothing. It locates data only: the
// requested tensors are repacked as a smaller file with a pickle written here, and the wasm module validates that file
// like any other. Anything unknown throws, and the file is then read whole.
//
// The same interpreter in Rust is `core/src/io/torch/pickle.rs`.

/** The most tensors of a file, where a tensor counts once per path that leads to it, and the deepest nesting. */
const [MAX_TENSORS, MAX_DEPTH] = [1 << 20, 32];

/** A reference to a class, function or dtype: its module and name. */
class Global {
  constructor(
    readonly module: string,
    readonly name: string,
  ) {}
}

class List {
  readonly items: Value[] = [];
}

class Dict {
  readonly items: [Value, Value][] = [];
}

/** A torch storage: the bytes that tensors are views of. */
export class Storage {
  constructor(
    readonly type: Global,
    readonly key: string,
    readonly elems: number,
  ) {}
}

/** A tensor: its constructor function and arguments (storage, offset, sizes, strides, ..). */
export class View {
  constructor(
    readonly factory: Global,
    readonly args: readonly Value[],
  ) {}

  get storage(): Storage {
    return this.args[0] as Storage;
  }
}

/**
 * A value of a pickle. `undefined` stands for values that are irrelevant for tensors: floats, bytes, devices. A tuple
 * is an array.
 */
type Value = undefined | null | boolean | number | bigint | string | Global | List | Dict | Storage | View | readonly Value[];

const MARK = new Global("", "");
const TENSOR_CONSTRUCTORS = ["_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"];
const [ORDERED_DICT, PARAMETER, SIZE, DEVICE] = ["collections OrderedDict", "torch._utils _rebuild_parameter", "torch Size", "torch device"];

/** Bytes of an element of each type of storage. */
const ELEMENT_BYTES: Record<string, number> = {
  FloatStorage: 4, DoubleStorage: 8, HalfStorage: 2, BFloat16Storage: 2, LongStorage: 8, IntStorage: 4, ShortStorage: 2, CharStorage: 1, ByteStorage: 1,
  BoolStorage: 1, UntypedStorage: 1,
};

/** The length of a storage in bytes. */
export function storageBytes({ type, elems }: Storage): number {
  const width = ELEMENT_BYTES[type.name];
  if (width === undefined) throw new TypeError(`storages of type ${type.name}`);
  return width * elems;
}

/** The input ended within the pickle. */
export class TruncatedError extends RangeError {}

/** A cursor over bytes, with the interpreter that runs the pickles in them. */
export class Unpickler {
  readonly #view: DataView;
  readonly #text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  readonly #storages = new Map<string, Storage>();

  constructor(
    readonly bytes: Uint8Array,
    public at = 0,
  ) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  advance(length: number): number {
    const from = this.at;
    if (length > this.bytes.length - from) throw new TruncatedError();
    this.at += length;
    return from;
  }

  u64(): number {
    return Number(this.#view.getBigUint64(this.advance(8), true));
  }

  #number(bytes: 1 | 2 | 4): number {
    const from = this.advance(bytes);
    return bytes === 1 ? (this.bytes[from] as number) : bytes === 2 ? this.#view.getUint16(from, true) : this.#view.getUint32(from, true);
  }

  #string(length: number): string {
    const from = this.advance(length);
    return this.#text.decode(this.bytes.subarray(from, this.at));
  }

  #line(): string {
    const end = this.bytes.indexOf(10, this.at);
    if (end < 0) throw new TruncatedError();
    const text = this.#string(end - this.at);
    this.advance(1);
    return text;
  }

  #long(length: number): Value {
    const from = this.advance(length);
    if (length > 8) return undefined;
    let value = 0n;
    for (let i = length - 1; i >= 0; i -= 1) value = (value << 8n) | BigInt(this.bytes[from + i] as number);
    return BigInt.asIntN(8 * length, value);
  }

  /** Runs one pickle up to its STOP instruction. */
  run(): Value {
    const stack: Value[] = [];
    const memo = new Map<number, Value>();
    const top = (): Value => stack.at(-1);
    const pop = (): Value => {
      if (stack.length === 0 || top() === MARK) throw new TypeError("no value");
      return stack.pop();
    };
    const popToMark = (): Value[] => {
      const at = stack.lastIndexOf(MARK);
      if (at < 0) throw new TypeError("no mark");
      const items = stack.splice(at + 1);
      stack.pop();
      return items;
    };
    const popMany = (count: number): Value[] => Array.from({ length: count }, pop).reverse();
    const topAs = <T>(type: new () => T): T => {
      const found = top();
      if (!(found instanceof type)) throw new TypeError("another container");
      return found;
    };
    const pushMemo = (at: number): void => {
      if (!memo.has(at)) throw new TypeError("nothing remembered");
      stack.push(memo.get(at));
    };
    for (;;) {
      const op = this.#number(1);
      switch (op) {
        case 0x2e: { // STOP
          const value = pop();
          if (stack.length > 0) throw new TypeError("values are left");
          return value;
        }
        case 0x80: // PROTO
          if (this.#number(1) > 5) throw new TypeError("a later protocol");
          break;
        case 0x95: this.advance(8); break; // FRAME
        case 0x28: stack.push(MARK); break;
        case 0x30: pop(); break; // POP
        case 0x31: popToMark(); break; // POP_MARK
        case 0x4e: stack.push(null); break; // NONE
        case 0x88: case 0x89: stack.push(op === 0x88); break; // NEWTRUE, NEWFALSE
        case 0x4a: stack.push(this.#number(4) | 0); break; // BININT
        case 0x4b: stack.push(this.#number(1)); break; // BININT1
        case 0x4d: stack.push(this.#number(2)); break; // BININT2
        case 0x8a: stack.push(this.#long(this.#number(1))); break; // LONG1
        case 0x47: this.advance(8); stack.push(undefined); break; // BINFLOAT
        case 0x54: case 0x58: stack.push(this.#string(this.#number(4))); break; // BINSTRING, BINUNICODE
        case 0x55: case 0x8c: stack.push(this.#string(this.#number(1))); break; // SHORT_BINSTRING, SHORT_BINUNICODE
        case 0x8d: stack.push(this.#string(this.u64())); break; // BINUNICODE8
        case 0x42: this.advance(this.#number(4)); stack.push(undefined); break; // BINBYTES
        case 0x43: this.advance(this.#number(1)); stack.push(undefined); break; // SHORT_BINBYTES
        case 0x8e: case 0x96: this.advance(this.u64()); stack.push(undefined); break; // BINBYTES8, BYTEARRAY8
        case 0x5d: stack.push(new List()); break; // EMPTY_LIST
        case 0x61: { // APPEND
          const item = pop();
          topAs(List).items.push(item);
          break;
        }
        case 0x65: { // APPENDS
          const items = popToMark();
          for (const item of items) topAs(List).items.push(item);
          break;
        }
        case 0x29: stack.push([]); break; // EMPTY_TUPLE
        case 0x74: stack.push(popToMark()); break; // TUPLE
        case 0x85: case 0x86: case 0x87: stack.push(popMany(op - 0x84)); break; // TUPLE1 to TUPLE3
        case 0x7d: stack.push(new Dict()); break; // EMPTY_DICT
        case 0x73: case 0x75: { // SETITEM, SETITEMS
          const items = op === 0x73 ? popMany(2) : popToMark();
          for (const pair of pairs(items)) topAs(Dict).items.push(pair);
          break;
        }
        case 0x63: stack.push(new Global(this.#line(), this.#line())); break; // GLOBAL
        case 0x93: { // STACK_GLOBAL
          const [module, name] = popMany(2);
          if (typeof module !== "string" || typeof name !== "string") throw new TypeError("no name");
          stack.push(new Global(module, name));
          break;
        }
        case 0x52: { // REDUCE
          const args = pop();
          stack.push(construct(pop(), args));
          break;
        }
        case 0x62: { // BUILD: what a dictionary or a tensor has besides
          pop();
          if (!(top() instanceof Dict || top() instanceof View)) throw new TypeError("an object with a state");
          break;
        }
        case 0x51: stack.push(this.#storage(pop())); break; // BINPERSID
        case 0x71: memo.set(this.#number(1), top()); break; // BINPUT
        case 0x72: memo.set(this.#number(4), top()); break; // LONG_BINPUT
        case 0x94: memo.set(memo.size, top()); break; // MEMOIZE
        case 0x68: pushMemo(this.#number(1)); break; // BINGET
        case 0x6a: pushMemo(this.#number(4)); break; // LONG_BINGET
        default: throw new TypeError(`instruction ${op}`);
      }
    }
  }

  /** `("storage", type, key, device, elements)`. */
  #storage(id: Value): Storage {
    if (!Array.isArray(id)) throw new TypeError("no storage");
    const [kind, type, key, , elems, view] = id as Value[];
    const isValid = kind === "storage" && type instanceof Global && typeof key === "string" && (view ?? null) === null;
    const count = Number(elems);
    if (!isValid || !["number", "bigint"].includes(typeof elems) || !Number.isSafeInteger(count) || count < 0) throw new TypeError("no storage");
    const storage = this.#storages.get(key) ?? new Storage(type, key, count);
    if (storage.elems !== count || storage.type.module !== type.module || storage.type.name !== type.name) throw new TypeError("two storages of a name");
    this.#storages.set(key, storage);
    return storage;
  }
}

function pairs(items: readonly Value[]): [Value, Value][] {
  if (items.length % 2 !== 0) throw new TypeError("a key without a value");
  return Array.from({ length: items.length / 2 }, (_, i) => [items[2 * i], items[2 * i + 1]]);
}

/** The result of a call of a known constructor. */
function construct(factory: Value, args: Value): Value {
  if (!(factory instanceof Global) || !Array.isArray(args)) throw new TypeError("no function");
  const list = args as Value[];
  const path = `${factory.module} ${factory.name}`;
  const [first] = list;
  if (factory.module === "torch._utils" && TENSOR_CONSTRUCTORS.includes(factory.name) && first instanceof Storage) return new View(factory, list);
  if (path === PARAMETER && first instanceof View) return first;
  if (path === SIZE && Array.isArray(first)) return first;
  if (path === DEVICE) return undefined;
  if (path !== ORDERED_DICT || list.length > 1) throw new TypeError(path);
  const dict = new Dict();
  if (list.length === 0) return dict;
  if (!(first instanceof List)) throw new TypeError(path);
  for (const item of first.items) {
    const pair = item instanceof List ? item.items : item;
    if (!Array.isArray(pair) || pair.length < 2) throw new TypeError("no pair");
    dict.items.push([pair[0], pair[1]]);
  }
  return dict;
}

/** All tensors within a value, by their dotted paths. */
export function tensorsIn(root: Value): Map<string, View> {
  const found = new Map<string, View>();
  let remaining = MAX_TENSORS;
  const visit = (value: Value, path: string, depth: number): void => {
    if ((remaining -= 1) < 0 || depth > MAX_DEPTH) throw new TypeError("too many values");
    const visitChild = (key: Value, item: Value): void => visit(item, path === "" ? String(key) : `${path}.${key}`, depth + 1);
    if (value instanceof View) {
      const name = path === "" ? "tensor" : path;
      if (found.has(name)) throw new TypeError("two tensors of a name");
      found.set(name, value);
    } else if (value instanceof Dict) {
      for (const [key, item] of value.items) if (["string", "number", "bigint"].includes(typeof key)) visitChild(key, item);
    } else {
      const items = value instanceof List ? value.items : Array.isArray(value) ? (value as Value[]) : [];
      for (const [key, item] of items.entries()) visitChild(key, item);
    }
  };
  visit(root, "", 0);
  return found;
}

/** The keys in a pickled list of strings. */
export function keysIn(value: Value): string[] {
  if (!(value instanceof List) || !value.items.every((each) => typeof each === "string")) throw new TypeError("no list of texts");
  return value.items as string[];
}

const utf8 = (text: string): number[] => [...new TextEncoder().encode(text)];
const littleEndian = (value: bigint, bytes: number): number[] => Array.from({ length: bytes }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));

function encodeValue(value: Value): number[] {
  if (typeof value === "number" || typeof value === "bigint") return [0x8a, 8, ...littleEndian(BigInt(value), 8)];
  if (typeof value === "boolean") return [value ? 0x88 : 0x89];
  if (typeof value === "string") {
    const bytes = utf8(value);
    return [0x58, ...littleEndian(BigInt(bytes.length), 4), ...bytes];
  }
  if (value instanceof Global) return [0x63, ...utf8(`${value.module}\n${value.name}\n`)];
  if (value instanceof Storage) return [...encodeValue(["storage", value.type, value.key, "cpu", value.elems]), 0x51];
  if (Array.isArray(value)) return [0x28, ...(value as Value[]).flatMap(encodeValue), 0x74];
  return [0x4e];
}

const encodePickle = (body: number[]): Uint8Array => Uint8Array.from([0x80, 2, ...body, 0x2e]);

/** Writes a pickle of a dictionary of tensors. */
export function pickleOf(tensors: readonly (readonly [name: string, view: View])[]): Uint8Array {
  // the seventh argument is the dtype of a tensor that is not a plain one; later arguments are dropped, and
  // dictionaries are written as None
  const encodeTensor = ({ factory, args }: View): number[] => [...encodeValue(factory), ...encodeValue(args.slice(0, 7)), 0x52];
  return encodePickle([0x7d, 0x28, ...tensors.flatMap(([name, view]) => [...encodeValue(name), ...encodeTensor(view)]), 0x75]);
}

/** Writes a pickle of a list of strings. */
export const pickleOfKeys = (keys: readonly string[]): Uint8Array => encodePickle([0x5d, 0x28, ...keys.flatMap(encodeValue), 0x65]);
