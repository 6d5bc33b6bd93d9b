// A conversation with a language model in the page.
import type { ChatMessage } from "gradloom/llm";
import { Demo, el } from "../../src/demo/page";
import { files } from "../../src/demo/widgets";
import type { Api } from "./worker";

let ready = false;
let messages: ChatMessage[] = [];
let seed = 1;
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), () => (ready = false));
const [talk, words, rate] = [el("talk"), el<HTMLInputElement>("words"), el("rate")];

/** Scrolls the list to its end. */
const showLast = (): void => talk.parentElement?.scrollTo({ top: talk.scrollHeight });

function line(role: "user" | "assistant", text: string): HTMLElement {
  const item = document.createElement("li");
  item.className = role;
  item.textContent = text;
  talk.append(item);
  showLast();
  return item;
}

function anew(): void {
  messages = [];
  talk.replaceChildren();
  rate.textContent = "";
}

/** Loads a model: the site's own, a file, or an address. */
async function load(file: File | string | null, signal: AbortSignal): Promise<string> {
  anew();
  ready = false;
  const { info, name, ms } = await demo.ask("load", { file }, { signal });
  ready = true;
  const known = info.hasTemplate ? "" : " It has no template for chats, so it goes on with your words.";
  return `Loaded ${name}: ${info.architecture}, ${info.layers} layers, ${(info.bytes / 1e6).toFixed(1)} MB, in ${Math.round(ms)} ms.${known}`;
}

async function say(text: string, signal: AbortSignal): Promise<string> {
  if (!ready) await load(null, signal);
  messages.push({ role: "user", content: text });
  line("user", text);
  const item = line("assistant", "");
  seed += 1;
  const { stopped, stats } = await demo.ask("answer", { messages, seed }, {
    signal,
    onEvent(event) {
      if (!("step" in event)) return;
      item.textContent += event.text as string;
      showLast();
      demo.measure(event.step / event.steps);
      rate.textContent = `${event.step} tokens, ${(event.tokensPerSecond as number).toFixed(0)} a second`;
    },
  });
  messages.push({ role: "assistant", content: item.textContent ?? "" });
  const { promptTokens, reusedTokens, tokens, firstTokenMs, tokensPerSecond } = stats;
  rate.textContent =
    `${tokens} tokens, ${tokensPerSecond.toFixed(0)} a second, the first after ${Math.round(firstTokenMs)} ms; ` +
    `${promptTokens} tokens of prompt, ${reusedTokens} of them known from before`;
  return stopped ? "Stopped." : `Answered with ${tokens} tokens.`;
}

el<HTMLFormElement>("say").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = words.value.trim();
  if (text === "" || demo.busy) return;
  words.value = "";
  void demo.work("Thinking", (signal) => say(text, signal));
});
el("anew").addEventListener("click", anew);
files("file", "drop", (file) => void demo.work(`Reading ${file.name}`, (signal) => load(file, signal)));
el("fetch").addEventListener("click", () => {
  const address = el<HTMLInputElement>("address").value.trim();
  if (address !== "") void demo.work("Downloading", (signal) => load(new URL(address, location.href).href, signal));
});
