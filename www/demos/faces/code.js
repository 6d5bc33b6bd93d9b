// Detects faces or objects in a picture, and draws their boxes and scores.
import { detect, detectFaces } from "gradloom/tasks";

const [FACES, THINGS] = ["models/blazeface_short/recipe.json", "models/ssd_mobilenet_v2/recipe.json"];

/** All faces: [{ box: [left, top, right, bottom], score, points: eyes, nose, mouth and ears }]. */
export const facesOf = (picture, options) => detectFaces(picture, { model: FACES, ...options });

/** All objects of 23 kinds, e.g. people, cats, dogs, cups, books, cars: [{ box, score, index, label }]. */
export const thingsOf = (picture, options) => detect(picture, { model: THINGS, ...options });

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
    // inside of the box if that reaches the picture's upper edge
    const base = Math.max(top, 16 * unit);
    pen.fillRect(left - 1.25 * unit, base - 16 * unit, width, 16 * unit);
    pen.fillStyle = ink;
    pen.fillText(text, left + 3 * unit, base - 4 * unit);
  }
}
