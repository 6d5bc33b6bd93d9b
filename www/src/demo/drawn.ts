// A picture that needs no file: hills under an evening sky.

/** The part above the picture of what does not fit into it: the sky matters less than the ground. */
const SKY_SHARE = 0.7;

/** Draws the hills at a size in pixels. They are designed for 256 by 256; of other shapes the longer side is filled. */
export function hills(width: number, height: number): OffscreenCanvas {
  const canvas = new OffscreenCanvas(width, height);
  // in the processor's memory, since it is read: the browser's GPU process may end, and with it all that is drawn there
  const pen = canvas.getContext("2d", { willReadFrequently: true }) as OffscreenCanvasRenderingContext2D;
  const scale = Math.max(width, height) / 256;
  pen.scale(scale, scale);
  pen.translate((width / scale - 256) / 2, (height / scale - 256) * SKY_SHARE);
  const sky = pen.createLinearGradient(0, 0, 0, 170);
  sky.addColorStop(0, "#27408b");
  sky.addColorStop(1, "#f6a35c");
  pen.fillStyle = sky;
  pen.fillRect(0, 0, 256, 256);
  pen.fillStyle = "#ffe9a8";
  pen.beginPath();
  pen.arc(180, 105, 24, 0, 7);
  pen.fill();
  for (const [base, rise, rate, fill] of [[150, 30, 0.021, "#5b5f97"], [180, 24, 0.033, "#3c6e57"], [212, 14, 0.05, "#24452f"]] as const) {
    pen.fillStyle = fill;
    pen.beginPath();
    pen.moveTo(0, 256);
    for (let x = 0; x <= 256; x += 2) pen.lineTo(x, base - rise * Math.sin(x * rate + base) - 6 * Math.sin(x * 0.11));
    pen.lineTo(256, 256);
    pen.fill();
  }
  pen.fillStyle = "#7a2e1d";
  pen.fillRect(52, 176, 34, 30);
  pen.fillStyle = "#c8553d";
  pen.beginPath();
  pen.moveTo(46, 178);
  pen.lineTo(69, 156);
  pen.lineTo(92, 178);
  pen.fill();
  return canvas;
}
