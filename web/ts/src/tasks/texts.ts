// Tasks on texts: sentence embeddings by BERT and similar encoders, from safetensors files.
import { FormatError, ValueError } from "../errors.js";
import { readSource } from "../progress.js";
import { Tensor, tidy } from "../tensor.js";
import { type BatchEncoding, Tokenizer } from "../tokenizer.js";
import { type Opened, type TaskOptions, resolveFile, fileOptionsOf, openedOf, memoize, disposeWhenSettled, weightsOf } from "./recipe.js";

interface Config {
  layers: number;
  heads: number;
  eps: number;
  /** The maximum number of tokens (position embeddings). */
  maxPositions: number;
}

interface Encoder extends Config, Disposable {
  weights: Record<string, Tensor>;
  tokenizer: Tokenizer;
}

/** Number of texts per batch. */
const TEXTS_PER_BATCH = 32;
/**
 * Token counts are padded to a multiple of this, and batch sizes to a power of two, so that few plans serve all texts.
 */
const TOKEN_MULTIPLE = 16;

/**
 * Embeds texts as unit vectors, `[texts, size]`: texts with similar meaning have similar vectors. Texts are truncated
 * to the model's maximum (`maxTokens` of the recipe).
 */
export async function embed(texts: readonly string[], options: TaskOptions): Promise<Float32Array[]> {
  if (!Array.isArray(texts) || texts.some((text) => typeof text !== "string")) throw new ValueError("E_VALUE", "embed takes an array of strings");
  const opened = openedOf(options);
  const encoder = await encoderOf(opened, options);
  const out: Float32Array[] = new Array(texts.length);
  // batch texts of similar length together
  const order = texts.map((_, at) => at).sort((a, b) => (texts[a] as string).length - (texts[b] as string).length);
  for (let at = 0; at < texts.length; at += TEXTS_PER_BATCH) {
    options.signal?.throwIfAborted();
    const batchIndices = order.slice(at, at + TEXTS_PER_BATCH);
    const { ids, mask } = padBatch(encoder, encoder.tokenizer.encodeBatch(batchIndices.map((i) => texts[i] as string)));
    using vectors = tidy(() => {
      const device = Object.values(encoder.weights)[0]?.device;
      const tensorOptions = { dtype: "i32" as const, ...(device && { device }) };
      return forward(encoder, new Tensor(ids, null, tensorOptions), new Tensor(mask, null, tensorOptions));
    });
    const size = vectors.shape[1] as number;
    const values = await vectors.data("f32", options.signal ? { signal: options.signal } : {});
    batchIndices.forEach((i, row) => (out[i] = values.slice(row * size, (row + 1) * size)));
  }
  return out;
}

/** Pads tokens and batch to one of the few sizes that calls share. */
function padBatch({ maxPositions }: Encoder, { ids, mask }: BatchEncoding): { ids: number[][]; mask: number[][] } {
  const longest = ids[0]?.length ?? 0;
  const rowCount = 2 ** Math.ceil(Math.log2(ids.length));
  const columnCount = Math.max(longest, Math.min(maxPositions, Math.ceil(longest / TOKEN_MULTIPLE) * TOKEN_MULTIPLE));
  const padRows = (rows: readonly (readonly number[])[]): number[][] =>
    Array.from({ length: rowCount }, (_, i) => Array.from({ length: columnCount }, (__, at) => (rows[i] ?? (rows[0] as readonly number[]))[at] ?? 0));
  return { ids: padRows(ids), mask: padRows(mask) };
}

function encoderOf(opened: Opened, options: TaskOptions): Promise<Encoder> {
  const more = (opened.recipe.more ?? {}) as Partial<{ tokenizer: string; config: string; maxTokens: number }>;
  const { tokenizer = "tokenizer.json", config = "config.json", maxTokens = 256 } = more;
  return memoize(opened, "encoder", loadEncoder);

  async function loadEncoder(): Promise<Encoder> {
    const [file, configFile] = [resolveFile(opened, tokenizer), resolveFile(opened, config)];
    const [weights, tokenizerLoading] = [weightsOf(opened, options), Tokenizer.load(file, fileOptionsOf(opened, tokenizer, options))];
    try {
      return encoder(...(await Promise.all([weights, tokenizerLoading, readSource(configFile, fileOptionsOf(opened, config, options))])));
    } catch (error) {
      disposeWhenSettled(weights, tokenizerLoading);
      throw error;
    }
  }

  function encoder(weights: Record<string, Tensor>, tokenizer: Tokenizer, text: Uint8Array): Encoder {
    tokenizer.setMaxLength(maxTokens);
    const parsed = JSON.parse(new TextDecoder().decode(text)) as { num_hidden_layers: number; num_attention_heads: number; layer_norm_eps?: number };
    const [layers, heads] = [parsed.num_hidden_layers, parsed.num_attention_heads];
    if (!(layers > 0 && heads > 0)) throw new FormatError("E_FORMAT", `${config} does not say how many layers and heads the model has`);
    const dispose = (): void => {
      tokenizer.dispose();
      for (const t of Object.values(weights)) t.dispose();
    };
    for (const t of Object.values(weights)) t.freeze();
    const table = "embeddings.position_embeddings.weight";
    const maxPositions = (weights[table] ?? weights[`bert.${table}`])?.shape[0] ?? 0;
    return { maxPositions, layers, heads, eps: parsed.layer_norm_eps ?? 1e-12, weights, tokenizer, [Symbol.dispose]: dispose };
  }
}

/** BERT's encoder (Devlin et al. 2018), followed by the mean over the tokens and normalisation to unit length. */
function forward({ weights, layers, heads, eps }: Encoder, ids: Tensor, mask: Tensor): Tensor {
  const w = (name: string): Tensor => {
    const found = weights[name] ?? weights[`bert.${name}`];
    if (!found) throw new FormatError("E_FORMAT", `the weights have no ${name}`);
    return found;
  };
  const linear = (x: Tensor, name: string): Tensor => x.linear(w(`${name}.weight`), w(`${name}.bias`));
  const norm = (x: Tensor, name: string): Tensor => x.layerNorm(1, w(`${name}.weight`), w(`${name}.bias`), eps);
  const [batch, time] = ids.shape as [number, number];
  const table = (name: string): Tensor => w(`embeddings.${name}.weight`);
  const positionEmbeddings = table("position_embeddings").narrow(0, 0, time).add(table("token_type_embeddings").narrow(0, 0, 1));
  let x = norm(table("word_embeddings").embedding(ids).add(positionEmbeddings), "embeddings.LayerNorm");
  const size = x.shape[2] as number;
  const attentionMask = mask.gt(0).reshape([batch, 1, 1, time]);
  for (let layer = 0; layer < layers; layer += 1) {
    const at = (name: string): string => `encoder.layer.${layer}.${name}`;
    const split = (name: string): Tensor => linear(x, at(`attention.self.${name}`)).reshape([batch, time, heads, size / heads]).transpose(1, 2);
    const y = split("query").attention(split("key"), split("value"), { mask: attentionMask });
    x = norm(x.add(linear(y.transpose(1, 2).flatten(2, 3), at("attention.output.dense"))), at("attention.output.LayerNorm"));
    x = norm(x.add(linear(linear(x, at("intermediate.dense")).gelu(), at("output.dense"))), at("output.LayerNorm"));
  }
  const weight = mask.cast("f32").unsqueeze(-1);
  const mean = x.mul(weight).sum(1).div(weight.sum(1));
  return mean.div(mean.square().sum(-1, true).sqrt());
}
