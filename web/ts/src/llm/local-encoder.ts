// An encoder in this thread: uploads weights as they arrive, and runs a captured plan for each size of a pack of texts.
// A separate wasm module knows how models are composed, and tokenizers.
import { type Host, onDevice } from "../device.js";
import type { EncoderBackend, EncoderInfo, EncoderOptions, EncoderText } from "../encoder.js";
import { StateError, UnsupportedError, ValueError, guard } from "../errors.js";
import { type BufferSpec, type Captured, type GraphInput, ModelBuffers } from "./buffers.js";
import type { ModelKind, OpenedModel } from "./files.js";
import { loadModel } from "./load.js";
import { type RawEncoder, encoderModule } from "./module.js";
import type { Metadata, ModelSource } from "./options.js";

type Module = Awaited<ReturnType<typeof encoderModule>>;
type RawTexts = InstanceType<Module["RawTexts"]>;
type RawTokenizer = InstanceType<Module["RawTokenizer"]>;
type Graph = [bytes: Uint8Array, inputs: GraphInput[], buffers: BufferSpec[], given: number[], values: number];
type Inputs = [used: number, ...given: Uint8Array[]];

/** The default limit of a text's tokens; models for longer texts need much memory for these. */
const DEFAULT_CONTEXT = 2048;

/** The plan for packs of one size, and the numbers of its buffers. */
interface Plan {
  captured: Captured;
  given: readonly number[];
  values: number;
}

/** Encoders, whose folders may have the files of sentence-transformers. */
const encoders = ({ RawEncoder: Raw, RawTokenizer: Tokenizer }: Module): ModelKind<RawEncoder> => ({
  ofGguf: (start, size) => new Raw(start, size),
  optional: ["modules.json"],
  ofFolder: async (config, [modules], read) => {
    const names = modules ? poolingFiles(modules) : [];
    return Raw.ofFolder(config, modules, names, await Promise.all(names.map(read)));
  },
  tokenizer: (file) => new Tokenizer(file),
});

/** The files that a `modules.json` refers to. */
function poolingFiles(modules: Uint8Array): string[] {
  const list = JSON.parse(new TextDecoder().decode(modules)) as unknown;
  if (!Array.isArray(list)) return [];
  const isPooling = (each: unknown): each is { path: string } => /\bPooling$/.test(String((each as { type?: unknown } | null)?.type));
  return list.filter(isPooling).map(({ path }) => `${path}/config.json`);
}

/** Loads an encoder in this thread. */
export async function loadLocalEncoder(from: ModelSource, options: EncoderOptions): Promise<EncoderBackend> {
  const module = encoderModule();
  let Texts: Module["RawTexts"];
  const kind = module.then((loaded) => {
    Texts = loaded.RawTexts;
    return encoders(loaded);
  });
  const begin = (host: Host, opened: OpenedModel<RawEncoder>): LocalEncoder => new LocalEncoder(host, opened, Texts);
  return loadModel(kind, from, options, begin, async (model, _, bytes) => model.build(options.context ?? DEFAULT_CONTEXT, bytes));
}

class LocalEncoder implements EncoderBackend {
  info!: EncoderInfo;
  readonly metadata: Metadata;
  readonly #host: Host;
  readonly #raw: RawEncoder;
  readonly #Texts: Module["RawTexts"];
  readonly #tokenizer: RawTokenizer | undefined;
  /** Why the tokenizer of the model's files cannot be used. */
  readonly #tokenizerError: string | undefined;
  readonly #buffers: ModelBuffers;
  readonly #plans = new Map<number, Plan>();
  /** Elements of what a text gives: its vector, or its scores. */
  #outputs = 0;
  /** The end of the queue of requests, which run one at a time. */
  #queueTail: Promise<unknown> = Promise.resolve();
  #disposed = false;

  constructor(host: Host, { raw, metadata, tokenizer }: OpenedModel<RawEncoder>, Texts: Module["RawTexts"]) {
    this.#host = host;
    this.#raw = raw;
    this.#Texts = Texts;
    this.#buffers = new ModelBuffers(host);
    this.metadata = metadata;
    if (tokenizer instanceof Error) this.#tokenizerError = tokenizer.message;
    else this.#tokenizer = tokenizer as RawTokenizer | undefined;
  }

  createBuffers(list: readonly BufferSpec[]): void {
    this.#buffers.create(list);
  }

  /** Builds the model once all weights are loaded. */
  build(requestedContext: number, bytes: number): void {
    if (!Number.isSafeInteger(requestedContext) || requestedContext < 1) throw new ValueError("E_VALUE", `a context of ${requestedContext} tokens`);
    const sizes = guard(() => this.#raw.build(requestedContext)) as unknown as [number, number, number, number, number, number, number];
    const [context, vocabulary, trainedContext, layers, width, outputs, labels] = sizes;
    const { kind, threads } = this.#host;
    this.#outputs = outputs;
    this.info = {
      architecture: guard(() => this.#raw.architecture()),
      context, trainedContext, vocabulary, layers, width, labels, bytes, device: kind, threads,
      hasTokenizer: this.#tokenizer !== undefined,
    };
  }

  async vectors(texts: readonly EncoderText[], signal: AbortSignal | undefined): Promise<Float32Array[]> {
    if (this.info.labels > 0) throw new UnsupportedError("E_UNSUPPORTED", "vectors of a cross-encoder, which scores pairs of texts: it is for `rerank`");
    return this.#values((list) => {
      for (const text of texts) {
        if (typeof text === "string") list.text(this.#requireTokenizer(), text);
        else list.tokens(this.#checkedTokens(text));
      }
    }, signal);
  }

  async scores(query: string, documents: readonly string[], signal: AbortSignal | undefined): Promise<Float32Array> {
    const { labels, context } = this.info;
    if (labels !== 1) {
      const what = labels === 0 ? "an encoder without a classification head: it is for `embed`" : `a classifier with ${labels} classes`;
      throw new UnsupportedError("E_UNSUPPORTED", `scores of pairs by ${what}`);
    }
    const scores = await this.#values((list) => documents.forEach((each) => list.pair(this.#requireTokenizer(), query, each, context)), signal);
    return Float32Array.from(scores, ([score]) => score as number);
  }

  #checkedTokens(ids: readonly number[]): Uint32Array {
    const { vocabulary } = this.info;
    const invalidToken = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabulary);
    if (invalidToken !== undefined) throw new ValueError("E_VALUE", `token ${invalidToken} of a vocabulary of ${vocabulary}`);
    return Uint32Array.from(ids);
  }

  /** Waits until earlier requests are done; the returned function lets the next one start. */
  async #lock(): Promise<() => void> {
    let unlock!: () => void;
    const previous = this.#queueTail;
    this.#queueTail = new Promise<void>((resolve) => (unlock = resolve));
    await previous;
    if (!this.#disposed) return unlock;
    unlock();
    throw disposedError();
  }

  /** What the model gives for each of the texts that `fill` adds to a list. */
  async #values(fill: (list: RawTexts) => void, signal: AbortSignal | undefined): Promise<Float32Array[]> {
    const unlock = await this.#lock();
    const out: Float32Array[] = [];
    let texts: RawTexts | undefined;
    try {
      signal?.throwIfAborted();
      const list = (texts = guard(() => new this.#Texts()));
      guard(() => fill(list));
      const packs = guard(() => list.packs(this.info.context));
      for (let i = 0; i + 1 < packs.length; i += 2) {
        const [length, count] = [packs[i] as number, packs[i + 1] as number];
        const [used, ...given] = guard(() => this.#raw.inputs(list, out.length, count, length)) as Inputs;
        const bytes = await this.#run(length, used, given, signal);
        if (this.#disposed) throw disposedError();
        const values = new Float32Array(bytes.slice().buffer);
        for (let row = 0; row < count; row += 1) out.push(values.slice(row * this.#outputs, (row + 1) * this.#outputs));
      }
      return out;
    } finally {
      texts?.free();
      unlock();
    }
  }

  /** Runs a plan that reads `length` tokens; makes it if this is the first time. */
  async #run(length: number, used: number, data: readonly Uint8Array[], signal: AbortSignal | undefined): Promise<Uint8Array> {
    const existing = this.#plans.get(length);
    const graph = existing ? undefined : this.#graph(length);
    const { given, values } = (existing ?? graph) as { given: readonly number[]; values: number };
    for (const [at, bytes] of data.slice(0, -1).entries()) await this.#buffers.overwrite(given[at] as number, bytes);
    const [lastGiven, lastData] = [given.at(-1) as number, data.at(-1) as Uint8Array];
    const into = this.#buffers.tensor(lastGiven);
    const read = this.#buffers.tensor(values);
    this.#buffers.setVariable("used", used);
    if (existing) return (await onDevice(this.#host, () => existing.captured.run(into, lastData, read, signal))) as Uint8Array;
    const { bytes, inputs } = graph as { bytes: Uint8Array; inputs: GraphInput[] };
    // a capture runs the plan once already
    this.#plans.set(length, { captured: await this.#buffers.capture(bytes, inputs, lastGiven, lastData, signal), given, values });
    return (await onDevice(this.#host, () => this.#host.raw.data(read, signal))) as Uint8Array;
  }

  #graph(length: number): { bytes: Uint8Array; inputs: GraphInput[]; given: readonly number[]; values: number } {
    const [, draws] = this.#host.raw.random();
    const [bytes, inputs, buffers, given, values] = guard(() => this.#raw.graph(length, draws as number)) as unknown as Graph;
    this.createBuffers(buffers);
    return { bytes, inputs, given, values };
  }

  #requireTokenizer(): RawTokenizer {
    if (this.#tokenizer) return this.#tokenizer;
    throw new UnsupportedError("E_UNSUPPORTED", this.#tokenizerError ?? "the model's files have no tokenizer", { hint: "give tokens instead of text" });
  }

  async encode(text: string, special: boolean): Promise<number[]> {
    if (this.#disposed) throw disposedError();
    const tokenizer = this.#requireTokenizer();
    return Array.from(guard(() => tokenizer.encode(text, special)));
  }

  async decode(ids: readonly number[], skipSpecial: boolean): Promise<string> {
    if (this.#disposed) throw disposedError();
    const tokenizer = this.#requireTokenizer();
    return guard(() => tokenizer.decode(Uint32Array.from(ids), skipSpecial));
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    // free the tensors only once pending requests no longer use them
    void this.#queueTail.then(() => this.#free());
  }

  async #free(): Promise<void> {
    for (const { captured } of this.#plans.values()) captured.free();
    this.#buffers.free();
    this.#tokenizer?.free();
    this.#raw.free();
    await this.#host.raw.collect();
  }
}

const disposedError = (): StateError => new StateError("E_STATE", "this encoder was disposed");
