// What a picture shows: EfficientNet-Lite0 (Tan and Le 2019) written out, with the weights that PyTorch saved.
import { loadWeights, tidy } from "gradloom";
import { fromImage, softmax, topK } from "gradloom/vision";

/** Repeats, first stride and channels of each stage. */
const STAGES = [[1, 1, 16], [2, 2, 24], [2, 2, 40], [3, 2, 80], [3, 1, 112], [4, 2, 192], [1, 1, 320]];

/** A convolution with TensorFlow's padding, its norm, and what keeps values between 0 and 6. */
function conv(w, x, name, norm, stride = 1, act = true) {
  const weight = w[`${name}.weight`];
  const kernel = weight.shape[2];
  const pad = x.shape.slice(2).map((n) => Math.max(0, (Math.ceil(n / stride) - 1) * stride + kernel - n));
  const padded = kernel === 1 ? x : x.pad([[0, 0], [0, 0], ...pad.map((p) => [p >> 1, p - (p >> 1)])]);
  const scale = w[`${norm}.weight`].div(w[`${norm}.running_var`].add(1e-3).sqrt());
  const shift = w[`${norm}.bias`].sub(w[`${norm}.running_mean`].mul(scale));
  const groups = weight.shape[1] === 1 ? x.shape[1] : 1;
  const y = padded.conv(weight.mul(scale.reshape([-1, 1, 1, 1])), shift, { stride, groups });
  return act ? y.relu6() : y;
}

/** Pictures [n, 3, 224, 224] from -1 to 1 to the scores of 1,000 things. */
export function forward(w, pictures) {
  let x = conv(w, pictures, "_conv_stem", "_bn0", 2);
  let at = 0;
  for (const [repeats, first, channels] of STAGES) {
    for (let i = 0; i < repeats; i += 1, at += 1) {
      const name = (part) => `_blocks.${at}.${part}`;
      let y = at === 0 ? x : conv(w, x, name("_expand_conv"), name("_bn0"));
      y = conv(w, y, name("_depthwise_conv"), name("_bn1"), i === 0 ? first : 1);
      y = conv(w, y, name("_project_conv"), name("_bn2"), 1, false);
      x = i > 0 && x.shape[1] === channels ? x.add(y) : y;
    }
  }
  return conv(w, x, "_conv_head", "_bn1").mean([2, 3]).linear(w["_fc.weight"], w["_fc.bias"]);
}

/** The likeliest five of the labels, best first. */
export async function classify(w, picture, labels, options = {}) {
  using image = await fromImage(picture, { size: 224, fit: "cover", mean: 0.5, std: 0.5, ...options });
  using scores = tidy(() => forward(w, image));
  return topK(softmax(await scores.data("f32", options)), 5, labels); // [{ label, score, index }]
}

export const load = (url = "models/efficientnet_lite0/model.pth", options = {}) => loadWeights(url, options);
