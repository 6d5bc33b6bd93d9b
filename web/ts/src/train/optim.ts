// The entry `gradloom/optim`: every optimiser, schedules of the learning rate, limits on gradients.
import "../apart.js";
export * from "../optim.js";
export { clipGradNorm, clipGradValue } from "./clip.js";
export * from "./rules.js";
export { LRScheduler, Schedule } from "./schedule.js";
