// What language models take and give, in the page's thread and in a worker's.
import type { ChatMessage } from "../chat.js";
import type { Device, DeviceKind } from "../device.js";
import type { FetchOptions, FileSource } from "../progress.js";

/**
 * What a language model is loaded from: a GGUF file, any of the files of a split one (`x-00001-of-00003.gguf`) at a URL or path, or a folder as
 * Hugging Face has it (`config.json`, `model.safetensors` or several with their index, `tokenizer.json`): the URL or path of the folder, which in a
 * URL ends with `/`, or of its `config.json` or `.safetensors` file. In place of an address, the files of either kind by name, or a list of `File`s.
 */
export type ModelSource = FileSource | Readonly<Record<string, FileSource>> | readonly File[];

/**
 * An adapter of low rank: a GGUF file of llama.cpp, or `adapter_model.safetensors` of PEFT, whose `adapter_config.json` lies beside it unless
 * `config` says where. Its matrices are added `scale` times, once unless told otherwise.
 */
export type AdapterSource = FileSource | { from: FileSource; config?: FileSource; scale?: number };

/** How a language model is loaded. */
export interface LLMOptions extends FetchOptions {
  /** `auto`, the default, is WebGPU where there is a real one, else WebAssembly. A device that `init` returned is the caller's thread's. */
  device?: DeviceKind | "auto" | Device;
  /** Tokens of a text that there is room for: what the model was made for, 4096 at most, unless told otherwise. */
  context?: number;
  /** Adapters by name, which `useAdapter` puts into use. */
  adapters?: Readonly<Record<string, AdapterSource>>;
  /** False works in the caller's thread. By default a page has a worker for it, so that nothing waits; Node has none. */
  worker?: boolean;
}

/** How text is made. */
export interface GenerateOptions {
  signal?: AbortSignal;
  /** Tokens at most; 512 unless told otherwise. */
  maxTokens?: number;
  /** Divides the logits; 0, the default, takes the most likely token. */
  temperature?: number;
  /** Only so many of the most likely tokens. */
  topK?: number;
  /** Only the most likely tokens that together have this probability. */
  topP?: number;
  /** Only tokens with at least this share of the most likely one's probability. */
  minP?: number;
  /** Makes tokens that were there less likely if above 1. */
  repetitionPenalty?: number;
  /** Subtracted from the logits of tokens that were made. */
  presencePenalty?: number;
  /** Subtracted from the logit of a token as often as it was made. */
  frequencyPenalty?: number;
  /** Added to the logits of tokens, by their numbers. */
  logitBias?: Readonly<Record<number, number>>;
  /** Decides the draws; 0 unless told otherwise. */
  seed?: number;
  /** The text ends before one of these. */
  stop?: string | readonly string[];
  /** Only texts come that are JSON and fit this JSON schema. A keyword that cannot be kept to is refused. */
  schema?: Readonly<Record<string, unknown>>;
  /** Goes on after tokens that end a text. */
  ignoreEnd?: boolean;
}

/** How an answer is made. */
export interface AnswerOptions extends GenerateOptions {
  /**
   * Descriptions of functions that the model may call, in OpenAI's form: `{ type: "function", function: { name, description, parameters } }`, where
   * `parameters` is a JSON schema, which arguments are made to fit. Calls are no part of the text: `stats.calls` has them at the end. What the template
   * makes of them is the model's.
   */
  tools?: readonly unknown[];
  /** Whether functions are called: where the model likes, the default; never, as if there were none; at all events; or the one of this name. */
  toolChoice?: "auto" | "none" | "required" | { name: string };
  /** Other variables of the chat template, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>;
}

/** How an adapter learns. */
export interface FinetuneOptions {
  signal?: AbortSignal;
  /** What `useAdapter` calls it; `finetuned` unless told otherwise. */
  name?: string;
  /** Rows of the adapter's matrices, 8 unless told otherwise, and the scale times that, twice the rank. */
  rank?: number;
  alpha?: number;
  /** Matrices of the layers that get an adapter, as PEFT's `target_modules` (`q_proj`) or GGUF (`attn_q`) calls them; all of them unless told otherwise. */
  targets?: readonly string[];
  /**
   * Steps of AdamW, 100 unless told otherwise, those before a `state` among them; texts of a step, 4; and tokens of each, 128: longer texts are
   * cut to pieces.
   */
  steps?: number;
  batch?: number;
  length?: number;
  /** An adapter of the model, by name, that goes on learning from where it is: rank, alpha and targets are its own. */
  resume?: string;
  /** The `state` of the run that `resume` is of: it goes on as if it had never ended. Without it the optimiser begins anew. */
  state?: Uint8Array;
  /** How the rate changes: not at all, or down to 0 after the last step; before that it rises from 0 over so many steps, none unless told otherwise. */
  schedule?: "constant" | "linear" | "cosine";
  warmup?: number;
  /** 2e-4 unless told otherwise, and what parameters lose by themselves in a step, times that: nothing. */
  learningRate?: number;
  weightDecay?: number;
  /** Gradients whose norm is larger are made as long as this; 1 unless told otherwise. */
  maxNorm?: number;
  /** Decides the first values and the order of texts; 0 unless told otherwise. */
  seed?: number;
  /** Told of each step, counted from 0, and the loss before it. */
  onStep?: (step: number, loss: number) => void;
}

/**
 * What learned: PEFT's two files, which `adapters` of `LLM.load` takes as `{ from: file, config }`, the loss before each step, and where the optimiser
 * is, as safetensors, for a later run that goes on.
 */
export interface Finetuned {
  name: string;
  file: Uint8Array;
  config: Uint8Array;
  losses: readonly number[];
  state: Uint8Array;
}

/** Something to learn: a text, its tokens, or a chat. */
export type Lesson = string | readonly number[] | readonly ChatMessage[];

/** Why a text ended: the model said so, a stop string came, as many tokens as were wanted, or no room for more. */
export type End = "end" | "stop" | "length" | "room";

/** A call of a function that the model wants. */
export interface ToolCall {
  name: string;
  arguments: Readonly<Record<string, unknown>>;
}

/** What the last text took. */
export interface Generated {
  /** Tokens of the prompt, and those of them that were known from the text before. */
  promptTokens: number;
  reusedTokens: number;
  /** Tokens that were made. */
  tokens: number;
  /** Milliseconds until the first one. */
  firstTokenMs: number;
  /** Those that followed, in a second. */
  tokensPerSecond: number;
  /** Undefined while it is made, or if it was given up. */
  end: End | undefined;
  /** Functions that the model calls, once the text is whole. */
  calls: readonly ToolCall[];
}

/** What a model is. */
export interface ModelInfo {
  /** As GGUF names it: `llama`. */
  architecture: string;
  /** Tokens of a text that there is room for, and that it was made for. */
  context: number;
  trainedContext: number;
  /** Tokens that it knows. */
  vocabulary: number;
  layers: number;
  /** Elements of a token's state, and of an embedding. */
  width: number;
  /** Bytes of its weights in the file. */
  bytes: number;
  /** What it computes with. */
  device: DeviceKind;
  threads: number;
  /** Names of the adapters that it was loaded with. */
  adapters: readonly string[];
  /** Has it a template for chats, and a tokenizer that is known? */
  hasTemplate: boolean;
  hasTokenizer: boolean;
}

/** A value of a file's metadata. */
export type MetaValue = string | number | boolean | readonly (string | number | boolean)[];

/** What a file says of itself, but for long lists such as the vocabulary. */
export type Metadata = Readonly<Record<string, MetaValue>>;

/** What is asked of a model: a text to go on with, its tokens, or messages to answer. */
export interface Job {
  prompt?: string | readonly number[];
  messages?: readonly ChatMessage[];
  /** Without what cannot be sent. */
  options: Omit<AnswerOptions, "signal">;
}

/** A token, and the text that it made certain. The last one of a text has no token. */
export interface Step {
  token: number | undefined;
  text: string;
  stats: Generated;
}

/** A model in this thread or another one. */
export interface Backend {
  readonly info: ModelInfo;
  readonly metadata: Metadata;
  run(job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void>;
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
  embed(text: string | readonly number[], signal: AbortSignal | undefined): Promise<Float32Array>;
  useAdapter(name: string | null): Promise<void>;
  finetune(texts: readonly Lesson[], options: FinetuneOptions): Promise<Finetuned>;
  dispose(): void;
}
