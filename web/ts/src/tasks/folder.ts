// A folder of models as `npx gradloom models` writes it: an index of recipes, by task and by name, with sizes and hashes.
import { type FetchError, FormatError, GradloomError, ValueError } from "../errors.js";
import { type FetchOptions, readSource } from "../progress.js";
import type { ModelBase } from "./dispatch.js";
import { baseUrl } from "./paths.js";
import type { TaskName } from "./recipe.js";

/** The name of the index within the folder. */
const INDEX_FILE = "index.json";
/** The version of the index's form that is read here. */
const INDEX_VERSION = 1;

/** A file of the folder, by its path: its size and its SHA-256 in hexadecimal. */
interface IndexedFile {
  bytes: number;
  sha256: string;
}

/** The contents of `index.json`. Paths are relative to the folder. */
interface ModelIndex {
  gradloom: number;
  /** The name of the model that a task uses if none is given. */
  tasks: Partial<Record<TaskName, string>>;
  models: Record<string, { task: TaskName; recipe: string }>;
  files: Record<string, IndexedFile>;
}

const indexes = new WeakMap<ModelBase, Promise<{ index: ModelIndex; folder: URL }>>();

async function readIndex({ address, hash }: ModelBase, { fetch, cache }: FetchOptions): Promise<{ index: ModelIndex; folder: URL }> {
  const path = String(address);
  const folder = new URL(path.endsWith("/") ? path : `${path}/`, baseUrl());
  const url = new URL(INDEX_FILE, folder);
  const hint = "write it with `npx gradloom models DIR`, and serve DIR at this address";
  const options = { ...(fetch && { fetch }), ...(cache !== undefined && { cache }), ...(hash !== undefined && { hash }) };
  const bytes = await readSource(url, options).catch((error: FetchError) => {
    if (!(error instanceof GradloomError) || error.hint !== undefined) throw error;
    throw Object.assign(error, { hint });
  });
  let index: Partial<ModelIndex> | undefined;
  try {
    index = JSON.parse(new TextDecoder().decode(bytes)) as Partial<ModelIndex>;
  } catch {
    // a server that answers every address with its start page
  }
  if (typeof index?.models !== "object" || typeof index.tasks !== "object" || typeof index.files !== "object") {
    throw new FormatError("E_FORMAT", `${url.href} is no index of models`, { hint });
  }
  if (index.gradloom !== INDEX_VERSION) {
    const versions = `its form is version ${index.gradloom}, and this release reads ${INDEX_VERSION}`;
    throw new FormatError("E_FORMAT", `${url.href} was written by another release: ${versions}`, { hint });
  }
  return { index: index as ModelIndex, folder };
}

/**
 * The address of a model's recipe in a folder: of the model with this name, or of the one for the task. With the hash
 * of the recipe if that of the index is known, since otherwise an index in a cache could reject newer recipes.
 */
export async function findModel(
  base: ModelBase,
  task: TaskName | undefined,
  name: string | undefined,
  options: FetchOptions,
): Promise<{ url: URL; hash?: string }> {
  let reading = indexes.get(base);
  if (!reading) {
    indexes.set(base, (reading = readIndex(base, options)));
    reading.catch(() => indexes.delete(base));
  }
  const { index, folder } = await reading;
  options.signal?.throwIfAborted();
  const chosen = name ?? (task && index.tasks[task]) ?? "";
  const model = Object.hasOwn(index.models, chosen) ? index.models[chosen] : undefined;
  if (!model) throw missingModel(index, folder, task, name);
  const sha256 = index.files[model.recipe]?.sha256;
  return { url: new URL(model.recipe, folder), ...(base.hash !== undefined && sha256 !== undefined && { hash: sha256 }) };
}

/** The task for which no package has a model; users put one into the folder themselves. */
const NOT_FETCHED: TaskName = "chat";

function missingModel(index: ModelIndex, folder: URL, task: TaskName | undefined, name: string | undefined): ValueError {
  const names = Object.keys(index.models).filter((each) => name !== undefined || index.models[each]?.task === task);
  if (name !== undefined) {
    return new ValueError("E_VALUE", `${folder.href} has no model \`${name}\`; it has ${names.join(", ") || "none"}`);
  }
  const ownModel = "put a folder with the model and its `recipe.json` into it, then run `npx gradloom models DIR --index`";
  const hint = task === NOT_FETCHED ? ownModel : `run \`npx gradloom models DIR ${task}\`, and serve DIR at this address`;
  return new ValueError("E_VALUE", `${folder.href} has no model for ${task}`, { hint });
}
