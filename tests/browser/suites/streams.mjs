// configs: default, no-webgpu
// The newest frame of a stream or track is a picture: a canvas that is captured stands for a camera and a screen.
import { init } from "gradloom";
import { removeBackground, unload } from "gradloom/tasks";
import { fromImage } from "gradloom/vision";
import { assert, assertEqual, errorOf, test, testOnWebGpu } from "harness";

const [WIDTH, HEIGHT] = [64, 48];
/** How far a colour may be off after a film's coding of colours. */
const MOST = 6;

// elements that play tracks
const videos = [];
const { createElement } = document;
document.createElement = function (name, ...more) {
  const element = createElement.call(document, name, ...more);
  if (name === "video") videos.push(element);
  return element;
};

/** A canvas that is captured, and a function that paints it in one colour, again and again, as a camera gives frames. */
function camera() {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d");
  const paint = (colour) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, WIDTH, HEIGHT);
  };
  let colour = "rgb(200 30 60)";
  paint(colour);
  const timer = setInterval(() => paint(colour), 20);
  const stream = canvas.captureStream(30);
  return {
    stream,
    track: stream.getVideoTracks()[0],
    show: (other) => (colour = other),
    stop() {
      clearInterval(timer);
      for (const track of stream.getTracks()) track.stop();
    },
  };
}

const isColour = (got, want) => want.every((v, c) => Math.abs(v - got[c]) <= MOST);
const colourOf = async (source, options = {}) => {
  const t = await fromImage(source, { layout: "hwc", dtype: "u8", ...options });
  assertEqual(t.shape, [HEIGHT, WIDTH, 3]);
  const values = [...(await t.data("u8"))];
  t.dispose();
  assert(isColour(values.slice(-3), values.slice(0, 3)), `${values.slice(0, 3)}, ${values.slice(-3)}`);
  return values.slice(0, 3);
};

/** Reads until the new colour has come through; the test's own limit ends it. */
async function until(read, want) {
  for (let got = await read(); !isColour(got, want); got = await read()) await new Promise((done) => requestAnimationFrame(done));
}

async function follows(options) {
  const { stream, track, show, stop } = camera();
  const before = videos.length;
  assert(isColour(await colourOf(stream, options), [200, 30, 60]));
  show("rgb(20 180 90)");
  await until(() => colourOf(stream, options), [20, 180, 90]);
  show("rgb(250 240 10)");
  await until(() => colourOf(track, options), [250, 240, 10]);
  assertEqual(videos.length - before, 1, "a stream and its track are played once");
  stop();
}

test("the newest frame of a stream and of a track", async () => {
  await init({ device: "wasm" });
  await follows({});
});

testOnWebGpu("frames go to the GPU as they are", async () => {
  const device = await init({ device: "webgpu" });
  await follows({ gpu: true, device });
});

test("a task takes a stream, in the worker and in the page", async () => {
  const { stream, show, stop } = camera();
  for (const worker of [true, false]) {
    const read = async () => {
      const { picture } = await removeBackground(stream, { model: "/models/selfie_segmentation/recipe.json", device: "wasm", worker });
      assertEqual([picture.width, picture.height], [WIDTH, HEIGHT]);
      return [...picture.data.subarray(0, 3)];
    };
    show("rgb(10 20 230)");
    await until(read, [10, 20, 230]);
    show("rgb(240 120 20)");
    await until(read, [240, 120, 20]);
  }
  stop();
  await unload();
});

test("streams without pictures, tracks that ended, and signals", async () => {
  const context = new AudioContext();
  const sound = context.createMediaStreamDestination().stream;
  let error = await errorOf(() => fromImage(sound));
  assertEqual([error.code, error.message, error.hint], ["E_VALUE", "the stream has no pictures: it has no video track", "getUserMedia({ video: true })"]);
  assertEqual((await errorOf(() => fromImage(sound.getAudioTracks()[0]))).message, "the stream has no pictures: it has no video track");
  await context.close();
  const { stream, track, stop } = camera();
  await colourOf(stream);
  stop();
  for (const source of [stream, track]) {
    error = await errorOf(() => fromImage(source));
    assertEqual([error.code, error.message], ["E_VALUE", "the track has ended"]);
    error = await errorOf(() => removeBackground(source, { model: "/models/selfie_segmentation/recipe.json", device: "wasm" }));
    assertEqual([error.code, error.message], ["E_VALUE", "the track has ended"]);
  }
  // one that gives no frame: nothing asks for them
  const still = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  still.getContext("2d");
  const silent = still.captureStream(0);
  const stopper = new AbortController();
  const pending = fromImage(silent, { signal: stopper.signal });
  stopper.abort();
  assertEqual((await errorOf(() => pending)).name, "AbortError");
  silent.getTracks()[0].stop();
});

test("an element that nobody asks for is released", async () => {
  const { stream, stop } = camera();
  await colourOf(stream);
  const video = videos.at(-1);
  assert(video.srcObject !== null);
  while (video.srcObject !== null) await new Promise((done) => requestAnimationFrame(done));
  // and there is another one when it is wanted again
  assert(isColour(await colourOf(stream), [200, 30, 60]));
  assert(videos.at(-1) !== video);
  stop();
  await unload();
});
