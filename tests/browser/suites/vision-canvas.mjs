// configs: vulkan
// Tensors on canvases without leaving the GPU.
import { init } from "gradloom";
import { fromImage, toCanvas, toImageData } from "gradloom/vision";
import { assert, assertEqual, testOnWebGpu } from "harness";

const [WIDTH, HEIGHT] = [40, 30];
/** Red grows to the right, green downwards; one corner is blue. */
const colour = (x, y) => [6 * x, 8 * y, x < 8 && y < 8 ? 255 : 0];
const PIXELS = new Uint8ClampedArray(4 * WIDTH * HEIGHT);
for (let y = 0; y < HEIGHT; y += 1) for (let x = 0; x < WIDTH; x += 1) PIXELS.set([...colour(x, y), 255], 4 * (y * WIDTH + x));

function drawn() {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  canvas.getContext("2d").putImageData(new ImageData(PIXELS, WIDTH, HEIGHT), 0, 0);
  return canvas;
}

/** What the page reads of canvases while something is done. */
async function readbacks(body) {
  const all = [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D].map((kind) => kind.prototype);
  const own = all.map((each) => each.getImageData);
  let count = 0;
  all.forEach((each, i) => (each.getImageData = function (...args) { return (count += 1), own[i].apply(this, args); }));
  try {
    await body();
  } finally {
    all.forEach((each, i) => (each.getImageData = own[i]));
  }
  return count;
}

/** A picture with some of it transparent. */
function glassy() {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(drawn(), 0, 0);
  pen.clearRect(10, 5, 12, 9);
  pen.fillStyle = "rgb(200 40 40 / 50%)";
  pen.fillRect(20, 3, 12, 20);
  return canvas;
}

testOnWebGpu("a tensor is drawn without leaving the GPU", async () => {
  await init({ device: "webgpu" });
  const shownBy = (canvas) => {
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const pen = copy.getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    return pen.getImageData(0, 0, canvas.width, canvas.height).data;
  };
  for (const options of [{}, { channels: "bgr", mean: 0.4, std: 0.2 }, { channels: "grey" }, { channels: "rgba" }]) {
    const source = options.channels === "rgba" ? glassy() : drawn();
    const t = await fromImage(source, { ...options, gpu: true });
    const want = await toImageData(t, options);
    const canvas = document.createElement("canvas");
    let got;
    const count = await readbacks(async () => (got = await toCanvas(t, canvas, { ...options, gpu: true })));
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
  const plain = drawn();
  const t = await fromImage(drawn(), { gpu: true });
  assertEqual(await toCanvas(t.mul(0.5), plain, { gpu: true }), plain);
  assert(plain.getContext("2d").getImageData(39, 0, 1, 1).data[0] < 130);
});
