// `npm run lock:python`: locks the newest versions that tests/requirements/*.in allow, with their hashes, in the `.txt`
// beside each.
import { join } from "node:path";
import { lockAll } from "./lib/python.mjs";
import { main, root } from "./lib/run.mjs";

main(() => lockAll(join(root, ".cache/uv")));
