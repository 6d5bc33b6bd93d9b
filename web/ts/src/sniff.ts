// Recognises the actual format of a file that a reader rejected: error pages, Git LFS pointers, archives, other
// formats. Loaded only after a reader has failed, so that its error can name the cause.
import { FormatError, GradloomError } from "./errors.js";

/** The kind of file that a reader expects. */
export type Expected = "model" | "weights" | "tokenizer" | "template" | "array" | "index" | "images" | "recipe" | "llm" | "config";

/** The recognised format of a file. */
export interface FileFormat {
  id: string;
  /** A description with its article: `a web page`. */
  what: string;
  hint?: string;
}

const EXPECTED_FORMATS: Record<Expected, { what: string; accepts: readonly string[] }> = {
  model: { what: "an ONNX or TensorFlow Lite model", accepts: ["onnx", "tflite"] },
  weights: { what: "a file of weights (safetensors, GGUF, npz or torch.save)", accepts: ["safetensors", "gguf", "npz", "torch", "pickle", "zip"] },
  tokenizer: { what: "a tokenizer.json or GGUF file", accepts: ["json", "gguf"] },
  template: { what: "a tokenizer_config.json or GGUF file", accepts: ["json", "gguf"] },
  array: { what: "an npy file", accepts: ["npy"] },
  index: { what: "an index of files of weights", accepts: ["json"] },
  llm: { what: "a language model's GGUF file", accepts: ["gguf"] },
  config: { what: "a language model's config.json", accepts: ["json"] },
  recipe: { what: "a recipe", accepts: ["json"] },
  images: { what: "a data set", accepts: ["gzip", "zip", "npz"] },
};

const USE_WEIGHTS = "loadWeights reads it; `load` takes a model's graph, an ONNX or TensorFlow Lite file";
const UNPACK = "unpack it first";

/** Signatures: bytes that identify a format. Default offset `at`: 0. */
const MAGIC: readonly { id: string; what: string; magic: readonly number[] | string; at?: number; hint?: string }[] = [
  { id: "gguf", what: "a GGUF file", magic: "GGUF", hint: "loadWeights reads its tensors, Tokenizer.load its vocabulary" },
  { id: "tflite", what: "a TensorFlow Lite model", magic: "TFL3", at: 4, hint: "`load` reads it" },
  { id: "ort", what: "a model in onnxruntime's own format (.ort)", magic: "ORTM", at: 4, hint: "take the ONNX file that it was made of" },
  { id: "npy", what: "an npy file", magic: "\x93NUMPY", hint: "Tensor.fromUrl reads it" },
  { id: "gzip", what: "gzipped", magic: [0x1f, 0x8b], hint: "unpack it, or serve it with `Content-Encoding: gzip`" },
  { id: "zstd", what: "compressed with zstd", magic: [0x28, 0xb5, 0x2f, 0xfd], hint: UNPACK },
  { id: "xz", what: "compressed with xz", magic: "\xfd7zXZ", hint: UNPACK },
  { id: "bzip2", what: "compressed with bzip2", magic: "BZh", hint: UNPACK },
  { id: "7z", what: "a 7z archive", magic: "7z\xbc\xaf", hint: UNPACK },
  { id: "rar", what: "a rar archive", magic: "Rar!", hint: UNPACK },
  { id: "tar", what: "a tar archive", magic: "ustar", at: 257, hint: UNPACK },
  { id: "ggml", what: "a file of weights in a format before GGUF", magic: "lmgg", hint: "convert it to GGUF" },
  { id: "ggml", what: "a file of weights in a format before GGUF", magic: "tjgg", hint: "convert it to GGUF" },
  { id: "hdf5", what: "an HDF5 file (Keras)", magic: "\x89HDF", hint: "export the model as ONNX" },
  { id: "pdf", what: "a PDF document", magic: "%PDF" },
  { id: "png", what: "a PNG picture", magic: "\x89PNG" },
  { id: "jpeg", what: "a JPEG picture", magic: [0xff, 0xd8, 0xff] },
  { id: "gif", what: "a GIF picture", magic: "GIF8" },
  { id: "webp", what: "a WebP picture", magic: "WEBP", at: 8 },
  { id: "wave", what: "a WAV sound", magic: "WAVE", at: 8 },
  { id: "ogg", what: "an Ogg sound", magic: "OggS" },
  { id: "flac", what: "a FLAC sound", magic: "fLaC" },
  { id: "mp3", what: "an MP3 sound", magic: "ID3" },
  { id: "mp4", what: "an MP4 film or sound", magic: "ftyp", at: 4 },
  { id: "wasm", what: "a WebAssembly module", magic: "\0asm" },
  { id: "elf", what: "a program", magic: "\x7fELF" },
];

const latin1 = (bytes: Uint8Array): string => {
  let text = "";
  for (const b of bytes) text += String.fromCharCode(b);
  return text;
};

/** A short quotation of a file's text, without line breaks. */
const quote = (text: string): string => JSON.stringify(text.replace(/\s+/g, " ").trim().slice(0, 100));

/** Recognises a file by its first bytes (a few thousand suffice) and its size; undefined if they are inconclusive. */
export function detectFormat(head: Uint8Array, size = head.length): FileFormat | undefined {
  if (size === 0) return { id: "empty", what: "empty", hint: "was the download cut off, or the wrong file uploaded?" };
  const start = head.subarray(0, 4096);
  const raw = latin1(start);
  for (const { id, what, magic, at = 0, hint } of MAGIC) {
    const wanted = typeof magic === "string" ? magic : String.fromCharCode(...magic);
    if (raw.startsWith(wanted, at)) return { id, what, ...(hint && { hint }) };
  }
  if (raw.startsWith("PK\x03\x04")) return zipFormat(raw);
  // test this before text, since a safetensors header length may begin with the code of a letter
  if (start[6] === 0 && start[7] === 0 && start[8] === 0x7b) return { id: "safetensors", what: "a safetensors file", hint: USE_WEIGHTS };
  if (start[0] === 0x80 && (start[1] as number) <= 5) return { id: "pickle", what: "a pickle, as older versions of torch.save write", hint: USE_WEIGHTS };
  const text = asText(start);
  if (text !== undefined) return textFormat(text, size);
  // an ONNX ModelProto begins with `ir_version`, a small number, followed by another of its fields
  if (start[0] === 8 && (start[1] as number) < 32 && /[\x12\x1a\x22\x28\x32\x3a\x42]/.test(raw[2] ?? "")) {
    return { id: "onnx", what: "an ONNX model", hint: "`load` reads it" };
  }
  return undefined;
}

/** Decodes bytes as text; undefined if they are not text. The last character may be cut. */
function asText(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: true });
    return /[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text) ? undefined : text;
  } catch {
    return undefined;
  }
}

function textFormat(text: string, size: number): FileFormat {
  const trimmed = text.trimStart();
  if (trimmed.startsWith("version https://git-lfs")) {
    const bytes = /^size (\d+)$/m.exec(text)?.[1];
    const what = `a Git LFS pointer${bytes ? ` to a file of ${bytes} bytes` : ""}`;
    const hint = "fetch the file itself: `git lfs pull`, or on Hugging Face the address with /resolve/ in place of /raw/ or /blob/";
    return { id: "lfs", what, hint };
  }
  if (/^<(!doctype html|html|head|body)\b/i.test(trimmed.replace(/^(<!--[^]*?-->\s*)+/, ""))) {
    const title = /<title[^>]*>([^<]+)/i.exec(text)?.[1];
    const hint = "the server sent a page in place of the file: is the address right, and does it need a login?";
    return { id: "html", what: `a web page${title ? ` with the title ${quote(title)}` : ""}`, hint };
  }
  if (/^<(\?xml|svg|[A-Za-z]\w*>)/.test(trimmed)) {
    const errorText = /<(?:Code|Message|message|error)>([^<]+)/.exec(text)?.[1];
    const hint = "perhaps the server's error in place of the file: is the address right?";
    return { id: "xml", what: `an XML document${errorText ? ` that says ${quote(errorText)}` : ""}`, hint };
  }
  if (/^[{[]/.test(trimmed)) {
    const errorText = /"(?:error|message|detail|title)"\s*:\s*(?:\{\s*"message"\s*:\s*)?"([^"]+)"/.exec(text)?.[1];
    // a tokenizer file that contains such a key is longer than a server's error response
    const hint = "is the address right, and does it need a login?";
    if (errorText && size < 4096) return { id: "answer", what: `the server's answer ${quote(errorText)}`, hint };
    return { id: "json", what: "JSON text" };
  }
  return { id: "text", what: `text that begins ${quote(trimmed.slice(0, 60))}` };
}

function zipFormat(raw: string): FileFormat {
  const byte = (at: number): number => raw.charCodeAt(at) || 0;
  const name = raw.substr(30, byte(26) + 256 * byte(27));
  if (name.endsWith(".npy")) return { id: "npz", what: "an npz file", hint: USE_WEIGHTS };
  if (/(^|\/)(data\.pkl|\.data\/serialization_id|\.format_version|byteorder|version)$/.test(name)) {
    return { id: "torch", what: "a file that torch.save wrote", hint: USE_WEIGHTS };
  }
  return { id: "zip", what: `a zip archive${name ? ` that begins with ${quote(name)}` : ""}`, hint: UNPACK };
}

/** The reader's error, or a better one that names the file's actual format. */
export function explainError(error: unknown, expected: Expected, from: unknown, head: Uint8Array, size = head.length): unknown {
  if (!(error instanceof GradloomError) || !["E_FORMAT", "E_MODEL", "E_UNSUPPORTED", "E_VALUE"].includes(error.code)) return error;
  const format = detectFormat(head, size);
  const { what, accepts } = EXPECTED_FORMATS[expected];
  if (!format || accepts.includes(format.id)) return error;
  const name = typeof from === "string" || from instanceof URL ? truncateAddress(String(from)) : "the file";
  return new FormatError("E_FORMAT", `${name} is ${format.what}, not ${what}`, { cause: error, ...(format.hint && { hint: format.hint }) });
}

/** An address, truncated to 200 characters. */
function truncateAddress(address: string): string {
  return address.length <= 200 ? address : `${address.slice(0, 200)}..`;
}
