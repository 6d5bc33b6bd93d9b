// The buffers, variables and captured graphs of a model on its device. The wasm module that knows the model names
// buffers by numbers.
import { type Host, onDevice } from "../device.js";
import { guard } from "../errors.js";

export type BufferSpec = [number: number, dtype: string, elements: number, bytes: Uint8Array | undefined];
type Variable = [name: string, min: number, max: number];
/** What a graph reads: buffers by number, and launch variables. */
export type GraphInput = number | Variable;
export type Captured = Awaited<ReturnType<Host["raw"]["capture"]>>;

/**
 * Launch variables of several models on a device need distinct names, which are the same in each visit so that cached
 * plans apply.
 */
const usedSlots = new WeakMap<Host, Set<number>>();

function takeSlot(host: Host): number {
  const taken = usedSlots.get(host) ?? new Set();
  usedSlots.set(host, taken);
  let slot = 0;
  while (taken.has(slot)) slot += 1;
  taken.add(slot);
  return slot;
}

export class ModelBuffers {
  readonly host: Host;
  readonly #slot: number;
  /** The device's tensors by buffer number, and the tensors of launch variables. */
  readonly #tensors = new Map<number, number>();
  readonly #variables: number[] = [];

  constructor(host: Host) {
    this.host = host;
    this.#slot = takeSlot(host);
  }

  /** Creates buffers on the device. */
  create(list: readonly BufferSpec[]): void {
    for (const [number, dtype, elements, bytes] of list) {
      this.#tensors.set(number, guard(() => this.host.raw.upload(dtype, elements, bytes)));
    }
  }

  /** The tensor of a buffer, as its id on the device. */
  tensor(buffer: number): number {
    return this.#tensors.get(buffer) as number;
  }

  /** Leaves a buffer to the caller. */
  remove(buffer: number): void {
    this.#tensors.delete(buffer);
  }

  /** Writes all bytes of a buffer. */
  async overwrite(buffer: number, bytes: Uint8Array): Promise<void> {
    await onDevice(this.host, () => this.host.raw.overwrite(this.tensor(buffer), bytes));
  }

  setVariable(name: string, value: number): void {
    this.host.raw.setVar(this.#variableName(name), value);
  }

  /** Captures the plan of a serialised graph, which runs it once, after `data` was written to the buffer `into`. */
  async capture(bytes: Uint8Array, inputs: readonly GraphInput[], into: number, data: Uint8Array, signal: AbortSignal | undefined): Promise<Captured> {
    const { raw } = this.host;
    const inputIds = Uint32Array.from(inputs, (input) => {
      if (typeof input === "number") return this.tensor(input);
      const [name, min, max] = input;
      const id = guard(() => raw.variable(this.#variableName(name), false, min, max));
      this.#variables.push(id);
      return id;
    });
    const roots = guard(() => raw.graph(bytes, inputIds));
    try {
      return await onDevice(this.host, () => raw.capture(roots, inputIds, this.tensor(into), data, signal));
    } finally {
      roots.forEach((id) => raw.free(id));
    }
  }

  #variableName(name: string): string {
    return this.#slot === 0 ? name : `${name} ${this.#slot}`;
  }

  free(): void {
    for (const id of [...this.#tensors.values(), ...this.#variables]) this.host.raw.free(id);
    usedSlots.get(this.host)?.delete(this.#slot);
  }
}
