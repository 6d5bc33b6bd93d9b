// Optimisers that update each parameter by one formula. Formulas and defaults are torch's, or the papers' where torch
// has no such optimiser. Values that depend only on the step number are computed here and passed as launch variables.
import { ValueError } from "../errors.js";
import { Optimizer } from "../optim.js";
import { learningRateOf } from "../options.js";
import type { Tensor } from "../tensor.js";
import { vectorNorm } from "./clip.js";

/** Options of all optimisers in this file. */
export interface RuleOptions {
  learningRate?: number;
  weightDecay?: number;
}

type Updated = [Tensor, ...Tensor[]];
type State = readonly Tensor[];

abstract class Rule extends Optimizer {
  readonly weightDecay: number;

  constructor(parameters: Iterable<Tensor>, options: RuleOptions, learningRate: number, weightDecay = 0) {
    super(parameters, learningRateOf(options, learningRate));
    this.weightDecay = options.weightDecay ?? weightDecay;
  }

  protected rates(): Record<string, number> {
    return { lr: this.learningRate, ...this.ratesAt(this.stepsDone) };
  }

  /** Additional launch variables of a step; steps count from 1. */
  protected ratesAt(_step: number): Record<string, number> {
    return {};
  }

  protected stateShapes(p: Tensor): readonly (readonly number[])[] {
    return [p.shape];
  }

  /** The gradient plus that of the L2 penalty. */
  protected penalised(p: Tensor, gradient: Tensor): Tensor {
    return this.weightDecay ? gradient.add(p.mul(this.weightDecay)) : gradient;
  }

  /** The parameter after decoupled weight decay. */
  protected decayed(p: Tensor): Tensor {
    return this.weightDecay ? p.sub(p.mul(this.rate("lr").mul(this.weightDecay))) : p;
  }

  protected scaled(step: Tensor): Tensor {
    return step.mul(this.rate("lr"));
  }
}

/** Updates an exponential moving average with a value. */
const movingAverage = (mean: Tensor, value: Tensor, beta: number): Tensor => mean.mul(beta).add(value.mul(1 - beta));

/** Root mean square propagation (Hinton), with torch's momentum and centring. Weight decay is L2. */
export class RMSprop extends Rule {
  readonly alpha: number;
  readonly eps: number;
  readonly momentum: number;
  readonly centered: boolean;

  constructor(
    parameters: Iterable<Tensor>,
    options: RuleOptions & { alpha?: number; eps?: number; momentum?: number; centered?: boolean } = {},
  ) {
    super(parameters, options, 1e-2);
    this.alpha = options.alpha ?? 0.99;
    this.eps = options.eps ?? 1e-8;
    this.momentum = options.momentum ?? 0;
    this.centered = options.centered ?? false;
  }

  protected override stateShapes({ shape }: Tensor): readonly (readonly number[])[] {
    return [shape, ...(this.centered ? [shape] : []), ...(this.momentum ? [shape] : [])];
  }

  protected update(p: Tensor, gradient: Tensor, state: State): Updated {
    const g = this.penalised(p, gradient);
    const next = [movingAverage(state[0] as Tensor, g.square(), this.alpha)];
    let variance = next[0] as Tensor;
    if (this.centered) {
      const mean = movingAverage(state[1] as Tensor, g, this.alpha);
      next.push(mean);
      variance = variance.sub(mean.square());
    }
    let step = g.div(variance.sqrt().add(this.eps));
    if (this.momentum) {
      step = (state.at(-1) as Tensor).mul(this.momentum).add(step);
      next.push(step);
    }
    return [p.sub(this.scaled(step)), ...next];
  }
}

/** Adagrad (Duchi and others), with a decaying learning rate. Weight decay is L2. */
export class Adagrad extends Rule {
  readonly lrDecay: number;
  readonly eps: number;

  constructor(parameters: Iterable<Tensor>, options: RuleOptions & { lrDecay?: number; eps?: number } = {}) {
    super(parameters, options, 1e-2);
    this.lrDecay = options.lrDecay ?? 0;
    this.eps = options.eps ?? 1e-10;
  }

  protected override ratesAt(step: number): Record<string, number> {
    return { move: this.learningRate / (1 + (step - 1) * this.lrDecay) };
  }

  protected update(p: Tensor, gradient: Tensor, [sum]: State): Updated {
    const g = this.penalised(p, gradient);
    const next = (sum as Tensor).add(g.square());
    return [p.sub(g.div(next.sqrt().add(this.eps)).mul(this.rate("move"))), next];
  }
}

/** Adadelta (Zeiler). Weight decay is L2. */
export class Adadelta extends Rule {
  readonly rho: number;
  readonly eps: number;

  constructor(parameters: Iterable<Tensor>, options: RuleOptions & { rho?: number; eps?: number } = {}) {
    super(parameters, options, 1);
    this.rho = options.rho ?? 0.9;
    this.eps = options.eps ?? 1e-6;
  }

  protected override stateShapes({ shape }: Tensor): readonly (readonly number[])[] {
    return [shape, shape];
  }

  protected update(p: Tensor, gradient: Tensor, [squares, squaredSteps]: State): Updated {
    const g = this.penalised(p, gradient);
    const square = movingAverage(squares as Tensor, g.square(), this.rho);
    const step = (squaredSteps as Tensor).add(this.eps).sqrt().div(square.add(this.eps).sqrt()).mul(g);
    return [p.sub(this.scaled(step)), square, movingAverage(squaredSteps as Tensor, step.square(), this.rho)];
  }
}

/** Options of optimisers with two moments. */
export interface MomentOptions extends RuleOptions {
  betas?: readonly [number, number];
  eps?: number;
}

/** The base of optimisers that keep two moments of the gradient. */
abstract class Moments extends Rule {
  readonly betas: readonly [number, number];
  readonly eps: number;

  constructor(parameters: Iterable<Tensor>, options: MomentOptions, learningRate: number, eps: number) {
    super(parameters, options, learningRate);
    this.betas = options.betas ?? [0.9, 0.999];
    this.eps = options.eps ?? eps;
  }

  protected override stateShapes({ shape }: Tensor): readonly (readonly number[])[] {
    return [shape, shape];
  }
}

/** Adam with the infinity norm (Kingma and Ba). Weight decay is L2. */
export class Adamax extends Moments {
  constructor(parameters: Iterable<Tensor>, options: MomentOptions = {}) {
    super(parameters, options, 2e-3, 1e-8);
  }

  protected override ratesAt(step: number): Record<string, number> {
    return { move: this.learningRate / (1 - this.betas[0] ** step) };
  }

  protected update(p: Tensor, gradient: Tensor, [m, u]: State): Updated {
    const g = this.penalised(p, gradient);
    const mean = movingAverage(m as Tensor, g, this.betas[0]);
    const largest = (u as Tensor).mul(this.betas[1]).maximum(g.abs().add(this.eps));
    return [p.sub(mean.div(largest).mul(this.rate("move"))), mean, largest];
  }
}

/** LAMB, layerwise adaptive moments for large batches (You and others). Weight decay is decoupled. */
export class LAMB extends Moments {
  constructor(parameters: Iterable<Tensor>, options: MomentOptions = {}) {
    super(parameters, options, 1e-3, 1e-6);
  }

  protected override ratesAt(step: number): Record<string, number> {
    const [a, b] = this.betas;
    return { first: 1 / (1 - a ** step), second: 1 / (1 - b ** step) };
  }

  protected update(p: Tensor, gradient: Tensor, [m, v]: State): Updated {
    const mean = movingAverage(m as Tensor, gradient, this.betas[0]);
    const square = movingAverage(v as Tensor, gradient.square(), this.betas[1]);
    let step = mean.mul(this.rate("first")).div(square.mul(this.rate("second")).sqrt().add(this.eps));
    if (this.weightDecay) step = step.add(p.mul(this.weightDecay));
    const [weightNorm, stepNorm] = [vectorNorm(p), vectorNorm(step)];
    const hasNorms = weightNorm.gt(0).logicalAnd(stepNorm.gt(0));
    const trust = hasNorms.where(weightNorm.div(hasNorms.where(stepNorm, 1)), 1);
    return [p.sub(this.scaled(step.mul(trust))), mean, square];
  }
}

/** LARS, layerwise adaptive rate scaling (You and others). Weight decay is L2. */
export class LARS extends Rule {
  readonly momentum: number;
  readonly trust: number;
  readonly eps: number;

  constructor(
    parameters: Iterable<Tensor>,
    options: RuleOptions & { learningRate: number; momentum?: number; trust?: number; eps?: number },
  ) {
    super(parameters, options, options.learningRate);
    this.momentum = options.momentum ?? 0.9;
    this.trust = options.trust ?? 1e-3;
    this.eps = options.eps ?? 0;
  }

  protected update(p: Tensor, gradient: Tensor, [velocity]: State): Updated {
    const [weightNorm, gradientNorm] = [vectorNorm(p), vectorNorm(gradient)];
    const hasNorms = weightNorm.gt(0).logicalAnd(gradientNorm.gt(0));
    const denominator = hasNorms.where(gradientNorm.add(weightNorm.mul(this.weightDecay)).add(this.eps), 1);
    const localRate = hasNorms.where(weightNorm.mul(this.trust).div(denominator), 1);
    const v = (velocity as Tensor).mul(this.momentum).add(this.scaled(this.penalised(p, gradient).mul(localRate)));
    return [p.sub(v), v];
  }
}

/** Lion, evolved sign momentum (Chen and others). Weight decay is decoupled. */
export class Lion extends Rule {
  readonly betas: readonly [number, number];

  constructor(parameters: Iterable<Tensor>, options: RuleOptions & { betas?: readonly [number, number] } = {}) {
    super(parameters, options, 1e-4);
    this.betas = options.betas ?? [0.9, 0.99];
  }

  protected update(p: Tensor, gradient: Tensor, [m]: State): Updated {
    const step = movingAverage(m as Tensor, gradient, this.betas[0]).sign();
    return [this.decayed(p).sub(this.scaled(step)), movingAverage(m as Tensor, gradient, this.betas[1])];
  }
}

/**
 * Approximates the nearest orthogonal matrix by the fifth-order Newton-Schulz iteration with Muon's coefficients
 * (singular values end between about 0.7 and 1.2).
 */
function newtonSchulz(m: Tensor, steps: number): Tensor {
  const [rows, columns] = m.shape as [number, number];
  const tall = rows > columns;
  let x = tall ? m.transpose() : m;
  x = x.div(vectorNorm(x).maximum(1e-7));
  for (let i = 0; i < steps; i += 1) {
    const gram = x.matmul(x.transpose()).contiguous();
    const mix = gram.mul(-4.775).add(gram.matmul(gram).mul(2.0315)).contiguous();
    x = x.mul(3.4445).add(mix.matmul(x)).contiguous();
  }
  return tall ? x.transpose() : x;
}

/**
 * Muon: momentum, orthogonalised by a Newton-Schulz iteration (Jordan and others); for matrices only. Weight decay is
 * decoupled.
 */
export class Muon extends Rule {
  readonly momentum: number;
  readonly nesterov: boolean;
  /** Number of Newton-Schulz iterations. */
  readonly steps: number;

  constructor(parameters: Iterable<Tensor>, options: RuleOptions & { momentum?: number; nesterov?: boolean; steps?: number } = {}) {
    super(parameters, options, 1e-3, 0.1);
    const other = this.parameters.find((p) => p.rank !== 2);
    if (other) throw new ValueError("E_VALUE", `Muon: a parameter of shape [${other.shape.join(", ")}] is no matrix`);
    this.momentum = options.momentum ?? 0.95;
    this.nesterov = options.nesterov ?? true;
    this.steps = options.steps ?? 5;
  }

  protected update(p: Tensor, gradient: Tensor, [m]: State): Updated {
    const mean = movingAverage(m as Tensor, gradient, this.momentum);
    const step = newtonSchulz(this.nesterov ? movingAverage(gradient, mean, 1 - this.momentum) : mean, this.steps);
    const [rows, columns] = p.shape as [number, number];
    const ratio = Math.sqrt(Math.max(rows / Math.max(columns, 1), 1));
    return [this.decayed(p).sub(this.scaled(step).mul(ratio)), mean];
  }
}

/**
 * Adafactor (Shazeer and Stern): second moments of matrices are factored into rows and columns. Weight decay is
 * decoupled.
 */
export class Adafactor extends Rule {
  readonly beta2Decay: number;
  /** The square root of the lower bound on second moments. */
  readonly eps: number;
  /** The lower bound on a parameter's root mean square, by which its step is scaled. */
  readonly floor: number;
  /** The root mean square above which an update is scaled down. */
  readonly clip: number;

  constructor(
    parameters: Iterable<Tensor>,
    options: RuleOptions & { beta2Decay?: number; eps?: number; floor?: number; clip?: number } = {},
  ) {
    super(parameters, options, 1e-2);
    this.beta2Decay = options.beta2Decay ?? -0.8;
    this.eps = options.eps ?? 2 ** -23;
    this.floor = options.floor ?? 1e-3;
    this.clip = options.clip ?? 1;
  }

  protected override stateShapes({ shape }: Tensor): readonly (readonly number[])[] {
    if (shape.length < 2) return [shape];
    const [lead, [n, m]] = [shape.slice(0, -2), shape.slice(-2) as [number, number]];
    return [[...lead, n, 1], [...lead, 1, m]];
  }

  protected override ratesAt(step: number): Record<string, number> {
    return { weight: step ** this.beta2Decay, rho: Math.min(this.learningRate, 1 / Math.sqrt(step)) };
  }

  protected update(p: Tensor, gradient: Tensor, state: State): Updated {
    const square = gradient.square();
    const average = (m: Tensor, x: Tensor): Tensor => m.add(x.sub(m).mul(this.rate("weight")));
    const rms = (t: Tensor): Tensor => vectorNorm(t).div(Math.sqrt(t.size));
    const next: Tensor[] = [];
    let estimate: Tensor;
    if (state.length === 2) {
      const rows = average(state[0] as Tensor, square.mean(-1, true));
      const columns = average(state[1] as Tensor, square.mean(-2, true));
      next.push(rows, columns);
      estimate = rows.mul(columns).div(rows.mean(-2, true).maximum(this.eps));
    } else {
      estimate = average(state[0] as Tensor, square);
      next.push(estimate);
    }
    const step = estimate.maximum(this.eps * this.eps).rsqrt().mul(gradient);
    const alpha = rms(p).maximum(this.floor).mul(this.rate("rho"));
    const size = rms(step).div(this.clip).maximum(1);
    return [this.decayed(p).sub(step.mul(alpha.div(size))), ...next];
  }
}
