// `npm start`: builds everything that the demo site needs, from a fresh clone if necessary, and serves it on localhost.
import { join } from "node:path";
import { SITE_DATA, fetchData } from "./fetch-models.mjs";
import { buildPackage, buildSite, buildWasm } from "./lib/package.mjs";
import { Failure, main, root } from "./lib/run.mjs";
import { setup } from "./lib/system.mjs";
import { serve } from "./serve.mjs";

/** Ports to try in turn, so that a second server does not fail on a used port. `PORT` selects one. */
const PORTS = process.env.PORT ? [Number(process.env.PORT)] : [8080, 8081, 8082, 8083, 0];

async function open() {
  for (const port of PORTS) {
    try {
      return await serve({ "/": join(root, "www/dist") }, { port, brotli: true });
    } catch (error) {
      if (error.code !== "EADDRINUSE") throw error;
    }
  }
  throw new Failure(`port ${PORTS.join(", ")} is taken; name another in PORT`);
}

main(async () => {
  setup({ browser: false });
  buildWasm();
  await buildPackage();
  await fetchData({ only: SITE_DATA });
  await buildSite();
  const server = await open();
  console.log(`\nThe demo is at ${server.url}  (Ctrl-C ends it)`);
});
