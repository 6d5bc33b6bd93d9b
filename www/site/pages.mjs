// Writes the pages that Vite builds: home, the gallery, and one for each demo, as plain HTML in a folder that git ignores.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { demos } from "../demos/index.mjs";
import { escape, page } from "./shell.mjs";

const FONT = "node_modules/@fontsource-variable/bricolage-grotesque/files/bricolage-grotesque-latin-wght-normal.woff2";

const START = "The compiler starts in the page.";

function home() {
  return page({
    title: "gradloom: a deep-learning compiler for the browser",
    text: "A deep-learning compiler that runs in the page: real models and training on WebGPU or WebAssembly.",
    section: "home",
    depth: 0,
    body: `<div class="hero">
  <h1>Run and train networks in the browser.</h1>
  <p class="lead">gradloom is a compiler that turns models into kernels for the device it finds, WebGPU or WebAssembly, in the page itself.</p>
  <div class="actions"><code class="install" id="install">npm i gradloom</code><button class="plain" type="button" data-copy="#install">Copy</button></div>
  <div class="actions"><a class="button" href="gallery/">See it work</a></div>
</div>
<h2>Six demos, all on your device</h2>
${cards("gallery/")}`,
  });
}

function cards(up) {
  const card = ({ slug, title, card: text, size, train }) =>
    `<li class="card"><div class="in"><h3><a href="${up}${slug}/">${escape(title)}</a></h3><p>${escape(text)}</p>` +
    `<p>${train ? "Trains in the page, " : ""}${escape(size)}</p></div></li>`;
  return `<ul class="grid">${demos.map(card).join("\n")}</ul>`;
}

function gallery() {
  return page({
    title: "Gallery",
    text: "Demos of gradloom: networks that run and train in the page.",
    section: "gallery",
    depth: 1,
    body: `<h1>Gallery</h1>
<p class="lead">Each page fetches its model from this site and compiles it for your device. Pictures, sounds and files stay in the page.</p>
${cards("")}`,
  });
}

/** A demo's page: its own part, and what all of them have. */
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
</form>
<p class="note" id="device-note"></p>
<div id="bar">
  <p id="status" role="status" aria-live="polite">${START}</p>
  <progress id="progress" max="1" hidden aria-label="Progress"></progress>
  <button class="plain" id="stop" type="button" hidden>Stop</button>
</div>
${source("page.html")}
<p class="cost" id="cost"></p>
<details class="code"><summary>The code of this demo</summary><pre tabindex="0">${escape(source("code.js"))}</pre></details>`,
  });
}

/** Writes the pages below `folder`/tmp and returns their paths for Vite. */
export function writePages(folder) {
  const out = join(folder, "tmp");
  const pages = { "index.html": home(), "gallery/index.html": gallery() };
  for (const each of demos) pages[`gallery/${each.slug}/index.html`] = demo(each, folder);
  rmSync(out, { recursive: true, force: true });
  for (const [name, html] of Object.entries(pages)) {
    const up = "../".repeat(name.split("/").length);
    mkdirSync(dirname(join(out, name)), { recursive: true });
    writeFileSync(join(out, name), html.replace("/@font", `${up}../${FONT}`).replace(/"\/@(src|demos)\//g, `"${up}$1/`));
  }
  return Object.keys(pages).map((name) => join(out, name));
}
