// Run an ONNX model on a picture.
import { load } from "gradloom";
import { fromImage } from "gradloom/vision";

const model = await load("models/esrgan_slim_x2/model.onnx");
const { HR: larger } = await model.run({ LR: await fromImage("photo.png", { layout: "nhwc", scale: 1 / 255 }) });
globalThis.result = { shape: larger.shape, mean: await larger.mean().item() };
