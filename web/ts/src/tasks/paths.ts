// The base of relative addresses.

/** The working directory as a URL, outside of pages. */
function workingDirectoryUrl(): string {
  const { process } = globalThis as { process?: { cwd?(): string } };
  return `file://${encodeURI(process?.cwd?.() ?? "")}/`;
}

/** The base of relative addresses: that of the page or worker, or the working directory. */
export const baseUrl = (): string => (globalThis as { location?: { href: string } }).location?.href ?? workingDirectoryUrl();
