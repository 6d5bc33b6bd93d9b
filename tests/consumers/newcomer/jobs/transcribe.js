// Write down what somebody says.
import { transcribe } from "gradloom/tasks";

const { text } = await transcribe("speech.wav", { model: "models/whisper_tiny_en/recipe.json" });
globalThis.result = text;
