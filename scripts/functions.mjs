// Lists the functions of a wasm module by size, or by growth since another build of it.
//
// usage: cargo xtask wasm --names && node scripts/functions.mjs web/pkg/gradloom_web_bg.wasm [OLD.wasm] [--rows 60]
//
// Instances of the same generic function are counted together.
import { readFileSync } from "node:fs";

/** Sizes and counts of functions by name. */
function functions(file) {
  const bytes = readFileSync(file);
  let at = 8;
  const number = () => {
    let [n, shift] = [0, 0];
    for (;;) {
      const byte = bytes[(at += 1) - 1];
      n += (byte & 127) * 2 ** shift;
      shift += 7;
      if (byte < 128) return n;
    }
  };
  const text = () => {
    const length = number();
    at += length;
    return bytes.toString("utf8", at - length, at);
  };
  const sizes = [];
  const names = new Map();
  while (at < bytes.length) {
    const kind = bytes[(at += 1) - 1];
    const end = number() + at;
    if (kind === 10) {
      for (let left = number(); left > 0; left -= 1) {
        const size = number();
        sizes.push(size);
        at += size;
      }
    } else if (kind === 0 && text() === "name") {
      while (at < end) {
        const part = bytes[(at += 1) - 1];
        const partEnd = number() + at;
        if (part === 1) for (let left = number(); left > 0; left -= 1) names.set(number(), text());
        at = partEnd;
      }
    }
    at = end;
  }
  if (names.size === 0) throw new Error(`${file} has no names: build it with \`cargo xtask wasm --names\``);
  // names refer to function indices, which include the imports
  const imports = Math.max(...names.keys()) + 1 - sizes.length;
  const all = new Map();
  sizes.forEach((size, i) => {
    const name = demangle(names.get(imports + i) ?? "?");
    const entry = all.get(name) ?? { size: 0, count: 0 };
    all.set(name, { size: entry.size + size, count: entry.count + 1 });
  });
  return all;
}

/** The readable name of a function, without its hash. */
function demangle(name) {
  const parts = /^_ZN(.*)17h[0-9a-f]{16}E/.exec(name)?.[1];
  if (!parts) return name.replace(/::h[0-9a-f]{16}\b/, "");
  const words = [];
  for (let at = 0; at < parts.length; ) {
    const digits = /^\d+/.exec(parts.slice(at))?.[0] ?? parts;
    at += digits.length;
    words.push(parts.slice(at, at + Number(digits)));
    at += Number(digits);
  }
  return words.join("::");
}

const args = process.argv.slice(2);
const rows = args.includes("--rows") ? Number(args.splice(args.indexOf("--rows"), 2)[1]) : 60;
const [now, before] = args.map(functions);
const grown = [...new Set([...now.keys(), ...(before?.keys() ?? [])])].map((name) => {
  const { size, count } = now.get(name) ?? { size: 0, count: 0 };
  return { name, size, count, by: size - (before?.get(name)?.size ?? 0) };
});
grown.sort((a, b) => Math.abs(b.by) - Math.abs(a.by));
console.log(`${"bytes".padStart(9)}${before ? "   change" : ""}  instances`);
for (const { name, size, count, by } of grown.slice(0, rows)) {
  console.log(`${String(size).padStart(9)}${before ? String(by).padStart(9) : ""}${String(count).padStart(11)}  ${name.slice(0, 140)}`);
}
