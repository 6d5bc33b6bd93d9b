// The code in the guides and in the READMEs fits the types of the package; what needs nothing else is run as it stands.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = new URL("../../", import.meta.url);
// below tests/, where `gradloom` is the packed package
const folder = new URL("../tmp/guides/", import.meta.url);

/** What the reader has: names that code uses without defining them, or that earlier code of the same guide defined. */
const GIVEN = `
  declare const photo: HTMLImageElement, scan: Blob, video: HTMLVideoElement, recording: File, sound: Float32Array, file: File;
  declare const pixels: Float32Array, page: HTMLElement, lamp: HTMLElement, input: { files: FileList }, signal: AbortSignal;
  declare const question: string, article: string, text: string, documents: string[], texts: string[];
  declare const server: { examples(): AsyncIterable<{ text: string; label: number }> }, bar: { set(part: number): void };
  declare function show(...values: unknown[]): void;
  declare function say(value: unknown): void;
  declare function tokenize(text: string): number[];
  type Tensor = import("gradloom").Tensor;
  type Batch = { x: Tensor; y: Tensor };
  declare const x: Tensor, y: Tensor, batches: Batch[];
  declare const model: import("gradloom").Model, encoder: import("gradloom").Model, decoder: import("gradloom").Model;
  declare const Tensor: typeof import("gradloom").Tensor;
  declare const irKernel: typeof import("gradloom").irKernel, init: typeof import("gradloom").init;
  declare const nn: typeof import("gradloom").nn, optim: typeof import("gradloom").optim;
  declare const net: import("gradloom").nn.Sequential, optimizer: import("gradloom").optim.Adam;
  declare const loader: import("gradloom/data").DataLoader<Batch>, loss: (batch: Batch) => Tensor, fit: typeof import("gradloom/fit").fit;
  declare const LLM: typeof import("gradloom/llm").LLM, Encoder: typeof import("gradloom/llm").Encoder;
  declare const llm: import("gradloom/llm").LLM, tokenizer: import("gradloom").Tokenizer;
  declare const setModelBase: typeof import("gradloom/tasks").setModelBase;
  declare const GPUBufferUsage: { STORAGE: number; COPY_SRC: number; COPY_DST: number };
  declare module "react" { export function useState<T>(value: T): [T, (value: T) => void]; }
  declare namespace JSX { interface IntrinsicElements { [name: string]: any } }
`;

/** A name that pages have too, for something else. */
const SCHEDULER = 'declare const scheduler: import("gradloom/optim").LRScheduler;';

/** The pieces of code of a document: JavaScript, TypeScript, and the modules in pages. */
function piecesOf(path) {
  const text = readFileSync(new URL(path, root), "utf8");
  return [...text.matchAll(/```(js|ts|html)(?: [^\n]*)?\n([\s\S]*?)```/g)].flatMap(({ 1: kind, 2: code, index }) => {
    const line = text.slice(0, index).split("\n").length;
    const modules = kind === "html" ? [...code.matchAll(/<script type="module">([\s\S]*?)<\/script>/g)].map(([, script]) => script) : [code];
    return modules.map((source) => ({ name: `${path.replace(/\W+/g, "_")}_${line}`, source }));
  });
}

const guides = readdirSync(new URL("docs/guide/", root)).map((name) => `docs/guide/${name}`);
const pieces = [...guides, "web/ts/README.md", "README.md"].flatMap(piecesOf)
  // what imports an exported model, and a framework's own hook
  .filter(({ source }) => !/from "\.\/model\/|hooks\.server/.test(source));

/** What the compiler says of all pieces, with the given names or without them. */
function errorsOf(given) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const { name, source } of pieces) {
    const before = /\bscheduler\b/.test(source) && !/const scheduler/.test(source) ? SCHEDULER : "";
    writeFileSync(new URL(`${name}.${/<button/.test(source) ? "tsx" : "ts"}`, folder), `${given && before}${source}\nexport {};\n`);
  }
  writeFileSync(new URL("given.d.ts", folder), given);
  const compilerOptions = {
    target: "es2022", module: "esnext", moduleResolution: "bundler", lib: ["esnext", "dom", "dom.iterable", "dom.asynciterable"],
    jsx: "preserve", noEmit: true, skipLibCheck: true, types: [], strict: false,
  };
  writeFileSync(new URL("tsconfig.json", folder), JSON.stringify({ compilerOptions, include: ["*.ts", "*.tsx"] }));
  const tsc = fileURLToPath(new URL("node_modules/typescript/bin/tsc", root));
  return spawnSync(process.execPath, [tsc, "-p", "."], { cwd: fileURLToPath(folder), encoding: "utf8" }).stdout;
}

test("code in the guides fits the package's types", () => {
  assert.ok(pieces.length > 40, `${pieces.length} pieces`);
  assert.equal(errorsOf(GIVEN), "");
});

/** Whether a piece names a file or an address. */
const namesFile = (source) => /"(?!gradloom)[^"\n]*[./][^"\n]*"/.test(source);

test("code in the guides that needs no file and nothing from elsewhere runs as it stands", () => {
  const errors = errorsOf("");
  const whole = pieces.filter(({ name, source }) => name.startsWith("docs_guide") && !errors.includes(`${name}.`) && !namesFile(source));
  assert.ok(whole.length >= 5, whole.map(({ name }) => name).join(" "));
  for (const { name, source } of whole) {
    const file = new URL(`${name}.mjs`, folder);
    writeFileSync(file, `globalThis.document = { body: {} };\nglobalThis.onmessage = null;\n${source}`);
    const { status, stderr } = spawnSync(process.execPath, [fileURLToPath(file)], { encoding: "utf8" });
    assert.equal(status, 0, `${name}: ${stderr}`);
  }
});
