// Parses the output of `init({ debug, log })`: kernels with their code, and launches with their times.

export interface Kernel {
  name: string;
  grid: string;
  flops: number;
  bytes: number;
  opts: string;
  /** The estimated time, and what limits it; empty if there is no estimate. */
  estimate: number | undefined;
  bound: string;
  params: string[];
  /** WGSL, or WebAssembly's instructions. */
  code: string;
  /** The graph as it was scheduled, and after each pass that changed it. */
  graphs: Stage[];
}

/** A graph after a pass. */
export interface Stage {
  /** The name of the pass. */
  name: string;
  /** A description of the pass. */
  what: string;
  /** The rewrite rules that fired in it, by decreasing frequency. */
  rules: { rule: string; count: number }[];
  text: string;
}

export interface Launch {
  name: string;
  us: number;
  /** The memory ranges of its parameters, in order. */
  memory: Place[];
}

/** A byte range of an allocation. */
export interface Place {
  buffer: number;
  offset: number;
  bytes: number;
}

/** All launches of the kernels of one name. A copy has no kernel. */
export interface Launched {
  kernels: Kernel[];
  name: string;
  count: number;
  us: number;
}

const HEAD = /^kernel (\S+) {2}grid (\d+ \d+ \d+) {2}(\d+) flops {2}(\d+) bytes$/;
/** A pass over a whole graph: over a model's when it is loaded, or of the scheduler when something is computed. */
const PASS = /^\/\/ (graph|schedule) pass (\S+): ?(.*)$/;
/** The stages of a model's graph, in order: as it was loaded, and after each pass over it. */
const MODEL_PASSES = ["loaded", "integer-sums", "scales", "siblings", "constants"];
/** The scheduler's first pass. */
const FIRST_PASS = "unroll";
/** The most schedules that are kept. */
const SCHEDULES = 100;
const LAUNCH = /^ *\d+ (\S+) +([\d.]+) us /;

/** Parses the text of a kernel; undefined for other text. */
export function kernelOf(text: string): Kernel | undefined {
  const lines = text.split("\n");
  const head = HEAD.exec(lines[0] as string);
  if (!head) return undefined;
  const [, name, grid, flops, bytes] = head as unknown as [string, string, string, string, string];
  const kernel: Kernel = {
    name, grid: grid.replaceAll(" ", " × "), flops: Number(flops), bytes: Number(bytes),
    opts: "", estimate: undefined, bound: "", params: [], code: "", graphs: [],
  };
  const code: string[] = [];
  // the code comes after the graphs
  let machine = false;
  for (const line of lines.slice(1)) {
    const graph = /^\/\/ (?:(as scheduled)|pass \d+, (.*))$/.exec(line);
    const rules = /^\/\/ rules: (.*)$/.exec(line);
    const last = kernel.graphs.at(-1);
    if (rules && last) last.rules = rulesOf(rules[1] as string);
    else if (graph) kernel.graphs.push(stageOf((graph[1] ?? graph[2]) as string));
    else if (line === "// machine code") machine = true;
    else if (last && !machine) last.text += `${line}\n`;
    else if (line.startsWith("  opts: ")) kernel.opts = line.slice(8);
    else if (code.length === 0 && line.startsWith("  estimate: ")) {
      const [, us, bound] = /([\d.]+) us, bound by (.*)/.exec(line) ?? [];
      kernel.estimate = Number(us);
      kernel.bound = bound ?? "";
    }
    else if (code.length === 0 && line.startsWith("  parameter ")) kernel.params.push(line.trim());
    else code.push(line);
  }
  kernel.code = code.join("\n");
  return kernel;
}

function stageOf(title: string): Stage {
  const at = title.indexOf(": ");
  const [name, what] = at < 0 ? [title, ""] : [title.slice(0, at), title.slice(at + 2)];
  return { name, what, rules: [], text: "" };
}

/** Parses a line such as `symbolic.add_zero 3, symbolic.mul_one 1`. */
function rulesOf(text: string): Stage["rules"] {
  return text.split(", ").map((each) => {
    const at = each.lastIndexOf(" ");
    return { rule: each.slice(0, at), count: Number(each.slice(at + 1)) };
  });
}

/** Parses a whole graph after a pass, of a model or of a schedule; undefined for other text. */
export function passOf(text: string): { kind: "graph" | "schedule"; stage: Stage } | undefined {
  const [first = ""] = text.split("\n", 1);
  const found = PASS.exec(first);
  if (!found) return undefined;
  const [, kind, name, what] = found as unknown as [string, "graph" | "schedule", string, string];
  return { kind, stage: { name, what, rules: [], text: text.slice(first.length + 1) } };
}

/** Parses the line of a launch; undefined for other text. */
export function launchOf(text: string): Launch | undefined {
  const found = LAUNCH.exec(text);
  if (!found) return undefined;
  const memory = [...(text.split("\n")[1] ?? "").matchAll(/(\d+)@(\d+)\+(\d+)/g)].map(([, buffer, offset, bytes]) => ({
    buffer: Number(buffer), offset: Number(offset), bytes: Number(bytes),
  }));
  return { name: found[1] as string, us: Number(found[2]), memory };
}

/** The output of a run. Kernels of earlier runs are kept, since each is reported only when it is compiled. */
export class Trace {
  /** Kernels by name; different kernels can share one. */
  readonly kernels = new Map<string, Kernel[]>();
  launches: Launch[] = [];
  /** For each model, its graph as it was loaded and after each pass that changed it. */
  readonly models: Stage[][] = [];
  /** For each computation that was planned, its graph and then its kernels after each pass of the scheduler that changed them. */
  readonly schedules: Stage[][] = [];
  /** How many graphs after passes were added. */
  passes = 0;
  /** Kernels that were compiled in this run. */
  made = 0;

  add(text: string): void {
    const launch = launchOf(text);
    if (launch) {
      this.launches.push(launch);
      return;
    }
    const kernel = kernelOf(text);
    if (!kernel) {
      const pass = passOf(text);
      if (pass) this.#addPass(pass.kind, pass.stage);
      return;
    }
    this.made += 1;
    const same = this.kernels.get(kernel.name) ?? [];
    this.kernels.set(kernel.name, [...same.filter((each) => each.code !== kernel.code), kernel]);
  }

  #addPass(kind: "graph" | "schedule", stage: Stage): void {
    const [groups, last] = kind === "graph" ? [this.models, this.models.at(-1)?.at(-1)] : [this.schedules, this.schedules.at(-1)?.at(-1)];
    const isNext = kind === "graph" ? last && MODEL_PASSES.indexOf(stage.name) > MODEL_PASSES.indexOf(last.name) : stage.name !== FIRST_PASS;
    if (isNext && last) groups.at(-1)?.push(stage);
    else groups.push([stage]);
    if (groups.length > SCHEDULES) groups.shift();
    this.passes += 1;
  }

  /** Prepares for the next run. */
  begin(): void {
    this.launches = [];
    this.made = 0;
  }

  /** The kernels that were launched, in order of their first launch, with their times. */
  launched(): Launched[] {
    const found = new Map<string, Launched>();
    for (const { name, us } of this.launches) {
      const entry = found.get(name) ?? { kernels: this.kernels.get(name) ?? [], name, count: 0, us: 0 };
      entry.count += 1;
      entry.us += us;
      found.set(name, entry);
    }
    return [...found.values()];
  }
}

export function time(us: number): string {
  if (us < 1e3) return `${us.toFixed(us < 10 ? 1 : 0)} µs`;
  return us < 1e6 ? `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms` : `${(us / 1e6).toFixed(2)} s`;
}

/** Formats a number with a letter for its magnitude (k, M, G). */
export function amount(n: number): string {
  for (const [letter, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]] as const) if (n >= size) return `${(n / size).toFixed(n < 10 * size ? 1 : 0)}${letter}`;
  return String(Math.round(n));
}

/** Formats a count with a noun. */
export const counted = (n: number, what: string): string => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : what.endsWith("h") ? "es" : "s"}`;
