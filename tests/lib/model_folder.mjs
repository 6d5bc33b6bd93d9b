// A folder of models as a site publishes it, of small models of tests/models: for tests of tasks without an address.
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** The models, of tasks whose results the suites know; the last one's task has no default for which it would count. */
const NAMES = ["magika", "selfie_segmentation", "verses", "ppocr_cls"];

/** Runs the command of the packed package in a folder; what it printed, and its status. */
export function runCommand(project, args, options = {}) {
  const command = join(project, "node_modules/gradloom/cli/gradloom.mjs");
  return spawnSync(process.execPath, [command, ...args], { encoding: "utf8", ...options });
}

/** Writes the folder with the packed package of a project; gives what the command printed. */
export function writeModelFolder(folder, project) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const name of NAMES) cpSync(join(root, "tests/models", name), join(folder, name), { recursive: true });
  const { status, stdout, stderr } = runCommand(project, ["models", folder, "--index"]);
  if (status !== 0) throw new Error(`gradloom models --index: ${stdout}${stderr}`);
  return stdout;
}
