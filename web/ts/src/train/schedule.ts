// Learning-rate schedules: the factor on a base rate as a function of the step, torch's schedulers in closed form.
import { ValueError } from "../errors.js";
import type { Optimizer } from "../optim.js";

/** Interpolates from one number to another along half a cosine. */
const cosine = (from: number, to: number, fraction: number): number => to + ((from - to) * (1 + Math.cos(Math.PI * fraction))) / 2;
const atLeastOne = (n: number): number => Math.max(n, 1);

/** A function from the step, counted from 0, to the factor on the base learning rate. */
export class Schedule {
  constructor(readonly at: (step: number) => number) {}

  /** The constant factor 1. */
  static constant(): Schedule {
    return new Schedule(() => 1);
  }

  /** Multiplies by `gamma` every `size` steps. */
  static step({ size, gamma = 0.1 }: { size: number; gamma?: number }): Schedule {
    return new Schedule((t) => gamma ** Math.floor(t / atLeastOne(size)));
  }

  /** Multiplies by `gamma` at each of the steps `milestones`. */
  static multiStep({ milestones, gamma = 0.1 }: { milestones: readonly number[]; gamma?: number }): Schedule {
    return new Schedule((t) => gamma ** milestones.filter((m) => m <= t).length);
  }

  /** Multiplies by `gamma` in every step. */
  static exponential({ gamma }: { gamma: number }): Schedule {
    return new Schedule((t) => gamma ** t);
  }

  /** Linear from `start` to `end` over `steps`, then constant. */
  static linear({ start = 1 / 3, end = 1, steps = 5 }: { start?: number; end?: number; steps?: number } = {}): Schedule {
    return new Schedule((t) => start + (end - start) * Math.min(t / atLeastOne(steps), 1));
  }

  /** The polynomial `(1 - t / steps) ** power` over `steps`, then 0. */
  static polynomial({ power = 1, steps = 5 }: { power?: number; steps?: number } = {}): Schedule {
    return new Schedule((t) => (1 - Math.min(t / atLeastOne(steps), 1)) ** power);
  }

  /** A cosine from 1 down to `floor` over `steps`, and up again over the next `steps`, periodically. */
  static cosine({ steps, floor = 0 }: { steps: number; floor?: number }): Schedule {
    return new Schedule((t) => cosine(1, floor, t / atLeastOne(steps)));
  }

  /** A cosine from 1 down to `floor` that restarts at 1 after each period; periods grow by `factor`. */
  static cosineRestarts({ steps, factor = 1, floor = 0 }: { steps: number; factor?: number; floor?: number }): Schedule {
    return new Schedule((t) => {
      let [stepInPeriod, period] = [t, atLeastOne(steps)];
      while (stepInPeriod >= period) {
        stepInPeriod -= period;
        period *= atLeastOne(factor);
      }
      return cosine(1, floor, stepInPeriod / period);
    });
  }

  /**
   * One cycle: from `1 / div` up to 1 over the first fraction `share` of `steps`, then down to `1 / (div * last)`,
   * along cosines.
   */
  static oneCycle({ steps, share = 0.3, div = 25, last = 1e4 }: { steps: number; share?: number; div?: number; last?: number }): Schedule {
    const [peakStep, lastStep] = [share * steps - 1, steps - 1];
    return new Schedule((t) => {
      // a rise of zero length is already at its end
      if (t <= peakStep) return peakStep > 0 ? cosine(1 / div, 1, t / peakStep) : 1;
      return cosine(1, 1 / (div * last), Math.min((t - peakStep) / (lastStep - peakStep), 1));
    });
  }

  /** A linear rise from 0 over `steps`, followed by another schedule, whose steps count from there. */
  static warmup({ steps, then = Schedule.constant() }: { steps: number; then?: Schedule }): Schedule {
    return new Schedule((t) => (t < steps ? (t + 1) / steps : then.at(t - steps)));
  }
}

/** Sets an optimiser's learning rate by a schedule: call `step()` after each step of the optimiser. */
export class LRScheduler {
  /** The base rate: the optimiser's learning rate when this was created. */
  readonly base: number;
  #steps = 0;

  constructor(readonly optimizer: Optimizer, readonly schedule: Schedule) {
    this.base = optimizer.learningRate;
    this.#set();
  }

  /** The number of steps done. */
  get steps(): number {
    return this.#steps;
  }

  step(): void {
    this.#steps += 1;
    this.#set();
  }

  #set(): void {
    const factor = this.schedule.at(this.#steps);
    if (!Number.isFinite(factor)) throw new ValueError("E_VALUE", `the schedule gives ${factor} at step ${this.#steps}`);
    this.optimizer.learningRate = this.base * factor;
  }
}
