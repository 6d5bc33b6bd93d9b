// Runs before the first paint: the theme the visitor chose, if any; otherwise the system's is used.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // storage is blocked: the system's theme stays
}
