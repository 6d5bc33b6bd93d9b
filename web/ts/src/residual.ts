// Building blocks shared by the encoder and decoder layers of transformers.
import type { Dropout, LayerNorm, Linear } from "./nn.js";
import type { Tensor } from "./tensor.js";

interface LayerParts {
  readonly linear1: Linear;
  readonly linear2: Linear;
  readonly dropout: Dropout;
  readonly options: { activation?: (x: Tensor) => Tensor; normFirst?: boolean };
}

/** A residual block: `x + dropout(f(x))`, with the norm before `f` (`normFirst`) or after the sum. */
export function residual({ dropout, options }: LayerParts, x: Tensor, norm: LayerNorm, f: (x: Tensor) => Tensor): Tensor {
  return options.normFirst ? x.add(dropout.forward(f(norm.forward(x)))) : norm.forward(x.add(dropout.forward(f(x))));
}

/** The feed-forward network, applied at each position. */
export function feedForward({ linear1, linear2, dropout, options }: LayerParts, x: Tensor): Tensor {
  const inner = linear1.forward(x);
  return linear2.forward(dropout.forward(options.activation ? options.activation(inner) : inner.relu()));
}
