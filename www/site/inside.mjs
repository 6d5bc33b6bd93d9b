// The page that shows the compilation of a computation.
import { readFileSync } from "node:fs";
import { DEVICES, editor, option, pane, tab } from "./parts.mjs";
import { page } from "./shell.mjs";

const NAMES = { product: "A product and a ReLU", attention: "Attention with a mask", step: "One step of training" };
const MODELS = {
  "models/style_multistyle26/model.onnx": "Style transfer, 0.8 MB",
  "models/esrgan_slim_x2/model.onnx": "ESRGAN, 0.9 MB",
  "models/selfie_segmentation/model.tflite": "Selfie segmentation, 0.2 MB",
  "models/magika/model.onnx": "Magika, 3.2 MB",
};
const LANGUAGE = { "models/verses/verses-q8_0.gguf": "A language model of verses (GGUF), 2.2 MB" };

/** The descriptions of the scheduler's passes, which the module in pages does without. */
function passes() {
  const source = readFileSync(new URL("../../core/src/schedule/passes.rs", import.meta.url), "utf8");
  const rows = [...source.matchAll(/name: "([\w-]+)",\s+what: sentence\(\s*"((?:[^"\\]|\\.)*)",?\s*\)/g)];
  const count = Number(/SCHEDULE_PASSES: \[SchedulePass; (\d+)\]/.exec(source)?.[1]);
  if (rows.length !== count) throw new Error(`${rows.length} of ${count} passes of the scheduler have a description in core/src/schedule/passes.rs`);
  return Object.fromEntries(rows.map(([, name, what]) => [name, what]));
}

const code = (name) => readFileSync(new URL(`../snippets/inside/${name}.js`, import.meta.url), "utf8").trim();
const PANES = [["kernels", "Kernels"], ["graphs", "Graph"], ["memory", "Memory"], ["timeline", "Timeline"]];

/** The views of a run. */
export const views = () => `<div class="tabs">
<div role="tablist" aria-label="Views" id="panes">${PANES.map((each, at) => tab(...each, at)).join("")}</div></div>
${pane("kernels", 0, '<div class="master"><ol id="list" class="kernels"></ol><div id="kernel" class="kernel-view"></div></div>')}
${PANES.slice(1).map(([id], at) => pane(id, at + 1)).join("\n")}`;

export function inside() {
  const snippets = Object.fromEntries([...Object.keys(NAMES), "model", "language"].map((name) => [name, code(name)]));
  const data = JSON.stringify(snippets).replaceAll("<", "\\u003c");
  return page({
    title: "Look inside",
    text: "The kernels that a model becomes: the graph after every pass, opts, estimates, memory and launches.",
    section: "inside",
    depth: 1,
    scripts: ["src/inside.ts"],
    body: `<h1>Look inside</h1>
<p class="lead">What a model or a few lines of code become on this device: every kernel, the graph after each pass of the compiler, what a launch
  should take and what it took, and where the memory goes.</p>
<div class="drop zone inside" id="drop">
  <div class="actions">
    <label class="grow"><span class="hide">What to look at</span><select id="snippet">
      <optgroup label="Code">${Object.entries(NAMES).map(([name, title]) => option(name, title)).join("")}</optgroup>
      <optgroup label="Models">${Object.entries(MODELS).map(([path, title]) => option(`model:${path}`, title)).join("")}${
        Object.entries(LANGUAGE).map(([path, title]) => option(`language:${path}`, title)).join("")}</optgroup>
    </select></label>
    <label class="file plain">Your model <input id="file" type="file" accept=".onnx,.tflite,.gguf"></label>
    <label><span class="hide">Device</span><select id="on">${DEVICES.map((each) => option(...each)).join("")}</select></label>
    <button type="button" id="run">Run</button><button class="plain" type="button" id="stop" hidden>Stop</button>
  </div>
  <p class="soft" id="file-name">An ONNX, TensorFlow Lite or GGUF file may be dropped here. It stays in the page.</p>
  <details class="code"><summary>The code that runs</summary>${editor(snippets.product, "Code that is run")}</details>
</div>
<p class="end" id="status" role="status">Not run yet.</p>
${views()}
<script type="application/json" id="snippets">${data}</script>
<script type="application/json" id="passes">${JSON.stringify(passes()).replaceAll("<", "\\u003c")}</script>`,
  });
}
