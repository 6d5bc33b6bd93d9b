// The subset of Python's pickle format, protocols 2 to 5, that `torch.save` writes. The interpreter here finds the
// tensors, their names and their storages; it resolves no classes and calls nothing. It locates data only: the
// requested tensors are repacked as a smaller file with a pickle written here, and the wasm module validates that file
// like any other. Anything unknown throws, and the file is then read whole.
//
// The same interpreter in Rust is `core/src/io/torch/pickle.rs`.

/** The most tensors of a file, where a tensor counts once per path that leads to it, and the deepest nesting. */
const [MOST, DEEPEST] = [1 << 20, 32];

/** A reference to a class, function or dtype: its module and name. */
class Named {
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
    readonly type: Named,
    readonly key: string,
    readonly elems: number,
  ) {}
}

/** A tensor: its constructor function and arguments (storage, offset, sizes, strides, ..). */
export class View {
  constructor(
    readonly maker: Named,
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
type Value = undefined | null | boolean | number | bigint | string | Named | List | Dict | Storage | View | readonly Value[];

const MARK = new Named("", "");
const MAKERS = ["_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"];
const [ORDERED, PARAMETER, SIZE, DEVICE] = ["collections OrderedDict", "torch._utils _rebuild_parameter", "torch Size", "torch device"];

/** Bytes of an element of each type of storage. */
const WIDTHS: Record<string, number> = {
  FloatStorage: 4, DoubleStorage: 8, HalfStorage: 2, BFloat16Storage: 2, LongStorage: 8, IntStorage: 4, ShortStorage: 2, CharStorage: 1, ByteStorage: 1,
  BoolStorage: 1, UntypedStorage: 1,
};

/** The length of a storage in bytes. */
export function bytesIn({ type, elems }: Storage): number {
  const width = WIDTHS[type.name];
  if (width === undefined) throw new TypeError(`storages of type ${type.name}`);
  return width * elems;
}

/** The input ended within the pickle. */
export class Cut extends RangeError {}

/** A cursor over bytes, with the interpreter that runs the pickles in them. */
export class Machine {
  readonly #view: DataView;
  readonly #text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  readonly #storages = new Map<string, Storage>();

  constructor(
    readonly bytes: Uint8Array,
    public at = 0,
  ) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  take(length: number): number {
    const from = this.at;
    if (length > this.bytes.length - from) throw new Cut();
    this.at += length;
    return from;
  }

  u64(): number {
    return Number(this.#view.getBigUint64(this.take(8), true));
  }

  #number(bytes: 1 | 2 | 4): number {
    const from = this.take(bytes);
    return bytes === 1 ? (this.bytes[from] as number) : bytes === 2 ? this.#view.getUint16(from, true) : this.#view.getUint32(from, true);
  }

  #string(length: number): string {
    const from = this.take(length);
    return this.#text.decode(this.bytes.subarray(from, this.at));
  }

  #line(): string {
    const end = this.bytes.indexOf(10, this.at);
    if (end < 0) throw new Cut();
    const text = this.#string(end - this.at);
    this.take(1);
    return text;
  }

  #long(length: number): Value {
    const from = this.take(length);
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
    const above = (): Value[] => {
      const at = stack.lastIndexOf(MARK);
      if (at < 0) throw new TypeError("no mark");
      const items = stack.splice(at + 1);
      stack.pop();
      return items;
    };
    const some = (count: number): Value[] => Array.from({ length: count }, pop).reverse();
    const into = <T>(kind: new () => T): T => {
      const found = top();
      if (!(found instanceof kind)) throw new TypeError("another container");
      return found;
    };
    const recall = (at: number): void => {
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
        case 0x95: this.take(8); break; // FRAME
        case 0x28: stack.push(MARK); break;
        case 0x30: pop(); break; // POP
        case 0x31: above(); break; // POP_MARK
        case 0x4e: stack.push(null); break; // NONE
        case 0x88: case 0x89: stack.push(op === 0x88); break; // NEWTRUE, NEWFALSE
        case 0x4a: stack.push(this.#number(4) | 0); break; // BININT
        case 0x4b: stack.push(this.#number(1)); break; // BININT1
        case 0x4d: stack.push(this.#number(2)); break; // BININT2
        case 0x8a: stack.push(this.#long(this.#number(1))); break; // LONG1
        case 0x47: this.take(8); stack.push(undefined); break; // BINFLOAT
        case 0x54: case 0x58: stack.push(this.#string(this.#number(4))); break; // BINSTRING, BINUNICODE
        case 0x55: case 0x8c: stack.push(this.#string(this.#number(1))); break; // SHORT_BINSTRING, SHORT_BINUNICODE
        case 0x8d: stack.push(this.#string(this.u64())); break; // BINUNICODE8
        case 0x42: this.take(this.#number(4)); stack.push(undefined); break; // BINBYTES
        case 0x43: this.take(this.#number(1)); stack.push(undefined); break; // SHORT_BINBYTES
        case 0x8e: case 0x96: this.take(this.u64()); stack.push(undefined); break; // BINBYTES8, BYTEARRAY8
        case 0x5d: stack.push(new List()); break; // EMPTY_LIST
        case 0x61: { // APPEND
          const item = pop();
          into(List).items.push(item);
          break;
        }
        case 0x65: { // APPENDS
          const items = above();
          for (const item of items) into(List).items.push(item);
          break;
        }
        case 0x29: stack.push([]); break; // EMPTY_TUPLE
        case 0x74: stack.push(above()); break; // TUPLE
        case 0x85: case 0x86: case 0x87: stack.push(some(op - 0x84)); break; // TUPLE1 to TUPLE3
        case 0x7d: stack.push(new Dict()); break; // EMPTY_DICT
        case 0x73: case 0x75: { // SETITEM, SETITEMS
          const items = op === 0x73 ? some(2) : above();
          for (const pair of pairs(items)) into(Dict).items.push(pair);
          break;
        }
        case 0x63: stack.push(new Named(this.#line(), this.#line())); break; // GLOBAL
        case 0x93: { // STACK_GLOBAL
          const [module, name] = some(2);
          if (typeof module !== "string" || typeof name !== "string") throw new TypeError("no name");
          stack.push(new Named(module, name));
          break;
        }
        case 0x52: { // REDUCE
          const args = pop();
          stack.push(called(pop(), args));
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
        case 0x68: recall(this.#number(1)); break; // BINGET
        case 0x6a: recall(this.#number(4)); break; // LONG_BINGET
        default: throw new TypeError(`instruction ${op}`);
      }
    }
  }

  /** `("storage", type, key, device, elements)`. */
  #storage(id: Value): Storage {
    if (!Array.isArray(id)) throw new TypeError("no storage");
    const [kind, type, key, , elems, view] = id as Value[];
    const fine = kind === "storage" && type instanceof Named && typeof key === "string" && (view ?? null) === null;
    const count = Number(elems);
    if (!fine || !["number", "bigint"].includes(typeof elems) || !Number.isSafeInteger(count) || count < 0) throw new TypeError("no storage");
    const known = this.#storages.get(key) ?? new Storage(type, key, count);
    if (known.elems !== count || known.type.module !== type.module || known.type.name !== type.name) throw new TypeError("two storages of a name");
    this.#storages.set(key, known);
    return known;
  }
}

function pairs(items: readonly Value[]): [Value, Value][] {
  if (items.length % 2 !== 0) throw new TypeError("a key without a value");
  return Array.from({ length: items.length / 2 }, (_, i) => [items[2 * i], items[2 * i + 1]]);
}

/** The result of a call of a known constructor. */
function called(maker: Value, args: Value): Value {
  if (!(maker instanceof Named) || !Array.isArray(args)) throw new TypeError("no function");
  const list = args as Value[];
  const path = `${maker.module} ${maker.name}`;
  const [first] = list;
  if (maker.module === "torch._utils" && MAKERS.includes(maker.name) && first instanceof Storage) return new View(maker, list);
  if (path === PARAMETER && first instanceof View) return first;
  if (path === SIZE && Array.isArray(first)) return first;
  if (path === DEVICE) return undefined;
  if (path !== ORDERED || list.length > 1) throw new TypeError(path);
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
  let left = MOST;
  const visit = (value: Value, path: string, depth: number): void => {
    if ((left -= 1) < 0 || depth > DEEPEST) throw new TypeError("too many values");
    const below = (key: Value, item: Value): void => visit(item, path === "" ? String(key) : `${path}.${key}`, depth + 1);
    if (value instanceof View) {
      const name = path === "" ? "tensor" : path;
      if (found.has(name)) throw new TypeError("two tensors of a name");
      found.set(name, value);
    } else if (value instanceof Dict) {
      for (const [key, item] of value.items) if (["string", "number", "bigint"].includes(typeof key)) below(key, item);
    } else {
      const items = value instanceof List ? value.items : Array.isArray(value) ? (value as Value[]) : [];
      for (const [key, item] of items.entries()) below(key, item);
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

const ascii = (text: string): number[] => [...new TextEncoder().encode(text)];
const le = (value: bigint, bytes: number): number[] => Array.from({ length: bytes }, (_, i) => Number((value >> BigInt(8 * i)) & 255n));

function written(value: Value): number[] {
  if (typeof value === "number" || typeof value === "bigint") return [0x8a, 8, ...le(BigInt(value), 8)];
  if (typeof value === "boolean") return [value ? 0x88 : 0x89];
  if (typeof value === "string") {
    const bytes = ascii(value);
    return [0x58, ...le(BigInt(bytes.length), 4), ...bytes];
  }
  if (value instanceof Named) return [0x63, ...ascii(`${value.module}\n${value.name}\n`)];
  if (value instanceof Storage) return [...written(["storage", value.type, value.key, "cpu", value.elems]), 0x51];
  if (Array.isArray(value)) return [0x28, ...(value as Value[]).flatMap(written), 0x74];
  return [0x4e];
}

const pickled = (body: number[]): Uint8Array => Uint8Array.from([0x80, 2, ...body, 0x2e]);

/** Writes a pickle of a dictionary of tensors. */
export function pickleOf(tensors: readonly (readonly [name: string, view: View])[]): Uint8Array {
  // the seventh argument is the dtype of a tensor that is not a plain one; later arguments are dropped, and
  // dictionaries are written as None
  const made = ({ maker, args }: View): number[] => [...written(maker), ...written(args.slice(0, 7)), 0x52];
  return pickled([0x7d, 0x28, ...tensors.flatMap(([name, view]) => [...written(name), ...made(view)]), 0x75]);
}

/** Writes a pickle of a list of strings. */
export const pickleOfKeys = (keys: readonly string[]): Uint8Array => pickled([0x5d, 0x28, ...keys.flatMap(written), 0x65]);
