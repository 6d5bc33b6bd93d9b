// Threads need an isolated page, in every framework.
const headers = [
  { key: "Cross-Origin-Opener-Policy", value: "same-origin" },
  { key: "Cross-Origin-Embedder-Policy", value: "require-corp" },
];

export default { headers: async () => [{ source: "/:path*", headers }] };
