// What core has, JavaScript has: the lists of optimisers, schedules, layers, their options and defaults are read from the Rust
// sources, so that one cannot grow without the other.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { Tensor, init } from "gradloom";
import * as nn from "gradloom/nn";
import * as optim from "gradloom/optim";

const read = (file) => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
const camel = (name) => name.replace(/_(\w)/g, (_, c) => c.toUpperCase());

/** Names that a module makes public: `pub use a::{B, c}` and its own items. */
function published(file) {
  const source = read(file);
  const used = [...source.matchAll(/^pub use [\w:]+?::(?:\{([^}]*)\}|(\w+));/gm)].flatMap(([, many, one]) => (many ?? one).split(","));
  const own = [...source.matchAll(/^pub (?:struct|enum|trait|type|fn) (\w+)/gm)].map(([, name]) => name);
  return [...used, ...own].map((name) => name.trim()).filter(Boolean);
}

/** The text between the braces that follow `head`. */
function block(source, head) {
  const from = source.indexOf(head);
  assert.ok(from >= 0, `there is no \`${head}\``);
  let at = source.indexOf("{", from);
  const start = at + 1;
  for (let depth = 0; ; at += 1) {
    if (source[at] === "{") depth += 1;
    if (source[at] === "}" && (depth -= 1) === 0) return source.slice(start, at);
  }
}

/** Variants of an enum and the names of their fields. */
function variants(source, head) {
  const text = block(source, head).replace(/\/\/\/.*|#\[.*\]/g, "");
  return [...text.matchAll(/(\w+)\s*(?:\{([^}]*)\})?,/g)].map(([, name, fields]) => [name, [...(fields ?? "").matchAll(/(\w+):/g)].map(([, f]) => f)]);
}

const fields = (source, head) => [...block(source, head).matchAll(/^ {4}pub (\w+):/gm)].map(([, name]) => name);

/** Every name has a counterpart or a reason, and every reason and other name is for something that is there. */
function compare(names, found, others, reasons) {
  const missing = names.filter((name) => !(name in reasons) && found(others[name] ?? camel(name)) === undefined);
  assert.deepEqual(missing, [], "core has these, JavaScript has not");
  for (const name of [...Object.keys(reasons), ...Object.keys(others)]) assert.ok(names.includes(name), `core has no ${name}`);
  for (const name of Object.keys(reasons)) assert.equal(found(camel(name)), undefined, `${name} is there now: it needs no reason`);
}

test("optimisers", () => {
  const others = { Sgd: "SGD" };
  const reasons = {
    AdamOpts: "options are plain objects",
    SgdOpts: "options are plain objects",
    Rule: "each rule is a class",
    Tuned: "each rule is a class",
  };
  compare(published("core/src/optim/mod.rs"), (name) => optim[name], others, reasons);
});

const RULES = { RmsProp: "RMSprop", Lamb: "LAMB", Lars: "LARS" };
const pairs = (text) => Object.fromEntries(text.split(",").map((each) => /^\s*(\w+): (.*?)\s*$/s.exec(each).slice(1)));
const number = (text) => (text.includes("f32::EPSILON") ? 2 ** -23 : text === "true" || text === "false" ? text === "true" : Number(text));

test("rules of optimisers, their constants and defaults", async () => {
  await init();
  const source = read("core/src/optim/rule.rs");
  const rules = variants(source, "pub enum Rule");
  assert.ok(rules.length >= 9 && rules.every(([, names]) => names.length > 0), "the list is read");
  const defaults = new Map([...source.matchAll(/pub fn \w+\(\) -> Rule \{\s*Rule::(\w+) \{([^}]*)\}/g)].map(([, name, text]) => [name, text]));
  for (const [name, names] of rules) {
    const optimizer = new optim[RULES[name] ?? name]([Tensor.ones([2, 2], { requiresGrad: true })], { learningRate: 0.1 });
    const values = pairs(defaults.get(name));
    assert.deepEqual(Object.keys(values), names, name);
    for (const [key, text] of Object.entries(values)) {
      const beta = /^beta([12])$/.exec(key);
      const mine = beta ? optimizer.betas[beta[1] - 1] : optimizer[camel(key)];
      assert.equal(mine, number(text), `${name}: ${key}`);
    }
    optimizer.dispose();
  }
});

test("defaults of Adam and SGD", async () => {
  await init();
  const p = [Tensor.ones([1], { requiresGrad: true })];
  const text = block(read("core/src/optim/adam.rs"), "AdamOpts { beta1: ");
  const values = pairs(text);
  assert.deepEqual(Object.keys(values), fields(read("core/src/optim/adam.rs"), "pub struct AdamOpts"));
  const adam = new optim.Adam(p);
  const mine = { beta1: adam.betas[0], beta2: adam.betas[1], eps: adam.eps, weight_decay: adam.weightDecay, decoupled: adam.decoupled };
  assert.deepEqual(mine, Object.fromEntries(Object.entries(values).map(([key, value]) => [key, number(value)])));
  const sgd = new optim.SGD(p, { learningRate: 1 });
  for (const name of fields(read("core/src/optim/sgd.rs"), "pub struct SgdOpts")) assert.ok([0, false].includes(sgd[camel(name)]), name);
});

test("schedules", () => {
  const core = variants(read("core/src/optim/schedule.rs"), "pub enum Schedule");
  const names = core.map(([name]) => name[0].toLowerCase() + name.slice(1));
  const mine = Object.getOwnPropertyNames(optim.Schedule).filter((name) => typeof optim.Schedule[name] === "function");
  assert.deepEqual(mine.sort(), names.toSorted());
  for (const [at, [, wanted]] of core.entries()) {
    const source = optim.Schedule[names[at]].toString();
    for (const name of wanted) assert.match(source, new RegExp(`\\b${name}\\b`), `${names[at]}: ${name}`);
  }
});

test("layers", () => {
  const others = {
    MultiHeadAttention: "MultiheadAttention", PRelu: "PReLU", RmsNorm: "RMSNorm", Rnn: "RNN", Lstm: "LSTM", Gru: "GRU", RnnCell: "RNNCell",
    LstmCell: "LSTMCell", GruCell: "GRUCell",
  };
  const reasons = {
    Bag: "the mode is a string",
    LstmState: "a state is a list of tensors",
    Nonlinearity: "a string",
    Recurrent: "each kind is a class",
    RecurrentOpts: "options are plain objects",
    recurrent: "for callers that hold the weights, as these classes do",
    AttentionMask: "a type, of plain objects",
    TransformerOpts: "options are plain objects",
    Weighted: "a type",
    StateDict: "a type, of plain objects",
    Mode: "`train()` and `eval()` of a module",
    Role: "`requiresGrad` of a tensor",
    Layer: "a type",
  };
  compare(published("core/src/nn/mod.rs"), (name) => nn[name], others, reasons);
  // as torch names them by their axes
  for (const name of ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]) assert.ok(nn[name], name);
});

test("initial values", () => {
  const names = [...read("core/src/nn/init.rs").matchAll(/^pub fn (\w+)/gm)].map(([, name]) => name);
  compare(names, (name) => nn.init[name], {}, { fans: "the functions that need them find them" });
});

test("options of layers", () => {
  const source = read("web/ts/src/layers.ts");
  const both = [
    ["recurrent", "RecurrentOpts", ["RecurrentOptions", "LSTMOptions"]],
    ["transformer", "TransformerOpts", ["TransformerOptions"]],
  ];
  for (const [file, rust, scripts] of both) {
    const own = scripts.map((script) => block(source, `export interface ${script}`)).join("");
    const text = own + block(read("web/ts/src/nn.ts"), "export type LayerOptions");
    const names = fields(read(`core/src/nn/${file}.rs`), `pub struct ${rust}`);
    assert.ok(names.length >= 5, rust);
    assert.deepEqual(names.filter((name) => !new RegExp(`\\b${camel(name)}\\?:`).test(text)), [], rust);
  }
});

/** The names of all Rust files below a folder, and their text without tests. */
function sources(folder) {
  const list = readdirSync(new URL(`../../${folder}`, import.meta.url), { recursive: true }).filter((name) => name.endsWith(".rs"));
  return list.map((name) => [name, read(`${folder}/${name}`).split("#[cfg(test)]")[0]]);
}

test("operators of tensors", () => {
  const core = sources("core/src/tensor").filter(([name]) => !name.startsWith("call"));
  const names = new Set(core.flatMap(([, text]) => [...text.matchAll(/^ {4}pub fn (\w+)/gm)].map(([, name]) => name)));
  assert.ok(names.size > 400, "the list is read");
  // rows of the table that JavaScript has under torch's names, and what its own tensors have
  const text = [...sources("core/src/tensor/call"), ...sources("web/src")].map(([, each]) => each).join("");
  const used = new Set(text.match(/\w+/g));
  const reasons = {
    bce_loss: "a row of the table takes its parts",
    beta_of: "two of `gamma` and a division",
    bits_to_unit: "`rand` of bits",
    checkpoint: "`checkpoint` of the package calls `checkpointed`",
    compact: "of the session's graph",
    custom_grad: "`customGrad` calls its parts",
    dirichlet_of: "`gamma` and a division",
    from_node: "of the session's graph",
    grad_from: "a gradient times a factor",
    hard_tanh: "`nn.functional.hardtanh` has its bounds",
    keep_min_p: "an option of `sample`",
    keep_top_k: "an option of `sample`",
    keep_top_p: "an option of `sample`",
    move_axis: "`movedim` takes its parts",
    pad_by_name: "`nn.functional.pad`",
    pad_zeros: "`pad`",
    rand_bits: "`rand` and `randint`",
    resample: "`nn.functional.interpolate`",
    shrink: "`slice`",
    squeeze_all: "`squeeze` of the table",
    take_uncached: "of a model's constants",
    standardize: "of the norms",
    threefry: "of the random stream",
  };
  const missing = [...names].filter((name) => !used.has(name));
  assert.deepEqual(missing.filter((name) => !(name in reasons)), [], "core has these, JavaScript has not");
  assert.deepEqual(Object.keys(reasons).filter((name) => !missing.includes(name)), [], "these need no reason");
});
