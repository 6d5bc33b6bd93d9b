// A code editor: a text field over a highlighted copy of its text. Tab leaves it, as in any field; Enter keeps the
// indentation.
import { highlight } from "../highlight.js";

export class Editor {
  readonly #field: HTMLTextAreaElement;
  readonly #paint: HTMLElement;

  /** `changed` is called after each change by the user. */
  constructor(box: HTMLElement, changed: () => void) {
    this.#field = box.querySelector("textarea") as HTMLTextAreaElement;
    this.#paint = box.querySelector("pre") as HTMLElement;
    this.#field.addEventListener("input", () => {
      this.#draw();
      changed();
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.ctrlKey || event.metaKey || event.isComposing) return;
      event.preventDefault();
      const { value, selectionStart: at } = this.#field;
      const line = value.slice(value.lastIndexOf("\n", at - 1) + 1, at);
      const indent = (/^ */.exec(line)?.[0] ?? "") + (/[{([]\s*$/.test(line) ? "  " : "");
      this.#field.setRangeText(`\n${indent}`, at, this.#field.selectionEnd, "end");
      this.#field.dispatchEvent(new Event("input"));
    });
    this.#draw();
  }

  get value(): string {
    return this.#field.value;
  }

  set value(text: string) {
    this.#field.value = text;
    this.#draw();
  }

  #draw(): void {
    // a trailing line break has no height without text after it
    this.#paint.innerHTML = `${highlight(this.#field.value)}\n`;
  }
}
