// Times one recorded case (see tests/examples/wasm_record.rs), in Node and in a page: no imports.

/**
 * `get(name)` fetches a file of the case, `cpu()` gives the milliseconds this process was on a processor so far (may be async).
 * Returns {ms, cpu, first, compile, error, kernels: [{name, ms, flops, bytes}]}; times are minima, `cpu` of windows of 50 ms.
 */
export async function timeCase(get, cpu, { budget = 1000, perKernel = true } = {}) {
  const info = JSON.parse(new TextDecoder().decode(await get("case.json")));
  const image = await get("image.bin");
  const pages = Math.ceil((image.length + 65536) / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536 });
  new Uint8Array(memory.buffer).set(image);
  const table = new WebAssembly.Table({ element: "anyfunc", initial: info.kernels });
  const scratch = new WebAssembly.Global({ value: "i32", mutable: true }, 0);
  const env = { e: { m: memory, t: table, s: scratch, n: () => performance.now() } };
  const begin = performance.now();
  const kernels = new WebAssembly.Instance(await WebAssembly.compile(await get("kernels.wasm")), env).exports;
  Object.entries(kernels).forEach(([at, kernel]) => table.set(Number(at), kernel));
  const driver = new WebAssembly.Instance(await WebAssembly.compile(await get("driver.wasm")), env).exports;
  const run = (steps, n, at) => {
    driver.begin(steps, n);
    driver.go(at, Infinity);
  };
  const compile = performance.now() - begin;
  const start = performance.now();
  for (const [steps, n] of info.runs) run(steps, n, info.scratch);
  const first = performance.now() - start;
  let error = 0;
  for (const [at, len, name] of info.outputs) {
    const bytes = await get(name);
    const want = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
    const got = new Float32Array(memory.buffer, at, len);
    let most = 0;
    let scale = 1e-30;
    for (let i = 0; i < len; i += 1) {
      const d = Math.abs(got[i] - want[i]);
      most = d <= most ? most : d; // NaN too
      scale = Math.max(scale, Math.abs(want[i]));
    }
    error = Math.max(error, most / scale);
  }
  // short steps are run many times, because clocks are coarse
  const least = (limit, go) => {
    let times = 1;
    let best = Infinity;
    const until = performance.now() + limit;
    do {
      const from = performance.now();
      for (let i = 0; i < times; i += 1) go();
      const took = performance.now() - from;
      if (took < 0.5 && times < 1 << 16) times *= 2;
      else best = Math.min(best, took / times);
    } while (performance.now() < until || best === Infinity);
    return best;
  };
  const [steps, n] = info.runs.at(-1);
  const ms = least(budget, () => run(steps, n, info.scratch));
  let onCpu = Infinity;
  const times = Math.max(1, Math.ceil(50 / ms));
  for (const until = performance.now() + budget; performance.now() < until; ) {
    const from = await cpu();
    for (let i = 0; i < times; i += 1) run(steps, n, info.scratch);
    onCpu = Math.min(onCpu, ((await cpu()) - from) / times);
  }
  const each = perKernel && n > 1 ? budget / n / 2 : 0;
  const kernels = [];
  for (let i = 0; i < n; i += 1) {
    const [name, flops, bytes] = info.steps[i] ?? ["copy", 0, 0];
    const one = n === 1 ? ms : each ? least(each, () => run(steps + 20 * i, 1, info.scratch)) : 0;
    kernels.push({ name, ms: one, flops, bytes });
  }
  return { ms, cpu: onCpu, first, compile, error, kernels };
}
