// The implementations of tasks for the calling thread; each is given a model that was opened in this thread.
export { detectFaces } from "./faces.js";
export { fileType } from "./files.js";
export { notes } from "./notes.js";
export { classify, removeBackground, stylize, upscale } from "./pictures.js";
export { readText } from "./read-text.js";
export { disposeKept, retryOnDeviceLoss, openLocal } from "./recipe.js";
export { segment } from "./segments.js";
export { classifySound } from "./sound-classes.js";
export { transcribe, vad } from "./sounds.js";
export { detectText } from "./text-boxes.js";
export { embed } from "./texts.js";
export { detect } from "./objects.js";
export { readAfterLoss } from "../vision/pixels.js";
