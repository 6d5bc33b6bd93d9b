// The packed tarball in three kinds of project, each in a temporary folder far from the repository so that nothing of the
// workspace is found by accident: a Node program, a plain page, a Vite application with strict types. Others are in bundlers.mjs.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { main, output, root } from "../../scripts/lib/run.mjs";
import { areExpectedTokens, areWrittenTokens, expect, isExpectedVoice, isSpeechOutput, project, resultOf } from "./common.mjs";

const bin = (name) => join(root, "node_modules/.bin", name);

main(async () => {
  const parent = mkdtempSync(join(tmpdir(), "gradloom-consumers-"));
  const browser = await launch();
  try {
    const version = JSON.parse(output("npm", ["pkg", "get", "version", "--workspace", "gradloom", "--loglevel=error"])).gradloom;

    const node = JSON.parse(output("node", ["main.mjs"], { cwd: project("node", parent) }));
    expect("node", node, {
      "the version": node.version === version,
      "wasm in Node": node.device === "wasm",
      "the model's output": isSpeechOutput(node.speech),
      "tokens, by a module of their own": areExpectedTokens(node.tokens),
      "weights of torch.save": node.weights.join() === "0,6,12",
      "tensor sums": node.sum === 12,
      "a task": isExpectedVoice(node.segments),
      "a language model": areWrittenTokens(node.written),
      progress: node.phases.join() === "device,download,parse",
    });

    const page = await resultOf(browser, { "/": project("page", parent) });
    expect("page", page, {
      "the version": page.version === version,
      WebGPU: page.webgpu,
      "the model's output": isSpeechOutput(page.speech),
      "tokens, by a module of their own": areExpectedTokens(page.tokens),
      "weights of torch.save": page.weights.join() === "0,6,12",
      "tensor sums": page.sum === 12,
    });

    const app = project("vite", parent);
    output(bin("tsc"), ["-p", app]);
    output(bin("vite"), ["build", "--logLevel", "warn"], { cwd: app });
    const vite = await resultOf(browser, { "/": join(app, "dist") });
    expect("vite", vite, {
      "the version": vite.version === version,
      WebGPU: vite.webgpu,
      "the model's output": isSpeechOutput(vite.speech),
      "tokens, by a module of their own": areExpectedTokens(vite.tokens),
      "weights of torch.save": vite.weights.join() === "0,6,12",
      "a worker that starts before the module is there": vite.order.join() === "worker,module",
      "a task": isExpectedVoice(vite.segments),
      "a language model": areWrittenTokens(vite.written),
      training: vite.losses[1] < vite.losses[0] / 4,
    });
  } finally {
    await browser.close();
    rmSync(parent, { recursive: true, force: true });
  }
});
