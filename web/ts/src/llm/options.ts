// Types of the language model API, used in the page's thread and in a worker.
import type { ChatMessage } from "../chat.js";
import type { Device, DeviceKind } from "../device.js";
import type { FetchOptions, FileSource } from "../progress.js";

/**
 * The source of a language model: a GGUF file, any file of a split GGUF model (`x-00001-of-00003.gguf`), or a Hugging
 * Face folder (`config.json`, `model.safetensors` or several with their index, `tokenizer.json`). A folder is given by
 * its URL or path (a URL ends with `/`), or by that of its `config.json` or `.safetensors` file. Instead of an address:
 * the files of either kind by name, or a list of `File`s.
 */
export type ModelSource = FileSource | Readonly<Record<string, FileSource>> | readonly File[];

/**
 * The source of a low-rank adapter (LoRA): a GGUF file of llama.cpp, or PEFT's `adapter_model.safetensors`, whose
 * `adapter_config.json` is beside it unless given as `config`. `scale` multiplies its contribution; default: 1.
 */
export type AdapterSource = FileSource | { from: FileSource; config?: FileSource; scale?: number };

/** Options of `LLM.load`. */
export interface LLMOptions extends FetchOptions {
  /**
   * The device to run on. `auto`, the default, is WebGPU on a hardware GPU, else WebAssembly. A device object ties the
   * model to the caller's thread.
   */
  device?: DeviceKind | "auto" | Device;
  /** The context length in tokens. Default: what the model was trained for, but at most 4096. */
  context?: number;
  /**
   * The type of the cache of keys and values. `f16` takes half the memory and changes logits by some thousandths; `q8`,
   * bytes with a factor for each head of each token, takes about a quarter and changes them by about a hundredth.
   * Default: `f32`.
   */
  cacheType?: "f32" | "f16" | "q8";
  /** Adapters by name; `useAdapter` activates one. */
  adapters?: Readonly<Record<string, AdapterSource>>;
  /**
   * False runs the model in the caller's thread. By default a page uses a worker, so that it stays responsive; Node
   * does not.
   */
  worker?: boolean;
}

/** Options for generating text. */
export interface GenerateOptions {
  signal?: AbortSignal;
  /** The most tokens to generate. Default: 512. */
  maxTokens?: number;
  /** Divides the logits before sampling; 0, the default, always takes the most likely token. */
  temperature?: number;
  /** Samples only from this many of the most likely tokens. */
  topK?: number;
  /** Samples only from the smallest set of most likely tokens whose probabilities add up to this. */
  topP?: number;
  /** Samples only from tokens with at least this fraction of the highest probability. */
  minP?: number;
  /** Makes tokens that occurred before less likely if above 1. */
  repetitionPenalty?: number;
  /** Subtracted from the logit of each token that was generated before. */
  presencePenalty?: number;
  /** Subtracted from the logit of a token, times how often it was generated. */
  frequencyPenalty?: number;
  /** Values to add to the logits of tokens, by token id. */
  logitBias?: Readonly<Record<number, number>>;
  /** Seed of the random choices. Default: 0. */
  seed?: number;
  /** Stop strings: generation ends before one of these. */
  stop?: string | readonly string[];
  /** Constrains the output to JSON that matches this JSON schema. Unsupported keywords of the schema are rejected. */
  schema?: Readonly<Record<string, unknown>>;
  /** Constrains the output to this grammar, in the notation of llama.cpp (GBNF); the text follows its rule `root`. */
  grammar?: string;
  /**
   * Guesses tokens from repetitions in the text, and checks several of them at once: the same text, sooner if it repeats
   * itself. Only without sampling, penalties, biases and constraints; else it changes nothing.
   */
  guess?: boolean;
  /** Continues after end-of-text tokens. */
  ignoreEnd?: boolean;
}

/** Options for answering messages. */
export interface AnswerOptions extends GenerateOptions {
  /**
   * Functions that the model may call, in OpenAI's form `{ type: "function", function: { name, description, parameters
   * } }`; `parameters` is a JSON schema, to which the arguments of calls are constrained. Calls are not part of the
   * text: `stats.calls` lists them at the end. How well a model uses functions depends on the model and its template.
   */
  tools?: readonly unknown[];
  /**
   * Whether functions are called: `auto` lets the model decide (default), `none` hides them, `required` forces a call,
   * `name` forces that function.
   */
  toolChoice?: "auto" | "none" | "required" | { name: string };
  /** Further variables of the chat template, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>;
}

/** Options of `LLM.finetune`. */
export interface FinetuneOptions {
  signal?: AbortSignal;
  /** The adapter's name for `useAdapter`. Default: `finetuned`. */
  name?: string;
  /**
   * The rank of the adapter's matrices, and the numerator of the scale `alpha / rank`. Defaults: 8, and twice the rank.
   */
  rank?: number;
  alpha?: number;
  /**
   * Which matrices of the layers get an adapter, by PEFT's names (`target_modules`, e.g. `q_proj`) or GGUF's
   * (`attn_q`). Default: all.
   */
  targets?: readonly string[];
  /**
   * Total steps of AdamW, including those before a given `state` (default 100), texts per step (default 4), and tokens
   * per text (default 128); longer texts are split.
   */
  steps?: number;
  batch?: number;
  length?: number;
  /** The name of an adapter whose training is continued; it keeps its rank, alpha and targets. */
  resume?: string;
  /**
   * The `state` that the earlier run of `resume` returned: training then continues as if uninterrupted. Without it the
   * optimiser starts fresh.
   */
  state?: Uint8Array;
  /**
   * The learning-rate schedule (constant, or decaying to 0 at the last step), and the number of steps over which it
   * first rises from 0 (default 0).
   */
  schedule?: "constant" | "linear" | "cosine";
  warmup?: number;
  /** The learning rate (default 2e-4), and the decoupled weight decay of AdamW (default 0). */
  learningRate?: number;
  weightDecay?: number;
  /** The gradient norm above which gradients are scaled down. Default: 1. */
  maxNorm?: number;
  /** Seed of the initial values and of the order of texts. Default: 0. */
  seed?: number;
  /** Called for each step with its number from 0 and the loss before it. */
  onStep?: (step: number, loss: number) => void;
}

/**
 * The result of `finetune`: PEFT's two files, which `adapters` of `LLM.load` accepts as `{ from: file, config }`; the
 * loss before each step; and the optimiser's state as safetensors, for continuing in a later run.
 */
export interface Finetuned {
  name: string;
  file: Uint8Array;
  config: Uint8Array;
  losses: readonly number[];
  state: Uint8Array;
}

/** A training example: a text, its tokens, or a chat. */
export type Lesson = string | readonly number[] | readonly ChatMessage[];

/**
 * Why generation ended: an end token (`end`), a stop string (`stop`), the maximum number of tokens (`length`), or a
 * full context (`room`).
 */
export type End = "end" | "stop" | "length" | "room";

/** A function call that the model requests. */
export interface ToolCall {
  name: string;
  arguments: Readonly<Record<string, unknown>>;
}

/** Statistics of a request. */
export interface Generated {
  /** Tokens of the prompt, and how many of them were reused from the previous text. */
  promptTokens: number;
  reusedTokens: number;
  /** Tokens generated. */
  tokens: number;
  /** Milliseconds until the first generated token. */
  firstTokenMs: number;
  /** Generated tokens per second, without the first one. */
  tokensPerSecond: number;
  /** Why generation ended; undefined while it runs or if it was aborted. */
  end: End | undefined;
  /** Function calls of the model, once generation has ended. */
  calls: readonly ToolCall[];
}

/** Properties of a language model. */
export interface ModelInfo {
  /** The architecture by its name in GGUF, e.g. `llama`. */
  architecture: string;
  /** The context length in tokens, and the one that the model was trained with. */
  context: number;
  trainedContext: number;
  /** Number of tokens in the vocabulary. */
  vocabulary: number;
  layers: number;
  /** Elements of a hidden state, and of an embedding. */
  width: number;
  /** Bytes of its weights in the file. */
  bytes: number;
  /** The device and the number of threads. */
  device: DeviceKind;
  threads: number;
  /** Names of the adapters that it was loaded with. */
  adapters: readonly string[];
  /** Whether the model has a supported chat template, and a supported tokenizer. */
  hasTemplate: boolean;
  hasTokenizer: boolean;
}

/** A value of a file's metadata. */
export type MetaValue = string | number | boolean | readonly (string | number | boolean)[];

/** The metadata of a file, except for long lists such as the vocabulary. */
export type Metadata = Readonly<Record<string, MetaValue>>;

/** Converts text to a model's tokens and back. */
export interface ModelTokenizer {
  /** The tokens of a text; with `special` (default) including those that the model expects around a text. */
  encode(text: string, options?: { special?: boolean }): Promise<number[]>;
  /** The text of tokens; special tokens are left out unless `skipSpecial` is false. */
  decode(ids: readonly number[], options?: { skipSpecial?: boolean }): Promise<string>;
}

/** A request: a text or tokens to continue, or messages to answer. */
export interface Job {
  prompt?: string | readonly number[];
  messages?: readonly ChatMessage[];
  /** Without the signal, which cannot be posted to a worker. */
  options: Omit<AnswerOptions, "signal">;
}

/** A generated token, and the text that it completed. The final step has the remaining text and no token. */
export interface Step {
  token: number | undefined;
  text: string;
  stats: Generated;
}

/** A language model in this thread or in a worker. */
export interface Backend {
  readonly info: ModelInfo;
  readonly metadata: Metadata;
  /** Whether its worker has ended. */
  readonly ended?: boolean;
  run(job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void>;
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
  embed(text: string | readonly number[], signal: AbortSignal | undefined): Promise<Float32Array>;
  useAdapter(name: string | null): Promise<void>;
  finetune(texts: readonly Lesson[], options: FinetuneOptions): Promise<Finetuned>;
  dispose(): void;
}
