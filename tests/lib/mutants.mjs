// The models that are changed at random: the suites whose graphs are small, as the native search has them.
import { readFileSync } from "node:fs";

const SUITES = ["contrib", "dynamic", "ml", "opset", "slice"];

/** The bytes of each suite's archive. */
export const mutantSuites = () => SUITES.map((name) => new Uint8Array(readFileSync(new URL(`../fixtures/onnx/${name}.zip`, import.meta.url))));
