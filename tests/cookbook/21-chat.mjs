// Talk with a language model. Any GGUF file will do; with a JSON schema the answer has the form that you asked for.
import { LLM } from "gradloom/llm";

const llm = await LLM.load(new URL("../models/verses/verses-q8_0.gguf", import.meta.url), { context: 256 });
let text = "";
for await (const piece of llm.generate("In the beginning God", { maxTokens: 16 })) text += piece;
console.log(text.length > 10, llm.stats.tokens);
//> true 16
const schema = { type: "object", properties: { name: { type: "string", maxLength: 20 }, wise: { type: "boolean" } }, required: ["name", "wise"] };
let json = "";
for await (const piece of llm.chat([{ role: "user", content: "Who is wise?" }], { schema })) json += piece;
console.log(Object.keys(JSON.parse(json)).join(" "), llm.stats.end);
//> name wise end
llm.dispose();
