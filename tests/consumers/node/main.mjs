// A program in Node that uses the package as its users do.
import { init, probeWebGpu, version } from "gradloom";

await init();
console.log(JSON.stringify({ version: version(), webgpu: await probeWebGpu() }));
