// `npm run test:examples`: builds the examples that learn something and runs each; they test what they have learned and end with 1 where it is
// too little. Digits are fetched. Some ten minutes on two cores. `-- gan vae` runs these alone.
import { Failure, main, run } from "./lib/run.mjs";

const LEARN = ["mnist", "gpt", "cartpole", "gan", "vae", "diffusion", "cifar"];

main(() => {
  const asked = process.argv.slice(2);
  const unknown = asked.filter((name) => !LEARN.includes(name));
  if (unknown.length > 0) throw new Failure(`no example that learns is called ${unknown.join(", ")}; there are ${LEARN.join(", ")}`);
  const chosen = asked.length > 0 ? asked : LEARN;
  run("node", ["scripts/fetch-models.mjs", "mnist"]);
  run("cargo", ["build", "--release", "-p", "gradloom", ...chosen.flatMap((name) => ["--example", name])]);
  for (const name of chosen) {
    console.log(`\n== ${name} ==`);
    const begin = performance.now();
    run(`target/release/examples/${name}`, ["cpu"]);
    console.log(`${((performance.now() - begin) / 1000).toFixed(0)} s`);
  }
});
