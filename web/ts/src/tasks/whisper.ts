// Whisper (Radford et al. 2022): an audio encoder and a text decoder, from weights with the names of Hugging Face's
// `WhisperForConditionalGeneration`. The cache of keys and values is in tensors of fixed size that each step updates in
// place, so that one compiled plan serves every step.
import { FormatError } from "../errors.js";
import { Tensor, keep, op, realize, tidy } from "../tensor.js";

/** The size of an attention head in all Whisper models. */
const HEAD_SIZE = 64;
const EPS = 1e-5;

/** Cached keys and values, `[1, heads, positions, 64]`. */
interface KeyValueCache {
  keys: Tensor;
  values: Tensor;
}

/** The special tokens of a transcript. */
export interface SpecialTokens {
  /** The tokens before the first word. */
  prompt: readonly number[];
  end: number;
  /** Tokens that must not come first: a single blank, the end token. */
  notFirst: readonly number[];
}

/** Gives a value storage of its own, which later steps overwrite. */
const withOwnStorage = (t: Tensor): Tensor => op("to_storage", [t]);

export class Whisper implements Disposable {
  readonly #weights: Readonly<Record<string, Tensor>>;

  private constructor(weights: Readonly<Record<string, Tensor>>) {
    this.#weights = weights;
  }

  /** Converts the weights to f32 and freezes them. The given tensors are freed. */
  static async of(given: Readonly<Record<string, Tensor>>): Promise<Whisper> {
    const weights = tidy(() => Object.fromEntries(Object.entries(given).map(([name, t]) => [name, t.dtype === "f32" ? t : t.cast("f32")])));
    for (const t of Object.values(weights)) {
      // one at a time to limit peak memory: the largest tensor is a third of the total
      await realize([t]);
      t.freeze();
    }
    for (const [name, t] of Object.entries(given)) if (weights[name] !== t) t.dispose();
    return new Whisper(weights);
  }

  #weight(name: string): Tensor {
    const found = this.#weights[`model.${name}`];
    if (!found) throw new FormatError("E_FORMAT", `the weights have no model.${name}`);
    return found;
  }

  /** Number of decoder positions, which limits the tokens of a transcript. */
  get limit(): number {
    return this.#weight("decoder.embed_positions.weight").shape[0] as number;
  }

  /** Names of the layers of the encoder or decoder. */
  #layers(side: string): string[] {
    const names = [];
    for (let at = 0; `model.${side}.layers.${at}.fc1.weight` in this.#weights; at += 1) names.push(`${side}.layers.${at}`);
    return names;
  }

  #linear(x: Tensor, name: string): Tensor {
    return x.linear(this.#weight(`${name}.weight`), this.#weights[`model.${name}.bias`]);
  }

  #norm(x: Tensor, name: string): Tensor {
    return x.layerNorm(1, this.#weight(`${name}.weight`), this.#weight(`${name}.bias`), EPS);
  }

  /** Projects `[1, time, width]` and splits it into heads, `[1, heads, time, 64]`. */
  #heads(x: Tensor, name: string): Tensor {
    const [, time, width] = x.shape as [number, number, number];
    return this.#linear(x, name).reshape([1, time, width / HEAD_SIZE, HEAD_SIZE]).transpose(1, 2);
  }

  #keysAndValues(x: Tensor, name: string): KeyValueCache {
    return { keys: this.#heads(x, `${name}.k_proj`), values: this.#heads(x, `${name}.v_proj`) };
  }

  #attention(x: Tensor, name: string, { keys, values }: KeyValueCache, options: { mask?: Tensor; causal?: boolean } = {}): Tensor {
    const y = this.#heads(x, `${name}.q_proj`).attention(keys, values, options);
    return this.#linear(y.transpose(1, 2).flatten(2, 3), `${name}.out_proj`);
  }

  #feedForward(x: Tensor, layer: string): Tensor {
    const hidden = this.#linear(this.#norm(x, `${layer}.final_layer_norm`), `${layer}.fc1`).gelu();
    return x.add(this.#linear(hidden, `${layer}.fc2`));
  }

  /** Encodes a spectrogram `[80, 3000]` to audio features `[1, 1500, width]`. */
  encode(mel: Tensor): Tensor {
    return tidy(() => {
      const conv = (x: Tensor, name: string, stride: number): Tensor =>
        x.conv(this.#weight(`encoder.${name}.weight`), this.#weight(`encoder.${name}.bias`), { padding: 1, stride }).gelu();
      let x = conv(conv(mel.unsqueeze(0), "conv1", 1), "conv2", 2).transpose(1, 2).add(this.#weight("encoder.embed_positions.weight"));
      for (const layer of this.#layers("encoder")) {
        const y = this.#norm(x, `${layer}.self_attn_layer_norm`);
        x = x.add(this.#attention(y, `${layer}.self_attn`, this.#keysAndValues(y, `${layer}.self_attn`)));
        x = this.#feedForward(x, layer);
      }
      return this.#norm(x, "encoder.layer_norm");
    });
  }

  /** Greedy decoding of audio features: yields the tokens of the transcript without its special tokens. */
  async *tokens(audioFeatures: Tensor, { prompt, end, notFirst }: SpecialTokens, signal?: AbortSignal): AsyncGenerator<number> {
    const layers = this.#layers("decoder");
    const options = signal ? { signal } : {};
    const width = audioFeatures.shape[2] as number;
    const tensorOptions = audioFeatures.device ? { device: audioFeatures.device } : {};
    const emptyCache = (): Tensor => withOwnStorage(Tensor.zeros([1, width / HEAD_SIZE, this.limit, HEAD_SIZE], tensorOptions));
    const { selfCaches, crossCaches } = tidy(() => {
      const caches = layers.map((layer) => {
        const { keys, values } = this.#keysAndValues(audioFeatures, `${layer}.encoder_attn`);
        return { self: { keys: emptyCache(), values: emptyCache() }, cross: { keys: keys.contiguous(), values: values.contiguous() } };
      });
      for (const { self, cross } of caches) for (const t of [self.keys, self.values, cross.keys, cross.values]) keep(t);
      return { selfCaches: caches.map(({ self }) => self), crossCaches: caches.map(({ cross }) => cross) };
    });
    const all = [...selfCaches, ...crossCaches].flatMap(({ keys, values }) => [keys, values]);
    try {
      await realize(all, options);
      let next = prompt[0] as number;
      let emittedCount = 0;
      for (let at = 0; at < this.limit; at += 1) {
        const isPastPrompt = at >= prompt.length - 1;
        const choice = tidy(() => this.#step(at, next, selfCaches, crossCaches, isPastPrompt && emittedCount === 0 ? notFirst : []));
        await realize([...selfCaches.flatMap(({ keys, values }) => [keys, values]), choice], options);
        const chosen = await choice.item();
        choice.dispose();
        if (!isPastPrompt) {
          next = prompt[at + 1] as number;
          continue;
        }
        if (chosen === end) return;
        emittedCount += 1;
        yield (next = chosen);
      }
    } finally {
      for (const t of all) t.dispose();
    }
  }

  /**
   * One decoding step: takes a token, stores its keys and values in the cache, and gives the most likely next token.
   */
  #step(at: number, token: number, selfCaches: readonly KeyValueCache[], crossCaches: readonly KeyValueCache[], banned: readonly number[]): Tensor {
    const { limit } = this;
    const { device } = selfCaches[0]?.keys ?? {};
    const tensorOptions = device ? { device } : {};
    // passed as tensor values rather than constants of the graph, so that one plan serves every step
    const position = new Tensor(Int32Array.of(at), [1], tensorOptions);
    const positions = Tensor.arange(0, limit, 1, tensorOptions);
    const mask = positions.le(position).reshape([1, 1, 1, limit]);
    const isCurrent = positions.eq(position).reshape([1, 1, limit, 1]);
    const tokenEmbeddings = this.#weight("decoder.embed_tokens.weight");
    const positionEmbedding = this.#weight("decoder.embed_positions.weight").indexSelect(0, position);
    let x = tokenEmbeddings.embedding(new Tensor(Int32Array.of(token), [1, 1], tensorOptions)).add(positionEmbedding);
    this.#layers("decoder").forEach((layer, i) => {
      const [selfCache, crossCache] = [selfCaches[i] as KeyValueCache, crossCaches[i] as KeyValueCache];
      const y = this.#norm(x, `${layer}.self_attn_layer_norm`);
      const newEntry = this.#keysAndValues(y, `${layer}.self_attn`);
      selfCache.keys.assign(isCurrent.where(newEntry.keys, selfCache.keys));
      selfCache.values.assign(isCurrent.where(newEntry.values, selfCache.values));
      x = x.add(this.#attention(y, `${layer}.self_attn`, selfCache, { mask }));
      x = x.add(this.#attention(this.#norm(x, `${layer}.encoder_attn_layer_norm`), `${layer}.encoder_attn`, crossCache));
      x = this.#feedForward(x, layer);
    });
    let logits = this.#norm(x, "decoder.layer_norm").linear(tokenEmbeddings).flatten();
    // always the maximum number, so that the plan does not change; -1 matches no token
    const bannedIds = Int32Array.from({ length: 4 }, (_, i) => banned[i] ?? -1);
    const ids = Tensor.arange(0, tokenEmbeddings.shape[0] as number, 1, tensorOptions).unsqueeze(1);
    const isBanned = ids.eq(new Tensor(bannedIds, [1, 4], tensorOptions)).any(1);
    logits = isBanned.where(Number.NEGATIVE_INFINITY, logits);
    return logits.argmax(0);
  }

  [Symbol.dispose](): void {
    for (const t of Object.values(this.#weights)) t.dispose();
  }
}
