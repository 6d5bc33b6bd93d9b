// Writes a few tokens with a language model.
import { LLM } from "gradloom/llm";

// `file` is the file chosen above
const llm = await LLM.load(file, { device, worker: false, context: 64 });
let text = "And";
for await (const piece of llm.generate(text, { maxTokens: 3, temperature: 0 })) text += piece;
console.log(llm.info.architecture, JSON.stringify(text));
llm.dispose();
