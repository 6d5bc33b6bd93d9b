// Takes the weights out of an ONNX model whose package has them in another format, so that the package's command can
// make the model's file of them: the bytes between the weights, and the name and dimensions of each weight.

/** Weights with fewer bytes stay in the template. */
const LEAST_BYTES = 16;

/** The fields of a protobuf message: number, and the span of a field with a length or the value of an integer. */
function* fieldsOf(bytes, from, to) {
  let at = from;
  const varint = () => {
    let [value, scale] = [0, 1];
    for (;;) {
      const byte = bytes[at++];
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
  };
  while (at < to) {
    const tag = varint();
    const [field, kind] = [tag >> 3, tag & 7];
    if (kind === 0) {
      yield { field, value: varint() };
    } else if (kind === 2) {
      const length = varint();
      yield { field, from: at, to: at + length };
      at += length;
    } else {
      at += kind === 5 ? 4 : 8;
    }
  }
}

/** The initializers of a model with raw data: dimensions, name and the span of the data. */
function* initializersOf(model) {
  for (const graph of fieldsOf(model, 0, model.length)) {
    if (graph.field !== 7) continue;
    for (const tensor of fieldsOf(model, graph.from, graph.to)) {
      if (tensor.field !== 5) continue;
      const found = { dims: [] };
      for (const { field, value, from, to } of fieldsOf(model, tensor.from, tensor.to)) {
        // dimensions are packed, or fields of their own
        if (field === 1) found.dims.push(...(value === undefined ? model.subarray(from, to) : [value]));
        if (field === 8) found.name = model.toString("latin1", from, to);
        if (field === 9) found.span = [from, to];
      }
      if (found.span && found.span[1] - found.span[0] > LEAST_BYTES) yield found;
    }
  }
}

/** The template of a model: bytes in base64, and between them weights by name. */
export function onnxTemplate(model) {
  const pieces = [];
  let at = 0;
  for (const { name, dims, span: [from, to] } of initializersOf(model)) {
    pieces.push(model.toString("base64", at, from), { name, dims });
    at = to;
  }
  return [...pieces, model.toString("base64", at)];
}
