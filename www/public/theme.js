// Runs before the first paint: applies the theme that the visitor chose; without a choice, the system's theme is used.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is blocked: the system's theme stays
}
