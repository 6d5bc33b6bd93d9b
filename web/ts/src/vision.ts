// Images, boxes and class scores. The entry `gradloom/vision`.
import "./page-chunks.js";
export type { Box, BoxForm, NmsOptions, Placement } from "./vision/boxes.js";
export { nms, overlap, scaleBoxes, toBoxes } from "./vision/boxes.js";
export type { ColourOptions, ImageOptions, PerChannel, PictureOptions } from "./vision/image.js";
export { fitImage, fromImage, letterbox, toBlob, toCanvas, toImageData } from "./vision/image.js";
export type { ImageInput } from "./model.js";
export { type ImageInputOptions, imageInput } from "./vision/input.js";
export type { ImageSource, Pixels } from "./vision/pixels.js";
export type { Resample } from "./vision/resize.js";
export { type Ranked, softmax, topK } from "./vision/scores.js";
