// Building the npm package: wasm module, TypeScript, licence files, tarball; and putting the tarball into a project.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { makeFactories } from "./bindings.mjs";
import { inLines } from "./lines.mjs";
import { checkNotices } from "./notices.mjs";
import { Failure, output, root, run } from "./run.mjs";

const source = join(root, "web/ts");

/** The packed npm package. */
export const tarball = join(root, "dist/gradloom.tgz");

/** Compiles the web crate and writes its bindings to web/pkg. */
export function buildWasm() {
  run("cargo", ["xtask", "wasm"]);
}

/** Puts the bindings where TypeScript finds their types. */
function bindings() {
  const folder = join(source, "src/pkg");
  rmSync(folder, { recursive: true, force: true });
  cpSync(join(root, "web/pkg"), folder, { recursive: true });
  makeFactories(folder);
}

/** Checks the types of the package without writing anything. */
export function checkTypes() {
  bindings();
  run("npx", ["tsc", "--noEmit", "-p", source]);
}

/** Entries of the package, the script of its workers, and how those are started. */
const entries = ["index", "vision", "audio", "data", "fit", "finetune", "downloads", "tasks", "llm", "train/nn", "train/optim", "worker", "workers"];
/** Scripts of workers that are one file each. */
const SCRIPTS = ["remote-worker", "llm-worker"];
/** What scripts of workers never call, though something that they import could. */
const WITHOUT = { "llm-worker": ["/weights.js", "/pkg/gradloom_files.js", "/pkg/gradloom_ops.js"] };
/** Files that are wasm-bindgen's, of modules that are loaded on first use: they find the wasm beside them. */
const glue = /pkg\/gradloom_(?!web\b)\w+\.js$/;

/** A script whose addresses are in quotes rather than in backticks, as bundlers look for them. */
const quoted = (code) => code.replace(/(\bimport\(|\bnew URL\()`([^`$\\]*)`/g, '$1"$2"');

/**
 * Puts what every page loads into one file, which compresses better than many, and what is loaded on first use into files of its
 * own; the declarations stay as they are. Comments and long names are taken out: a third of the JavaScript that a page downloads. Maps
 * beside the files lead back to the TypeScript, which is in them. Constants stay in their variables, and addresses in quotes,
 * because bundlers go by how an import is written.
 */
async function bundle(folder) {
  // not there before `npm ci`
  const { rolldown } = await import("rolldown");
  const { parseAst } = await import("rolldown/parseAst");
  const { minifySync } = await import("rolldown/utils");
  const core = new Set();
  const build = await rolldown({
    input: Object.fromEntries(entries.map((name) => [name, join(folder, `${name}.js`)])),
    external: glue,
    treeshake: { moduleSideEffects: false },
    optimization: { inlineConst: false },
    plugins: [
      {
        name: "core",
        /** What TypeScript says of where things were, so that maps lead to its sources. */
        load(id) {
          if (!id.startsWith(folder) || !existsSync(`${id}.map`)) return null;
          return { code: readFileSync(id, "utf8"), map: readFileSync(`${id}.map`, "utf8") };
        },
        /** The wasm file of the page's own module lies where it did, seen from the file that has everything. */
        transform(code, id) {
          if (!id.endsWith("gradloom_web.js")) return null;
          return { code: code.replace("new URL('gradloom_web_bg.wasm'", "new URL('./pkg/gradloom_web_bg.wasm'"), map: null };
        },
        buildEnd() {
          const add = (id) => {
            if (core.has(id) || glue.test(id)) return;
            core.add(id);
            this.getModuleInfo(id).importedIds.forEach(add);
          };
          add(join(folder, "index.js"));
          core.delete(join(folder, "index.js"));
        },
      },
    ],
  });
  const { output: files } = await build.generate({
    entryFileNames: "[name].js",
    // what several entries share and not every page loads
    chunkFileNames: ({ name, isDynamicEntry }) => (name === "core" || isDynamicEntry ? "[name].js" : "shared/[name].js"),
    minify: { compress: { target: "es2022" }, mangle: true },
    comments: { legal: false, annotation: true, jsdoc: false },
    sourcemap: true,
    sourcemapPathTransform: (path) => path.replace(/^.*web\/ts\/src\//, "gradloom/src/"),
    codeSplitting: { groups: [{ name: "core", test: (id) => core.has(id) }] },
  });
  await build.close();
  const workers = (await Promise.all(SCRIPTS.map((name) => bundleWorker(folder, name)))).flat();
  const scripts = () => readdirSync(folder, { recursive: true }).filter((each) => /\.js(\.map)?$/.test(each));
  for (const name of scripts()) if (!glue.test(name)) rmSync(join(folder, name));
  const all = new Map([...files, ...workers].map((file) => [file.fileName, file.code ?? file.source]));
  for (const [name, code] of all) {
    if (name.endsWith(".map")) continue;
    const file = join(folder, name);
    mkdirSync(dirname(file), { recursive: true });
    const lines = inLines(code, all.get(`${name}.map`), parseAst);
    // addresses in quotes: nothing moves, so that the map stays right
    writeFileSync(file, quoted(lines.code));
    if (lines.map) writeFileSync(`${file}.map`, lines.map);
  }
  for (const name of scripts().filter((each) => glue.test(each))) {
    const file = join(folder, name);
    const { code, errors } = minifySync(name, readFileSync(file, "utf8"), { module: true, compress: { target: "es2022" }, mangle: true });
    if (errors.length > 0) throw new Failure(`${name}: ${errors[0].message}`);
    writeFileSync(file, quoted(code));
  }
}

/**
 * The script of a worker with all that it imports in one file: bundlers make classic scripts of workers unless told
 * otherwise, and those cannot be in several. It lies where the others do, so that it finds the wasm and the script of threads.
 */
async function bundleWorker(folder, name) {
  const { rolldown } = await import("rolldown");
  const build = await rolldown({
    input: join(folder, `${name}.js`),
    treeshake: { moduleSideEffects: (id) => id.endsWith(`${name}.js`) },
    optimization: { inlineConst: false },
    plugins: [
      {
        name: "pkg",
        load(id) {
          if (WITHOUT[name]?.some((end) => id === folder + end)) return "export {};";
          if (!id.startsWith(folder) || !existsSync(`${id}.map`)) return null;
          return { code: readFileSync(id, "utf8"), map: readFileSync(`${id}.map`, "utf8") };
        },
        transform(code, id) {
          const found = /pkg\/(gradloom_\w+)\.js$/.exec(id);
          return found ? { code: code.replace(`new URL('${found[1]}_bg.wasm'`, `new URL('./pkg/${found[1]}_bg.wasm'`), map: null } : null;
        },
      },
    ],
  });
  const { output: files } = await build.generate({
    entryFileNames: `${name}.js`,
    codeSplitting: false,
    minify: { compress: { target: "es2022" }, mangle: true },
    comments: { legal: false, annotation: true, jsdoc: false },
    sourcemap: true,
    sourcemapPathTransform: (path) => path.replace(/^.*web\/ts\/src\//, "gradloom/src/"),
  });
  await build.close();
  return files;
}

/** web/pkg and web/ts/src to web/ts/dist, and that to dist/gradloom.tgz. */
export async function buildPackage() {
  bindings();
  rmSync(join(source, "dist"), { recursive: true, force: true });
  run("npx", ["tsc", "-p", source, "--sourceMap", "--inlineSources"]);
  cpSync(join(source, "src/pkg"), join(source, "dist/pkg"), { recursive: true });
  await bundle(join(source, "dist"));
  checkNotices();
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-NOTICES.txt"]) cpSync(join(root, name), join(source, name));
  const folder = join(root, "dist");
  mkdirSync(folder, { recursive: true });
  output("npm", ["pack", "--loglevel=error", "--pack-destination", folder], { cwd: source });
  const packed = readdirSync(folder).find((name) => /^gradloom-\d.*\.tgz$/.test(name));
  renameSync(join(folder, packed), tarball);
  run("node", ["scripts/size.mjs"]);
}

/** Unpacks a tarball into a folder, from which all else goes; its modules are in the path that is returned. */
export function unpack(folder, from = tarball) {
  if (!existsSync(from)) throw new Failure(`there is no ${from === tarball ? "dist/gradloom.tgz; run `npm run build` first" : from}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  output("tar", ["xzf", from, "-C", folder, "--strip-components=1"]);
  return join(folder, "dist");
}

/** Unpacks the tarball as `node_modules/gradloom` of a project, where it wins over the workspace's own link. */
export function unpackInto(project) {
  unpack(join(project, "node_modules/gradloom"));
}

/** Builds the demo site over the packed package. */
export async function buildSite() {
  if (!existsSync(tarball)) await buildPackage();
  unpackInto(join(root, "www"));
  run("npm", ["run", "build", "--workspace", "www", "--loglevel=error"]);
}
