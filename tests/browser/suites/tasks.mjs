// configs: default, no-webgpu
// Tasks in a page: a canvas in, a canvas out; models by the address of their recipes.
import { init } from "gradloom";
import { chat, fileType, removeBackground, segment, stylize, unload, vad } from "gradloom/tasks";
import { assert, assertClose, assertEqual, fetchBytes, params, test } from "harness";
import { readNpz } from "npz";

const device = params.get("config") === "default" ? "webgpu" : "wasm";

test(`a canvas is painted on ${device}`, async () => {
  await init({ device });
  const [{ image, style_weights: weights }, { stylized }] = await Promise.all(
    ["input", "expected"].map(async (name) => readNpz(await fetchBytes(`/models/style_multistyle26/${name}.npz`))),
  );
  const canvas = new OffscreenCanvas(256, 256);
  const pixels = new ImageData(256, 256);
  for (let i = 0; i < 65536; i += 1) pixels.data.set([0, 1, 2].map((c) => 255 * image.data[65536 * c + i]).concat(255), 4 * i);
  // in memory: what a canvas of the GPU holds is lost, without an error, when the browser starts its GPU process anew
  canvas.getContext("2d", { willReadFrequently: true }).putImageData(pixels, 0, 0);
  const told = [];
  const options = { model: "/models/style_multistyle26/recipe.json", device, style: [...weights.data], onModel: (notice) => told.push(notice.url) };
  const got = await stylize(canvas, options);
  assert(got instanceof ImageData);
  const want = Array.from({ length: 65536 * 3 }, (_, i) => 255 * stylized.data[65536 * (i % 3) + Math.floor(i / 3)]);
  const colours = got.data.filter((_, i) => i % 4 < 3);
  assertClose(colours, want, { tolerance: 6e-3 });
  assertEqual(told, [new URL("/models/style_multistyle26/model.onnx", location.href).href]);
});

test(`a person, a file and a voice on ${device}`, async () => {
  const blank = new OffscreenCanvas(40, 30);
  blank.getContext("2d").fillRect(0, 0, 40, 30);
  const { picture, mask } = await removeBackground(blank, { model: "/models/selfie_segmentation/recipe.json", device });
  assertEqual([picture.width, picture.height, mask.length], [40, 30, 1200]);
  assert(mask.every((v) => v >= 0 && v < 0.5), "nobody is there");
  const parts = await segment(blank, { model: "/models/selfie_segmentation/segment.json", device });
  assertEqual([parts.width, parts.height, parts.classes.length], [40, 30, 1200]);
  assertEqual(parts.segments, [{ index: 0, label: "background", share: 1 }]);
  const kind = await fileType("/page/harness.mjs", { model: "/models/magika/recipe.json", device });
  assertEqual(kind.label, "javascript");
  const { segments } = await vad("/models/whisper_tiny_en/speech.wav", { model: "/models/silero_vad_op18_ifless/recipe.json", device });
  assert(segments.length > 0 && segments[0].end > segments[0].start);
  await unload();
});

test(`a language model answers on ${device}`, async () => {
  const pieces = [];
  const answer = await chat("The LORD is my shepherd;", { model: "/models/verses/recipe.json", device, maxTokens: 12, onText: (text) => pieces.push(text) });
  assert(answer.length > 10 && pieces.length > 3 && pieces.join("") === answer, answer);
  await unload();
});
