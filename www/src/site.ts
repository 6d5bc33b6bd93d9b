// Present on every page: the button that changes the theme, and copy buttons.
const root = document.documentElement;

function dark(): boolean {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

document.getElementById("theme")?.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // blocked storage: the choice lasts as long as the page
  }
  dispatchEvent(new Event("themechange"));
});

// the system may change the theme as well, e.g. by time of day
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));

for (const button of document.querySelectorAll<HTMLButtonElement>("[data-copy]")) {
  const label = [...button.childNodes];
  button.addEventListener("click", async () => {
    const from = button.dataset.copy as string;
    const text = from.startsWith("#") ? (document.querySelector(from)?.textContent ?? "") : from;
    try {
      await navigator.clipboard.writeText(text);
      button.dataset.said = button.classList.contains("icon") ? "✓" : "Copied";
    } catch {
      button.dataset.said = "Copying is not allowed here";
    }
    const live = document.createElement("span");
    live.setAttribute("role", "status");
    live.textContent = button.dataset.said;
    button.replaceChildren(live);
    setTimeout(() => button.replaceChildren(...label), 1600);
  });
}
