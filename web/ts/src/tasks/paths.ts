// The base of relative paths outside of pages.

/** The working directory as a URL. */
export function workingDirectoryUrl(): string {
  const { process } = globalThis as { process?: { cwd?(): string } };
  return `file://${encodeURI(process?.cwd?.() ?? "")}/`;
}
