// How soon work ends after an abort, in node and in a headless Chromium: models are given up at moments at random.
// usage: node tests/bench/abort/run.mjs [--models NAME,..] [--on node,node-threads,page,page-threads,webgpu] [--count 30] [--seed 1]
// The package must have been built. Models are those of the repository, the fetched ones, and `residual`, which is made here.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { launch } from "../../../scripts/lib/chromium.mjs";
import { unpackInto } from "../../../scripts/lib/package.mjs";
import { main, root } from "../../../scripts/lib/run.mjs";
import { serve } from "../../../scripts/serve.mjs";
import { unpackPackage } from "../../browser/run.mjs";
import { mounts } from "../../browser/suite.mjs";
import { readNpz } from "../../lib/npz.mjs";
import { measure } from "./measure.mjs";
import { residualNetwork } from "./residual.mjs";

const HOSTS = {
  node: { device: "wasm", threads: 1 },
  "node-threads": { device: "wasm", threads: 2 },
  page: { device: "wasm", threads: 1, page: true },
  "page-threads": { device: "wasm", threads: 2, page: true },
  webgpu: { device: "webgpu", page: true },
};

const models = join(root, "tests/models");
const fetched = join(root, ".cache/models");

/** The model's file: with the repository, or fetched. */
function fileOf(name) {
  const files = [models, fetched].flatMap((folder) => ["onnx", "tflite"].map((kind) => join(folder, name, `model.${kind}`)));
  return files.find((file) => existsSync(file));
}

const known = ["residual", ...readdirSync(models).filter((name) => fileOf(name) && existsSync(join(models, name, "input.npz")))];

async function inNode(name, options) {
  const project = join(root, "tests");
  unpackInto(project);
  const gradloom = await import(join(project, "node_modules/gradloom/dist/index.js"));
  const stored = async () => ({ file: readFileSync(fileOf(name)), inputs: await readNpz(readFileSync(join(models, name, "input.npz"))) });
  const made = name === "residual" ? residualNetwork() : await stored();
  return measure(gradloom, () => made, options);
}

async function inPage(name, options) {
  const server = await serve({ ...mounts(unpackPackage()), "/bench": join(root, "tests/bench") });
  const browser = await launch();
  try {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(String(error)));
    await page.goto(`${server.url}/page/plain.html`);
    const file = name === "residual" ? undefined : fileOf(name).replace(models, "/models").replace(fetched, "/cache/models");
    return await page.evaluate(async ({ name: model, file: url, options: how }) => {
      const { measure: measureHere } = await import("/bench/abort/measure.mjs");
      const gradloom = await import("/gradloom/index.js");
      const bytes = async (from) => new Uint8Array(await (await fetch(from)).arrayBuffer());
      let made;
      if (url) {
        const { readNpz: read } = await import("/lib/npz.mjs");
        made = { file: await bytes(url), inputs: await read(await bytes(`/models/${model}/input.npz`)) };
      } else made = (await import("/bench/abort/residual.mjs")).residualNetwork();
      return measureHere(gradloom, () => made, how);
    }, { name, file, options });
  } finally {
    await browser.close();
    await server.close();
  }
}

main(async () => {
  const argv = process.argv.slice(2);
  const value = (key, otherwise) => (argv.includes(key) ? argv[argv.indexOf(key) + 1] : otherwise);
  const names = value("--models", "residual,yolov8n_nudenet,style_multistyle26,silero_vad_op15").split(",");
  const unknown = names.filter((name) => !known.includes(name));
  if (unknown.length > 0) throw new Error(`there is no model ${unknown}; there are ${known.join(", ")}`);
  const round = (ms) => (ms === undefined ? "-" : ms.toFixed(1));
  for (const place of value("--on", Object.keys(HOSTS).join()).split(",")) {
    const { page, ...options } = { ...HOSTS[place], count: Number(value("--count", 30)), seed: Number(value("--seed", 1)) };
    for (const name of names) {
      const r = await (page ? inPage : inNode)(name, options);
      const blocks = Object.entries(r.blocks).map(([phase, ms]) => `${phase} ${round(ms)}`).join(", ");
      const ends = `${r.aborted} aborts end after median ${round(r.median)}, 95% ${round(r.p95)}, most ${round(r.most)} ms`;
      console.log(`${place.padEnd(13)} ${name.padEnd(20)} whole ${round(r.wholeMs)} ms; ${ends}; longest block: ${blocks}`);
    }
  }
});
