// A drawing, 80 by 60, that an ESRGAN makes twice as large.
import { load } from "gradloom";
import { fromImage, toImageData } from "gradloom/vision";

const canvas = new OffscreenCanvas(80, 60);
const pen = canvas.getContext("2d");
pen.fillStyle = "#f4ead7";
pen.fillRect(0, 0, 80, 60);
pen.fillStyle = "#c23a14";
pen.beginPath();
pen.arc(40, 26, 15, 0, 7);
pen.fill();
pen.fillStyle = "#17171c";
pen.font = "bold 13px serif";
pen.fillText("woven", 21, 55);
await show(canvas, "before");

const model = await load("models/esrgan_slim_x2/model.onnx");
console.log(model.nodes, "nodes,", model.parameters, "weights");

const [input] = model.inputs, [output] = model.outputs;
const x = await fromImage(canvas.transferToImageBitmap(), { layout: "nhwc", scale: 1 });
const result = await model.run({ [input.name]: x });
await show(await toImageData(result[output.name], { layout: "hwc", scale: 1 }), "after");
model.dispose();
