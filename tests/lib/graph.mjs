// A model on the WASM device in node, against what is expected, as one line of JSON.
// usage: node tests/lib/graph.mjs MODEL.onnx INPUT.npz EXPECTED.npz
import { readFileSync } from "node:fs";
import { TestEngine } from "./conformance.mjs";

const [model, input, expected] = process.argv.slice(2).map((file) => readFileSync(file));
const report = JSON.parse(await TestEngine.onWasm([]).model(model, input, expected, 0));
console.log(JSON.stringify({ relerr: report.error, kernels: report.launches, compile_ms: report.compileMs }));
