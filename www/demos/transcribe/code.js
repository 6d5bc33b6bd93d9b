// Speech to text by Whisper: a recording at once, or what is heard live, sentence by sentence.
import { transcribe, transcribeLive } from "gradloom/tasks";

const model = "models/whisper_tiny_en/recipe.json";

/** Transcribes a sound; `onText` of the options receives the words as they come. */
export async function write(samples, options) {
  const sound = { channels: [samples], sampleRate: 16_000 }; // samples a second
  const { text } = await transcribe(sound, { model, ...options });
  return text.trim();
}

/** Transcribes a stream or an element that plays: `show` gets each sentence while it grows, then `final`. */
export async function hear(source, show, options) {
  for await (const sentence of transcribeLive(source, { model, ...options })) show(sentence);
}
