// Every committed model on both devices of a page, against onnxruntime's outputs.
// configs: default
import { Tensor, load } from "gradloom";
import { assert, assertClose, assertEqual, loadCase, note, test } from "harness";

const NAMES = [
  "magika",
  "silero_vad_op15",
  "silero_vad_op18_ifless",
  "silero_vad_sequence",
  "ppocr_cls",
  "hibari_oov",
  "style_multistyle26",
  "esrgan_slim_x2",
  "ppocrv4_det",
];

const DTYPES = { "<f4": "f32", "<f8": "f64", "<i8": "i64", "<i4": "i32", "|u1": "u8", "|b1": "bool" };

/** An npz archive's arrays as tensors. */
export function tensors(arrays) {
  return Object.fromEntries(
    Object.entries(arrays).map(([name, a]) => [name, new Tensor(a.data, a.shape, { dtype: DTYPES[a.dtype] })]),
  );
}

for (const device of ["wasm", "webgpu"]) {
  for (const name of NAMES) {
    const body = async () => {
      const { model: file, input, expected } = await loadCase(name);
      using model = await load(file, { device });
      assertEqual(model.device.kind, device);
      const feeds = tensors(input);
      const times = [];
      let worst = 0;
      // the second run replays the plan of the first
      for (let round = 0; round < 2; round += 1) {
        const start = performance.now();
        const out = await model.run(feeds);
        assertEqual(Object.keys(out).sort(), Object.keys(expected).sort(), "names of outputs");
        for (const [key, want] of Object.entries(expected)) {
          const got = out[key];
          assertEqual([got.dtype, ...got.shape], [DTYPES[want.dtype], ...want.shape], key);
          worst = Math.max(worst, assertClose(await got.data(), want.data, { what: key }));
          got.dispose();
        }
        times.push(performance.now() - start);
      }
      assert(worst <= 1e-3);
      await note(`${times.map((ms) => `${ms.toFixed(0)} ms`).join(", then ")}; difference ${worst.toExponential(1)}`);
    };
    test(`${name} on ${device}`, body, { timeoutMs: 180_000 });
  }
}
