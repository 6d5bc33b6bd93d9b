// Collects the models of `tests/models` in the form in which a site publishes them: a recipe with all its files in one
// folder, fetched ones included.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./run.mjs";

/** Fields of a recipe's `more` that name files. */
const FILES = ["tokenizer", "config", "characters"];

/** The files of a model by their paths `models/NAME/...`; one model may have several recipes. */
export function recipeFiles(name, file = "recipe.json") {
  const folder = join(root, "tests/models", name);
  const recipe = JSON.parse(readFileSync(join(folder, file)));
  const files = {};
  const addFile = (path) => {
    const last = path.split("/").pop();
    files[`models/${name}/${last}`] = readFileSync(join(folder, path));
    return last;
  };
  recipe.model = addFile(recipe.model);
  for (const each of FILES) if (recipe.more?.[each]) recipe.more[each] = addFile(recipe.more[each]);
  files[`models/${name}/${file}`] = Buffer.from(JSON.stringify(recipe));
  return files;
}
