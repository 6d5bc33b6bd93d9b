// A sentence embedding model (BERT, 6 layers) built of tensor ops over its safetensors file, for Node and for pages.
import { readNpz } from "./npz.mjs";

const [HEADS, SIZE] = [12, 384];

/** `[batch, time]` ids and mask to the hidden states `[batch, time, 384]` and unit embeddings `[batch, 384]`. */
export function forward({ Tensor }, weights, ids, mask) {
  const w = (name) => weights[name];
  const linear = (x, name) => x.linear(w(`${name}.weight`), w(`${name}.bias`));
  const norm = (x, name) => x.layerNorm(1, w(`${name}.weight`), w(`${name}.bias`), 1e-12);
  const [batch, time] = ids.shape;
  const table = (name) => w(`embeddings.${name}.weight`);
  const places = table("position_embeddings").narrow(0, 0, time).add(table("token_type_embeddings").narrow(0, 0, 1));
  let x = norm(table("word_embeddings").embedding(ids).add(places), "embeddings.LayerNorm");
  const seen = mask.gt(0).reshape([batch, 1, 1, time]);
  for (let layer = 0; layer < 6; layer += 1) {
    const at = (name) => `encoder.layer.${layer}.${name}`;
    const heads = (name) => linear(x, at(`attention.self.${name}`)).reshape([batch, time, HEADS, SIZE / HEADS]).transpose(1, 2);
    const y = heads("query").attention(heads("key"), heads("value"), { mask: seen });
    x = norm(x.add(linear(y.transpose(1, 2).flatten(2, 3), at("attention.output.dense"))), at("attention.output.LayerNorm"));
    const up = linear(x, at("intermediate.dense")).gelu();
    x = norm(x.add(linear(up, at("output.dense"))), at("output.LayerNorm"));
  }
  const weight = mask.cast("f32").unsqueeze(-1);
  const mean = x.mul(weight).sum(1).div(weight.sum(1));
  return { hidden: x, embedding: mean.div(mean.square().sum(-1, true).sqrt()) };
}

/** Runs it on the committed sentences. Gives what came out and what should, by name. */
export async function sentences(gradloom, device, { file, input, expected }) {
  const { Tensor, loadWeights, realize } = gradloom;
  const weights = await loadWeights(file, { device });
  const [given, want] = [await readNpz(input), await readNpz(expected)];
  const feed = ({ data, shape }) => new Tensor(data, shape);
  const out = forward(gradloom, weights, feed(given.input_ids), feed(given.attention_mask));
  await realize(Object.values(out));
  const rows = [];
  for (const [name, { data }] of Object.entries(want)) rows.push({ name, actual: await out[name].data(), expected: data });
  for (const t of [...Object.values(weights), ...Object.values(out)]) t.dispose();
  return rows;
}
