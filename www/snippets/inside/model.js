// Runs a model once, on inputs that are generated from its declaration.
import { Tensor, load } from "gradloom";

// `file` is the file chosen above
const model = await load(file);

/** A size for an unknown dimension: 1, or 64 for the sides of a picture. */
const size = (d, at, shape) => (typeof d === "number" ? d : shape.length === 4 && at > 0 ? 64 : 1);
const inputs = {};
for (const { name, shape, dtype, optional } of model.inputs) {
  if (optional || shape === null) continue;
  const sizes = shape.map(size);
  inputs[name] = dtype.startsWith("f") ? Tensor.rand(sizes) : Tensor.zeros(sizes, { dtype });
}
const outputs = await model.run(inputs);
for (const [name, t] of Object.entries(outputs)) {
  await t.data();
  console.log(name, String(t));
}
model.dispose();
