// `npm run test:examples`: builds and runs the examples that train something; each checks what it has learned and exits
// with 1 if that is too little. The digits are downloaded. Takes about ten minutes on two cores. `-- gan vae` runs only
// these.
import { Failure, main, run } from "./lib/run.mjs";

const TRAINING_EXAMPLES = ["mnist", "gpt", "cartpole", "gan", "vae", "diffusion", "cifar"];

main(() => {
  const asked = process.argv.slice(2);
  const unknown = asked.filter((name) => !TRAINING_EXAMPLES.includes(name));
  if (unknown.length > 0) throw new Failure(`no example that learns is called ${unknown.join(", ")}; there are ${TRAINING_EXAMPLES.join(", ")}`);
  const chosen = asked.length > 0 ? asked : TRAINING_EXAMPLES;
  run("node", ["scripts/fetch-models.mjs", "mnist"]);
  run("cargo", ["build", "--release", "-p", "gradloom", ...chosen.flatMap((name) => ["--example", name])]);
  for (const name of chosen) {
    console.log(`\n== ${name} ==`);
    const begin = performance.now();
    run(`target/release/examples/${name}`, ["cpu"]);
    console.log(`${((performance.now() - begin) / 1000).toFixed(0)} s`);
  }
});
