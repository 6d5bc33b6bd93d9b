// A page of the built site, opened as the tests of the site need it.
import { Failure } from "../../scripts/lib/run.mjs";

export const MINUTE = 60_000;

export function check(holds, what) {
  if (!holds) throw new Failure(`demo: ${what}`);
}

/** Opens a page; a console error, an exception or a request to another place fails the test. */
export async function open(browser, url, path, options = {}) {
  const page = await browser.newPage(options);
  // a machine that runs other work beside this may take a minute for what takes a second here
  page.setDefaultTimeout(2 * MINUTE);
  const problems = [];
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    const to = request.url();
    if (!to.startsWith(url) && !/^(data|blob):/.test(to)) problems.push(`a request left the page: ${to}`);
  });
  await page.goto(`${url}/${path}`);
  const status = async (pattern, limit = 4 * MINUTE) => {
    const until = Date.now() + limit;
    for (;;) {
      const text = await page.textContent("#status");
      check(problems.length === 0, problems.join("\n"));
      if (pattern.test(text)) return text;
      check(!/failed|could not/.test(text), `the page says: ${text}`);
      check(Date.now() < until, `no ${pattern} after ${limit} ms; the page says: ${text}`);
      await page.waitForTimeout(50);
    }
  };
  // what the page says once `act` is done: the words from before are gone, and a short step in between need not be seen
  const after = async (act, pattern, limit) => {
    await page.evaluate(() => document.querySelector("#status").replaceChildren());
    await act();
    return status(pattern, limit);
  };
  if ((await page.locator("#device").count()) > 0) await status(/^Ready: /);
  check(problems.length === 0, problems.join("\n"));
  return { page, status, after };
}
