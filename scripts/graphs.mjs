// `npm run test:graphs`: random graphs through the compiler for each kind of target, compared with the evaluator, with
// many more seeds than `npm test` has.
//
// usage: node scripts/graphs.mjs [FROM-TO]
import { main, run } from "./lib/run.mjs";

main(() => {
  process.env.GRADLOOM_RANDOM_GRAPHS = process.argv[2] ?? "0-5000";
  run("cargo", ["test", "-p", "gradloom-core", "--test", "random_graphs"]);
});
