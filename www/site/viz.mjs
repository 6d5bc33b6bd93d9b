// The page of `gradloom viz`, which is compiled into the program: one self-contained file with script and styles.
import { views } from "./inside.mjs";
import { LOGO } from "./shell.mjs";

/** Builds the page from a script and styles. */
export const viz = (script, styles) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>gradloom viz</title>
<link rel="icon" href="data:,">
<style>${styles}</style>
</head>
<body class="inside">
<a class="skip" href="#main">Skip to the content</a>
<header class="top"><span class="logo">${LOGO}<span>gradloom</span></span>
<label class="run"><span class="hide">Engine</span><select id="run"></select></label></header>
<main id="main">
<h1>What runs here</h1>
<p class="end" id="status" role="status">Connecting.</p>
<div id="views" hidden>${views()}</div>
</main>
<script type="module">${script}</script>
</body>
</html>
`;
