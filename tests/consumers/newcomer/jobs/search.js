// Search texts by what they mean.
import { similar } from "gradloom/tasks";

const texts = ["stock prices fell", "the kitten sleeps on the couch", "how to bake bread"];
const [best] = await similar("a cat on the sofa", texts, { model: "models/minilm_l6_v2/recipe.json" });
globalThis.result = best.text;
