// Reading text: frames appear around lines when they are detected, and become stronger when they are read.
import type { TextBox, TextLine } from "gradloom/tasks";
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { bitmap, colour, files, paint, penOf } from "../../src/demo/widgets";
import { linesOf, read as readIn } from "./code.js";

const demo = new TaskDemo("models/ppocrv4_rec/recipe.json");
const source = el<HTMLCanvasElement>("source");
const text = el("text");
let picture: ImageBitmap | undefined;

/** A receipt that the page draws itself. */
function receipt(): void {
  const pen = penOf(source);
  pen.fillStyle = "#f6f3ea";
  pen.fillRect(0, 0, source.width, source.height);
  pen.fillStyle = "#222";
  pen.font = "600 34px system-ui, sans-serif";
  pen.fillText("WEAVERS CAFE", 60, 76);
  pen.font = "26px system-ui, sans-serif";
  const rows = [["Espresso", "2.40"], ["Apple cake", "3.80"], ["Lemonade", "2.90"]];
  rows.forEach(([what, price], at) => {
    pen.fillText(what as string, 60, 150 + 56 * at);
    pen.fillText(price as string, 480, 150 + 56 * at);
  });
  pen.font = "600 28px system-ui, sans-serif";
  pen.fillText("Total", 60, 340);
  pen.fillText("9.10", 480, 340);
  pen.font = "24px system-ui, sans-serif";
  pen.fillText("Thank you, come again!", 60, 420);
}

function frame({ box: [left, top, right, bottom] }: TextBox, width: number): void {
  const pen = penOf(source);
  pen.strokeStyle = colour("--accent");
  pen.lineWidth = width * Math.max(1, source.width / 640);
  pen.strokeRect(left, top, right - left, bottom - top);
}

async function read(): Promise<void> {
  await demo.work("Reading", async (signal) => {
    if (picture) paint(source, picture);
    else receipt();
    el<HTMLButtonElement>("copy").disabled = true;
    text.textContent = "";
    const { value: lines } = await demo.perform(signal, (how) => linesOf(source, how), "models/ppocrv4_det/recipe.json");
    // the recogniser must not see the frames
    const plain = penOf(source).getImageData(0, 0, source.width, source.height);
    for (const line of lines) frame(line, 1);
    const { value: found } = await demo.perform(signal, (how) => {
      let last = performance.now();
      const onLine = (line: TextLine): void => {
        const now = performance.now();
        frame(line, 2);
        text.textContent += `${line.text}\n`;
        demo.took(now - last, "line");
        last = now;
      };
      return readIn(plain, { ...how, lines, onLine });
    });
    text.textContent = found.text;
    const least = Math.min(1, ...found.lines.map((line) => line.confidence));
    el("text-text").textContent = `${found.lines.length} pieces of text, ${Math.round(100 * least)} % sure or more`;
    el<HTMLButtonElement>("copy").disabled = found.text === "";
    return found.lines.length === 0 ? "There is no text in it." : `Read ${found.lines.length} pieces of text.`;
  });
}

el("read").addEventListener("click", () => void read());
el("copy").addEventListener("click", () => void navigator.clipboard.writeText(text.textContent ?? "").then(() => demo.say("Copied.")));
files("picture", "drop", (file) => void bitmap(file, 1600).then((image) => {
  picture?.close();
  picture = image;
  return read();
}, (error: Error) => demo.say(`That failed: ${error.message}`)));
receipt();
