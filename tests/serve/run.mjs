// `gradloom serve` with OpenAI's own clients, and a thousand requests that leave its memory as it is. `npm run test:serve`: the
// clients are installed into .cache on first use, each package checked against its hash.
import { spawn } from "node:child_process";
import { copyFileSync, cpSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { python } from "../../scripts/lib/python.mjs";
import { Failure, main, root, run } from "../../scripts/lib/run.mjs";

/** A folder with the npm client and our script beside it. */
function nodeClient() {
  const folder = join(root, ".cache/serve/node");
  mkdirSync(folder, { recursive: true });
  for (const file of ["package.json", "package-lock.json"]) copyFileSync(join(root, "tests/serve", file), join(folder, file));
  if (!existsSync(join(folder, "node_modules/openai"))) run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: folder });
  cpSync(join(root, "tests/serve/client.mjs"), join(folder, "client.mjs"));
  return join(folder, "client.mjs");
}

/** Bytes of memory that a process holds, where the system says so. */
function residentBytes(pid) {
  const file = `/proc/${pid}/status`;
  return existsSync(file) ? Number(/VmRSS:\s+(\d+)/.exec(readFileSync(file, "utf8"))[1]) * 1024 : 0;
}

/** So many completions, eight at once, some of whose clients leave. */
async function sendCompletions(address, count) {
  let next = 0;
  const one = async (i) => {
    const stop = new AbortController();
    const body = JSON.stringify({ model: "tiny", prompt: `number ${i}`, max_tokens: 8, seed: i, stream: i % 2 === 0 });
    const asked = fetch(`${address}/completions`, { method: "POST", headers: { "content-type": "application/json" }, body, signal: stop.signal });
    if (i % 10 === 9) return stop.abort(), await asked.catch(() => {});
    const answer = await asked;
    const text = await answer.text();
    if (answer.status !== 200 || !text.includes("finish_reason")) throw new Failure(`request ${i}: ${answer.status} ${text}`);
  };
  const worker = async () => {
    while (next < count) await one(next++);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}

main(async () => {
  const interpreter = python(join(root, ".cache/serve"), ["openai"]);
  const script = nodeClient();
  run("cargo", ["build", "-p", "gradloom"]);
  const program = join(root, "target/debug/gradloom");
  const args = ["serve", join(root, "tests/fixtures/llm/llama"), "--name", "tiny", "--port", "0", "--parallel", "8", "--device", "cpu", "--no-cache"];
  const server = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [line] = await Promise.race([
      new Promise((resolve) => createInterface(server.stdout).once("line", (l) => resolve([l]))),
      new Promise((_, reject) => server.once("exit", (code) => reject(new Failure(`serve ended with ${code}`)))),
    ]);
    const address = line.split(" at ")[1];
    run(interpreter, [join(root, "tests/serve/client.py"), address]);
    run("node", [script, address]);
    await sendCompletions(address, 200);
    const before = residentBytes(server.pid);
    await sendCompletions(address, 1000);
    const grown = residentBytes(server.pid) - before;
    console.log(`1000 requests: ${(before / 2 ** 20).toFixed(1)} MiB before, ${(grown / 2 ** 20).toFixed(2)} MiB more after`);
    if (grown > 4 * 2 ** 20) throw new Failure("memory grows with requests");
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGTERM");
    if ((await ended) !== 0) throw new Failure("it did not end well");
  } finally {
    server.kill("SIGKILL");
  }
});
