// File types by content. What the network is fed, and when it is believed, is its recipe's and the package's affair.
import names from "./kinds.json";
import { ask } from "./protocol";
import { el, files, show, timing, work } from "./ui";

const nameOf = (label: string | undefined): string => (names as Record<string, string>)[label ?? ""] ?? label ?? "something unknown";

async function tell(file: Blob, name: string): Promise<void> {
  await work(`Looking at ${name}`, async (signal) => {
    const list = el("kinds");
    list.replaceChildren();
    const { found, timing: took } = await ask<"fileType">({ kind: "fileType", file }, { onEvent: show, signal });
    if (!found) return `${name} is too small to tell.`;
    for (const { label, score } of found.all) {
      const item = document.createElement("li");
      item.textContent = `${nameOf(label)} (${label}): ${(100 * score).toFixed(1)} %`;
      list.append(item);
    }
    timing("files-timing", took);
    return found.sure ? `${name}: ${nameOf(found.label)}.` : `${name}: not sure, perhaps ${nameOf(found.label)}.`;
  });
}

export function kinds(): void {
  files("file", "file-drop", (file) => void tell(file, file.name));
  el("file-sample").addEventListener("click", () => {
    const script = document.querySelector<HTMLScriptElement>("script[src]")?.src ?? location.href;
    void fetch(script).then(async (response) => tell(await response.blob(), "This page's code"));
  });
}
