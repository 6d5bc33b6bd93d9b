// The script of a language model's worker: one file with all that it imports, as bundlers make classic scripts of workers unless told
// otherwise, and those cannot be in several.
import { answer } from "./llm/thread.js";

answer(globalThis as unknown as Parameters<typeof answer>[0]);
