// The base class of layers and the basic layers. A layer holds parameters and calls tensor ops in `forward`.
import { ShapeError, ValueError, expectLayers } from "./errors.js";
import { nextKey } from "./keys.js";
import { type ConvOptions, Tensor, type TensorOptions, realize } from "./tensor.js";

/** Parameters by name. */
export type StateDict = Record<string, Tensor>;

/** How a layer's parameters are created. */
export type LayerOptions = Pick<TensorOptions, "device"> & { bias?: boolean };

/**
 * A layer or network. Tensors and modules in the fields of a subclass are its parameters and parts, named after the
 * fields.
 */
export abstract class Module {
  /** Whether layers such as Dropout behave as in training. */
  training = true;

  abstract forward(x: Tensor, ...more: never[]): Tensor;

  *#children(): Generator<[string, Module | Tensor]> {
    for (const [name, value] of Object.entries(this)) {
      if (value instanceof Module || value instanceof Tensor) yield [name, value];
      else if (Array.isArray(value)) {
        for (const [at, each] of value.entries()) {
          if (each instanceof Module || each instanceof Tensor) yield [`${name}.${at}`, each];
        }
      }
    }
  }

  /** All tensors of this module by dotted name, trained or not. */
  stateDict(): StateDict {
    const found: StateDict = {};
    for (const [name, value] of this.#children()) {
      if (value instanceof Tensor) found[name] = value;
      else for (const [inner, t] of Object.entries(value.stateDict())) found[`${name}.${inner}`] = t;
    }
    return found;
  }

  /** The trained tensors: those with `requiresGrad`. */
  parameters(): Tensor[] {
    return [...new Set(Object.values(this.stateDict()))].filter((t) => t.requiresGrad);
  }

  /** Overwrites the tensors with those of the same names. Names and shapes must match exactly. */
  async loadStateDict(state: StateDict): Promise<void> {
    const own = this.stateDict();
    const missing = Object.keys(own).filter((name) => !(name in state));
    const unknown = Object.keys(state).filter((name) => !(name in own));
    if (missing.length > 0 || unknown.length > 0) {
      throw new ValueError("E_VALUE", `loadStateDict: missing [${missing.join(", ")}], unknown [${unknown.join(", ")}]`);
    }
    for (const [name, t] of Object.entries(own)) {
      const value = state[name] as Tensor;
      if (value.shape.join() !== t.shape.join()) {
        throw new ShapeError("E_SHAPE", `loadStateDict: ${name} has shape [${t.shape.join(", ")}], not [${value.shape.join(", ")}]`);
      }
    }
    for (const [name, t] of Object.entries(own)) t.assign(state[name] as Tensor);
    await realize(Object.values(own));
  }

  /** Sets training or inference mode, here and in all parts. */
  train(on = true): this {
    this.training = on;
    for (const [, value] of this.#children()) if (value instanceof Module) value.train(on);
    return this;
  }

  eval(): this {
    return this.train(false);
  }

  /** Computes the initial parameters now rather than in the first step. */
  async realize(): Promise<this> {
    await realize(Object.values(this.stateDict()));
    return this;
  }

  dispose(): void {
    for (const t of Object.values(this.stateDict())) t.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

function parameter(shape: readonly number[], bound: number, { device }: LayerOptions): Tensor {
  void expectLayers();
  return Tensor.uniform(shape, -bound, bound, { ...(device && { device }), requiresGrad: true });
}

function constant(shape: readonly number[], value: number, { device }: LayerOptions): Tensor {
  return Tensor.full(shape, value, { ...(device && { device }), requiresGrad: true });
}

/** `x @ weight.T + bias`. */
export class Linear extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor | null;

  constructor(inputs: number, outputs: number, options: LayerOptions = {}) {
    super();
    const bound = 1 / Math.sqrt(inputs);
    this.weight = parameter([outputs, inputs], bound, options);
    this.bias = options.bias === false ? null : parameter([outputs], bound, options);
  }

  forward(x: Tensor): Tensor {
    return x.linear(this.weight, this.bias);
  }
}

/** A 2-D convolution of `[batch, channels, height, width]`. */
export class Conv2d extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor | null;
  readonly options: ConvOptions;

  constructor(inputs: number, outputs: number, kernel: number | readonly [number, number], options: ConvOptions & LayerOptions = {}) {
    super();
    const [h, w] = typeof kernel === "number" ? [kernel, kernel] : kernel;
    const { bias, device: _, ...conv } = options;
    const perGroup = inputs / (conv.groups ?? 1);
    const bound = 1 / Math.sqrt(perGroup * h * w);
    this.weight = parameter([outputs, perGroup, h, w], bound, options);
    this.bias = bias === false ? null : parameter([outputs], bound, options);
    this.options = conv;
  }

  forward(x: Tensor): Tensor {
    return x.conv(this.weight, this.bias, this.options);
  }
}

/** Normalises the last axes to zero mean and unit variance, then applies a learned scale and shift. */
export class LayerNorm extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor;
  readonly eps: number;

  constructor(shape: number | readonly number[], options: LayerOptions & { eps?: number } = {}) {
    super();
    const dims = typeof shape === "number" ? [shape] : shape;
    this.weight = constant(dims, 1, options);
    this.bias = constant(dims, 0, options);
    this.eps = options.eps ?? 1e-5;
  }

  forward(x: Tensor): Tensor {
    return x.layerNorm(this.weight.rank, this.weight, this.bias, this.eps);
  }
}

/** A lookup table of vectors; `forward` takes integer indices. */
export class Embedding extends Module {
  readonly weight: Tensor;

  constructor(count: number, size: number, options: LayerOptions = {}) {
    super();
    this.weight = Tensor.randn([count, size], { ...(options.device && { device: options.device }), requiresGrad: true });
  }

  forward(ids: Tensor): Tensor {
    return this.weight.embedding(ids);
  }
}

/** Sets elements to zero with probability `p` in training; the identity otherwise. */
export class Dropout extends Module {
  readonly p: number;

  constructor(p = 0.5) {
    super();
    this.p = p;
  }

  forward(x: Tensor): Tensor {
    return this.training && this.p !== 0 ? x.dropout(this.p, new Tensor(nextKey())) : x;
  }
}

/** What `Sequential` accepts: a module, or a function such as `(x) => x.relu()`. */
export type Layer = Module | ((x: Tensor) => Tensor);

/** Applies layers in sequence. */
export class Sequential extends Module {
  readonly layers: readonly Layer[];

  constructor(...layers: readonly Layer[]) {
    super();
    this.layers = layers;
  }

  forward(x: Tensor): Tensor {
    return this.layers.reduce((value, layer) => (layer instanceof Module ? layer.forward(value) : layer(value)), x);
  }

  /** Names begin with the layer's index: `0.weight`. */
  override stateDict(): StateDict {
    const found: StateDict = {};
    for (const [at, layer] of this.layers.entries()) {
      if (!(layer instanceof Module)) continue;
      for (const [name, t] of Object.entries(layer.stateDict())) found[`${at}.${name}`] = t;
    }
    return found;
  }
}

