// Classification of two photographs, the visitor's own picture, or the live camera.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { onCamera, onPicture, paint, planes, poster } from "../../src/demo/widgets";
import { kindsIn } from "./code.js";

const demo = new TaskDemo("models/efficientnet_lite0/recipe.json");
const source = el<HTMLCanvasElement>("source");

async function once(signal: AbortSignal): Promise<{ best: string; ms: number }> {
  const { value: ranks, ms } = await demo.perform(signal, (how) => kindsIn(source, how));
  demo.took(ms, "picture");
  demo.cost();
  el("kinds-text").textContent = "Of 1,000 things that the network knows.";
  el("kinds").replaceChildren(...ranks.map(({ label = "", score }) => {
    const item = document.createElement("li");
    const bar = document.createElement("meter");
    bar.value = score;
    bar.setAttribute("aria-hidden", "true");
    const name = document.createElement("b");
    name.textContent = label;
    item.append(name, ` ${(100 * score).toFixed(1)} %`, bar);
    return item;
  }));
  return { best: ranks[0]?.label ?? "nothing", ms };
}

const classify = (show: (signal: AbortSignal) => Promise<void>): Promise<void> => demo.work("Looking", async (signal) => {
  await show(signal);
  return `It looks like: ${(await once(signal)).best}.`;
});

const photograph = (which: number): Promise<void> => classify(async (signal) => paint(source, await planes("data/photographs.bin", which, 224, signal)));

el("cat").addEventListener("click", () => void photograph(0));
el("cup").addEventListener("click", () => void photograph(1));
onCamera(demo, 480, async (video, signal) => {
  const frame = await createImageBitmap(video);
  paint(source, frame);
  frame.close();
  return (await once(signal)).ms;
});
onPicture(demo, (image) => classify(async () => paint(source, image)));
poster(source, "thumbs/cat.webp");
