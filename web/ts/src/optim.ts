// Optimisers. A step builds all updates lazily and computes them together with the gradients and the loss in one run.
// Learning rates and similar scalars are launch variables, so that one plan serves every step.
import type { Host } from "./device.js";
import { ValueError, guard } from "./errors.js";
import { learningRateOf } from "./options.js";
import { type Operand, Tensor, bind, companions, made, realize, tidy } from "./tensor.js";
import { TimeSlices } from "./event-loop.js";

let count = 0;

/** The base class of optimisers. */
export abstract class Optimizer {
  readonly parameters: readonly Tensor[];
  /** The learning rate; it may be changed between steps. */
  learningRate: number;
  readonly #name = `opt${(count += 1)}`;
  readonly #variables = new Map<string, Tensor>();
  readonly #host: Host;
  protected readonly state: Tensor[][] = [];
  /** Names of a parameter's state tensors, in the order of `stateShapes`. */
  protected readonly stateNames: readonly string[] = [];
  /** Number of steps done. */
  protected stepsDone = 0;
  /**
   * Time slices of the running `minimize`, between which the event loop runs. A direct call of `step` has none: the
   * caller may free gradients right after the call, so the graph must be taken before it yields.
   */
  #slices: TimeSlices | undefined;

  constructor(parameters: Iterable<Tensor>, learningRate: number) {
    if (typeof parameters?.[Symbol.iterator] !== "function") throw new ValueError("E_VALUE", "an optimiser needs parameters", { hint: "net.parameters()" });
    if (!Number.isFinite(learningRate)) throw new ValueError("E_VALUE", `the learning rate is ${learningRate}`, { hint: "{ learningRate: 0.01 }" });
    this.parameters = [...parameters];
    if (this.parameters.length === 0) throw new ValueError("E_VALUE", "an optimiser needs parameters");
    const frozen = this.parameters.find((t) => !t.requiresGrad);
    if (frozen) throw new ValueError("E_VALUE", `${frozen} does not require a gradient`);
    this.#host = bind(this.parameters[0] as Tensor).host;
    this.learningRate = learningRate;
  }

  /** The updated values of a parameter and of its state, in the order of `state`. */
  protected abstract update(p: Tensor, gradient: Tensor, state: readonly Tensor[]): [Tensor, ...Tensor[]];

  /** The shapes of a parameter's state tensors. */
  protected abstract stateShapes(p: Tensor): readonly (readonly number[])[];

  /** The values of this step's launch variables, by name. */
  protected abstract rates(): Record<string, number>;

  /** The launch variable of a name in `rates`, as a scalar tensor. */
  protected rate(name: string): Tensor {
    return this.#variables.get(name) as Tensor;
  }

  #setRates(): void {
    for (const [name, value] of Object.entries(this.rates())) {
      const variableName = `${this.#name}_${name}`;
      if (!this.#variables.has(name)) {
        // created outside of the caller's `tidy`, since it lives as long as the optimiser
        this.#variables.set(name, made(this.#host, guard(() => this.#host.raw.variable(variableName, true, 0, 0))));
      }
      this.#host.raw.setVar(variableName, value);
    }
  }

  #stateOf(at: number): Tensor[] {
    const { dtype } = this.parameters[at] as Tensor;
    const device = this.#host;
    return (this.state[at] ??= this.stateShapes(this.parameters[at] as Tensor).map((shape) => withOwnStorage(Tensor.zeros(shape, { dtype, device }))));
  }

  #namedState(): [string, Tensor][] {
    return this.parameters.flatMap((_, at) => this.#stateOf(at).map((t, i): [string, Tensor] => [`${at}.${this.stateNames[i] ?? i}`, t]));
  }

  /**
   * The optimiser's own state, for `saveWeights`: the state tensors prefixed by the index of their parameter, and
   * `step`, the number of steps done. All tensors except `step` are the live ones, which later steps overwrite.
   */
  stateDict(): Record<string, Tensor> {
    return { ...Object.fromEntries(this.#namedState()), step: new Tensor([this.stepsDone], [1], { device: this.#host }) };
  }

  /** Restores the state of an optimiser with the same parameters, as `stateDict` gave it. */
  async loadStateDict(tensors: Readonly<Record<string, Tensor>>): Promise<void> {
    const named = this.#namedState();
    const savedTensor = (name: string, shape: readonly number[]): Tensor => {
      const t = tensors[name];
      if (t && String(t.shape) === String(shape)) return t;
      throw new ValueError("E_VALUE", `loadStateDict: ${name} is ${t ? `[${t.shape.join(", ")}]` : "missing"}, where [${shape.join(", ")}] is wanted`);
    };
    const step = savedTensor("step", [1]);
    const pairs = named.map(([name, t]): [Tensor, Tensor] => [t, savedTensor(name, t.shape)]);
    for (const [t, value] of pairs) t.assign(value);
    await realize(named.map(([, t]) => t));
    this.stepsDone = await step.item();
  }

  /**
   * Applies the gradients. The losses that they came from are computed in the same run, so a later `await loss.item()`
   * costs nothing.
   */
  async step(options: { signal?: AbortSignal } = {}): Promise<void> {
    const slices = this.#slices;
    const withGradient = this.parameters.map((p, at) => ({ p, at })).filter(({ p }) => p.grad);
    if (withGradient.length === 0) throw new ValueError("E_VALUE", "step: no parameter has a gradient", { hint: "call loss.backward() first" });
    options.signal?.throwIfAborted();
    this.stepsDone += 1;
    this.#setRates();
    const wanted = new Set<Tensor>();
    for (const { at } of withGradient) this.#stateOf(at);
    tidy(() => {
      const updates = withGradient.map(({ p, at }) => {
        for (const t of companions(p.grad as Tensor)) wanted.add(t);
        return { p, state: this.state[at] as Tensor[], next: this.update(p, p.grad as Tensor, this.state[at] as Tensor[]) };
      });
      for (const { p, state, next: [value, ...rest] } of updates) {
        p.assign(value);
        wanted.add(p);
        state.forEach((t, i) => {
          t.assign(rest[i] as Tensor);
          wanted.add(t);
        });
      }
    });
    await slices?.yieldIfDue(options.signal);
    await realize([...wanted], options);
  }

  /**
   * Performs one step: computes the loss, its gradients and the updates in one run, and returns the value of the loss.
   * Clears gradients before and after, and frees intermediate tensors that `loss` creates; `loss` must not be
   * asynchronous. Yields to the event loop after the loss, the gradients and the updates where building them takes
   * long, as in the first step.
   */
  async minimize(loss: () => Tensor, options: { signal?: AbortSignal } = {}): Promise<number> {
    this.zeroGrad();
    const slices = new TimeSlices();
    const value = tidy(() => {
      const t = loss();
      bind(t);
      return t;
    });
    try {
      await slices.yieldIfDue(options.signal);
      tidy(() => value.backward());
      await slices.yieldIfDue(options.signal);
      this.#slices = slices;
      await this.step(options);
      return await value.item();
    } finally {
      this.#slices = undefined;
      value.dispose();
      this.zeroGrad();
    }
  }

  /** Disposes all gradients. */
  zeroGrad(): void {
    for (const p of this.parameters) {
      p.grad?.dispose();
      p.grad = null;
    }
  }

  dispose(): void {
    for (const t of [...this.state.flat(), ...this.#variables.values()]) t.dispose();
    this.state.length = 0;
    this.#variables.clear();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Gives a tensor's value storage of its own, which later steps overwrite. */
function withOwnStorage(t: Tensor): Tensor {
  const out = t.clone();
  t.dispose();
  const { host, id } = bind(out);
  const stored = made(host, guard(() => host.raw.op("to_storage", [id], []))[0] as number);
  out.dispose();
  return stored;
}

/** Stochastic gradient descent, with momentum (Nesterov's if asked) and L2 weight decay. */
export class SGD extends Optimizer {
  readonly momentum: number;
  readonly nesterov: boolean;
  readonly weightDecay: number;
  protected override readonly stateNames: readonly string[] = ["momentum_buffer"];

  constructor(parameters: Iterable<Tensor>, options: { learningRate: number; momentum?: number; nesterov?: boolean; weightDecay?: number }) {
    super(parameters, learningRateOf(options));
    this.momentum = options.momentum ?? 0;
    this.nesterov = options.nesterov ?? false;
    this.weightDecay = options.weightDecay ?? 0;
    if (this.nesterov && this.momentum <= 0) throw new ValueError("E_VALUE", "SGD: nesterov needs a momentum");
  }

  protected stateShapes(p: Tensor): readonly (readonly number[])[] {
    return this.momentum > 0 ? [p.shape] : [];
  }

  protected rates(): Record<string, number> {
    return { lr: this.learningRate };
  }

  protected update(p: Tensor, gradient: Tensor, [velocity]: readonly Tensor[]): [Tensor, ...Tensor[]] {
    const g = this.weightDecay ? gradient.add(p.mul(this.weightDecay)) : gradient;
    const stepBy = (update: Operand): Tensor => p.sub(this.rate("lr").mul(update));
    if (!velocity) return [stepBy(g)];
    const v = velocity.mul(this.momentum).add(g);
    return [stepBy(this.nesterov ? g.add(v.mul(this.momentum)) : v), v];
  }
}

/** Options of Adam. */
export interface AdamOptions {
  learningRate?: number;
  betas?: readonly [number, number];
  eps?: number;
  weightDecay?: number;
}

/** Adam. Weight decay is L2 regularisation, added to the gradient. */
export class Adam extends Optimizer {
  readonly betas: readonly [number, number];
  readonly eps: number;
  readonly weightDecay: number;
  protected readonly decoupled: boolean = false;
  protected override readonly stateNames: readonly string[] = ["exp_avg", "exp_avg_sq"];

  constructor(parameters: Iterable<Tensor>, options: AdamOptions = {}) {
    super(parameters, learningRateOf(options, 1e-3));
    this.betas = options.betas ?? [0.9, 0.999];
    this.eps = options.eps ?? 1e-8;
    this.weightDecay = options.weightDecay ?? 0;
  }

  protected stateShapes(p: Tensor): readonly (readonly number[])[] {
    return [p.shape, p.shape];
  }

  protected rates(): Record<string, number> {
    const [beta1, beta2] = this.betas;
    const second = 1 / Math.sqrt(1 - beta2 ** this.stepsDone);
    return { lr: this.learningRate, move: this.learningRate / (1 - beta1 ** this.stepsDone), second };
  }

  protected update(p: Tensor, gradient: Tensor, [m, v]: readonly Tensor[]): [Tensor, ...Tensor[]] {
    const [beta1, beta2] = this.betas;
    const decay = this.weightDecay;
    const g = decay && !this.decoupled ? gradient.add(p.mul(decay)) : gradient;
    const mean = (m as Tensor).mul(beta1).add(g.mul(1 - beta1));
    const meanSquare = (v as Tensor).mul(beta2).add(g.square().mul(1 - beta2));
    const update = mean.mul(this.rate("move")).div(meanSquare.sqrt().mul(this.rate("second")).add(this.eps));
    const decayed = decay && this.decoupled ? p.sub(p.mul(this.rate("lr").mul(decay))) : p;
    return [decayed.sub(update), mean, meanSquare];
  }
}

/** Adam with decoupled weight decay. */
export class AdamW extends Adam {
  protected override readonly decoupled = true;

  constructor(parameters: Iterable<Tensor>, options: AdamOptions = {}) {
    super(parameters, { weightDecay: 1e-2, ...options });
  }
}
