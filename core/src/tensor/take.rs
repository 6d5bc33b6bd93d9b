//! Elements of an axis at positions that are known when the graph is built. What the positions have in common decides
//! how they are taken: as a view, by index arithmetic, or from a table.

use super::{Tensor, check_axis};
use crate::Result;

impl Tensor {
    /// The elements of an axis at these positions, which must lie on it: `[a, n, b]` gives `[a, at.len(), b]`.
    pub(crate) fn take_at(&self, axis: i64, at: &[usize]) -> Result<Tensor> {
        let a = check_axis("take_at", axis, self.rank())?;
        let n = self.shape()[a];
        if at.len() == n && at.iter().enumerate().all(|(i, &v)| i == v) {
            return Ok(self.clone());
        }
        // repeating every element equally often is a view
        let times = at.len() / n.max(1);
        if times > 0 && at.len() == n * times && at.iter().enumerate().all(|(i, &v)| i / times == v) {
            return self.repeat_interleave(times, axis);
        }
        let line = match Progression::of(at, n) {
            Some(p) => {
                Tensor::iota(self.session(), at.len())?.mul(p.step)?.add(p.start)?.shift_right(i64::from(p.shift))?
            }
            None => {
                let table: Vec<i32> = at.iter().map(|&i| i as i32).collect();
                Tensor::new(self.session(), &table, &[at.len()])?
            }
        };
        let (mut spread, mut full) = (vec![1; self.rank()], self.shape());
        (spread[a], full[a]) = (at.len(), at.len());
        // the limits are where the compiler sees that no position is outside, so that no load needs a condition
        let index = line.clamp(0, n as i64 - 1)?.reshape(&spread.iter().map(|&d| d as i64).collect::<Vec<_>>())?;
        self.gather_node(a, &index.expand(&full)?)
    }
}

/// Positions `(i*step + start) >> shift`, limited to the axis, as resizing by powers of two has them. Other divisors
/// are left to tables: a division is dearer than a load, and not every processor divides vectors.
#[derive(Debug, PartialEq)]
struct Progression {
    step: i64,
    start: i64,
    shift: u32,
}

impl Progression {
    /// The positions on an axis of `n` elements as a progression, if they are one. Their mean distance must be the
    /// ratio of both lengths.
    fn of(at: &[usize], n: usize) -> Option<Progression> {
        /// The most by which an axis grows.
        const MAX_SHIFT: u32 = 6;
        let to = at.len();
        if to < 2 || n == 0 || to.checked_mul(n)? > 1 << 30 {
            return None;
        }
        // the ratio with one more binary digit, since centres of pixels lie half-way between their borders
        let shift = (0..MAX_SHIFT).find(|&s| (n << s).is_multiple_of(to))? + 1;
        let (step, last) = (((n << shift) / to) as i64, n as i64 - 1);
        // each position limits the start to an interval
        let (mut low, mut high) = (-(last << shift), last << shift);
        for (i, &v) in at.iter().enumerate() {
            let (begin, v) = (i as i64 * step, v as i64);
            if v > 0 {
                low = low.max((v << shift) - begin);
            }
            if v < last {
                high = high.min(((v + 1) << shift) - 1 - begin);
            }
        }
        let digits = (step | low).trailing_zeros().min(shift);
        (low <= high).then_some(Progression { step: step >> digits, start: low >> digits, shift: shift - digits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(n: usize, to: usize, at: impl Fn(f64) -> f64) -> (Vec<usize>, Option<Progression>) {
        let limited = |i: usize| at((i as f64 + 0.5) * n as f64 / to as f64 - 0.5).clamp(0.0, n as f64 - 1.0) as usize;
        let list: Vec<usize> = (0..to).map(limited).collect();
        let found = Progression::of(&list, n);
        (list, found)
    }

    #[test]
    fn resizing_by_powers_of_two_is_a_progression() {
        for (n, to) in [(7, 14), (5, 20), (8, 4), (64, 8), (3, 24), (6, 9), (9, 6), (2, 64)] {
            for tap in [0.0, 1.0, -1.0, 2.0] {
                let (list, found) = of(n, to, |x| x.floor() + tap);
                let Some(p) = found else {
                    assert!(!(n * 64).is_multiple_of(to), "{n} to {to}, tap {tap}: {list:?}");
                    continue;
                };
                let value = |i: usize| ((i as i64 * p.step + p.start) >> p.shift).clamp(0, n as i64 - 1);
                assert!(list.iter().enumerate().all(|(i, &v)| value(i) == v as i64), "{n} to {to}: {list:?}, {p:?}");
            }
        }
    }

    #[test]
    fn other_lists_are_none() {
        assert_eq!(Progression::of(&[0, 2, 1, 3, 0, 1, 2, 3], 4), None);
        assert_eq!(Progression::of(&[], 4), None);
        assert_eq!(Progression::of(&[3], 0), None);
        assert_eq!(Progression::of(&[0, 1, 2, 3, 4, 5, 6], 3), None);
    }
}
