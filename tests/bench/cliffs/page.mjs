// The comparison inside a page: the query has its options.
import { compareRuntimes } from "/tests/bench/cliffs/compare_runtimes.mjs";

const options = JSON.parse(new URLSearchParams(location.search).get("options"));
const say = (value) => console.log(`@@${JSON.stringify(value)}`);
const file = async (name) => new Uint8Array(await (await fetch(`/data/${name}`)).arrayBuffer());

compareRuntimes({ ...options, file, say })
  .catch((error) => say({ fatal: String(error?.stack ?? error) }))
  .finally(() => say({ done: true }));
