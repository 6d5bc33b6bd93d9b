// A residual network with random weights, as large as the well-known one of 50 convolutions: an ONNX file made in a page or in node.
import { model } from "../browser/onnx.mjs";

const IMAGE = 224;
const DEPTHS = [3, 4, 6, 3];

/** The bytes of the model; its input is `x`. */
export function residualNetwork() {
  const [weights, nodes] = [{}, []];
  let [seed, names] = [1, 0];
  const weight = (shape, fan) => {
    const data = new Float32Array(shape.reduce((product, n) => product * n, 1));
    const scale = Math.sqrt(6 / fan) / 2 ** 31;
    for (let i = 0; i < data.length; i += 1) {
      seed = (Math.imul(seed, 1664525) + 1013904223) | 0;
      data[i] = seed * scale;
    }
    const name = `w${(names += 1)}`;
    weights[name] = { data, shape, dtype: "float32" };
    return name;
  };
  const node = (kind, inputs, attributes = {}) => {
    const name = `v${(names += 1)}`;
    nodes.push([kind, inputs, name, attributes]);
    return name;
  };
  const conv = (x, from, to, side, stride) => {
    const inputs = [x, weight([to, from, side, side], from * side * side), weight([to], 100)];
    return node("Conv", inputs, { kernel_shape: [side, side], strides: [stride, stride], pads: Array(4).fill((side - 1) / 2) });
  };
  const relu = (x) => node("Relu", [x]);
  let x = relu(conv("x", 3, 64, 7, 2));
  x = node("MaxPool", [x], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] });
  let from = 64;
  DEPTHS.forEach((depth, stage) => {
    const width = 64 << stage;
    for (let block = 0; block < depth; block += 1) {
      const stride = stage > 0 && block === 0 ? 2 : 1;
      const inner = conv(relu(conv(relu(conv(x, from, width, 1, 1)), width, width, 3, stride)), width, 4 * width, 1, 1);
      const around = block === 0 ? conv(x, from, 4 * width, 1, stride) : x;
      x = relu(node("Add", [inner, around]));
      from = 4 * width;
    }
  });
  x = node("Flatten", [node("GlobalAveragePool", [x])], { axis: 1 });
  node("Gemm", [x, weight([from, 1000], from), weight([1000], 100)]);
  const data = new Float32Array(3 * IMAGE * IMAGE).map((_, i) => ((i * 37) % 101) / 50 - 1);
  const input = { data, shape: [1, 3, IMAGE, IMAGE], dtype: "float32" };
  return { file: model({ x: input }, weights, nodes, [1, 1000]), inputs: { x: { data, shape: input.shape } } };
}
