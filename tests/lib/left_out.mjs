// Notes that something was not tested: a line each in the file that `npm test` reads at its end.
import { appendFileSync } from "node:fs";

/** Notes it and returns why, as node's test runner takes it. */
export function leftOut(what, why) {
  if (process.env.GRADLOOM_LEFT_OUT) appendFileSync(process.env.GRADLOOM_LEFT_OUT, `${what}: ${why}\n`);
  return why;
}
