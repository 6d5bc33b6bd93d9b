// A page whose browser refuses the worker of its models: they run in the page's own thread.
import { Tensor, load } from "gradloom";
import { allowConsoleErrors, assert, assertEqual, errorOf, test } from "harness";

const MODEL = "/models/ppocr_cls/model.onnx";

test("a worker that does not start is done without, and the console says so once", async () => {
  await allowConsoleErrors(/no thread/);
  const { Worker: Plain } = globalThis;
  const { warn } = console;
  const said = [];
  console.warn = (text) => said.push(text);
  globalThis.Worker = class extends Plain {
    constructor(script, options) {
      if (!/remote-worker|^blob:/.test(String(script))) super(script, options);
      else super(URL.createObjectURL(new Blob(["throw new Error('no thread')"], { type: "text/javascript" })));
    }
  };
  try {
    for (let i = 0; i < 2; i += 1) {
      const model = await load(MODEL, { device: "wasm" });
      const [out] = Object.values(await model.run({ x: new Tensor(new Float32Array(3 * 48 * 192), [1, 3, 48, 192]) }));
      const [a, b] = await out.data();
      assert(Math.abs(a + b - 1) < 1e-4, `${a} ${b}`);
      assertEqual(out.device.kind, "wasm");
      model.dispose();
    }
    assertEqual((await errorOf(() => load("/page/index.html", { device: "wasm" }))).code, "E_FORMAT");
    assertEqual(said.length, 1, said.join());
  } finally {
    Object.assign(globalThis, { Worker: Plain });
    console.warn = warn;
  }
});
