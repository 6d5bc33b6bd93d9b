// HTML fragments for pages with an editor.
import { highlight } from "../src/highlight.js";
import { escape } from "./shell.mjs";

export const option = (value, title) => `<option value="${value}">${escape(title)}</option>`;
export const DEVICES = [["auto", "Best device"], ["wasm", "WebAssembly"], ["webgpu", "WebGPU"]];

/** A tab; the first is open. */
export const tab = (id, name, at) =>
  `<button role="tab" type="button" id="tab-${id}" aria-controls="${id}" aria-selected="${at === 0}" tabindex="${at === 0 ? 0 : -1}">${name}</button>`;
export const pane = (id, at, inside = "") =>
  `<div class="pane" id="${id}" role="tabpanel" aria-labelledby="tab-${id}" tabindex="0"${at === 0 ? "" : " hidden"}>${inside}</div>`;

/** A text field over a highlighted copy of its text. */
export const editor = (code, label) => `<div class="editor" id="editor"><pre aria-hidden="true">${highlight(code)}\n</pre>
<textarea id="code" aria-label="${label}" spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off">${escape(code)}</textarea></div>`;
