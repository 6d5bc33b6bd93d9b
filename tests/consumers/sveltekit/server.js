// The server of the built site: what adapter-node made, with the headers of isolation on every response. Its own server sends them with
// pages alone, and browsers refuse workers whose scripts come without.
import { createServer } from "node:http";
import { handler } from "./build/handler.js";

createServer((request, response) => {
  response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
  response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
  handler(request, response);
}).listen(Number(process.env.PORT), process.env.HOST);
