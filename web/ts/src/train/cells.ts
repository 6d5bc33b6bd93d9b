// Single steps of recurrent networks. A cell is the recurrent layer on a sequence of length 1.
import { type LayerOptions, Module } from "../nn.js";
import { type Tensor, ops } from "../tensor.js";
import { uniform } from "./parameters.js";

/** The base of cells: maps `[batch, in]` and a state to the next state, of tensors `[batch, hidden]`. */
abstract class Cell extends Module {
  readonly weight_ih: Tensor;
  readonly weight_hh: Tensor;
  readonly bias_ih: Tensor | null;
  readonly bias_hh: Tensor | null;
  readonly #kind: number;

  constructor(kind: number, gates: number, inputs: number, hidden: number, options: LayerOptions) {
    super();
    this.#kind = kind;
    const bound = 1 / Math.sqrt(hidden);
    const rows = gates * hidden;
    this.weight_ih = uniform([rows, inputs], bound, options);
    this.weight_hh = uniform([rows, hidden], bound, options);
    this.bias_ih = options.bias === false ? null : uniform([rows], bound, options);
    this.bias_hh = options.bias === false ? null : uniform([rows], bound, options);
  }

  /** The next state, whose first tensor is the output. Starts from `state`, or zeros. */
  run(x: Tensor, state: readonly Tensor[] = []): Tensor[] {
    const weights = [this.weight_ih, this.weight_hh, this.bias_ih, this.bias_hh].filter((t) => t !== null);
    const operands = [x.unsqueeze(1), ...state.map((t) => t.unsqueeze(0)), ...weights];
    // one layer, one direction, no dropout, batch first, no projection, inference
    const numbers = [this.#kind, state.length, 1, 0, Number(this.bias_ih !== null), 0, 1, 0, 0];
    const [y, ...next] = ops("recurrent", operands, numbers) as [Tensor, ...Tensor[]];
    y.dispose();
    return next.map((t) => t.squeeze(0));
  }

  /** The output. */
  forward(x: Tensor, ...state: readonly Tensor[]): Tensor {
    const [y, ...rest] = this.run(x, state) as [Tensor, ...Tensor[]];
    for (const t of rest) t.dispose();
    return y;
  }
}

/** One step of `RNN`. */
export class RNNCell extends Cell {
  constructor(inputs: number, hidden: number, options: LayerOptions & { nonlinearity?: "tanh" | "relu" } = {}) {
    super(options.nonlinearity === "relu" ? 1 : 0, 1, inputs, hidden, options);
  }
}

/** One step of `LSTM`; its state is two tensors. */
export class LSTMCell extends Cell {
  constructor(inputs: number, hidden: number, options: LayerOptions = {}) {
    super(2, 4, inputs, hidden, options);
  }
}

/** One step of `GRU`. */
export class GRUCell extends Cell {
  constructor(inputs: number, hidden: number, options: LayerOptions = {}) {
    super(3, 3, inputs, hidden, options);
  }
}
