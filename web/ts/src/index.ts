// The npm package `gradloom`: a typed, thin face over the wasm module. No tensor logic here.
import * as nn from "./nn.js";
import * as optim from "./optim.js";

export { type Device, type DeviceKind, type DeviceReport, type InitOptions, type Memory } from "./device.js";
export { devices, init, memory } from "./device.js";
export type { DType, DataOf, Nested, TypedArray } from "./dtype.js";
export {
  DTypeError, DeviceError, FetchError, FormatError, GradloomError, InputError, InternalError, ModelError, OutOfMemoryError,
  ShapeError, StateError, UnsupportedError, ValueError,
} from "./errors.js";
export { type LoadOptions, type Model, type ModelInput, type Port, type RunOptions, load, loadWeights } from "./model.js";
export { probeWebGpu, version } from "./pkg/gradloom_web.js";
export type { FetchOptions, FileSource, OnProgress, Progress } from "./progress.js";
export { type Axes, type ConvOptions, type Operand, type PoolOptions, type SliceRange, type TensorOptions } from "./tensor.js";
export { Tensor, grad, realize, tidy } from "./tensor.js";
export { nn, optim };
