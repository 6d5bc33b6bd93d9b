// `npm run test:vulkan`: runs the device suite and every committed model on Vulkan with the validation layers, which
// must report nothing, on Mesa's software driver and on SwiftShader (Chromium's), if installed. Debian's layers are
// installed if they are missing.
//
// usage: node scripts/vulkan.mjs [--models]   (--models runs all models, which takes minutes)
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Failure, main, root } from "./lib/run.mjs";
import { apt } from "./lib/system.mjs";
import { requireTests } from "./lib/tests.mjs";

const LAYERS = ["/usr/share/vulkan/explicit_layer.d", "/etc/vulkan/explicit_layer.d"];
const SWIFTSHADER = ["/usr/lib/chromium/vk_swiftshader_icd.json", "/opt/google/chrome/vk_swiftshader_icd.json"];
const ICDS = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

const CARGO = ["test", "-p", "gradloom-tests", "--features", "gradloom-tests/wgpu", "--test", "it", "--"];

const files = (folders) => folders.filter(existsSync).flatMap((dir) => readdirSync(dir).map((file) => join(dir, file)));

function test(name, driver, filters) {
  const layer = "VK_LAYER_KHRONOS_validation";
  const env = { ...process.env, VK_DRIVER_FILES: driver, VK_ICD_FILENAMES: driver, VK_LOADER_DEBUG: "layer", VK_INSTANCE_LAYERS: layer };
  if (process.argv.includes("--models")) env.GRADLOOM_ALL_MODELS = "1";
  const done = spawnSync("cargo", [...CARGO, ...filters, "--nocapture"], { cwd: root, env, encoding: "utf8", maxBuffer: 1 << 30 });
  const output = `${done.stdout}${done.stderr}`;
  const lines = output.split("\n");
  const wrong = lines.filter((line) => /VUID-|Validation (Error|Warning)|UNASSIGNED-/.test(line));
  lines.filter((line) => /^test (?!result)|panicked|^test result/.test(line)).forEach((line) => console.log(`  ${line}`));
  if (!output.includes(`Insert instance layer "${layer}"`)) throw new Failure(`${name}: the validation layer was not there`);
  if (wrong.length) throw new Failure(`${name}: the validation layer says\n${[...new Set(wrong)].slice(0, 20).join("\n")}`);
  if (done.status !== 0) throw new Failure(`${name}: tests failed\n${lines.slice(-40).join("\n")}`);
  console.log(`${name}: passed, and the validation layer is silent`);
}

main(() => {
  if (!files(LAYERS).some((file) => file.includes("khronos_validation"))) apt(["vulkan-validationlayers"]);
  const mesa = files(ICDS).find((file) => file.includes("lvp_icd"));
  const swift = SWIFTSHADER.find(existsSync);
  const filters = ["devices::vulkan", "devices::a_lost_vulkan", "devices::places_of_vulkan", "on_vulkan"];
  requireTests(filters, CARGO, process.env);
  if (mesa) test("Mesa's driver", mesa, filters);
  else console.log("Mesa's driver: not installed");
  if (swift) test("SwiftShader", swift, filters);
  else console.log("SwiftShader: not installed");
  if (!mesa && !swift) throw new Failure("no software driver of Vulkan is here");
});
