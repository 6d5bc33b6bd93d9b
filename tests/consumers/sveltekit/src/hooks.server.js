// The headers of isolation. A hook reaches pages alone, so browsers refuse the scripts of workers themselves.
export async function handle({ event, resolve }) {
  const response = await resolve(event);
  response.headers.set("Cross-Origin-Opener-Policy", "same-origin");
  response.headers.set("Cross-Origin-Embedder-Policy", "require-corp");
  return response;
}
