// Cards of the demos, for the gallery and the home page.
import { existsSync } from "node:fs";
import { demos } from "../demos/index.mjs";
import { escape } from "./shell.mjs";

/** The thumbnail of a demo, made from its own result by `npm run thumbnails`. */
function thumbnail(slug, up) {
  const file = new URL(`../public/thumbs/${slug}.webp`, import.meta.url);
  return existsSync(file) ? `<img class="thumb" src="${up}thumbs/${slug}.webp" width="580" height="320" alt="" loading="lazy">` : "";
}

/**
 * Cards of all demos; `to` is the path to the gallery, `up` that to the site's root, `level` the level of their
 * headings.
 */
export function cards(to, up = "", level = 3) {
  const card = ({ slug, title, card: text, size, train }) =>
    `<li class="card">${thumbnail(slug, up)}<div class="in"><h${level}><a href="${to}${slug}/">${escape(title)}</a></h${level}><p>${escape(text)}</p>` +
    `<p>${train ? "Trains in the page, " : ""}${escape(size)}</p></div></li>`;
  return `<ul class="grid">${demos.map(card).join("\n")}</ul>`;
}
