// `npm run test:windows`: tests of programs for Windows under Wine, on x86-64: the native crate's own, the command line, the device suite of
// the processor, guarded buffers, ONNX operators and models. Wine runs machine code as it is, so that calling convention, stacks,
// pages, threads and files are tested as Windows' interfaces have them; times mean nothing.
//
// usage: node scripts/wine.mjs [FILTER..]   (run only tests of `tests/it` whose names contain a filter)
import { main, run } from "./lib/run.mjs";
import { runTests } from "./lib/tests.mjs";
import { TRIPLE, setupWine } from "./lib/wine.mjs";

const TESTS = [
  "arch::",
  "chains::",
  "cpu::",
  "devices::cpu::",
  "devices::eval::",
  "efficientnet_runs_on_the_processor",
  "guard::",
  "llm_adapters::",
  "llm_files::",
  "models_run_on_avx2",
  "models_run_on_the_processor",
  "numerics::",
  "onnx_suite::the_slice_passes_on_the_processor",
  "pins::",
  "random::",
  "serve::",
  "tflite_runs_on_the_processor",
  "values_are_torchs_on_the_cpu",
  "variables::",
  "verses::",
  "weights::",
];

main(() => {
  const env = setupWine();
  const filters = process.argv.slice(2);
  // the other tests of that crate need signals, pipes and permissions of POSIX
  if (!filters.length) run("cargo", ["test", "--target", TRIPLE, "-p", "gradloom", "--lib", "--bins", "--test", "cli"], { env });
  runTests(filters.length ? filters : TESTS, { args: ["--target", TRIPLE], env });
});
