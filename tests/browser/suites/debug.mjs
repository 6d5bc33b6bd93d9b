// `init({ debug })` in a page: kernels, their code, and launches with times.
// configs: default, no-webgpu
import { Tensor, init } from "gradloom";
import { assert, assertEqual, hasWebGpu, note, test } from "harness";

const kind = hasWebGpu ? "webgpu" : "wasm";

test("level 4 shows launches with their times, and code", async () => {
  const shown = [];
  const device = await init({ device: kind, debug: 4, log: (text) => shown.push(text), cache: false });
  assertEqual(device.kind, kind);
  const x = Tensor.ones([96, 64]);
  assertEqual(await x.matmul(x.transpose(0, 1)).sum().item(), 96 * 96 * 64);
  const text = shown.join("\n");
  const launches = [...text.matchAll(/^ +(\d+) (\S+) +([\d.]+) us .* GFLOP\/s$/gm)];
  assert(launches.length > 0, text);
  for (const [line, , name, us] of launches) {
    assert(Number(us) > 0, line);
    assert(text.includes(`kernel ${name} `), line);
  }
  assert((kind === "webgpu" ? /@compute @workgroup_size\(/ : /^ +v128\.load/m).test(text), text);
  assert(!text.includes("// as scheduled"), "graphs are of level 5");
  await note(launches.map(([line]) => line).join("\n"));
  shown.length = 0;
  await init({ device: kind, debug: 0 });
  assertEqual(await Tensor.ones([97, 64]).sum().item(), 97 * 64);
  assertEqual(shown.length, 0);
});
