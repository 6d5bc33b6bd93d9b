// Pages with a Content-Security-Policy: with `wasm-unsafe-eval` tensors and models work, and without it errors name that.
// configs: csp, csp-without-wasm
import { LLM } from "gradloom/llm";
import { Tensor, init, load } from "gradloom";
import { allowConsoleErrors, assert, assertEqual, errorOf, params, test } from "harness";

const MODEL = "/models/ppocr_cls/model.onnx";

if (params.get("config") === "csp-without-wasm") {
  const DIRECTIVE = "the Content-Security-Policy needs script-src 'wasm-unsafe-eval'";

  test("an error names the directive that WebAssembly needs", async () => {
    await allowConsoleErrors(/Content Security Policy/);
    for (const start of [() => init({ device: "wasm" }), () => load(MODEL), () => LLM.load("/models/verses/verses-q8_0.gguf")]) {
      const { code, hint, message } = await errorOf(start);
      assertEqual([code, hint], ["E_FETCH", DIRECTIVE], message);
    }
  });
} else {
  test("a strict policy suffices", async () => {
    await init({ device: "wasm" });
    assertEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
    const model = await load(MODEL, { device: "wasm" });
    const [out] = Object.values(await model.run({ x: new Tensor(new Float32Array(3 * 48 * 192), [1, 3, 48, 192]) }));
    const [a, b] = await out.data();
    assert(Math.abs(a + b - 1) < 1e-4, `${a} ${b}`);
    model.dispose();
  });
}
