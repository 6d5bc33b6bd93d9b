// Adapters for the test fixture of a llama, and the same model with each of them in its weights. In Node and in pages.

const RANK = 3;

const halfToFloat = (bits) => {
  const [sign, exponent, mantissa] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + mantissa / 1024) : 2 ** -24 * mantissa);
};
const floatToHalf = (value) => {
  if (value === 0) return 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  return (value < 0 ? 1 << 15 : 0) | ((exponent + 15) << 10) | ((Math.abs(value) / 2 ** exponent - 1) * 1024);
};

/** Where bytes lie in others. */
function offsetOf(bytes, all) {
  for (let at = all.indexOf(bytes[0]); at >= 0; at = all.indexOf(bytes[0], at + 1)) {
    if (bytes.every((byte, i) => all[at + i] === byte)) return at;
  }
  throw new Error("the tensor does not lie in both files");
}

/**
 * PEFT's files of an adapter of the projections of values, and the GGUF model with it in its weights, given the model in both formats, in which
 * what these projections hold, of 16 bits, is the same. Each factor A picks a column, so that what is merged can be numbers that 16 bits hold.
 */
export async function makeAdapter({ Tensor, saveWeights }, { gguf, safetensors }, seed, alpha) {
  const view = new DataView(safetensors.buffer, safetensors.byteOffset, safetensors.byteLength);
  const data = 8 + Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(safetensors.subarray(8, data)));
  const merged = Uint8Array.from(gguf);
  const into = new DataView(merged.buffer);
  const tensors = {};
  const entries = Object.entries(header).filter(([name]) => name.endsWith("v_proj.weight"));
  for (const [name, { dtype, shape: [outputs, inputs], data_offsets: [start, end] }] of entries) {
    if (dtype !== "F16") throw new Error(`${name} is of ${dtype}`);
    const place = offsetOf(safetensors.subarray(data + start, data + end), gguf);
    const [a, b] = [new Float32Array(RANK * inputs), new Float32Array(outputs * RANK)];
    for (let r = 0; r < RANK; r += 1) {
      const column = (seed + 5 * r) % inputs;
      a[r * inputs + column] = 1;
      for (let o = 0; o < outputs; o += 1) {
        const at = 2 * (o * inputs + column);
        const wanted = ((o * 7 + r * 13 + seed) % 64 - 32) / 64;
        b[o * RANK + r] = ((wanted - halfToFloat(view.getUint16(data + start + at, true))) * RANK) / alpha;
        into.setUint16(place + at, floatToHalf(wanted), true);
      }
    }
    const stem = `base_model.model.${name.replace(/\.weight$/, "")}`;
    tensors[`${stem}.lora_A.weight`] = new Tensor(a, [RANK, inputs]);
    tensors[`${stem}.lora_B.weight`] = new Tensor(b, [outputs, RANK]);
  }
  const config = new TextEncoder().encode(JSON.stringify({ peft_type: "LORA", lora_alpha: alpha }));
  return { file: await saveWeights(tensors), config, merged };
}
