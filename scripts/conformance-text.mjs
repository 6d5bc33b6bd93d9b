// Tokenizers against Hugging Face's on random texts; a million of each kind unless told otherwise.
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
