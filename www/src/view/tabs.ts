// Tabs that follow the accessibility pattern for screen readers: arrow keys move between them.

/** Makes a `role=tablist` work. `chosen` is called with the id of the tab that was opened. */
export function tabs(list: HTMLElement, chosen: (id: string) => void = () => {}): (id: string) => void {
  const all = [...list.querySelectorAll<HTMLButtonElement>("[role=tab]")];
  const open = (id: string): void => {
    for (const tab of all) {
      const own = tab.getAttribute("aria-controls") === id;
      tab.setAttribute("aria-selected", String(own));
      tab.tabIndex = own ? 0 : -1;
      const pane = document.getElementById(tab.getAttribute("aria-controls") as string);
      if (pane) pane.hidden = !own;
    }
    chosen(id);
  };
  all.forEach((tab, at) => {
    tab.addEventListener("click", () => open(tab.getAttribute("aria-controls") as string));
    tab.addEventListener("keydown", ({ key }) => {
      const by = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
      if (by === 0) return;
      const next = all[(at + by + all.length) % all.length] as HTMLButtonElement;
      next.focus();
      open(next.getAttribute("aria-controls") as string);
    });
  });
  return open;
}
