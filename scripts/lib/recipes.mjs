// The models of `tests/models` as a site publishes them: a recipe with all its files in one folder, those that were fetched too.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./run.mjs";

/** What of a recipe names a file. */
const FILES = ["tokenizer", "config", "characters"];

/** The files of a model by their paths, `models/NAME/...`. */
export function recipeFiles(name) {
  const folder = join(root, "tests/models", name);
  const recipe = JSON.parse(readFileSync(join(folder, "recipe.json")));
  const files = {};
  const beside = (path) => {
    const file = path.split("/").pop();
    files[`models/${name}/${file}`] = readFileSync(join(folder, path));
    return file;
  };
  recipe.model = beside(recipe.model);
  for (const each of FILES) if (recipe.more?.[each]) recipe.more[each] = beside(recipe.more[each]);
  files[`models/${name}/recipe.json`] = Buffer.from(JSON.stringify(recipe));
  return files;
}
