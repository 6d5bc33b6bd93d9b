// Faces in a picture, with boxes, scores and points; and what to draw of them.
import { detectFaces } from "gradloom/tasks";

/**
 * Every face: its box in pixels, how sure the network is, and where eyes, nose, mouth and ears are.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export function facesOf(picture, { model = "models/blazeface_short/recipe.json", ...options } = {}) {
  return detectFaces(picture, { model, ...options }); // [{ box: [left, top, right, bottom], score, points }]
}

/** Draws boxes with their scores, and the points, over a canvas. */
export function draw(canvas, faces, colour, ink) {
  const pen = canvas.getContext("2d");
  const unit = Math.max(canvas.width, canvas.height) / 320;
  pen.lineWidth = 2.5 * unit;
  pen.font = `600 ${11 * unit}px system-ui, sans-serif`;
  for (const { box: [left, top, right, bottom], score, points } of faces) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.strokeRect(left, top, right - left, bottom - top);
    for (const [x, y] of points) {
      pen.beginPath();
      pen.arc(x, y, 2 * unit, 0, 7);
      pen.fill();
    }
    const text = `${Math.round(100 * score)} %`;
    const width = pen.measureText(text).width + 8 * unit;
    pen.fillRect(left - 1.25 * unit, top - 16 * unit, width, 16 * unit);
    pen.fillStyle = ink;
    pen.fillText(text, left + 3 * unit, top - 4 * unit);
  }
}
