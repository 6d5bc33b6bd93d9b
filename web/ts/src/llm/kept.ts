// A model that is loaded again, by the next request, after its worker or its device was lost.
import { type Chunks, loadChunk } from "../chunks.js";
import { InternalError, guardAsync, isLost } from "../errors.js";
import type { FileSource } from "../progress.js";
import type { ModelSource, ModelTokenizer } from "./options.js";

/** A file, or a weak reference to its bytes. */
type HeldFile = FileSource | WeakRef<object>;

/** What a model can be loaded from again. */
export type HeldSource = HeldFile | readonly File[] | Readonly<Record<string, HeldFile>>;

/** What a model can be loaded from again. Bytes are held weakly, since they may be large. */
export function hold(from: ModelSource): HeldSource {
  const holdFile = (file: FileSource): HeldFile => (file instanceof ArrayBuffer || ArrayBuffer.isView(file) ? new WeakRef(file) : file);
  if (Array.isArray(from)) return from as readonly File[];
  const isRecord = Object.getPrototypeOf(from) === Object.prototype;
  return isRecord ? Object.fromEntries(Object.entries(from).map(([name, file]) => [name, holdFile(file)])) : holdFile(from as FileSource);
}

/** A model in this thread or in a worker. */
interface Losable {
  /** Whether its worker has ended. */
  readonly ended?: boolean;
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
  dispose(): void;
}

export class KeptModel<M extends Losable> {
  #model: M;
  readonly #reload: (module: Chunks["reload"]) => Promise<M>;
  /** Whether a request failed because the model was lost. */
  #lost = false;
  #disposed = false;
  #reloading: Promise<M> | undefined;
  readonly tokenizer: ModelTokenizer = {
    encode: (text, { special = true } = {}) => this.request((model) => model.encode(text, special)),
    decode: (ids, { skipSpecial = true } = {}) => this.request((model) => model.decode(ids, skipSpecial)),
  };

  /** `reload` loads the model again, by a module that is loaded only then. */
  constructor(model: M, reload: (module: Chunks["reload"]) => Promise<M>) {
    this.#model = model;
    this.#reload = reload;
  }

  /** The model, even if it is lost. */
  get last(): M {
    return this.#model;
  }

  /** The model; loaded again if it was lost, in one attempt for all who wait. */
  async live(signal: AbortSignal | undefined): Promise<M> {
    if (this.#disposed || !(this.#lost || this.#model.ended)) return this.#model;
    const restore = async (): Promise<M> => {
      this.#lost = true;
      this.#model.dispose();
      const model = await this.#reload(await loadChunk("reload", () => import("./reload.js")));
      this.#model = model;
      this.#lost = false;
      if (this.#disposed) model.dispose();
      return model;
    };
    return guardAsync(() => (this.#reloading ??= restore().finally(() => (this.#reloading = undefined))), signal);
  }

  /** Notes whether an error of a request is the loss of the model. */
  note(error: unknown, model: M): unknown {
    if (model === this.#model && (isLost(error) || error instanceof InternalError)) this.#lost = true;
    return error;
  }

  async request<T>(body: (model: M) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const model = await this.live(signal);
    return body(model).catch((error: unknown) => {
      throw this.note(error, model);
    });
  }

  dispose(): void {
    this.#disposed = true;
    this.#model.dispose();
  }
}
