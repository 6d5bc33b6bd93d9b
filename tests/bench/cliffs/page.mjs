// The contest inside a page: the query has its options.
import { contest } from "/tests/bench/cliffs/contest.mjs";

const options = JSON.parse(new URLSearchParams(location.search).get("options"));
const say = (value) => console.log(`@@${JSON.stringify(value)}`);
const file = async (name) => new Uint8Array(await (await fetch(`/data/${name}`)).arrayBuffer());

contest({ ...options, file, say })
  .catch((error) => say({ fatal: String(error?.stack ?? error) }))
  .finally(() => say({ done: true }));
