// The demo page: picks a device, then each demo is a file of its own. All computing happens in the worker (engine.ts).
import type { DeviceKind } from "gradloom";
import { digits, forget } from "./digits";
import { kinds } from "./kinds";
import { pictures } from "./pictures";
import { ask } from "./protocol";
import { retouch } from "./retouch";
import { el, say, using, work } from "./ui";
import { voice } from "./voice";

const form = el<HTMLFormElement>("device");
const radio = (kind: DeviceKind): HTMLInputElement => form.querySelector(`[value=${kind}]`) as HTMLInputElement;

async function use(device: DeviceKind | "auto"): Promise<void> {
  await work("Starting the device", async () => {
    const { device: used } = await ask<"use">({ kind: "use", device });
    using(used);
    forget();
    radio(used.kind).checked = true;
    const name = used.kind === "webgpu" ? "WebGPU" : "WebAssembly";
    const threads = used.kind === "wasm" ? ` with ${used.threads} thread${used.threads > 1 ? "s" : ""}` : "";
    return `Ready: ${name}${threads}.`;
  });
}

digits();
pictures();
retouch();
kinds();
voice();

try {
  const { list } = await ask<"devices">({ kind: "devices" });
  for (const { kind, available, reason, software } of list) {
    radio(kind).disabled = !available;
    if (kind !== "webgpu") continue;
    if (!available) el("device-note").textContent = `There is no WebGPU here (${reason}), so the processor computes: the same results, only slower.`;
    else if (software) el("device-note").textContent = "WebGPU is here, but the processor emulates it: WebAssembly is faster.";
  }
  form.addEventListener("change", () => void use(new FormData(form).get("device") as DeviceKind));
  const wanted = new URL(location.href).searchParams.get("device");
  const known = list.find(({ kind, available }) => kind === wanted && available);
  await use(known?.kind ?? "auto");
} catch (error) {
  say(`The page could not start: ${(error as Error).message}`);
}
