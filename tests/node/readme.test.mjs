// The programs in the READMEs run as they stand, with the names they leave open defined before them; and the sizes in
// the READMEs are those of the built package.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { PAGES, downloads } from "../../scripts/size.mjs";
import { model } from "../bench/browser/onnx.mjs";

const root = new URL("../../", import.meta.url);
// below tests/, where `gradloom` is the packed package
const folder = new URL("../tmp/readme/", import.meta.url);

/** A model as the READMEs assume one: `image` [1, 3, 224, 224] to `logits`, the means of the channels through a matrix that changes nothing yet. */
function logits() {
  const nodes = [["GlobalAveragePool", ["image"], "mean"], ["Flatten", ["mean"], "flat"], ["MatMul", ["flat", "head.weight"], "logits"]];
  const weight = { data: Float32Array.of(1, 0, 0, 0, 1, 0, 0, 0, 1), shape: [3, 3], dtype: "float32" };
  return model({ image: { shape: [1, 3, 224, 224], dtype: "float32" } }, { "head.weight": weight }, nodes, [1, 3]);
}

const PRELUDE = `
  import { Tensor as GivenTensor } from "gradloom";
  const pixels = new Float32Array(3 * 224 * 224).map((_, at) => Math.floor(at / (224 * 224)) + 1);
  const batches = [0, 1].map(() => ({ x: new GivenTensor(new Float32Array(4 * 784).fill(0.1), [4, 784]), y: new GivenTensor(Int32Array.of(1, 2, 3, 4)) }));
`;

function snippets(file) {
  return [...readFileSync(new URL(file, root), "utf8").matchAll(/```ts\n([\s\S]*?)```/g)].map((found) => found[1]);
}

for (const file of ["README.md", "web/ts/README.md"]) {
  snippets(file).forEach((source, at) => {
    test(`${file}, program ${at + 1}`, () => {
      rmSync(folder, { recursive: true, force: true });
      mkdirSync(folder, { recursive: true });
      writeFileSync(new URL("model.onnx", folder), logits());
      // what a program found is printed where it has a name for it
      const after = /const values = /.test(source) ? "\nconsole.log(values);" : "";
      writeFileSync(new URL("program.mjs", folder), PRELUDE + source + after);
      const text = execFileSync(process.execPath, ["program.mjs"], { cwd: fileURLToPath(folder), encoding: "utf8" });
      if (source.includes("logits")) assert.match(text, /Float32Array\(3\) \[ 1, 2, 3 \]/);
      else assert.ok(text.trim().split(/\s+/).every((word) => Number(word) > 0 && Number(word) < 10), text);
    });
  });
}

test("both READMEs have programs", () => {
  assert.ok(snippets("README.md").length >= 1 && snippets("web/ts/README.md").length >= 2);
});

/** How far a size in a README may be from the built one, in kB: a change of the compiler moves sizes by less. */
const TOLERANCE_KB = 4;

test("the sizes in the READMEs are those of the built package", () => {
  const built = new Map(Object.entries(JSON.parse(readFileSync(new URL("dist/sizes.json", root), "utf8"))));
  const [wasm, webgpu, modelOnWasm, modelOnWebgpu] = Object.keys(PAGES).map((page) => downloads(page, built));
  const rare = built.get("extra: rare");
  const sentences = {
    "README.md": [/fetches only those that it uses: (.*?)\. Tokenizers/s, [wasm, webgpu, modelOnWasm, modelOnWebgpu]],
    "web/ts/README.md": [/\*\*What a page downloads\*\* \(brotli\): (.*?)\. The wasm/s, [wasm, webgpu, modelOnWasm - wasm, rare]],
  };
  for (const [file, [sentence, bytes]] of Object.entries(sentences)) {
    const [, text] = sentence.exec(readFileSync(new URL(file, root), "utf8")) ?? [];
    assert.ok(text, `${file} says what a page downloads`);
    const told = [...text.matchAll(/\d+/g)].map(Number);
    const measured = bytes.map((size) => Math.round(size / 1000));
    const isNear = told.length === measured.length && told.every((size, at) => Math.abs(size - measured[at]) <= TOLERANCE_KB);
    assert.ok(isNear, `${file}: ${told}; built: ${measured}`);
  }
  const [, lengths] = /What that takes is (\d+) kB/.exec(readFileSync(new URL("web/ts/README.md", root), "utf8")) ?? [];
  const measured = built.get("extra: lengths") / 1000;
  assert.ok(Math.abs(lengths - measured) <= TOLERANCE_KB, `a second length takes ${lengths} kB; built: ${measured}`);
});
