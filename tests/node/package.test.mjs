// The packed package in Node: what it holds, and that it starts.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { GradloomError, Tensor, devices, init, load, memory, probeWebGpu, version } from "gradloom";

const folder = new URL("../node_modules/gradloom/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", folder), "utf8"));

test("these tests run against the packed package, not the workspace", () => {
  assert.equal(import.meta.resolve("gradloom"), new URL("dist/index.js", folder).href);
});

test("the package has no run-time dependency and no install script", () => {
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.scripts, undefined);
});

test("the licences are in it, and no source", () => {
  const names = readdirSync(folder).filter((name) => !(`./${name}` in manifest.exports) || name === "package.json").sort();
  assert.deepEqual(names, ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "THIRD-PARTY-NOTICES.txt", "cli", "dist", "docs", "package.json"]);
});

test("tools that do not read `exports` find every entry by its folder", () => {
  const entries = Object.entries(manifest.exports).filter(([name, { types }]) => types && name !== ".");
  assert.ok(entries.length > 8, `${entries.length} entries`);
  for (const [name, files] of entries) {
    const own = new URL(`${name}/package.json`, folder);
    const { type, main, types } = JSON.parse(readFileSync(own, "utf8"));
    assert.equal(type, "module");
    assert.deepEqual([new URL(main, own).href, new URL(types, own).href], [new URL(files.default, folder).href, new URL(files.types, folder).href]);
  }
});

test("a release would be taken by npm and cargo, and the changelog speaks of it", () => {
  const options = { cwd: new URL("../..", import.meta.url), encoding: "utf8" };
  const { status, stdout, stderr } = spawnSync(process.execPath, ["scripts/release.mjs", "--dry"], options);
  assert.equal(status, 0, stdout + stderr);
  for (const name of ["npm would take gradloom", "cargo would pack gradloom-core", "cargo would pack gradloom "]) assert.ok(stdout.includes(name), stdout);
});

test("the guides are in it, and lead to each other", () => {
  const guides = readdirSync(new URL("docs", folder)).sort();
  assert.deepEqual(guides, readdirSync(new URL("../../docs/guide", import.meta.url)).sort());
  for (const name of guides) {
    const text = readFileSync(new URL(`docs/${name}`, folder), "utf8");
    assert.ok(text.startsWith("# ") || text.startsWith("<!--"), name);
    for (const [, to] of text.matchAll(/\]\(([^)#\s]+)/g)) {
      assert.ok(/^https?:/.test(to) || existsSync(new URL(`docs/${to}`, folder)), `${name} leads to ${to}`);
    }
    assert.doesNotMatch(text, /<!-- table:/, name);
  }
});

test("maps lead from the scripts to the sources, which are in them", () => {
  const maps = readdirSync(new URL("dist", folder), { recursive: true }).filter((name) => name.endsWith(".js.map"));
  assert.ok(maps.length > 10, `${maps}`);
  for (const name of maps) {
    const { sources, sourcesContent, mappings } = JSON.parse(readFileSync(new URL(`dist/${name}`, folder), "utf8"));
    const own = sources.map((path, at) => [path, sourcesContent[at]]).filter(([path]) => path.endsWith(".ts"));
    assert.ok(own.length > 0 && mappings.length > 50, name);
    const source = (path) => readFileSync(new URL(path.replace("gradloom/src/", "../../web/ts/src/"), import.meta.url), "utf8");
    for (const [path, text] of own) assert.equal(text, source(path), path);
  }
  const program = 'import { Tensor, init } from "gradloom"; await init(); Tensor.ones([2]).matmul(Tensor.ones([3]));';
  const args = ["--enable-source-maps", "--input-type=module", "-e", program];
  const { stderr } = spawnSync(process.execPath, args, { cwd: new URL("..", import.meta.url), encoding: "utf8" });
  const line = /tensor\.ts:(\d+):\d+/g;
  const lines = readFileSync(new URL("../../web/ts/src/tensor.ts", import.meta.url), "utf8").split("\n");
  const named = [...stderr.matchAll(line)].map(([, n]) => lines[n - 1]);
  assert.ok(named.some((text) => text.includes('return op("matmul"')), `${stderr}`);
});

test("an uncaught error names its class, its code and the caller's line, and no frames of the wasm module", () => {
  const program = (body) => spawnSync(process.execPath, ["--input-type=module", "-e", `import { FetchError, Tensor, init, load } from "gradloom";\n${body}`], {
    cwd: new URL("..", import.meta.url),
    encoding: "utf8",
  });
  const { stderr, status } = program("await init();\nTensor.ones([2]).matmul(Tensor.ones([3]));");
  assert.equal(status, 1);
  assert.match(stderr, /^ShapeError \[E_SHAPE\]: matmul: shape \[2\] does not fit \[3\]$/m);
  assert.match(stderr, /at file:.*\[eval1\]:3:18/);
  assert.doesNotMatch(stderr, /wasm-function|undefined/);
  const longest = Math.max(...stderr.split("\n").map((line) => line.length));
  assert.ok(longest < 160 && stderr.split("\n").length < 20, `no line of minified code is printed:\n${stderr}`);
  // a cause that says more than its error is printed
  assert.match(program('await load("/no/such/model.onnx");').stderr, /^FetchError \[E_FETCH\]: .*\[cause\]: Error: ENOENT/ms);
  // and the frames are there for whoever wants them
  const report = "console.log(String(e), e.constructor.name, e.cause.fullStack);";
  const { stdout } = program(`await init();\ntry { Tensor.ones([2]).matmul(Tensor.ones([3])); } catch (e) { ${report} }`);
  assert.match(stdout, /^ShapeError: matmul: .* ShapeError Error: .*wasm-function/s);
});

test("scripts of workers and what they share with pages load no other script", () => {
  const imports = (name) => {
    const code = readFileSync(new URL(`dist/${name}.js`, folder), "utf8");
    return [...code.matchAll(/\bfrom ?"([^"]*)"|\bimport\(?"([^"]*)"/g)].map(([, from, later]) => from ?? later);
  };
  assert.deepEqual(imports("core"), []);
  for (const script of ["remote-worker", "llm-worker", "encoder-worker"]) assert.deepEqual(imports(script), ["./core.js"], script);
  assert.ok(imports("page").includes("./remote.js"), "what pages load later is found");
});

test("`gradloom copy` puts the workers' scripts and the wasm files into a folder, with all that they name beside them", () => {
  const folderTo = fileURLToPath(new URL("../tmp/copied/", import.meta.url));
  rmSync(folderTo, { recursive: true, force: true });
  const command = (...args) => spawnSync(process.execPath, [fileURLToPath(new URL("cli/gradloom.mjs", folder)), ...args], { encoding: "utf8" });
  const { status, stdout, stderr } = command("copy", folderTo);
  assert.equal(status, 0, stderr);
  const names = readdirSync(folderTo);
  assert.match(stdout, new RegExp(`: ${names.length} files, \\d+\\.\\d MB`));
  assert.ok(names.includes("gradloom_web_bg.wasm") && !names.includes("gradloom_whole_bg.wasm"), `${names}`);
  // every script that a module of the package starts by its address
  const started = readdirSync(new URL("dist", folder)).filter((name) => name.endsWith(".js")).flatMap((name) => {
    const code = readFileSync(new URL(`dist/${name}`, folder), "utf8");
    return [...code.matchAll(/new URL\("\.\/([^"/]*\.js)", ?import\.meta\.url/g)].map(([, script]) => script);
  });
  assert.ok(started.includes("worker.js") && started.includes("llm-worker.js") && started.includes("encoder-worker.js"), `${started}`);
  assert.deepEqual(started.filter((name) => !names.includes(name)), []);
  assert.equal(command("copy").status, 1);
  for (const asked of [["--help"], ["-h"], ["models", "--help"], ["copy", "-h"], []]) {
    const { status: asWell, stdout: usage } = command(...asked);
    assert.ok(asWell === 0 && usage.startsWith("usage:"), `${asked}`);
  }
  assert.equal(command("--version").stdout.trim(), manifest.version);
  assert.match(command("copy", "--all").stderr, /there is no option --all/);
});

test("every export names a file", () => {
  for (const entry of Object.values(manifest.exports).flatMap((value) => (typeof value === "string" ? [value] : Object.values(value)))) {
    assert.ok(readFileSync(new URL(entry, folder)).length > 0, entry);
  }
  // whoever serves the modules from elsewhere imports their addresses, and asks for a part ahead of time by its name
  const modules = readdirSync(new URL("dist/pkg", folder)).filter((name) => name.endsWith(".wasm"));
  assert.deepEqual(modules.filter((name) => !manifest.exports[`./${name}`]), []);
});

test("every file that a script names beside it is there", () => {
  let count = 0;
  for (const name of readdirSync(new URL("dist", folder), { recursive: true }).filter((each) => each.endsWith(".js"))) {
    const script = new URL(`dist/${name}`, folder);
    const code = readFileSync(script, "utf8");
    const named = [...code.matchAll(/new URL\("(\.[^"]*)", ?import\.meta\.url|\b(?:from|import) ?\(?"(\.[^"]*)"/g)].map(([, url, module]) => url ?? module);
    count += named.length;
    for (const to of named) assert.ok(existsSync(new URL(to, script)), `${name} names ${to}`);
  }
  assert.ok(count > 50, `${count}`);
});

test("it starts in Node and says that there is no WebGPU", async () => {
  await init();
  assert.equal(version(), manifest.version);
  assert.equal(await probeWebGpu(), null);
});

test("in Node auto is wasm, and devices() says why", async () => {
  assert.equal((await init()).kind, "wasm");
  const [gpu, wasm] = await devices();
  assert.deepEqual([gpu.kind, gpu.available, gpu.reason], ["webgpu", false, "Node has none"]);
  assert.deepEqual([wasm.kind, wasm.available], ["wasm", true]);
  await assert.rejects(init({ device: "webgpu" }), { code: "E_DEVICE" });
});

test("a model is loaded from a path, a URL and bytes, and a wrong path is an error", async () => {
  const path = new URL("../models/silero_vad_op15/model.onnx", import.meta.url);
  for (const from of [path, path.pathname, readFileSync(path)]) {
    const model = await load(from);
    assert.deepEqual(model.inputs.map(({ name }) => name).sort(), ["input", "sr", "state"]);
    model.dispose();
  }
  await assert.rejects(load("/no/such/model.onnx"), (error) => error instanceof GradloomError && error.code === "E_FETCH");
  await assert.rejects(load(path, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("what is disposed is freed", async () => {
  const tensors = async () => (await memory())[0].tensors;
  const before = await tensors();
  {
    const a = Tensor.ones([3]);
    const b = a.add(1);
    assert.equal(await tensors(), before + 2);
    assert.deepEqual(await b.tolist(), [2, 2, 2]);
    a.dispose();
    b.dispose();
  }
  assert.equal(await tensors(), before);
});

test("the types of all entries need the library of pages or of workers alone", () => {
  const own = new URL("../tmp/types/", import.meta.url);
  mkdirSync(own, { recursive: true });
  const entries = Object.entries(manifest.exports).filter(([, to]) => typeof to === "object").map(([name]) => name.replace(/^\./, "gradloom"));
  const lines = entries.map((name, at) => `import * as entry${at} from "${name}";\nvoid entry${at};`);
  writeFileSync(new URL("program.mts", own), `${lines.join("\n")}\n`);
  assert.ok(entries.length >= 12, `${entries}`);
  const tsc = new URL("../../node_modules/typescript/bin/tsc", import.meta.url);
  for (const library of ["dom,dom.iterable", "webworker,webworker.iterable"]) {
    const options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext", "--lib", `es2022,esnext.disposable,${library}`];
    const { status, stdout } = spawnSync(process.execPath, [fileURLToPath(tsc), ...options, "program.mts"], { cwd: own, encoding: "utf8" });
    assert.equal(status, 0, `${library}: ${stdout}`);
  }
});
