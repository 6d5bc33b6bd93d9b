// Tokenizers against Hugging Face's on random texts; a million of each kind unless told otherwise.
// usage: npm run conformance:text [-- --count N] [NAME or TOKENIZER.json ..]
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { main, root, run } from "./lib/run.mjs";

const folder = join(root, ".cache/text");
const python = join(folder, "venv/bin/python");

main(() => {
  mkdirSync(folder, { recursive: true });
  if (!existsSync(python)) run("python3", ["-m", "venv", join(folder, "venv")]);
  run(python, ["-m", "pip", "install", "--quiet", "tokenizers"]);
  run("cargo", ["build", "--release", "-p", "gradloom-tests", "--example", "tokens"]);
  const tool = join(root, "target/release/examples/tokens");
  run(python, [join(root, "tests/conformance/text.py"), tool, ...process.argv.slice(2)]);
});
