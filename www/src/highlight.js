// Syntax highlighting of code as HTML, used when the pages are built and by their editors.

const WORDS =
  "async await break case catch class const continue default delete do else export extends false finally for from function if import in instanceof " +
  "let new null of return static super switch this throw true try typeof undefined using var void while yield " +
  // WGSL
  "fn enable override struct workgroupBarrier u32 i32 f32 f16 bool vec2 vec3 vec4 array";
const KEYWORDS = new Set(WORDS.split(" "));
const TOKEN = /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|(\b\d[\w.]*\b)|([A-Za-z_$@][\w$]*)|([<>&])/g;
const ENTITIES = { "<": "&lt;", ">": "&gt;", "&": "&amp;" };

/** Escapes text for HTML. @param {string} text */
const plain = (text) => text.replace(/[<>&]/g, (c) => ENTITIES[/** @type {"<" | ">" | "&"} */ (c)]);

/**
 * JavaScript, TypeScript or WGSL as HTML.
 * @param {string} code
 */
export function highlight(code) {
  let html = "";
  let last = 0;
  for (const found of code.matchAll(TOKEN)) {
    const [text, comment, string, number, word] = found;
    html += plain(code.slice(last, found.index));
    last = found.index + text.length;
    const kind = comment ? "c" : string ? "s" : number ? "n" : word && (KEYWORDS.has(word) || word.startsWith("@")) ? "k" : "";
    html += kind ? `<span class="t${kind}">${plain(text)}</span>` : plain(text);
  }
  return html + plain(code.slice(last));
}
