// Views of graphs as text: the changes of a pass, and the operands of a node.

interface Line {
  text: string;
  id: string | undefined;
  sources: string[];
  /** The operation and the kinds of its operands, without ids: equal for nodes that a pass only renumbered. */
  key: string;
}

function parse(text: string): Line[] {
  const lines = text.trimEnd().split("\n");
  const ops = new Map<string, string>();
  for (const line of lines) {
    const found = /^(%\d+) (\S+) = ([^%/]*)/.exec(line);
    if (found) ops.set(found[1] as string, (found[3] as string).trim());
  }
  return lines.map((line) => {
    const [body] = line.split("  //");
    const id = /^(%\d+) /.exec(line)?.[1];
    const all = [...(body as string).matchAll(/%\d+/g)].map(([each]) => each);
    const sources = id ? all.slice(1) : all;
    const key = (body as string).replace(/^%\d+ /, "").replace(/%\d+/g, (each) => `(${ops.get(each) ?? ""})`);
    return { text: line, id, sources, key };
  });
}

/** The lines of a graph; lines that the other graph lacks are marked. */
function list(lines: readonly Line[], other: readonly Line[], mark: string): HTMLElement {
  const left = new Map<string, number>();
  for (const { key } of other) left.set(key, (left.get(key) ?? 0) + 1);
  const box = document.createElement("pre");
  box.className = "graph";
  box.tabIndex = 0;
  for (const { text, id, sources, key } of lines) {
    const row = document.createElement("span");
    const n = left.get(key) ?? 0;
    left.set(key, n - 1);
    if (n <= 0 && other.length > 0) row.className = mark;
    if (id) row.dataset.id = id;
    row.dataset.sources = sources.join(" ");
    const at = text.indexOf("  //");
    row.textContent = at < 0 ? `${text}\n` : text.slice(0, at);
    if (at >= 0) row.append(Object.assign(document.createElement("i"), { textContent: `${text.slice(at)}\n` }));
    box.append(row);
  }
  // a node under the pointer shows its sources and its users
  box.addEventListener("pointerover", ({ target }) => {
    const row = (target as HTMLElement).closest<HTMLElement>("span[data-id]");
    if (!row) return;
    const sources = new Set((row.dataset.sources ?? "").split(" "));
    for (const each of box.children as HTMLCollectionOf<HTMLElement>) {
      each.classList.toggle("here", each === row);
      each.classList.toggle("source-of", sources.has(each.dataset.id ?? "-"));
      each.classList.toggle("user-of", (each.dataset.sources ?? "").split(" ").includes(row.dataset.id as string));
    }
  });
  return box;
}

/** A graph after a pass, beside the one before it if there is one. */
export function compared(before: string | undefined, after: string): HTMLElement[] {
  const now = parse(after);
  if (before === undefined) return [list(now, [], "")];
  const then = parse(before);
  return [list(then, now, "gone"), list(now, then, "new")];
}
