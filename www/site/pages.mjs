// Writes the pages that Vite then builds: home, the gallery, and one per demo, as plain HTML in a folder that git
// ignores.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { demos } from "../demos/index.mjs";
import { highlight } from "../src/highlight.js";
import { cards } from "./cards.mjs";
import { docsHtml } from "./docs.mjs";
import { home } from "./home.mjs";
import { inside } from "./inside.mjs";
import { escape, page } from "./shell.mjs";

const FONT = "node_modules/@fontsource-variable/bricolage-grotesque/files/bricolage-grotesque-latin-wght-normal.woff2";

const START = "The compiler starts in the page.";

function gallery() {
  return page({
    title: "Gallery",
    text: "Demos of gradloom: networks that run and train in the page.",
    section: "gallery",
    depth: 1,
    body: `<h1>Gallery</h1>
<p class="lead">Each page fetches its model from this site and compiles it for your device. Pictures, sounds and files stay in the page.</p>
${cards("", "../", 2)}`,
  });
}

/** A demo's page: its own content within the parts that all demos share. */
function demo({ slug, title, text, size }, folder) {
  const source = (name) => readFileSync(join(folder, "demos", slug, name), "utf8");
  return page({
    title,
    text,
    section: "gallery",
    depth: 2,
    scripts: [`demos/${slug}/main.ts`],
    body: `<h1>${escape(title)}</h1>
<p class="lead">${escape(text)} <span class="nowrap">(${escape(size)})</span></p>
<form id="device">
  <fieldset><legend>Device</legend>
    <label><input type="radio" name="device" value="webgpu"> WebGPU</label>
    <label><input type="radio" name="device" value="wasm"> WebAssembly</label>
  </fieldset>
  <p class="soft" id="device-note"></p>
</form>
<div id="bar">
  <p id="status" role="status" aria-live="polite">${START}</p>
  <progress id="progress" max="1" hidden aria-label="Progress"></progress>
  <button class="plain" id="stop" type="button" hidden>Stop</button>
</div>
${source("page.html")}
<p class="cost" id="cost"></p>
<details class="code"><summary>The code of this demo</summary><pre tabindex="0">${highlight(source("code.js"))}</pre></details>`,
  });
}

/** Writes the pages below `folder`/tmp and returns their paths for Vite. */
export function writePages(folder) {
  const out = join(folder, "tmp");
  const pages = { "index.html": home(), "inside/index.html": inside(), "gallery/index.html": gallery(), ...docsHtml() };
  for (const each of demos) pages[`gallery/${each.slug}/index.html`] = demo(each, folder);
  rmSync(out, { recursive: true, force: true });
  for (const [name, html] of Object.entries(pages)) {
    const up = "../".repeat(name.split("/").length);
    mkdirSync(dirname(join(out, name)), { recursive: true });
    writeFileSync(join(out, name), html.replace("/@font", `${up}../${FONT}`).replace(/"\/@(src|demos)\//g, `"${up}$1/`));
  }
  return Object.keys(pages).map((name) => join(out, name));
}
