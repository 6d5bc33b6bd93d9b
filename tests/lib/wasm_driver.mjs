// The driver of core/src/render/wasm/driver.rs on an instance of a kernel module, for the scripts beside this one.

/** Index of the word that says if a job is under way, in the block that threads share. */
export const STATE = 0;
/** None is. */
export const IDLE = 0;

/** What the driver exports; its table has `entries` entries, which the module's kernels fill from the first on. */
export function instantiate({ module, driver, memory, entries }) {
  const table = new WebAssembly.Table({ element: "anyfunc", initial: entries });
  const scratch = new WebAssembly.Global({ value: "i32", mutable: true }, 0);
  const env = { e: { m: memory, t: table, s: scratch, n: () => performance.now() } };
  Object.entries(new WebAssembly.Instance(module, env).exports).forEach(([at, kernel]) => table.set(Number(at), kernel));
  return new WebAssembly.Instance(driver, env).exports;
}
