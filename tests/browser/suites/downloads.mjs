// configs: default
// Files kept in the origin's private file system; what is done where there is no room; checkpoints.
import { init, nn, loadWeights, saveWeights } from "gradloom";
import * as cache from "gradloom/cache";
import { opfsCheckpoint } from "gradloom/fit";
import { Tensor } from "gradloom";
import { cases } from "../page/downloads.mjs";
import { assert, assertEqual, test } from "harness";

cases("opfs");

test("where there is no room, the file that was not used for longest goes", async () => {
  await cache.delete();
  const file = (seed) => new Uint8Array(2 << 20).fill(seed);
  const server = (bytes) => {
    const headers = { etag: `"${bytes[0]}"`, "content-length": String(bytes.length) };
    return async (_, { method } = {}) => new Response(method === "HEAD" ? null : bytes, { headers });
  };
  const get = async (name, bytes) => (await Tensor.fromUrl(`https://files.test/full/${name}`, { fetch: server(bytes), cache: true })).data("u8");
  await get("a", file(1));
  await get("b", file(2));
  const names = async () => (await cache.list()).map(({ url }) => url.at(-1)).sort().join("");
  assertEqual(await names(), "ab");
  const { createWritable } = FileSystemFileHandle.prototype;
  try {
    let refusals = 1;
    FileSystemFileHandle.prototype.createWritable = function (...args) {
      if (refusals-- > 0) throw new DOMException("full", "QuotaExceededError");
      return createWritable.apply(this, args);
    };
    assertEqual((await get("c", file(3)))[9], 3);
    assertEqual(await names(), "bc");
    refusals = Infinity;
    // and nothing is kept where that does not help
    assertEqual((await get("d", file(4)))[9], 4);
    assertEqual(await names(), "");
  } finally {
    FileSystemFileHandle.prototype.createWritable = createWritable;
  }
});

test("checkpoints stay", async () => {
  await init({ device: "wasm" });
  const place = opfsCheckpoint("a/strange name");
  await place.delete();
  assertEqual(await place.load(), undefined);
  const [a, b] = [new nn.Linear(3, 2), new nn.Linear(3, 2)];
  await place.save(await saveWeights(a.stateDict()));
  await b.loadStateDict(await loadWeights(await place.load()));
  assertEqual(await b.weight.tolist(), await a.weight.tolist());
  await place.delete();
  assert((await place.load()) === undefined);
});
