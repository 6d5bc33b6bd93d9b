// Pages that are compiled into the program `gradloom`: each is one file with its script and its styles.
import { LOGO } from "./shell.mjs";

/** Builds a page; `head` is what stands beside the logo. */
export const standalone = ({ title, bodyAttributes = "", head = "", body, script, styles }) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="icon" href="data:,">
<style>${styles}</style>
</head>
<body${bodyAttributes}>
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><span class="logo">${LOGO}<span>gradloom</span></span>${head}</header>
<main id="main">
${body}
</main>
<script type="module">${script}</script>
</body>
</html>
`;
