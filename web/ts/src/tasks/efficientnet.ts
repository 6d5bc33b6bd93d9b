// Classifiers whose file holds only weights, so that the network is built here: EfficientNet-Lite (Tan and Le 2019,
// arXiv:1905.11946), with the tensor names and the padding of TensorFlow's implementation.
import { FormatError } from "../errors.js";
import { type Tensor, tidy } from "../tensor.js";
import { type Opened, type TaskOptions, memoize, weightsOf } from "./recipe.js";

/** The number of blocks, the stride of the first block, and the output channels of a stage. */
type Stage = [repeats: number, stride: number, channels: number];

interface Network extends Disposable {
  stages: readonly Stage[];
  weights: Record<string, Tensor>;
}

/** Attributes of a convolution besides its weights. */
interface ConvAttributes {
  stride?: number;
  /** Whether a ReLU6 follows. */
  relu6?: boolean;
}

/** Computes the class scores of a picture `[1, 3, height, width]`, and frees the picture. */
export async function scoresOf(opened: Opened, picture: Tensor, options: TaskOptions): Promise<Tensor> {
  using image = picture;
  const network = await networkOf(opened, options);
  return tidy(() => forward(network, image));
}

function networkOf(opened: Opened, options: TaskOptions): Promise<Network> {
  const { recipe } = opened;
  const load = async (): Promise<Network> => {
    const { network, stages } = (recipe.more ?? {}) as { network?: string; stages?: readonly Stage[] };
    if (network !== "efficientnet-lite" || !Array.isArray(stages)) {
      throw new FormatError("E_FORMAT", `${recipe.name}: the network \`${network}\` is none; there is efficientnet-lite, with its \`stages\``);
    }
    const weights = await weightsOf(opened, options);
    for (const t of Object.values(weights)) t.freeze();
    const dispose = (): void => Object.values(weights).forEach((t) => t.dispose());
    return { stages, weights, [Symbol.dispose]: dispose };
  };
  return memoize(opened, "network", load);
}

function forward({ weights, stages }: Network, picture: Tensor): Tensor {
  const w = (name: string): Tensor => {
    const found = weights[name];
    if (!found) throw new FormatError("E_FORMAT", `the weights have no ${name}`);
    return found;
  };
  /**
   * A convolution with "same" padding (output size is input size divided by the stride, rounded up), with its batch
   * norm folded into weight and bias.
   */
  const conv = (x: Tensor, name: string, norm: string, { stride = 1, relu6 = true }: ConvAttributes = {}): Tensor => {
    const weight = w(`${name}.weight`);
    const kernel = weight.shape[2] as number;
    const padding = x.shape.slice(2).map((n) => Math.max(0, (Math.ceil(n / stride) - 1) * stride + kernel - n));
    const padded = padding.every((n) => n === 0) ? x : x.pad([[0, 0], [0, 0], ...padding.map((n): [number, number] => [n >> 1, n - (n >> 1)])]);
    const scale = w(`${norm}.weight`).div(w(`${norm}.running_var`).add(1e-3).sqrt());
    const shift = w(`${norm}.bias`).sub(w(`${norm}.running_mean`).mul(scale));
    // depthwise if the weight has one input channel per filter, else dense
    const groups = weight.shape[1] === 1 ? (x.shape[1] as number) : 1;
    const y = padded.conv(weight.mul(scale.reshape([-1, 1, 1, 1])), shift, { stride, groups });
    return relu6 ? y.relu6() : y;
  };
  let x = conv(picture, "_conv_stem", "_bn0", { stride: 2 });
  let block = 0;
  for (const [repeats, firstStride, channels] of stages) {
    for (let i = 0; i < repeats; i += 1) {
      const nameOf = (part: string): string => `_blocks.${block}.${part}`;
      let y = block === 0 ? x : conv(x, nameOf("_expand_conv"), nameOf("_bn0"));
      y = conv(y, nameOf("_depthwise_conv"), nameOf("_bn1"), { stride: i === 0 ? firstStride : 1 });
      y = conv(y, nameOf("_project_conv"), nameOf("_bn2"), { relu6: false });
      x = i > 0 && x.shape[1] === channels ? x.add(y) : y;
      block += 1;
    }
  }
  return conv(x, "_conv_head", "_bn1").mean([2, 3]).linear(w("_fc.weight"), w("_fc.bias"));
}
