//! Rotary position embedding (Su et al. 2021): the tables of cosines and sines by position, and their application to the
//! queries and keys of a layer.

use super::arch::RotaryPairs;
use super::err;
use super::rope::Rope;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{Session, Tensor};

/// Cosines and sines of the rotary embedding for each position. For [`RotaryPairs::Halves`] both are
/// `[capacity, width / 2]`. For [`RotaryPairs::Interleaved`] the cosines are `[capacity, width]`, one for each element,
/// and the sines `[capacity, 2 width]`: first the factors of each element's successor, then those of its predecessor.
pub(super) fn table(session: &Session, rope: &Rope, capacity: usize, pairs: RotaryPairs) -> Result<[Tensor; 2]> {
    let (mut cos, mut sin) = (Vec::new(), Vec::new());
    for at in 0..capacity {
        let angle = |s: &f32| f64::from(at as f32 * s);
        let all = rope.speeds.iter().map(angle);
        let (x, y): (Vec<f32>, Vec<f32>) =
            all.map(|a| ((a.cos() * rope.factor) as f32, (a.sin() * rope.factor) as f32)).unzip();
        match pairs {
            RotaryPairs::Halves => {
                cos.extend(x);
                sin.extend(y);
            }
            RotaryPairs::Interleaved => {
                cos.extend(x.iter().flat_map(|&x| [x, x]));
                sin.extend(y.iter().flat_map(|&y| [-y, 0.0]).chain(y.iter().flat_map(|&y| [0.0, y])));
            }
        }
    }
    let shape = |list: &[f32]| [capacity, list.len() / capacity];
    Ok([Tensor::new(session, &cos, &shape(&cos))?, Tensor::new(session, &sin, &shape(&sin))?])
}

/// Applies the rotary embedding to the first `rope.width` elements of each head: `x cos + y sin`, where y is x with the
/// elements of each pair exchanged and the first one of them negated.
pub(super) fn rotated(x: &Tensor, rotations: &[Tensor; 2], rope: &Rope, pairs: RotaryPairs) -> Result<Tensor> {
    let shape = x.shape();
    let &[heads, n, d] = &shape[..] else { return Err(err(format!("heads of shape {shape:?} are rotated"))) };
    let (width, half) = (rope.width, rope.width / 2);
    let own = x.narrow(-1, 0, width)?;
    let y = match pairs {
        RotaryPairs::Halves => {
            let own = own.reshape(&[heads, n, 2, half])?;
            let [cos, sin] = [rotations[0].reshape(&[n, 1, half])?, rotations[1].reshape(&[n, 1, half])?];
            let sign = Tensor::arange(x.session(), -1.0, 2.0, 2.0, DType::F32)?.reshape(&[2, 1])?;
            own.mul(cos)?.add(own.flip(&[-2])?.mul(sin.mul(sign)?)?)?.reshape(&[heads, n, width])?
        }
        RotaryPairs::Interleaved => {
            // The head stays one axis: split into pairs, it would be two axes, and vectors could only run
            // along one of them
            let next = own.narrow(-1, 1, width - 1)?.pad_zeros(&[(0, 0), (0, 0), (0, 1)])?;
            let last = own.narrow(-1, 0, width - 1)?.pad_zeros(&[(0, 0), (0, 0), (1, 0)])?;
            let [after, before] = [rotations[1].narrow(-1, 0, width)?, rotations[1].narrow(-1, width, width)?];
            own.mul(&rotations[0])?.add(next.mul(after)?)?.add(last.mul(before)?)?
        }
    };
    match d > width {
        true => Tensor::cat(&[&y, &x.narrow(-1, width, d - width)?], -1),
        false => Ok(y),
    }
}
