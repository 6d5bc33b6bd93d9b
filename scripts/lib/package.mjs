// Builds the npm package (wasm module, TypeScript, licence files, guides, tarball), and installs the tarball into
// projects.
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { makeFactories } from "./bindings.mjs";
import { writeGuides } from "./docs.mjs";
import { breakLines } from "./lines.mjs";
import { checkNotices } from "./notices.mjs";
import { onnxTemplate } from "./onnx_template.mjs";
import { publishedRecipes } from "./recipes.mjs";
import { Failure, output, root, run } from "./run.mjs";
import { MODELS, TEMPLATE_MODEL } from "../../web/ts/cli/catalog.mjs";

const source = join(root, "web/ts");

/** The packed npm package. */
export const tarball = join(root, "dist/gradloom.tgz");

/** Compiles the web crate and writes its bindings to web/pkg. */
export function buildWasm() {
  run("cargo", ["xtask", "wasm"]);
}

/** Copies the bindings to where TypeScript finds their types. */
function copyBindings() {
  const folder = join(source, "src/pkg");
  rmSync(folder, { recursive: true, force: true });
  cpSync(join(root, "web/pkg"), folder, { recursive: true });
  makeFactories(folder);
}

/** Checks the types of the package without writing anything. */
export function checkTypes() {
  copyBindings();
  run("npx", ["tsc", "--noEmit", "-p", source]);
}

/** The package's entry points, the scripts of its worker threads and of the audio thread, and the module that starts workers. */
const entries = [
  "index", "vision", "audio", "data", "fit", "finetune", "downloads", "tasks", "llm", "train/nn", "train/optim",
  "worker", "workers", "service-worker", "listen-worklet",
];
/** Modules that do something by being imported: they register chunks, or a processor of sound. */
const SIDE_EFFECTS = ["page-chunks.js", "service-worker.js", "listen-worklet.js"];
/** Imports of `service-worker.js` that are bundled; `gguf.js` and `sniff.js` have no files of their own in the package. */
const KEPT_IMPORTS = new Set(["./page-chunks.js", "./chunks.js", "./gguf.js", "./sniff.js"]);
/** Scripts of workers, each bundled to one file beside `core.js`. */
const WORKER_SCRIPTS = ["remote-worker", "llm-worker", "encoder-worker"];
/**
 * wasm-bindgen's scripts for modules that are loaded on first use; they locate the wasm file relative to themselves.
 */
const lazyBindings = /pkg\/gradloom_(?!web\b)\w+\.js$/;

/** Puts addresses in quotes instead of backticks, the form that bundlers recognise. */
const quoteAddresses = (code) => code.replace(/(\bimport\(|\bnew URL\()`([^`$\\]*)`/g, '$1"$2"');

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
    const [imports, namespaces, names, reexported] = [[], [], [], []];
    all.set(id, { imports, namespaces, names, reexported, isLazy: /\bimport\("/.test(code) });
    for (const { type, source, declaration, specifiers } of parseAst(code).body) {
      if (source) imports.push(join(dirname(id), source.value));
      if (specifiers?.some((each) => each.type === "ImportNamespaceSpecifier")) namespaces.push(imports.at(-1));
      if (type === "ExportAllDeclaration") reexported.push(imports.at(-1));
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
  const scripts = await Promise.all(WORKER_SCRIPTS.map((name) => modulesOf(folder, name)));
  const excluded = new Set([...all.values()].flatMap(({ namespaces }) => namespaces));
  for (let before = -1; before < excluded.size; ) {
    before = excluded.size;
    for (const [id, { imports, isLazy }] of all) if (isLazy || imports.some((each) => excluded.has(each))) excluded.add(id);
  }
  const core = [...all].filter(([id]) => !excluded.has(id) && scripts.some((script) => script.has(id)));
  let count = 0;
  const numbered = (names) => names.map((name) => [name, `$${(count++).toString(36)}`]);
  return new Map(core.map(([id, { names }]) => [id, numbered(names)]));
}

/** The source of a module that re-exports names of another one under other names. */
const reexportSource = (names, from) => `export { ${names.map(([name, as]) => `${name} as ${as}`).join(", ")} } from ${JSON.stringify(from)};`;

/** The prefix of virtual modules that hold namespace objects. */
const NAMESPACE_PREFIX = "space:";

/**
 * The source of a module that exports the namespace object of another one as `space`. Bundlers create such objects with
 * helper code, whose separate file every page would load after all others.
 */
function namespaceSource(all, id) {
  const names = (each) => [...all.get(each).names, ...all.get(each).reexported.flatMap(names)];
  const list = names(id).join(", ");
  const tag = '[Symbol.toStringTag]: { value: "Module" }';
  return [
    `import { ${list} } from ${JSON.stringify(id)};`,
    `export const space = /* @__PURE__ */ Object.freeze(/* @__PURE__ */ Object.defineProperties({ __proto__: null, ${list} }, { ${tag} }));`,
  ].join("\n");
}

/** Loads a file together with TypeScript's source map, so that the final maps lead to the TypeScript sources. */
function loadWithMap(folder, id) {
  if (!id.startsWith(folder) || !existsSync(`${id}.map`)) return null;
  return { code: readFileSync(id, "utf8"), map: readFileSync(`${id}.map`, "utf8") };
}

/** Output options: minified, with a source map. */
const OUTPUT_OPTIONS = {
  minify: { compress: { target: "es2022" }, mangle: true },
  comments: { legal: false, annotation: true, jsdoc: false },
  sourcemap: true,
  sourcemapPathTransform: (path) => path.replace(/^.*web\/ts\/src\//, "gradloom/src/"),
};

/** The name of the entry for the shared code while bundling. */
const SHARED_ENTRY = "shared-core";
const CORE_FILE = "./core.js";

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
  const pageModules = new Set([...modules.keys()].filter((id) => !core.has(id) && id !== join(folder, "index.js")));
  const workers = await Promise.all(WORKER_SCRIPTS.map((name) => bundleWorker(folder, name, core)));
  const shared = new Set(workers.flatMap(({ names }) => names));
  const build = await rolldown({
    input: { ...Object.fromEntries(entries.map((name) => [name, join(folder, `${name}.js`)])), [SHARED_ENTRY]: SHARED_ENTRY },
    external: lazyBindings,
    treeshake: { moduleSideEffects: (id) => SIDE_EFFECTS.some((name) => id === join(folder, name)) },
    optimization: { inlineConst: false },
    plugins: [
      {
        name: "core",
        resolveId(id, importer) {
          // a service worker imports the files of the chunks, which otherwise would be split for it; all are beside it
          const isChunk = importer === join(folder, "service-worker.js") && !KEPT_IMPORTS.has(id);
          if (isChunk) return { id: id.startsWith("./pkg/") ? id : `./${basename(id)}`, external: "absolute" };
          return id === SHARED_ENTRY || id.startsWith(NAMESPACE_PREFIX) ? id : null;
        },
        load(id) {
          if (id.startsWith(NAMESPACE_PREFIX)) return namespaceSource(modules, id.slice(NAMESPACE_PREFIX.length));
          if (id !== SHARED_ENTRY) return loadWithMap(folder, id);
          return [...core].map(([file, names]) => reexportSource(names.filter(([, as]) => shared.has(as)), file)).join("\n");
        },
        /** Adapts the relative address of the page's wasm file to the bundled file's location. */
        transform(code, id) {
          if (id === join(folder, "index.js")) {
            const importNamespace = (_, name, from) => `import { space as ${name} } from ${JSON.stringify(NAMESPACE_PREFIX + join(folder, from))};`;
            return { code: code.replace(/import \* as (\w+) from "([^"]+)";/g, importNamespace), map: null };
          }
          if (!id.endsWith("gradloom_web.js")) return null;
          return { code: code.replace("new URL('gradloom_web_bg.wasm'", "new URL('./pkg/gradloom_web_bg.wasm'"), map: null };
        },
      },
    ],
  });
  const { output: files } = await build.generate({
    ...OUTPUT_OPTIONS,
    entryFileNames: "[name].js",
    // code that several entries share but not every page loads; `listen` locates a script beside the entries
    chunkFileNames: ({ name, isDynamicEntry }) => (["core", "page", "listen"].includes(name) || isDynamicEntry ? "[name].js" : "shared/[name].js"),
    codeSplitting: {
      groups: [
        { name: "core", test: (id) => core.has(id) || id === SHARED_ENTRY },
        { name: "page", test: (id) => pageModules.has(id) || id.startsWith(NAMESPACE_PREFIX) },
      ],
    },
  });
  await build.close();
  const facade = files.find(({ name }) => name === SHARED_ENTRY);
  // the file is a single statement, `export { a as $0, b as $1 } from "./core.js"`
  const localNames = new Map(parseAst(facade.code).body[0].specifiers.map(({ local, exported }) => [exported.name, local.name]));
  const isWorkerScript = (file) => WORKER_SCRIPTS.includes(file.slice(0, -".js".length));
  const resolveImports = (imports) => imports.replace(/\$\w+/g, (number) => localNames.get(number));
  const scripts = () => readdirSync(folder, { recursive: true }).filter((each) => /\.js(\.map)?$/.test(each));
  for (const name of scripts()) if (!lazyBindings.test(name)) rmSync(join(folder, name));
  const outputFiles = [...files, ...workers.flatMap((worker) => worker.files)].filter(({ fileName }) => !fileName.startsWith(SHARED_ENTRY));
  const all = new Map(outputFiles.map((file) => [file.fileName, file.code ?? file.source]));
  for (const [name, code] of all) {
    if (name.endsWith(".map")) continue;
    const file = join(folder, name);
    mkdirSync(dirname(file), { recursive: true });
    const lines = breakLines(code, all.get(`${name}.map`), parseAst);
    // quoting addresses does not change positions, so the map stays valid
    writeFileSync(file, quoteAddresses(isWorkerScript(name) ? lines.code.replace(/^import\{[^}]*\}/, resolveImports) : lines.code));
    if (lines.map) writeFileSync(`${file}.map`, lines.map);
  }
  for (const name of scripts().filter((each) => lazyBindings.test(each))) {
    const file = join(folder, name);
    const { code, errors } = minifySync(name, readFileSync(file, "utf8"), { module: true, compress: { target: "es2022" }, mangle: true });
    if (errors.length > 0) throw new Failure(`${name}: ${errors[0].message}`);
    writeFileSync(file, quoteAddresses(code));
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
          if (id === CORE_FILE) return { id, external: "absolute" };
          return importer && core.has(join(dirname(importer), id)) ? `${SHARED_ENTRY}${join(dirname(importer), id)}` : null;
        },
        load(id) {
          if (!id.startsWith(SHARED_ENTRY)) return loadWithMap(folder, id);
          return reexportSource(core.get(id.slice(SHARED_ENTRY.length)).map(([name, as]) => [as, name]), CORE_FILE);
        },
        transform(code, id) {
          const found = /pkg\/(gradloom_\w+)\.js$/.exec(id);
          return found ? { code: code.replace(`new URL('${found[1]}_bg.wasm'`, `new URL('./pkg/${found[1]}_bg.wasm'`), map: null } : null;
        },
      },
    ],
  });
  const { output: files } = await build.generate({ ...OUTPUT_OPTIONS, entryFileNames: `${name}.js`, codeSplitting: false });
  await build.close();
  const imports = parseAst(files[0].code).body.filter(({ type }) => type === "ImportDeclaration");
  const unexpected = imports.find(({ source }) => source.value !== CORE_FILE);
  if (unexpected) throw new Failure(`package: ${name} imports ${unexpected.source.value}`);
  return { files, names: imports.flatMap(({ specifiers }) => specifiers.map(({ imported }) => imported.name)) };
}

/** Writes what the package's command needs of the models of the repository: recipes, licence texts, and a template. */
function writeCatalog(folder) {
  writeFileSync(join(folder, "recipes.json"), JSON.stringify(publishedRecipes(Object.keys(MODELS))));
  const template = onnxTemplate(readFileSync(join(root, "tests/models", TEMPLATE_MODEL, "model.onnx")));
  writeFileSync(join(folder, `${TEMPLATE_MODEL}.json`), JSON.stringify(template));
  for (const name of Object.values(MODELS).flatMap(({ licenses = [] }) => licenses)) cpSync(join(root, "tests/models/LICENSES", name), join(folder, name));
}

/** The entries of the package besides the main one, by name: their scripts and declarations. */
function namedEntries() {
  const { exports: all } = JSON.parse(readFileSync(join(source, "package.json"), "utf8"));
  return Object.entries(all).flatMap(([name, { types, default: script }]) => (types && name !== "." ? [[name.slice(2), { types, script }]] : []));
}

/** Writes a folder for each entry, by which tools find it that do not read `exports`, such as Parcel and older TypeScript. */
function writeEntryFolders() {
  for (const [name, { types, script }] of namedEntries()) {
    const folder = join(source, name);
    mkdirSync(folder, { recursive: true });
    const manifest = { type: "module", main: `../${script.slice(2)}`, types: `../${types.slice(2)}` };
    writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  }
}

/** Builds web/ts/dist from web/pkg and web/ts/src, and dist/gradloom.tgz from that. */
export async function buildPackage() {
  copyBindings();
  rmSync(join(source, "dist"), { recursive: true, force: true });
  run("npx", ["tsc", "-p", source, "--sourceMap", "--inlineSources"]);
  cpSync(join(source, "src/pkg"), join(source, "dist/pkg"), { recursive: true });
  await bundle(join(source, "dist"));
  checkNotices();
  for (const name of ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-NOTICES.txt"]) cpSync(join(root, name), join(source, name));
  writeGuides(join(source, "docs"));
  writeCatalog(join(source, "cli"));
  writeEntryFolders();
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
