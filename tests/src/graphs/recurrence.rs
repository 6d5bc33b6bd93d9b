//! Recurrences in random programs: steps as in an RNN, with products, sums along an axis and masks, on one or two states.
//! Integers wrap and are exact; floats stay between -1 and 1, and so does what they are multiplied with.

use super::ops::{Cx, Value, no, unit};
use gradloom_core::{DType, Result, Tensor};

/// The most steps.
const MOST_STEPS: usize = 9;

/// The operands are sequences, initial values, and what does not change.
pub(super) fn recurrence(c: &mut Cx<'_>) -> Result<Value> {
    let c = c.exact()?;
    let (x, y, z) = (c.x(), c.y(), c.z());
    let dt = if x.t.dtype() == DType::Bool { DType::I32 } else { x.t.dtype() };
    let narrow = dt.is_float() && dt.size() == 2;
    let truncated = dt.is_int() && (y.t.dtype().is_float() || z.t.dtype().is_float());
    if x.wild || y.wild || z.wild || narrow || truncated {
        return no();
    }
    let (steps, rows, len) = (c.r.below(MOST_STEPS + 1), 1 + c.r.below(3), 1 + c.r.below(12));
    let (states, sequences) = (1 + c.r.below(2), 1 + c.r.below(2));
    let state = if c.r.once_in(3) { vec![len] } else { vec![rows, len] };
    let mut all = state.clone();
    all.insert(0, steps);
    let part = |c: &mut Cx<'_>, of: &Tensor, shape: &[usize]| small(&c.fit(of, shape)?.expand(shape)?.cast(dt)?);
    let mut xs = vec![part(c, &x.t, &all)?];
    if sequences == 2 {
        xs.push(part(c, &z.t, &all)?);
    }
    let mut initial = vec![part(c, &y.t, &state)?];
    if states == 2 {
        initial.push(part(c, &x.t, &state)?);
    }
    let mut weights = part(c, &z.t, &[len, len])?;
    if dt.is_float() {
        weights = weights.mul(1.0 / len as f64)?;
    }
    let kinds: Vec<[usize; 3]> = (0..states).map(|_| [c.r.below(6), c.r.below(6), c.r.below(4)]).collect();
    let step = |h: &[Tensor], x: &[Tensor]| {
        let value = |i: usize, kind: usize| {
            let (own, other, now) = (&h[i], &h[(i + 1) % h.len()], &x[i % x.len()]);
            match kind {
                0 => rows_by(own, &weights),
                1 => rows_by(other, &weights),
                2 => along(own, |h| h.max(&[-1], true)),
                // not of floats, whose rounding decides
                3 if dt.is_int() => other.lt(now)?.select(own, &now.neg()?),
                4 => rows_by(now, &weights)?.maximum(&along(other, |h| h.min(&[-1], true))?),
                _ => other.flip(&[-1]),
            }
        };
        let next = |i: usize| {
            let [a, b, how] = kinds[i];
            let (a, b) = (value(i, a)?, value(i, b)?);
            let joined = match how {
                0 => a.add(&x[0])?.maximum(&b),
                1 => a.sub(&b)?.add(&x[0]),
                2 if dt.is_int() => a.mul(&b)?.add(&x[x.len() - 1]),
                _ => a.minimum(&b)?.add(&h[i]),
            }?;
            small(&joined)
        };
        (0..h.len()).map(next).collect()
    };
    let done = Tensor::recurrence(&initial.iter().collect::<Vec<_>>(), &xs.iter().collect::<Vec<_>>(), step)?;
    let which = &done[c.r.below(states)];
    let t = match c.r.below(4) {
        0 => which.last.clone(),
        1 if steps > 0 => which.after.sub(&which.last)?,
        2 => done[0].last.add(&done[states - 1].last)?,
        _ => which.after.clone(),
    };
    let mut v = c.of(t);
    if dt.is_float() {
        // a step rounds sums of products, and adds up two values that are off by as much as the states
        (v.scale, v.rounding) = (4.0, 2f64.powi(steps as i32 + 2) * (len + 6) as f64 * unit(dt));
    }
    Ok(v)
}

/// Floats are cut to what is between -1 and 1.
fn small(x: &Tensor) -> Result<Tensor> {
    if x.dtype().is_float() { x.maximum(-1.0)?.minimum(1.0) } else { Ok(x.clone()) }
}

/// Each row times a matrix.
fn rows_by(x: &Tensor, weights: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    let (rows, len) = (x.numel() / shape[shape.len() - 1], shape[shape.len() - 1]);
    x.reshape(&[rows, len])?.matmul(weights)?.reshape(&shape)
}

/// A reduction of the last axis, in each element that it was computed from.
fn along(x: &Tensor, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    f(x)?.expand(&x.shape())
}
