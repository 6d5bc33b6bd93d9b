// Cases of the ONNX backend suite on the WASM device in node. usage: node tests/lib/onnx_suite.mjs CASES.zip [FILTER]
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { OnnxSuite } from "./conformance.mjs";

/** Runs the cases of a zip file: `{ name, what, why }` each, where what is pass, WRONG or refused. */
export async function runSuite(bytes, filter = "", report = () => {}) {
  const suite = new OnnxSuite(bytes);
  const results = [];
  for (const [i, name] of suite.names().entries()) {
    if (!name.includes(filter)) continue;
    let result;
    try {
      const why = await suite.run(i);
      result = { name, what: why === undefined ? "pass" : "WRONG", why: why ?? "" };
    } catch (error) {
      const typed = /^E_(UNSUPPORTED|MODEL|INPUT|FORMAT)/.test(error.message ?? "");
      result = { name, what: typed ? "refused" : "BROKEN", why: String(error.message ?? error) };
    }
    results.push(result);
    report(result);
  }
  return results;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, filter] = process.argv.slice(2);
  const count = {};
  await runSuite(readFileSync(file), filter, ({ name, what, why }) => {
    console.log(what, name, why);
    const key = `${name.split("/")[0]}: ${what}`;
    count[key] = (count[key] ?? 0) + 1;
  });
  console.log(count);
  if (Object.keys(count).some((key) => /WRONG|BROKEN/.test(key))) process.exitCode = 1;
}
