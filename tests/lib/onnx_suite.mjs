// Cases of the ONNX backend suite on the WASM device in node. usage: node tests/lib/onnx_suite.mjs CASES.zip [FILTER]
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { OnnxSuite } from "./conformance.mjs";
import { categoryOf, onnxCases, printer } from "./suites.mjs";

/** Runs the cases of a zip file: `{ name, what, why }` each. */
export async function runSuite(bytes, filter = "") {
  const results = [];
  await onnxCases(OnnxSuite, bytes, { filter }, (result) => void results.push(result));
  return results;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, filter] = process.argv.slice(2);
  const out = printer(categoryOf.onnx);
  await onnxCases(OnnxSuite, readFileSync(file), { filter }, out.report);
  if (!out.end()) process.exitCode = 1;
}
