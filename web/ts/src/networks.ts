// What `nn` holds.
export * from "./layers.js";
export * from "./nn.js";
