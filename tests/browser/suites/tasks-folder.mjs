// configs: default, no-webgpu, other-origin
// Tasks without an address in a page: by a published folder of models, whose index the package's command wrote.
import { init } from "gradloom";
import { chat, fileType, removeBackground, segment, setModelBase, unload } from "gradloom/tasks";
import { allowConsoleErrors, assert, assertEqual, errorOf, test } from "harness";

await init();

test("tasks find their models in the folder, in the worker and in the page", async () => {
  const fetched = [];
  const options = { onModel: ({ url }) => fetched.push(new URL(url).pathname) };
  for (const worker of [true, false]) {
    // a base without a slash at its end, and one relative to the page
    setModelBase(worker ? "/model-folder" : "../model-folder/");
    assertEqual((await fileType("/page/harness.mjs", { ...options, worker })).label, "javascript");
    const blank = new OffscreenCanvas(40, 30);
    blank.getContext("2d", { willReadFrequently: true }).fillRect(0, 0, 40, 30);
    assertEqual((await segment(blank, { ...options, worker })).segments, [{ index: 0, label: "background", share: 1 }]);
    assertEqual((await removeBackground(blank, { ...options, worker, model: "selfie_segmentation" })).mask.length, 1200);
    await unload();
  }
  const once = ["magika/model.onnx", "selfie_segmentation/model.tflite", "selfie_segmentation/model.tflite"];
  assertEqual(fetched, [...once, ...once].map((path) => `/model-folder/${path}`));
});

test("a language model answers without an address", async () => {
  setModelBase("/model-folder");
  const answer = await chat("The LORD is my shepherd;", { maxTokens: 8 });
  assert(answer.length > 5, answer);
  await unload();
});

test("a folder that is not there, and a model that is not in it", async () => {
  allowConsoleErrors("404");
  setModelBase("/no-such-folder/");
  let error = await errorOf(() => fileType("/page/harness.mjs"));
  assertEqual([error.code, error.message.includes("/no-such-folder/index.json could not be fetched: status 404")], ["E_FETCH", true]);
  assert(error.hint.includes("npx gradloom models DIR"), error.hint);
  setModelBase("/model-folder/");
  error = await errorOf(() => segment("/photo.png", { model: "none" }));
  assertEqual(error.code, "E_VALUE");
  assert(error.message.endsWith("has no model `none`; it has magika, ppocr_cls, selfie_segmentation, selfie_segmentation-segment, verses"), error.message);
  setModelBase(undefined);
  error = await errorOf(() => segment("/photo.png"));
  assertEqual([error.code, error.message], ["E_VALUE", "segment needs the address of a recipe"]);
});

test("with the hash of the index, a changed index is refused, and recipes are verified in the worker", async () => {
  const bytes = await (await fetch("/model-folder/index.json")).arrayBuffer();
  const hash = [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map((v) => v.toString(16).padStart(2, "0")).join("");
  setModelBase("/model-folder/", { hash });
  assertEqual((await fileType("/page/harness.mjs")).label, "javascript");
  await unload();
  setModelBase("/model-folder/", { hash: "0".repeat(64) });
  assertEqual((await errorOf(() => fileType("/page/harness.mjs"))).code, "E_FETCH");
  setModelBase(undefined);
  const wrong = { model: "/model-folder/magika/recipe.json", hash: "0".repeat(64) };
  const error = await errorOf(() => fileType("/page/harness.mjs", wrong));
  assertEqual([error.code, error.message.includes("recipe.json has the hash")], ["E_FETCH", true]);
});
