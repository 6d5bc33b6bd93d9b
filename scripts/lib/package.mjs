// Builds the npm package (wasm module, TypeScript, licence files, guides, tarball), and installs the tarball into
// projects.
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

/** Copies the bindings to where TypeScript finds their types. */
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

/** The package's entry points, the script of its worker threads, and the module that starts these. */
const entries = ["index", "vision", "audio", "data", "fit", "finetune", "downloads", "tasks", "llm", "train/nn", "train/optim", "worker", "workers"];
/** Scripts of workers, each bundled to one file beside `core.js`. */
const SCRIPTS = ["remote-worker", "llm-worker"];
/**
 * wasm-bindgen's scripts for modules that are loaded on first use; they locate the wasm file relative to themselves.
 */
const glue = /pkg\/gradloom_(?!web\b)\w+\.js$/;

/** Puts addresses in quotes instead of backticks, the form that bundlers recognise. */
const quoted = (code) => code.replace(/(\bimport\(|\bnew URL\()`([^`$\\]*)`/g, '$1"$2"');

/**
 * The modules in the folder that `entry` imports, directly and indirectly. For each: its imports, those imported as a
 * namespace object, its exports, the modules that it re-exports, and whether it has dynamic imports.
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
 * The contents of `core.js`, which pages and the scripts of workers share: modules that the entry and a worker script
 * import. Excluded are modules that lead to dynamic imports, because bundlers turn workers into classic scripts by
 * default, which must be a single file, and modules used as a namespace object, which needs bundler code that has a
 * file of its own. The exports of each module are numbered, since names are not unique; workers import by number until
 * the names in the bundled file are known.
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

/** The source of a module that re-exports names of another one under other names. */
const handedOn = (names, from) => `export { ${names.map(([name, as]) => `${name} as ${as}`).join(", ")} } from ${JSON.stringify(from)};`;

/** The prefix of virtual modules that hold namespace objects. */
const SPACE = "space:";

/**
 * The source of a module that exports the namespace object of another one as `space`. Bundlers create such objects with
 * helper code, whose separate file every page would load after all others.
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

/** Loads a file together with TypeScript's source map, so that the final maps lead to the TypeScript sources. */
function mapped(folder, id) {
  if (!id.startsWith(folder) || !existsSync(`${id}.map`)) return null;
  return { code: readFileSync(id, "utf8"), map: readFileSync(`${id}.map`, "utf8") };
}

/** Output options: minified, with a source map. */
const WRITTEN = {
  minify: { compress: { target: "es2022" }, mangle: true },
  comments: { legal: false, annotation: true, jsdoc: false },
  sourcemap: true,
  sourcemapPathTransform: (path) => path.replace(/^.*web\/ts\/src\//, "gradloom/src/"),
};

/** The name of the entry for the shared code while bundling. */
const SHARED = "shared-core";
const FILE = "./core.js";

/**
 * Bundles the package. Code that every page loads goes into few files, which compress better than many; code that is
 * loaded on first use stays in separate files; the declarations are not changed. Removing comments and long names saves
 * a third of the JavaScript that a page downloads. Source maps beside the files include the TypeScript sources.
 * Constants stay in their variables, and addresses in quotes, because bundlers recognise imports by their form.
 */
async function bundle(folder) {
  // imported here, since it is not installed before `npm ci`
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
        /** Adapts the relative address of the page's wasm file to the bundled file's location. */
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
    // code that several entries share but not every page loads
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
  // the file is a single statement, `export { a as $0, b as $1 } from "./core.js"`
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
    // quoting addresses does not change positions, so the map stays valid
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

/**
 * Bundles the script of a worker with its imports into one file, except for what is in `core.js`; also gives the names
 * that it imports from there.
 */
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

/** Builds web/ts/dist from web/pkg and web/ts/src, and dist/gradloom.tgz from that. */
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

/** Unpacks a tarball into a folder, replacing its contents; returns the path of the package's modules. */
export function unpack(folder, from = tarball) {
  if (!existsSync(from)) throw new Failure(`there is no ${from === tarball ? "dist/gradloom.tgz; run `npm run build` first" : from}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  output("tar", ["xzf", from, "-C", folder, "--strip-components=1"]);
  return join(folder, "dist");
}

/** Unpacks the tarball as `node_modules/gradloom` of a project, where it takes precedence over the workspace's link. */
export function unpackInto(project) {
  unpack(join(project, "node_modules/gradloom"));
}

/** Builds the demo site with the packed package. */
export async function buildSite() {
  if (!existsSync(tarball)) await buildPackage();
  unpackInto(join(root, "www"));
  run("npm", ["run", "build", "--workspace", "www", "--loglevel=error"]);
}
