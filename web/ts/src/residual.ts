// What the layers of transformers are made of, the encoder's and the decoder's.
import type { Dropout, LayerNorm, Linear } from "./nn.js";
import type { Tensor } from "./tensor.js";

interface Parts {
  readonly linear1: Linear;
  readonly linear2: Linear;
  readonly dropout: Dropout;
  readonly options: { activation?: (x: Tensor) => Tensor; normFirst?: boolean };
}

/** `f` with dropout, added to what goes around it, and a norm before `f` or after the sum. */
export function around({ dropout, options }: Parts, x: Tensor, norm: LayerNorm, f: (x: Tensor) => Tensor): Tensor {
  return options.normFirst ? x.add(dropout.forward(f(norm.forward(x)))) : norm.forward(x.add(dropout.forward(f(x))));
}

/** The network at each place. */
export function places({ linear1, linear2, dropout, options }: Parts, x: Tensor): Tensor {
  const inner = linear1.forward(x);
  return linear2.forward(dropout.forward(options.activation ? options.activation(inner) : inner.relu()));
}
