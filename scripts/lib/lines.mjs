// Breaks a minified script into lines, one per statement or class member. For an uncaught error, Node prints the line
// that throws, which would otherwise be the whole script. The source map (version 3 of its format) is adapted.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const DIGIT_VALUES = new Map([...DIGITS].map((digit, value) => [digit, value]));

/** Decodes the numbers of a segment: groups of five bits, lowest first, with the sign in the lowest bit. */
function decodeNumbers(segment) {
  const found = [];
  let [value, shift] = [0, 0];
  for (const digit of segment) {
    const bits = DIGIT_VALUES.get(digit);
    value += (bits & 31) * 2 ** shift;
    shift += 5;
    if (bits & 32) continue;
    found.push(value % 2 === 1 ? -(value - 1) / 2 : value / 2);
    [value, shift] = [0, 0];
  }
  return found;
}

function encodeNumber(number) {
  let value = number < 0 ? -number * 2 + 1 : number * 2;
  let text = "";
  for (; value >= 32; value = Math.floor(value / 32)) text += DIGITS[(value % 32) + 32];
  return text + DIGITS[value];
}

/** Offsets at which lines should begin: the module's statements, and the members of all classes. */
function lineStarts(program) {
  const found = new Set();
  const visit = (node) => {
    if (typeof node?.type !== "string") return;
    if (node.type === "ClassBody") node.body.forEach((member) => found.add(member.start));
    for (const value of Object.values(node)) {
      if (Array.isArray(value)) value.forEach(visit);
      else if (typeof value === "object") visit(value);
    }
  };
  program.body.forEach((statement) => found.add(statement.start));
  visit(program);
  found.delete(0);
  return [...found].sort((a, b) => a - b);
}

/** Gives the script with line breaks, and its map (as JSON) if it has one; `parse` parses a script to ESTree. */
export function breakLines(code, map, parse) {
  const breaks = lineStarts(parse(code));
  const parts = [0, ...breaks].map((from, i) => code.slice(from, breaks[i] ?? code.length));
  if (!map) return { code: parts.join("\n") };
  // offsets of the old and the new line starts in the old script
  const lineOffsets = (text) => [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const oldStarts = lineOffsets(code);
  const lines = [...new Set([...oldStarts, ...breaks])].sort((a, b) => a - b);
  const out = lines.map(() => []);
  const newMap = JSON.parse(map);
  let line = 0;
  newMap.mappings.split(";").forEach((segments, oldLine) => {
    let column = 0;
    for (const segment of segments.split(",").filter((each) => each)) {
      const [step, ...rest] = decodeNumbers(segment);
      column += step;
      const at = oldStarts[oldLine] + column;
      while (line + 1 < lines.length && lines[line + 1] <= at) line += 1;
      out[line].push([at - lines[line], ...rest]);
    }
  });
  // only columns restart on every line; sources, source lines, source columns and names are relative to the segment
  // before
  newMap.mappings = out
    .map((segments) => segments.map(([column, ...rest], i) => [column - (segments[i - 1]?.[0] ?? 0), ...rest].map(encodeNumber).join("")).join(","))
    .join(";");
  return { code: parts.join("\n"), map: JSON.stringify(newMap) };
}
