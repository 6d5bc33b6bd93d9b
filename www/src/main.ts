// The demo page. It uses only what the packed npm package exports.
import { init, probeWebGpu, version } from "gradloom";

const status = document.querySelector("#status");
await init();
const gpu = await probeWebGpu();
if (status) status.textContent = `gradloom ${version()}: WebGPU ${gpu ? "is here" : "is not here"}`;
