// The code that all exported models share: it loads the files that a device needs and runs the plan, without a compiler.

const ARRAYS = {
  bool: Uint8Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array,
  u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, u64: BigUint64Array,
  f16: globalThis.Float16Array ?? Uint16Array, bf16: Uint16Array, f32: Float32Array, f64: Float64Array,
};

/** In milliseconds: how long a slice of a kernel's grid should take, and after which time a run yields to the event loop. */
const SLICE_MS = 2;
const TURN_MS = 8;

const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const length = (port) => port.shape.reduce((n, size) => n * size, 1);
const isGpuBuffer = (value) => typeof value?.mapAsync === "function";

/** Imports a module of Node in a way that bundlers do not follow. */
const builtin = (name) => import(/* @vite-ignore */ /* webpackIgnore: true */ name);

async function read(name) {
  const url = FILES[name]();
  // Node's fetch does not support file: URLs
  if (url.protocol === "file:" && globalThis.process?.versions?.node) return (await builtin("node:fs/promises")).readFile(url);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** The bytes of an input's values in the dtype that the device stores. */
function stored(port, dtype, value) {
  const Type = ARRAYS[port.dtype];
  const fits = value instanceof Type || (port.dtype === "f16" && value instanceof Uint16Array);
  if (!fits || value.length !== length(port)) {
    const given = value === undefined ? "nothing" : `${value?.constructor?.name ?? typeof value} of ${value?.length}`;
    throw new TypeError(`input \`${port.name}\` is a ${Type.name} of ${length(port)} (${port.dtype} [${port.shape}]), not ${given}`);
  }
  return bytesOf(dtype === port.dtype ? value : ARRAYS[dtype].from(value));
}

/** Converts the copied bytes of an output to an array of the output's own dtype. */
function value(port, dtype, bytes) {
  const all = new ARRAYS[dtype](bytes.buffer, bytes.byteOffset, length(port));
  return dtype === port.dtype ? all : ARRAYS[port.dtype].from(all);
}

/** Yields to the event loop. */
function turn() {
  if (globalThis.scheduler?.yield) return globalThis.scheduler.yield();
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}

async function wasm(load) {
  const { default: plan } = await import("./wasm.js");
  const relaxed = PROBE.length > 0 && WebAssembly.validate(Uint8Array.from(PROBE));
  const kernels = relaxed ? "kernels.relaxed.wasm" : "kernels.wasm";
  const [code, ...weights] = await Promise.all([kernels, ...plan.weights.map(([name]) => name)].map(load));
  const memory = new WebAssembly.Memory({ initial: plan.pages, maximum: plan.pages });
  const scratch = new WebAssembly.Global({ value: "i32", mutable: true }, plan.scratch);
  const { instance } = await WebAssembly.instantiate(code, { e: { m: memory, s: scratch } });
  const view = (at, bytes) => new Uint8Array(memory.buffer, at, bytes);
  plan.weights.forEach(([, at], i) => view(at, weights[i].length).set(weights[i]));
  // each launch reads a table of its buffers' addresses, and its scalars
  let at = plan.tables;
  const words = (list) => {
    new Uint32Array(memory.buffer, at, list.length).set(list);
    at += 4 * list.length;
    return at - 4 * list.length;
  };
  const steps = plan.steps.map(([kernel, ...rest]) => {
    if (kernel < 0) return rest;
    const [args, grid, vars = []] = rest;
    return { run: instance.exports[kernel], bufs: words(args), vars: words(vars), grid, slice: Math.max(1, grid >> 5) };
  });
  return {
    device: "wasm",
    async run(inputs) {
      plan.inputs.forEach(([at, dtype], i) => {
        const bytes = stored(INPUTS[i], dtype, inputs[INPUTS[i].name]);
        view(at, bytes.length).set(bytes);
      });
      let end = performance.now() + TURN_MS;
      for (const step of steps) {
        if (Array.isArray(step)) {
          const [to, from, bytes] = step;
          view(to, bytes).set(view(from, bytes));
          continue;
        }
        for (let low = 0, before = performance.now(); low < step.grid; ) {
          const high = Math.min(step.grid, low + step.slice);
          step.run(step.bufs, step.vars, low, high);
          low = high;
          const now = performance.now();
          if (now - before < SLICE_MS / 2) step.slice = Math.min(step.grid, 2 * step.slice);
          else if (now - before > SLICE_MS) step.slice = Math.max(1, step.slice >> 1);
          before = now;
          if (now < end) continue;
          await turn();
          before = performance.now();
          end = before + TURN_MS;
        }
      }
      return plan.outputs.map(([at, dtype], i) => value(OUTPUTS[i], dtype, view(at, length(OUTPUTS[i]) * ARRAYS[dtype].BYTES_PER_ELEMENT).slice()));
    },
    dispose() {},
  };
}

async function adapterOf(hardware) {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter({ powerPreference: "high-performance" });
  const { vendor, architecture, isFallbackAdapter } = adapter?.info ?? {};
  const emulated = isFallbackAdapter || adapter?.isFallbackAdapter || /swiftshader|llvmpipe/.test(`${vendor} ${architecture}`);
  return hardware && emulated ? null : adapter;
}

async function webgpu(load, device, own) {
  const { default: plan } = await import("./webgpu.js");
  const [text, ...files] = await Promise.all(["kernels.wgsl", ...plan.weights].map(load));
  const weights = Object.fromEntries(plan.weights.map((name, i) => [name, files[i]]));
  // each shader begins after a line with its number
  const shaders = new TextDecoder().decode(text).split(/^\/{4} .*\n/m).slice(1);
  const words = (bytes) => Math.max(4, (bytes + 3) & ~3);
  const made = [];
  const buffer = (bytes, usage, data) => {
    const fresh = device.createBuffer({ size: Math.max(16, (bytes + 15) & ~15), usage, mappedAtCreation: data !== undefined });
    if (data) {
      new Uint8Array(fresh.getMappedRange()).set(data);
      fresh.unmap();
    }
    made.push(fresh);
    return fresh;
  };
  // errors are reported by error scopes, which are closed before the next yield: others may push scopes on a shared device
  const scopes = (kinds) => kinds.forEach((kind) => device.pushErrorScope(kind));
  const closed = async (n) => {
    const found = await Promise.all(Array.from({ length: n }, () => device.popErrorScope()));
    for (const error of found) if (error) throw new Error(`WebGPU: ${error.message}`);
  };
  scopes(["out-of-memory", "validation"]);
  const STORAGE = 0x80 | 0x8 | 0x4; // STORAGE, COPY_DST, COPY_SRC
  const bytesIn = (port, dtype) => length(port) * ARRAYS[dtype].BYTES_PER_ELEMENT;
  const inputs = plan.inputs.map((dtype, i) => buffer(bytesIn(INPUTS[i], dtype), STORAGE));
  const outputs = plan.outputs.map((dtype, i) => buffer(bytesIn(OUTPUTS[i], dtype), STORAGE));
  const constants = plan.constants.map(([name, at, bytes]) => buffer(bytes, STORAGE, weights[name].subarray(at, at + bytes)));
  const arenas = plan.arenas.map((bytes) => buffer(bytes, STORAGE));
  const buffers = [...inputs, ...outputs, ...constants, ...arenas];
  const staging = plan.outputs.map((dtype, i) => buffer(bytesIn(OUTPUTS[i], dtype), 0x1 | 0x8)); // MAP_READ, COPY_DST
  const place = (i) => ({ buffer: buffers[plan.places[i][0]], offset: plan.places[i][1], size: words(plan.places[i][2]) });
  // launch scalars; those of each step begin at a multiple of 256 bytes
  const scalars = plan.steps.flatMap(([, , , vars = []]) => (vars.length ? [...vars, ...Array(-vars.length & 63).fill(0)] : []));
  const uniform = scalars.length ? buffer(4 * scalars.length, 0x40, bytesOf(Uint32Array.from(scalars))) : null;

  await closed(2);

  const layouts = new Map();
  const layout = (kinds) => {
    const key = kinds.join();
    const entries = kinds.map((type, binding) => ({ binding, visibility: 4, buffer: { type } }));
    if (!layouts.has(key)) layouts.set(key, device.createBindGroupLayout({ entries }));
    return layouts.get(key);
  };
  const pipelines = await Promise.all(
    plan.shaders.map(async ([written, hasScalars], i) => {
      const groups = [layout(written.map((w) => (w ? "storage" : "read-only-storage")))];
      if (hasScalars) groups.push(layout(["uniform"]));
      const module = device.createShaderModule({ code: shaders[i] });
      const pipeline = await device.createComputePipelineAsync({
        layout: device.createPipelineLayout({ bindGroupLayouts: groups }),
        compute: { module, entryPoint: "main" },
      });
      return { pipeline, groups };
    }),
  );
  scopes(["validation"]);
  let at = 0;
  const steps = plan.steps.map(([shader, args, grid, vars = []]) => {
    if (shader < 0) return { from: place(args[1]), to: place(args[0]) };
    const { pipeline, groups: layouts } = pipelines[shader];
    const entries = args.map((i, binding) => ({ binding, resource: place(i) }));
    const groups = [device.createBindGroup({ layout: layouts[0], entries })];
    if (vars.length) {
      const resource = { buffer: uniform, offset: at, size: 16 * Math.ceil(vars.length / 4) };
      groups.push(device.createBindGroup({ layout: layouts[1], entries: [{ binding: 0, resource }] }));
      at += 4 * (vars.length + (-vars.length & 63));
    }
    return { pipeline, groups, grid };
  });
  await closed(1);

  return {
    device: "webgpu",
    async run(given) {
      let encoder = device.createCommandEncoder();
      plan.inputs.forEach((dtype, i) => {
        const port = INPUTS[i];
        const x = given[port.name];
        if (isGpuBuffer(x) && dtype === port.dtype) {
          encoder.copyBufferToBuffer(x, 0, inputs[i], 0, words(bytesIn(port, dtype)));
          return;
        }
        const bytes = stored(port, dtype, x);
        const whole = bytes.length & ~3;
        device.queue.writeBuffer(inputs[i], 0, bytes, 0, whole);
        if (whole < bytes.length) {
          const last = new Uint8Array(4);
          last.set(bytes.subarray(whole));
          device.queue.writeBuffer(inputs[i], whole, last);
        }
      });
      scopes(["validation"]);
      let pass = null;
      let launches = 0;
      for (const { pipeline, groups, grid, from, to } of steps) {
        if (from) {
          pass?.end();
          pass = null;
          encoder.copyBufferToBuffer(from.buffer, from.offset, to.buffer, to.offset, to.size);
          continue;
        }
        pass ??= encoder.beginComputePass();
        pass.setPipeline(pipeline);
        groups.forEach((group, i) => pass.setBindGroup(i, group));
        pass.dispatchWorkgroups(...grid);
        launches += 1;
        if (launches % 64 > 0) continue;
        // short submissions let the page be drawn in between
        pass.end();
        pass = null;
        device.queue.submit([encoder.finish()]);
        encoder = device.createCommandEncoder();
      }
      pass?.end();
      const sizes = plan.outputs.map((dtype, i) => bytesIn(OUTPUTS[i], dtype));
      sizes.forEach((bytes, i) => encoder.copyBufferToBuffer(outputs[i], 0, staging[i], 0, words(bytes)));
      device.queue.submit([encoder.finish()]);
      const read = (bytes, i) => value(OUTPUTS[i], plan.outputs[i], new Uint8Array(staging[i].getMappedRange().slice(0, bytes)));
      try {
        await Promise.all([closed(1), ...staging.map((b) => b.mapAsync(1))]);
        return sizes.map(read);
      } finally {
        staging.forEach((b) => b.unmap());
      }
    },
    dispose() {
      made.forEach((b) => b.destroy());
      if (own) device.destroy();
    },
  };
}

/** The model's inputs and outputs, in order. */
export { INPUTS as inputs, OUTPUTS as outputs };

/** Loads the model onto a device: `auto` is WebGPU where there is a GPU, else WebAssembly. */
export async function load({ device = "auto", gpuDevice, read: from } = {}) {
  const loader = from ?? read;
  if (!["auto", "webgpu", "wasm"].includes(device)) throw new TypeError(`there is no device \`${device}\`: auto, webgpu or wasm`);
  if (device === "webgpu" && !HAS_WEBGPU) throw new Error("this model was exported without WebGPU");
  let on = HAS_WEBGPU && device !== "wasm" ? gpuDevice : undefined;
  if (HAS_WEBGPU && !on && device !== "wasm") {
    const adapter = await adapterOf(device === "auto");
    on = await adapter?.requestDevice();
    if (!on && device === "webgpu") throw new Error("WebGPU is not there");
  }
  const engine = await (on ? webgpu(loader, on, on !== gpuDevice) : wasm(loader));
  let last = Promise.resolve();
  return {
    device: engine.device,
    inputs: INPUTS,
    outputs: OUTPUTS,
    /** Runs are executed one after the other, because they share memory. */
    run(given) {
      const unknown = Object.keys(given).find((name) => !INPUTS.some((port) => port.name === name));
      if (unknown !== undefined) return Promise.reject(new TypeError(`there is no input \`${unknown}\`: ${INPUTS.map((port) => port.name).join(", ")}`));
      const done = last.then(async () => {
        const values = await engine.run(given);
        return Object.fromEntries(OUTPUTS.map((port, i) => [port.name, values[i]]));
      });
      last = done.catch(() => {});
      return done;
    },
    dispose: () => engine.dispose(),
  };
}
