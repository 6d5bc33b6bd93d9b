// Compares tokenizers with Hugging Face's on random texts; by default a million of each kind.
//
// usage: npm run conformance:text [-- --count N] [NAME or TOKENIZER.json ..]
import { join } from "node:path";
import { python } from "./lib/python.mjs";
import { main, root, run } from "./lib/run.mjs";

main(() => {
  const interpreter = python(join(root, ".cache/text"), ["text"]);
  run("cargo", ["build", "--release", "-p", "gradloom-tests", "--example", "tokens"]);
  const tool = join(root, "target/release/examples/tokens");
  run(interpreter, [join(root, "tests/conformance/text.py"), tool, ...process.argv.slice(2)]);
});
