// The contents of the namespace `nn`.
export * from "./layers.js";
export * from "./nn.js";
