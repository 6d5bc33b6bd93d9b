// torch's operator tests on the WASM device in node. usage: node tests/lib/torch_suite.mjs [FILTER] [EVERY]
import { TorchSuite } from "./conformance.mjs";
import { categoryOf, printer, torchSamples } from "./suites.mjs";

const [filter, every] = process.argv.slice(2);
const out = printer(categoryOf.torch);
await torchSamples(TorchSuite, { filter, every: Number(every ?? 1) }, out.report);
if (!out.end()) process.exitCode = 1;
