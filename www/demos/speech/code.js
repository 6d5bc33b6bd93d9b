// Detects speech: in a sound, or in what is heard live.
import { classifySound, vad, vadLive } from "gradloom/tasks";

const model = "models/silero_vad_op18_ifless/recipe.json";
const kindsModel = "models/firered_aed/recipe.json";

/** A sound as the tasks take it: 16,000 samples a second. */
const sound = (samples) => ({ channels: [samples], sampleRate: 16_000 });

/** The probability of speech for each 32 ms of a sound; the option `onFrame` is given them as they come. */
export async function detect(samples, options) {
  const { probabilities } = await vad(sound(samples), { model, ...options });
  return [...probabilities];
}

/** Where speech, singing and music are heard: `[{ label, start, end, score }]`, in seconds. */
export async function kindsOf(samples, options) {
  const { events } = await classifySound(sound(samples), { model: kindsModel, ...options });
  return events;
}

/** Listens to a stream or an element that plays: `show` is given each piece with its probabilities. */
export async function listenTo(source, show, options) {
  for await (const piece of vadLive(source, { model, ...options })) show(piece);
}
