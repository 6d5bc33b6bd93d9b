//! Padding and cropping at the ends of axes, in the modes of torch and ONNX.

use super::{IntoOperand, Operand, Tensor, check_axis};
use crate::{Error, Result};

/// The values that are placed outside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// The same value everywhere.
    Constant,
    /// A mirror image about the border element, which is not repeated: `c b | a b c | b a`.
    Reflect,
    /// Repetitions of the border element: `a a | a b c | c c`.
    Replicate,
    /// The elements of the other end, as if the axis were periodic: `b c | a b c | a b`.
    Circular,
}

impl Tensor {
    /// Pads axis `i` by `pairs[i] = (before, after)` elements; negative counts crop. `value` is used by
    /// [`PadMode::Constant`] only and takes this tensor's dtype. `Error::Value` for another number of pairs, for
    /// cropping more than there is, and for more padding than the mode allows (reflect: size - 1, circular: size).
    pub fn pad(&self, pairs: &[(i64, i64)], mode: PadMode, value: impl IntoOperand) -> Result<Tensor> {
        self.padded(pairs, mode, value.into_operand()?)
    }

    fn padded(&self, pairs: &[(i64, i64)], mode: PadMode, value: Operand) -> Result<Tensor> {
        let shape = self.shape();
        if pairs.len() != shape.len() {
            return Err(Error::value("pad", format!("{} pairs for shape {shape:?}", pairs.len())));
        }
        let mut t = self.clone();
        if mode != PadMode::Constant {
            for (axis, &(before, after)) in pairs.iter().enumerate() {
                t = t.pad_axis(axis, before, after, mode)?;
            }
            return Ok(t);
        }
        let mut crop = Vec::new();
        let mut grow = Vec::new();
        for (&n, &(before, after)) in shape.iter().zip(pairs) {
            let (b, e) = (before.saturating_neg().max(0), (n as i64).saturating_sub(after.saturating_neg().max(0)));
            if b > e {
                return Err(Error::value("pad", format!("{pairs:?} crops more than shape {shape:?} has")));
            }
            crop.push((b as usize, e as usize));
            grow.push((before.max(0) as usize, after.max(0) as usize));
        }
        t = t.shrink(&crop)?;
        let zero = match &value {
            Operand::Int(0) | Operand::Bool(false) => true,
            Operand::Float(f) => *f == 0.0 && f.is_sign_positive(),
            _ => false,
        };
        let padded = t.pad_zeros(&grow)?;
        if zero || grow.iter().all(|&p| p == (0, 0)) {
            return Ok(padded);
        }
        let fill = padded.full_operand(&value)?;
        let inside = Tensor::full(self.session(), true, crate::DType::Bool, &t.shape())?.pad_zeros(&grow)?;
        inside.select(padded, fill)
    }

    /// [`Tensor::pad`] of the last axes, with counts in torch's order, the last axis first:
    /// `[last_before, last_after, second_last_before, ..]`.
    pub fn pad_last(&self, pads: &[i64], mode: PadMode, value: impl IntoOperand) -> Result<Tensor> {
        let rank = self.rank();
        if pads.len() % 2 != 0 || pads.len() / 2 > rank {
            return Err(Error::value("pad", format!("{} numbers for {rank} axes", pads.len())));
        }
        let mut pairs = vec![(0, 0); rank];
        for (i, p) in pads.chunks(2).enumerate() {
            pairs[rank - 1 - i] = (p[0], p[1]);
        }
        self.pad(&pairs, mode, value)
    }

    fn pad_axis(&self, axis: usize, before: i64, after: i64, mode: PadMode) -> Result<Tensor> {
        let (before, after, t) = self.crop_axis(axis, before, after)?;
        if before == 0 && after == 0 {
            return Ok(t);
        }
        let n = t.shape()[axis];
        let a = axis as i64;
        let most = match mode {
            PadMode::Reflect => n.saturating_sub(1),
            PadMode::Circular => n,
            _ => {
                if n == 0 {
                    0
                } else {
                    usize::MAX
                }
            }
        };
        if before.max(after) > most {
            let what = format!("cannot pad axis {axis} of size {n} by ({before}, {after}) in mode {mode:?}");
            return Err(Error::value("pad", what));
        }
        let part = |start: usize, len: usize| t.narrow(a, start, len);
        let (left, right) = match mode {
            PadMode::Reflect => (part(1, before)?.flip(&[a])?, part(n - 1 - after, after)?.flip(&[a])?),
            PadMode::Circular => (part(n - before, before)?, part(0, after)?),
            _ => {
                let spread = |t: Tensor, len: usize| {
                    let mut shape = t.shape();
                    shape[axis] = len;
                    t.expand(&shape)
                };
                (spread(part(0, 1)?, before)?, spread(part(n - 1, 1)?, after)?)
            }
        };
        Tensor::cat(&[&left, &t, &right], a)
    }

    fn crop_axis(&self, axis: usize, before: i64, after: i64) -> Result<(usize, usize, Tensor)> {
        let a = check_axis("pad", axis as i64, self.rank())?;
        let n = self.shape()[a] as i64;
        let (b, e) = ((-before).max(0), n - (-after).max(0));
        if b > e {
            return Err(Error::value("pad", format!("({before}, {after}) crops more than {n}")));
        }
        let t = self.narrow(a as i64, b as usize, (e - b) as usize)?;
        Ok((before.max(0) as usize, after.max(0) as usize, t))
    }
}
