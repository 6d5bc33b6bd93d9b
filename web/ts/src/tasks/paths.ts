// Where relative paths begin in a program that is no page.

/** The working folder as an address. */
export function folder(): string {
  const { process } = globalThis as { process?: { cwd?(): string } };
  return `file://${encodeURI(process?.cwd?.() ?? "")}/`;
}
