// Pictures that the suites of vision draw, and what is read of canvases meanwhile.

export const [WIDTH, HEIGHT] = [40, 30];
/** Red grows to the right, green downwards; one corner is blue. */
const colour = (x, y) => [6 * x, 8 * y, x < 8 && y < 8 ? 255 : 0];
export const PIXELS = new Uint8ClampedArray(4 * WIDTH * HEIGHT);
for (let y = 0; y < HEIGHT; y += 1) for (let x = 0; x < WIDTH; x += 1) PIXELS.set([...colour(x, y), 255], 4 * (y * WIDTH + x));

export function drawnCanvas() {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  canvas.getContext("2d").putImageData(new ImageData(PIXELS, WIDTH, HEIGHT), 0, 0);
  return canvas;
}

/** What the page reads of canvases while something is done. */
export async function countReadbacks(body) {
  const all = [CanvasRenderingContext2D, OffscreenCanvasRenderingContext2D].map((kind) => kind.prototype);
  const own = all.map((each) => each.getImageData);
  let count = 0;
  all.forEach((each, i) => (each.getImageData = function (...args) { return (count += 1), own[i].apply(this, args); }));
  try {
    await body();
  } finally {
    all.forEach((each, i) => (each.getImageData = own[i]));
  }
  return count;
}

/** A picture with some of it transparent. */
export function translucentCanvas() {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(drawnCanvas(), 0, 0);
  pen.clearRect(10, 5, 12, 9);
  pen.fillStyle = "rgb(200 40 40 / 50%)";
  pen.fillRect(20, 3, 12, 20);
  return canvas;
}
