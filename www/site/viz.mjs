// The page of `gradloom viz`, which is compiled into the program.
import { views } from "./inside.mjs";
import { standalone } from "./standalone.mjs";

const BODY = `<h1>What runs here</h1>
<p class="end" id="status" role="status">Connecting.</p>
<div id="views" hidden>${views()}</div>`;

/** Builds the page from a script and styles. */
export const viz = (script, styles) =>
  standalone({
    title: "gradloom viz",
    bodyAttributes: ' class="inside"',
    head: '\n<label class="run"><span class="hide">Engine</span><select id="run"></select></label>',
    body: BODY,
    script,
    styles,
  });
