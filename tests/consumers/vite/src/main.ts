// A Vite application in strict TypeScript that uses the package as its users do.
import { init, probeWebGpu, version } from "gradloom";

await init();
const result: { version: string; webgpu: boolean } = { version: version(), webgpu: (await probeWebGpu()) !== null };
Object.assign(globalThis, { result });
