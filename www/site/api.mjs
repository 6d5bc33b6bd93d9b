// The API reference, generated from the declarations in the package: every exported name of each entry, with its
// documentation and types.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { highlight } from "../src/highlight.js";
import { escape } from "./shell.mjs";

const folder = new URL("../node_modules/gradloom/", import.meta.url);
const ORDER = ["class", "function", "constant", "interface", "type", "namespace"];

const slug = (text) => text.toLowerCase().replace(/[^\w]+/g, "-").replace(/^-|-$/g, "");
/** The text of a comment as HTML, with code in backquotes, and paragraphs. */
const prose = (text) => (text ? `<p>${escape(text).replace(/`([^`]+)`/g, "<code>$1</code>").replace(/\n\n/g, "</p><p>")}</p>` : "");

function kindOf(declaration) {
  if (ts.isClassDeclaration(declaration)) return "class";
  if (ts.isFunctionDeclaration(declaration)) return "function";
  if (ts.isInterfaceDeclaration(declaration)) return "interface";
  if (ts.isTypeAliasDeclaration(declaration)) return "type";
  return ts.isSourceFile(declaration) || ts.isModuleDeclaration(declaration) ? "namespace" : "constant";
}

const documented = (checker, symbol) => ts.displayPartsToString(symbol.getDocumentationComment(checker));
/** The text of a declaration, without comments and bodies. */
const text = (node) => node.getText().replace(/\/\*\*[\s\S]*?\*\//g, "").replace(/^(export )?(declare )?/, "").replace(/\n\s*\n/g, "\n").trim();

/** The text of a declaration under the name by which it is exported. */
const renamed = (words, declaration, name) => {
  const own = declaration.name?.getText();
  return own === undefined || own === name ? words : words.replace(new RegExp(`\\b${own}\\b`), name);
};

const hidden = (member) =>
  ts.getCombinedModifierFlags(member) & ts.ModifierFlags.Private || (member.name && ts.isPrivateIdentifier(member.name)) ||
  ts.getJSDocTags(member).some((tag) => tag.tagName.text === "internal");

/** The members of a class or interface, each with its documentation. */
function members(checker, declaration) {
  const rows = declaration.members.filter((member) => !hidden(member)).map((member) => {
    const symbol = member.name ? checker.getSymbolAtLocation(member.name) : undefined;
    const words = symbol ? documented(checker, symbol) : (ts.getJSDocCommentsAndTags(member)[0]?.comment ?? "");
    return `<li><code>${highlight(text(member).replace(/;$/, ""))}</code>${prose(words)}</li>`;
  });
  return rows.length > 0 ? `<ul class="members">${rows.join("")}</ul>` : "";
}

/** One exported name. */
function entry(checker, symbol, used) {
  const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const declarations = target.declarations ?? [];
  const [first] = declarations;
  if (!first) return undefined;
  const kind = kindOf(first);
  const name = symbol.name;
  let id = slug(name);
  while (used.has(id)) id += "-";
  used.add(id);
  const words = documented(checker, target);
  const names = (first.members ?? []).filter((each) => each.name && !hidden(each)).map((each) => each.name.getText());
  let html = `<section class="entry"><h2 id="${id}"><code>${escape(name)}</code> <span class="soft">${kind}</span></h2>${prose(words)}`;
  if (kind === "class" || kind === "interface") {
    const head = first.getText().replace(/\/\*\*[\s\S]*?\*\//g, "").split("{")[0].replace(/^(export )?(declare )?/, "").trim();
    html += `<pre tabindex="0">${highlight(renamed(head, first, name))}</pre>${members(checker, first)}`;
  } else if (kind === "namespace") html += `<p>What <code>gradloom/${escape(name)}</code> has as well.</p>`;
  else {
    const shown = declarations.map((each) => renamed(text(ts.isVariableDeclaration(each) ? each.parent : each), each, name)).join("\n");
    html += `<pre tabindex="0">${highlight(shown.length > 4000 ? `${shown.slice(0, 4000)} ...` : shown)}</pre>`;
  }
  return { kind, name, html: `${html}</section>`, heading: { level: 2, id, text: name, body: `${words} ${names.join(" ")}` } };
}

/** A page for each entry of the package. */
export function apiPages() {
  const { exports } = JSON.parse(readFileSync(new URL("package.json", folder), "utf8"));
  const entries = Object.entries(exports).filter(([, to]) => typeof to === "object" && to.types);
  const files = entries.map(([, to]) => fileURLToPath(new URL(to.types, folder)));
  const { ScriptTarget, ModuleKind, ModuleResolutionKind } = ts;
  const options = { target: ScriptTarget.ES2022, module: ModuleKind.ES2022, moduleResolution: ModuleResolutionKind.Bundler, skipLibCheck: true };
  const program = ts.createProgram(files, options);
  const checker = program.getTypeChecker();
  return entries.map(([path], at) => {
    const name = path === "." ? "gradloom" : `gradloom/${path.slice(2)}`;
    const used = new Set();
    const module = checker.getSymbolAtLocation(program.getSourceFile(files[at]));
    const found = checker.getExportsOfModule(module).map((symbol) => entry(checker, symbol, used)).filter(Boolean);
    found.sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind) || a.name.localeCompare(b.name));
    const list = ORDER.map((kind) => {
      const own = found.filter((each) => each.kind === kind);
      if (own.length === 0) return "";
      return `<p class="index"><b>${kind}</b> ${own.map(({ heading }) => `<a href="#${heading.id}"><code>${escape(heading.text)}</code></a>`).join(" ")}</p>`;
    });
    const lead = found.length > 0
      ? `What <code>import ... from "${name}"</code> can name, made from the package's own types.`
      : `<code>import "${name}"</code> is all there is to write: it exports nothing. <a href="../start/">Getting started</a> says where it is needed.`;
    const html = `<h1><code>${name}</code></h1><p class="lead">${lead}</p>` + list.join("") + found.map((each) => each.html).join("");
    return { path: `api-${name.replace("/", "-")}`, name, html, headings: [{ level: 1, id: "", text: name, body: "" }, ...found.map((each) => each.heading)] };
  });
}
