// The demo site's build. The headers make the page cross-origin isolated, which gives the wasm device its threads.
import { defineConfig } from "vite";

const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };

export default defineConfig({
  base: "./",
  build: { target: "es2022", outDir: "dist", assetsInlineLimit: 0 },
  optimizeDeps: { exclude: ["gradloom"] },
  server: { headers },
  preview: { headers },
});
