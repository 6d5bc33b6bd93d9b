// Detects speech: in a sound, or in what is heard live.
import { vad, vadLive } from "gradloom/tasks";

const model = "models/silero_vad_op18_ifless/recipe.json";

/** The probability of speech for each 32 ms of a sound; the option `onFrame` is given them as they come. */
export async function detect(samples, options) {
  const sound = { channels: [samples], sampleRate: 16_000 }; // samples a second
  const { probabilities } = await vad(sound, { model, ...options });
  return [...probabilities];
}

/** Listens to a stream or an element that plays: `show` is given each piece with its probabilities. */
export async function listenTo(source, show, options) {
  for await (const piece of vadLive(source, { model, ...options })) show(piece);
}
