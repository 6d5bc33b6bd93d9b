// Makes an ONNX model of the weights of a TensorFlow.js model and a template: the model's bytes in base64, and between
// them weights by name. The network is described by the template alone.

/** The weights of a TensorFlow.js model in one file, by name: shape and data. */
function weightsOf(manifest, bytes) {
  const weights = new Map();
  let at = 0;
  for (const { name, shape, dtype } of manifest.weightsManifest.flatMap((group) => group.weights)) {
    if (dtype !== "float32") throw new Error(`${name} is ${dtype}, not float32`);
    const length = 4 * shape.reduce((product, n) => product * n, 1);
    // a copy, because the file need not be aligned
    weights.set(name, { shape, data: new Float32Array(bytes.slice(at, at + length).buffer) });
    at += length;
  }
  return weights;
}

/** The kernel of a convolution [height, width, in, out] as [out, in, height, width]. */
function toOihw({ shape: [height, width, inputs, outputs], data }) {
  const out = new Float32Array(data.length);
  for (let at = 0; at < height * width; at += 1) {
    for (let i = 0; i < inputs; i += 1) {
      for (let o = 0; o < outputs; o += 1) out[(o * inputs + i) * height * width + at] = data[(at * inputs + i) * outputs + o];
    }
  }
  return out;
}

/** The bytes of the model. Weight `X_w` of the template is kernel `X/kernel`, and `X_b` is `X/bias`. */
export function tfjsToOnnx(template, manifest, bytes) {
  const weights = weightsOf(JSON.parse(new TextDecoder().decode(manifest)), new Uint8Array(bytes));
  const pieceOf = (piece) => {
    if (typeof piece === "string") return Buffer.from(piece, "base64");
    const from = piece.name.replace(/_w$/, "/kernel").replace(/_b$/, "/bias");
    const weight = weights.get(from);
    if (!weight) throw new Error(`the model has no weight ${from}`);
    const { buffer } = weight.shape.length === 4 ? toOihw(weight) : weight.data;
    return Buffer.from(buffer);
  };
  return Buffer.concat(template.map(pieceOf));
}
