// Operators under PyTorch's names. A separate wasm module knows how operators are composed: it receives shapes and
// returns a graph. Tensor values are not copied to it.
import { loadChunk } from "./chunks.js";
import { liveHosts } from "./device.js";
import { ValueError, guard } from "./errors.js";
import { lazyWasm } from "./lazy-wasm.js";
import { fuseAttention, loadPart, startupParts } from "./wasm-parts.js";
import { Tensor, graph } from "./tensor.js";
import type { Torch as Operators } from "./torch-ops.js";

/** Operators under PyTorch's names, with torch's order of arguments. */
export interface Torch extends Omit<Operators, "einsum"> {
  /** Einstein summation: `einsum("ij,jk->ik", a, b)`, or with the operands in an array. */
  einsum(equation: string, ...operands: readonly Tensor[] | [readonly Tensor[]]): Tensor;
}

const opsModule = /* @__PURE__ */ lazyWasm("ops", () => loadChunk("ops"));

type Module = Awaited<ReturnType<typeof opsModule>>;
type Build = Module["graph"];
type Named = Record<string, unknown>;

let ready: { module: Module; torch: Torch } | undefined;

/** The implementation of `torch` in `lazy.ts`. */
export async function torch(): Promise<Torch> {
  // operators are synchronous, so every device must have this part beforehand
  startupParts.add("graphs");
  const [module, hosts] = await Promise.all([opsModule(), liveHosts()]);
  await Promise.all(hosts.flatMap((host) => [loadPart(host.engine, "graphs"), fuseAttention(host)]));
  // after its instance ended, `opsModule` gives a new module
  if (ready?.module !== module) ready = { module, torch: operators(module) };
  return ready.torch;
}

function operators(module: Module): Torch {
  const all: Named = {};
  for (const [name, one] of guard(() => module.names()) as [string, boolean][]) {
    const path = name.split(".");
    const last = path.pop() as string;
    const space = path.reduce((at, part) => (at[part] ??= {}) as Named, all);
    const call = (...args: unknown[]): Tensor | Tensor[] => {
      const outs = run(module.graph, name, args);
      return one ? (outs[0] as Tensor) : outs;
    };
    // a name may be both an operator and a namespace of other operators
    space[last] = Object.assign(call, space[last]);
  }
  return all as unknown as Torch;
}

function run(build: Build, name: string, args: unknown[]): Tensor[] {
  const tensors: Tensor[] = [];
  const plain = (v: unknown): unknown => {
    if (v instanceof Tensor) {
      const at = tensors.indexOf(v);
      return { input: at >= 0 ? at : tensors.push(v) - 1 };
    }
    if (Array.isArray(v)) return v.map(plain);
    if (typeof v === "object" && v !== null) throw new ValueError("E_VALUE", `${name}: an argument is no tensor, number or list`);
    return v;
  };
  if (name === "einsum" && typeof args[0] === "string") args = [args.slice(1).flat(), args[0]];
  const last = args.at(-1);
  const named = typeof last === "object" && last !== null && Object.getPrototypeOf(last) === Object.prototype;
  const options = Object.entries(named ? (args.pop() as Named) : {}).filter(([, v]) => v !== undefined);
  const list = args.map(plain);
  const pairs = options.map(([key, v]) => [key, plain(v)]);
  return graph(name, tensors, (seed, draws) => {
    const inputs = tensors.map((t) => [t.dtype, ...t.shape]);
    return guard(() => build(name, list, pairs, inputs, seed, draws));
  });
}
