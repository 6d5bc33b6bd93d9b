// Building the npm package: wasm module, TypeScript, licence files, guides, tarball; and putting the tarball into a project.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { makeFactories } from "./bindings.mjs";
import { guides } from "./docs.mjs";
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
/** Scripts of workers: each is one file beside `core.js`. */
const SCRIPTS = ["remote-worker", "llm-worker"];
/** Files that are wasm-bindgen's, of modules that are loaded on first use: they find the wasm beside them. */
const glue = /pkg\/gradloom_(?!web\b)\w+\.js$/;

/** A script whose addresses are in quotes rather than in backticks, as bundlers look for them. */
const quoted = (code) => code.replace(/(\bimport\(|\bnew URL\()`([^`$\\]*)`/g, '$1"$2"');

/**
 * The modules that one imports, directly and not, as far as they are in the folder: what each imports, and that as an object, what it exports, whose
 * exports it hands on, and whether it loads others later.
 */
async function modulesOf(folder, entry) {
  const { parseAst } = await import("rolldown/parseAst");
  const all = new Map();
  const visit = (id) => {
    if (all.has(id)) return;
    const code = readFileSync(id, "utf8");
    const [imports, spaces, names, handedOn] = [[], [], [], []];
    all.set(id, { imports, spaces, names, handedOn, isLazy: /\bimport\("/.test(code) });
    for (const { type, source, declaration, specifiers } of parseAst(code).body) {
      if (source) imports.push(join(dirname(id), source.value));
      if (specifiers?.some((each) => each.type === "ImportNamespaceSpecifier")) spaces.push(imports.at(-1));
      if (type === "ExportAllDeclaration") handedOn.push(imports.at(-1));
      if (type !== "ExportNamedDeclaration") continue;
      names.push(...specifiers.map(({ exported }) => exported.name));
      if (declaration) names.push(...(declaration.declarations ?? [declaration]).map(({ id: { name } }) => name));
    }
    imports.forEach(visit);
  };
  visit(join(folder, `${entry}.js`));
  return all;
}

/**
 * What pages and the scripts of workers share, `core.js`: what the entry and a script import, as far as it loads nothing later, because bundlers make
 * classic scripts of workers unless told otherwise, and those are in one piece, and as far as it is not handed on as an object, which is made by code of
 * the bundler's that has a file of its own. Of each module what it exports, by numbers, since names are not unique: workers import these until it is
 * known how the file calls them.
 */
async function coreOf(folder) {
  const all = await modulesOf(folder, "index");
  const scripts = await Promise.all(SCRIPTS.map((name) => modulesOf(folder, name)));
  const apart = new Set([...all.values()].flatMap(({ spaces }) => spaces));
  for (let before = -1; before < apart.size; ) {
    before = apart.size;
    for (const [id, { imports, isLazy }] of all) if (isLazy || imports.some((each) => apart.has(each))) apart.add(id);
  }
  const core = [...all].filter(([id]) => !apart.has(id) && scripts.some((script) => script.has(id)));
  let count = 0;
  const numbered = (names) => names.map((name) => [name, `$${(count++).toString(36)}`]);
  return new Map(core.map(([id, { names }]) => [id, numbered(names)]));
}

/** A module that hands on what another one exports, under other names. */
const handedOn = (names, from) => `export { ${names.map(([name, as]) => `${name} as ${as}`).join(", ")} } from ${JSON.stringify(from)};`;

/** Objects of all that a module exports. */
const SPACE = "space:";

/**
 * A module with one of them, named `space`. Bundlers make such objects with code of their own, whose file every page would ask for after all
 * others.
 */
function spaceOf(all, id) {
  const names = (each) => [...all.get(each).names, ...all.get(each).handedOn.flatMap(names)];
  const list = names(id).join(", ");
  const tag = '[Symbol.toStringTag]: { value: "Module" }';
  return [
    `import { ${list} } from ${JSON.stringify(id)};`,
    `export const space = /* @__PURE__ */ Object.freeze(/* @__PURE__ */ Object.defineProperties({ __proto__: null, ${list} }, { ${tag} }));`,
  ].join("\n");
}

/** What TypeScript says of where things were, so that maps lead to its sources. */
function mapped(folder, id) {
  if (!id.startsWith(folder) || !existsSync(`${id}.map`)) return null;
  return { code: readFileSync(id, "utf8"), map: readFileSync(`${id}.map`, "utf8") };
}

/** A file of the package that is minified, with the map that leads back. */
const WRITTEN = {
  minify: { compress: { target: "es2022" }, mangle: true },
  comments: { legal: false, annotation: true, jsdoc: false },
  sourcemap: true,
  sourcemapPathTransform: (path) => path.replace(/^.*web\/ts\/src\//, "gradloom/src/"),
};

/** How the entry of what workers import is called before there is a file. */
const SHARED = "shared-core";
const FILE = "./core.js";

/**
 * Puts what every page loads into few files, which compress better than many, and what is loaded on first use into files of its
 * own; the declarations stay as they are. Comments and long names are taken out: a third of the JavaScript that a page downloads. Maps
 * beside the files lead back to the TypeScript, which is in them. Constants stay in their variables, and addresses in quotes,
 * because bundlers go by how an import is written.
 */
async function bundle(folder) {
  // not there before `npm ci`
  const { rolldown } = await import("rolldown");
  const { parseAst } = await import("rolldown/parseAst");
  const { minifySync } = await import("rolldown/utils");
  const core = await coreOf(folder);
  const modules = await modulesOf(folder, "index");
  const page = new Set([...modules.keys()].filter((id) => !core.has(id) && id !== join(folder, "index.js")));
  const workers = await Promise.all(SCRIPTS.map((name) => bundleWorker(folder, name, core)));
  const shared = new Set(workers.flatMap(({ names }) => names));
  const build = await rolldown({
    input: { ...Object.fromEntries(entries.map((name) => [name, join(folder, `${name}.js`)])), [SHARED]: SHARED },
    external: glue,
    treeshake: { moduleSideEffects: (id) => id === join(folder, "apart.js") },
    optimization: { inlineConst: false },
    plugins: [
      {
        name: "core",
        resolveId: (id) => (id === SHARED || id.startsWith(SPACE) ? id : null),
        load(id) {
          if (id.startsWith(SPACE)) return spaceOf(modules, id.slice(SPACE.length));
          if (id !== SHARED) return mapped(folder, id);
          return [...core].map(([file, names]) => handedOn(names.filter(([, as]) => shared.has(as)), file)).join("\n");
        },
        /** The wasm file of the page's own module lies where it did, seen from the file that has everything. */
        transform(code, id) {
          if (id === join(folder, "index.js")) {
            const spaces = (_, name, from) => `import { space as ${name} } from ${JSON.stringify(SPACE + join(folder, from))};`;
            return { code: code.replace(/import \* as (\w+) from "([^"]+)";/g, spaces), map: null };
          }
          if (!id.endsWith("gradloom_web.js")) return null;
          return { code: code.replace("new URL('gradloom_web_bg.wasm'", "new URL('./pkg/gradloom_web_bg.wasm'"), map: null };
        },
      },
    ],
  });
  const { output: files } = await build.generate({
    ...WRITTEN,
    entryFileNames: "[name].js",
    // what several entries share and not every page loads
    chunkFileNames: ({ name, isDynamicEntry }) => (["core", "page"].includes(name) || isDynamicEntry ? "[name].js" : "shared/[name].js"),
    codeSplitting: {
      groups: [
        { name: "core", test: (id) => core.has(id) || id === SHARED },
        { name: "page", test: (id) => page.has(id) || id.startsWith(SPACE) },
      ],
    },
  });
  await build.close();
  const facade = files.find(({ name }) => name === SHARED);
  // all of it is one statement: `export { a as $0, b as $1 } from "./core.js"`
  const numbers = new Map(parseAst(facade.code).body[0].specifiers.map(({ local, exported }) => [exported.name, local.name]));
  const isWorker = (file) => SCRIPTS.includes(file.slice(0, -".js".length));
  const named = (imports) => imports.replace(/\$\w+/g, (number) => numbers.get(number));
  const scripts = () => readdirSync(folder, { recursive: true }).filter((each) => /\.js(\.map)?$/.test(each));
  for (const name of scripts()) if (!glue.test(name)) rmSync(join(folder, name));
  const written = [...files, ...workers.flatMap((worker) => worker.files)].filter(({ fileName }) => !fileName.startsWith(SHARED));
  const all = new Map(written.map((file) => [file.fileName, file.code ?? file.source]));
  for (const [name, code] of all) {
    if (name.endsWith(".map")) continue;
    const file = join(folder, name);
    mkdirSync(dirname(file), { recursive: true });
    const lines = inLines(code, all.get(`${name}.map`), parseAst);
    // addresses in quotes: nothing moves, so that the map stays right
    writeFileSync(file, quoted(isWorker(name) ? lines.code.replace(/^import\{[^}]*\}/, named) : lines.code));
    if (lines.map) writeFileSync(`${file}.map`, lines.map);
  }
  for (const name of scripts().filter((each) => glue.test(each))) {
    const file = join(folder, name);
    const { code, errors } = minifySync(name, readFileSync(file, "utf8"), { module: true, compress: { target: "es2022" }, mangle: true });
    if (errors.length > 0) throw new Failure(`${name}: ${errors[0].message}`);
    writeFileSync(file, quoted(code));
  }
}

/** The script of a worker with all that it imports in one file, but for what is in `core.js`, and the names of what it imports of that. */
async function bundleWorker(folder, name, core) {
  const { rolldown } = await import("rolldown");
  const { parseAst } = await import("rolldown/parseAst");
  const build = await rolldown({
    input: join(folder, `${name}.js`),
    treeshake: { moduleSideEffects: (id) => id.endsWith(`${name}.js`) },
    optimization: { inlineConst: false },
    plugins: [
      {
        name: "pkg",
        resolveId(id, importer) {
          if (id === FILE) return { id, external: "absolute" };
          return importer && core.has(join(dirname(importer), id)) ? `${SHARED}${join(dirname(importer), id)}` : null;
        },
        load(id) {
          if (!id.startsWith(SHARED)) return mapped(folder, id);
          return handedOn(core.get(id.slice(SHARED.length)).map(([name, as]) => [as, name]), FILE);
        },
        transform(code, id) {
          const found = /pkg\/(gradloom_\w+)\.js$/.exec(id);
          return found ? { code: code.replace(`new URL('${found[1]}_bg.wasm'`, `new URL('./pkg/${found[1]}_bg.wasm'`), map: null } : null;
        },
      },
    ],
  });
  const { output: files } = await build.generate({ ...WRITTEN, entryFileNames: `${name}.js`, codeSplitting: false });
  await build.close();
  const imports = parseAst(files[0].code).body.filter(({ type }) => type === "ImportDeclaration");
  const strange = imports.find(({ source }) => source.value !== FILE);
  if (strange) throw new Failure(`package: ${name} imports ${strange.source.value}`);
  return { files, names: imports.flatMap(({ specifiers }) => specifiers.map(({ imported }) => imported.name)) };
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
  guides(join(source, "docs"));
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
