// What a browser suite imports: `test`, assertions, and readers for the models' files. Runs inside the page; results go to
// the runner (tests/browser/run.mjs) through the function `__report` that it exposes.
import { readNpz } from "npz";

const tests = [];
/** Assertions that the running test has made. */
let checks = 0;

/** Names a test. `body` gets nothing and throws to fail. */
export function test(name, body, { timeoutMs = 300_000 } = {}) {
  tests.push({ name, body, timeoutMs });
}

/** The parameters of this run: `config`, and whatever the runner was given with --set. */
export const params = new URL(location.href).searchParams;

/** Whether the browser was started with WebGPU. */
export const hasWebGpu = params.get("webgpu") === "true";

/** The devices that there are. */
export const deviceKinds = hasWebGpu ? ["wasm", "webgpu"] : ["wasm"];

/** As `test`, for what only WebGPU has. */
export const testOnWebGpu = hasWebGpu ? test : () => {};

/** Lets console errors that match pass in the running test. */
export function allowConsoleErrors(pattern) {
  return globalThis.__report({ kind: "allow", pattern: pattern.source });
}

/** A line in the runner's output: a measurement, a device name. */
export function note(text) {
  return globalThis.__report({ kind: "note", text: String(text) });
}

export class AssertionError extends Error {}

export function assert(condition, message = "expected a true value") {
  checks += 1;
  if (!condition) throw new AssertionError(message);
}

export function assertEqual(actual, expected, message = "") {
  checks += 1;
  const [a, b] = [actual, expected].map((value) => JSON.stringify(value, (_, v) => (typeof v === "bigint" ? `${v}n` : v)));
  if (a !== b) throw new AssertionError(`${message}\n  actual   ${a}\n  expected ${b}`.trim());
}

/** The code of the error that `body` throws; fails when it throws none. */
export async function errorOf(body) {
  checks += 1;
  try {
    await body();
  } catch (error) {
    return error;
  }
  throw new AssertionError("expected an error, but there was none");
}

/**
 * Every element within `tolerance` of max|expected| (integers: equal); NaN only where NaN is expected. Returns the largest
 * difference over max|expected|.
 */
export function assertClose(actual, expected, { tolerance = 1e-3, what = "values" } = {}) {
  assertEqual(actual.length, expected.length, `${what}: length`);
  let scale = 0;
  for (const value of expected) if (Number.isFinite(Number(value))) scale = Math.max(scale, Math.abs(Number(value)));
  const limit = typeof expected[0] === "bigint" ? 0 : tolerance * (scale || 1);
  let worst = 0;
  for (let at = 0; at < expected.length; at += 1) {
    const [a, b] = [Number(actual[at]), Number(expected[at])];
    if (Object.is(a, b) || a === b || (Number.isNaN(a) && Number.isNaN(b))) continue;
    const difference = Math.abs(a - b);
    if (!(difference <= limit)) {
      throw new AssertionError(`${what}[${at}]: ${a} where ${b} was expected (max|expected| ${scale}, allowed ${limit})`);
    }
    worst = Math.max(worst, difference);
  }
  return worst / (scale || 1);
}

/** The bytes of a file the runner serves. */
export async function fetchBytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** A test model: {model, input, expected}, the last two as name to {dtype, shape, data}. */
export async function loadCase(name) {
  const [model, input, expected] = await Promise.all(
    ["model.onnx", "input.npz", "expected.npz"].map((file) => fetchBytes(`/models/${name}/${file}`)),
  );
  return { model, input: await readNpz(input), expected: await readNpz(expected) };
}

async function runTest({ body, timeoutMs }) {
  let timer;
  // A panic inside a future leaves its promise open for ever: an uncaught error ends the test, not the clock.
  const uncaught = new AbortController();
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new AssertionError(`no end after ${timeoutMs} ms`)), timeoutMs);
    const end = () => fail(new AssertionError("ended by an uncaught error"));
    addEventListener("error", end, { signal: uncaught.signal });
    addEventListener("unhandledrejection", end, { signal: uncaught.signal });
  });
  try {
    checks = 0;
    await Promise.race([body(), late]);
    if (checks === 0) throw new AssertionError("it asserted nothing");
    return null;
  } catch (error) {
    const stack = error?.stack ?? "";
    const message = `${error?.code ? `${error.code}: ` : ""}${error?.message ?? error}`;
    return error instanceof AssertionError ? message : `${message}\n${stack}`;
  } finally {
    clearTimeout(timer);
    uncaught.abort();
  }
}

/** Imports the suite named in the page's address and runs its tests in order. The page calls it, not a suite. */
export async function runSuite(query) {
  const report = globalThis.__report;
  const grep = query.get("grep");
  try {
    await import(query.get("suite"));
  } catch (error) {
    await report({ kind: "fatal", error: `the suite could not be imported: ${error}\n${error?.stack ?? ""}` });
    return;
  }
  const chosen = tests.filter(({ name }) => !grep || name.includes(grep));
  await report({ kind: "plan", count: chosen.length });
  for (const each of chosen) {
    await report({ kind: "begin", name: each.name, timeoutMs: each.timeoutMs });
    const start = performance.now();
    const error = await runTest(each);
    await report({ kind: "end", name: each.name, error, ms: performance.now() - start });
  }
  await report({ kind: "done" });
}
