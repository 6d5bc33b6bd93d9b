// `npm run test:examples`: builds the examples that learn something and runs each; they test what they have learned and end with 1 where it is
// too little. Digits are fetched. Some ten minutes on two cores.
import { main, run } from "./lib/run.mjs";

const LEARN = ["mnist", "gpt", "cartpole", "gan", "vae", "diffusion", "cifar"];

main(() => {
  run("node", ["scripts/fetch-models.mjs", "mnist"]);
  run("cargo", ["build", "--release", "-p", "gradloom", ...LEARN.flatMap((name) => ["--example", name])]);
  for (const name of LEARN) {
    console.log(`\n== ${name} ==`);
    run(`target/release/examples/${name}`, ["cpu"]);
  }
});
