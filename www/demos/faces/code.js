// Faces in a picture, or things, with boxes and scores; and what to draw of them.
import { detect, detectFaces } from "gradloom/tasks";

/**
 * Every face: its box in pixels, how sure the network is, and where eyes, nose, mouth and ears are.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export function facesOf(picture, { model = "models/blazeface_short/recipe.json", ...options } = {}) {
  return detectFaces(picture, { model, ...options }); // [{ box: [left, top, right, bottom], score, points }]
}

/**
 * Every thing of 23 kinds: people, cats, dogs, cups, books, cars ..
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export function thingsOf(picture, { model = "models/ssd_mobilenet_v2/recipe.json", ...options } = {}) {
  return detect(picture, { model, ...options }); // [{ box, score, index, label }]
}

/** Draws boxes with their names and scores, and the points of faces, over a canvas. */
export function draw(canvas, found, colour, ink) {
  const pen = canvas.getContext("2d");
  const unit = Math.max(canvas.width, canvas.height) / 320;
  pen.lineWidth = 2.5 * unit;
  pen.font = `600 ${11 * unit}px system-ui, sans-serif`;
  for (const { box: [left, top, right, bottom], score, points = [], label = "" } of found) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.strokeRect(left, top, right - left, bottom - top);
    for (const [x, y] of points) {
      pen.beginPath();
      pen.arc(x, y, 2 * unit, 0, 7);
      pen.fill();
    }
    const text = `${label} ${Math.round(100 * score)} %`.trim();
    const width = pen.measureText(text).width + 8 * unit;
    // inside, where the box reaches the picture's upper edge
    const base = Math.max(top, 16 * unit);
    pen.fillRect(left - 1.25 * unit, base - 16 * unit, width, 16 * unit);
    pen.fillStyle = ink;
    pen.fillText(text, left + 3 * unit, base - 4 * unit);
  }
}
