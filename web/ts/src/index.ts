// The main entry of the npm package `gradloom`: a typed, thin layer over the wasm module. No tensor logic here.
import "./page-chunks.js";
import * as nn from "./networks.js";
import * as optim from "./optim.js";
import { Tensor } from "./tensor.js";

export { type ChatMessage, type ChatOptions, ChatTemplate } from "./chat.js";
export type { CacheOptions, CacheState } from "./cache.js";
export type {
  Device, DeviceKind, DeviceLost, DeviceReport, GpuBuffer, GpuBufferPart, GpuDevice, InitOptions, Memory, Stats, Timing, WorkerOf,
} from "./device.js";
export { clearCache, devices, flushCache, init, memory, stats } from "./device.js";
export type { DType, DataOf, Nested, TypedArray } from "./dtype.js";
export {
  BudgetError, DTypeError, DeviceError, FetchError, FormatError, GradloomError, InputError, InternalError, ModelError, OutOfMemoryError,
  ShapeError, StateError, UnsupportedError, ValueError,
} from "./errors.js";
export type {
  Budget, Drift, Graph, GraphAttribute, GraphNode, GraphTensor, GraphValue, ImageInput, LoadOptions, Model, ModelInput, Port, RunOptions, Strings,
} from "./model.js";
export { load } from "./model.js";
export type { CustomKernel } from "./kernel.js";
export type { IrKernel, IrKernelOptions, IrParameter } from "./loops.js";
export { type SaveOptions, type WeightOptions, loadWeights, saveWeights } from "./files.js";
export { irKernel, torch } from "./lazy.js";
export { probeWebGpu, version } from "./module.js";
export type { FetchOptions, FileSource, OnProgress, Progress } from "./progress.js";
export type { Axes, ConvOptions, FileOptions, Operand, PoolOptions, SampleOptions, SliceRange, TensorOptions } from "./tensor.js";
export { Tensor, checkpoint, grad, realize, tidy } from "./tensor.js";
export type { Torch } from "./torch.js";
export type { TuneOptions, TunedKernel } from "./tune.js";
export {
  type BatchEncoding, type BatchOptions, type BatchWindows, type EncodeOptions, type Encoding, type OffsetEncoding, type WindowOptions, TextStream, Tokenizer,
} from "./tokenizer.js";
export { nn, optim };

// a custom formatter for browser consoles where these are enabled: tensors print as they do in Node
if (globalThis.document) {
  const text = (value: unknown): string => (value as Record<symbol, () => string>)[Symbol.for("nodejs.util.inspect.custom")]?.() ?? "";
  const header = (value: unknown): unknown => (value instanceof Tensor ? ["span", {}, text(value)] : null);
  ((globalThis as { devtoolsFormatters?: unknown[] }).devtoolsFormatters ??= []).push({ header, hasBody: () => false });
}
