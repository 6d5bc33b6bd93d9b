// Chat templates: render a list of messages as the prompt text that a model was trained on.
import type { RawChatTemplate } from "./pkg/gradloom_chat.js";
import { loadChunk } from "./chunks.js";
import { StateError, guard } from "./errors.js";
import { lazyWasm } from "./lazy-wasm.js";
import { readHeader } from "./files.js";
import type { FetchOptions, FileSource } from "./progress.js";

/** Loads the wasm module that runs chat templates. */
export const chatModule = /* @__PURE__ */ lazyWasm("chat", () => loadChunk("chat", () => import("./pkg/gradloom_chat.js")));

/** One message. Further properties are passed to the template, which may read e.g. `tool_calls`. */
export interface ChatMessage {
  /** `system`, `user`, `assistant` or `tool`: the roles that the model's template knows. */
  role: string;
  /** Text, or a list of parts (text, images, ..) in the form that the template expects. */
  content?: unknown;
  [more: string]: unknown;
}

/** What is passed to a template besides the messages. */
export interface ChatOptions {
  /** Appends the header of an assistant message, so that the model continues with its answer. Default: false. */
  addGenerationPrompt?: boolean;
  /** Functions that the model may call, described by JSON schemas. */
  tools?: readonly unknown[];
  /** Further variables of the template, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>;
  /** The date and time that the template may print, in local time. Default: now. */
  now?: Date;
}

/**
 * The chat template of a model: a Jinja program, run with limits on steps, nesting depth and output length, and without
 * access to files, network or anything else.
 */
export class ChatTemplate {
  #raw: RawChatTemplate | undefined;

  private constructor(raw: RawChatTemplate) {
    this.#raw = raw;
  }

  /**
   * Reads the template from a tokenizer_config.json or a GGUF file. If there are several, `name` selects one; default:
   * the one named `default`.
   */
  static async load(from: FileSource, options: FetchOptions & { name?: string } = {}): Promise<ChatTemplate> {
    const { RawChatTemplate: Raw } = await chatModule();
    return readHeader("template", from, options, (bytes) => new ChatTemplate(guard(() => new Raw(bytes, options.name))));
  }

  /**
   * Compiles a template's source. `tokens` maps the special tokens that the source refers to (such as `bos_token`) to
   * their text.
   */
  static async fromSource(source: string, tokens: Readonly<Record<string, string>> = {}): Promise<ChatTemplate> {
    const { RawChatTemplate: Raw } = await chatModule();
    const raw = guard(() => Raw.fromSource(source));
    for (const [name, text] of Object.entries(tokens)) raw.setToken(name, text);
    return new ChatTemplate(raw);
  }

  /**
   * Renders the messages as one text. Encode the text with `special: false`, since the template already writes the
   * special tokens.
   */
  apply(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    const raw = this.#raw;
    if (!raw) throw new StateError("E_STATE", "this chat template was disposed");
    const { addGenerationPrompt = false, tools, variables = {}, now: date = new Date() } = options;
    const now = Uint32Array.of(
      date.getFullYear(), date.getMonth() + 1, date.getDate(), date.getHours(), date.getMinutes(), date.getSeconds(),
    );
    const json = (x: unknown): string => JSON.stringify(x);
    return guard(() => raw.apply(json(messages), addGenerationPrompt, tools && json(tools), json(variables), now));
  }

  /** Frees the template's memory in the wasm module. */
  dispose(): void {
    this.#raw?.free();
    this.#raw = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
