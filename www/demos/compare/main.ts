// This device's own comparison with onnxruntime-web, as a table that can be shared.
import { Demo, el, milliseconds } from "../../src/demo/page";
import "./table.css";
import type { Api, Left, Row } from "./worker";

/** Selects models by `?only=vad,magika`, for a quicker comparison. */
const ONLY = new URL(location.href).searchParams.get("only")?.split(",") ?? null;
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), () => clear());
const body = el("table").querySelector("tbody") as HTMLTableSectionElement;
let rows: Row[] = [];

const factor = (theirs: number, ours: number): string => (theirs / ours).toFixed(theirs / ours < 10 ? 2 : 0);
/** The largest difference, relative to the largest value, that still counts as rounding. */
const SAME = 1e-2;

function clear(): void {
  rows = [];
  body.replaceChildren();
  el("left").textContent = "";
  el<HTMLButtonElement>("copy").disabled = true;
}

const cells = ({ title, ours, theirs, apart }: Row): string[] => [
  apart < SAME ? title : `${title} (results differ: ${apart.toExponential(1)})`,
  milliseconds(ours.again),
  milliseconds(theirs.again),
  factor(theirs.again, ours.again),
  `${milliseconds(ours.first)} against ${milliseconds(theirs.first)}`,
];

/** The models that are left out on this device, and why. */
function without({ wrong, slow }: Left): string {
  if (wrong.length + slow.length === 0) return "";
  const names = (titles: string[]): string => titles.map((title) => title.split(/[:,]/)[0]).join(", ");
  const why = [
    ...(wrong.length > 0 ? [`${names(wrong)} (wrong results of onnxruntime-web's WebGPU)`] : []),
    ...(slow.length > 0 ? [`${names(slow)} (more than a minute each)`] : []),
  ];
  return `Left out, since this GPU is emulated by the processor: ${why.join("; ")}. On WebAssembly all are compared.`;
}

function show(row: Row): void {
  rows.push(row);
  const line = document.createElement("tr");
  for (const [at, text] of cells(row).entries()) {
    const cell = document.createElement(at === 0 ? "th" : "td");
    if (at === 0) cell.setAttribute("scope", "row");
    // a number and its unit stay on one line
    cell.textContent = text.replace(/(\d) (m?s)\b/g, "$1\u00a0$2");
    line.append(cell);
  }
  body.append(line);
}

/** The geometric mean. */
const mean = (values: readonly number[]): number => Math.exp(values.reduce((sum, v) => sum + Math.log(v), 0) / values.length);

el("compare").addEventListener("click", () => void demo.work("Fetching onnxruntime-web", async (signal) => {
  clear();
  await demo.ask("compare", { only: ONLY }, {
    signal,
    onEvent(event) {
      if ("left" in event) el("left").textContent = without(event.left as Left);
      if (!("row" in event)) return;
      show(event.row as Row);
      demo.measure(event.step / event.steps);
      demo.say(`Compared ${event.step} of ${event.steps}`);
    },
  });
  if (rows.length === 0) return "No model is left to compare on this device.";
  const again = mean(rows.map(({ ours, theirs }) => theirs.again / ours.again));
  const first = mean(rows.map(({ ours, theirs }) => theirs.first / ours.first));
  const how = `${again.toFixed(2)} times as fast as onnxruntime-web, and ${first.toFixed(2)} times as fast to the first result`;
  el("sum").textContent = `On this device gradloom is ${how}${rows.length > 1 ? " (geometric means)" : ""}.`;
  el<HTMLButtonElement>("copy").disabled = false;
  return `Compared ${rows.length} model${rows.length === 1 ? "" : "s"}.`;
}));
el("copy").addEventListener("click", () => {
  const head = ["model", "gradloom", "onnxruntime-web", "times as fast", "first result"];
  const table = [head, head.map(() => "---"), ...rows.map(cells)].map((line) => `| ${line.join(" | ")} |`).join("\n");
  const text = `${table}\n\n${el("sum").textContent} ${el("left").textContent} ${el("cost").textContent}. ${navigator.userAgent}`;
  void navigator.clipboard.writeText(text).then(() => demo.say("Copied."));
});
