// The suites that others wrote, run through the test module: the same in node and in a page. Each calls `report` with
// { name, what, why } for every case, where what is pass, refused, WRONG or BROKEN, and starts with the `from`-th of them.

const REFUSAL_CODES = /^E_(UNSUPPORTED|MODEL|INPUT|FORMAT)/;

/** Cases of the ONNX backend suite whose names hold `filter`, each on a fresh device. */
export async function onnxCases(OnnxSuite, bytes, { webgpu = false, filter = "", from = 0 } = {}, report = () => {}) {
  const suite = new OnnxSuite(bytes);
  const chosen = [...suite.names().entries()].filter(([, name]) => name.includes(filter));
  for (const [i, name] of chosen.slice(from)) {
    let result;
    try {
      const why = await suite.run(i, webgpu);
      result = { name, what: why === undefined ? "pass" : "WRONG", why: why ?? "" };
    } catch (error) {
      const why = String(error?.message ?? error);
      result = { name, what: REFUSAL_CODES.test(why) ? "refused" : "BROKEN", why };
    }
    await report(result);
  }
}

/** Every `every`-th sample of torch's operator tests whose name holds `filter`; a device runs `round` of them. */
export async function torchSamples(TorchSuite, { webgpu = false, filter = "", every = 1, from = 0, round = 400 } = {}, report = () => {}) {
  let suite = await TorchSuite.on(webgpu);
  const chosen = [...suite.names().entries()].filter(([, name]) => name.includes(filter)).filter((_, i) => i % every === 0);
  for (const [at, [i, name]] of chosen.slice(from).entries()) {
    if (at % round === round - 1) {
      suite.free();
      suite = await TorchSuite.on(webgpu);
    }
    let result;
    try {
      const words = await suite.run(i);
      const [what] = words.split(" ", 1);
      result = { name, what, why: words.slice(what.length + 1) };
    } catch (error) {
      result = { name, what: "BROKEN", why: String(error?.message ?? error) };
    }
    await report(result);
  }
}

/**
 * Random programs of `count` seeds from `from` on, against the evaluator; a device runs `round` of them. What is wrong, as texts.
 * Fails where the device refuses more than half of them, because then little was tested.
 */
export async function programs(Programs, { webgpu = false, from = 0, count = 100, round = 100 } = {}) {
  const wrong = [];
  let compared = 0;
  let suite = await Programs.on(webgpu);
  for (let i = 0; i < count; i++) {
    if (i % round === round - 1) {
      compared += suite.compared;
      suite.free();
      suite = await Programs.on(webgpu);
    }
    const seed = from + i;
    let what;
    try {
      what = await suite.run(BigInt(seed));
    } catch (error) {
      // a trap: nothing of this module can be used any more
      throw new Error(`the program of seed ${seed}: ${error?.message ?? error}`);
    }
    if (what !== undefined) wrong.push(what);
  }
  compared += suite.compared;
  suite.free();
  if (compared < count / 2) throw new Error(`only ${compared} of ${count} programs were compared`);
  return wrong;
}

/**
 * ONNX models changed by their structure, of `count` seeds from `from` on, against the evaluator; a device runs `round` of them. The
 * suites are files of tests/fixtures/onnx as bytes. How many were run, the longest in milliseconds, and what is wrong as { seed, what,
 * file }.
 */
export async function changedModels(ChangedModels, suites, { webgpu = false, from = 0, count = 100, round = 200 } = {}) {
  const all = await ChangedModels.on(webgpu, suites);
  const [wrong, result] = [[], { run: 0, longest: 0, slowest: 0n }];
  for (let i = 0; i < count; i++) {
    if (i % round === round - 1) await all.renew();
    const seed = BigInt(from + i);
    let what;
    try {
      what = await all.run(seed);
    } catch (error) {
      // a trap: nothing of this module can be used any more
      throw new Error(`the changed model of seed ${seed}: ${error?.message ?? error}`);
    }
    // not the evaluator's time
    if (all.deviceMs > result.longest) [result.longest, result.slowest] = [all.deviceMs, seed];
    if (what === "run") result.run += 1;
    else if (what !== "refused") wrong.push({ seed, op: all.op(seed), what, file: all.file(seed) });
  }
  all.free();
  return { ...result, wrong };
}

/** Prints a line for each result and counts by kind; `end` prints the counts and tells whether all is well. */
export function printer(kindOf) {
  const count = {};
  return {
    report({ name, what, why }) {
      console.log(what, name, why.replaceAll("\n", " "));
      const key = `${kindOf(name)}: ${what}`;
      count[key] = (count[key] ?? 0) + 1;
    },
    end() {
      for (const [key, n] of Object.entries(count).sort()) console.log(`${key} ${n}`);
      return !Object.keys(count).some((key) => /WRONG|BROKEN/.test(key));
    },
  };
}

/** What a result counts under: an ONNX case's kind, a sample's element type. */
export const categoryOf = { onnx: (name) => name.split("/")[0], torch: (name) => name.split(" ")[2] };
