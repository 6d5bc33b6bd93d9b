// `npm run build`: builds the wasm module, the npm package with its tarball, and the demo site.
import { SITE_DATA, fetchData } from "./fetch-models.mjs";
import { buildPackage, buildSite, buildWasm } from "./lib/package.mjs";
import { main } from "./lib/run.mjs";
import { setup } from "./lib/system.mjs";

main(async () => {
  setup({ browser: false });
  buildWasm();
  await buildPackage();
  await fetchData({ only: SITE_DATA });
  await buildSite();
});
