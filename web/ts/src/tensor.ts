// The lazy tensor, a handle on a value in the wasm module: methods only name ops, the core does the rest. Helpers for other files follow at the end.
import { type Host, type Device, type GpuBuffer, type GpuBufferPart, defaultHost, onGpu, onDevice, useByDefault } from "./device.js";
import type { DType, DataOf, Nested, TypedArray } from "./dtype.js";
import { bytesOf, decode, dtypeAt, dtypeIndex, dtypeOf, encode, flatten, isTypedArray, nest, sizeOf } from "./dtype.js";
import { DTypeError, DeviceError, StateError, ValueError, guard, notArray, notTensor } from "./errors.js";
import { backward, trainable } from "./gradients.js";
import { type CustomKernel, customKernel } from "./kernel.js";
import { weightsModule } from "./files.js";
import { seedKeys } from "./keys.js";
import type { Axes, ConvOptions, FileOptions, Operand, PoolOptions, SampleOptions, SliceRange, TensorOptions } from "./options.js";
import { loadPart } from "./wasm-parts.js";
import { loadChunk } from "./chunks.js";
import type { FetchOptions, FileSource } from "./progress.js";

export { accompany, checkpoint, companions, grad } from "./gradients.js";
export type { Axes, ConvOptions, FileOptions, Operand, PoolOptions, SampleOptions, SliceRange, TensorOptions };

/** Number of elements that `console.log` shows. */
const SHOWN = 6;
const PAD_MODES = ["constant", "reflect", "replicate", "circular"] as const;

interface Source {
  bytes: Uint8Array;
  dtype: DType;
  shape: number[];
}

interface Handle {
  host: Host;
  id: number;
}

/** A value that another thread holds. */
export interface Away {
  dtype: DType;
  shape: readonly number[];
  device: Device;
  bytes(signal?: AbortSignal): Promise<Uint8Array>;
  free(): void;
}

const lost = new FinalizationRegistry<Handle>(({ host, id }) => host.raw.free(id));
const scopes: Set<Tensor>[] = [];

/** A lazy tensor: values of one dtype in a shape, computed when `data`, `item`, `tolist` or `realize` asks for them. */
export class Tensor {
  /** The gradient that `backward` accumulated. */
  grad: Tensor | null = null;
  #handle: Handle | undefined;
  #source: Source | undefined;
  #away: Away | undefined;
  #device: Host | undefined;
  #shape: readonly number[] | undefined;
  #dtype: DType | undefined;
  #requiresGrad = false;
  #disposed = false;
  /** The first elements, if they have been read. */
  #seen: ArrayLike<number | bigint> | undefined;

  /** Creates a tensor from a typed array and a shape, or from nested arrays. The array is not copied before the tensor is used. */
  constructor(data: TypedArray | Nested, shape?: readonly number[] | null, options: TensorOptions = {}) {
    // an internal call with an existing value
    if ((data as unknown) instanceof Made) {
      const { handle, away } = data as unknown as Made;
      [this.#handle, this.#away, this.#shape, this.#dtype] = [handle, away, away?.shape, away?.dtype];
      if (handle) lost.register(this, handle, this);
    } else {
      let values: TypedArray | readonly (number | bigint | boolean)[];
      let own: number[];
      if (isTypedArray(data)) [values, own] = [data, [data.length]];
      else ({ values, shape: own } = flatten(data));
      const wanted = shape ? [...shape] : own;
      if (sizeOf(wanted) !== values.length) throw new ValueError("E_VALUE", `${values.length} elements do not fill shape [${wanted.join(", ")}]`);
      const natural = isTypedArray(values) ? dtypeOf(values) : guess(values);
      const dtype = options.dtype ?? natural;
      this.#source = { bytes: encode(values, dtype), dtype, shape: wanted };
      this.#device = options.device as Host | undefined;
      if (options.requiresGrad) this.requiresGrad = true;
    }
    scopes.at(-1)?.add(this);
  }

  get shape(): readonly number[] {
    this.#live();
    this.#shape ??= Object.freeze(
      this.#source ? this.#source.shape : (guard(() => this.#handle!.host.raw.shape(this.#handle!.id)) as number[]),
    );
    return this.#shape;
  }

  get dtype(): DType {
    this.#live();
    this.#dtype ??= this.#source
      ? this.#source.dtype
      : dtypeAt(guard(() => this.#handle!.host.raw.dtype(this.#handle!.id)));
    return this.#dtype;
  }

  get rank(): number {
    return this.shape.length;
  }

  /** Number of elements. */
  get size(): number {
    return sizeOf(this.shape);
  }

  /** The device that holds the value; undefined while it is on none. */
  get device(): Device | undefined {
    return this.#handle?.host ?? this.#device ?? (this.#source ? undefined : this.#away?.device);
  }

  get requiresGrad(): boolean {
    return this.#requiresGrad;
  }

  set requiresGrad(wanted: boolean) {
    if (wanted && !this.dtype.includes("f")) {
      throw new DTypeError("E_DTYPE", `gradients need a float dtype, not ${this.dtype}`);
    }
    if (wanted && !this.#requiresGrad) {
      const { host } = bind(this);
      let list = trainable.get(host);
      if (!list) trainable.set(host, (list = new Set()));
      list.add(new WeakRef(this));
    }
    this.#requiresGrad = wanted;
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /** Releases the value. Tensors computed from it stay valid. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    lost.unregister(this);
    if (this.#handle) this.#handle.host.raw.free(this.#handle.id);
    this.#handle = this.#source = undefined;
    this.#away?.free();
    this.grad?.dispose();
    this.grad = null;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  #live(): void {
    if (this.#disposed) throw new StateError("E_STATE", "this tensor was disposed");
  }

  /** @internal */
  static bind(t: Tensor, on?: Host): Handle {
    t.#live();
    if (!t.#handle) {
      const host = t.#device ?? on ?? defaultHost();
      if (!t.#source) throw new StateError("E_STATE", "this tensor is in the page's worker", { hint: "`await tensor.realize()` brings it here" });
      const { bytes, dtype, shape } = t.#source;
      const id = guard(() => host.raw.tensor(dtype, Uint32Array.from(shape), bytes));
      t.#shape ??= shape;
      t.#dtype ??= dtype;
      t.#handle = { host, id };
      // from here on the two copies could differ
      t.#away?.free();
      t.#source = t.#away = undefined;
      lost.register(t, t.#handle, t);
      useByDefault(host);
    }
    return t.#handle;
  }

  /** @internal The id of a tensor that is on a device. */
  static idOn(t: Tensor, host: Host): number | undefined {
    return t.#handle?.host === host ? t.#handle.id : undefined;
  }

  /** @internal The bytes of a tensor that is on no device yet. */
  static source(t: Tensor): Source | undefined {
    t.#live();
    return t.#source;
  }

  /** @internal The location of its value, if that is another thread. */
  static away(t: Tensor): Away | undefined {
    t.#live();
    return t.#away;
  }

  /** @internal Copies a value from another thread to this one. */
  static async landed(t: Tensor, signal?: AbortSignal): Promise<void> {
    if (!t.#away || t.#source || t.#handle) return;
    const { dtype, shape } = t.#away;
    const bytes = await t.#away.bytes(signal);
    t.#live();
    if (!t.#handle) t.#source ??= { bytes, dtype, shape: [...shape] };
  }

  // ---- values

  /** Computes the value. WebGPU and worker threads may still be working when this resolves; reading the values waits for them. */
  async realize(options: { signal?: AbortSignal } = {}): Promise<this> {
    await realize([this], options);
    return this;
  }

  /**
   * Declares the values constant weights: kernels may then read them from copies in a packed layout, made once. Writing to them
   * remains possible and costs new copies. A tensor that is not computed yet is left as it is.
   */
  freeze(): this {
    const { host, id } = bind(this);
    guard(() => host.raw.freeze(id));
    return this;
  }

  /** The elements in row-major order, in the dtype's typed array (f16 and bf16 as Float32Array). If given, `dtype` is checked. */
  async data<D extends DType = "f32">(dtype?: D, options: { signal?: AbortSignal } = {}): Promise<DataOf[D]> {
    if (dtype !== undefined && dtype !== this.dtype) {
      throw new DTypeError("E_DTYPE", `the tensor holds ${this.dtype}, not ${dtype}`);
    }
    if (this.#away) await Tensor.landed(this, options.signal);
    const bytes = this.#source ? new Uint8Array(this.#source.bytes) : await this.#read(options.signal);
    const values = decode(bytes, this.dtype) as DataOf[D];
    this.#seen = values.slice(0, SHOWN);
    return values;
  }

  #read(signal?: AbortSignal): Promise<Uint8Array> | Uint8Array {
    const { host, id } = bind(this);
    return onDevice(host, () => host.raw.data(id, signal) as Promise<Uint8Array> | Uint8Array, signal);
  }

  /**
   * Computes the tensor and gives the `GPUBuffer` with its elements, for the page's own shaders and copies on the same `GPUDevice`;
   * work submitted afterwards sees the values. The buffer is valid until this tensor is disposed; the page must not destroy it. Its
   * usages are STORAGE, COPY_SRC and COPY_DST; writing to it changes the tensor. `E_UNSUPPORTED` on other devices than WebGPU.
   */
  async gpuBuffer(options: { signal?: AbortSignal } = {}): Promise<GpuBufferPart> {
    const { host, id } = bind(this);
    await loadPart(onGpu("gpuBuffer", host).engine, "share");
    const [buffer, offset, size, dtype] = await onDevice(host, () => host.raw.gpuBuffer(id, options.signal) as Promise<any>, options.signal);
    return { buffer, offset, size, dtype };
  }

  /** The value of a tensor with one element. */
  async item(): Promise<number> {
    if (this.size !== 1) throw new ValueError("E_VALUE", `shape [${this.shape.join(", ")}] has not exactly one element`);
    return Number((await this.data<DType>())[0]);
  }

  /** The elements as nested arrays; a scalar as a number. */
  async tolist(): Promise<Nested> {
    const { shape } = this;
    return nest(await this.data<DType>(), shape);
  }

  toString(): string {
    return this.#disposed ? "Tensor(disposed)" : `Tensor(${this.dtype}, [${this.shape.join(", ")}])`;
  }

  /** What `console.log` shows in Node: also the device, and the first elements if they are on the host. Computes nothing. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    if (this.#disposed) return String(this);
    const { bytes } = this.#source ?? {};
    const seen = bytes ? decode(bytes.slice(0, SHOWN * bytesOf(this.dtype)), this.dtype) : this.#seen;
    const values = seen ? `: ${[...(seen as Float32Array)].join(", ")}${this.size > seen.length ? ", .." : ""}` : "";
    return `${String(this).slice(0, -1)}, ${this.device?.kind ?? "host"}${values})`;
  }

  /** Reads the elements and prints them to the console, abbreviating long axes. */
  async print(): Promise<this> {
    const { formatElements } = await loadChunk("print");
    console.log(formatElements(await this.data<DType>(), this.shape, `${String(this)} on ${this.device?.kind ?? "host"}`));
    return this;
  }

  // ---- creation

  /**
   * Reads an npy file, or else a file's raw bytes as `dtype` (default u8). The source is a URL, in Node also a path, a Blob or
   * bytes.
   */
  static async fromUrl(from: FileSource, options: FileOptions & FetchOptions = {}): Promise<Tensor> {
    return (await weightsModule()).readArray(from, options);
  }
  /**
   * A tensor on the bytes of a `GPUBuffer` of the page from byte `offset` on, on the `GPUDevice` passed to `init({ gpuDevice })`.
   * Nothing is copied: later runs read what the page writes there, and `assign` writes there, in whole 4-byte words. The page owns
   * the buffer and must keep it until the tensor and all that is pending on it are gone. It needs the usages STORAGE, COPY_SRC and
   * COPY_DST; the offset must be a multiple of the device's `minStorageBufferOffsetAlignment` (usually 256), and tensors that exist
   * at the same time must not overlap. `E_VALUE` names what is wrong; `E_UNSUPPORTED` if the device is not WebGPU.
   */
  static fromGPUBuffer(
    buffer: GpuBuffer,
    shape: readonly number[],
    dtype: DType = "f32",
    { device, offset = 0 }: { device?: Device; offset?: number } = {},
  ): Tensor {
    const host = onGpu("fromGPUBuffer", (device as Host | undefined) ?? defaultHost());
    return made(host, guard(() => host.raw.fromGpuBuffer(buffer, dtype, Uint32Array.from(checked(shape)), offset)));
  }
  static full(shape: readonly number[], value: number, options: TensorOptions = {}): Tensor {
    return create("full", [value, dtypeIndex(options.dtype ?? "f32"), ...checked(shape)], options);
  }
  static zeros(shape: readonly number[], options: TensorOptions = {}): Tensor {
    return Tensor.full(shape, 0, options);
  }
  static ones(shape: readonly number[], options: TensorOptions = {}): Tensor {
    return Tensor.full(shape, 1, options);
  }
  /** `start`, `start + step`, .. up to but excluding `stop`. */
  static arange(start: number, stop: number, step = 1, options: TensorOptions = {}): Tensor {
    const whole = [start, stop, step].every(Number.isInteger);
    return create("arange", [start, stop, step, dtypeIndex(options.dtype ?? (whole ? "i32" : "f32"))], options);
  }
  static linspace(start: number, stop: number, steps: number, options: TensorOptions = {}): Tensor {
    return create("linspace", [start, stop, steps], options);
  }
  static eye(n: number, m = n, options: TensorOptions = {}): Tensor {
    return create("eye", [n, m], options);
  }
  /** Uniform in `[0, 1)`. */
  static rand(shape: readonly number[], options: TensorOptions = {}): Tensor {
    return create("rand", checked(shape), options);
  }
  static randn(shape: readonly number[], options: TensorOptions = {}): Tensor {
    return create("randn", checked(shape), options);
  }
  static uniform(shape: readonly number[], low: number, high: number, options: TensorOptions = {}): Tensor {
    return create("uniform", [low, high, ...checked(shape)], options);
  }
  /** Integers in `[low, high)`, i32. */
  static randint(shape: readonly number[], low: number, high: number, options: TensorOptions = {}): Tensor {
    return create("randint", [low, high, ...checked(shape)], options);
  }
  static normal(shape: readonly number[], mean: number, std: number, options: TensorOptions = {}): Tensor {
    return create("normal", [mean, std, ...checked(shape)], options);
  }
  /** Normal distribution truncated to `[low, high]`. */
  static truncNormal(shape: readonly number[], mean: number, std: number, low: number, high: number, options: TensorOptions = {}): Tensor {
    return create("trunc_normal", [mean, std, low, high, ...checked(shape)], options);
  }
  /** True with probability `p`. */
  static bernoulli(shape: readonly number[], p: number, options: TensorOptions = {}): Tensor {
    return create("bernoulli", [p, ...checked(shape)], options);
  }
  static exponential(shape: readonly number[], rate = 1, options: TensorOptions = {}): Tensor {
    return create("exponential", [rate, ...checked(shape)], options);
  }
  /** A random permutation of `[0, n)`, i32. */
  static randperm(n: number, options: TensorOptions = {}): Tensor {
    return create("randperm", [n], options);
  }
  static kaimingUniform(shape: readonly number[], a = Math.sqrt(5), options: TensorOptions = {}): Tensor {
    return create("kaiming_uniform", [a, ...checked(shape)], options);
  }
  /** Seeds the random numbers of a device and what layers drop: the same seed gives the same numbers on every device. */
  static manualSeed(seed: number, device?: Device): void {
    ((device as Host | undefined) ?? defaultHost()).raw.seed(seedKeys(seed));
  }
  static cat(tensors: readonly Tensor[], axis = 0): Tensor {
    return op("cat", tensors, [axis]);
  }
  static stack(tensors: readonly Tensor[], axis = 0): Tensor {
    return op("stack", tensors, [axis]);
  }

  // ---- elementwise

  neg(): Tensor { return op("neg", [this]); }
  abs(): Tensor { return op("abs", [this]); }
  sign(): Tensor { return op("sign", [this]); }
  floor(): Tensor { return op("floor", [this]); }
  ceil(): Tensor { return op("ceil", [this]); }
  round(): Tensor { return op("round", [this]); }
  trunc(): Tensor { return op("trunc", [this]); }
  square(): Tensor { return op("square", [this]); }
  sqrt(): Tensor { return op("sqrt", [this]); }
  rsqrt(): Tensor { return op("rsqrt", [this]); }
  reciprocal(): Tensor { return op("reciprocal", [this]); }
  exp(): Tensor { return op("exp", [this]); }
  exp2(): Tensor { return op("exp2", [this]); }
  log(): Tensor { return op("log", [this]); }
  log2(): Tensor { return op("log2", [this]); }
  sin(): Tensor { return op("sin", [this]); }
  cos(): Tensor { return op("cos", [this]); }
  tan(): Tensor { return op("tan", [this]); }
  tanh(): Tensor { return op("tanh", [this]); }
  erf(): Tensor { return op("erf", [this]); }
  relu(): Tensor { return op("relu", [this]); }
  relu6(): Tensor { return op("relu6", [this]); }
  leakyRelu(slope = 0.01): Tensor { return op("leaky_relu", [this], [slope]); }
  elu(alpha = 1): Tensor { return op("elu", [this], [alpha]); }
  softplus(beta = 1): Tensor { return op("softplus", [this], [beta]); }
  sigmoid(): Tensor { return op("sigmoid", [this]); }
  silu(): Tensor { return op("silu", [this]); }
  gelu(): Tensor { return op("gelu", [this]); }
  /** GELU by its tanh approximation. */
  geluTanh(): Tensor { return op("gelu_tanh", [this]); }
  mish(): Tensor { return op("mish", [this]); }
  hardSwish(): Tensor { return op("hard_swish", [this]); }
  logicalNot(): Tensor { return op("logical_not", [this]); }
  isNaN(): Tensor { return op("isnan", [this]); }
  isInf(): Tensor { return op("isinf", [this]); }
  clamp(min: number, max: number): Tensor { return op("clamp", [this], [min, max]); }

  add(other: Operand): Tensor { return binary("add", this, other); }
  sub(other: Operand): Tensor { return binary("sub", this, other); }
  mul(other: Operand): Tensor { return binary("mul", this, other); }
  div(other: Operand): Tensor { return binary("div", this, other); }
  mod(other: Operand): Tensor { return binary("mod", this, other); }
  floorDiv(other: Operand): Tensor { return binary("floor_div", this, other); }
  pow(other: Operand): Tensor { return binary("pow", this, other); }
  maximum(other: Operand): Tensor { return binary("maximum", this, other); }
  minimum(other: Operand): Tensor { return binary("minimum", this, other); }
  lt(other: Operand): Tensor { return binary("lt", this, other); }
  le(other: Operand): Tensor { return binary("le", this, other); }
  gt(other: Operand): Tensor { return binary("gt", this, other); }
  ge(other: Operand): Tensor { return binary("ge", this, other); }
  eq(other: Operand): Tensor { return binary("eq", this, other); }
  ne(other: Operand): Tensor { return binary("ne", this, other); }
  logicalAnd(other: Operand): Tensor { return binary("logical_and", this, other); }
  logicalOr(other: Operand): Tensor { return binary("logical_or", this, other); }
  logicalXor(other: Operand): Tensor { return binary("logical_xor", this, other); }
  /** `yes` where this tensor is true, `no` elsewhere. */
  where(yes: Operand, no: Operand): Tensor {
    const dtype = [yes, no].find((each) => each instanceof Tensor)?.dtype ?? "f32";
    const device = bind(this).host;
    const lift = (x: Operand): Tensor => (x instanceof Tensor ? x : Tensor.full([], x, { dtype, device }));
    return op("where", [this, lift(yes), lift(no)]);
  }

  // ---- shape

  cast(dtype: DType): Tensor { return op("cast", [this], [dtypeIndex(dtype)]); }
  bitcast(dtype: DType): Tensor { return op("bitcast", [this], [dtypeIndex(dtype)]); }
  /** One size may be -1; it is inferred. */
  reshape(shape: readonly number[]): Tensor { return op("reshape", [this], shape); }
  permute(axes: readonly number[]): Tensor { return op("permute", [this], axes); }
  transpose(a = -2, b = -1): Tensor { return op("transpose", [this], [a, b]); }
  flatten(start = 0, end = -1): Tensor { return op("flatten", [this], [start, end]); }
  squeeze(axis: number): Tensor { return op("squeeze", [this], [axis]); }
  unsqueeze(axis: number): Tensor { return op("unsqueeze", [this], [axis]); }
  expand(shape: readonly number[]): Tensor { return op("expand", [this], checked(shape)); }
  flip(axes: Axes): Tensor { return op("flip", [this], list(axes)); }
  repeat(counts: readonly number[]): Tensor { return op("repeat", [this], checked(counts)); }
  roll(shift: number, axis: number): Tensor { return op("roll", [this], [shift, axis]); }
  narrow(axis: number, start: number, length: number): Tensor { return op("narrow", [this], [axis, start, length]); }
  /** The slice at one index of an axis, without that axis. A negative index counts from the end. */
  select(axis: number, index: number): Tensor {
    const n = this.shape.at(axis) ?? 0;
    const is = Number.isInteger(index) && index >= -n && index < n;
    if (!is) throw new ValueError("E_VALUE", `select: index ${index} of axis ${axis} of [${this.shape.join(", ")}]`);
    const row = this.narrow(axis, index < 0 ? index + n : index, 1);
    const out = row.squeeze(axis);
    row.dispose();
    return out;
  }
  tril(diagonal = 0): Tensor { return op("tril", [this], [diagonal]); }
  triu(diagonal = 0): Tensor { return op("triu", [this], [diagonal]); }
  /** Slices the leading axes as in Python; negative indices count from the end. */
  slice(...ranges: readonly SliceRange[]): Tensor {
    const nums = ranges.flatMap(([start, end, step]) => [start ?? Number.NaN, end ?? Number.NaN, step ?? 1]);
    return op("slice", [this], nums);
  }
  /** Pads each axis by the given numbers of elements before and after. */
  pad(pairs: readonly (readonly [number, number])[], mode: (typeof PAD_MODES)[number] = "constant", value = 0): Tensor {
    const at = PAD_MODES.indexOf(mode);
    if (at < 0) throw new ValueError("E_VALUE", `pad: there is no mode \`${mode}\`; there are ${PAD_MODES.join(", ")}`);
    return op("pad", [this], [at, value, ...pairs.flat()]);
  }
  split(sizes: readonly number[], axis = 0): Tensor[] { return ops("split", [this], [...sizes, axis]); }
  gather(axis: number, index: Tensor): Tensor { return op("gather", [this, index], [axis]); }
  indexSelect(axis: number, index: Tensor): Tensor { return op("index_select", [this, index], [axis]); }
  /** Looks up rows of this table. */
  embedding(ids: Tensor): Tensor { return op("embedding", [this, ids]); }
  oneHot(classes: number): Tensor { return op("one_hot", [this], [classes]); }

  // ---- reductions

  sum(axes?: Axes, keep = false): Tensor { return reduce("sum", this, axes, keep); }
  prod(axes?: Axes, keep = false): Tensor { return reduce("prod", this, axes, keep); }
  max(axes?: Axes, keep = false): Tensor { return reduce("max", this, axes, keep); }
  min(axes?: Axes, keep = false): Tensor { return reduce("min", this, axes, keep); }
  mean(axes?: Axes, keep = false): Tensor { return reduce("mean", this, axes, keep); }
  any(axes?: Axes, keep = false): Tensor { return reduce("any", this, axes, keep); }
  all(axes?: Axes, keep = false): Tensor { return reduce("all", this, axes, keep); }
  logsumexp(axes?: Axes, keep = false): Tensor { return reduce("logsumexp", this, axes, keep); }
  var(axes?: Axes, keep = false, correction = 1): Tensor { return op("var", [this], [correction, flag(keep), ...spread(this, axes)]); }
  std(axes?: Axes, keep = false, correction = 1): Tensor { return op("std", [this], [correction, flag(keep), ...spread(this, axes)]); }
  softmax(axis = -1): Tensor { return op("softmax", [this], [axis]); }
  logSoftmax(axis = -1): Tensor { return op("log_softmax", [this], [axis]); }
  argmax(axis = -1, keep = false): Tensor { return op("argmax", [this], [axis, flag(keep)]); }
  argmin(axis = -1, keep = false): Tensor { return op("argmin", [this], [axis, flag(keep)]); }
  cumsum(axis = 0): Tensor { return op("cumsum", [this], [axis]); }
  /** Sorted values and their original indices. */
  sort(axis = -1, descending = false): [values: Tensor, indices: Tensor] {
    return ops("sort", [this], [axis, flag(descending)]) as [Tensor, Tensor];
  }
  topk(k: number, axis = -1, largest = true): [values: Tensor, indices: Tensor] {
    return ops("topk", [this], [k, axis, flag(largest)]) as [Tensor, Tensor];
  }

  // ---- random choices

  /** Samples `n` category indices by the weights along the last axis: `[.., k]` to `[.., n]`, i32. */
  multinomial(n: number, replacement = false): Tensor { return op("multinomial", [this], [n, flag(replacement)]); }
  /** Samples a category for each row of logits: `[.., k]` to `[..]`, i32. */
  categorical(): Tensor { return op("categorical", [this]); }
  /** Samples booleans; each element is the probability of true. */
  bernoulli(): Tensor { return op("bernoulli_of", [this]); }
  /** Samples Poisson distributions whose rates are the elements. */
  poisson(): Tensor { return op("poisson_of", [this]); }
  /** Samples gamma distributions whose concentrations are the elements. */
  gamma(): Tensor { return op("gamma_of", [this]); }
  /** Samples a token for each row of logits `[.., vocabulary]`, i32. */
  sample(options: SampleOptions = {}): Tensor {
    const { temperature = 1, topK = 0, topP = 1, minP = 0, repetitionPenalty = 1, seen, key } = options;
    const given = [seen, key].filter((t) => t !== undefined);
    return op("sample", [this, ...given], [temperature, topK, topP, minP, repetitionPenalty, flag(!!seen), flag(!!key)]);
  }

  // ---- networks

  matmul(other: Tensor): Tensor { return op("matmul", [this, other]); }
  /** `this @ weight.T + bias`; the weight is `[out, in]`. */
  linear(weight: Tensor, bias?: Tensor | null): Tensor { return op("linear", given(this, weight, bias)); }
  /** Convolution over any number of spatial axes: `[batch, in, ..]` with a weight `[out, in / groups, ..]`. */
  conv(weight: Tensor, bias?: Tensor | null, options: ConvOptions = {}): Tensor {
    return op("conv", given(this, weight, bias), convolution(weight.rank - 2, options));
  }
  convTranspose(weight: Tensor, bias?: Tensor | null, options: ConvOptions & { outputPadding?: number | readonly number[] } = {}): Tensor {
    const rank = weight.rank - 2;
    return op("conv_transpose", given(this, weight, bias), [...convolution(rank, options), ...each(options.outputPadding ?? 0, rank)]);
  }
  maxPool(kernel: readonly number[], options: PoolOptions = {}): Tensor { return pool("max_pool", this, kernel, options); }
  avgPool(kernel: readonly number[], options: PoolOptions = {}): Tensor { return pool("avg_pool", this, kernel, options); }
  /** Normalises over the last `dims` axes. */
  layerNorm(dims = 1, weight?: Tensor | null, bias?: Tensor | null, eps = 1e-5): Tensor { return op("layer_norm", given(this, weight, bias), [dims, eps]); }
  rmsNorm(dims = 1, weight?: Tensor | null, eps = 1e-6): Tensor { return op("rms_norm", given(this, weight), [dims, eps]); }
  groupNorm(groups: number, weight?: Tensor | null, bias?: Tensor | null, eps = 1e-5): Tensor {
    return op("group_norm", given(this, weight, bias), [groups, eps]);
  }
  instanceNorm(weight?: Tensor | null, bias?: Tensor | null, eps = 1e-5): Tensor { return op("instance_norm", given(this, weight, bias), [eps]); }
  /** Scaled dot-product attention with this as the queries. */
  attention(keys: Tensor, values: Tensor, options: { causal?: boolean; mask?: Tensor } = {}): Tensor {
    const [y, weights] = this.attentionWeighted(keys, values, options);
    weights.dispose();
    return y;
  }
  /** Like `attention`, and also gives the attention weights `[.., queries, keys]`. */
  attentionWeighted(keys: Tensor, values: Tensor, options: { causal?: boolean; mask?: Tensor } = {}): [Tensor, Tensor] {
    return ops("attention", given(this, keys, values, options.mask), [flag(options.causal ?? false)]) as [Tensor, Tensor];
  }
  /** Resizes the last axes to these sizes. */
  interpolate(sizes: readonly number[], options: { mode?: "nearest" | "linear"; alignCorners?: boolean } = {}): Tensor {
    return op("interpolate", [this], [flag(options.mode === "linear"), flag(options.alignCorners ?? false), ...checked(sizes)]);
  }
  /** Sets elements to 0 with probability `p`. A key (two u32) determines the choice, and one plan serves all keys. */
  dropout(p = 0.5, key?: Tensor): Tensor { return op("dropout", given(this, key), [p]); }
  /** The mean cross-entropy over the batch; `target` holds class indices. */
  crossEntropy(target: Tensor, smoothing = 0): Tensor { return op("cross_entropy", [this, target], [smoothing]); }
  mseLoss(target: Tensor): Tensor { return op("mse_loss", [this, target]); }
  l1Loss(target: Tensor): Tensor { return op("l1_loss", [this, target]); }
  bceWithLogits(target: Tensor): Tensor { return op("bce_with_logits", [this, target]); }

  // ---- storage and gradients

  /**
   * Runs a kernel written in WGSL, lazily like any op; gives its outputs by name. Devices without WGSL compute its `fallback`, a
   * function over tensors (`E_UNSUPPORTED` if there is none), which is also differentiated for gradients.
   */
  static customKernel<I extends Record<string, Tensor>, O extends string>(kernel: CustomKernel<I, O>): Record<O, Tensor> {
    return customKernel(kernel);
  }
  /** The same values, but gradients do not flow through. */
  detach(): Tensor { return op("detach", [this]); }
  /**
   * This value with a custom gradient: `backward` is called immediately with a placeholder for the gradient of this value and
   * returns those of `inputs`, in order and shape. No gradient flows to other tensors that the value depends on.
   */
  customGrad(inputs: readonly Tensor[], backward: (gradient: Tensor) => readonly Tensor[]): Tensor {
    const place = op("gradient_place", [this]);
    const grads = backward(place);
    if (grads.length !== inputs.length) {
      throw new ValueError("E_VALUE", `customGrad: ${grads.length} gradients for ${inputs.length} inputs`);
    }
    return op("with_gradients", [this, place, ...inputs, ...grads]);
  }
  /** The same values in contiguous memory of their own. */
  contiguous(): Tensor { return op("contiguous", [this]); }
  /** Another handle to the same value. */
  clone(): Tensor { return op("clone", [this]); }
  /** Overwrites this tensor's storage with `value` when next computed. */
  assign(value: Tensor): this {
    op("assign", [this, value]).dispose();
    this.#seen = undefined;
    return this;
  }
  /**
   * Overwrites rows of this tensor's storage when next computed: those along `axis` that `index`, a vector of integers, names, with
   * `value` (broadcast and cast to fit; its axis is as long as the index). Other rows stay; indices out of range are ignored.
   */
  assignAt(axis: number, index: Tensor, value: Tensor): this {
    op("assign_at", [this, index, value], [axis]).dispose();
    this.#seen = undefined;
    return this;
  }
  /** Adds d(this)/d(t) to `grad` of each tensor `t` with `requiresGrad` on which this scalar depends. */
  backward(): void { backward(this); }
}

// ---- helpers

class Made {
  constructor(
    readonly handle: Handle | undefined,
    readonly away?: Away,
  ) {}
}

/** The dtype for plain arrays: integers become f32, which is nearly always what networks need. */
function guess(values: readonly (number | bigint | boolean)[]): DType {
  if (values.length > 0 && values.every((v) => typeof v === "boolean")) return "bool";
  return values.length > 0 && values.every((v) => typeof v === "bigint") ? "i64" : "f32";
}

const flag = (on: boolean): number => (on ? 1 : 0);
const list = (axes: Axes): readonly number[] => (typeof axes === "number" ? [axes] : axes);

function checked(shape: readonly number[]): readonly number[] {
  sizeOf(shape);
  return shape;
}

function each(value: number | readonly number[], rank: number): readonly number[] {
  if (typeof value === "number") return new Array<number>(rank).fill(value);
  if (value.length !== rank) throw new ValueError("E_VALUE", `${value.length} numbers where ${rank} axes need one each`);
  return value;
}

/** The operands that are present; only trailing ones may be missing. */
function given(...operands: (Tensor | null | undefined)[]): Tensor[] {
  const found = operands.filter((t) => t !== null && t !== undefined);
  if (operands.slice(0, found.length).some((t) => !t)) {
    throw new ValueError("E_VALUE", "an operand is given where the one before it is missing");
  }
  return found;
}

function convolution(rank: number, { stride = 1, padding = 0, dilation = 1, groups = 1 }: ConvOptions): number[] {
  if (rank < 1) throw new ValueError("E_VALUE", "conv: the weight needs at least three axes");
  return [rank, ...each(stride, rank), ...each(padding, rank), ...each(dilation, rank), groups];
}

function pool(name: string, t: Tensor, kernel: readonly number[], { stride = kernel, padding = 0 }: PoolOptions): Tensor {
  const rank = kernel.length;
  return op(name, [t], [rank, ...kernel, ...each(stride, rank), ...each(padding, rank)]);
}

function spread(t: Tensor, axes: Axes | undefined): readonly number[] {
  return axes === undefined ? t.shape.map((_, axis) => axis) : list(axes);
}

function reduce(name: string, t: Tensor, axes: Axes | undefined, keep: boolean): Tensor {
  return op(name, [t], [flag(keep), ...spread(t, axes)]);
}

function binary(name: string, a: Tensor, b: Operand): Tensor {
  return typeof b === "number" ? op(name, [a], [b]) : op(name, [a, b]);
}

function create(name: string, nums: readonly number[], options: TensorOptions): Tensor {
  const host = (options.device as Host | undefined) ?? defaultHost();
  let t = made(host, guard(() => host.raw.op(name, [], nums as number[]))[0] as number);
  const exchange = (by: Tensor): void => {
    t.dispose();
    t = by;
  };
  if (options.dtype && t.dtype !== options.dtype) exchange(t.cast(options.dtype));
  if (options.requiresGrad) {
    // storage of its own, so that the value is computed once and an optimiser can overwrite it
    exchange(op("to_storage", [t]));
    t.requiresGrad = true;
  }
  return t;
}

/** Wraps a handle of the wasm module as a tensor. */
export function made(host: Host, id: number): Tensor {
  return new Tensor(new Made({ host, id }) as unknown as Nested);
}

/** The handle of a tensor, which is uploaded first if it is on no device. */
export function bind(t: Tensor, on?: Host): Handle {
  if (!(t instanceof Tensor)) throw notTensor(t);
  return Tensor.bind(t, on);
}

/** Wraps a value of another thread as a tensor. */
export function awayTensor(away: Away): Tensor {
  return new Tensor(new Made(undefined, away) as unknown as Nested);
}

/** The bytes of a tensor that is on no device yet. */
export function source(t: Tensor): Source | undefined {
  return Tensor.source(t);
}

/** The device of an op's operands: that of the first operand which is on one. */
export function hostOf(operands: readonly Tensor[]): Host {
  for (const t of operands) {
    if (!(t instanceof Tensor)) throw notTensor(t);
    if (t.device) return t.device as Host;
  }
  return defaultHost();
}

/** The ids of operands on a device. */
function idsOn(host: Host, name: string, operands: readonly Tensor[]): number[] {
  return operands.map((t) => {
    const handle = bind(t, host);
    if (handle.host !== host) throw new DeviceError("E_DEVICE", `${name}: the operands are on ${host.kind} and ${handle.host.kind}`);
    return handle.id;
  });
}

function madeAll(host: Host, ids: Iterable<number>): Tensor[] {
  const tensors = [];
  // a plain loop: this runs for every op, and Array.from costs a microsecond
  for (const id of ids) tensors.push(made(host, id));
  return tensors;
}

/** Runs an op with several results. */
export function ops(name: string, operands: readonly Tensor[], nums: readonly number[] = []): Tensor[] {
  if (typeof nums === "number") throw notArray(name);
  const host = hostOf(operands);
  const ids = idsOn(host, name, operands);
  return madeAll(host, guard(() => host.raw.op(name, ids, nums as number[])));
}

/** Adds a graph that another wasm module builds, given the state of the random stream. */
export function graph(name: string, operands: readonly Tensor[], build: (seed: number, draws: number) => Uint8Array): Tensor[] {
  const host = hostOf(operands);
  const ids = idsOn(host, name, operands);
  const [seed, draws] = host.raw.random() as unknown as [number, number];
  return madeAll(host, guard(() => host.raw.graph(build(seed, draws), ids as unknown as Uint32Array)));
}

/** Runs an op with one result. */
export function op(name: string, operands: readonly Tensor[], nums?: readonly number[]): Tensor {
  return ops(name, operands, nums)[0] as Tensor;
}

/** Computes several tensors at once, as `Tensor.realize` does one. */
export async function realize(tensors: readonly Tensor[], options: { signal?: AbortSignal } = {}): Promise<void> {
  if (tensors.length === 0) return;
  const elsewhere = tensors.filter((t) => t instanceof Tensor && Tensor.away(t));
  if (elsewhere.length > 0) await Promise.all(elsewhere.map((t) => Tensor.landed(t, options.signal)));
  const host = hostOf(tensors);
  const ids = tensors.map((t) => bind(t, host).id);
  await onDevice(host, () => host.raw.realize(ids, options.signal), options.signal);
}

/**
 * Runs `body` and disposes all tensors that it creates, except those it returns (a tensor, or an array or object of them) and
 * gradients. `body` must not be asynchronous.
 */
export function tidy<T>(body: () => T): T {
  const scope = new Set<Tensor>();
  scopes.push(scope);
  let kept: Iterable<unknown> = [];
  try {
    const result = body();
    if (result instanceof Promise) {
      // the promise is discarded, so its failure must not count as unhandled
      result.catch(() => {});
      throw new ValueError("E_VALUE", "tidy: the function must not be asynchronous");
    }
    kept = result instanceof Tensor ? [result] : result && typeof result === "object" ? Object.values(result) : [];
    return result;
  } finally {
    scopes.pop();
    const stay = new Set(kept);
    const outer = scopes.at(-1);
    for (const t of scope) {
      if (!stay.has(t)) t.dispose();
      else outer?.add(t);
    }
  }
}

/** Excludes a tensor from all running `tidy` scopes, so that it is not disposed. */
export function keep(t: Tensor): Tensor {
  for (const scope of scopes) scope.delete(t);
  return t;
}
