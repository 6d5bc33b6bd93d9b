// The models that are compared, with inputs of realistic sizes.

export interface Subject {
  slug: string;
  title: string;
  file: string;
  output: string;
  /** Why it is left out on a GPU that is emulated on the CPU: there onnxruntime-web's WebGPU is wrong or very slow. */
  leftOut?: "wrong" | "slow";
  inputs: Record<string, { type: "float32" | "int32" | "int64"; dims: number[]; from: number; to: number }>;
}

const floats = (dims: number[], from = 0, to = 1) => ({ type: "float32" as const, dims, from, to });

export const SUBJECTS: readonly Subject[] = [
  {
    slug: "vad", leftOut: "wrong", title: "Silero: 32 ms of speech", file: "models/silero_vad_op18_ifless/model.onnx", output: "output",
    inputs: { input: floats([1, 576], -0.1, 0.1), state: floats([2, 1, 128]), sr: { type: "int64", dims: [], from: 16000, to: 16000 } },
  },
  {
    slug: "magika", title: "Magika: the kind of a file", file: "models/magika/model.onnx", output: "target_label",
    inputs: { bytes: { type: "int32", dims: [1, 2048], from: 0, to: 255 } },
  },
  {
    slug: "notes", leftOut: "slow", title: "Basic Pitch: 2 s of music", file: "models/basic_pitch/model.onnx", output: "StatefulPartitionedCall:1",
    inputs: { "serving_default_input_2:0": floats([1, 43844, 1], -0.5, 0.5) },
  },
  {
    slug: "text", leftOut: "slow", title: "PP-OCR: text in 640 by 192 pixels", file: "models/ppocrv4_det/model.onnx", output: "sigmoid_0.tmp_0",
    inputs: { x: floats([1, 3, 192, 640], -1, 1) },
  },
  {
    slug: "style", leftOut: "slow", title: "Style transfer, 256 by 256", file: "models/style_multistyle26/model.onnx", output: "stylized",
    inputs: { image: floats([1, 3, 256, 256]), style_weights: floats([26], 0, 1 / 13) },
  },
  {
    slug: "upscale", leftOut: "slow", title: "ESRGAN: 64 by 64 pixels twice as large", file: "models/esrgan_slim_x2/model.onnx", output: "HR",
    inputs: { LR: floats([1, 64, 64, 3], 0, 1) },
  },
];

/** Pseudo-random inputs, the same each time. */
export function inputsOf({ inputs }: Subject): { name: string; type: string; dims: number[]; data: Float32Array | Int32Array | BigInt64Array }[] {
  let state = 1;
  const next = (): number => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  return Object.entries(inputs).map(([name, { type, dims, from, to }]) => {
    const values = Array.from({ length: dims.reduce((a, b) => a * b, 1) }, () => from + (to - from) * next());
    const data =
      type === "float32"
        ? Float32Array.from(values)
        : type === "int32" ? Int32Array.from(values) : BigInt64Array.from(values.map((v) => BigInt(Math.floor(v))));
    return { name, type, dims, data };
  });
}
