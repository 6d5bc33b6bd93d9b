// The site besides its demos: the first page, the look inside, the pages of `gradloom viz` and `gradloom serve`, the documentation, the code that pages show.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { root } from "../../scripts/lib/run.mjs";
import { pageBytes, sitePages } from "../../scripts/lib/site.mjs";
import { demos } from "../../www/demos/index.mjs";
import { checkAccessibility } from "./axe.mjs";
import { MINUTE, check, open } from "./visit.mjs";

/** The home page: code that is typed, its results, its kernels, its end. */
export async function home(browser, url) {
  const { page, status, after } = await open(browser, url, "?device=wasm");
  const typed = async (code, pattern) => {
    await page.fill("#code", code);
    return status(pattern, MINUTE);
  };
  await status(/^Ran in .* · WebAssembly, \d+ threads? · [1-9]\d* kernels/);
  check(/rows add up to \[1,1,1,1,1,1,1,1\]/.test(await page.textContent("#result")), "the rows of a softmax do not add up to one");
  await page.click("#tab-kernels");
  const kernels = page.locator("#kernels details");
  await kernels.last().locator("summary").click();
  await kernels.last().locator("pre").waitFor();
  check(/f32x4\.|local\.get/.test(await kernels.last().textContent()), "a kernel has no code");
  await page.keyboard.press("Escape");
  await page.focus("#tab-kernels");
  await page.keyboard.press("ArrowRight");
  // three draws lead to the scores, these to the softmax, and it to its sum and, with the third draw, to the product
  const flow = await page.getAttribute("#graph svg", "aria-label");
  check((await page.locator("#graph .launch").count()) === 10 && (await page.locator("#graph .flow").count()) >= 8, `the graph is ${flow}`);
  check(/(\w+) reads (\w+) and \w+/.test(flow), `no launch reads two others: ${flow}`);
  await page.keyboard.press("ArrowRight");
  check((await page.locator("#timeline rect").count()) > 0, "the timeline is empty");
  await page.click("#tab-result");
  await typed('import { Tensor } from "gradloom";\nconsole.log("sum", await Tensor.arange(0, 5).sum().item());', /^Ran/);
  await page.waitForFunction(() => document.querySelector("#result").textContent.includes("sum 10"));
  await typed('import { Tensor } from "gradloom";\nnew Tensor([1, 2]).add(new Tensor([1, 2, 3]));', /^ShapeError: add: shape \[2\] does not fit \[3\]/);
  await page.fill("#code", "while (true) {}");
  await status(/^Running/);
  await page.click("#stop");
  await status(/^Stopped\./);
  await after(() => page.selectOption("#snippet", "onnx"), /^Ran/, MINUTE);
  check(/25 nodes, 222079 weights/.test(await page.textContent("#result")), "the model is another one");
  const sizes = await page.evaluate(() => [...document.querySelectorAll("#result canvas")].map((each) => [each.width, each.height]));
  check(sizes.join(";") === "80,60;160,120", `the model made ${sizes.join(" of ")}`);
  await after(() => page.selectOption("#snippet", "spiral"), /^Ran/, 2 * MINUTE);
  const right = Number(/([\d.]+) % of the points/.exec(await page.textContent("#result"))?.[1]);
  check(right >= 98, `${right} % of the spirals' points are told apart`);
  // a peer beside it, when it is asked for
  await page.click("#measure");
  await page.waitForFunction(() => /^Measured|failed/.test(document.querySelector("#measure-said").textContent), null, { timeout: 4 * MINUTE });
  const times = await page.locator("#measured tbody tr").allTextContents();
  check(times.length === 5 && times.slice(1).every((each) => /ms$/.test(each)), `measured beside a peer: ${times.join("; ")}`);
  // what is in the editor can be looked at inside
  await page.fill("#code", 'import { Tensor } from "gradloom";\nconsole.log(await Tensor.arange(0, 7).sum().item());');
  // the click leads to another page: its status is looked for anew, since a page that is half loaded has none
  await page.click("#look");
  await page.waitForURL(/\/inside\//);
  await status(/^Ran: 1 kernel .* 21$/, MINUTE);
  await page.close();
  console.log(`demo: home: ${right} % of the spirals' points`);
}

/** Look inside: a product's passes, and the memory and launches of a model that is dropped. */
export async function inside(browser, url) {
  const { page, status, after } = await open(browser, url, "inside/?device=wasm");
  await status(/^Ran: 1 kernel · 1 launch in .* Tensor\(f32, \[96, 96\]\) 64$/);
  const words = async (selector) => page.textContent(selector);
  check(/Estimate[\d.]+ [µm]s, bound by \w+/.test(await words("#kernel dl")), "a kernel has no estimate");
  const names = await page.locator("#kernel .passes button").allTextContents();
  check(names[0] === "as scheduled" && names.includes("opts") && names.at(-1) === "code", `the passes are ${names}`);
  check((await page.locator("#kernel .graph").count()) === 2 && (await page.locator("#kernel .graph .new").count()) > 0, "a pass changes nothing");
  // a pass says which rules fired in it
  const fired = {};
  for (const button of await page.locator("#kernel .passes button").all()) {
    await button.click();
    fired[await button.textContent()] = await page.locator("#kernel .rules li code").allTextContents();
  }
  const rules = Object.values(fired).flat();
  check(rules.length > 2 && rules.every((rule) => /^[A-Z_]+\.\w+$/.test(rule)), `the rules that fired are shown as ${JSON.stringify(fired)}`);
  check(fired["as scheduled"].length === 0 && fired.code.length === 0, `the rules that fired are shown as ${JSON.stringify(fired)}`);
  await page.click("#kernel .passes li:last-child button");
  const code = await words("#kernel .source");
  check(/f32x4\./.test(code), `the kernel has no code: ${code.slice(0, 300)}`);
  const model = readFileSync(join(root, "tests/models/style_multistyle26/model.onnx"));
  const choose = (name, buffer) => page.setInputFiles("#file", { name, mimeType: "application/octet-stream", buffer });
  const text = await after(() => choose("style.onnx", model), /^Ran: .* stylized Tensor/, 2 * MINUTE);
  await page.click("#tab-memory");
  check((await page.locator("#memory rect").count()) > 100, "the memory is empty");
  await page.click("#tab-timeline");
  check((await page.locator("#timeline rect").count()) > 50, "the timeline is empty");
  // the passes of the scheduler, each with what it does, and beside the graph before it
  await page.click("#tab-graphs");
  check(/The model's graph.*From a graph to kernels/s.test(await words("#graphs")), "the graphs are not there");
  // and those over the model's graph, beside the graph as it was loaded
  const graph = page.locator("#graphs > div").first();
  const loaded = await graph.locator(".passes button").allTextContents();
  check(loaded[0] === "loaded" && loaded.length > 1, `the passes over the model are ${loaded}`);
  for (const name of loaded.slice(1).filter((each) => each !== "constants")) {
    await graph.getByRole("button", { name, exact: true }).click();
    check((await graph.locator(".graph").count()) === 2, `the pass ${name} is not shown beside what was before it`);
  }
  const schedule = page.locator("#graphs > div").last();
  const stages = await schedule.locator(".passes button").allTextContents();
  check(stages[0] === "unroll" && stages.includes("cuts") && stages.includes("lower"), `the passes of the schedule are ${stages}`);
  for (const name of stages.slice(1)) {
    await schedule.getByRole("button", { name, exact: true }).click();
    check((await schedule.locator(".soft").textContent()).length > 30, `nothing is said of the pass ${name}`);
    check((await schedule.locator(".graph").count()) === 2, `the pass ${name} is not shown beside what was before it`);
    check((await schedule.locator(".graph .new").count()) > 0, `the pass ${name} changes nothing`);
  }
  check(/kernel 0 writes/.test(await schedule.locator(".graph").last().textContent()), "the schedule ends without kernels");
  const language = readFileSync(join(root, "tests/models/verses/verses-q8_0.gguf"));
  const written = await after(() => choose("verses.gguf", language), /^Ran: \d+ kernels .* llama "And \S/, 2 * MINUTE);
  await page.close();
  console.log(`demo: inside: ${text}; ${written}`);
}

/** The page of `gradloom viz`: what a program of this machine ran, and what another one runs. */
export async function viz(browser) {
  const binary = join(root, "target/debug/gradloom");
  check(existsSync(binary), "there is no target/debug/gradloom: cargo build -p gradloom");
  const model = join(root, "tests/models/silero_vad_op18_ifless");
  const words = ["viz", "--address", "127.0.0.1:0", "run", join(model, "model.onnx"), "--inputs", join(model, "input.npz"), "--device", "cpu"];
  const program = spawn(binary, words, { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const lines = createInterface({ input: program.stdout });
    const [address] = await once(lines, "line");
    const { page, status } = await open(browser, address, "");
    const text = await status(/^Ended: \d+ kernels · \d+ launches in/, MINUTE);
    check(/run .*model\.onnx/.test(await page.textContent("#run")), "the page does not name the program");
    const names = await page.locator("#kernel .passes button").allTextContents();
    check(names.includes("opts") && names.at(-1) === "code", `the passes are ${names}`);
    check((await page.locator("#kernel .graph .new").count()) > 0, "a pass changes nothing");
    // the rules that fired are there for some pass
    let rules = 0;
    for (const button of await page.locator("#kernel .passes button").all()) {
      await button.click();
      rules += await page.locator("#kernel .rules li").count();
    }
    check(rules > 0, "no pass names a rule");
    check((await page.textContent("#kernel .source")).trim().length > 100, "the kernel has no code");
    await page.click("#tab-graphs");
    check(/pass/.test(await page.textContent("#graphs")), "nothing is said of the model's graph");
    await page.click("#tab-memory");
    check((await page.locator("#memory rect").count()) > 10, "the memory is empty");
    await page.click("#tab-timeline");
    check((await page.locator("#timeline rect").count()) > 10, "the timeline is empty");
    await checkAccessibility(browser, address, "");
    // a second program is shown while it runs: its launches become more
    const larger = join(root, "tests/models/style_multistyle26");
    const more = ["bench", join(larger, "model.onnx"), "--inputs", join(larger, "input.npz"), "--device", "cpu", "--runs", "100000"];
    const second = spawn(binary, more, { stdio: "ignore", env: { ...process.env, VIZ: new URL(address).host } });
    let live;
    try {
      live = await status(/^Runs: \d+ kernels · [1-9]/, MINUTE);
      await page.waitForFunction((before) => {
        const launches = (words) => Number(/([\d,]+) launch/.exec(words)[1].replaceAll(",", ""));
        return launches(document.querySelector("#status").textContent) > launches(before);
      }, live);
      check(/bench .*model\.onnx.* \(runs\)/.test(await page.textContent("#run")), "the page does not say which program runs");
      check((await page.locator("#timeline rect").count()) > 10, "the timeline is empty while the program runs");
    } finally {
      second.kill();
    }
    await status(/^Ended: \d+ kernels/, MINUTE);
    await page.close();
    console.log(`demo: viz: ${text} ${live}`);
  } finally {
    program.kill();
  }
}

/** Starts `gradloom serve`, and gives it with the address of its page. */
async function startServer(model) {
  const binary = join(root, "target/debug/gradloom");
  check(existsSync(binary), "there is no target/debug/gradloom: cargo build -p gradloom");
  const words = ["serve", join(root, "tests", model), "--port", "0", "--device", "cpu", "--context", "512"];
  const program = spawn(binary, words, { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(createInterface({ input: program.stdout }), "line");
  return { program, url: /http:\/\/[^/]+/.exec(line)[0] };
}

/** The page of `gradloom serve`: a chat that streams, stops and begins anew, and texts by their relevance. */
export async function served(browser) {
  const chat = await startServer("models/verses/verses-q8_0.gguf");
  try {
    const { page, status, after } = await open(browser, chat.url, "");
    const answers = () => page.locator("#talk .assistant").allTextContents();
    check((await page.textContent("#name")) === "verses-q8_0", "the page does not name the model");
    await page.locator(".settings summary").click();
    await page.fill("#tokens", "24");
    await page.fill("#temperature", "0");
    await page.fill("#words", "In the beginning God created the heaven and the earth.");
    await page.keyboard.press("Enter");
    await status(/^\d+ tokens(, [\d.]+ a second)?, the first after \d+ ms\. \d+ tokens of prompt/, MINUTE);
    const [text] = await answers();
    check(text.length > 10, `the answer is ${text}`);
    // the same question, without sampling
    const second = await after(() => page.click("#again"), /^\d+ tokens, .* [1-9]\d* of them known from before/, MINUTE);
    check((await answers()).join("|") === text, `the second answer is ${await answers()}`);
    // Stop ends a long text, which stays; the conversation goes on
    await page.fill("#tokens", "400");
    await page.fill("#words", "And the LORD said");
    await page.click("#send");
    await page.waitForFunction(() => document.querySelectorAll("#talk .assistant")[1]?.textContent.length > 10);
    await page.dispatchEvent("#stop", "click");
    await status(/^Stopped\.|^\d+ tokens/, MINUTE);
    check((await page.locator("#talk li").count()) === 4 && (await page.isEnabled("#again")), "the conversation does not go on");
    await page.click("#anew");
    check((await page.locator("#talk li").count()) === 0, "the conversation does not begin anew");
    check((await page.evaluate(() => document.documentElement.scrollWidth)) <= 1280, "the page scrolls sideways");
    await page.close();
    // what the server refuses is said in its words; the browser's console tells of it too
    const other = await browser.newPage();
    await other.goto(chat.url);
    await other.fill("#words", "and ".repeat(600));
    await other.click("#send");
    await other.locator("#status.failed", { hasText: /has \d+ tokens, there is room for 512/ }).waitFor();
    await other.close();
    await checkAccessibility(browser, chat.url, "");
    console.log(`demo: served: ${second}`);
  } finally {
    chat.program.kill();
  }
  // an embedder, by which a text is nearest to itself, and a reranker
  for (const [model, nearest] of [["bert", "1.000 a b"], ["bertrank", ""]]) {
    const encoder = await startServer(`fixtures/embedders/${model}`);
    try {
      const { page, status } = await open(browser, encoder.url, "");
      await page.fill("#query", "a b");
      await page.fill("#texts", "c d e\na b\n\nb a");
      await page.click("#rank button");
      await status(/^3 texts in \d+ ms\./, MINUTE);
      const ranked = await page.locator("#ranked li").allTextContents();
      const scores = ranked.map(parseFloat);
      check(ranked.length === 3 && ranked[0].startsWith(nearest) && scores[0] >= scores[1] && scores[1] >= scores[2], `ranked: ${ranked.join("; ")}`);
      await checkAccessibility(browser, encoder.url, "");
      await page.close();
    } finally {
      encoder.program.kill();
    }
  }
}

/** The documentation: its reference, its cookbook, its search. */
export async function docs(browser, url) {
  const { page } = await open(browser, url, "docs/");
  await page.keyboard.press("/");
  await page.keyboard.type("zeroGr");
  await page.locator("#found a").first().waitFor();
  await page.fill("#words", "strict policy");
  await page.waitForFunction(() => /A strict policy/.test(document.querySelector("#found li")?.textContent));
  await page.keyboard.press("Enter");
  await page.waitForURL(/docs\/start\/#a-strict-policy$/);
  await page.goto(`${url}/docs/api-gradloom/`);
  check(/matmul\(other: Tensor\): Tensor/.test(await page.textContent("article")), "the reference lacks Tensor.matmul");
  await page.goto(`${url}/docs/api-gradloom-cache/`);
  check(/function delete\(url\?: string \| URL\)/.test(await page.textContent("article")), "the reference has a function under another name than its export's");
  await page.goto(`${url}/docs/cookbook/`);
  check((await page.locator("article h2").count()) >= 20, "the cookbook is not whole");
  await page.goto(`${url}/docs/features/`);
  await page.fill("#filter", "softmax");
  const rows = await page.locator("article tbody tr:visible").allTextContents();
  check(rows.length > 2 && rows.every((each) => /softmax/i.test(each)), `rows with softmax: ${rows.slice(0, 5).join("; ")}`);
  check((await page.textContent("#filtered")).startsWith(`${rows.length} of `), "the number of rows is another one");
  await page.goto(`${url}/docs/peers/`);
  check((await page.locator("article tr").count()) > 40, "the measurements are missing");
  await page.close();
  // what every page downloads before the package and models
  const sizes = sitePages().map((path) => [pageBytes(path), path]);
  const [most, where] = sizes.sort(([a], [b]) => b - a)[0];
  check(most < 100_000, `/${where} has ${most} bytes before the package`);
  console.log(`demo: docs: ok; the largest of ${sizes.length} pages, /${where}, has ${(most / 1000).toFixed(1)} kB before the package`);
}

/** The code that a page shows is short enough to be read, and to be copied. */
export async function code(browser, url) {
  const [mostLines, mostColumns] = [44, 110];
  const sizes = demos.map(({ slug }) => {
    const lines = readFileSync(join(root, `www/demos/${slug}/code.js`), "utf8").trimEnd().split("\n");
    for (const each of lines) check(each.length <= mostColumns, `a line of ${slug}'s code has ${each.length} columns: ${each}`);
    check(lines.length <= mostLines, `the code of ${slug} has ${lines.length} lines`);
    return lines.length;
  });
  // it is the page's own, whole
  const page = await browser.newPage();
  await page.goto(`${url}/gallery/writer/`);
  const shown = await page.textContent("details.code pre");
  check(shown === readFileSync(join(root, "www/demos/writer/code.js"), "utf8"), "the page shows other code");
  await page.close();
  console.log(`demo: code: ${Math.max(...sizes)} lines at most`);
}
