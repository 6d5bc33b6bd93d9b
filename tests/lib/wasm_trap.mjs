// Wasm modules that trap where a test wants it: no code for this is in what the package ships.

const IMPORTS = 2;
const EXPORTS = 7;
const CODE = 10;
/** A function of no locals that traps: its length, and `unreachable`. */
const TRAPPING_BODY = [3, 0, 0, 0x0b];
/** One that never ends. */
const ENDLESS_BODY = [7, 0, 3, 0x40, 0x0c, 0, 0x0b, 0x0b];

function reader(bytes) {
  let at = 0;
  const u8 = () => bytes[at++];
  const number = () => {
    let [value, shift] = [0, 0];
    for (;;) {
      const byte = u8();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
      shift += 7;
    }
  };
  const skip = (n) => void (at += n);
  const text = () => {
    const n = number();
    skip(n);
    return new TextDecoder().decode(bytes.subarray(at - n, at));
  };
  return { u8, number, skip, text, at: () => at, done: () => at >= bytes.length };
}

const leb = (n) => {
  const out = [];
  for (;;) {
    const low = n % 128;
    n = Math.floor(n / 128);
    out.push(n > 0 ? low + 128 : low);
    if (n === 0) return out;
  }
};

function sections(module) {
  const r = reader(module);
  r.skip(8);
  const found = [];
  while (!r.done()) {
    const id = r.u8();
    const length = r.number();
    found.push({ id, body: module.subarray(r.at(), r.at() + length) });
    r.skip(length);
  }
  return found;
}

/** How many functions a module imports: they are counted before its own. */
function importedFunctions(body) {
  const r = reader(body);
  let functions = 0;
  for (let left = r.number(); left > 0; left -= 1) {
    r.text();
    r.text();
    const kind = r.u8();
    if (kind === 0) {
      r.number();
      functions += 1;
    } else if (kind === 3) r.skip(2);
    else {
      // a table has a type of elements before its limits
      if (kind === 1) r.skip(1);
      const limits = r.number();
      r.number();
      if (limits & 1) r.number();
    }
  }
  return functions;
}

function exportIndex(body, name) {
  const r = reader(body);
  for (let left = r.number(); left > 0; left -= 1) {
    const found = r.text();
    const kind = r.u8();
    const index = r.number();
    if (kind === 0 && found === name) return index;
  }
  throw new Error(`the module does not export ${name}`);
}

/** The module with another body for some of its functions: those that `chosen` says, by their place in the code. */
function replaceBodies(module, chosen, other) {
  const parts = [[...module.subarray(0, 8)]];
  for (const { id, body } of sections(module)) {
    let content = body;
    if (id === CODE) {
      const r = reader(body);
      const n = r.number();
      const list = [leb(n)];
      for (let at = 0; at < n; at += 1) {
        const start = r.at();
        r.skip(r.number());
        list.push(chosen(at) ? other : body.subarray(start, r.at()));
      }
      content = concat(list);
    }
    parts.push([id], leb(content.length), content);
  }
  return concat(parts);
}

function concat(list) {
  const out = new Uint8Array(list.reduce((sum, each) => sum + each.length, 0));
  let at = 0;
  for (const each of list) {
    out.set(each, at);
    at += each.length;
  }
  return out;
}

/** The module with an exported function that traps. */
export function trappingExport(module, name) {
  const all = sections(module);
  const before = importedFunctions(all.find(({ id }) => id === IMPORTS).body);
  const index = exportIndex(all.find(({ id }) => id === EXPORTS).body, name) - before;
  return replaceBodies(module, (at) => at === index, TRAPPING_BODY);
}

/** The module with nothing but functions that trap. */
export const trappingModule = (module) => replaceBodies(module, () => true, TRAPPING_BODY);

/** The module with nothing but functions that never end. */
export const endlessModule = (module) => replaceBodies(module, () => true, ENDLESS_BODY);

/** A function of a wasm module that traps. */
const trap = new WebAssembly.Instance(
  new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 5, 1, ...TRAPPING_BODY)),
).exports.f;

/**
 * Lets the package's own module trap at the `n`-th time that it looks at the clock from now on, wherever that is: in a call, in a
 * task that goes on later. Returns what ends that, and says if it came to it.
 */
export function trapAtClock(n) {
  const { now } = performance;
  let left = n;
  performance.now = () => {
    left -= 1;
    if (left === 0) trap();
    return now.call(performance);
  };
  return () => {
    performance.now = now;
    return left <= 0;
  };
}

/** Whatever it comes to within a time that nothing here takes: a promise that stays open is a failure, not a test that hangs. */
export async function settleAll(promises, ms = 60_000) {
  let timer;
  const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error(`a promise was still open after ${ms} ms`)), ms)));
  try {
    return await Promise.race([Promise.allSettled(promises), late]);
  } finally {
    clearTimeout(timer);
  }
}
