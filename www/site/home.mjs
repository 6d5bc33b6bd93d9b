// The home page: a one-sentence description, the editor, download sizes, the gallery.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync } from "node:zlib";
import { snippets } from "../snippets/index.mjs";
import { cards } from "./cards.mjs";
import { DEVICES, editor, option, pane, tab } from "./parts.mjs";
import { page } from "./shell.mjs";

/** Crossing threads of warp and weft: the page's ornament. */
const THREADS =
  '<svg class="threads" viewBox="0 0 1200 84" preserveAspectRatio="none" aria-hidden="true" fill="none" stroke-width="2.5">' +
  [16, 30, 44].map((y) => `<path class="warp" d="M0 ${y}C300 ${y} 300 ${84 - y / 2} 600 ${84 - y / 2}S900 ${y} 1200 ${y}"/>`).join("") +
  [76, 64, 52].map((y) => `<path class="weft" d="M0 ${y}C300 ${y} 300 ${(84 - y) / 2} 600 ${(84 - y) / 2}S900 ${y} 1200 ${y}"/>`).join("") +
  "</svg>";

const COPY =
  '<svg viewBox="0 0 24 24" width="18" height="18" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round">' +
  '<path d="M9 9h11v11H9zM5 15H4V4h11v1"/></svg>';

const PANES = [["result", "Result"], ["kernels", 'Kernels <span id="kernels-count"></span>'], ["graph", "Graph"], ["timeline", "Timeline"]];

function bench() {
  const [[, , code]] = snippets;
  const data = JSON.stringify(Object.fromEntries(snippets.map(([name, , text]) => [name, text]))).replaceAll("<", "\\u003c");
  return `<section class="bench" id="bench" aria-label="Live editor">
  <div class="side">
    <div class="tools">
      <label class="grow"><span class="hide">Snippet</span>
        <select id="snippet">${snippets.map(([name, title]) => option(name, title)).join("")}</select></label>
      <label><span class="hide">Device</span><select id="on">${DEVICES.map((each) => option(...each)).join("")}</select></label>
    </div>
    ${editor(code, "Code, runs as you type")}
  </div>
  <div class="side out">
    <div class="tabs"><div role="tablist" aria-label="What came of it" id="panes">${PANES.map((each, at) => tab(...each, at)).join("")}</div>
    <span class="grow"></span><button class="plain small" type="button" id="stop" hidden>Stop</button>
    <button class="plain small" type="button" id="run">Run</button></div>
    ${PANES.map(([id], at) => pane(id, at, at === 0 ? '<p class="soft">The compiler starts when you look at it.</p>' : "")).join("\n    ")}
    <div class="ends"><p class="end" id="status" role="status">Not run yet.</p><a href="inside/" id="look">Look inside</a></div>
  </div>
  <script type="application/json" id="snippets">${data}</script>
</section>`;
}

/**
 * The download size of onnxruntime-web's WebAssembly entry, compressed like the package; computing it takes half a
 * minute, so it is cached.
 */
function peer() {
  const folder = new URL("../../.cache/peers/", import.meta.url);
  const names = ["ort-wasm-simd-threaded.wasm", "ort.wasm.bundle.min.mjs"];
  const files = names.map((name) => new URL(`onnxruntime-web/${name}`, folder));
  if (!files.every((file) => existsSync(file))) return undefined;
  const raw = files.map((file) => readFileSync(file));
  const kept = new URL("sizes.json", folder);
  const of = raw.reduce((sum, { length }) => sum + length, 0);
  const known = existsSync(kept) ? JSON.parse(readFileSync(kept, "utf8")) : {};
  if (known.of === of) return known.brotli;
  const brotli = raw.reduce((sum, bytes) => sum + brotliCompressSync(bytes).length, 0);
  writeFileSync(kept, JSON.stringify({ of, brotli }));
  return brotli;
}

/** The sizes compared with onnxruntime-web's, and a table for times that the visitor's own device measures. */
function measured() {
  const file = new URL("../../dist/sizes.json", import.meta.url);
  const theirs = peer();
  if (!existsSync(file) || !theirs) return "";
  const bytes = JSON.parse(readFileSync(file, "utf8"));
  const ours = ["core", "extra: wasm", "extra: onnx", "extra: remote"].reduce((sum, name) => sum + bytes[name], 0);
  const megabytes = (n) => `${(n / 1e6).toFixed(2)} MB`;
  return `<h2>Measured where you are</h2>
<p class="lead">The same models in gradloom and in onnxruntime-web, on this device, when you ask for it: 6 MB of models and 14 MB of the other runtime.</p>
<div class="actions"><button id="measure" type="button">Measure</button><button class="plain" id="measure-stop" type="button" hidden>Stop</button>
  <a class="button plain" href="gallery/compare/">All six models</a><span id="measure-said" class="soft" role="status"></span></div>
<div class="wide" tabindex="0" role="region" aria-label="gradloom beside onnxruntime-web"><table id="measured">
  <thead><tr><th scope="col">WebAssembly</th><th scope="col">gradloom</th><th scope="col">onnxruntime-web</th></tr></thead>
  <tbody><tr><th scope="row">Download to run a model (Brotli)</th><td>${megabytes(ours)}</td><td>${megabytes(theirs)}</td></tr></tbody></table></div>`;
}

/** The download sizes that the package's build measured; empty if there are none. */
function sizes() {
  const file = new URL("../../dist/sizes.json", import.meta.url);
  if (!existsSync(file)) return "";
  const bytes = JSON.parse(readFileSync(file, "utf8"));
  const kilo = (...parts) => Math.round(parts.reduce((sum, name) => sum + bytes[name], 0) / 1000);
  return `<li><b>${kilo("core", "extra: wasm")} kB</b>to download for tensors and training on WebAssembly, the compiler included</li>
  <li><b>${kilo("extra: onnx")} kB</b>more for a page that loads ONNX models</li>`;
}

export function home() {
  return page({
    title: "gradloom: a deep-learning compiler for the browser",
    text: "A deep-learning compiler that runs in the page: real models and training on WebGPU or WebAssembly.",
    section: "home",
    depth: 0,
    scripts: ["src/home.ts"],
    body: `<div class="hero">
  <h1>Neural networks,<br>woven <em>in your page.</em></h1>
  <p class="lead">A compiler that turns models and tensors into kernels for the device it finds, WebGPU or plain WebAssembly.
    Run them, train them, read every kernel. There is no server, and nothing leaves the page.</p>
  <div class="actions">
    <a class="button" href="#bench">Try it</a><a class="button plain" href="gallery/">See the gallery</a>
    <span class="install"><code id="install">npm i gradloom</code>
      <button class="icon" type="button" data-copy="#install" aria-label="Copy the command">${COPY}</button></span>
  </div>
</div>
${THREADS}
${bench()}
<ul class="numbers-row">
  ${sizes()}
  <li><b>500+</b>operators under PyTorch's names, with gradients</li>
  <li><b>0</b>dependencies, servers, accounts</li>
</ul>
${measured()}
<h2>Made to be looked at</h2>
<p class="lead">Each of these runs on your device, with its code beside it.</p>
${cards("gallery/")}`,
  });
}
