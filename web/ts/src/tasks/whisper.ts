// Whisper (Radford et al. 2022): an audio encoder and a text decoder, from weights with the names of Hugging Face's
// `WhisperForConditionalGeneration`. The cache of keys and values is in tensors of fixed size that each step updates in
// place, so that one compiled plan serves every step.
import { FormatError } from "../errors.js";
import { Tensor, keep, op, realize, tidy } from "../tensor.js";

/** The size of an attention head in all Whisper models. */
const HEAD = 64;
const EPS = 1e-5;

/** Cached keys and values, `[1, heads, positions, 64]`. */
interface Memory {
  keys: Tensor;
  values: Tensor;
}

/** The special tokens of a transcript. */
export interface Marks {
  /** The tokens before the first word. */
  prompt: readonly number[];
  end: number;
  /** Tokens that must not come first: a single blank, the end token. */
  notFirst: readonly number[];
}

/** Gives a value storage of its own, which later steps overwrite. */
const stored = (t: Tensor): Tensor => op("to_storage", [t]);

export class Whisper implements Disposable {
  readonly #weights: Readonly<Record<string, Tensor>>;

  private constructor(weights: Readonly<Record<string, Tensor>>) {
    this.#weights = weights;
  }

  /** Converts the weights to f32 and freezes them. The given tensors are freed. */
  static async of(given: Readonly<Record<string, Tensor>>): Promise<Whisper> {
    const own = tidy(() => Object.fromEntries(Object.entries(given).map(([name, t]) => [name, t.dtype === "f32" ? t : t.cast("f32")])));
    for (const t of Object.values(own)) {
      // one at a time to limit peak memory: the largest tensor is a third of the total
      await realize([t]);
      t.freeze();
    }
    for (const [name, t] of Object.entries(given)) if (own[name] !== t) t.dispose();
    return new Whisper(own);
  }

  #w(name: string): Tensor {
    const found = this.#weights[`model.${name}`];
    if (!found) throw new FormatError("E_FORMAT", `the weights have no model.${name}`);
    return found;
  }

  /** Number of decoder positions, which limits the tokens of a transcript. */
  get limit(): number {
    return this.#w("decoder.embed_positions.weight").shape[0] as number;
  }

  /** Names of the layers of the encoder or decoder. */
  #layers(side: string): string[] {
    const names = [];
    for (let at = 0; `model.${side}.layers.${at}.fc1.weight` in this.#weights; at += 1) names.push(`${side}.layers.${at}`);
    return names;
  }

  #linear(x: Tensor, name: string): Tensor {
    return x.linear(this.#w(`${name}.weight`), this.#weights[`model.${name}.bias`]);
  }

  #norm(x: Tensor, name: string): Tensor {
    return x.layerNorm(1, this.#w(`${name}.weight`), this.#w(`${name}.bias`), EPS);
  }

  /** Projects `[1, time, width]` and splits it into heads, `[1, heads, time, 64]`. */
  #heads(x: Tensor, name: string): Tensor {
    const [, time, width] = x.shape as [number, number, number];
    return this.#linear(x, name).reshape([1, time, width / HEAD, HEAD]).transpose(1, 2);
  }

  #memory(x: Tensor, name: string): Memory {
    return { keys: this.#heads(x, `${name}.k_proj`), values: this.#heads(x, `${name}.v_proj`) };
  }

  #attend(x: Tensor, name: string, { keys, values }: Memory, options: { mask?: Tensor; causal?: boolean } = {}): Tensor {
    const y = this.#heads(x, `${name}.q_proj`).attention(keys, values, options);
    return this.#linear(y.transpose(1, 2).flatten(2, 3), `${name}.out_proj`);
  }

  #forward(x: Tensor, layer: string): Tensor {
    const up = this.#linear(this.#norm(x, `${layer}.final_layer_norm`), `${layer}.fc1`).gelu();
    return x.add(this.#linear(up, `${layer}.fc2`));
  }

  /** Encodes a spectrogram `[80, 3000]` to audio features `[1, 1500, width]`. */
  encode(mel: Tensor): Tensor {
    return tidy(() => {
      const conv = (x: Tensor, name: string, stride: number): Tensor =>
        x.conv(this.#w(`encoder.${name}.weight`), this.#w(`encoder.${name}.bias`), { padding: 1, stride }).gelu();
      let x = conv(conv(mel.unsqueeze(0), "conv1", 1), "conv2", 2).transpose(1, 2).add(this.#w("encoder.embed_positions.weight"));
      for (const layer of this.#layers("encoder")) {
        const y = this.#norm(x, `${layer}.self_attn_layer_norm`);
        x = x.add(this.#attend(y, `${layer}.self_attn`, this.#memory(y, `${layer}.self_attn`)));
        x = this.#forward(x, layer);
      }
      return this.#norm(x, "encoder.layer_norm");
    });
  }

  /** Greedy decoding of audio features: yields the tokens of the transcript without its special tokens. */
  async *tokens(sound: Tensor, { prompt, end, notFirst }: Marks, signal?: AbortSignal): AsyncGenerator<number> {
    const layers = this.#layers("decoder");
    const options = signal ? { signal } : {};
    const width = sound.shape[2] as number;
    const empty = (): Tensor => stored(Tensor.zeros([1, width / HEAD, this.limit, HEAD], sound.device ? { device: sound.device } : {}));
    const { own, heard } = tidy(() => {
      const made = layers.map((layer) => {
        const { keys, values } = this.#memory(sound, `${layer}.encoder_attn`);
        return { own: { keys: empty(), values: empty() }, heard: { keys: keys.contiguous(), values: values.contiguous() } };
      });
      for (const { own: a, heard: b } of made) for (const t of [a.keys, a.values, b.keys, b.values]) keep(t);
      return { own: made.map((m) => m.own), heard: made.map((m) => m.heard) };
    });
    const all = [...own, ...heard].flatMap(({ keys, values }) => [keys, values]);
    try {
      await realize(all, options);
      let next = prompt[0] as number;
      let said = 0;
      for (let at = 0; at < this.limit; at += 1) {
        const begun = at >= prompt.length - 1;
        const choice = tidy(() => this.#step(at, next, own, heard, begun && said === 0 ? notFirst : []));
        await realize([...own.flatMap(({ keys, values }) => [keys, values]), choice], options);
        const chosen = await choice.item();
        choice.dispose();
        if (!begun) {
          next = prompt[at + 1] as number;
          continue;
        }
        if (chosen === end) return;
        said += 1;
        yield (next = chosen);
      }
    } finally {
      for (const t of all) t.dispose();
    }
  }

  /**
   * One decoding step: takes a token, stores its keys and values in the cache, and gives the most likely next token.
   */
  #step(at: number, token: number, own: readonly Memory[], heard: readonly Memory[], banned: readonly number[]): Tensor {
    const { limit } = this;
    const { device } = own[0]?.keys ?? {};
    const on = device ? { device } : {};
    // passed as tensor values rather than constants of the graph, so that one plan serves every step
    const place = new Tensor(Int32Array.of(at), [1], on);
    const slots = Tensor.arange(0, limit, 1, on);
    const seen = slots.le(place).reshape([1, 1, 1, limit]);
    const here = slots.eq(place).reshape([1, 1, limit, 1]);
    const words = this.#w("decoder.embed_tokens.weight");
    const here0 = this.#w("decoder.embed_positions.weight").indexSelect(0, place);
    let x = words.embedding(new Tensor(Int32Array.of(token), [1, 1], on)).add(here0);
    this.#layers("decoder").forEach((layer, i) => {
      const [mine, sound] = [own[i] as Memory, heard[i] as Memory];
      const y = this.#norm(x, `${layer}.self_attn_layer_norm`);
      const fresh = this.#memory(y, `${layer}.self_attn`);
      mine.keys.assign(here.where(fresh.keys, mine.keys));
      mine.values.assign(here.where(fresh.values, mine.values));
      x = x.add(this.#attend(y, `${layer}.self_attn`, mine, { mask: seen }));
      x = x.add(this.#attend(this.#norm(x, `${layer}.encoder_attn_layer_norm`), `${layer}.encoder_attn`, sound));
      x = this.#forward(x, layer);
    });
    let logits = this.#norm(x, "decoder.layer_norm").linear(words).flatten();
    // always the maximum number, so that the plan does not change; -1 matches no token
    const none = Int32Array.from({ length: 4 }, (_, i) => banned[i] ?? -1);
    const ids = Tensor.arange(0, words.shape[0] as number, 1, on).unsqueeze(1);
    const out = ids.eq(new Tensor(none, [1, 4], on)).any(1);
    logits = out.where(Number.NEGATIVE_INFINITY, logits);
    return logits.argmax(0);
  }

  [Symbol.dispose](): void {
    for (const t of Object.values(this.#weights)) t.dispose();
  }
}
