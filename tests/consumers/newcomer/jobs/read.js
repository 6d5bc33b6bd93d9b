// Read what stands in a photo.
import { readText } from "gradloom/tasks";

const { text } = await readText("photo.png", { model: "models/ppocrv4_rec/recipe.json" });
globalThis.result = text;
