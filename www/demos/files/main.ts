// File types by content. The recipe and the package define the network's input and its thresholds.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { files } from "../../src/demo/widgets";
import { kindOf } from "./code.js";
import names from "./kinds.json";

const demo = new TaskDemo("models/magika/recipe.json");
const nameOf = (label: string | undefined): string => (names as Record<string, string>)[label ?? ""] ?? label ?? "something unknown";

async function tell(file: Blob, name: string): Promise<void> {
  await demo.work(`Looking at ${name}`, async (signal) => {
    const list = el("kinds");
    list.replaceChildren();
    const { value: found, ms } = await demo.perform(signal, (how) => kindOf(file, how));
    demo.took(ms, "file");
    if (!found) return `${name} is too small to tell.`;
    for (const { label, score } of found.all) {
      const item = document.createElement("li");
      const bar = document.createElement("meter");
      bar.value = score;
      bar.setAttribute("aria-hidden", "true");
      const kind = document.createElement("b");
      kind.textContent = nameOf(label);
      item.append(kind, ` ${(100 * score).toFixed(1)} %`, bar);
      list.append(item);
    }
    return found.sure ? `${name}: ${nameOf(found.label)}.` : `${name}: not sure, perhaps ${nameOf(found.label)}.`;
  });
}

files("file", "drop", (file) => void tell(file, file.name));
el("own").addEventListener("click", () => {
  const script = document.querySelector<HTMLScriptElement>("script[type=module][src]")?.src ?? location.href;
  void fetch(script).then(async (response) => tell(await response.blob(), "This page's code"));
});
