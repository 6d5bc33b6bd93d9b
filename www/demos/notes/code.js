// Which notes a sound is made of, and a file of them that music programs open.
import { midi, notes } from "gradloom/tasks";

/**
 * @param {any} sound samples with their rate, or a file
 * @param {Partial<import("gradloom/tasks").NotesOptions>} options
 */
export async function listen(sound, { model = "models/basic_pitch/recipe.json", ...options } = {}) {
  const found = await notes(sound, { model, ...options });
  return { notes: found, file: midi(found) };
}
