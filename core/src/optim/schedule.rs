//! Learning-rate schedules: plain functions of the step number, torch's schedulers in closed form. Before each step,
//! set an optimiser's `lr` (or the launch variable that it is) to [`Schedule::at`] times the base rate.

use std::f64::consts::PI;

/// The factor on the base learning rate at a step.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "torch's names")]
pub enum Schedule {
    /// Always 1.
    Constant,
    /// Multiplied by `gamma` every `size` steps.
    Step { size: usize, gamma: f64 },
    /// Multiplied by `gamma` at each of these steps.
    MultiStep { milestones: Vec<usize>, gamma: f64 },
    /// Multiplied by `gamma` at each step.
    Exponential { gamma: f64 },
    /// Linear from `start` to `end` over `steps`, then `end`.
    Linear { start: f64, end: f64, steps: usize },
    /// `(1 - t/steps)^power`, then 0.
    Polynomial { power: f64, steps: usize },
    /// Half a cosine from 1 down to `floor` over `steps`, and up again after that.
    Cosine { steps: usize, floor: f64 },
    /// Half a cosine from 1 down to `floor`, restarted at 1 after each period. The first period has `steps` steps, and
    /// each further one `factor` times as many as the one before.
    CosineRestarts { steps: usize, factor: usize, floor: f64 },
    /// One cycle: from `1/div` up to 1 over the first `share` of `steps`, then down to `1/(div * last)`, both along
    /// half a cosine.
    OneCycle { steps: usize, share: f64, div: f64, last: f64 },
    /// Linear from `1/steps` to 1 over `steps`, then the schedule `then`, counted from there.
    Warmup { steps: usize, then: Box<Schedule> },
}

impl Schedule {
    /// The factor at a step, counted from 0.
    pub fn at(&self, t: usize) -> f64 {
        let x = t as f64;
        let cosine = |from: f64, to: f64, share: f64| to + (from - to) * (1.0 + (PI * share).cos()) / 2.0;
        match self {
            Schedule::Constant => 1.0,
            Schedule::Step { size, gamma } => gamma.powi((t / (*size).max(1)) as i32),
            Schedule::MultiStep { milestones, gamma } => {
                gamma.powi(milestones.iter().filter(|&&m| m <= t).count() as i32)
            }
            Schedule::Exponential { gamma } => gamma.powi(t as i32),
            Schedule::Linear { start, end, steps } => start + (end - start) * (x / (*steps).max(1) as f64).min(1.0),
            Schedule::Polynomial { power, steps } => (1.0 - (x / (*steps).max(1) as f64).min(1.0)).powf(*power),
            Schedule::Cosine { steps, floor } => cosine(1.0, *floor, x / (*steps).max(1) as f64),
            Schedule::CosineRestarts { steps, factor, floor } => {
                let (mut left, mut period) = (t, (*steps).max(1));
                while left >= period {
                    left -= period;
                    period *= (*factor).max(1);
                }
                cosine(1.0, *floor, left as f64 / period as f64)
            }
            Schedule::OneCycle { steps, share, div, last } => {
                let (up, end) = (share * *steps as f64 - 1.0, *steps as f64 - 1.0);
                match x < up {
                    true => cosine(1.0 / div, 1.0, x / up),
                    false => cosine(1.0, 1.0 / (div * last), ((x - up) / (end - up).max(f64::MIN_POSITIVE)).min(1.0)),
                }
            }
            Schedule::Warmup { steps, then } => match t < *steps {
                true => (x + 1.0) / *steps as f64,
                false => then.at(t - steps),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(s: &Schedule, want: &[f64]) {
        for (t, w) in want.iter().enumerate() {
            assert!((s.at(t) - w).abs() < 1e-6, "{s:?} at {t}: {} instead of {w}", s.at(t));
        }
    }

    /// The rates of torch's schedulers for a base rate of 1, step by step, from their recursive definitions.
    #[test]
    fn factors_are_those_of_torch() {
        same(&Schedule::Constant, &[1.0; 4]);
        same(&Schedule::Step { size: 2, gamma: 0.1 }, &[1.0, 1.0, 0.1, 0.1, 0.01]);
        same(&Schedule::MultiStep { milestones: vec![1, 3], gamma: 0.5 }, &[1.0, 0.5, 0.5, 0.25, 0.25]);
        same(&Schedule::Exponential { gamma: 0.9 }, &[1.0, 0.9, 0.81, 0.729]);
        let linear = Schedule::Linear { start: 1.0 / 3.0, end: 1.0, steps: 4 };
        same(&linear, &[0.333_333_3, 0.5, 0.666_666_7, 0.833_333_3, 1.0, 1.0]);
        same(&Schedule::Polynomial { power: 2.0, steps: 4 }, &[1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]);
        let cosine = Schedule::Cosine { steps: 4, floor: 0.1 };
        same(&cosine, &[1.0, 0.868_198_1, 0.55, 0.231_801_9, 0.1, 0.231_801_9]);
        let restarts = Schedule::CosineRestarts { steps: 2, factor: 2, floor: 0.0 };
        same(&restarts, &[1.0, 0.5, 1.0, 0.853_553_4, 0.5, 0.146_446_6, 1.0]);
        let cycle = Schedule::OneCycle { steps: 10, share: 0.3, div: 25.0, last: 1e4 };
        same(&cycle, &[0.04, 0.52, 1.0, 0.950_484_6, 0.811_745_6, 0.611_262_2, 0.388_741_7]);
        assert!((cycle.at(9) - 4e-6).abs() < 1e-12 && (cycle.at(99) - 4e-6).abs() < 1e-12);
        let warm = Schedule::Warmup { steps: 4, then: Box::new(Schedule::Step { size: 1, gamma: 0.5 }) };
        same(&warm, &[0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.25]);
    }

    /// Schedules of length 0 and phases of one step give finite numbers.
    #[test]
    fn no_schedule_divides_by_zero() {
        for s in [
            Schedule::Step { size: 0, gamma: 0.5 },
            Schedule::Linear { start: 0.0, end: 1.0, steps: 0 },
            Schedule::Polynomial { power: 1.0, steps: 0 },
            Schedule::Cosine { steps: 0, floor: 0.0 },
            Schedule::CosineRestarts { steps: 0, factor: 0, floor: 0.0 },
            Schedule::OneCycle { steps: 10, share: 0.1, div: 25.0, last: 1e4 },
            Schedule::OneCycle { steps: 5, share: 1.0, div: 25.0, last: 1e4 },
            Schedule::OneCycle { steps: 0, share: 0.0, div: 25.0, last: 1e4 },
        ] {
            assert!((0..12).all(|t| s.at(t).is_finite()), "{s:?}: {:?}", (0..12).map(|t| s.at(t)).collect::<Vec<_>>());
        }
    }
}
