// Chat templates: messages to the text that a model was trained on.
import type { RawChatTemplate } from "./pkg/gradloom_chat.js";
import { StateError, guard } from "./errors.js";
import { once } from "./extras.js";
import { readHeader } from "./files.js";
import type { FetchOptions, FileSource } from "./progress.js";

/** The module of chat templates. */
export const chatModule = /* @__PURE__ */ once("chat", () => import("./pkg/gradloom_chat.js"));

/** One message. Templates read what else they know of it, such as `tool_calls`. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, `tool`, as the template knows them. */
  role: string;
  /** Text, or parts of several kinds. */
  content?: unknown;
  [more: string]: unknown;
}

/** What a template is given besides the messages. */
export interface ChatOptions {
  /** Ends the text with what makes the model answer. */
  addGenerationPrompt?: boolean;
  /** Descriptions of functions that the model may call: JSON schemas. */
  tools?: readonly unknown[];
  /** Other variables of the template, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>;
  /** The date that templates write; local time, now unless given. */
  now?: Date;
}

/** The chat template of a model: a Jinja program, run with limits of steps, depth and length, and without access to anything. */
export class ChatTemplate {
  #raw: RawChatTemplate | undefined;

  private constructor(raw: RawChatTemplate) {
    this.#raw = raw;
  }

  /** Reads the template in a tokenizer_config.json or in a GGUF file. Of several `name` chooses one, or the one named `default`. */
  static async load(from: FileSource, options: FetchOptions & { name?: string } = {}): Promise<ChatTemplate> {
    const { RawChatTemplate: Raw } = await chatModule();
    return readHeader("template", from, options, (bytes) => new ChatTemplate(guard(() => new Raw(bytes, options.name))));
  }

  /** Compiles a template's source; `tokens` are the special tokens that it names, such as `bos_token`. */
  static async fromSource(source: string, tokens: Readonly<Record<string, string>> = {}): Promise<ChatTemplate> {
    const { RawChatTemplate: Raw } = await chatModule();
    const raw = guard(() => Raw.fromSource(source));
    for (const [name, text] of Object.entries(tokens)) raw.setToken(name, text);
    return new ChatTemplate(raw);
  }

  /** The text of messages. Encode it with `special: false`: the template writes the special tokens itself. */
  apply(messages: readonly ChatMessage[], options: ChatOptions = {}): string {
    const raw = this.#raw;
    if (!raw) throw new StateError("E_STATE", "this chat template was disposed");
    const { addGenerationPrompt = false, tools, variables = {}, now: at = new Date() } = options;
    const now = Uint32Array.of(
      at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds(),
    );
    const json = (x: unknown): string => JSON.stringify(x);
    return guard(() => raw.apply(json(messages), addGenerationPrompt, tools && json(tools), json(variables), now));
  }

  /** Frees its memory. */
  dispose(): void {
    this.#raw?.free();
    this.#raw = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
