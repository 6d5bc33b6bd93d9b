// The documentation as HTML: guides, the cookbook, the API reference, and the project's own pages; and the search
// index.
import MarkdownIt from "markdown-it";
import { readFileSync, readdirSync } from "node:fs";
import { insertTables } from "../../scripts/lib/docs.mjs";
import { highlight } from "../src/highlight.js";
import { apiPages } from "./api.mjs";
import { escape, page } from "./shell.mjs";

const repository = new URL("../../", import.meta.url);
const read = (path) => readFileSync(new URL(path, repository), "utf8");

/** The groups of the side bar, in order: `[path in the site, file, name]`. */
const GUIDES = [
  ["start", "docs/guide/start.md", "Getting started"],
  ["training", "docs/guide/training.md", "Training"],
  ["importing", "docs/guide/importing.md", "Importing models"],
  ["export", "docs/guide/export.md", "Compiling ahead of time"],
  ["tasks", "docs/guide/tasks.md", "Tasks"],
  ["language", "docs/guide/language.md", "Language models"],
  ["memory", "docs/guide/memory.md", "Memory"],
  ["devices", "docs/guide/devices.md", "Devices"],
  ["debugging", "docs/guide/debugging.md", "Debugging"],
  ["speed", "docs/guide/speed.md", "Performance"],
  ["trust", "docs/guide/trust.md", "Security"],
];
const PROJECT = [
  ["peers", "docs/guide/peers.md", "Beside others"],
  ["features", "FEATURES.md", "Features"],
  ["onnx", "docs/onnx.md", "ONNX operators"],
  ["models", "docs/models.md", "Models"],
  ["dtypes", "docs/dtypes.md", "Dtypes"],
  ["numerics", "docs/numerics.md", "Numerics"],
  ["compiler", "docs/compiler.md", "The compiler"],
  ["performance", "docs/performance.md", "Measurements"],
];

const slug = (text) => text.toLowerCase().replace(/<[^>]+>|&\w+;/g, "").replace(/[^\w]+/g, "-").replace(/^-|-$/g, "");

/** Maps links to files of the repository to the site's pages, where they exist. */
function address(to) {
  if (/^(https?:|#)/.test(to)) return to;
  const [path, hash] = to.split("#");
  const name = path.replace(/^(\.\.?\/)+/, "").split("/").pop();
  const found = [...GUIDES, ...PROJECT].find(([, file]) => file.endsWith(`/${name}`) || file === name);
  if (found) return `../${found[0]}/${hash ? `#${hash}` : ""}`;
  return path.endsWith("/") ? to : undefined;
}

/** Keeps parts of a text on one line: options of commands, small numbers, two times beside each other. */
const unbroken = (html, what) => html.replace(what, '<span class="whole">$&</span>');

/** Converts Markdown to HTML, with its headings `[level, id, text]` and the text below each. */
function render(text) {
  const md = new MarkdownIt({ html: false, highlight: (code, language) => (language === "text" ? escape(code) : highlight(code)) });
  // browsers would break lines after any hyphen
  md.renderer.rules.code_inline = (list, at) => `<code>${unbroken(escape(list[at].content), /(?<![^ ])-[^ ]{1,24}(?![^ ])/g)}</code>`;
  md.renderer.rules.text = (list, at) => unbroken(escape(list[at].content), /\b\d[\d.]*e-\d+\b|\b\d[\d.]* \/ \d[\d.]*/g);
  const tokens = md.parse(text.replace(/^<!--.*-->$/gm, ""), {});
  const headings = [];
  const used = new Set();
  tokens.forEach((token, at) => {
    if (token.type === "heading_open") {
      const words = tokens[at + 1].content.replace(/`/g, "");
      let id = slug(words) || "top";
      while (used.has(id)) id += "-";
      used.add(id);
      token.attrSet("id", id);
      headings.push({ level: Number(token.tag[1]), id, text: words, body: "" });
    } else if (headings.length > 0 && (token.type === "inline" || token.type === "fence") && tokens[at - 1]?.type !== "heading_open") {
      headings.at(-1).body += `${token.content} `;
    }
    if (token.type === "table_open") token.attrSet("class", "table");
    for (const child of token.children ?? []) {
      if (child.type !== "link_open") continue;
      const to = address(child.attrGet("href"));
      if (to) child.attrSet("href", to);
      else child.attrSet("href", "../");
    }
  });
  let html = md.renderer.render(tokens, md.options, {});
  let tables = 0;
  const box = () => `<div class="scroll" tabindex="0" role="region" aria-label="Table ${(tables += 1)}"><table class="table">`;
  html = html.replaceAll('<table class="table">', box).replaceAll("</table>", "</table></div>").replace(/<th[^>]*><\/th>/g, "<td></td>");
  return { html: html.replaceAll("<pre>", '<pre tabindex="0">'), headings };
}

/** The cookbook, from the programs that the tests run. */
function cookbook() {
  const names = readdirSync(new URL("tests/cookbook/", repository)).filter((each) => each.endsWith(".mjs")).sort();
  const recipes = names.map((name) => {
    const [first, ...rest] = read(`tests/cookbook/${name}`).split("\n");
    const [title, ...text] = first.replace(/^\/\/ /, "").split(". ");
    return `## ${title}\n\n${text.join(". ")}\n\n\`\`\`js\n${rest.join("\n").replaceAll("../tmp/export/web/zoo_", "./").trim()}\n\`\`\`\n`;
  });
  const head = "# Cookbook\n\nEach of these programs runs as it stands, in a page and in Node; a test of the project runs them all. " +
    "A comment that begins with `//>` is what the line before it writes.\n\n";
  return head + recipes.join("\n");
}

let known;

/** All pages: `{ path, name, group, html, headings }`. */
const docsPages = () => (known ??= made());

function made() {
  const from = ([path, file, name], group) => ({ path, name, group, ...render(insertTables(read(file))) });
  return [
    ...GUIDES.map((each) => from(each, "Guides")),
    { path: "cookbook", name: "Cookbook", group: "Guides", ...render(cookbook()) },
    ...apiPages().map((each) => ({ ...each, group: "Reference" })),
    ...PROJECT.map((each) => from(each, "Project")),
  ];
}

function sidebar(pages, here) {
  const groups = [...new Set(pages.map(({ group }) => group))];
  const current = (path) => (path === here ? ' aria-current="page"' : "");
  const link = ({ path, name }) => `<li><a href="${here === "" ? "" : "../"}${path}/"${current(path)}>${escape(name)}</a></li>`;
  return groups.map((group) => `<h2>${group}</h2><ul>${pages.filter((each) => each.group === group).map(link).join("")}</ul>`).join("");
}

const SEARCH = `<form class="search" role="search" id="search">
<input type="search" id="words" aria-label="Search the documentation" placeholder="Search" autocomplete="off"><ol id="found" hidden></ol></form>`;

/** A field that filters the page's tables to the rows that contain all its words. */
const FILTER = `<p class="filter">
<input type="search" id="filter" aria-label="Show only rows with these words" placeholder="softmax, Conv, f16 .." autocomplete="off">
<span id="filtered" class="soft" role="status"></span></p>`;

/** The complete page of a document. */
function whole(pages, { path, name, html, headings }, depth) {
  const inner = headings.filter(({ level }) => level === 2).slice(0, 40);
  const list = inner.map(({ id, text }) => `<li><a href="#${id}">${escape(text)}</a></li>`).join("");
  const contents = inner.length < 3 ? "" : `<nav class="contents" aria-label="On this page"><b>On this page</b><ul>${list}</ul></nav>`;
  return page({
    title: name,
    text: `Documentation of gradloom: ${name}.`,
    section: "docs",
    depth,
    scripts: ["src/docs.ts"],
    body: `<div class="docs">
<div class="aside">${SEARCH}<details id="menu"><summary>All pages</summary></details>
<nav id="pages" aria-label="Documentation">${sidebar(pages, path)}</nav></div>
<article>${path === "features" ? html.replace("</h1>", `</h1>${FILTER}`) : html}</article>
${contents}
</div>`,
  });
}

function front(pages) {
  const card = (path, title, text) => `<li class="card"><div class="in"><h2><a href="${path}/">${title}</a></h2><p>${text}</p></div></li>`;
  return {
    path: "",
    name: "Documentation",
    headings: [],
    html: `<h1>Documentation</h1><p class="lead">From the first line to the last kernel.</p><ul class="grid">
${card("start", "Getting started", "Vite, React, Next, Node, Bun, Deno, a plain page, a worker, a strict policy.")}
${card("cookbook", "Cookbook", "Short programs for what people do most, run by the tests.")}
${card("training", "Training", "Autograd, layers, optimizers, data, checkpoints.")}
${card("importing", "Importing models", "ONNX, TensorFlow Lite, safetensors, GGUF, torch.save, npz.")}
${card("tasks", "Tasks", "One line from a photo, a recording or a text to what is in it.")}
${card("language", "Language models", "Chats, streams, schemas, adapters, and OpenAI's interface over HTTP.")}
${card("export", "Compiling ahead of time", "A model as a small module without a compiler, or as C.")}
${card("devices", "Devices", "WebGPU, WebAssembly, your own buffers and your own kernels.")}
${card("debugging", "Debugging", "What it computed, in which kernels, and where values drift.")}
${card("memory", "Memory", "Who frees what, budgets, and what is cached between visits.")}
${card("api-gradloom", "Reference", "Every class and function, from the types.")}
${card("features", "Features", "Every operator of ONNX and torch, on every device, as the tests found it.")}
${card("peers", "Beside others", "Measured against the best of each kind.")}
</ul>`,
  };
}

/** The HTML of all pages below docs/, by path. */
export function docsHtml() {
  const pages = docsPages();
  const all = Object.fromEntries(pages.map((each) => [`docs/${each.path}/index.html`, whole(pages, each, 2)]));
  return { "docs/index.html": whole(pages, front(pages), 1), ...all };
}

/** The search index: `[page, id, title, text]` of each heading. */
export function searchIndex() {
  // long enough to include the names of all members of a class
  const some = (path, body) => body.replace(/\s+/g, " ").slice(0, path.startsWith("api-") ? 4000 : 300);
  const entry = (path, name) => ({ level, id, text, body }) => [path, level === 1 ? "" : id, text, name, some(path, body)];
  return JSON.stringify(docsPages().flatMap(({ path, name, headings }) => headings.map(entry(path, name))));
}
