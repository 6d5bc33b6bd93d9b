// The build of the demo site. The headers make the pages cross-origin isolated, which enables threads on the wasm
// device. Models and data are copied into the built site from the repository's test models and the cache of fetched
// data.
import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { recipeFiles } from "../scripts/lib/recipes.mjs";
import { readNpz } from "../tests/lib/npz.mjs";
import { searchIndex } from "./site/docs.mjs";
import { writePages } from "./site/pages.mjs";

const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
const root = fileURLToPath(new URL("..", import.meta.url));
/** Models that come with their recipes. */
const TASKS = [
  "magika", "selfie_segmentation", "esrgan_slim_x2", "style_multistyle26", "silero_vad_op18_ifless", "basic_pitch", "ppocrv4_det", "ppocr_cls",
  "ppocrv4_rec", "minilm_l6_v2", "whisper_tiny_en", "firered_aed", "blazeface_short", "efficientnet_lite0", "ssd_mobilenet_v2", "verses",
];

/** All files that the pages fetch, by path within the site. */
async function data() {
  const files = { "docs/search.json": searchIndex() };
  for (const name of TASKS) Object.assign(files, recipeFiles(name));
  Object.assign(files, recipeFiles("selfie_segmentation", "segment.json"));
  // two photographs that skimage ships as CC0, as planes of red, green and blue
  const { image } = await readNpz(readFileSync(`${root}/tests/models/efficientnet_lite0/input.npz`));
  files["data/photographs.bin"] = Buffer.from(image.data);
  // the astronaut (NASA, public domain) in the same way
  const [astronaut] = Object.values(await readNpz(readFileSync(`${root}/tests/models/yolov8n_nudenet/input.npz`)));
  files["data/astronaut.bin"] = Buffer.from(Uint8Array.from(astronaut.data, (v) => Math.round(255 * v)));
  // a sentence of Sense and Sensibility as LibriVox has it (public domain), from Debian's pocketsphinx-testdata
  files["data/austen.wav"] = readFileSync(`${root}/www/demos/transcribe/austen.wav`);
  files["data/cells.safetensors"] = readFileSync(`${root}/www/demos/cells/cells.safetensors`);
  for (const name of readdirSync(`${root}/tests/models/LICENSES`)) {
    files[`licenses/${name}`] = readFileSync(`${root}/tests/models/LICENSES/${name}`);
  }
  for (const name of readdirSync(`${root}/.cache/peers/onnxruntime-web`)) {
    files[`peers/onnxruntime-web/${name}`] = readFileSync(`${root}/.cache/peers/onnxruntime-web/${name}`);
  }
  // images and labels, train and test, as bytes one after another
  const mnist = await readNpz(readFileSync(`${root}/.cache/datasets/mnist.npz`));
  files["data/mnist.bin"] = Buffer.concat(["x_train", "y_train", "x_test", "y_test"].map((name) => mnist[name].data));
  // the speech of the detector's test: frames of 64 samples of context and 512 new ones
  const { input } = await readNpz(readFileSync(`${root}/tests/models/silero_vad_sequence/input.npz`));
  const frames = Array.from({ length: input.shape[0] }, (_, at) => input.data.subarray(at * 576 + 64, (at + 1) * 576));
  files["data/speech.f32"] = Buffer.concat(frames.map((f) => Buffer.from(f.buffer, f.byteOffset, f.byteLength)));
  return files;
}

const siteData = {
  name: "site-data",
  async generateBundle() {
    for (const [fileName, source] of Object.entries(await data())) this.emitFile({ type: "asset", fileName, source });
  },
};

const www = fileURLToPath(new URL(".", import.meta.url));
const input = writePages(www);

// workers are at the site's root, relative to which they find models and data
export default defineConfig({
  root: `${www}tmp`,
  publicDir: `${www}public`,
  base: "./",
  build: { target: "es2022", outDir: `${www}dist`, emptyOutDir: true, assetsInlineLimit: 0, rolldownOptions: { input } },
  worker: { format: "es", rolldownOptions: { output: { entryFileNames: "[name]-[hash].js" } } },
  plugins: [siteData],
  optimizeDeps: { exclude: ["gradloom"] },
  server: { headers },
  preview: { headers },
});
