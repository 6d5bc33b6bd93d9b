// Learning rates over time: factors on a base rate by the number of the step, torch's schedulers in closed form.
import { ValueError } from "../errors.js";
import type { Optimizer } from "../optim.js";

/** From one number to another along half a cosine. */
const cosine = (from: number, to: number, share: number): number => to + ((from - to) * (1 + Math.cos(Math.PI * share))) / 2;
const atLeastOne = (n: number): number => Math.max(n, 1);

/** The factor on the base learning rate at a step, counted from 0. */
export class Schedule {
  constructor(readonly at: (step: number) => number) {}

  /** Always 1. */
  static constant(): Schedule {
    return new Schedule(() => 1);
  }

  /** `gamma` once every `size` steps. */
  static step({ size, gamma = 0.1 }: { size: number; gamma?: number }): Schedule {
    return new Schedule((t) => gamma ** Math.floor(t / atLeastOne(size)));
  }

  /** `gamma` at each of these steps. */
  static multiStep({ milestones, gamma = 0.1 }: { milestones: readonly number[]; gamma?: number }): Schedule {
    return new Schedule((t) => gamma ** milestones.filter((m) => m <= t).length);
  }

  /** `gamma` each step. */
  static exponential({ gamma }: { gamma: number }): Schedule {
    return new Schedule((t) => gamma ** t);
  }

  /** From `start` to `end` over `steps`, then `end`. */
  static linear({ start = 1 / 3, end = 1, steps = 5 }: { start?: number; end?: number; steps?: number } = {}): Schedule {
    return new Schedule((t) => start + (end - start) * Math.min(t / atLeastOne(steps), 1));
  }

  /** `(1 - t / steps) ** power`, then 0. */
  static polynomial({ power = 1, steps = 5 }: { power?: number; steps?: number } = {}): Schedule {
    return new Schedule((t) => (1 - Math.min(t / atLeastOne(steps), 1)) ** power);
  }

  /** Half a cosine from 1 down to `floor`, and up again after `steps`. */
  static cosine({ steps, floor = 0 }: { steps: number; floor?: number }): Schedule {
    return new Schedule((t) => cosine(1, floor, t / atLeastOne(steps)));
  }

  /** The same, but starting again at 1 each time, over periods that grow by `factor`. */
  static cosineRestarts({ steps, factor = 1, floor = 0 }: { steps: number; factor?: number; floor?: number }): Schedule {
    return new Schedule((t) => {
      let [left, period] = [t, atLeastOne(steps)];
      while (left >= period) {
        left -= period;
        period *= atLeastOne(factor);
      }
      return cosine(1, floor, left / period);
    });
  }

  /** One cycle: from `1 / div` up to 1 over the first `share` of `steps`, then down to `1 / (div * last)`, by cosines. */
  static oneCycle({ steps, share = 0.3, div = 25, last = 1e4 }: { steps: number; share?: number; div?: number; last?: number }): Schedule {
    const [top, end] = [share * steps - 1, steps - 1];
    return new Schedule((t) => {
      // a rise of no length is over at once
      if (t <= top) return top > 0 ? cosine(1 / div, 1, t / top) : 1;
      return cosine(1, 1 / (div * last), Math.min((t - top) / (end - top), 1));
    });
  }

  /** A rise in a line from 0 over `steps`, then another schedule, counted from there. */
  static warmup({ steps, then = Schedule.constant() }: { steps: number; then?: Schedule }): Schedule {
    return new Schedule((t) => (t < steps ? (t + 1) / steps : then.at(t - steps)));
  }
}

/** Keeps an optimiser's learning rate at its schedule: `step()` follows each step of the optimiser. */
export class LRScheduler {
  /** The rate that the factors multiply: the optimiser's when this was made. */
  readonly base: number;
  #steps = 0;

  constructor(readonly optimizer: Optimizer, readonly schedule: Schedule) {
    this.base = optimizer.learningRate;
    this.#set();
  }

  /** How many steps there were. */
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
