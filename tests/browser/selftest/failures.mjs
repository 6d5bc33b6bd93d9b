// Tests that fail on purpose, one for each way a test can fail. After the colon: what the runner's row must say.
import { allowConsoleErrors, assert, assertClose, test } from "harness";

test("passes", async () => {
  await allowConsoleErrors(/expected noise/);
  console.error("expected noise");
  assert(true);
});
test("assertion: 2.5 where 2", () => assertClose([1, 2.5], [1, 2]));
test("empty: it asserted nothing", () => {});
test("console: console error: broken", () => console.error("broken"));
test("uncaught: uncaught: Error: later", async () => {
  setTimeout(() => {
    throw new Error("later");
  });
  await new Promise((done) => setTimeout(done, 50));
});
test("late: no end after 50 ms", () => new Promise(() => {}), { timeoutMs: 50 });
test("missing file: 404", () => fetch("/nothing-here").then((response) => Promise.reject(new Error(`${response.status}`))));
