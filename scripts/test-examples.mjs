// `npm run test:examples`: builds and runs the examples of `native/examples`. Each checks what it has learned or computed
// and exits with 1 if that is wrong, or prints what is checked here. What they need is downloaded. Takes about twelve
// minutes on two cores, nearly all of it training. `-- gan style` runs only these.
import { readFileSync } from "node:fs";
import { Failure, main, output, run } from "./lib/run.mjs";

/**
 * The examples: arguments (default: the device `cpu`), data to fetch, features of the crate, what the output must have
 * where the example does not judge it, and instructions of the processor without which it is left out.
 */
const EXAMPLES = {
  mnist: { fetch: ["mnist"] },
  gpt: {},
  cartpole: {},
  gan: { fetch: ["mnist"] },
  vae: {},
  diffusion: {},
  cifar: {},
  style: { args: ["--device", "cpu"], features: "images" },
  yolo: { args: ["--device", "cpu"], features: "images", fetch: ["yolo"] },
  stable_diffusion: {},
  mlperf: { args: ["--device", "cpu"] },
  whisper: {
    args: [".cache/models/whisper_tiny_en", "tests/models/whisper_tiny_en/speech.wav", "--device", "cpu"],
    fetch: ["whisper"],
    // the sentence that onnxruntime reads from the same sound
    expected: /: He was not an old-sposed young man\.\n/,
  },
  characters: { args: ["tests/models/textgenrnn", "the", "--device", "cpu"], expected: /^(the.*\n){3}$/s },
  // these measure times, so they only have to run
  attention: { args: ["64"], expected: /causal: +true +[\d.]+ ms/, needs: "avx512f" },
  matmul: { args: [], expected: /^1024 Avx512 .* GFLOP\/s/m, needs: "avx512f" },
  ordered: { args: ["cpu", "cumsum"], expected: /^cumsum 1M +[\d.]+ ms/m },
};

/** Whether the processor has a set of instructions, as far as Linux tells. */
const hasInstructions = (name) => {
  try {
    return readFileSync("/proc/cpuinfo", "utf8").includes(` ${name} `);
  } catch {
    return false;
  }
};

main(() => {
  const asked = process.argv.slice(2);
  const unknown = asked.filter((name) => !EXAMPLES[name]);
  if (unknown.length > 0) throw new Failure(`no example is called ${unknown.join(", ")}; there are ${Object.keys(EXAMPLES).join(", ")}`);
  const chosen = asked.length > 0 ? asked : Object.keys(EXAMPLES);
  const data = [...new Set(chosen.flatMap((name) => EXAMPLES[name].fetch ?? []))];
  if (data.length > 0) run("node", ["scripts/fetch-models.mjs", ...data]);
  const features = [...new Set(chosen.flatMap((name) => EXAMPLES[name].features ?? []))];
  const withFeatures = features.length > 0 ? ["--features", features.join()] : [];
  run("cargo", ["build", "--release", "-p", "gradloom", ...withFeatures, ...chosen.flatMap((name) => ["--example", name])]);
  for (const name of chosen) {
    const { args = ["cpu"], expected, needs } = EXAMPLES[name];
    console.log(`\n== ${name} ==`);
    if (needs && !hasInstructions(needs)) {
      console.log(`left out: the processor has no ${needs}`);
      continue;
    }
    const begin = performance.now();
    const program = `target/release/examples/${name}`;
    if (expected) {
      const text = output(program, args);
      process.stdout.write(text);
      if (!expected.test(text)) throw new Failure(`${name}: ${expected} is not in its output`);
    } else {
      run(program, args);
    }
    console.log(`${((performance.now() - begin) / 1000).toFixed(0)} s`);
  }
});
