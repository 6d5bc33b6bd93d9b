// The model of this folder in other forms: a folder as Hugging Face has it, and a split GGUF file. It knows nothing of gradloom, and only what this
// model needs: tensors in f32 and Q8_0, a llama's names and its order of rows, byte-level BPE.
//   node convert.mjs OUT        writes OUT/whole, OUT/sharded and OUT/split
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Sizes of the numbers of metadata by their types. */
const SIZES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const NUMBERS = { 0: "getUint8", 2: "getUint16", 4: "getUint32", 5: "getInt32", 6: "getFloat32", 7: "getUint8", 10: "getBigUint64" };

/** Metadata with the bytes of each pair, and tensors `{ name, shape (innermost first), kind, bytes }`. */
export function readGguf(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  let at = 24;
  const long = () => Number(view.getBigUint64((at += 8) - 8, true));
  const int = () => view.getUint32((at += 4) - 4, true);
  const text = () => {
    const length = long();
    return new TextDecoder().decode(file.subarray(at, (at += length)));
  };
  const value = (type) => {
    if (type === 8) return text();
    if (type === 9) {
      const each = int();
      return Array.from({ length: long() }, () => value(each));
    }
    at += SIZES[type];
    return Number(view[NUMBERS[type]](at - SIZES[type], true));
  };
  const metadata = new Map();
  const [tensors, pairs] = [8, 16].map((place) => Number(view.getBigUint64(place, true)));
  for (let i = 0; i < pairs; i += 1) {
    const start = at;
    const key = text();
    metadata.set(key, { value: value(int()), raw: file.slice(start, at) });
  }
  const list = Array.from({ length: tensors }, () => {
    const name = text();
    const shape = Array.from({ length: int() }, long);
    return { name, shape, kind: int(), offset: long() };
  });
  const data = Math.ceil(at / 32) * 32;
  for (const t of list) {
    const elements = t.shape.reduce((n, d) => n * d, 1);
    const length = t.kind === 0 ? 4 * elements : (elements / 32) * 34;
    if (t.kind !== 0 && t.kind !== 8) throw new Error(`${t.name} is of kind ${t.kind}`);
    t.bytes = file.slice(data + t.offset, data + t.offset + length);
  }
  return { metadata, tensors: list };
}

/** A number of 16 bits. */
function half(bits) {
  const [sign, power, part] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (power === 0 ? part * 2 ** -24 : (1 + part / 1024) * 2 ** (power - 15));
}

/** Elements in f32: exactly those that the blocks stand for. */
function elements({ kind, bytes, shape }) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = shape.reduce((n, d) => n * d, 1);
  if (kind === 0) return Float32Array.from({ length: count }, (_, i) => view.getFloat32(4 * i, true));
  return Float32Array.from({ length: count }, (_, i) => {
    const block = Math.floor(i / 32) * 34;
    return half(view.getUint16(block, true)) * view.getInt8(block + 2 + (i % 32));
  });
}

/** Rows of each head from pairs side by side to halves. */
function halves(values, heads, row) {
  const head = values.length / heads / row;
  const out = new Float32Array(values.length);
  for (let to = 0; to < heads * head; to += 1) {
    const [base, i] = [Math.floor(to / head) * head, to % head];
    const from = base + (i % (head / 2)) * 2 + Math.floor(i / (head / 2));
    out.set(values.subarray(from * row, (from + 1) * row), to * row);
  }
  return out;
}

const PARTS = {
  attn_norm: "input_layernorm", attn_q: "self_attn.q_proj", attn_k: "self_attn.k_proj", attn_v: "self_attn.v_proj", attn_output: "self_attn.o_proj",
  ffn_norm: "post_attention_layernorm", ffn_gate: "mlp.gate_proj", ffn_up: "mlp.up_proj", ffn_down: "mlp.down_proj",
};

const WHOLE = { "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight" };

/** Tensors as transformers names them, `{ name, shape (outermost first), values }`. */
export function weights({ metadata, tensors }) {
  const number = (key) => metadata.get(`llama.${key}`).value;
  const heads = { attn_q: number("attention.head_count"), attn_k: number("attention.head_count_kv") };
  return tensors.map((t) => {
    const [, layer, part] = /^blk\.(\d+)\.(\w+)\.weight$/.exec(t.name) ?? [];
    const name = part ? `model.layers.${layer}.${PARTS[part]}.weight` : WHOLE[t.name];
    const values = elements(t);
    return { name, shape: [...t.shape].reverse(), values: heads[part] ? halves(values, heads[part], t.shape[0]) : values };
  });
}

/** A safetensors file. */
export function safetensors(tensors) {
  let offset = 0;
  const header = { __metadata__: { format: "pt" } };
  for (const { name, shape, values } of tensors) header[name] = { dtype: "F32", shape, data_offsets: [offset, (offset += values.byteLength)] };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = 8 + Math.ceil(text.length / 8) * 8;
  const out = new Uint8Array(start + offset).fill(32, 8, start);
  new DataView(out.buffer).setBigUint64(0, BigInt(start - 8), true);
  out.set(text, 8);
  let at = start;
  for (const { values } of tensors) {
    out.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), at);
    at += values.byteLength;
  }
  return out;
}

const json = (value) => new TextEncoder().encode(JSON.stringify(value));

/** The folder's files by name, the weights in so many of them. */
export function folder(model, shards = 1) {
  const { metadata } = model;
  const of = (key) => metadata.get(key)?.value;
  const number = (key) => of(`llama.${key}`);
  const heads = number("attention.head_count");
  const tokens = of("tokenizer.ggml.tokens");
  const flags = { special: true, single_word: false, lstrip: false, rstrip: false, normalized: false };
  const special = tokens.flatMap((content, id) => (of("tokenizer.ggml.token_type")[id] === 3 ? [{ id, content, ...flags }] : []));
  const [bos, eos] = ["bos", "eos"].map((key) => of(`tokenizer.ggml.${key}_token_id`));
  const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  const begin = { id: tokens[bos], ids: [bos], tokens: [tokens[bos]] };
  const around = [{ SpecialToken: { id: tokens[bos], type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }];
  const files = {
    "config.json": json({
      architectures: ["LlamaForCausalLM"], model_type: "llama", vocab_size: tokens.length, hidden_size: number("embedding_length"),
      intermediate_size: number("feed_forward_length"), num_hidden_layers: number("block_count"), num_attention_heads: heads,
      num_key_value_heads: number("attention.head_count_kv"), head_dim: number("embedding_length") / heads,
      max_position_embeddings: number("context_length"), rms_norm_eps: 1e-5, rope_theta: number("rope.freq_base"), hidden_act: "silu",
      tie_word_embeddings: true, bos_token_id: bos,
    }),
    "generation_config.json": json({ bos_token_id: bos, eos_token_id: [eos] }),
    "tokenizer.json": json({
      version: "1.0", truncation: null, padding: null, added_tokens: special, normalizer: null, pre_tokenizer: bytes, decoder: bytes,
      post_processor: { type: "TemplateProcessing", single: around, pair: around, special_tokens: { [tokens[bos]]: begin } },
      model: { type: "BPE", dropout: null, unk_token: null, vocab: Object.fromEntries(tokens.map((t, i) => [t, i])), merges: of("tokenizer.ggml.merges") },
    }),
    "tokenizer_config.json": json({ bos_token: tokens[bos], eos_token: tokens[eos], ...(shards === 1 && { chat_template: of("tokenizer.chat_template") }) }),
  };
  const all = weights(model);
  if (shards === 1) return { ...files, "model.safetensors": safetensors(all) };
  files["chat_template.jinja"] = new TextEncoder().encode(of("tokenizer.chat_template"));
  const name = (i) => `model-${String(i + 1).padStart(5, "0")}-of-${String(shards).padStart(5, "0")}.safetensors`;
  const map = {};
  for (let i = 0; i < shards; i += 1) {
    const part = all.filter((_, at) => at % shards === i);
    for (const t of part) map[t.name] = name(i);
    // a tensor that the index says is elsewhere is no part of the model
    const stray = i === 0 ? [] : [{ name: all[0].name, shape: [2], values: Float32Array.of(1, 2) }];
    files[name(i)] = safetensors([...part, ...stray]);
  }
  files["model.safetensors.index.json"] = json({ metadata: { total_size: 0 }, weight_map: map });
  return files;
}

/** The files of a split GGUF by name, as llama.cpp's `llama-gguf-split` writes them: the first one has the metadata, and no tensor if told so. */
export function split({ metadata, tensors }, stem, count, { emptyFirst = false } = {}) {
  const text = (s) => {
    const bytes = Buffer.from(s);
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(bytes.length));
    return Buffer.concat([length, bytes]);
  };
  const small = (n) => Buffer.from([n & 255, (n >> 8) & 255]);
  const int = (n) => Buffer.from([n & 255, (n >> 8) & 255, (n >> 16) & 255, 0]);
  const longs = (list) => Buffer.concat(list.map((n) => {
    const out = Buffer.alloc(8);
    out.writeBigUInt64LE(BigInt(n));
    return out;
  }));
  const pair = (key, type, bytes) => Buffer.concat([text(key), int(type), bytes]);
  const files = {};
  for (let i = 0; i < count; i += 1) {
    const part = (at) => (emptyFirst ? 1 + (at % (count - 1)) : Math.floor((at * count) / tensors.length));
    const mine = tensors.filter((_, at) => part(at) === i);
    const own = i === 0 ? [...metadata.values()].map(({ raw }) => Buffer.from(raw)) : [];
    const pairs = [...own, pair("split.no", 2, small(i)), pair("split.tensors.count", 5, int(tensors.length)), pair("split.count", 2, small(count))];
    let offset = 0;
    const index = mine.map(({ name, shape, kind, bytes }) => {
      const entry = Buffer.concat([text(name), int(shape.length), longs(shape), int(kind), longs([offset])]);
      offset = Math.ceil((offset + bytes.length) / 32) * 32;
      return entry;
    });
    const header = Buffer.concat([Buffer.from("GGUF\x03\0\0\0"), longs([mine.length, pairs.length]), ...pairs, ...index]);
    const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc(Math.ceil(bytes.length / 32) * 32 - bytes.length)]);
    const number = (n) => String(n).padStart(5, "0");
    const data = mine.map((t) => padded(Buffer.from(t.bytes)));
    files[`${stem}-${number(i + 1)}-of-${number(count)}.gguf`] = new Uint8Array(Buffer.concat([padded(header), ...data]));
  }
  return files;
}

/** Writes files into a folder. */
export function write(out, files) {
  mkdirSync(out, { recursive: true });
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(out, name), bytes);
}

const [, script, out] = process.argv;
if (script === fileURLToPath(import.meta.url)) {
  if (!out) throw new Error("usage: node convert.mjs OUT");
  const model = readGguf(readFileSync(new URL("verses-q8_0.gguf", import.meta.url)));
  write(join(out, "whole"), folder(model));
  write(join(out, "sharded"), folder(model, 3));
  write(join(out, "split"), split(model, "verses", 3));
}
