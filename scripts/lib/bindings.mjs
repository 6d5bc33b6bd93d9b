// Converts wasm-bindgen's bindings to a factory function. The tool writes a module with a single instance in its
// variables; here each call creates bindings for an instance of its own, whose exports, promises and callbacks go
// through the given environment: see web/ts/src/instance.ts, which ends an instance that trapped.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure } from "./run.mjs";

/** Replaces text that must occur exactly once. */
function replaceOnce(code, text, replacement) {
  if (code.split(text).length !== 2) throw new Failure(`bindings: wasm-bindgen writes something else than \`${text}\` now`);
  return code.replace(text, () => replacement);
}

function makeFactory(code) {
  const names = Array.from(code.matchAll(/^export (?:class|function) (\w+)/gm), ([, name]) => name);
  const views = Array.from(code.matchAll(/^let (cached\w+Memory0) = null;$/gm), ([, name]) => name);
  let body = code.replace(/^export (?=class|function)/gm, "");
  body = replaceOnce(body, "\nexport { initSync, __wbg_init as default };\n", "");
  body = replaceOnce(body, "wasm = instance.exports;", "wasm = guard(instance.exports);");
  const [, file] = /module_or_path = new URL\('(\w+\.wasm)', import\.meta\.url\);/.exec(body) ?? [];
  body = replaceOnce(body, `module_or_path = new URL('${file}', import.meta.url);`, "module_or_path = address();");
  body = body.replace(/^function initSync\(module\) \{\n[^]*?^\}\n/m, "");
  // bindings without closures lack this line
  if (body.includes("function makeMutClosure")) body = replaceOnce(body, "return f(a, state.b, ...args);", "return runCallback(f, a, state.b, ...args);");
  if (body.includes("function makeClosure")) {
    body = replaceOnce(body, "return f(state.a, state.b, ...args);", "return runCallback(f, state.a, state.b, ...args);");
  }
  return `export const address = () => new URL('${file}', import.meta.url);
export default function make({ Promise, guard, runCallback }) {
${body}
const drop = (stub) => {
  wasm = stub;
  ${["wasmInstance", "wasmModule", "__wbg_init_promise", "shared", ...views].join(" = ")} = undefined;
};
// a part of the module, compiled: it uses what the first one and the parts before it export, and its exports join those
let shared;
const part = async (compiled) => {
  const first = wasmInstance;
  if (!first) return;
  const { exports } = await WebAssembly.instantiate(compiled, { ...__wbg_get_imports(), $: { ...first.exports, ...shared } });
  if (wasmInstance !== first) return;
  shared = { ...shared, ...exports };
  Object.assign(wasm, guard(exports));
};
// what parts use begins with a dollar: a module with none of it has no parts
const isWhole = () => !("$0" in wasmInstance.exports);
return { ${names.join(", ")}, load: __wbg_init, module: () => wasmModule, isWhole, part, drop };
}
`;
}

function makeTypes(types, name) {
  const body = types.replace(/\/\*\*(?:(?!\*\/)[^])*\*\/\s*export function initSync[^;]*;\n/, "");
  const at = body.indexOf("export default function");
  if (at < 0) throw new Failure("bindings: wasm-bindgen writes other types now");
  const from = body.lastIndexOf("/**", at);
  return `${body.slice(0, from)}
import type * as Own from "./${name}.js";
import type { Bindings, Environment } from "../instance.js";
/** Where the module is, beside these bindings. */
export function address(): URL;
export default function make(environment: Environment): Omit<typeof Own, "default"> & Bindings;
`;
}

/** Converts all bindings in a folder. */
export function makeFactories(folder) {
  for (const file of readdirSync(folder)) {
    const name = file.replace(/(\.d)?\.[jt]s$/, "");
    const rewrite = /^gradloom_[a-z]+\.js$/.test(file) ? makeFactory : /^gradloom_[a-z]+\.d\.ts$/.test(file) ? makeTypes : undefined;
    if (rewrite) writeFileSync(join(folder, file), rewrite(readFileSync(join(folder, file), "utf8"), name));
  }
}
