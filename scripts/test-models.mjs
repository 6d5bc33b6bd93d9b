// `npm run test:models`: runs every committed model on OpenCL (pocl, where it is installed), and more of them than
// `npm test` does on the emulator of NVIDIA's driver. `npm run test:vulkan -- --models` does so on Vulkan.
//
// usage: node scripts/test-models.mjs [FILTER..]   (run only tests whose names contain a filter)
import { main } from "./lib/run.mjs";
import { runTests } from "./lib/tests.mjs";

const TESTS = ["on_opencl", "on_the_emulator_of_cuda"];

main(() => {
  const filters = process.argv.slice(2);
  // the features of `npm test`, so that nothing is built twice
  const args = ["--features", "gradloom-tests/wgpu"];
  runTests(filters.length ? filters : TESTS, { args, flags: ["--nocapture"], env: { ...process.env, GRADLOOM_ALL_MODELS: "1" } });
});
