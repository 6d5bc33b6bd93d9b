// Five jobs of somebody who has read the README alone: each in at most six lines and two minutes, in a plain page and in one that Vite
// built, from the packed tarball, with nothing cached. `npm run test:newcomer`.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { fetchData } from "../../../scripts/fetch-models.mjs";
import { launch } from "../../../scripts/lib/chromium.mjs";
import { recipeFiles } from "../../../scripts/lib/recipes.mjs";
import { Failure, main, output, root } from "../../../scripts/lib/run.mjs";
import { readNpz } from "../../lib/npz.mjs";
import { project, resultOf } from "../common.mjs";

const LINES = 6;
const MINUTES = 2;

/** The models that a job needs, and whether its result is right. */
const JOBS = {
  image: { models: ["esrgan_slim_x2"], isCorrect: ({ shape, mean }, light) => shape.join() === "1,384,1280,3" && Math.abs(mean - light) < 0.01 },
  train: { models: [], isCorrect: ({ loss, bytes }) => loss < 0.02 && bytes > 4 * 65 },
  read: { models: ["ppocrv4_det", "ppocr_cls", "ppocrv4_rec"], isCorrect: (text) => text === "Hello tiny compiler 2026\nWebGPUandWASMSIMD" },
  transcribe: { models: ["whisper_tiny_en"], isCorrect: (text) => text.trim() === "He was not an old-sposed young man." },
  search: { models: ["minilm_l6_v2"], isCorrect: (text) => text === "the kitten sleeps on the couch" },
};

/** The picture of two lines of text that the detector's test has, as a file, and its mean from 0 to 1. */
async function photo() {
  const [{ data, shape }] = Object.values(await readNpz(readFileSync(join(root, "tests/models/ppocrv4_det/input.npz"))));
  const [height, width] = shape.slice(2);
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) rows[y * (width + 1) + 1 + x] = Math.round((data[y * width + x] * 0.5 + 0.5) * 255);
  }
  const chunk = (name, body) => {
    const whole = Buffer.concat([Buffer.alloc(4), Buffer.from(name), body, Buffer.alloc(4)]);
    whole.writeUInt32BE(body.length, 0);
    whole.writeUInt32BE(crc32(whole.subarray(4, -4)), whole.length - 4);
    return whole;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head[8] = 8; // bits of a grey pixel
  const signature = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");
  const file = Buffer.concat([signature, chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
  return { file, light: rows.reduce((sum, v) => sum + v, 0) / (255 * width * height) };
}

/** The lines that do something. */
const linesOf = (file) => readFileSync(file, "utf8").split("\n").filter((line) => line.trim() !== "" && !/^(\/\/|import )/.test(line)).length;

main(async () => {
  await fetchData({ only: ["minilm", "whisper", "ppocr"] });
  const parent = mkdtempSync(join(tmpdir(), "gradloom-newcomer-"));
  const browser = await launch();
  try {
    const { file: picture, light } = await photo();
    for (const [job, { models, isCorrect }] of Object.entries(JOBS)) {
      const page = project("newcomer", parent, job);
      const lines = linesOf(join(page, `jobs/${job}.js`));
      if (lines > LINES) throw new Failure(`newcomer: ${job} takes ${lines} lines`);
      const index = join(page, "index.html");
      writeFileSync(index, readFileSync(index, "utf8").replace("JOB", job));
      const speech = readFileSync(join(root, "tests/models/whisper_tiny_en/speech.wav"));
      const files = Object.assign({ "photo.png": picture, "speech.wav": speech }, ...models.map((name) => recipeFiles(name)));
      for (const [path, bytes] of Object.entries(files)) {
        // Vite serves what is in `public` from its root
        for (const folder of [page, join(page, "public")]) {
          mkdirSync(dirname(join(folder, path)), { recursive: true });
          writeFileSync(join(folder, path), bytes);
        }
      }
      const times = {};
      for (const [name, folder] of [["page", page], ["vite", vite(page)]]) {
        const start = performance.now();
        const result = await resultOf(browser, { "/": folder });
        const seconds = (performance.now() - start) / 1000;
        if (!isCorrect(result, light)) throw new Failure(`newcomer: ${job} in ${name} gives ${JSON.stringify(result)}`);
        if (seconds > 60 * MINUTES) throw new Failure(`newcomer: ${job} in ${name} took ${seconds.toFixed(0)} s`);
        times[name] = `${seconds.toFixed(1)} s`;
      }
      console.log(`newcomer: ${job}: ${lines} lines, ${JSON.stringify(times)}`);
      rmSync(page, { recursive: true, force: true });
    }
  } finally {
    await browser.close();
    rmSync(parent, { recursive: true, force: true });
  }
});

/** The same page, built by Vite, which finds the package without a map of imports. */
function vite(page) {
  const index = join(page, "index.html");
  const html = readFileSync(index, "utf8");
  const app = join(page, "app");
  for (const name of ["jobs", "node_modules", "public", "package.json"]) cpSync(join(page, name), join(app, name), { recursive: true });
  writeFileSync(join(app, "index.html"), html.replace(/<script type="importmap">.*?<\/script>/s, ""));
  output(join(root, "node_modules/.bin/vite"), ["build", "--logLevel", "warn", "--target", "es2022"], { cwd: app });
  return join(app, "dist");
}
