// configs: vulkan
// Tensors on canvases without leaving the GPU.
import { init } from "gradloom";
import { fromImage, toCanvas, toImageData } from "gradloom/vision";
import { assert, assertEqual, testOnWebGpu } from "harness";
import { HEIGHT, WIDTH, countReadbacks, drawnCanvas, translucentCanvas } from "../page/pictures.mjs";

testOnWebGpu("a tensor is drawn without leaving the GPU", async () => {
  await init({ device: "webgpu" });
  const shownBy = (canvas) => {
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    return pen.getImageData(0, 0, canvas.width, canvas.height).data;
  };
  for (const options of [{}, { channels: "bgr", mean: 0.4, std: 0.2 }, { channels: "grey" }, { channels: "rgba" }]) {
    const source = options.channels === "rgba" ? translucentCanvas() : drawnCanvas();
    const t = await fromImage(source, { ...options, gpu: true });
    const want = await toImageData(t, options);
    const canvas = document.createElement("canvas");
    let got;
    const count = await countReadbacks(async () => (got = await toCanvas(t, canvas, { ...options, gpu: true })));
    assert(got === canvas && count === 0);
    assertEqual([canvas.width, canvas.height], [WIDTH, HEIGHT]);
    const data = shownBy(canvas);
    for (let i = 0; i < data.length; i += 4) {
      // colours of what is hardly seen are not kept
      const most = want.data[i + 3] === 255 ? 1 : want.data[i + 3] === 0 ? 255 : 3;
      for (let c = 0; c < 4; c += 1) {
        const off = Math.abs(data[i + c] - want.data[i + c]);
        assert(off <= (c === 3 ? 1 : most), `${JSON.stringify(options)}: byte ${i + c} is ${data[i + c]}, not ${want.data[i + c]}`);
      }
    }
    t.dispose();
  }
  // one that draws otherwise already
  const plain = drawnCanvas();
  const t = await fromImage(drawnCanvas(), { gpu: true });
  assertEqual(await toCanvas(t.mul(0.5), plain, { gpu: true }), plain);
  assert(plain.getContext("2d").getImageData(39, 0, 1, 1).data[0] < 130);
});
