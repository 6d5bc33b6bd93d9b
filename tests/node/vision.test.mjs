// Pictures as tensors and back, boxes and scores. The bytes of resized pictures are Pillow's (tests/fixtures/make_vision.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";
import { Tensor, init } from "gradloom";
import { fitImage, fromImage, letterbox, nms, overlap, scaleBoxes, softmax, toBlob, toBoxes, toCanvas, toImageData, topK } from "gradloom/vision";

const given = JSON.parse(readFileSync(new URL("../fixtures/vision.json", import.meta.url), "utf8"));
const { width, height } = given;
const bytes = (hex) => new Uint8Array(Buffer.from(hex, "hex"));
const picture = { data: bytes(given.rgb), width, height };
const plain = { layout: "hwc", dtype: "u8" };
const same = async (tensor, hex, what) => assert.equal(Buffer.from(await tensor.data("u8")).toString("hex"), hex, what);

before(() => init({ device: "wasm" }));

test("a picture becomes a tensor of floats, channels first", async () => {
  const t = await fromImage(picture);
  assert.deepEqual([t.dtype, t.shape], ["f32", [1, 3, height, width]]);
  const values = await t.data();
  const at = (c, y, x) => values[(c * height + y) * width + x];
  for (const [c, y, x] of [[0, 0, 36], [1, 5, 7], [2, 22, 3]]) assert.equal(at(c, y, x), Math.fround(picture.data[3 * (y * width + x) + c] / 255));
});

test("every way to resample gives Pillow's bytes", async () => {
  assert.equal(given.resized.length, 20);
  for (const { how, width: w, height: h, rgb } of given.resized) {
    const t = await fromImage(picture, { ...plain, size: [h, w], resample: how });
    assert.deepEqual(t.shape, [h, w, 3]);
    await same(t, rgb, `${how} ${w} x ${h}`);
  }
  await same(await fromImage(picture, { ...plain, size: [9, 11], crop: given.part }), given.cropped, "cropped");
  await same(await fromImage(picture, { ...plain, channels: "grey" }), given.grey, "grey");
});

test("what is transparent shows the background", async () => {
  const alpha = bytes(given.alpha);
  const data = new Uint8ClampedArray(4 * width * height);
  for (let i = 0; i < width * height; i += 1) data.set([...picture.data.subarray(3 * i, 3 * i + 3), alpha[i]], 4 * i);
  const clear = { data, width, height };
  const over = await (await fromImage(clear, { ...plain, background: [10, 200, 30] })).data("u8");
  // Pillow's fixed point is off by one here and there
  bytes(given.over).forEach((want, at) => assert.ok(Math.abs(over[at] - want) <= 1, `${at}: ${over[at]}, ${want}`));
  const kept = await fromImage(clear, { ...plain, channels: "rgba" });
  assert.deepEqual([...(await kept.data("u8"))], [...data]);
});

test("the usual steps for ImageNet", async () => {
  const how = { size: 16, shortSide: 20, fit: "cover", mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
  const values = await (await fromImage(picture, how)).data();
  given.imagenet.forEach((want, at) => assert.ok(Math.abs(values[at] - want) < 2e-6, `${at}: ${values[at]}, ${want}`));
});

test("dtypes, orders and layouts", async () => {
  const dot = { data: Uint8Array.of(10, 20, 30, 40, 50, 60), width: 2, height: 1 };
  const read = async (options) => {
    const t = await fromImage(dot, options);
    return [t.dtype, t.shape, [...(await t.data())].map(Number)];
  };
  assert.deepEqual(await read({ dtype: "u8" }), ["u8", [1, 3, 1, 2], [10, 40, 20, 50, 30, 60]]);
  assert.deepEqual(await read({ dtype: "u8", layout: "nhwc", channels: "bgr" }), ["u8", [1, 1, 2, 3], [30, 20, 10, 60, 50, 40]]);
  assert.deepEqual(await read({ dtype: "f16", layout: "chw", scale: 1 }), ["f16", [3, 1, 2], [10, 40, 20, 50, 30, 60]]);
  assert.deepEqual(await read({ scale: 1, mean: 10, std: [1, 2, 4] }), ["f32", [1, 3, 1, 2], [0, 30, 5, 20, 5, 12.5]]);
  assert.deepEqual(await read({ dtype: "i32", layout: "hwc" }), ["i32", [1, 2, 3], [10, 20, 30, 40, 50, 60]]);
  const grey = await fromImage({ data: Uint8Array.of(7, 9), width: 1, height: 2 }, { dtype: "u8" });
  assert.deepEqual([...(await grey.data("u8"))], [7, 9, 7, 9, 7, 9]);
});

test("the whole picture in a square, and boxes back from it", async () => {
  const { tensor, placement } = await letterbox(picture, { ...plain, size: 64 });
  assert.deepEqual(tensor.shape, [64, 64, 3]);
  const values = await tensor.data("u8");
  // 37 x 23 becomes 64 x 40, with 12 rows of grey above and below
  assert.deepEqual([...values.subarray(0, 3)], [114, 114, 114]);
  assert.ok(values.subarray(12 * 64 * 3, 52 * 64 * 3).some((v) => v !== 114));
  assert.ok(values.subarray(52 * 64 * 3).every((v) => v === 114));
  const [[left, top, right, bottom]] = scaleBoxes([[0, 12, 64, 52]], placement);
  for (const [got, want] of [[left, 0], [top, 0], [right, 37], [bottom, 23]]) assert.ok(Math.abs(got - want) < 1e-9, `${got}, ${want}`);
  // what is beyond the picture is cut
  assert.deepEqual(scaleBoxes([[-9, 0, 999, 64]], placement), [[0, 0, 37, 23]]);
  const cut = await fitImage(picture, { size: 10, fit: "cover" });
  const [back] = scaleBoxes([[0, 0, 10, 10]], cut.placement);
  assert.ok(back[0] > 0 && back[1] === 0 && Math.abs(back[2] - back[0] - (back[3] - back[1])) < 0.5, `${back}`);
});

test("pictures that are wrong are errors that say how", async () => {
  const rejects = (source, options, code, message) => assert.rejects(fromImage(source, options), { code, message });
  await rejects({ data: new Uint8Array(5), width: 1, height: 1 }, {}, "E_VALUE", /5 bytes/);
  await rejects(7, {}, "E_VALUE", /a picture comes from/);
  await rejects(picture, { size: 0 }, "E_VALUE", /0 pixels high/);
  await rejects(picture, { size: [3, 1e9] }, "E_VALUE", /1000000000/);
  await rejects(picture, { channels: "cmyk" }, "E_VALUE", /cmyk/);
  await rejects(picture, { layout: "chwn" }, "E_VALUE", /chwn/);
  await rejects(picture, { fit: "squeeze" }, "E_VALUE", /squeeze/);
  await rejects(picture, { resample: "magic", size: 4 }, "E_VALUE", /magic/);
  await rejects(picture, { dtype: "u8", mean: 1 }, "E_VALUE", /not u8/);
  await rejects(picture, { mean: [1, 2] }, "E_VALUE", /2 numbers for 3 channels/);
  await rejects(picture, { crop: { x: 30, y: 0, width: 20, height: 5 } }, "E_VALUE", /not inside/);
  await assert.rejects(fromImage(picture, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const file = new Blob([readFileSync(new URL("../fixtures/images/bird/rgb.png", import.meta.url))]);
  await rejects(file, {}, "E_UNSUPPORTED", /createImageBitmap is missing/);
  const error = await fromImage(file).catch((e) => e);
  assert.match(error.hint, /sharp/);
});

test("a tensor becomes a picture again", async () => {
  const options = { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], channels: "bgr" };
  const bgr = await toImageData(await fromImage(picture, { channels: "bgr" }), { channels: "bgr" });
  const back = await toImageData(await fromImage(picture), {});
  for (const { data, ...size } of [back, bgr]) {
    assert.deepEqual(size, { width, height });
    for (let i = 0; i < width * height; i += 1) assert.deepEqual([...data.subarray(4 * i, 4 * i + 4)], [...picture.data.subarray(3 * i, 3 * i + 3), 255]);
  }
  const { channels, ...norm } = options;
  const undone = await toImageData(await fromImage(picture, norm), norm);
  assert.ok(undone.data.every((v, i) => Math.abs(v - back.data[i]) <= 1));
  const data = async (t, how) => [...(await toImageData(t, how)).data];
  assert.deepEqual(await data(new Tensor([[0, 0.5], [1, 2]])), [0, 0, 0, 255, 128, 128, 128, 255, 255, 255, 255, 255, 255, 255, 255, 255]);
  assert.deepEqual(await data(new Tensor(Uint8Array.of(1, 2, 3, 4, 5, 6), [2, 1, 3])), [1, 2, 3, 255, 4, 5, 6, 255]);
  assert.deepEqual(await data(new Tensor(Uint8Array.of(1, 2, 3, 4), [4, 1, 1])), [1, 2, 3, 4]);
  assert.deepEqual(await data(new Tensor(Uint8Array.of(1, 2, 3), [3, 1, 1]), { layout: "hwc" }), [1, 1, 1, 255, 2, 2, 2, 255, 3, 3, 3, 255]);
  await assert.rejects(toImageData(Tensor.zeros([2, 5, 5])), { code: "E_VALUE", message: /\[2, 5, 5\]/ });
  await assert.rejects(toImageData(Tensor.zeros([2, 3, 5, 5])), { code: "E_VALUE" });
  await assert.rejects(toBlob(Tensor.zeros([3, 5, 5])), { code: "E_UNSUPPORTED", message: /no canvas/ });
  await assert.rejects(toCanvas(Tensor.zeros([3, 5, 5])), { code: "E_UNSUPPORTED" });
});

test("scores and boxes", () => {
  const p = softmax([1, 2, 3, Number.NEGATIVE_INFINITY]);
  [0.09003057, 0.24472847, 0.66524096, 0].forEach((want, at) => assert.ok(Math.abs(p[at] - want) < 1e-7));
  assert.deepEqual([...softmax([5000, 0])], [1, 0]);
  assert.deepEqual(topK([0.1, 0.7, Number.NaN, 0.7], 2, ["a", "b", "c", "d"]), [{ index: 1, score: 0.7, label: "b" }, { index: 3, score: 0.7, label: "d" }]);
  assert.equal(topK(Float32Array.of(3, 4), 5)[0].label, undefined);
  assert.throws(() => topK([1], 1, ["a", "b"]), { code: "E_VALUE" });

  assert.deepEqual(toBoxes([10, 10, 4, 2, 1, 2, 3, 4], "cxcywh"), [[8, 9, 12, 11], [-0.5, 0, 2.5, 4]]);
  assert.deepEqual(toBoxes(Float32Array.of(1, 2, 3, 4, 0.5), "xywh", 5), [[1, 2, 4, 6]]);
  assert.throws(() => toBoxes([1, 2, 3]), { code: "E_VALUE" });
  assert.equal(overlap([0, 0, 2, 2], [1, 1, 3, 3]), 1 / 7);
  assert.equal(overlap([0, 0, 1, 1], [1, 0, 2, 1]), 0);
  const boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 9, 10]];
  assert.deepEqual(nms(boxes, [0.5, 0.9, 0.3, 0.8]), [1, 2]);
  assert.deepEqual(nms(boxes, [0.5, 0.9, 0.3, 0.8], { score: 0.4 }), [1]);
  assert.deepEqual(nms(boxes, [0.5, 0.9, 0.3, 0.8], { classes: [0, 1, 0, 0] }), [1, 3, 2]);
  assert.deepEqual(nms(boxes, [0.5, 0.9, 0.3, 0.8], { iou: 0.95, max: 3 }), [1, 3, 0]);
  assert.throws(() => nms(boxes, [1]), { code: "E_VALUE" });
});
