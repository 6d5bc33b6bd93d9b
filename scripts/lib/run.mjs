// Helpers to run programs from the project's scripts: with their output shown, and failures reported in one line.
import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The repository's root folder, without a slash at the end. */
export const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

// rustup installs programs here, but the PATH changes only in a new shell: add the folder, so that a fresh machine
// works at once
const cargoBin = join(homedir(), ".cargo", "bin");
if (existsSync(cargoBin) && !process.env.PATH.split(delimiter).includes(cargoBin)) {
  process.env.PATH = `${cargoBin}${delimiter}${process.env.PATH}`;
}

/** An error for the user, printed without a stack trace. */
export class Failure extends Error {}

/** Runs a program in the repository with its output shown; throws a [Failure] when it fails. */
export function run(program, args, options = {}) {
  const done = spawnSync(program, args, { cwd: root, stdio: "inherit", ...options });
  if (done.error) throw new Failure(`\`${program}\` did not start: ${done.error.message}`);
  if (done.signal) throw new Failure(`\`${program} ${args.join(" ")}\` was ended by ${done.signal}`);
  if (done.status !== 0) throw new Failure(`\`${program} ${args.join(" ")}\` ended with status ${done.status}`);
}

/**
 * Runs a program in the background and shows its output when it has ended, or immediately with `stdio: "inherit"`;
 * throws a [Failure] when it fails.
 */
export async function runInBackground(program, args, options = {}) {
  const child = spawn(program, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"], ...options });
  // end the program if this process exits earlier
  const kill = () => child.kill();
  process.once("exit", kill);
  const parts = [];
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (part) => parts.push(part));
  const [status, signal] = await new Promise((done, fail) => {
    child.on("error", (error) => fail(new Failure(`\`${program}\` did not start: ${error.message}`)));
    child.on("close", (...how) => done(how));
  });
  process.off("exit", kill);
  process.stdout.write(Buffer.concat(parts));
  if (signal) throw new Failure(`\`${program} ${args.join(" ")}\` was ended by ${signal}`);
  if (status !== 0) throw new Failure(`\`${program} ${args.join(" ")}\` ended with status ${status}`);
}

/** Runs a program and returns what it printed; throws a [Failure] with its errors when it fails. */
export function output(program, args, options = {}) {
  const done = spawnSync(program, args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28, ...options });
  if (done.error) throw new Failure(`\`${program}\` did not start: ${done.error.message}`);
  if (done.status !== 0) {
    const tail = `${done.stdout}${done.stderr ?? ""}`.trim().split("\n").slice(-20).join("\n");
    throw new Failure(`\`${program} ${args.join(" ")}\` ended with status ${done.status}\n${tail}`);
  }
  return done.stdout;
}

/** Whether a program is on the PATH. */
export function has(program) {
  return process.env.PATH.split(delimiter).some((dir) => existsSync(join(dir, program)));
}

/** Runs main and turns a [Failure] into one line and exit status 1. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    console.error(error instanceof Failure ? error.message : error);
    process.exit(1);
  }
}
