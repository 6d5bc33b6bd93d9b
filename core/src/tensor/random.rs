//! Random numbers from threefry2x32 with 20 rounds (Salmon et al. 2011), computed with u32 operations only, so that
//! every device draws the same bits.
//!
//! Streams follow JAX's published scheme. The key of a session is the two words of its seed; draw number `d` has the
//! key `key_d = threefry(key, (0, d))` (JAX's `fold_in`), and element `i` of a draw is the xor of both words of
//! `threefry(key_d, (0, i))`. So `rand` equals `jax.random.uniform(jax.random.fold_in(jax.random.key(seed), d))` bit
//! for bit.
//!
//! The numbers of a draw are fixed when the method is called: running a captured step again repeats them. A step that
//! must draw new numbers takes a key tensor as an input ([`Tensor::rand_bits_keyed`]), as in JAX.

use super::{Session, Tensor, check_len};
use crate::util::decimal::Shown;
use crate::{DType, Error, Result};
use std::f64::consts::{LN_2, PI};

/// The rotation distances of the rounds, from Random123.
const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
/// The constant that the third key word is made with, from Random123.
const PARITY: u32 = 0x1BD1_1BDA;

/// The threefry2x32 block function, computed on the host.
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let ks = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let mut x = [counter[0].wrapping_add(ks[0]), counter[1].wrapping_add(ks[1])];
    for round in 0..5 {
        for r in ROTATIONS[round % 2] {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(r) ^ x[0];
        }
        x[0] = x[0].wrapping_add(ks[(round + 1) % 3]);
        x[1] = x[1].wrapping_add(ks[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    x
}

impl Session {
    /// The key of the session's next draw.
    pub(crate) fn next_key(&self) -> [u32; 2] {
        let mut s = self.state();
        let key = threefry2x32([(s.seed >> 32) as u32, s.seed as u32], [0, s.draws]);
        s.draws = s.draws.wrapping_add(1);
        key
    }
}

impl Tensor {
    /// The threefry2x32 block function on tensors: `key` and `counter` are pairs of u32 tensors that broadcast.
    /// `Error::DType` for other dtypes.
    pub fn threefry(key: [&Tensor; 2], counter: [&Tensor; 2]) -> Result<[Tensor; 2]> {
        for t in key.iter().chain(&counter) {
            if t.dtype() != DType::U32 {
                return Err(Error::DType { op: "threefry", dtype: t.dtype(), why: "u32 is needed".into() });
            }
        }
        let ks = [key[0].clone(), key[1].clone(), key[0].bit_xor(key[1])?.bit_xor(PARITY)?];
        let mut x = [counter[0].add(&ks[0])?, counter[1].add(&ks[1])?];
        for round in 0..5 {
            for r in ROTATIONS[round % 2] {
                x[0] = x[0].add(&x[1])?;
                let rotated = x[1].shift_left(r)?.bit_or(x[1].shift_right(32 - r)?)?;
                x[1] = rotated.bit_xor(&x[0])?;
            }
            x[0] = x[0].add(&ks[(round + 1) % 3])?;
            x[1] = x[1].add(ks[(round + 2) % 3].add(round as i32 + 1)?)?;
        }
        Ok(x)
    }

    /// Random bits (u32) of the given shape from a key tensor (u32 of shape `[2]`); `draw` numbers the draws of one
    /// key. `Error::Value` for another kind of key.
    pub fn rand_bits_keyed(key: &Tensor, draw: u32, shape: &[usize]) -> Result<Tensor> {
        if key.shape() != [2] || key.dtype() != DType::U32 {
            return Err(Error::value("rand", format!("a key is two u32, not {key:?}")));
        }
        let words = [key.select_at(0, 0)?, key.select_at(0, 1)?];
        let zero = Tensor::full(key.session(), 0, DType::U32, &[])?;
        let draw = Tensor::full(key.session(), draw, DType::U32, &[])?;
        let folded = Tensor::threefry([&words[0], &words[1]], [&zero, &draw])?;
        Tensor::bits([&folded[0], &folded[1]], shape)
    }

    /// Random bits of the given shape from the two words of a draw's key.
    fn bits(key: [&Tensor; 2], shape: &[usize]) -> Result<Tensor> {
        let n = check_len("rand", shape)?;
        let session = key[0].session();
        let index = Tensor::iota(session, n)?.cast(DType::U32)?;
        let zero = Tensor::full(session, 0, DType::U32, &[])?;
        let [a, b] = Tensor::threefry(key, [&zero, &index])?;
        a.bit_xor(b)?.reshape(shape)
    }

    /// Random bits (u32). The key is data rather than a constant, so that all draws of the same shape share one kernel;
    /// otherwise every dropout of a training step would be a kernel of its own.
    pub fn rand_bits(session: &Session, shape: &[usize]) -> Result<Tensor> {
        let key = Tensor::new(session, &session.next_key(), &[2])?;
        Tensor::bits([&key.select_at(0, 0)?, &key.select_at(0, 1)?], shape)
    }

    /// Uniform in `[0, 1)`, f32: the top 23 bits become the mantissa.
    pub fn rand(session: &Session, shape: &[usize]) -> Result<Tensor> {
        Tensor::rand_bits(session, shape)?.bits_to_unit()
    }

    /// Uniform in `[0, 1)` from random bits (u32), f32.
    pub fn bits_to_unit(&self) -> Result<Tensor> {
        self.shift_right(9)?.bit_or(0x3F80_0000u32)?.bitcast(DType::F32)?.sub(1.0)
    }

    /// Uniform in `[0, 1)` in this tensor's shape.
    pub fn rand_like(&self) -> Result<Tensor> {
        Tensor::rand(self.session(), &self.shape())
    }

    /// Uniform in `[low, high)`, f32.
    pub fn uniform(session: &Session, low: f64, high: f64, shape: &[usize]) -> Result<Tensor> {
        Tensor::rand(session, shape)?.mul(high - low)?.add(low)
    }

    /// Normal with mean 0 and standard deviation 1, f32, by the Box-Muller transform.
    pub fn randn(session: &Session, shape: &[usize]) -> Result<Tensor> {
        let mut both = vec![2];
        both.extend_from_slice(shape);
        Tensor::rand_bits(session, &both)?.bits_to_normal()
    }

    /// Normal with mean 0 and standard deviation 1 from random bits: `[2, ..] -> [..]`, f32, by the Box-Muller
    /// transform.
    pub(crate) fn bits_to_normal(&self) -> Result<Tensor> {
        let u = self.bits_to_unit()?;
        let angle = u.select_at(0, 0)?.mul(2.0 * PI)?;
        // 1 - u lies in (0, 1], so its logarithm is finite
        let radius =
            Tensor::full(self.session(), 1, DType::F32, &[])?.sub(u.select_at(0, 1)?)?.log2()?.mul(-2.0 * LN_2)?;
        angle.cos()?.mul(radius.sqrt()?)
    }

    /// Normal with mean 0 and standard deviation 1 in this tensor's shape, f32.
    pub fn randn_like(&self) -> Result<Tensor> {
        Tensor::randn(self.session(), &self.shape())
    }

    /// Normal with the given mean and standard deviation, f32.
    pub fn normal(session: &Session, mean: f64, std: f64, shape: &[usize]) -> Result<Tensor> {
        Tensor::randn(session, shape)?.mul(std)?.add(mean)
    }

    /// Uniform integers in `low..high`, i32. `Error::Value` for an empty range.
    pub fn randint(session: &Session, low: i32, high: i32, shape: &[usize]) -> Result<Tensor> {
        if low >= high {
            return Err(Error::value("randint", format!("empty range {low}..{high}")));
        }
        let span = (high as i64 - low as i64) as u32;
        let bits = Tensor::rand_bits(session, shape)?;
        // the high word of bits * span, computed from 16-bit halves: the bias is negligible, and no modulo and no
        // 64-bit operation is needed
        let (hi, lo) = (bits.shift_right(16)?, bits.bit_and(0xFFFF)?);
        let (span_hi, span_lo) = (span >> 16, span & 0xFFFF);
        let middle = hi.mul(span_lo)?.add(lo.mul(span_lo)?.shift_right(16)?)?;
        let carry = lo.mul(span_hi)?.add(middle.bit_and(0xFFFF)?)?.shift_right(16)?;
        let high_word = hi.mul(span_hi)?.add(middle.shift_right(16)?)?.add(carry)?;
        high_word.cast(DType::I32)?.add(low)
    }

    /// Bool: true with probability `p`.
    pub fn bernoulli(session: &Session, p: f64, shape: &[usize]) -> Result<Tensor> {
        Tensor::rand(session, shape)?.lt(p)
    }

    /// A random permutation of `0..n`, i32.
    pub fn randperm(session: &Session, n: usize) -> Result<Tensor> {
        Tensor::rand_bits(session, &[n])?.argsort(0, false)
    }

    /// Uniform in `[-limit, limit)` with `limit = gain * sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio).
    /// `Error::Value` for a shape of fewer than two axes.
    pub fn xavier_uniform(session: &Session, gain: f64, shape: &[usize]) -> Result<Tensor> {
        let (fan_in, fan_out) = fans(shape)?;
        let limit = gain * (6.0 / (fan_in + fan_out)).sqrt();
        Tensor::uniform(session, -limit, limit, shape)
    }

    /// Normal with standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio). `Error::Value` for a
    /// shape of fewer than two axes.
    pub fn xavier_normal(session: &Session, gain: f64, shape: &[usize]) -> Result<Tensor> {
        let (fan_in, fan_out) = fans(shape)?;
        Tensor::normal(session, 0.0, gain * (2.0 / (fan_in + fan_out)).sqrt(), shape)
    }

    /// Uniform in `[-limit, limit)` with `limit = sqrt(6 / ((1 + a^2) fan_in))` (He et al.); `a` is the slope of the
    /// leaky relu that follows, 0 for relu; `sqrt(5)` is torch's default for linear and convolution layers.
    pub fn kaiming_uniform(session: &Session, a: f64, shape: &[usize]) -> Result<Tensor> {
        let limit = (6.0 / ((1.0 + a * a) * fans(shape)?.0)).sqrt();
        Tensor::uniform(session, -limit, limit, shape)
    }

    /// Normal with standard deviation `sqrt(2 / ((1 + a^2) fan_in))` (He et al.); `a` as for
    /// [`Tensor::kaiming_uniform`].
    pub fn kaiming_normal(session: &Session, a: f64, shape: &[usize]) -> Result<Tensor> {
        Tensor::normal(session, 0.0, (2.0 / ((1.0 + a * a) * fans(shape)?.0)).sqrt(), shape)
    }

    /// Dropout in training: zeroes elements with probability `p` and multiplies the others by `1/(1-p)`. `Error::Value`
    /// unless `p` is in [0, 1).
    pub fn dropout(&self, p: f64) -> Result<Tensor> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::value("dropout", format!("probability {} is not in [0, 1)", Shown(p))));
        }
        self.dropout_with(&Tensor::rand_bits(self.session(), &self.shape())?, p)
    }

    /// Dropout by given random bits of this tensor's shape (see [`Tensor::rand_bits_keyed`]).
    pub fn dropout_with(&self, bits: &Tensor, p: f64) -> Result<Tensor> {
        if p == 0.0 {
            return Ok(self.clone());
        }
        bits.bits_to_unit()?.ge(p)?.select(self.mul(1.0 / (1.0 - p))?, 0)
    }
}

/// `(fan_in, fan_out)` of a weight `[out, in, kernel..]`: the channels times the elements of the kernel.
fn fans(shape: &[usize]) -> Result<(f64, f64)> {
    let &[out, inp, ref kernel @ ..] = shape else {
        return Err(Error::value("init", format!("a weight of at least two axes is needed, not {shape:?}")));
    };
    let field = kernel.iter().product::<usize>() as f64;
    Ok((inp as f64 * field, out as f64 * field))
}

#[cfg(test)]
mod tests {
    use super::threefry2x32;

    /// The known answers of the Random123 distribution.
    #[test]
    fn threefry_gives_the_published_vectors() {
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b200159, 0x99ba4efe]);
        assert_eq!(threefry2x32([!0, !0], [!0, !0]), [0x1cb996fc, 0xbb002be7]);
        assert_eq!(threefry2x32([0x13198a2e, 0x03707344], [0x243f6a88, 0x85a308d3]), [0xc4923a9c, 0x483df7a0]);
    }
}
