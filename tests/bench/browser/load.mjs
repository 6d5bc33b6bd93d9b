// Cases inside a page or a worker, and how far a result is from what it must be.
const TYPES = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array };

/** A case as `cases.mjs` wrote it. */
export async function load(name) {
  const file = async (path) => (await fetch(`/data/${name}/${path}`)).arrayBuffer();
  const spec = await (await fetch(`/data/${name}/case.json`)).json();
  const inputs = {};
  for (const t of spec.inputs) inputs[t.name] = { ...t, data: new TYPES[t.dtype](await file(t.file)) };
  const onnx = spec.onnx ? new Uint8Array(await file("model.onnx")) : undefined;
  return { spec, inputs, onnx, ref: new Float32Array(await file("ref.bin")) };
}

/** The largest difference relative to the largest value; infinite where something is not finite or missing. */
export function difference(got, want) {
  if (got.length !== want.length) return Infinity;
  let [worst, scale] = [0, 0];
  for (let i = 0; i < want.length; i += 1) {
    const d = Math.abs(Number(got[i]) - want[i]);
    if (!(d <= worst)) worst = Number.isNaN(d) ? Infinity : d;
    scale = Math.max(scale, Math.abs(want[i]));
  }
  return worst / (scale || 1);
}
