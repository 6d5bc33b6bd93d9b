// Runs tests of `tests/it` by parts of their names.
import { Failure, output, run } from "./run.mjs";

/**
 * Builds `tests/it` and fails if a filter is part of no test's name: cargo reports success when it has run nothing, so a renamed test
 * would no longer be run and nobody would notice.
 */
export function requireTests(filters, cargo, env) {
  // what cargo says while it builds is shown
  const list = output("cargo", [...cargo, "--list"], { env, stdio: ["ignore", "pipe", "inherit"] });
  const names = [...list.matchAll(/^(\S+): test\r?$/gm)].map(([, name]) => name);
  const missing = filters.filter((filter) => !names.some((name) => name.includes(filter)));
  if (missing.length) throw new Failure(`no test of tests/it has a name with ${missing.map((name) => `\`${name}\``).join(", ")}`);
}

/** Runs the tests whose names contain one of the filters, each of which must be part of a name. */
export function runTests(filters, { args = [], flags = [], env = process.env } = {}) {
  const cargo = ["test", ...args, "-p", "gradloom-tests", "--test", "it", "--"];
  requireTests(filters, cargo, env);
  run("cargo", [...cargo, ...filters, ...flags], { env });
}
