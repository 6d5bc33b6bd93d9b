//! Products of matrices in blocks with rounded vectors. A vector is rounded to integers, 32 of them with a scale in common
//! ([`Activations`]), and these are one digit or two of signed bytes; codes of a matrix are words of four neighbours along a row, which
//! are multiplied and added up four at a time (`Op::DotBytes`), exactly. Scales, and what is taken from each code, are applied to such
//! sums: with the sum of a vector's integers known, `sum((code - less) * x)` is `sum(code * x) - less * sum(x)`.
//!
//! The graph has one expression for a part of a block, which is summed over all of them. Rows lie side by side, so that they
//! are the lanes of vectors.

use super::packed::{Field, Layout, layout, moved};
use super::{Kind, err};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Are there integer products? Pages have none, and none of this: there [`Activations::F32`] is meant always.
pub(super) const INTEGERS: bool = cfg!(any(test, feature = "integers"));

/// What quantised matrices are multiplied with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Activations {
    /// Floats: elements are made of the blocks where they are multiplied.
    #[default]
    F32,
    /// The same for one token. Several are rounded to f16, as are the elements of the blocks, and so are factors of plain matrices of f16
    /// and bf16: for devices that multiply these quickest.
    F16,
    /// Integers of 16 bits, 32 with a scale: what rounding changes is in the last digits of an f32's half.
    I16,
    /// Integers of 8 bits, 32 with a scale, as llama.cpp rounds them.
    I8,
}

impl Activations {
    /// The largest integer: of two digits one whose upper digit is a signed byte, whatever the lower one is.
    fn most(self) -> f64 {
        match self {
            Activations::I16 => 127.0 * 256.0 + 127.0,
            _ => 127.0,
        }
    }
}

/// What a matrix of a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Its rows are taken, so each lies together.
    Rows,
    /// It is multiplied with such activations.
    Product(Activations),
}

/// What is above it, up to twice 2^23, has no digits behind the point as an f32, and no integer of 21 bits changes its upper bits.
const ROUNDS: f64 = 12_582_912.0;

/// Neighbours that have a scale in common.
const SHARED: usize = 32;

/// Vectors rounded to integers.
struct Rounded {
    /// Digits of four neighbours each, `[n, elems / 4]`, the lowest first: each is 256 of the one before.
    digits: Vec<Tensor>,
    /// `[n, elems / 32]`, f32.
    scales: Tensor,
    elems: usize,
}

impl Rounded {
    /// Vectors `[n, elems]`, f32, each 32 of which are integers times a scale. A vector with an infinity or a NaN gives NaN.
    ///
    /// # Errors
    /// `E_MODEL` unless 32 divides their length.
    fn of(x: &Tensor, to: Activations) -> Result<Rounded> {
        let &[n, elems] = &x.want_rank("products of words", 2)?[..] else { return Err(err("vectors of another rank")) };
        if elems % SHARED != 0 {
            return Err(err(format!("vectors of {elems} elements as integers, each {SHARED} with a scale")));
        }
        let x = x.contiguous().reshape(&[n, elems / SHARED, SHARED])?;
        let scales = x.abs()?.max(&[-1], true)?.mul(1.0 / to.most())?.contiguous();
        let turns = scales.gt(0.0)?.select(scales.reciprocal()?, 0.0)?;
        // No integer is near 2^22, so the sum with this number is rounded to a whole one, whose last bits are the integer's. The least of
        // two stands between product and sum, so that no device rounds both at once.
        let turned = x.mul(turns)?.minimum(to.most())?;
        let all = turned.add(ROUNDS)?.bitcast(DType::I32)?.contiguous().reshape(&[n, elems / 4, 4])?;
        let mut digits = vec![words(&all)?];
        if to == Activations::I16 {
            // the lower digit is signed too
            digits.push(words(&all.add(128)?.shift_right(8)?)?);
        }
        Ok(Rounded { digits, scales: scales.squeeze(2)?, elems })
    }

    /// Sums of each `len` integers, `[n, elems / len]`, i32.
    fn sums(&self, len: usize) -> Result<Tensor> {
        let (n, s) = (self.scales.dim(0)?, self.scales.session());
        let (ones, zero) = (Tensor::new(s, &[0x0101_0101i32], &[1])?, Tensor::new(s, &[0i32], &[1])?);
        let fours = self.digits.iter().map(|d| ones.dot_bytes(d, &zero)).collect::<Result<Vec<_>>>()?;
        whole(fours)?.reshape(&[n, self.elems / len, len / 4])?.sum(&[-1], false)
    }
}

/// Four neighbours' lowest bytes as words, `[n, words, 4]` to `[n, words]`.
fn words(all: &Tensor) -> Result<Tensor> {
    let mut words = all.narrow(2, 0, 1)?.bit_and(255)?;
    for i in 1..4 {
        let byte = all.narrow(2, i, 1)?;
        let byte = if i < 3 { byte.bit_and(255)? } else { byte };
        words = words.bit_or(byte.shift_left(8 * i as i64)?)?;
    }
    Ok(words.squeeze(2)?.contiguous())
}

/// What digits are together, the lowest first.
fn whole(digits: Vec<Tensor>) -> Result<Tensor> {
    let mut digits = digits.into_iter().rev();
    let first = digits.next().ok_or_else(|| err("a number without digits"))?;
    digits.try_fold(first, |sum, d| sum.shift_left(8)?.add(d))
}

/// The bytes of words `[r, blocks, n, rows]`, unsigned: `[r, blocks, 4 n, rows]`, i32.
pub(super) fn bytes(words: &Tensor) -> Result<Tensor> {
    let s = words.shape();
    let shifts = Tensor::arange(words.session(), 0.0, 32.0, 8.0, DType::I32)?.reshape(&[4, 1])?;
    let all = words.reshape(&[s[0], s[1], s[2], 1, s[3]])?.shift_right(&shifts)?.bit_and(255)?;
    all.reshape(&[s[0], s[1], 4 * s[2], s[3]])
}

/// A matrix in blocks, sorted into planes of words.
pub struct Words {
    kind: Kind,
    activations: Activations,
    /// `[rows / group, blocks, n, group]`: words of codes, and scales.
    planes: Vec<Tensor>,
    shape: [usize; 2],
}

/// What the expression for a part of a block is made of.
struct Part<'a> {
    of: &'a Words,
    layout: Layout,
    /// `[1, rows / group, blocks, parts, n, group]`.
    planes: Vec<Tensor>,
    /// `[n, 1, blocks, parts, words, 1]`.
    digits: Vec<Tensor>,
    /// `[n, 1, blocks, parts, groups, 1]`.
    scales: Tensor,
    vectors: &'a Rounded,
}

impl Words {
    pub(super) fn new(kind: Kind, activations: Activations, planes: Vec<Tensor>, shape: [usize; 2]) -> Words {
        Words { kind, activations, planes, shape }
    }

    /// Its shape, `[rows, cols]`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Products of the rows with vectors `[n, cols]`, f32, which are rounded: `[n, rows]`, f32.
    ///
    /// # Errors
    /// `E_MODEL` for vectors of another length.
    pub fn products(&self, x: &Tensor) -> Result<Tensor> {
        let ([rows, cols], x) = (self.shape, &Rounded::of(x, self.activations)?);
        let Some(mut layout) = layout(self.kind).filter(|_| x.elems == cols) else {
            return Err(err(format!("products of {:?} with vectors of {}", self.shape, x.elems)));
        };
        if super::planes::moved(self.kind) {
            layout.less += 128;
        }
        let n = x.scales.dim(0)?;
        let part = Part {
            planes: self.planes.iter().map(|p| self.in_parts(p, layout.parts)).collect::<Result<_>>()?,
            digits: x.digits.iter().map(|d| self.vectors_in_parts(d, layout.parts)).collect::<Result<_>>()?,
            scales: self.vectors_in_parts(&x.scales, layout.parts)?,
            vectors: x,
            of: self,
            layout,
        };
        part.sum()?.sum(&[2, 3], false)?.reshape(&[n, rows])
    }

    fn in_parts(&self, plane: &Tensor, parts: usize) -> Result<Tensor> {
        let s = plane.shape();
        match s[2].is_multiple_of(parts) {
            true => plane.reshape(&[1, s[0], s[1], parts, s[2] / parts, s[3]]),
            // the block's own
            false => plane.reshape(&[1, s[0], s[1], 1, s[2], s[3]]),
        }
    }

    /// `[n, count]` to `[n, 1, blocks, parts, count / blocks / parts, 1]`.
    fn vectors_in_parts(&self, x: &Tensor, parts: usize) -> Result<Tensor> {
        let (s, blocks) = (x.shape(), self.shape[1] / self.kind.block_elems());
        x.reshape(&[s[0], 1, blocks, parts, s[1] / blocks / parts, 1])
    }
}

impl Part<'_> {
    /// Products of a part, `[n, rows / group, blocks, parts, group]`.
    fn sum(&self) -> Result<Tensor> {
        let (l, block) = (&self.layout, self.of.kind.block_elems());
        let runs = block / l.len / l.parts;
        // runs with one scale are one sum
        let together = if l.scales.is_some() { 1 } else { SHARED / l.len };
        let sums = match l.less {
            0 => None,
            less => {
                let sums = self.vectors.sums(l.len * together)?.mul(-i64::from(less))?.contiguous();
                Some(self.of.vectors_in_parts(&sums, l.parts)?)
            }
        };
        let own = at(&self.planes[0], 0)?.cast(DType::F32)?;
        let mut total: Option<Tensor> = None;
        for first in (0..runs).step_by(together) {
            let zero = Tensor::new(own.session(), &[0i32], &[1])?;
            let less = match &sums {
                Some(s) => at(s, first / together)?,
                None => zero.clone(),
            };
            let mut digits = vec![zero; self.digits.len()];
            digits[0] = less;
            // words in the order of memory, and what lies in one word one after the other
            let mut codes: Vec<(usize, usize)> =
                (first..first + together).flat_map(|t| (0..l.len / 4).map(move |j| (t, j))).collect();
            codes.sort_by_key(|&(t, j)| ((l.low)(t).at / 4 + j, t));
            for (t, j) in codes {
                let code = self.code(t, j)?;
                for (sum, words) in digits.iter_mut().zip(&self.digits) {
                    *sum = code.dot_bytes(&at(words, t * l.len / 4 + j)?, sum)?;
                }
            }
            let sum = whole(digits)?;
            let scale = match l.scales {
                Some(p) => own.mul(at(&self.planes[p], first)?.cast(DType::F32)?)?,
                None => own.clone(),
            };
            let shared = at(&self.scales, first * l.len / SHARED)?;
            let y = sum.cast(DType::F32)?.mul(scale.mul(shared)?)?;
            total = Some(match total {
                Some(t) => t.add(y)?,
                None => y,
            });
        }
        let total = total.ok_or_else(|| err("a block of nothing"))?;
        let Some((p, factors)) = l.minimum else { return Ok(total) };
        // minima of each 32: ggml takes away those that have factors, and adds those that have none
        let sign = if factors.is_some() { -1.0 } else { 1.0 };
        let sums = self.vectors.sums(SHARED)?.cast(DType::F32)?.mul(&self.vectors.scales)?.mul(sign)?.contiguous();
        let sums = self.of.vectors_in_parts(&sums, l.parts)?;
        let least = at(&self.planes[p], 0)?.cast(DType::F32)?;
        let groups = block / l.parts / SHARED;
        let runs_of = SHARED / l.len;
        let mut total = total;
        for i in 0..groups {
            total = match (factors, runs_of) {
                (Some(f), 1) => total.add(least.mul(at(&self.planes[f], i)?.cast(DType::F32)?)?.mul(at(&sums, i)?)?)?,
                (Some(f), _) => self.with_minima(total, &least, f, i)?,
                (None, _) => total.add(least.mul(at(&sums, i)?)?)?,
            };
        }
        Ok(total)
    }

    /// Minima of runs that are shorter than what has a scale in common.
    fn with_minima(&self, mut total: Tensor, least: &Tensor, factors: usize, i: usize) -> Result<Tensor> {
        let (l, runs) = (&self.layout, SHARED / self.layout.len);
        let sums = self.of.vectors_in_parts(&self.vectors.sums(l.len)?.contiguous(), l.parts)?;
        for t in i * runs..(i + 1) * runs {
            let least = least.mul(at(&self.planes[factors], t)?.cast(DType::F32)?)?;
            let x = at(&sums, t)?.cast(DType::F32)?.mul(at(&self.scales, i)?)?;
            total = total.sub(least.mul(x)?)?;
        }
        Ok(total)
    }

    /// Word `j` of the codes of run `t`, `[1, rows / group, blocks, parts, group]`.
    fn code(&self, t: usize, j: usize) -> Result<Tensor> {
        // a field of each byte, `to` bits from its end: bits go there at once, over those of other bytes, which the mask leaves out
        let field = |f: Field, to: u32| -> Result<Tensor> {
            let word = moved(at(&self.planes[f.plane], f.at / 4 + j)?, f.shift, to)?;
            match f.bits {
                8 => Ok(word),
                bits => word.bit_and((((1i64 << bits) - 1) << to) * 0x0101_0101),
            }
        };
        let low = field((self.layout.low)(t), 0)?;
        match self.layout.high {
            Some((high, bits)) => low.bit_or(field(high(t), bits)?),
            None => Ok(low),
        }
    }
}

/// What a part has at a place, without the axis of places.
fn at(x: &Tensor, i: usize) -> Result<Tensor> {
    x.narrow(4, i, 1)?.squeeze(4)
}
