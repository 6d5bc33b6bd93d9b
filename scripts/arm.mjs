// `npm run test:arm`: tests the `cpu` device for AArch64 on other machines, emulated by QEMU: the emitter's instruction
// words against GNU's assembler, the device suite, guarded buffers, ONNX operators, and models. Installs Debian's cross
// compiler and emulator if they are missing.
//
// usage: node scripts/arm.mjs [FILTER..]   (run only tests whose names contain a filter)
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, has, main, output, root, run } from "./lib/run.mjs";
import { apt } from "./lib/system.mjs";
import { runTests } from "./lib/tests.mjs";

const TRIPLE = "aarch64-unknown-linux-gnu";
const PACKAGES = ["qemu-user-static", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
const TESTS = ["devices::cpu::", "devices::cpu_neon::", "guard::", "onnx_suite::the_slice_passes_on_the_processor", "models_run_on_the_processor"];

/** Assembles the texts of the unit tests' expected instruction words with GNU's assembler, and compares. */
function assemble() {
  const folder = join(root, ".cache/arm");
  mkdirSync(folder, { recursive: true });
  const file = readFileSync(join(root, "core/src/render/arm64/encoding_tests.rs"), "utf8");
  const known = [...file.matchAll(/0x([0-9a-f]{8}), "([^"]+)"/g)].map((m) => ({ word: m[1], text: m[2] }));
  if (known.length < 100) throw new Failure(`only ${known.length} instructions in encoding_tests.rs`);
  writeFileSync(join(folder, "words.s"), `.arch armv8.6-a\n${known.map((k) => k.text).join("\n")}\n`);
  output("aarch64-linux-gnu-as", ["-o", join(folder, "words.o"), join(folder, "words.s")]);
  const listing = output("aarch64-linux-gnu-objdump", ["-d", join(folder, "words.o")]);
  const words = [...listing.matchAll(/^\s+[0-9a-f]+:\s+([0-9a-f]{8})/gm)].map((m) => m[1]);
  const wrong = known.filter((k, i) => k.word !== words[i]);
  if (wrong.length || words.length !== known.length) {
    throw new Failure(`the assembler has other words for\n${wrong.map((k) => k.text).join("\n")}`);
  }
  console.log(`${words.length} instructions: the assembler has the same words`);
}

main(() => {
  if (!has("qemu-aarch64-static") || !has("aarch64-linux-gnu-gcc")) apt(PACKAGES);
  run("rustup", ["target", "add", TRIPLE]);
  assemble();
  const filters = process.argv.slice(2);
  const env = {
    ...process.env,
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER: "aarch64-linux-gnu-gcc",
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER: "qemu-aarch64-static -L /usr/aarch64-linux-gnu",
    // compilers, libraries and drivers of this machine do not work for the emulated one
    GRADLOOM_WITHOUT: ["cpu:avx2", "cpu:avx512", "c", "llvm", "opencl", "vulkan", "cuda", process.env.GRADLOOM_WITHOUT].filter(Boolean).join(","),
  };
  runTests(filters.length ? filters : TESTS, { args: ["--target", TRIPLE], env });
});
