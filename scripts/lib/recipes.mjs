// Collects the models of `tests/models` in the form in which a site publishes them: a recipe with all its files in one
// folder, fetched ones included.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root } from "./run.mjs";

/** Fields of a recipe's `more` that name files. */
const FILES = ["tokenizer", "config", "characters"];

/** A recipe as it is published: with all its files beside it. */
function publishedRecipe(recipe, addFile) {
  recipe.model = addFile(recipe.model);
  for (const each of FILES) if (recipe.more?.[each]) recipe.more[each] = addFile(recipe.more[each]);
  return recipe;
}

/** The published recipes of the given models, by their paths `NAME/FILE.json`. */
export function publishedRecipes(names) {
  const found = {};
  for (const name of names) {
    const folder = join(root, "tests/models", name);
    for (const file of readdirSync(folder).filter((each) => each.endsWith(".json")).sort()) {
      const recipe = JSON.parse(readFileSync(join(folder, file)));
      if (recipe.task) found[`${name}/${file}`] = publishedRecipe(recipe, (path) => path.split("/").pop());
    }
  }
  return found;
}

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
  files[`models/${name}/${file}`] = Buffer.from(JSON.stringify(publishedRecipe(recipe, addFile)));
  return files;
}
