// Semantic search: passages are sent to the worker a few at a time, so that a query never waits long; results appear
// while typing.
import { Demo, el } from "../../src/demo/page";
import { files } from "../../src/demo/widgets";
import { NOTES, QUERIES } from "./notes";
import type { Api } from "./worker";

/** Number of passages per request to the worker. */
const PART = 8;
const OWN = "the notes";
const LARGEST = 2_000_000;
/** The notes; `?notes=` limits their number, for a quicker run. */
const SOME = NOTES.split("\n\n").slice(0, Number(new URL(location.href).searchParams.get("notes")) || undefined).join("\n\n");
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), () => empty());
const query = el<HTMLInputElement>("query");
const list = el<HTMLOListElement>("hits");
let known = 0;
/** The names of the files read. */
const from = new Set<string>();

function empty(): void {
  known = 0;
  from.clear();
  query.disabled = true;
  el("read").hidden = false;
  list.replaceChildren();
  for (const each of el("queries").querySelectorAll("button")) each.hidden = true;
}

function show(hits: { text: string; from: string; score: number }[]): void {
  list.replaceChildren(...hits.map(({ text, from, score }) => {
    const item = document.createElement("li");
    const bar = document.createElement("meter");
    bar.value = Math.max(0, score);
    bar.setAttribute("aria-hidden", "true");
    const small = document.createElement("small");
    small.append(bar, ` ${score.toFixed(2)} · ${from}`);
    item.append(text, small);
    return item;
  }));
}

let asking = false;

/** Searches for the text in the field, and again if it has changed meanwhile. */
async function find(): Promise<void> {
  if (asking || known === 0) return;
  asking = true;
  try {
    for (let last = ""; ; ) {
      const text = query.value.trim();
      if (text === last) break;
      last = text;
      if (text === "") {
        show([]);
        break;
      }
      const { hits, ms } = await demo.ask("find", { query: text });
      show(hits);
      demo.took(ms, "query");
      if (!demo.busy) {
        demo.say(`Found in ${Math.round(ms)} ms.`);
        demo.cost();
      }
    }
  } catch (error) {
    demo.say(`That failed: ${(error as Error).message}`);
  } finally {
    asking = false;
  }
}

async function read(sources: { name: string; text: () => Promise<string> }[]): Promise<void> {
  await demo.work("Fetching the model", async (signal) => {
    const parts: { texts: string[]; from: string }[] = [];
    for (const { name, text } of sources) {
      const cut = await demo.ask("cut", { text: await text() });
      for (let at = 0; at < cut.length; at += PART) parts.push({ texts: cut.slice(at, at + PART), from: name });
    }
    if (parts.length === 0) throw new Error("there is no text in it");
    const start = known;
    const all = parts.reduce((sum, { texts }) => sum + texts.length, 0);
    for (const part of parts) {
      known = await demo.ask("add", part, { signal });
      query.disabled = false;
      for (const each of el("queries").querySelectorAll("button")) each.hidden = false;
      demo.measure((known - start) / all);
      demo.say(`Read ${known - start} of ${all} passages`);
      void find();
      if (signal.aborted) break;
    }
    for (const { name } of sources) from.add(name);
    el("read").hidden = from.has(OWN);
    const of = from.size === 1 ? sources[0]?.name : `${from.size} texts`;
    el("known").textContent = `${known} passages of ${of} are in memory. Drop files to add theirs.`;
    return `Read ${known} passages.`;
  });
}

for (const text of QUERIES) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain small";
  button.hidden = true;
  button.textContent = text;
  button.addEventListener("click", () => {
    query.value = text;
    void find();
  });
  el("queries").append(button);
}
query.addEventListener("input", () => void find());
el("ask").addEventListener("submit", (event) => event.preventDefault());
el("read").addEventListener("click", () => void read([{ name: OWN, text: async () => SOME }]));
files("files", "drop", (_, all) => void read(all.map((file) => ({
  name: file.name,
  async text() {
    if (file.size > LARGEST) throw new Error(`${file.name} is larger than ${LARGEST / 1e6} MB`);
    const text = await file.text();
    if (text.includes("\0")) throw new Error(`${file.name} is no text`);
    return text;
  },
}))));
