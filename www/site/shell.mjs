// The frame of every page: head, navigation, footer. Pages are plain strings, which Vite processes further. `depth` is
// the number of folders between a page and the site's root, since all addresses are relative.

/** Escapes text for HTML. */
export const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

/** The logo, woven threads: three of the warp in the text's colour, two of the weft in the accent colour. */
export const LOGO =
  '<svg class="mark" viewBox="0 0 32 32" width="30" height="30" aria-hidden="true" fill="none" stroke-width="4" stroke-linecap="round">' +
  '<path stroke="currentColor" d="M7 3v6.5M7 17.5V29M16 3v14.5M16 26v3M25 3v6.5M25 17.5V29"/>' +
  '<path stroke="var(--accent)" d="M3 13.5h8.5M20.5 13.5H29M3 22h0.1M11.5 22H29"/></svg>';

const CSP = [
  "default-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", "connect-src 'self' blob:", "img-src 'self' blob: data:",
  "media-src 'self' blob:", "worker-src 'self'", "style-src 'self'", "font-src 'self'", "object-src 'none'", "base-uri 'none'",
].join("; ");

const LINKS = [["gallery", "gallery/", "Gallery"], ["inside", "inside/", "Look inside"], ["docs", "docs/", "Docs"]];

const SUN = '<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round">' +
  '<circle cx="12" cy="12" r="8"/><path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor"/></svg>';

/**
 * A complete page. `title` names it, `text` describes it in a sentence, `section` is the current navigation link,
 * `scripts` are sources below www, `body` is its main part.
 */
export function page({ title, text, section = "", depth, scripts = [], body }) {
  const up = "../".repeat(depth);
  const link = ([id, to, name]) => `<a href="${up}${to}"${id === section ? ' aria-current="page"' : ""}>${name}</a>`;
  const whole = section === "home" ? title : `${title} · gradloom`;
  return `<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta name="description" content="${escape(text)}">
  <meta http-equiv="Content-Security-Policy" content="${CSP}">
  <title>${escape(whole)}</title>
  <script src="/theme.js"></script>
  <link rel="icon" type="image/svg+xml" href="/icon.svg">
  <link rel="preload" as="font" type="font/woff2" crossorigin href="/@font">
  <link rel="stylesheet" href="/@src/style.css">
</head>
<body class="${section}">
  <a class="skip" href="#main">Skip to the content</a>
  <header class="top">
    <a class="logo" href="${up || "./"}">${LOGO}<span>gradloom</span></a>
    <nav aria-label="Site">${LINKS.map(link).join("")}</nav>
    <button class="icon" id="theme" type="button" aria-label="Switch between light and dark">${SUN}</button>
  </header>
  <main id="main">
${body}
  </main>
  <footer class="foot">
    <p>${LOGO} Everything here runs on your device, in this page. Nothing you give it is sent anywhere.</p>
    <p>Models under their own licences: styles, speech detector, Whisper and enlarger MIT,
      Magika, the cut-out, BlazeFace, PP-OCR, Basic Pitch, FireRedVAD, MiniLM, EfficientNet and the SSD Apache-2.0
      (<a href="${up}licenses/Apache-2.0.txt">text</a>).</p>
  </footer>
  <noscript><p class="note">This site needs JavaScript: the compiler runs in the page.</p></noscript>
  <script type="module" src="/@src/site.ts"></script>
${scripts.map((each) => `  <script type="module" src="/@${each}"></script>`).join("\n")}
</body>
</html>
`;
}
