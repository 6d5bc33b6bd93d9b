// The test module (tests/web/pkg) in node, started from bytes.
import { readFile } from "node:fs/promises";
import start, * as module from "../web/pkg/gradloom_web_tests.js";

await start({ module_or_path: await readFile(new URL("../web/pkg/gradloom_web_tests_bg.wasm", import.meta.url)) });

export const { samplesOnWasm, OnnxSuite, TorchSuite, TestEngine, Programs, ChangedModels, hasRelaxedSimd, numerics } = module;
