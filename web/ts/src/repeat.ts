// The short way of a model's run: inputs like those of the run before go straight to its plan (core/src/io/onnx/runner/again.rs).
import type { Host } from "./device.js";
import { type DType, dtypeOf, encode, isTypedArray } from "./dtype.js";
import type { BoundInput } from "./model.js";
import { Tensor, source } from "./tensor.js";

/** An input of the last run: a tensor on the device, or values. */
interface Kind {
  readonly name: string;
  readonly values?: { readonly dtype: DType; readonly shape: readonly number[]; readonly array?: { readonly dtype: DType; readonly length: number } };
}

/** A model's last run: its number and its inputs, without their values. */
export class LastRun {
  readonly #kinds: readonly Kind[];

  constructor(
    readonly number: number,
    inputs: Record<string, unknown>,
    bound: readonly BoundInput[],
  ) {
    this.#kinds = bound.map((each): Kind => {
      if (each.length === 2) return { name: each[0] };
      const [name, dtype, shape] = each;
      const value = inputs[name];
      return { name, values: { dtype, shape, ...(isTypedArray(value) && { array: { dtype: dtypeOf(value), length: value.length } }) } };
    });
  }

  /** The ids and bytes of inputs like the last ones on a device, in the order of the last run; undefined for others. */
  match(inputs: Record<string, unknown>, host: Host): (number | Uint8Array)[] | undefined {
    if (typeof inputs !== "object" || inputs === null || Object.keys(inputs).length !== this.#kinds.length) return undefined;
    const found: (number | Uint8Array)[] = [];
    for (const { name, values } of this.#kinds) {
      const one = values ? bytesLike(inputs[name], values) : inputs[name] instanceof Tensor ? Tensor.idOn(inputs[name] as Tensor, host) : undefined;
      if (one === undefined) return undefined;
      found.push(one);
    }
    return found;
  }
}

/** The bytes of a value of the same dtype and shape; of an array only if it was an array before, whose shape is inferred from its length. */
function bytesLike(value: unknown, { dtype, shape, array }: NonNullable<Kind["values"]>): Uint8Array | undefined {
  if (isTypedArray(value)) {
    return array && value.length === array.length && dtypeOf(value) === array.dtype ? encode(value, dtype) : undefined;
  }
  const own = value instanceof Tensor && !value.disposed ? source(value) : undefined;
  return own && own.dtype === dtype && own.shape.length === shape.length && own.shape.every((n, at) => n === shape[at]) ? own.bytes : undefined;
}
