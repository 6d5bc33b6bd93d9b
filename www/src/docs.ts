// Search of the documentation: each word must be the prefix of a word in the title or the text; matches in titles rank
// higher.
import { el } from "./demo/page";

type Entry = [page: string, id: string, title: string, name: string, text: string];

const field = el<HTMLInputElement>("words");
const list = el<HTMLOListElement>("found");
const base = new URL(document.querySelector<HTMLAnchorElement>("#pages a")?.getAttribute("href")?.startsWith("../") ? "../" : "./", location.href);
let index: Promise<Entry[]> | undefined;

const load = (): Promise<Entry[]> => (index ??= fetch(new URL("search.json", base)).then((response) => response.json() as Promise<Entry[]>));

function score([, , title, name, text]: Entry, words: readonly string[]): number {
  const [head, page, body] = [title.toLowerCase(), name.toLowerCase(), text.toLowerCase()];
  let sum = 0;
  for (const word of words) {
    const starts = (s: string): boolean => s.startsWith(word) || new RegExp(`[^a-z0-9]${word.replace(/[^a-z0-9]/g, ".")}`).test(s);
    const points = head === word ? 20 : starts(head) ? 10 : starts(page) ? 4 : starts(body) ? 2 : 0;
    if (points === 0) return 0;
    sum += points;
  }
  return sum - title.length / 200;
}

async function search(): Promise<void> {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    list.hidden = true;
    return;
  }
  const all = await load();
  const best = all.map((entry) => [score(entry, words), entry] as const).filter(([n]) => n > 0).sort(([a], [b]) => b - a).slice(0, 12);
  list.replaceChildren(
    ...best.map(([, [page, id, title, name, text]]) => {
      const link = document.createElement("a");
      link.href = new URL(`${page}/${id ? `#${id}` : ""}`, base).href;
      const about = document.createElement("span");
      about.textContent = title === name ? text.slice(0, 90) : `${name}${text ? `: ${text.slice(0, 80)}` : ""}`;
      link.append(Object.assign(document.createElement("b"), { textContent: title }), about);
      const item = document.createElement("li");
      item.append(link);
      return item;
    }),
  );
  if (best.length === 0) list.append(Object.assign(document.createElement("li"), { textContent: "Nothing was found." }));
  list.hidden = false;
}

field.addEventListener("focus", () => void load());
field.addEventListener("input", () => void search());
el("search").addEventListener("submit", (event) => {
  event.preventDefault();
  list.querySelector("a")?.click();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") list.hidden = true;
  if (event.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "")) return;
  event.preventDefault();
  field.focus();
});
// on phones the list of pages opens on demand
const menu = el<HTMLDetailsElement>("menu");
menu.addEventListener("toggle", () => el("pages").classList.toggle("open", menu.open));

/** Filters all tables to the rows that contain every word, and hides empty tables with their headings. */
function filter(words: string[], said: HTMLElement): void {
  let [left, all] = [0, 0];
  for (const box of document.querySelectorAll<HTMLElement>("article .scroll")) {
    const rows = [...box.querySelectorAll<HTMLTableRowElement>("tbody tr")];
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    const here = rows.filter((row) => !row.hidden).length;
    box.hidden = here === 0;
    const before = box.previousElementSibling;
    if (before instanceof HTMLElement && /^H[34]$/.test(before.tagName)) before.hidden = box.hidden;
    left += here;
    all += rows.length;
  }
  said.textContent = words.length === 0 ? "" : `${left} of ${all} rows`;
}
const rowsWith = document.getElementById("filter") as HTMLInputElement | null;
rowsWith?.addEventListener("input", () => filter(rowsWith.value.toLowerCase().split(/\s+/).filter(Boolean), el("filtered")));
