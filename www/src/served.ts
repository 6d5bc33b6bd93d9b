// The page of `gradloom serve`: a conversation with the model, or texts in the order of their relevance for a query. It uses
// the server's public interface and nothing else.

interface Message {
  role: "system" | "user" | "assistant";
  content: string;
}

/** What the server counts for an answer. */
interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens: number };
}

/** A piece of a streamed answer. */
interface Piece {
  choices?: { delta?: { content?: string }; text?: string; finish_reason?: string | null }[];
  usage?: Usage | null;
  error?: { message: string; code?: string };
}

const get = <T extends HTMLElement = HTMLElement>(id: string): T => document.getElementById(id) as T;
const [talk, words, system, said] = [get("talk"), get<HTMLTextAreaElement>("words"), get<HTMLTextAreaElement>("system"), get("status")];
const [model, tokens, temperature] = [get<HTMLSelectElement>("model"), get<HTMLInputElement>("tokens"), get<HTMLInputElement>("temperature")];
/** What the model is for: `chat`, `text` (without a template for chats), `vectors` or `scores`. */
const { serves } = document.body.dataset;

/** What the server refuses, in its words. */
class Refusal extends Error {
  constructor(message: string, readonly code: string | undefined) {
    super(message);
  }
}

/** Posts a request; an answer that is no success becomes an error. */
async function post(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(`v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), ...(signal && { signal }) });
  if (response.ok) return response;
  const text = await response.text();
  let error: Piece["error"];
  try {
    ({ error } = JSON.parse(text) as Piece);
  } catch {
    // a proxy's own words
  }
  throw new Refusal(error?.message ?? `${response.status} ${response.statusText}`, error?.code);
}

/** The events of a streamed answer. */
async function* events({ body }: Response): AsyncGenerator<Piece> {
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  const decoder = new TextDecoder();
  let pending = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      pending += decoder.decode(value, { stream: true });
      const whole = pending.split("\n\n");
      pending = whole.pop() as string;
      for (const event of whole) {
        const data = event.replace(/^data: /, "");
        if (data !== "[DONE]") yield JSON.parse(data) as Piece;
      }
    }
  } finally {
    // the server ends the text when its client leaves
    await reader.cancel().catch(() => {});
  }
}

let messages: Message[] = [];
/** How many of the oldest messages are not sent any more, because the context has no room for them. */
let forgotten = 0;
let answering: AbortController | undefined;
let seed = 0;

function line(role: Message["role"], text: string): HTMLElement {
  const item = document.createElement("li");
  item.className = role;
  item.textContent = text;
  talk.append(item);
  return item;
}

/** Follows the text unless the reader has scrolled up. */
function follow(change: () => void): void {
  const box = talk.parentElement as HTMLElement;
  const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  change();
  if (isAtEnd) box.scrollTop = box.scrollHeight;
}

function showState(): void {
  get("send").hidden = answering !== undefined;
  get("stop").hidden = answering === undefined;
  get<HTMLButtonElement>("again").disabled = answering !== undefined || messages.length === 0;
}

function say(text: string, failed = false): void {
  said.textContent = text;
  said.classList.toggle("failed", failed);
}

/** What is sent for an answer to the messages. */
function request(): Record<string, unknown> {
  const instruction = system.value.trim();
  const sent = messages.slice(forgotten);
  const told: Message[] = instruction === "" ? sent : [{ role: "system", content: instruction }, ...sent];
  // a model without a template goes on with the whole text
  const input = serves === "chat" ? { messages: told } : { prompt: told.map(({ content }) => content).join("") };
  const most = Number(tokens.value);
  seed += 1;
  return {
    model: model.value, ...input, temperature: Number(temperature.value), seed, stream: true, stream_options: { include_usage: true },
    ...(Number.isInteger(most) && most > 0 ? { max_tokens: most } : serves === "text" && { max_tokens: CONTINUED }),
  };
}

/** The shortest time over which tokens a second are told. */
const MEASURED_MS = 100;
/** Tokens of a continuation, which otherwise has few. */
const CONTINUED = 256;

/** Asks for an answer; without the oldest messages if there is no room for them. */
async function ask(signal: AbortSignal): Promise<Response> {
  for (;;) {
    try {
      return await post(serves === "chat" ? "chat/completions" : "completions", request(), signal);
    } catch (error) {
      const isFull = error instanceof Refusal && error.code === "context_length_exceeded";
      if (!isFull || messages.length - forgotten < 3) throw error;
      forgotten += 2;
    }
  }
}

const REASONS: Record<string, string> = { length: " It ends where the tokens did.", stop: "" };

async function answer(): Promise<void> {
  const control = (answering = new AbortController());
  const start = performance.now();
  let [first, last, reason] = [0, 0, ""];
  let usage: Usage | undefined;
  let text = "";
  let item!: HTMLElement;
  follow(() => (item = line("assistant", "")));
  showState();
  say("Thinking");
  try {
    for await (const piece of events(await ask(control.signal))) {
      if (piece.error) throw new Error(piece.error.message);
      const [choice] = piece.choices ?? [];
      reason = choice?.finish_reason ?? reason;
      usage = piece.usage ?? usage;
      const more = choice?.delta?.content ?? choice?.text ?? "";
      if (more === "") continue;
      last = performance.now();
      first ||= last;
      text += more;
      follow(() => (item.textContent = text));
    }
    const made = usage?.completion_tokens ?? 0;
    // pieces that arrive together say nothing about the time between them
    const rate = last - first > MEASURED_MS ? `, ${(((made - 1) * 1000) / (last - first)).toFixed(1)} a second` : "";
    const known = usage?.prompt_tokens_details?.cached_tokens ?? 0;
    const without = forgotten > 0 ? `, without the oldest ${forgotten} messages` : "";
    const prompt = usage ? ` ${usage.prompt_tokens} tokens of prompt${without}, ${known} of them known from before.` : "";
    say(`${made} tokens${rate}${first > 0 ? `, the first after ${Math.round(first - start)} ms` : ""}.${prompt}${REASONS[reason] ?? ""}`);
  } catch (error) {
    if (control.signal.aborted) say("Stopped.");
    else say((error as Error).message, true);
  }
  answering = undefined;
  if (text !== "") messages.push({ role: "assistant", content: text });
  else {
    item.remove();
    if (said.classList.contains("failed")) takeBack();
  }
  showState();
}

/** Gives a question that failed back to its writer. */
function takeBack(): void {
  const question = messages.pop()?.content ?? "";
  if (words.value === "") words.value = question;
  talk.lastElementChild?.remove();
}

function anew(): void {
  answering?.abort();
  messages = [];
  forgotten = 0;
  talk.replaceChildren();
  say("Ready.");
  showState();
  words.focus();
}

function beginChat(): void {
  get("chat").hidden = get("speak").hidden = false;
  get("say").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = words.value.trim();
    if (text === "" || answering) return;
    words.value = "";
    messages.push({ role: "user", content: text });
    line("user", text);
    (talk.parentElement as HTMLElement).scrollTop = talk.scrollHeight;
    void answer();
  });
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    get<HTMLFormElement>("say").requestSubmit();
  });
  get("stop").addEventListener("click", () => answering?.abort());
  get("anew").addEventListener("click", anew);
  get("again").addEventListener("click", () => {
    if (messages.at(-1)?.role === "assistant") {
      messages.pop();
      talk.lastElementChild?.remove();
    }
    void answer();
  });
  temperature.addEventListener("input", () => (get("degrees").textContent = temperature.value));
  showState();
  words.focus();
}

/** The answer to a request, as JSON. */
const answerOf = async <T>(path: string, body: unknown): Promise<T> => (await post(path, { model: model.value, ...(body as object) })).json() as Promise<T>;

/** How relevant texts are for a query: the cosine of their vectors, or what a cross-encoder says. */
async function relevance(query: string, texts: string[]): Promise<number[]> {
  if (serves === "scores") {
    const { results } = await answerOf<{ results: { index: number; relevance_score: number }[] }>("rerank", { query, documents: texts });
    const scores = new Array<number>(texts.length).fill(0);
    for (const { index, relevance_score: score } of results) scores[index] = score;
    return scores;
  }
  const { data } = await answerOf<{ data: { embedding: number[] }[] }>("embeddings", { input: [query, ...texts] });
  const [own, ...others] = data.map(({ embedding }) => embedding) as [number[], ...number[][]];
  const product = (a: number[], b: number[]): number => a.reduce((sum, v, i) => sum + v * (b[i] as number), 0);
  return others.map((each) => product(own, each) / Math.sqrt(product(own, own) * product(each, each)));
}

function beginRanking(): void {
  const form = get<HTMLFormElement>("rank");
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const texts = get<HTMLTextAreaElement>("texts").value.split("\n").map((each) => each.trim()).filter((each) => each !== "");
    const query = get<HTMLInputElement>("query").value.trim();
    if (texts.length === 0 || query === "") return;
    const start = performance.now();
    try {
      const scores = await relevance(query, texts);
      const order = [...scores.keys()].sort((a, b) => (scores[b] as number) - (scores[a] as number));
      const row = (at: number): HTMLElement => {
        const item = document.createElement("li");
        item.append(Object.assign(document.createElement("b"), { textContent: (scores[at] as number).toFixed(3) }), ` ${texts[at]}`);
        return item;
      };
      get("ranked").replaceChildren(...order.map(row));
      say(`${texts.length} texts in ${Math.round(performance.now() - start)} ms.`);
    } catch (error) {
      say((error as Error).message, true);
    }
  });
}

async function begin(): Promise<void> {
  const response = await fetch("v1/models");
  const { data } = (await response.json()) as { data: { id: string; context_length: number }[] };
  const [own] = data;
  if (!own) throw new Error("the server names no model");
  get("name").textContent = own.id;
  document.title = `${own.id} · gradloom serve`;
  model.replaceChildren(...data.map(({ id }) => new Option(id === own.id ? "none" : id.slice(own.id.length + 1), id)));
  get("adapter").hidden = data.length < 2;
  const room = `${own.context_length.toLocaleString("en")} tokens of context`;
  const goesOn = serves === "text" ? " It has no template for chats, so it goes on with your words." : "";
  get("about").textContent = `${room}.${goesOn} Any client of OpenAI's interface may use it at ${new URL("v1", location.href).href}.`;
  say("Ready.");
  if (serves === "chat" || serves === "text") beginChat();
  else beginRanking();
}

begin().catch((error: Error) => say(`The server does not answer: ${error.message}`, true));
