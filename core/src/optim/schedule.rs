//! Learning rates over time: plain functions of the step number, as torch's schedulers in closed form. Set an optimiser's
//! `lr` (or the launch variable it is) to [`Schedule::at`] times the base rate before each step.

use std::f64::consts::PI;

/// The factor on the base learning rate at a step.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "torch's names")]
pub enum Schedule {
    /// Always 1.
    Constant,
    /// `gamma` once every `size` steps.
    Step { size: usize, gamma: f64 },
    /// `gamma` at each of these steps.
    MultiStep { milestones: Vec<usize>, gamma: f64 },
    /// `gamma` each step.
    Exponential { gamma: f64 },
    /// From `start` to `end` over `steps`, then `end`.
    Linear { start: f64, end: f64, steps: usize },
    /// `(1 - t/steps)^power`, then 0.
    Polynomial { power: f64, steps: usize },
    /// Half a cosine from 1 down to `floor`, and up again after `steps`.
    Cosine { steps: usize, floor: f64 },
    /// The same, but starting again at 1 each time, over periods that grow by `factor`.
    CosineRestarts { steps: usize, factor: usize, floor: f64 },
    /// One cycle: from `1/div` up to 1 over the first `share` of `steps`, then down to `1/(div * last)`, by cosines.
    OneCycle { steps: usize, share: f64, div: f64, last: f64 },
    /// Linear from 0 over `steps`, then the other schedule, counted from there.
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
                match x <= up {
                    true => cosine(1.0 / div, 1.0, x / up),
                    false => cosine(1.0, 1.0 / (div * last), ((x - up) / (end - up)).min(1.0)),
                }
            }
            Schedule::Warmup { steps, then } => match t < *steps {
                true => (x + 1.0) / *steps as f64,
                false => then.at(t - steps),
            },
        }
    }
}
