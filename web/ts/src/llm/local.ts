// A language model in this thread: reads files by ranges, uploads weights as they arrive, and runs a captured plan per
// token. A separate wasm module knows how models are composed: it receives bytes and returns buffers and graphs for the
// device.
import { type Host, onDevice } from "../device.js";
import { StateError, UnsupportedError, ValueError, guard } from "../errors.js";
import { chatModule } from "../chat.js";
import { withoutTensors } from "../gguf.js";
import type { RawChatTemplate } from "../pkg/gradloom_chat.js";
import { rejectForeignNames } from "../options.js";
import { type FileSource, readSource } from "../progress.js";
import { type BufferSpec, type Captured, type GraphInput, ModelBuffers } from "./buffers.js";
import type { ModelKind, OpenedModel } from "./files.js";
import { trainAdapter } from "./learn.js";
import { loadModel } from "./load.js";
import { type RawModel, type RawSplitter, formsModule, llmModule } from "./module.js";
import type {
  AdapterSource, Backend, Finetuned, FinetuneOptions, Generated, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step, ToolCall,
} from "./options.js";

type Module = Awaited<ReturnType<typeof llmModule>>;
type RawWriter = InstanceType<Module["RawWriter"]>;
type RawTokenizer = InstanceType<Module["RawTokenizer"]>;
type Graph = [bytes: Uint8Array, inputs: GraphInput[], buffers: BufferSpec[], tokens: number, values: number, best: number | undefined];

/** The default limit of the context length in tokens. */
const DEFAULT_CONTEXT = 4096;
const DEFAULT_MAX_TOKENS = 512;
/** Names that other libraries give to options. */
const FOREIGN_OPTIONS = { max_new_tokens: "maxTokens", max_completion_tokens: "maxTokens", n_predict: "maxTokens", response_format: "schema" };
/** The number of tokens that are checked at once: the certain token and the guesses after it. */
const CHECKED_AT_ONCE = 8;
/** What a plan gives: the next token's logits, those after every token, or hidden states. */
type Wanted = "next" | "every" | "states";
/** A captured graph. Tensors are ids on the device. */
interface Plan {
  captured: Captured;
  tokens: number;
  values: number;
  best: number | undefined;
}

/** An optional component: undefined if it cannot be read. */
function optional<T>(body: () => T): T | undefined {
  try {
    return guard(body);
  } catch {
    return undefined;
  }
}

/** Decoders, whose folders may have a chat template and say which tokens end a text. */
const decoders = ({ RawModel: Raw, RawTokenizer: Tokenizer }: Module): ModelKind<RawModel> => ({
  ofGguf: (start, size) => new Raw(start, size),
  optional: ["generation_config.json", "tokenizer_config.json", "chat_template.jinja"],
  ofFolder: (config, [generation]) => Raw.ofFolder(config, generation),
  tokenizer: (file) => new Tokenizer(file),
});

/** Loads a language model in this thread. */
export async function loadLocal(from: ModelSource, options: LLMOptions): Promise<LocalModel> {
  const module = llmModule();
  let Writer: Module["RawWriter"];
  const kind = module.then((loaded) => {
    Writer = loaded.RawWriter;
    return decoders(loaded);
  });
  let template: Promise<void> | undefined;
  const begin = (host: Host, opened: OpenedModel<RawModel>): LocalModel => {
    const model = new LocalModel(host, opened, Writer);
    // loads in parallel to the weights
    template = model.readTemplate(opened.template);
    template.catch(() => {});
    return model;
  };
  return loadModel(kind, from, options, begin, async (model, _, bytes, signal) => {
    await template;
    await model.readAdapters(options.adapters ?? {}, { ...options, signal });
    model.build(options.context ?? DEFAULT_CONTEXT, options.cacheType ?? "f32", bytes);
  });
}

export class LocalModel implements Backend {
  info!: ModelInfo;
  readonly metadata: Metadata;
  readonly #host: Host;
  readonly #raw: RawModel;
  readonly #Writer: Module["RawWriter"];
  readonly #tokenizer: RawTokenizer | undefined;
  /** Why the tokenizer of the model's files cannot be used. */
  readonly #tokenizerError: string | undefined;
  #template: RawChatTemplate | undefined;
  readonly #endTokens: ReadonlySet<number>;
  readonly #buffers: ModelBuffers;
  readonly #plans = new Map<string, Promise<Plan>>();
  readonly #adapters: string[] = [];
  #adapter: number | undefined;
  /** The tokens whose keys and values are in the cache. */
  #cachedTokens: number[] = [];
  /** How far caches were written since a text began at position 0, padding and wrong guesses included. */
  #written = 0;
  /** The end of the queue of requests, which run one at a time. */
  #queueTail: Promise<unknown> = Promise.resolve();
  #disposed = false;

  constructor(host: Host, { raw, metadata, tokenizer }: OpenedModel<RawModel>, Writer: Module["RawWriter"]) {
    this.#host = host;
    this.#raw = raw;
    this.#Writer = Writer;
    this.#buffers = new ModelBuffers(host);
    // engines before relaxed SIMD read prompts faster with decoded matrices
    if (host.kind === "wasm") guard(() => raw.multiplyPairs(host.relaxedSimd));
    this.metadata = metadata;
    if (tokenizer instanceof Error) this.#tokenizerError = tokenizer.message;
    else this.#tokenizer = tokenizer as RawTokenizer | undefined;
    this.#endTokens = new Set(guard(() => raw.ends()));
  }

  /** Reads the chat template from the beginning of a GGUF file or from a tokenizer_config.json. */
  async readTemplate(from: Uint8Array | undefined): Promise<void> {
    if (!from) return;
    const { RawChatTemplate: Template } = await chatModule();
    this.#template = optional(() => new Template(withoutTensors(from)));
  }

  /** Reads adapters; call this before the model is built. */
  async readAdapters(given: Readonly<Record<string, AdapterSource>>, options: LLMOptions): Promise<void> {
    for (const [name, source] of Object.entries(given)) {
      const { from, config, scale = 1 } = normalizeAdapter(source);
      const file = await readSource(from, options);
      const isGguf = String.fromCharCode(...file.subarray(0, 4)) === "GGUF";
      const adapterConfig = config ?? (typeof from === "string" || from instanceof URL ? adapterConfigUrl(from) : undefined);
      if (!isGguf && adapterConfig === undefined) {
        throw new ValueError("E_VALUE", `the adapter ${name} of PEFT needs its \`config\`, adapter_config.json`);
      }
      const settings = isGguf ? undefined : await readSource(adapterConfig as FileSource, options);
      guard(() => this.#raw.adapter(settings, file, scale));
      this.#adapters.push(name);
    }
  }

  async useAdapter(name: string | null): Promise<void> {
    const unlock = await this.#lock();
    try {
      const adapterIdx = name === null ? undefined : this.#adapters.indexOf(name);
      if (adapterIdx === -1) throw new ValueError("E_VALUE", `no adapter is called ${name}: there are [${this.#adapters.join(", ")}]`);
      if (adapterIdx === this.#adapter) return;
      const [buffers, writes] = guard(() => this.#raw.useAdapter(adapterIdx)) as unknown as [BufferSpec[], [number, Uint8Array][]];
      this.createBuffers(buffers);
      // cached keys and values were computed with another adapter
      this.#cachedTokens = [];
      this.#adapter = adapterIdx;
      for (const [number, bytes] of writes) await this.#buffers.overwrite(number, bytes);
    } finally {
      unlock();
    }
  }

  async finetune(texts: readonly Lesson[], options: FinetuneOptions): Promise<Finetuned> {
    const { name = "finetuned", signal, onStep, resume } = options;
    const unlock = await this.#lock();
    try {
      signal?.throwIfAborted();
      if (this.#adapters.includes(name)) throw new ValueError("E_VALUE", `an adapter is called ${name} already`);
      const resumedAdapter = resume === undefined ? undefined : this.#adapters.indexOf(resume);
      if (resumedAdapter === -1) throw new ValueError("E_VALUE", `no adapter is called ${resume}: there are [${this.#adapters.join(", ")}]`);
      const tokens = texts.map((each) => this.#exampleTokens(each));
      const reportStep = (step: number, loss: number): void => {
        onStep?.(step, loss);
        this.#assertNotDisposed();
      };
      const { values, losses, state } = await trainAdapter(this.#raw, this.#buffers, tokens, options, reportStep, resumedAdapter);
      const [config, file, isNew] = guard(() => this.#raw.learned(values)) as unknown as [string, Uint8Array, boolean];
      this.#adapters.push(name);
      if (isNew) {
        await this.#forgetPlans();
        this.#cachedTokens = [];
        this.#adapter = undefined;
      }
      return { name, file, config: new TextEncoder().encode(config), losses, state };
    } finally {
      unlock();
    }
  }

  /** The tokens of a training example. */
  #exampleTokens(lesson: Lesson): readonly number[] {
    if (typeof lesson === "string") return this.#encode(lesson, true);
    const isChat = (list: Lesson): list is Exclude<Lesson, string | readonly number[]> => typeof list[0] === "object";
    if (isChat(lesson)) return this.#encode(this.#renderMessages(lesson, {}, false), false);
    return lesson as readonly number[];
  }

  async #forgetPlans(): Promise<void> {
    for (const plan of this.#plans.values()) await plan.then(({ captured }) => captured.free()).catch(() => {});
    this.#plans.clear();
  }

  createBuffers(list: readonly BufferSpec[]): void {
    this.#buffers.create(list);
  }

  /** Builds the model once all weights are loaded. */
  build(requestedContext: number, cacheType: string, bytes: number): void {
    if (!["f32", "f16", "q8"].includes(cacheType)) throw new ValueError("E_VALUE", `a cache of ${cacheType}: it is f32, f16 or q8`);
    if (!Number.isSafeInteger(requestedContext) || requestedContext < 1) throw new ValueError("E_VALUE", `a context of ${requestedContext} tokens`);
    const sizes = guard(() => this.#raw.build(requestedContext, cacheType === "q8" ? "i8" : cacheType)) as unknown as [number, number, number, number, number];
    const [context, vocabulary, trainedContext, layers, width] = sizes;
    const { kind, threads } = this.#host;
    this.info = {
      architecture: String(this.metadata["general.architecture"]),
      context, trainedContext, vocabulary, layers, width, bytes, device: kind, threads,
      adapters: this.#adapters,
      hasTemplate: this.#template !== undefined,
      hasTokenizer: this.#tokenizer !== undefined,
    };
  }

  /** Waits until earlier requests are done; the returned function lets the next one start. */
  async #lock(): Promise<() => void> {
    let unlock!: () => void;
    const previous = this.#queueTail;
    this.#queueTail = new Promise<void>((resolve) => (unlock = resolve));
    await previous;
    if (this.#disposed) {
      unlock();
      throw disposedError();
    }
    return unlock;
  }

  async *run(job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void> {
    const unlock = await this.#lock();
    const { options } = job;
    const start = performance.now();
    const stats: Generated = { promptTokens: 0, reusedTokens: 0, tokens: 0, firstTokenMs: 0, tokensPerSecond: 0, end: undefined, calls: [] };
    let writer: RawWriter | undefined;
    let splitter: RawSplitter | undefined;
    try {
      signal?.throwIfAborted();
      const ids = this.#prompt(job);
      stats.promptTokens = ids.length;
      const activeWriter = (writer = this.#writer(options));
      guard(() => activeWriter.prompt(Uint32Array.from(ids)));
      splitter = await this.#constrain(activeWriter, job);
      const withoutCalls = (text: string): string => (splitter ? guard(() => (splitter as RawSplitter).push(text)) : text);
      const greedy = activeWriter.isGreedy();
      const maxTokens = options.maxTokens ?? DEFAULT_MAX_TOKENS;
      // always process at least the last token, since its logits are needed
      const sharedTokens = this.#reusable(ids);
      stats.reusedTokens = sharedTokens;
      this.#cachedTokens.length = sharedTokens;
      const choose = (bytes: Uint8Array | undefined): number[] => {
        if (!bytes) return [];
        return [greedy ? (intsOf(bytes)[0] as number) : guard(() => activeWriter.choose(bytes))];
      };
      let chosen = maxTokens > 0 ? choose(await this.#process(ids.slice(sharedTokens), greedy, signal)) : [];
      let firstTokenAt = 0;
      while (chosen.length > 0 && stats.tokens < maxTokens) {
        const token = chosen.shift() as number;
        if (!options.ignoreEnd && this.#endTokens.has(token)) {
          stats.end = "end";
          break;
        }
        stats.tokens += 1;
        const now = performance.now();
        if (stats.tokens === 1) {
          stats.firstTokenMs = now - start;
          firstTokenAt = now;
        } else stats.tokensPerSecond = ((stats.tokens - 1) * 1000) / (now - firstTokenAt);
        const text = withoutCalls(this.#tokenizer ? guard(() => activeWriter.push(token, this.#tokenizer as RawTokenizer)) : "");
        yield { token, text, stats: { ...stats } };
        signal?.throwIfAborted();
        this.#assertNotDisposed();
        if (activeWriter.stopped()) stats.end = "stop";
        else if (activeWriter.isComplete()) stats.end = "end";
        else if (stats.tokens >= maxTokens) stats.end = "length";
        // guessed tokens have been read before they come
        else if (this.#cachedTokens.length - chosen.length >= this.info.context) stats.end = "room";
        if (stats.end) break;
        if (chosen.length > 0) continue;
        const guesses = greedy && options.guess ? this.#guesses(token, maxTokens - stats.tokens - 1) : [];
        chosen = guesses.length > 0 ? await this.#check(token, guesses, signal) : choose(await this.#process([token], greedy, signal));
      }
      stats.end ??= "length";
      const rest = withoutCalls(this.#tokenizer ? guard(() => activeWriter.finish(this.#tokenizer as RawTokenizer)) : "");
      const [after = "", ...calls] = splitter ? guard(() => (splitter as RawSplitter).finish()) : [];
      const text = rest + after;
      stats.calls = callsOf(calls);
      yield { token: undefined, text, stats: { ...stats } };
    } finally {
      writer?.free();
      splitter?.free();
      unlock();
    }
  }

  /** Constrains the text to the form that a request gives it. If functions may be called, returns what tells calls from text. */
  async #constrain(writer: RawWriter, { messages, options }: Job): Promise<RawSplitter | undefined> {
    const { schema, grammar, toolChoice } = options;
    const tools = messages && toolsOf(options);
    const given = [schema, grammar, tools].filter((form) => form !== undefined);
    if (given.length > 1) throw new ValueError("E_VALUE", "one of `schema`, `grammar` and `tools` gives a text its form");
    if (given.length === 0) return undefined;
    const { RawSplitter: Splitter, grammarOfGbnf, grammarOfSchema, grammarOfTools } = await formsModule();
    const follow = (words: Uint32Array): void => this.#raw.follow(writer, this.#requireTokenizer(), words);
    return guard(() => {
      if (grammar !== undefined) follow(grammarOfGbnf(grammar));
      else if (schema !== undefined) follow(grammarOfSchema(JSON.stringify(schema)));
      if (!tools) return undefined;
      const name = typeof toolChoice === "object" ? toolChoice.name : undefined;
      const json = JSON.stringify(tools);
      follow(grammarOfTools(json, toolChoice === "required", name));
      return new Splitter(json);
    });
  }

  /** The number of tokens at the beginning of the cached text that need not be processed again. */
  #reusable(ids: readonly number[]): number {
    const { length } = this.#cachedTokens;
    const most = Math.min(ids.length - 1, length);
    let same = 0;
    while (same < most && this.#cachedTokens[same] === ids[same]) same += 1;
    return guard(() => this.#raw.kept(length, this.#written, same));
  }

  /** Notes that `length` tokens, of which some may be padding, are processed after the cached text. */
  #note(length: number): void {
    const at = this.#cachedTokens.length;
    this.#written = Math.max(at === 0 ? 0 : this.#written, at + length);
    this.#buffers.setVariable("position", at);
  }

  #writer(options: Job["options"]): RawWriter {
    const settings = Float64Array.of(
      options.temperature ?? 0, options.topK ?? 0, options.topP ?? 1, options.minP ?? 0, options.repetitionPenalty ?? 1,
      options.presencePenalty ?? 0, options.frequencyPenalty ?? 0, options.seed ?? 0,
    );
    const bias = Object.entries(options.logitBias ?? {});
    const tokens = Uint32Array.from(bias, ([token]) => Number(token));
    const stops = typeof options.stop === "string" ? [options.stop] : [...(options.stop ?? [])];
    return guard(() => new this.#Writer(settings, tokens, Float32Array.from(bias, ([, by]) => by), stops));
  }

  /** The tokens of a request's prompt. */
  #prompt({ prompt, messages, options }: Job): readonly number[] {
    rejectForeignNames("a request", options, FOREIGN_OPTIONS);
    if (messages) return this.#chatPrompt(messages, options);
    const ids = typeof prompt === "string" ? this.#encode(prompt, true) : (prompt ?? []);
    const { vocabulary, context } = this.info;
    const invalidToken = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabulary);
    if (invalidToken !== undefined) throw new ValueError("E_VALUE", `token ${invalidToken} of a vocabulary of ${vocabulary}`);
    if (ids.length === 0) throw new ValueError("E_VALUE", "the prompt is empty");
    if (ids.length > context) throw tooLong(ids.length, context);
    return ids;
  }

  /** The tokens of messages; the oldest messages are dropped until the context has space for an answer. */
  #chatPrompt(messages: NonNullable<Job["messages"]>, options: Job["options"]): number[] {
    const { context } = this.info;
    const { maxTokens = DEFAULT_MAX_TOKENS } = options;
    const reserved = Math.min(maxTokens, context >> 2);
    const list = [...messages];
    for (;;) {
      const ids = this.#encode(this.#renderMessages(list, options, true), false);
      if (ids.length > 0 && ids.length + reserved <= context) return ids;
      const oldest = list.findIndex(({ role }) => role !== "system");
      if (oldest < 0 || oldest === list.length - 1) {
        if (ids.length > 0 && ids.length < context) return ids;
        throw tooLong(ids.length, context);
      }
      do list.splice(oldest, 1);
      // drop an answer together with its question
      while (oldest < list.length - 1 && list[oldest]?.role !== "user");
    }
  }

  /** Renders messages by the template, with the header of an answer if `toAnswer`. */
  #renderMessages(messages: NonNullable<Job["messages"]>, options: Job["options"], toAnswer: boolean): string {
    const { variables = {} } = options;
    const tools = toolsOf(options);
    const template = this.#template;
    if (!template) {
      const hint = "write the prompt yourself and use `generate`";
      throw new UnsupportedError("E_UNSUPPORTED", "the file has no chat template that is known", { hint });
    }
    const date = new Date();
    const now = Uint32Array.of(date.getFullYear(), date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds());
    return guard(() => template.apply(JSON.stringify(messages), toAnswer, tools && JSON.stringify(tools), JSON.stringify(variables), now));
  }

  #requireTokenizer(): RawTokenizer {
    if (this.#tokenizer) return this.#tokenizer;
    const hint = "give tokens instead of text";
    throw new UnsupportedError("E_UNSUPPORTED", this.#tokenizerError ?? "the model's files have no tokenizer", { hint });
  }

  #encode(text: string, special: boolean): number[] {
    const tokenizer = this.#requireTokenizer();
    return Array.from(guard(() => tokenizer.encode(text, special)));
  }

  /** Processes further tokens; gives the bytes of the most likely next token (`greedy`), or of its logits. */
  async #process(tokens: readonly number[], greedy: boolean, signal: AbortSignal | undefined): Promise<Uint8Array | undefined> {
    let bytes: Uint8Array | undefined;
    await this.#runPlans(tokens, "next", signal, (plan, isLast) => {
      if (!isLast) return undefined;
      return greedy ? plan.best : plan.values;
    }, (read) => (bytes = read));
    return bytes;
  }

  /** At most `most` tokens that may follow a token, of which several can be checked at once. */
  #guesses(token: number, most: number): number[] {
    const { length } = this.#cachedTokens;
    if (length + CHECKED_AT_ONCE > this.info.context || most < 1) return [];
    return [...guard(() => this.#raw.guess(Uint32Array.from([...this.#cachedTokens, token]), Math.min(most, CHECKED_AT_ONCE - 1)))];
  }

  /** Processes a token and guesses of those after it. Returns the right ones, and the token that the model chooses after them. */
  async #check(token: number, guesses: readonly number[], signal: AbortSignal | undefined): Promise<number[]> {
    const ids = new Int32Array(CHECKED_AT_ONCE);
    ids.set([token, ...guesses]);
    this.#note(CHECKED_AT_ONCE);
    const bytes = (await this.#step(CHECKED_AT_ONCE, "every", new Uint8Array(ids.buffer), (plan) => plan.best, signal)) as Uint8Array;
    const chosen = [...intsOf(bytes)];
    const wrong = guesses.findIndex((guess, i) => guess !== chosen[i]);
    const right = wrong < 0 ? guesses.length : wrong;
    this.#cachedTokens.push(token, ...guesses.slice(0, right));
    return chosen.slice(0, right + 1);
  }

  /** Runs plans over the tokens that follow the cached text. `outputOf` selects the tensor to read after each plan. */
  async #runPlans(
    tokens: readonly number[],
    wanted: Wanted,
    signal: AbortSignal | undefined,
    outputOf: (plan: Plan, isLast: boolean) => number | undefined,
    onOutput: (bytes: Uint8Array, tokens: number) => void,
  ): Promise<void> {
    const parts = guard(() => this.#raw.parts(tokens.length, this.#cachedTokens.length));
    let at = 0;
    for (let i = 0; i + 1 < parts.length; i += 2) {
      const [length, count] = [parts[i] as number, parts[i + 1] as number];
      const part = tokens.slice(at, at + count);
      const ids = new Int32Array(length);
      ids.set(part);
      const data = new Uint8Array(ids.buffer);
      this.#note(length);
      this.#buffers.setVariable("last", count - 1);
      at += count;
      const bytes = await this.#step(length, wanted, data, (plan) => outputOf(plan, at === tokens.length), signal);
      this.#cachedTokens.push(...part);
      if (bytes) onOutput(bytes, count);
    }
    if (at < tokens.length) throw tooLong(this.#cachedTokens.length + tokens.length - at, this.info.context);
  }

  async #step(
    length: number,
    wanted: Wanted,
    data: Uint8Array,
    outputOf: (plan: Plan) => number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array | undefined> {
    const { raw } = this.#host;
    const key = `${wanted} ${length}`;
    const existing = this.#plans.get(key);
    if (existing) {
      const plan = await existing;
      return onDevice(this.#host, () => plan.captured.run(plan.tokens, data, outputOf(plan), signal)) as Promise<Uint8Array | undefined>;
    }
    const capturing = this.#capture(length, wanted, data, signal);
    this.#plans.set(key, capturing);
    capturing.catch(() => this.#plans.delete(key));
    // the capture has run the plan once already
    const read = outputOf(await capturing);
    return read === undefined ? undefined : ((await onDevice(this.#host, () => raw.data(read, signal))) as Uint8Array);
  }

  /** Captures a plan, which also runs it. */
  async #capture(length: number, wanted: Wanted, data: Uint8Array, signal: AbortSignal | undefined): Promise<Plan> {
    const { raw } = this.#host;
    const [, draws] = raw.random();
    const [bytes, inputs, buffers, tokens, values, best] = guard(() => this.#raw.graph(length, wanted, draws as number)) as unknown as Graph;
    this.createBuffers(buffers);
    const captured = await this.#buffers.capture(bytes, inputs, tokens, data, signal);
    const tensor = (buffer: number): number => this.#buffers.tensor(buffer);
    return { captured, tokens: tensor(tokens), values: tensor(values), best: best === undefined ? undefined : tensor(best) };
  }

  async encode(text: string, special: boolean): Promise<number[]> {
    this.#assertNotDisposed();
    return this.#encode(text, special);
  }

  async decode(ids: readonly number[], skipSpecial: boolean): Promise<string> {
    this.#assertNotDisposed();
    const tokenizer = this.#requireTokenizer();
    return guard(() => tokenizer.decode(Uint32Array.from(ids), skipSpecial));
  }

  /** The hidden states of all tokens, pooled as the file says, as a unit vector. */
  async embed(text: string | readonly number[], signal: AbortSignal | undefined): Promise<Float32Array> {
    const unlock = await this.#lock();
    try {
      const ids = this.#prompt({ prompt: text, options: {} });
      const { width } = this.info;
      const sum = new Float64Array(width);
      // 2 and 3 are the first and the last token
      const pooling = this.metadata[`${this.info.architecture}.pooling_type`];
      const only = pooling === 2 ? 0 : pooling === 3 ? ids.length - 1 : undefined;
      let at = 0;
      this.#cachedTokens = [];
      await this.#runPlans(ids, "states", signal, (plan) => plan.values, (bytes, tokens) => {
        const hiddenStates = new Float32Array(bytes.buffer, bytes.byteOffset, tokens * width);
        hiddenStates.forEach((x, i) => {
          if (only === undefined || Math.floor(i / width) === only - at) sum[i % width]! += x;
        });
        at += tokens;
      });
      const length = Math.hypot(...sum);
      return Float32Array.from(sum, (x) => x / length);
    } finally {
      unlock();
    }
  }

  #assertNotDisposed(): void {
    if (this.#disposed) throw disposedError();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    // free the tensors only once pending requests no longer use them; a module that has ended has freed all, and throws
    void this.#queueTail.then(() => this.#free()).catch(() => {});
  }

  async #free(): Promise<void> {
    const { raw } = this.#host;
    await this.#forgetPlans();
    this.#buffers.free();
    this.#tokenizer?.free();
    this.#template?.free();
    this.#raw.free();
    await raw.collect();
  }
}

/** The 32-bit integers in bytes. */
const intsOf = (bytes: Uint8Array): Int32Array => new Int32Array(bytes.slice().buffer);

/** The functions that the model may call. */
const toolsOf = ({ tools, toolChoice }: Job["options"]): readonly unknown[] | undefined => (tools?.length && toolChoice !== "none" ? tools : undefined);

/** Pairs up a flat list of names and arguments to calls. */
function callsOf(list: readonly string[]): ToolCall[] {
  const calls: ToolCall[] = [];
  for (let i = 0; i + 1 < list.length; i += 2) calls.push({ name: list[i] as string, arguments: JSON.parse(list[i + 1] as string) as ToolCall["arguments"] });
  return calls;
}

/** Normalises the source of an adapter. */
function normalizeAdapter(source: AdapterSource): { from: FileSource; config?: FileSource; scale?: number } {
  return typeof source === "object" && "from" in source ? source : { from: source as FileSource };
}

/** The address of PEFT's configuration, in the folder of the weights. */
const adapterConfigUrl = (from: string | URL): string => String(from).replace(/[^/\\]*$/, "adapter_config.json");

const disposedError = (): StateError => new StateError("E_STATE", "this language model was disposed");

function tooLong(tokens: number, context: number): ValueError {
  const hint = "load the model with a larger `context`, or give it less text";
  return new ValueError("E_VALUE", `${tokens} tokens with room for ${context}`, { hint });
}
