// The npm package `gradloom`: a typed, thin face over the wasm module. No tensor logic here.
import loadModule, { probeWebGpu, version } from "./pkg/gradloom_web.js";

let ready: Promise<void> | undefined;

/** Loads the WebAssembly module once; every other function needs it. In Node the file is read from the package. */
export function init(): Promise<void> {
  ready ??= start();
  return ready;
}

async function start(): Promise<void> {
  const node = (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node;
  if (node === undefined) {
    await loadModule();
    return;
  }
  // The name is in a variable so that bundlers for the browser leave the import alone.
  const fs = "node:fs/promises";
  const { readFile } = await import(/* @vite-ignore */ fs);
  const bytes = await readFile(new URL("./pkg/gradloom_web_bg.wasm", import.meta.url));
  await loadModule({ module_or_path: bytes });
}

export { probeWebGpu, version };
