// The entry `gradloom/optim`: every optimiser, learning-rate schedules, and gradient clipping.
import "../page-chunks.js";
export * from "../optim.js";
export { clipGradNorm, clipGradValue } from "./clip.js";
export * from "./rules.js";
export { LRScheduler, Schedule } from "./schedule.js";
