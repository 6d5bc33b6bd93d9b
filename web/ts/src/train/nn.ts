// The entry `gradloom/nn`: every layer.
import "../page-chunks.js";
export * from "../networks.js";
export { AdaptiveLogSoftmax, AlphaDropout, Bilinear, ChannelDropout } from "./basic.js";
export { GRUCell, LSTMCell, RNNCell } from "./cells.js";
export {
  Conv, Conv1d, Conv3d, ConvTranspose, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, type ConvTransposeOptions,
} from "./conv.js";
export { InstanceNorm, type InstanceNormOptions, SpectralNorm, type Weighted, WeightNorm } from "./norms.js";
// these two extend and replace the plain classes of the same names above
export { Embedding, EmbeddingBag, type TableOptions } from "./tables.js";
export { Transformer, TransformerDecoder, TransformerDecoderLayer } from "./transformer.js";
