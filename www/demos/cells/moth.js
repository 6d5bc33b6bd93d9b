// The target picture of the cells: a moth, drawn by formulas. Colours are from 0 to 1, premultiplied by coverage.

const ellipse = (x, y, cx, cy, rx, ry, turn = 0) => {
  const [c, s] = [Math.cos(turn), Math.sin(turn)];
  const [dx, dy] = [x - cx, y - cy];
  return ((c * dx + s * dy) / rx) ** 2 + ((-s * dx + c * dy) / ry) ** 2;
};

/** The colour of a point (coordinates from -1 to 1, left to right and top to bottom), or none. */
function paint(x, y) {
  const side = Math.abs(x);
  // feelers, body
  if (y < -0.36 && y > -0.8 && Math.abs(side - (0.08 + 0.3 * ((-y - 0.36) / 0.44) ** 1.6)) < 0.045) return [0.2, 0.17, 0.25];
  if (ellipse(side, y, 0, 0.05, 0.11, 0.5) < 1) return [0.2, 0.17, 0.25];
  // wings, above and below, with a rim and eyes
  const upper = ellipse(side, y, 0.5, -0.2, 0.5, 0.33, -0.5);
  if (upper < 1) {
    const eye = ellipse(side, y, 0.62, -0.27, 0.17, 0.17);
    if (eye < 0.35) return [0.2, 0.17, 0.25];
    if (eye < 1) return [1, 0.93, 0.72];
    return upper > 0.68 ? [0.6, 0.16, 0.07] : [0.93, 0.4, 0.16];
  }
  const lower = ellipse(side, y, 0.4, 0.4, 0.36, 0.32, 0.7);
  if (lower < 1) return lower > 0.62 ? [0.6, 0.16, 0.07] : ellipse(side, y, 0.46, 0.42, 0.13, 0.13) < 1 ? [0.32, 0.3, 0.7] : [0.98, 0.68, 0.26];
  return undefined;
}

/** The picture of `size` by `size` points with a rim of empty ones: four planes. */
export function moth(size = 16, rim = 4) {
  const side = size + 2 * rim;
  const planes = new Float32Array(4 * side * side);
  const parts = 6;
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      for (let i = 0; i < parts * parts; i += 1) {
        const at = (v, part) => (2 * (v + (part + 0.5) / parts)) / size - 1;
        const colour = paint(at(column, i % parts), at(row, Math.floor(i / parts)));
        if (!colour) continue;
        [...colour, 1].forEach((v, c) => (planes[(c * side + row + rim) * side + column + rim] += v / parts ** 2));
      }
    }
  }
  return { planes, side };
}
