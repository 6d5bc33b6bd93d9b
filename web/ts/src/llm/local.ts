// A language model in this thread: reads files by ranges, uploads weights as they arrive, and runs a captured plan per
// token. A separate wasm module knows how models are composed: it receives bytes and returns buffers and graphs for the
// device.
import { type Host, hostOf, onDevice } from "../device.js";
import { StateError, UnsupportedError, ValueError, guard } from "../errors.js";
import { chatModule } from "../chat.js";
import { withoutTensors } from "../gguf.js";
import type { RawChatTemplate } from "../pkg/gradloom_chat.js";
import { join, prefetch } from "../parts.js";
import { type FileSource, readSource } from "../progress.js";
import type { Ranged, Told } from "../ranges.js";
import { type Span, inTurn, runsOf } from "../runs.js";
import { Slices } from "../turns.js";
import { type Opened, type RawModel, type RawTokenizer, openModel } from "./files.js";
import { learn } from "./learn.js";
import { llmModule } from "./module.js";
import type {
  AdapterSource, Backend, Finetuned, FinetuneOptions, Generated, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step, ToolCall,
} from "./options.js";

type Module = Awaited<ReturnType<typeof llmModule>>;
type RawWriter = InstanceType<Module["RawWriter"]>;
type Captured = Awaited<ReturnType<Host["raw"]["captured"]>>;
type Made = [number: number, dtype: string, elements: number, bytes: Uint8Array | undefined];
type Variable = [name: string, least: number, most: number];
type Graph = [bytes: Uint8Array, inputs: (number | Variable)[], buffers: Made[], tokens: number, values: number, best: number | undefined];

/** The default limit of the context length in tokens. */
const ROOM = 4096;
const MOST_TOKENS = 512;
const BYTES: Readonly<Record<string, number>> = { f32: 4, i32: 4, u32: 4, f16: 2, bf16: 2, u8: 1, i8: 1, bool: 1, f64: 8, i64: 8, u64: 8, u16: 2, i16: 2 };

/** A captured graph. Tensors are ids on the device. */
interface Plan {
  captured: Captured;
  tokens: number;
  values: number;
  best: number | undefined;
}

/**
 * Launch variables of several models on a device need distinct names, which are the same in each visit so that cached
 * plans apply.
 */
const places = new WeakMap<Host, Set<number>>();

function takePlace(host: Host): number {
  const taken = places.get(host) ?? new Set();
  places.set(host, taken);
  let place = 0;
  while (taken.has(place)) place += 1;
  taken.add(place);
  return place;
}

/** An optional component: undefined if it cannot be read. */
function maybe<T>(body: () => T): T | undefined {
  try {
    return guard(body);
  } catch {
    return undefined;
  }
}

/** The byte range of a tensor in its file. */
interface Entry extends Span {
  number: number;
}

/** Loads a language model in this thread. */
export async function loadLocal(from: ModelSource, options: LLMOptions): Promise<LocalModel> {
  const { signal, onProgress } = options;
  prefetch("graphs");
  const started = hostOf(options.device);
  const module = llmModule();
  for (const each of [started, module]) each.catch(() => {});
  let [loaded, total] = [0, 0];
  const told: Told = (bytes) => {
    loaded += bytes;
    // the download store reads whole blocks, which can exceed what was requested
    onProgress?.({ phase: "download", loaded: total > 0 ? Math.min(loaded, total) : loaded, total });
  };
  // one failure aborts everything that is in progress
  const stop = new AbortController();
  const abort = (): void => stop.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  let model: LocalModel | undefined;
  const files: Ranged[] = [];
  try {
    stop.signal.throwIfAborted();
    onProgress?.({ phase: "parse", loaded: 0, total: 0 });
    const opened = await openModel(await module, from, { ...options, signal: stop.signal }, told, files);
    const { raw } = opened;
    onProgress?.({ phase: "device", loaded: 0, total: 0 });
    const host = await started;
    await join(host.engine, "graphs");
    const made = new LocalModel(host, opened, (await module).RawWriter);
    model = made;
    // loads in parallel to the weights
    const template = made.readTemplate(opened.template);
    template.catch(() => {});
    const entries = files.map((): Entry[] => []);
    (guard(() => raw.entries()) as [number, number, number][]).forEach(([file, start, end], number) => entries[file]?.push({ number, start, end }));
    const runs = entries.flatMap((list, at) => {
      const file = files[at] as Ranged;
      return runsOf(list.sort((a, b) => a.start - b.start), (entry): Span => entry).map((run) => ({ ...run, file }));
    });
    const bytes = entries.flat().reduce((sum, { start, end }) => sum + end - start, 0);
    total = loaded + runs.reduce((sum, { file, start, end }) => sum + (end <= file.head.length ? 0 : end - start), 0);
    const slices = new Slices();
    await inTurn(runs, async ({ file, start, end, items }) => {
      const part = end <= file.head.length ? file.head.subarray(start, end) : await file.read(start, end, told);
      for (const { number, start: at, end: to } of items) {
        stop.signal.throwIfAborted();
        made.take(guard(() => raw.weight(number, part.subarray(at - start, to - start))) as Made[]);
        // data that is already in memory arrives without waiting, so yield here
        await slices.breathe(stop.signal);
      }
    });
    await template;
    await made.readAdapters(options.adapters ?? {}, { ...options, signal: stop.signal });
    made.build(options.context ?? ROOM, bytes);
    return made;
  } catch (error) {
    stop.abort();
    model?.dispose();
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener("abort", abort);
    await Promise.all(files.map((file) => file.close()));
  }
}

export class LocalModel implements Backend {
  info!: ModelInfo;
  readonly metadata: Metadata;
  readonly #host: Host;
  readonly #raw: RawModel;
  readonly #Writer: Module["RawWriter"];
  readonly #tokenizer: RawTokenizer | undefined;
  #template: RawChatTemplate | undefined;
  readonly #ends: ReadonlySet<number>;
  readonly #place: number;
  /** The device's tensors by buffer number, and the tensors of launch variables. */
  readonly #buffers = new Map<number, number>();
  readonly #variables: number[] = [];
  readonly #plans = new Map<string, Promise<Plan>>();
  readonly #adapters: string[] = [];
  #adapter: number | undefined;
  /** The tokens whose keys and values are in the cache. */
  #text: number[] = [];
  /** The end of the queue of requests, which run one at a time. */
  #last: Promise<unknown> = Promise.resolve();
  #disposed = false;

  constructor(host: Host, { raw, metadata, tokenizer }: Opened, Writer: Module["RawWriter"]) {
    this.#host = host;
    this.#raw = raw;
    this.#Writer = Writer;
    this.#place = takePlace(host);
    this.metadata = metadata;
    this.#tokenizer = tokenizer;
    this.#ends = new Set(guard(() => raw.ends()));
  }

  /** Reads the chat template from the beginning of a GGUF file or from a tokenizer_config.json. */
  async readTemplate(from: Uint8Array | undefined): Promise<void> {
    if (!from) return;
    const { RawChatTemplate: Template } = await chatModule();
    this.#template = maybe(() => new Template(withoutTensors(from)));
  }

  /** Reads adapters; call this before the model is built. */
  async readAdapters(given: Readonly<Record<string, AdapterSource>>, options: LLMOptions): Promise<void> {
    for (const [name, source] of Object.entries(given)) {
      const { from, config, scale = 1 } = partsOf(source);
      const file = await readSource(from, options);
      const isGguf = String.fromCharCode(...file.subarray(0, 4)) === "GGUF";
      const beside = config ?? (typeof from === "string" || from instanceof URL ? configOf(from) : undefined);
      if (!isGguf && beside === undefined) {
        throw new ValueError("E_VALUE", `the adapter ${name} of PEFT needs its \`config\`, adapter_config.json`);
      }
      const settings = isGguf ? undefined : await readSource(beside as FileSource, options);
      guard(() => this.#raw.adapter(settings, file, scale));
      this.#adapters.push(name);
    }
  }

  async useAdapter(name: string | null): Promise<void> {
    const done = await this.#turn();
    try {
      const which = name === null ? undefined : this.#adapters.indexOf(name);
      if (which === -1) throw new ValueError("E_VALUE", `no adapter is called ${name}: there are [${this.#adapters.join(", ")}]`);
      if (which === this.#adapter) return;
      const [buffers, written] = guard(() => this.#raw.useAdapter(which)) as unknown as [Made[], [number, Uint8Array][]];
      this.take(buffers);
      // cached keys and values were computed with another adapter
      this.#text = [];
      this.#adapter = which;
      for (const [number, bytes] of written) {
        await onDevice(this.#host, () => this.#host.raw.overwrite(this.#buffers.get(number) as number, bytes));
      }
    } finally {
      done();
    }
  }

  async finetune(texts: readonly Lesson[], options: FinetuneOptions): Promise<Finetuned> {
    const { name = "finetuned", signal, onStep, resume } = options;
    const done = await this.#turn();
    try {
      signal?.throwIfAborted();
      if (this.#adapters.includes(name)) throw new ValueError("E_VALUE", `an adapter is called ${name} already`);
      const from = resume === undefined ? undefined : this.#adapters.indexOf(resume);
      if (from === -1) throw new ValueError("E_VALUE", `no adapter is called ${resume}: there are [${this.#adapters.join(", ")}]`);
      const tokens = texts.map((each) => this.#lesson(each));
      const place = {
        host: this.#host,
        raw: this.#raw,
        take: (list: readonly Made[]) => this.take(list),
        tensor: (buffer: number) => this.#buffers.get(buffer) as number,
        forget: (buffer: number) => this.#buffers.delete(buffer),
      };
      const told = (step: number, loss: number): void => {
        onStep?.(step, loss);
        this.#live();
      };
      const { values, losses, state } = await learn(place, tokens, options, told, from);
      const [config, file, isNew] = guard(() => this.#raw.learned(values)) as unknown as [string, Uint8Array, boolean];
      this.#adapters.push(name);
      if (isNew) {
        await this.#forgetPlans();
        this.#text = [];
        this.#adapter = undefined;
      }
      return { name, file, config: new TextEncoder().encode(config), losses, state };
    } finally {
      done();
    }
  }

  /** The tokens of a training example. */
  #lesson(lesson: Lesson): readonly number[] {
    if (typeof lesson === "string") return this.#encode(lesson, true);
    const isChat = (list: Lesson): list is Exclude<Lesson, string | readonly number[]> => typeof list[0] === "object";
    if (isChat(lesson)) return this.#encode(this.#written(lesson, {}, false), false);
    return lesson as readonly number[];
  }

  async #forgetPlans(): Promise<void> {
    for (const plan of this.#plans.values()) await plan.then(({ captured }) => captured.free()).catch(() => {});
    this.#plans.clear();
  }

  /** Creates buffers on the device. */
  take(list: readonly Made[]): void {
    for (const [number, dtype, elements, bytes] of list) {
      const data = bytes ?? new Uint8Array(elements * (BYTES[dtype] ?? 8));
      this.#buffers.set(number, guard(() => this.#host.raw.placed(dtype, data)));
    }
  }

  /** Builds the model once all weights are loaded. */
  build(wanted: number, bytes: number): void {
    if (!Number.isSafeInteger(wanted) || wanted < 1) throw new ValueError("E_VALUE", `a context of ${wanted} tokens`);
    const [context, vocabulary, trainedContext, layers, width] = guard(() => this.#raw.build(wanted)) as unknown as [number, number, number, number, number];
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
  async #turn(): Promise<() => void> {
    let done!: () => void;
    const before = this.#last;
    this.#last = new Promise<void>((resolve) => (done = resolve));
    await before;
    if (this.#disposed) {
      done();
      throw gone();
    }
    return done;
  }

  async *run(job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void> {
    const done = await this.#turn();
    const { options } = job;
    const start = performance.now();
    const stats: Generated = { promptTokens: 0, reusedTokens: 0, tokens: 0, firstTokenMs: 0, tokensPerSecond: 0, end: undefined, calls: [] };
    let writer: RawWriter | undefined;
    try {
      signal?.throwIfAborted();
      const ids = this.#prompt(job);
      stats.promptTokens = ids.length;
      const mine = (writer = this.#writer(options));
      guard(() => mine.prompt(Uint32Array.from(ids)));
      const { schema, toolChoice } = options;
      const tools = job.messages && toolsOf(options);
      if (schema !== undefined && tools) throw new ValueError("E_VALUE", "a text has the form of `schema`, or functions are called: `tools`");
      if (schema !== undefined) guard(() => this.#raw.constrain(mine, this.#known(), JSON.stringify(schema)));
      else if (tools) {
        const name = typeof toolChoice === "object" ? toolChoice.name : undefined;
        guard(() => this.#raw.letCall(mine, this.#known(), JSON.stringify(tools), toolChoice === "required", name));
      }
      const greedy = mine.isGreedy();
      const most = options.maxTokens ?? MOST_TOKENS;
      // always process at least the last token, since its logits are needed
      let same = 0;
      while (same < ids.length - 1 && same < this.#text.length && this.#text[same] === ids[same]) same += 1;
      stats.reusedTokens = same;
      this.#text.length = same;
      let bytes = most > 0 ? await this.#read(ids.slice(same), greedy, signal) : undefined;
      let first = 0;
      while (bytes && stats.tokens < most) {
        const token = greedy ? new DataView(bytes.buffer, bytes.byteOffset).getInt32(0, true) : guard(() => mine.choose(bytes as Uint8Array));
        if (!options.ignoreEnd && this.#ends.has(token)) {
          stats.end = "end";
          break;
        }
        stats.tokens += 1;
        const now = performance.now();
        if (stats.tokens === 1) {
          stats.firstTokenMs = now - start;
          first = now;
        } else stats.tokensPerSecond = ((stats.tokens - 1) * 1000) / (now - first);
        const text = this.#tokenizer ? guard(() => mine.push(token, this.#tokenizer as RawTokenizer)) : "";
        yield { token, text, stats: { ...stats } };
        signal?.throwIfAborted();
        this.#live();
        if (mine.stopped()) stats.end = "stop";
        else if (mine.isComplete()) stats.end = "end";
        else if (stats.tokens >= most) stats.end = "length";
        else if (this.#text.length >= this.info.context) stats.end = "room";
        if (stats.end) break;
        bytes = await this.#read([token], greedy, signal);
      }
      stats.end ??= "length";
      const text = this.#tokenizer ? guard(() => mine.finish(this.#tokenizer as RawTokenizer)) : "";
      stats.calls = callsOf(guard(() => mine.calls()));
      yield { token: undefined, text, stats: { ...stats } };
    } finally {
      writer?.free();
      done();
    }
  }

  #writer(o: Job["options"]): RawWriter {
    const how = Float64Array.of(
      o.temperature ?? 0, o.topK ?? 0, o.topP ?? 1, o.minP ?? 0, o.repetitionPenalty ?? 1, o.presencePenalty ?? 0, o.frequencyPenalty ?? 0,
      o.seed ?? 0,
    );
    const bias = Object.entries(o.logitBias ?? {});
    const tokens = Uint32Array.from(bias, ([token]) => Number(token));
    const stops = typeof o.stop === "string" ? [o.stop] : [...(o.stop ?? [])];
    return guard(() => new this.#Writer(how, tokens, Float32Array.from(bias, ([, by]) => by), stops));
  }

  /** The tokens of a request's prompt. */
  #prompt({ prompt, messages, options }: Job): readonly number[] {
    if (messages) return this.#chat(messages, options);
    const ids = typeof prompt === "string" ? this.#encode(prompt, true) : (prompt ?? []);
    const { vocabulary, context } = this.info;
    const wrong = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocabulary);
    if (wrong !== undefined) throw new ValueError("E_VALUE", `token ${wrong} of a vocabulary of ${vocabulary}`);
    if (ids.length === 0) throw new ValueError("E_VALUE", "the prompt is empty");
    if (ids.length > context) throw tooLong(ids.length, context);
    return ids;
  }

  /** The tokens of messages; the oldest messages are dropped until the context has space for an answer. */
  #chat(messages: NonNullable<Job["messages"]>, options: Job["options"]): number[] {
    const { context } = this.info;
    const { maxTokens = MOST_TOKENS } = options;
    const wanted = Math.min(maxTokens, context >> 2);
    const list = [...messages];
    for (;;) {
      const ids = this.#encode(this.#written(list, options, true), false);
      if (ids.length > 0 && ids.length + wanted <= context) return ids;
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
  #written(messages: NonNullable<Job["messages"]>, options: Job["options"], toAnswer: boolean): string {
    const { variables = {} } = options;
    const tools = toolsOf(options);
    const template = this.#template;
    if (!template) {
      const hint = "write the prompt yourself and use `generate`";
      throw new UnsupportedError("E_UNSUPPORTED", "the file has no chat template that is known", { hint });
    }
    const at = new Date();
    const now = Uint32Array.of(at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds());
    return guard(() => template.apply(JSON.stringify(messages), toAnswer, tools && JSON.stringify(tools), JSON.stringify(variables), now));
  }

  #known(): RawTokenizer {
    if (this.#tokenizer) return this.#tokenizer;
    const hint = "give tokens instead of text";
    throw new UnsupportedError("E_UNSUPPORTED", "the file has no tokenizer that is known", { hint });
  }

  #encode(text: string, special: boolean): number[] {
    const tokenizer = this.#known();
    const both = guard(() => tokenizer.encode(text, undefined, special));
    // the second half holds the index of each token's text
    return Array.from(both.subarray(0, both.length / 2));
  }

  /** Processes further tokens; gives the bytes of the most likely next token (`best`), or of its logits. */
  async #read(tokens: readonly number[], best: boolean, signal: AbortSignal | undefined): Promise<Uint8Array | undefined> {
    let bytes: Uint8Array | undefined;
    await this.#through(tokens, false, signal, (plan, isLast) => {
      if (!isLast) return undefined;
      return best ? plan.best : plan.values;
    }, (read) => (bytes = read));
    return bytes;
  }

  /** Runs plans over the tokens that follow the cached text. `wanted` selects the tensor to read after each plan. */
  async #through(
    tokens: readonly number[],
    states: boolean,
    signal: AbortSignal | undefined,
    wanted: (plan: Plan, isLast: boolean) => number | undefined,
    got: (bytes: Uint8Array, tokens: number) => void,
  ): Promise<void> {
    const parts = guard(() => this.#raw.parts(tokens.length, this.#text.length));
    const { raw } = this.#host;
    let at = 0;
    for (let i = 0; i + 1 < parts.length; i += 2) {
      const [length, count] = [parts[i] as number, parts[i + 1] as number];
      const part = tokens.slice(at, at + count);
      const ids = new Int32Array(length);
      ids.set(part);
      const data = new Uint8Array(ids.buffer);
      raw.setVar(this.#named("position"), this.#text.length);
      raw.setVar(this.#named("last"), count - 1);
      at += count;
      const bytes = await this.#step(length, states, data, (plan) => wanted(plan, at === tokens.length), signal);
      this.#text.push(...part);
      if (bytes) got(bytes, count);
    }
    if (at < tokens.length) throw tooLong(this.#text.length + tokens.length - at, this.info.context);
  }

  async #step(
    length: number,
    states: boolean,
    data: Uint8Array,
    wanted: (plan: Plan) => number | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Uint8Array | undefined> {
    const { raw } = this.#host;
    const key = `${states ? "states" : "next"} ${length}`;
    const known = this.#plans.get(key);
    if (known) {
      const plan = await known;
      return onDevice(this.#host, () => plan.captured.run(plan.tokens, data, wanted(plan), signal)) as Promise<Uint8Array | undefined>;
    }
    const making = this.#capture(length, states, data, signal);
    this.#plans.set(key, making);
    making.catch(() => this.#plans.delete(key));
    // the capture has run the plan once already
    const read = wanted(await making);
    return read === undefined ? undefined : ((await onDevice(this.#host, () => raw.data(read, signal))) as Uint8Array);
  }

  /** Captures a plan, which also runs it. */
  async #capture(length: number, states: boolean, data: Uint8Array, signal: AbortSignal | undefined): Promise<Plan> {
    const { raw } = this.#host;
    const [, draws] = raw.random();
    const [bytes, inputs, buffers, tokens, values, best] = guard(() => this.#raw.graph(length, states, draws as number)) as unknown as Graph;
    this.take(buffers);
    const tensor = (buffer: number): number => this.#buffers.get(buffer) as number;
    const held = Uint32Array.from(inputs, (input) => {
      if (typeof input === "number") return tensor(input);
      const [name, least, most] = input;
      const id = guard(() => raw.variable(this.#named(name), false, least, most));
      this.#variables.push(id);
      return id;
    });
    const roots = guard(() => raw.graph(bytes, held));
    try {
      const captured = await onDevice(this.#host, () => raw.captured(roots, held, tensor(tokens), data, signal));
      return { captured, tokens: tensor(tokens), values: tensor(values), best: best === undefined ? undefined : tensor(best) };
    } finally {
      roots.forEach((id) => raw.free(id));
    }
  }

  #named(name: string): string {
    return this.#place === 0 ? name : `${name} ${this.#place}`;
  }

  async encode(text: string, special: boolean): Promise<number[]> {
    this.#live();
    return this.#encode(text, special);
  }

  async decode(ids: readonly number[], skipSpecial: boolean): Promise<string> {
    this.#live();
    const tokenizer = this.#known();
    return guard(() => tokenizer.decode(Uint32Array.from(ids), skipSpecial));
  }

  /** The mean of the hidden states of all tokens, as a unit vector. */
  async embed(text: string | readonly number[], signal: AbortSignal | undefined): Promise<Float32Array> {
    const done = await this.#turn();
    try {
      const ids = this.#prompt({ prompt: text, options: {} });
      const { width } = this.info;
      const sum = new Float64Array(width);
      this.#text = [];
      await this.#through(ids, true, signal, (plan) => plan.values, (bytes, tokens) => {
        const states = new Float32Array(bytes.buffer, bytes.byteOffset, tokens * width);
        states.forEach((x, i) => (sum[i % width]! += x));
      });
      const length = Math.hypot(...sum);
      return Float32Array.from(sum, (x) => x / length);
    } finally {
      done();
    }
  }

  #live(): void {
    if (this.#disposed) throw gone();
  }

  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    // free the tensors only once pending requests no longer use them
    void this.#last.then(() => this.#free());
  }

  async #free(): Promise<void> {
    const { raw } = this.#host;
    await this.#forgetPlans();
    for (const id of [...this.#buffers.values(), ...this.#variables]) raw.free(id);
    this.#tokenizer?.free();
    this.#template?.free();
    this.#raw.free();
    places.get(this.#host)?.delete(this.#place);
    await raw.collect();
  }
}

/** The functions that the model may call. */
const toolsOf = ({ tools, toolChoice }: Job["options"]): readonly unknown[] | undefined => (tools?.length && toolChoice !== "none" ? tools : undefined);

/** Pairs up a flat list of names and arguments to calls. */
function callsOf(list: readonly string[]): ToolCall[] {
  const calls: ToolCall[] = [];
  for (let i = 0; i + 1 < list.length; i += 2) calls.push({ name: list[i] as string, arguments: JSON.parse(list[i + 1] as string) as ToolCall["arguments"] });
  return calls;
}

/** Normalises the source of an adapter. */
function partsOf(source: AdapterSource): { from: FileSource; config?: FileSource; scale?: number } {
  return typeof source === "object" && "from" in source ? source : { from: source as FileSource };
}

/** The address of PEFT's configuration, in the folder of the weights. */
const configOf = (from: string | URL): string => String(from).replace(/[^/\\]*$/, "adapter_config.json");

const gone = (): StateError => new StateError("E_STATE", "this language model was disposed");

function tooLong(tokens: number, context: number): ValueError {
  const hint = "load the model with a larger `context`, or give it less text";
  return new ValueError("E_VALUE", `${tokens} tokens with room for ${context}`, { hint });
}
