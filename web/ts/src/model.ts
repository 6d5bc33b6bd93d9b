// Models: loading an ONNX or TensorFlow Lite file and running it.
import { type Device, type DeviceKind, type Host, type Timing, TIMING_NUMBERS } from "./device.js";
import { hostOf, onDevice, open, settings, timingOf, usableHost, useByDefault } from "./device.js";
import { type DType, type Nested, type TypedArray, dtypeOf, encode, flatten, isTypedArray, sizeOf } from "./dtype.js";
import { FetchError, InputError, StateError, ValueError, guard, guardAsync, isLost, withInputHint } from "./errors.js";
import { filesModule } from "./lazy-wasm.js";
import { hasExternalData } from "./protobuf.js";
import { withFormatHint } from "./files.js";
import { inNode } from "./module.js";
import { fuseAttention, loadPart, prefetch } from "./wasm-parts.js";
import { loadChunk } from "./chunks.js";
import { type FetchOptions, type FileSource, type OnProgress, type Progress, readSource } from "./progress.js";
import { LastRun } from "./repeat.js";
import { Tensor, bind, made, source } from "./tensor.js";
import type { Drift } from "./pkg/gradloom_web.js";
import { wasmFile } from "./event-loop.js";

/** Limits on the resources that building and running a model may take; exceeding one is a `BudgetError`. */
export interface Budget {
  /** Bytes of computed constants and tables besides the weights in the file. Default: 512 MiB. */
  hostBytes?: number;
  /** Nodes of one build, with the nodes of a loop counted once per iteration. Default: 2^20. */
  nodes?: number;
  /** Outputs of one node, and elements of one sequence. Default: 2^16. */
  outputs?: number;
  /** Elements of one tensor. Default: 2^31. */
  tensorElems?: number;
}

/** Options of `load`. */
export interface LoadOptions extends FetchOptions {
  /** Resource limits: lower them for untrusted models, raise them for unusually large ones. */
  budget?: Budget;
  /**
   * Which input sizes may change between runs without recompiling: one plan then serves all of them, up to the next
   * power of two and at least 32. Default: from the second distinct shape on, those axes that were seen to change,
   * except the batch (first axis of an input); each batch size has a plan of its own. True includes the batch. An
   * object gives the least and the largest value of each dimension by its name in the model (`input.axis` for a
   * dimension without one). False compiles a plan per shape, which also happens if a graph cannot be built for variable
   * lengths; `notes` then says why.
   */
  dynamic?: boolean | Record<string, readonly [least: number, largest: number]>;
  /** The device to run on. `auto`, the default, is WebGPU on a hardware GPU, else WebAssembly. */
  device?: DeviceKind | "auto" | Device;
  /**
   * The model's separate files (external data) by the names under which it refers to them, if they are not beside it at
   * its address: e.g. for models dropped on a page.
   */
  files?: Readonly<Record<string, FileSource>>;
  /** Makes the values of all nodes outputs, for `compare`. */
  everyValue?: boolean;
  /**
   * In a page, models are built and run in one shared worker, so that the page stays responsive; inputs and outputs are
   * posted to and from it. False uses the page's own thread and device. So do a `device` that `init` returned, `init({
   * gpuDevice })`, and browsers that refuse the worker, which the console reports. There is no such worker outside of
   * pages.
   */
  worker?: boolean;
}

export type { Drift };

/** An input or output as declared in the model file. */
export interface Port {
  name: string;
  /** null if the file does not declare it. */
  dtype: DType | "string" | null;
  /**
   * Sizes, names of symbolic dimensions, or null for unknown dimensions; null as a whole if even the rank is not
   * declared.
   */
  shape: (number | string | null)[] | null;
  /** True for a sequence of tensors: its elements are passed and returned as `name[0]`, `name[1]`, .. */
  sequence: boolean;
  /** True if the input may be omitted. */
  optional: boolean;
}

/** Options of `Model.run`. */
export interface RunOptions {
  /**
   * Names of values to compute instead of the model's outputs: any value of its main graph. `model.graph` lists the
   * names.
   */
  outputs?: readonly string[];
  /**
   * Leaves the outputs of a model in the page's worker on the worker's device: they can be passed to another model in
   * the worker without copies, `data` and similar methods read them, and `await output.realize()` copies one to this
   * thread for use in operators. They are kept until their `dispose`. Has no effect on other models, whose outputs stay
   * where they are computed anyway.
   */
  stay?: boolean;
  signal?: AbortSignal;
  onProgress?: OnProgress;
}

/** The type of a value, as far as the file declares it. */
export interface GraphValue {
  name: string;
  /** Types that no device supports have ONNX's own names (`float8e4m3fn`). */
  dtype: DType | "string" | (string & {}) | null;
  shape: (number | string | null)[] | null;
  sequence: boolean;
}

/** A constant of a graph. */
export interface GraphTensor {
  name: string;
  dtype: GraphValue["dtype"];
  shape: number[];
  /** Bytes in the file. */
  bytes: number;
}

/**
 * The value of an attribute. Integers beyond 2^53 are BigInts; `{ attribute }` in a function's body refers to an
 * attribute of its caller.
 */
export type GraphAttribute = number | bigint | string | GraphTensor | Graph | { attribute: string } | GraphAttribute[] | null;

/** An operation. An empty name stands for an omitted input or an unused output. */
export interface GraphNode {
  name: string;
  op: string;
  /** Empty for ONNX's own operators. */
  domain: string;
  inputs: string[];
  outputs: string[];
  attributes: Record<string, GraphAttribute>;
}

/** A graph as in its file, reduced to the nodes that its outputs depend on, in execution order. */
export interface Graph {
  name: string;
  /** Names of the graph's inputs and outputs. */
  inputs: string[];
  outputs: string[];
  nodes: GraphNode[];
  /** Types of the inputs, of inner values that the file declares, and of the outputs. */
  values: GraphValue[];
  initializers: GraphTensor[];
}

/** Strings in nested arrays: a tensor of strings. */
export type Strings = string | readonly Strings[];

/** A picture for a model's input, made by `imageInput` of `gradloom/vision`. */
export interface ImageInput {
  // without types of the DOM, since programs for Node have none
  readonly source: unknown;
  readonly options: object;
  /** @internal Converts it on a device. `loss` is the error of an earlier attempt that lost its GPU, and the picture perhaps with it. */
  toTensor(options: { device: Device; signal?: AbortSignal; loss?: unknown }): Promise<Tensor>;
}

/**
 * A value for a model's input. Flat arrays take the shape that the model declares; `imageInput` of `gradloom/vision` makes
 * an input of a picture.
 */
export type ModelInput = Tensor | TypedArray | Nested | Strings | ImageInput;

/** @internal */
export const isImageInput = (value: unknown): value is ImageInput => typeof (value as ImageInput | undefined)?.toTensor === "function";

/** @internal */
export type RawInput = readonly [name: string, dtype: DType, shape: readonly number[], data: Uint8Array];

/** @internal An input by value, or by the id of a tensor on the model's own device. */
export type BoundInput = RawInput | readonly [name: string, id: number];

const isBound = (input: BoundInput | Promise<RawInput>): input is BoundInput => !(input instanceof Promise);

/**
 * The timing followed by the ids of the outputs, the outputs' names if they are not the model's declared ones, and the number of the run if it
 * can be repeated.
 */
type RawOutputs = [numbers: number[], names: string[] | undefined, run: number];

/** Milliseconds up to which a run need not be divided: less than a time slice, since a repeated run may take longer than the one before. */
const SHORT_MS = 4;
/** The place of a run's milliseconds in its timing. */
const RUN_MS = 2;

/** Ids of variants of the model with other outputs, keyed by these outputs' names; at most `MAX_VARIANTS` are kept. */
type Variants = Map<string, number>;
const MAX_VARIANTS = 8;

const freeModels = ({ host, id, variants }: { host: Host; id: number; variants: Variants }): void =>
  [id, ...variants.values()].forEach((each) => host.raw.freeModel(each));
const modelRegistry = new FinalizationRegistry(freeModels);

/** A loaded model. `load` makes it. */
export interface Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** Number of nodes in its graph, number of weights (elements), and version of its operator set. */
  readonly nodes: number;
  readonly parameters: number;
  readonly opset: number;
  /** The main graph: nodes with attributes, types of values, and names and sizes of constants. */
  readonly graph: Graph;
  readonly device: Device;
  /** What the last run compiled, what it found in the cache of earlier visits, and how long it took. */
  readonly timing: Timing | undefined;
  /**
   * Which nodes prevent one plan for varying lengths, so that each shape has its own plan; empty if one plan serves
   * all.
   */
  readonly notes: readonly string[];
  /** Runs the model and gives the outputs by name. The first run with new input shapes compiles. */
  run(inputs: Record<string, ModelInput>, options?: RunOptions): Promise<Record<string, Tensor>>;
  /**
   * Runs this model and the same model on another device, both loaded with `everyValue`, and reports how far each value
   * deviates from the reference, in the order of the nodes: the first with `drifts` is where the results diverge. An
   * element may deviate by `tolerance` times the reference element, or times the mean magnitude of all elements.
   */
  compare(reference: Model, inputs: Record<string, ModelInput>, options?: RunOptions & { tolerance?: number }): Promise<Drift[]>;
  /** The strings of an output of dtype `string`, in row-major order; the tensor itself holds indices of strings. */
  strings(output: Tensor): Promise<string[]>;
  /** Frees the model. Outputs of earlier runs stay valid. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** Shapes of inputs by name. */
type Shapes = (readonly [name: string, shape: readonly number[]])[];

/** @internal A model in this thread. */
export class LocalModel implements Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly nodes: number;
  readonly parameters: number;
  readonly opset: number;
  #host: Host;
  #id: number | undefined;
  #migration: Promise<void> | undefined;
  /** Whether it may continue on a device of another kind after a loss. */
  readonly #auto: boolean;
  /** The numbers of the last run's timing, and the timing once it is asked for. */
  #numbers: readonly number[] | undefined;
  #timing: Timing | undefined;
  /** The last run, if its like can take the short way. */
  #last: LastRun | undefined;
  #graph: Graph | undefined;
  #variants: Variants = new Map();
  #dynamic: LoadOptions["dynamic"];
  /** The input shapes of the first run, and whether the model is by now compiled for variable lengths. */
  #firstShapes: Shapes | undefined;
  #hasVariableLengths = false;
  #fallbackNotes: string[] = [];

  /** @internal */
  constructor(host: Host, id: number, auto: boolean, dynamic: LoadOptions["dynamic"]) {
    const info = guard(() => host.raw.modelInfo(id));
    this.inputs = info.inputs as Port[];
    this.outputs = info.outputs as Port[];
    this.nodes = info.nodes;
    this.parameters = info.parameters;
    this.opset = info.opset;
    this.#host = host;
    this.#id = id;
    this.#auto = auto;
    this.#dynamic = dynamic;
    if (typeof dynamic === "object") this.#setVariableLengths();
    modelRegistry.register(this, { host, id, variants: this.#variants }, this);
  }

  get graph(): Graph {
    return (this.#graph ??= guard(() => this.#host.raw.modelGraph(this.#liveId())) as Graph);
  }

  get device(): Device {
    return this.#host;
  }

  get timing(): Timing | undefined {
    return (this.#timing ??= this.#numbers && timingOf(this.#numbers));
  }

  get notes(): readonly string[] {
    return this.#hasVariableLengths ? guard(() => this.#host.raw.lengthNotes(this.#liveId())) : this.#fallbackNotes;
  }

  run(inputs: Record<string, ModelInput>, options: RunOptions = {}): Promise<Record<string, Tensor>> {
    return this.#again(inputs, options) ?? this.#attempt(inputs, options, 1);
  }

  /** Repeats the last run, which was short, with inputs like its own; undefined for runs that need the long way. */
  #again(inputs: Record<string, ModelInput>, { signal, onProgress, outputs }: RunOptions): Promise<Record<string, Tensor>> | undefined {
    const host = this.#host;
    // it ends before a signal could fire
    const values = signal?.aborted || onProgress || outputs ? undefined : this.#last?.match(inputs, host);
    if (!values || this.#id === undefined) return undefined;
    let ids: number[] | undefined;
    try {
      ids = host.raw.runAgain(this.#id, this.#last!.number, values) as number[] | undefined;
    } catch {
      return undefined; // the long way tells what is wrong
    }
    if (!ids) return undefined;
    const runMs = ids[this.outputs.length]!;
    if (runMs > SHORT_MS) this.#last = undefined;
    this.#setTiming([0, 0, runMs, 0, 0, 0, 0, 0]);
    const results: Record<string, Tensor> = {};
    for (const [at, { name }] of this.outputs.entries()) results[name] = made(host, ids[at]!);
    return Promise.resolve(results);
  }

  #setTiming(numbers: readonly number[]): void {
    [this.#numbers, this.#timing] = [numbers, undefined];
  }

  /**
   * Runs the model. If the GPU is lost meanwhile, runs again on its replacement, up to `retries` times, with the inputs
   * that still exist.
   */
  async #attempt(inputs: Record<string, ModelInput>, options: RunOptions, retries: number, loss?: unknown): Promise<Record<string, Tensor>> {
    const { signal, onProgress } = options;
    signal?.throwIfAborted();
    this.#liveId();
    if (typeof inputs !== "object" || inputs === null || inputs instanceof Tensor || ArrayBuffer.isView(inputs)) {
      throw new ValueError("E_VALUE", "run takes an object of inputs by name");
    }
    const report = onProgress && ((phase: Progress["phase"]) => onProgress({ phase, loaded: 0, total: 0 }));
    if (guard(() => this.#host.raw.lost())) {
      report?.("device");
      await guardAsync(() => (this.#migration ??= this.#migrate()), signal);
    }
    if (Object.values(inputs).some(isImageInput)) return this.#withPictures(inputs, options, retries, loss);
    const pending = Object.entries(inputs).map(([name, value]) => this.#bindInput(name, value, signal));
    const bound = pending.every(isBound) ? pending : await Promise.all(pending);
    const id = options.outputs ? this.#variantFor(options.outputs) : this.#liveId();
    if (this.#dynamic !== false && !this.#hasVariableLengths) {
      const shapes: Shapes = bound.map((each) => [each[0], each.length === 2 ? (inputs[each[0]] as Tensor).shape : each[2]]);
      if (!this.#canSharePlan((this.#firstShapes ??= shapes), shapes)) await this.#enableVariableLengths(signal);
    }
    const host = this.#host;
    const run = (): Promise<RawOutputs> | RawOutputs => host.raw.runModel(id, bound, report, signal);
    const onLate = ([numbers]: RawOutputs): void => numbers.slice(TIMING_NUMBERS).forEach((each) => host.raw.free(each));
    let result: RawOutputs;
    try {
      const work = onDevice(host, run, signal, onLate);
      result = work instanceof Promise ? await work : work;
    } catch (error) {
      if (retries === 0 || !isLost(error) || host.kind !== "webgpu" || signal?.aborted) throw await withInputHint(error);
      return this.#attempt(inputs, options, retries - 1);
    }
    const [numbers, names = options.outputs ?? this.outputs.map((port) => port.name), number] = result;
    this.#setTiming(numbers);
    this.#last = !options.outputs && number > 0 && numbers[RUN_MS]! <= SHORT_MS ? new LastRun(number, inputs, bound) : undefined;
    return Object.fromEntries(names.map((name, at) => [name, made(host, numbers[TIMING_NUMBERS + at]!)]));
  }

  /** Runs the model with its pictures as tensors, which are disposed afterwards. `loss` is the error of the attempt before. */
  async #withPictures(inputs: Record<string, ModelInput>, options: RunOptions, retries: number, loss: unknown): Promise<Record<string, Tensor>> {
    const { signal } = options;
    const pictures: Tensor[] = [];
    try {
      const values: Record<string, ModelInput> = {};
      for (const [name, value] of Object.entries(inputs)) {
        values[name] = value;
        if (isImageInput(value)) pictures.push((values[name] = await value.toTensor({ device: this.#host, loss, ...(signal && { signal }) })));
      }
      return await this.#attempt(values, options, 0);
    } catch (error) {
      if (retries === 0 || !isLost(error) || this.#host.kind !== "webgpu" || signal?.aborted) throw error;
      return this.#attempt(inputs, options, retries - 1, error);
    } finally {
      pictures.forEach((t) => t.dispose());
    }
  }

  /**
   * Whether two sets of shapes can share a plan without variable lengths. Unless the caller asked for variable lengths,
   * differences in the batch size alone count as alike, since each batch size has a plan of its own.
   */
  #canSharePlan(a: Shapes, b: Shapes): boolean {
    const same = (x: readonly number[], y: readonly number[]): boolean =>
      x.length === y.length && x.every((n, at) => n === y[at] || (at === 0 && x.length > 1 && !this.#dynamic));
    return a === b || (a.length === b.length && a.every(([name, shape], at) => name === b[at]![0] && same(shape, b[at]![1])));
  }

  /** Switches to variable lengths once a second shape is seen; the code for it is loaded only then. */
  async #enableVariableLengths(signal?: AbortSignal): Promise<void> {
    try {
      await guardAsync(() => loadPart(this.#host.engine, "lengths"), signal);
    } catch (error) {
      if (this.#dynamic || !(error instanceof FetchError)) throw error;
      // variable lengths were not requested explicitly, so go on without them
      [this.#dynamic, this.#fallbackNotes] = [false, [`each shape has a plan of its own: ${error.message}`]];
      return;
    }
    if (!this.#hasVariableLengths) this.#setVariableLengths();
  }

  #setVariableLengths(): void {
    const bounds = typeof this.#dynamic === "object" ? this.#dynamic : {};
    const names = this.#dynamic === undefined ? undefined : Object.keys(bounds);
    const numbers = Uint32Array.from(Object.values(bounds).flat());
    for (const id of [this.#liveId(), ...this.#variants.values()]) {
      guard(() => this.#host.raw.setLengths(id, names, numbers, this.#firstShapes ?? []));
    }
    this.#hasVariableLengths = true;
  }

  /**
   * Moves the model to the replacement of its lost device; the weights are still in the module's memory. A model on
   * `auto` continues on wasm if WebGPU cannot be restarted.
   */
  async #migrate(): Promise<void> {
    try {
      const host = await usableHost(this.#host).catch((error: unknown) => {
        if (!this.#auto || this.#host.kind === "wasm" || this.#host.engine.ended) throw error;
        return open("wasm", this.#host.engine);
      });
      useByDefault(host);
      const id = guard(() => host.raw.recreateModel(this.#host.raw, this.#liveId()));
      freeModels({ host: this.#host, id: this.#liveId(), variants: this.#variants });
      modelRegistry.unregister(this);
      this.#variants = new Map();
      modelRegistry.register(this, { host, id, variants: this.#variants }, this);
      [this.#host, this.#id] = [host, id];
      if (this.#hasVariableLengths) this.#setVariableLengths();
    } finally {
      this.#migration = undefined;
    }
  }

  compare(reference: Model, inputs: Record<string, ModelInput>, options: RunOptions & { tolerance?: number } = {}): Promise<Drift[]> {
    return compareModels(this, reference, inputs, options);
  }

  /** @internal */
  drifts(got: RawInput[], want: RawInput[], tolerance: number): Drift[] {
    return guard(() => this.#host.raw.drifts(this.#liveId(), got, want, tolerance));
  }

  async strings(output: Tensor): Promise<string[]> {
    const codes = await output.data("i32");
    return guard(() => this.#host.raw.decodeStrings(this.#liveId(), new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength)));
  }

  /** The variant of the model with these outputs; the oldest variants are dropped. */
  #variantFor(outputs: readonly string[]): number {
    if (!Array.isArray(outputs)) throw new ValueError("E_VALUE", "run: outputs is a list of names");
    const key = JSON.stringify(outputs);
    const id = this.#variants.get(key) ?? guard(() => this.#host.raw.withOutputs(this.#liveId(), outputs.map(String)));
    this.#variants.delete(key);
    this.#variants.set(key, id);
    const [oldest] = this.#variants;
    if (this.#variants.size > MAX_VARIANTS && oldest) {
      this.#variants.delete(oldest[0]);
      this.#host.raw.freeModel(oldest[1]);
    }
    return id;
  }

  #liveId(): number {
    if (this.#id === undefined) throw new StateError("E_STATE", "this model was disposed");
    return this.#id;
  }

  /** An input by id if this device holds it, else by value. */
  #bindInput(name: string, value: ModelInput, signal?: AbortSignal): BoundInput | Promise<RawInput> {
    if (!(value instanceof Tensor)) return this.#encodeInput(name, value as Nested);
    const own = source(value);
    if (own) return [name, value.dtype, value.shape, own.bytes];
    if (!Tensor.away(value)) {
      const { host, id } = bind(value);
      if (host === this.#host) return [name, id];
    }
    return rawOf(name, value, signal);
  }

  #encodeInput(name: string, value: Exclude<ModelInput, Tensor | ImageInput>): RawInput {
    const base = name.replace(/\[\d+\]$/, "");
    const port = this.inputs.find((each) => each.name === (each.sequence ? base : name));
    if (isTypedArray(value)) {
      const dtype = port?.dtype === "bool" ? "bool" : dtypeOf(value);
      return [name, dtype, inferShape(name, port, value.length), encode(value, dtype)];
    }
    if (port?.dtype === "string") {
      const texts = ([value] as unknown[]).flat(Infinity) as string[];
      const shape: number[] = [];
      for (let v: unknown = value; Array.isArray(v); v = v[0]) shape.push(v.length);
      const isRegular = (v: unknown, axis: number): boolean =>
        axis === shape.length ? typeof v === "string" : Array.isArray(v) && v.length === shape[axis] && v.every((each) => isRegular(each, axis + 1));
      if (!isRegular(value, 0)) {
        throw new ValueError("E_VALUE", `${name} takes strings in arrays of equal lengths`);
      }
      return [name, "i32", shape, guard(() => this.#host.raw.encodeStrings(this.#liveId(), texts))];
    }
    const { values, shape } = flatten(value as Nested);
    const dtype = port?.dtype ?? "f32";
    const inferred = shape.length === 1 || (shape.length === 0 && port?.shape?.length) ? inferShape(name, port, values.length) : shape;
    return [name, dtype, inferred, encode(values, dtype)];
  }

  dispose(): void {
    if (this.#id === undefined) return;
    modelRegistry.unregister(this);
    freeModels({ host: this.#host, id: this.#id, variants: this.#variants });
    this.#id = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** @internal A tensor's values. */
export async function rawOf(name: string, value: Tensor, signal?: AbortSignal): Promise<RawInput> {
  const { dtype, shape } = value;
  if (Tensor.away(value)) await Tensor.landed(value, signal);
  const own = source(value);
  if (own) return [name, dtype, shape, own.bytes];
  const { host, id } = bind(value);
  return [name, dtype, shape, await guardAsync(() => host.raw.data(id, signal) as Promise<Uint8Array>, signal)];
}

/** @internal The result of `compare`; `model` measures the deviations. */
export async function compareModels(
  model: Model & { drifts(got: RawInput[], want: RawInput[], tolerance: number): Drift[] | Promise<Drift[]> },
  reference: Model,
  inputs: Record<string, ModelInput>,
  { tolerance = 1e-3, ...runOptions }: RunOptions & { tolerance?: number },
): Promise<Drift[]> {
  const values = async (each: Model): Promise<RawInput[]> => {
    const out = Object.entries(await each.run(inputs, runOptions));
    const read = out.map(([name, value]) => rawOf(name, value, runOptions.signal));
    return Promise.all(read).finally(() => out.forEach(([, value]) => value.dispose()));
  };
  return model.drifts(await values(model), await values(reference), tolerance);
}

/** @internal The declared shape with its one unknown size computed from the number of elements. */
export function inferShape(name: string, port: Port | undefined, length: number): number[] {
  const dims = port?.shape;
  if (!dims) return [length];
  const unknownAxes = dims.flatMap((d, at) => (typeof d === "number" ? [] : [at]));
  const known = dims.reduce<number>((product, d) => (typeof d === "number" ? product * d : product), 1);
  const shape = dims.map((d) => (typeof d === "number" ? d : length / known));
  if (unknownAxes.length > 1 || shape.some((n) => !Number.isInteger(n)) || sizeOf(shape) !== length) {
    const declared = dims.map((d) => d ?? "?").join(", ");
    const what = `${length} elements do not say which shape they have in [${declared}]; give a Tensor`;
    throw new InputError("E_INPUT", `input \`${name}\`: ${what}`);
  }
  return shape;
}

/** @internal Whether a model may run in the page's worker. A device object ties it to that device's thread. */
export function canRunInWorker({ worker = true, device }: { worker?: boolean | undefined; device?: LoadOptions["device"] | undefined }): boolean {
  const page = typeof document !== "undefined" && typeof Worker !== "undefined" && !inNode;
  return worker && page && typeof device !== "object" && !settings.gpuDevice;
}

/** Loads an ONNX or TensorFlow Lite model. Nodes that this build cannot run are reported here, all of them. */
export async function load(from: FileSource, options: LoadOptions = {}): Promise<Model> {
  if (canRunInWorker(options)) {
    const model = await (await loadChunk("remote").catch(() => undefined))?.loadRemote(from, options);
    if (model) return model;
  }
  return loadLocal(from, options);
}

/** @internal Loads a model in this thread. */
export async function loadLocal(from: FileSource, options: LoadOptions): Promise<LocalModel> {
  const { dynamic, signal } = options;
  const bounds = typeof dynamic === "object" && dynamic !== null;
  if (bounds) checkBounds(dynamic);
  if (bounds) prefetch("lengths");
  const { host, id } = await loadRaw(from, options);
  try {
    if (bounds) await guardAsync(() => loadPart(host.engine, "lengths"), signal);
    if (guard(() => host.raw.modelInfo(id)).attends) await guardAsync(() => fuseAttention(host), signal);
    return new LocalModel(host, id, (options.device ?? "auto") === "auto", dynamic);
  } catch (error) {
    host.raw.freeModel(id);
    throw error;
  }
}

/** @internal Loads a model and gives its id and device. */
export async function loadRaw(from: FileSource, options: LoadOptions): Promise<{ host: Host; id: number }> {
  const { signal, onProgress } = options;
  // The two run concurrently. If one fails, the outcome of the other no longer matters and must not count as unhandled.
  const file = readSource(from, options);
  const started = hostOf(options.device);
  prefetch("onnx");
  started.catch(() => {});
  file.catch(() => {});
  onProgress?.({ phase: "device", loaded: 0, total: 0 });
  const host = await guardAsync(() => started, signal);
  const fileBytes = await file;
  await guardAsync(() => loadPart(host.engine, "onnx"), signal);
  const id = await withFormatHint("model", from, fileBytes, async () => {
    const onnxBytes = await asOnnx(fileBytes);
    const open = wasmFile.bind(undefined, host.engine);
    const embedded = hasExternalData(onnxBytes) && (await (await loadChunk("external")).embedExternalData(onnxBytes, from, options.files, options, open));
    const { raw: fileBuffer, size } = embedded || (await open(onnxBytes.length, (file) => file.write(0, onnxBytes, signal)));
    onProgress?.({ phase: "parse", loaded: 0, total: size });
    const { everyValue = false, budget } = options;
    try {
      const modelId = guard(() => host.raw.onnx(fileBuffer, everyValue, budget));
      if (modelId !== undefined) return modelId;
      await guardAsync(() => loadPart(host.engine, "rare"), signal);
      return guard(() => host.raw.onnxRare(fileBuffer, everyValue, budget));
    } finally {
      fileBuffer.free();
    }
  });
  useByDefault(host);
  return { host, id };
}

function checkBounds(dynamic: Record<string, readonly [number, number]>): void {
  for (const [name, range] of Object.entries(dynamic)) {
    const numbers: readonly number[] = Array.isArray(range) ? range : [];
    const [least = -1, largest = -1] = numbers;
    const fits = numbers.length === 2 && numbers.every(Number.isInteger) && least >= 0 && least <= largest && largest < 2 ** 31;
    if (!fits) throw new ValueError("E_VALUE", `load: dynamic.${name} is the least and the largest length, not ${JSON.stringify(range)}`);
  }
}

/** Converts a TensorFlow Lite file, recognised by its identifier at byte 4, to ONNX; returns other files unchanged. */
async function asOnnx(file: Uint8Array): Promise<Uint8Array> {
  if (String.fromCharCode(...file.subarray(4, 8)) !== "TFL3") return file;
  const { tfliteToOnnx } = await filesModule();
  return guard(() => tfliteToOnnx(file));
}
