// The entry `gradloom/optim`: every optimiser, learning-rate schedules, and gradient clipping.
import "../apart.js";
export * from "../optim.js";
export { clipGradNorm, clipGradValue } from "./clip.js";
export * from "./rules.js";
export { LRScheduler, Schedule } from "./schedule.js";
