//! Integer products of quantised matrices with vectors that are rounded to integers. A vector is rounded in groups of
//! 32 elements that share a scale ([`Activations`]). Each integer is one digit or two digits to the base 256, as signed
//! bytes. The codes of the matrix are words of four neighbours along a row. `Op::DotBytes` multiplies and adds four
//! pairs of bytes at a time, exactly. Where there is no instruction for it, integers of 16 bits are multiplied as such,
//! two at a time (`Op::DotPairs`), by codes that are widened to 16 bits. Scales, and the number `code_offset` that is
//! subtracted from each code, are applied to the integer sums: with the sum of a vector's integers known,
//! `sum((code - code_offset) * x)` is `sum(code * x) - code_offset * sum(x)`.
//!
//! The graph has one expression for a part of a block, which is summed over all parts and blocks. Rows are interleaved
//! in memory, so that they become the lanes of vectors.

use super::packed::{Field, Layout, layout, shift_bits};
use super::{Kind, err};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::{Session, Tensor};

/// True if integer products are compiled in. Where they are not, every matrix uses [`Activations::F32`].
pub(super) const INTEGERS: bool = crate::target::HAS_DOTS;

/// The number format of the vectors that quantised matrices are multiplied with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Activations {
    /// f32: the matrix's elements are decoded inside the kernel that multiplies them.
    #[default]
    F32,
    /// As `F32` for a single token. For several tokens the vectors are rounded to f16, as are the decoded elements, and
    /// so are both factors of products with plain f16 and bf16 matrices: for devices whose f16 matrix multiplication is
    /// fastest.
    F16,
    /// Integers of 16 bits; 32 elements share a scale. The rounding error is at most 1/65278 of the largest magnitude
    /// among them.
    I16,
    /// The integers of `I16`, multiplied two at a time as 16 bits rather than as digits of 8, for processors without an
    /// instruction for products of bytes. Results are the same.
    I16Pairs {
        /// Are blocks computed in small parts, since the engine that translates our code keeps a long body's values on
        /// the stack ([`Machine::spills_long_bodies`](crate::target::Machine::spills_long_bodies))?
        short: bool,
        /// Are products with several vectors integers too? In Node 20, whose engine moves all loads of a loop body before
        /// its arithmetic ([`Machine::hoists_loads`](crate::target::Machine::hoists_loads)), they took 1.4 to 2 times as
        /// long as decoding the matrix and multiplying f32; in Node 24 and Chromium 148 they are faster or as fast.
        several: bool,
    },
    /// Integers of 8 bits; 32 elements share a scale, as llama.cpp rounds them.
    I8,
}

impl Activations {
    /// True if integers of 16 bits are multiplied two at a time.
    pub(super) fn is_pairs(self) -> bool {
        matches!(self, Activations::I16Pairs { .. })
    }

    /// The largest magnitude of the rounded integers. With two digits the lower one is signed as well, so the upper
    /// digit is `(q + 128) >> 8`; it fits a signed byte up to `q = 127 * 256 + 127`.
    fn max_magnitude(self) -> f64 {
        match self {
            Activations::I16 | Activations::I16Pairs { .. } => 127.0 * 256.0 + 127.0,
            _ => 127.0,
        }
    }
}

/// What a matrix of a file is used for, which decides the order of its elements in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Single rows are looked up (an embedding), so each row is contiguous.
    Rows,
    /// It is multiplied with vectors in this format.
    Product(Activations),
}

/// 1.5 * 2^23: adding it to an f32 rounds that to an integer, since f32 values from 2^23 to 2^24 have no fraction bits.
/// The sum's low mantissa bits are then the integer in two's complement; an integer of up to 21 bits does not change
/// the upper ones.
const ROUND_TO_INTEGER: f64 = 12_582_912.0;

/// Consecutive elements of a vector that share a scale.
const ELEMS_PER_SCALE: usize = 32;

/// Vectors rounded to integers: `x = scale * (words[0] + 256 * words[1])`.
struct Rounded {
    /// Words with a digit of four neighbouring elements each, `[n, elems / 4]`, the lowest digits first; a digit weighs
    /// 256 times as much as the one before it. As pairs: words with the first and third of four neighbouring elements,
    /// and words with the second and fourth, as integers of 16 bits.
    words: Vec<Tensor>,
    is_pairs: bool,
    /// One scale for each 32 elements: `[n, elems / 32]`, f32.
    scales: Tensor,
    elems: usize,
}

impl Rounded {
    /// Rounds f32 vectors `[n, elems]`. A vector with an infinity or a NaN gives NaN.
    ///
    /// # Errors
    /// `E_FORMAT` unless `elems` is a multiple of 32.
    fn of(x: &Tensor, to: Activations) -> Result<Rounded> {
        let &[n, elems] = &x.want_rank("products of words", 2)?[..] else { return Err(err("vectors of another rank")) };
        if elems % ELEMS_PER_SCALE != 0 {
            return Err(err(format!("vectors of {elems} elements as integers, each {ELEMS_PER_SCALE} with a scale")));
        }
        let x = x.contiguous().reshape(&[n, elems / ELEMS_PER_SCALE, ELEMS_PER_SCALE])?;
        let scales = x.abs()?.max(&[-1], true)?.mul(1.0 / to.max_magnitude())?.contiguous();
        let inverse = scales.gt(0.0)?.select(scales.reciprocal()?, 0.0)?;
        // The integers are far below 2^22, so adding this number rounds to an integer, whose bits are the last bits of
        // the sum. The `minimum` between the multiplication and the addition keeps devices from contracting them to one
        // fused multiply-add with a single rounding.
        let scaled = x.mul(inverse)?.minimum(to.max_magnitude())?;
        let all = scaled.add(ROUND_TO_INTEGER)?.bitcast(DType::I32)?.contiguous().reshape(&[n, elems / 4, 4])?;
        let is_pairs = to.is_pairs();
        let words = match to {
            Activations::I16Pairs { .. } => vec![pack_pairs(&all, 0)?, pack_pairs(&all, 1)?],
            // The lower digit is a signed byte too, so the upper one is rounded rather than truncated.
            Activations::I16 => vec![pack_words(&all)?, pack_words(&all.add(128)?.shift_right(8)?)?],
            _ => vec![pack_words(&all)?],
        };
        Ok(Rounded { words, is_pairs, scales: scales.squeeze(2)?, elems })
    }

    /// One number. For words of bytes it is in a buffer; graphs for another module have none that it does not know.
    fn number(&self, s: &Session, n: i32) -> Result<Tensor> {
        if self.is_pairs { Tensor::full(s, n, DType::I32, &[1]) } else { Tensor::new(s, &[n], &[1]) }
    }

    /// Sums of the integers of each `len` consecutive elements, `[n, elems / len]`, i32.
    fn sums(&self, len: usize) -> Result<Tensor> {
        let (n, s) = (self.scales.dim(0)?, self.scales.session());
        let one = if self.is_pairs { 0x0001_0001i32 } else { 0x0101_0101 };
        let (ones, zero) = (self.number(s, one)?, self.number(s, 0)?);
        let fours = match &self.words[..] {
            [first, second] if self.is_pairs => ones.dot_pairs(second, &ones.dot_pairs(first, &zero)?)?,
            digits => from_digits(digits.iter().map(|d| ones.dot_bytes(d, &zero)).collect::<Result<_>>()?)?,
        };
        fours.reshape(&[n, self.elems / len, len / 4])?.sum(&[-1], false)
    }
}

/// Packs the lowest bytes of four neighbouring integers into one word, `[n, words, 4]` to `[n, words]`.
fn pack_words(all: &Tensor) -> Result<Tensor> {
    let mut words = all.narrow(2, 0, 1)?.bit_and(255)?;
    for i in 1..4 {
        let byte = all.narrow(2, i, 1)?;
        let byte = if i < 3 { byte.bit_and(255)? } else { byte };
        words = words.bit_or(byte.shift_left(8 * i as i64)?)?;
    }
    Ok(words.squeeze(2)?.contiguous())
}

/// Packs the lowest 16 bits of the elements `from` and `from + 2` of four neighbours into one word, `[n, words, 4]` to
/// `[n, words]`.
fn pack_pairs(all: &Tensor, from: usize) -> Result<Tensor> {
    let half = |i: usize| all.narrow(2, i, 1);
    let word = half(from)?.bit_and(0xFFFF)?.bit_or(half(from + 2)?.shift_left(16)?)?;
    Ok(word.squeeze(2)?.contiguous())
}

/// The integers with these digits to the base 256, the lowest digit first.
fn from_digits(digits: Vec<Tensor>) -> Result<Tensor> {
    let mut digits = digits.into_iter().rev();
    let first = digits.next().ok_or_else(|| err("a number without digits"))?;
    digits.try_fold(first, |sum, d| sum.shift_left(8)?.add(d))
}

/// The unsigned bytes of words, each as an i32: `[r, blocks, n, rows] -> [r, blocks, 4 n, rows]`.
pub(super) fn bytes(words: &Tensor) -> Result<Tensor> {
    let s = words.shape();
    let shifts = Tensor::arange(words.session(), 0.0, 32.0, 8.0, DType::I32)?.reshape(&[4, 1])?;
    let all = words.reshape(&[s[0], s[1], s[2], 1, s[3]])?.shift_right(&shifts)?.bit_and(255)?;
    all.reshape(&[s[0], s[1], 4 * s[2], s[3]])
}

/// A quantised matrix for integer products, its blocks separated into planes whose codes are words.
pub struct IntegerMatrix {
    kind: Kind,
    activations: Activations,
    /// `[rows / group, blocks, n, group]` each: words of codes, and scales.
    planes: Vec<Tensor>,
    shape: [usize; 2],
}

/// The operands of the expression for one part of a block.
struct Part<'a> {
    of: &'a IntegerMatrix,
    layout: Layout,
    /// The number of parts of a block along the axes of [`Layout::split`].
    split: [usize; 3],
    /// The matrix's planes, `[1, rows / group, blocks, ..split, n, group]`; axes along which parts share a plane are 1.
    planes: Vec<Tensor>,
    /// The vectors' words, `[n, 1, blocks, ..split, words, 1]`.
    words: Vec<Tensor>,
    /// The vectors' scales, `[n, 1, blocks, ..split, groups, 1]`.
    scales: Tensor,
    vectors: &'a Rounded,
}

impl IntegerMatrix {
    pub(super) fn new(kind: Kind, activations: Activations, planes: Vec<Tensor>, shape: [usize; 2]) -> IntegerMatrix {
        IntegerMatrix { kind, activations, planes, shape }
    }

    /// Its shape, `[rows, cols]`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// True if products with several vectors are faster than with the decoded matrix and f32. Integers of 16 bits are
    /// not where each 16 elements have a scale, as pairs or if codes are looked up: they are added up too few at a time,
    /// and too many scales are live. Where bodies have to be short they are for blocks with nothing but a scale.
    pub fn suits_several(&self) -> bool {
        let Some(l) = layout(self.kind) else { return true };
        let per_scale = |p: usize| self.kind.block_elems() / self.planes[p].shape()[2];
        let is_short = l.scales.is_some_and(|p| per_scale(p) < ELEMS_PER_SCALE);
        let is_plain = l.scales.is_none() && l.minimum.is_none() && l.table.is_none();
        let is_small = is_plain && self.kind.block_elems() == ELEMS_PER_SCALE;
        match self.activations {
            Activations::I16Pairs { short, several } => several && !is_short && (!short || is_small),
            Activations::I16 => !is_short || l.table.is_none(),
            _ => true,
        }
    }

    /// Rounds f32 vectors `[n, cols]` and multiplies the matrix with each: `[n, rows]`, f32.
    ///
    /// # Errors
    /// `E_FORMAT` for vectors of another length.
    pub fn products(&self, x: &Tensor) -> Result<Tensor> {
        let ([rows, cols], x) = (self.shape, &Rounded::of(x, self.activations)?);
        let Some(mut layout) = layout(self.kind).filter(|_| x.elems == cols) else {
            return Err(err(format!("products of {:?} with vectors of {}", self.shape, x.elems)));
        };
        if super::planes::has_signed_codes(self.kind) {
            layout.code_offset += 128;
        }
        let n = x.scales.dim(0)?;
        let split = match self.activations {
            Activations::I16Pairs { short: true, .. } => layout.split,
            _ => [layout.split[0], 1, 1],
        };
        let planes = (0..self.planes.len()).map(|p| self.in_parts(p, &layout, split));
        let part = Part {
            planes: planes.collect::<Result<_>>()?,
            words: x.words.iter().map(|d| self.vectors_in_parts(d, split)).collect::<Result<_>>()?,
            scales: self.vectors_in_parts(&x.scales, split)?,
            vectors: x,
            of: self,
            layout,
            split,
        };
        part.sum()?.sum(&[2, 3, 4, 5], false)?.reshape(&[n, rows])
    }

    fn in_parts(&self, plane: usize, l: &Layout, split: [usize; 3]) -> Result<Tensor> {
        let fields = [Some((l.low)(0)), l.high.map(|(high, _)| high(0))];
        let steps = fields.into_iter().flatten().find(|f| f.plane == plane).map_or([0; 3], |f| f.steps);
        let (plane, mut split) = (&self.planes[plane], split);
        let s = plane.shape();
        // A plane of which parts have different bits, and a value of the whole block, are broadcast along its parts.
        (0..3).filter(|&i| steps[i] > 0).for_each(|i| split[i] = 1);
        if !s[2].is_multiple_of(split.iter().product()) {
            split = [1; 3];
        }
        reshape(plane, [1, s[0], s[1]], split, [s[2] / split.iter().product::<usize>(), s[3]])
    }

    /// Reshapes data of the vectors: `[n, count]` to `[n, 1, blocks, ..split, count / blocks / parts, 1]`.
    fn vectors_in_parts(&self, x: &Tensor, split: [usize; 3]) -> Result<Tensor> {
        let (s, blocks) = (x.shape(), self.shape[1] / self.kind.block_elems());
        reshape(x, [s[0], 1, blocks], split, [s[1] / blocks / split.iter().product::<usize>(), 1])
    }
}

impl Part<'_> {
    /// The products of one part of each block, `[n, rows / group, blocks, ..split, group]`.
    fn sum(&self) -> Result<Tensor> {
        let (l, elems) = (&self.layout, self.of.kind.block_elems() / self.split.iter().product::<usize>());
        let runs = elems / l.len;
        // Runs that share all scales are accumulated in one integer sum.
        let scales_of = |p: usize| self.planes[p].shape()[6];
        let sharing = l.scales.map_or(runs, |p| runs / scales_of(p));
        let together = sharing.min(ELEMS_PER_SCALE / l.len);
        let sums = match l.code_offset {
            0 => None,
            code_offset => {
                let sums = self.vectors.sums(l.len * together)?.mul(-i64::from(code_offset))?.contiguous();
                Some(self.of.vectors_in_parts(&sums, self.split)?)
            }
        };
        let own = at(&self.planes[0], 0)?.cast(DType::F32)?;
        let mut total: Option<Tensor> = None;
        for first in (0..runs).step_by(together) {
            let zero = self.vectors.number(own.session(), 0)?;
            let offset_sum = match &sums {
                Some(s) => at(s, first / together)?,
                None => zero.clone(),
            };
            let is_pairs = self.vectors.is_pairs;
            let mut digits = vec![zero; if is_pairs { 1 } else { self.words.len() }];
            digits[0] = offset_sum;
            // Codes in the memory order of their words; codes in the same word follow one another, so that it is loaded
            // once.
            let mut codes: Vec<(usize, usize)> =
                (first..first + together).flat_map(|t| (0..l.len / 4).map(move |j| (t, j))).collect();
            codes.sort_by_key(|&(t, j)| ((l.low)(t).at / 4 + j, t));
            for (t, j) in codes {
                let word = |words: &Tensor| at(words, t * l.len / 4 + j);
                if is_pairs {
                    for (words, code) in self.words.iter().zip(self.code_pairs(t, j)?) {
                        digits[0] = code.dot_pairs(&word(words)?, &digits[0])?;
                    }
                    continue;
                }
                let code = self.code(t, j)?;
                for (sum, words) in digits.iter_mut().zip(&self.words) {
                    *sum = code.dot_bytes(&word(words)?, sum)?;
                }
            }
            let sum = from_digits(digits)?;
            let scale = match l.scales {
                Some(p) => {
                    let scale = at(&self.planes[p], first / sharing)?.cast(DType::F32)?;
                    if p == 0 { scale } else { own.mul(scale)? }
                }
                None => own.clone(),
            };
            let shared = at(&self.scales, first * l.len / ELEMS_PER_SCALE)?;
            let y = sum.cast(DType::F32)?.mul(scale.mul(shared)?)?;
            total = Some(match total {
                Some(t) => t.add(y)?,
                None => y,
            });
        }
        let total = total.ok_or_else(|| err("a block of nothing"))?;
        let Some((p, factors)) = l.minimum else { return Ok(total) };
        // Minima are applied for each 32 elements. In ggml's formats minima with factors are subtracted, minima without
        // are added.
        let sign = if factors.is_some() { -1.0 } else { 1.0 };
        let sums =
            self.vectors.sums(ELEMS_PER_SCALE)?.cast(DType::F32)?.mul(&self.vectors.scales)?.mul(sign)?.contiguous();
        let sums = self.of.vectors_in_parts(&sums, self.split)?;
        let least = at(&self.planes[p], 0)?.cast(DType::F32)?;
        let groups = elems / ELEMS_PER_SCALE;
        let runs_of = ELEMS_PER_SCALE / l.len;
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

    /// Applies the minima of group `i` where runs are shorter than the 32 elements that share a scale of the vector.
    fn with_minima(&self, mut total: Tensor, least: &Tensor, factors: usize, i: usize) -> Result<Tensor> {
        let (l, runs) = (&self.layout, ELEMS_PER_SCALE / self.layout.len);
        let sums = self.of.vectors_in_parts(&self.vectors.sums(l.len)?.contiguous(), self.split)?;
        for t in i * runs..(i + 1) * runs {
            let least = least.mul(at(&self.planes[factors], t)?.cast(DType::F32)?)?;
            let x = at(&sums, t)?.cast(DType::F32)?.mul(at(&self.scales, i)?)?;
            total = total.sub(least.mul(x)?)?;
        }
        Ok(total)
    }

    /// Word `j` of the codes of run `t`, `[1, rows / group, blocks, ..split, group]`.
    fn code(&self, t: usize, j: usize) -> Result<Tensor> {
        let code = self.fields(t, j, 0, 0x0101_0101)?;
        self.layout.table.map_or(Ok(code.clone()), |table| code.lookup_bytes(table))
    }

    /// The codes of that word as integers of 16 bits: the first and third, and the second and fourth.
    fn code_pairs(&self, t: usize, j: usize) -> Result<[Tensor; 2]> {
        const HALVES: i64 = 0x0001_0001;
        if self.layout.table.is_some() || self.layout.high.is_some() {
            let code = self.code(t, j)?;
            return Ok([code.bit_and(255 * HALVES)?, code.shift_right(8)?.bit_and(255 * HALVES)?]);
        }
        Ok([self.fields(t, j, 0, HALVES)?, self.fields(t, j, 8, HALVES)?])
    }

    /// Shifts words that several parts read so that each part's fields are where those of the first part are.
    fn own_bits(&self, mut words: Tensor, steps: [u32; 3]) -> Result<Tensor> {
        for (axis, (&step, &n)) in steps.iter().zip(&self.split).enumerate() {
            if step > 0 && n > 1 {
                let end = f64::from(step) * n as f64;
                let by = Tensor::arange(words.session(), 0.0, end, f64::from(step), DType::I32)?;
                words = words.shift_right(by.reshape(&[&[n as i64][..], &vec![1; 3 - axis]].concat())?)?;
            }
        }
        Ok(words)
    }

    /// The bit fields of word `j` of run `t` from bit `from` of the word on, at the places that `each` has ones for.
    fn fields(&self, t: usize, j: usize, from: u32, each: i64) -> Result<Tensor> {
        // The field of each byte of the word, with its lowest bit moved to bit `to`. The whole word is shifted at once;
        // bits that cross into other bytes are removed by the mask.
        let field = |f: Field, to: u32| -> Result<Tensor> {
            let (word, shift) = if f.in_one_word { (0, f.shift + j as u32) } else { (j, f.shift) };
            let word = self.own_bits(at(&self.planes[f.plane], f.at / 4 + word)?, f.steps)?;
            let word = shift_bits(word, shift + from, to)?;
            match f.bits {
                8 if each == 0x0101_0101 => Ok(word),
                bits => word.bit_and((((1i64 << bits) - 1) << to) * each),
            }
        };
        let low = field((self.layout.low)(t), 0)?;
        match self.layout.high {
            Some((high, bits)) => low.bit_or(field(high(t), bits)?),
            None => Ok(low),
        }
    }
}

/// Reshapes to `[..first, ..split, ..last]`.
fn reshape(x: &Tensor, first: [usize; 3], split: [usize; 3], last: [usize; 2]) -> Result<Tensor> {
    x.reshape(&[&first[..], &split, &last].concat())
}

/// Element `i` along axis 6, which is removed.
fn at(x: &Tensor, i: usize) -> Result<Tensor> {
    x.narrow(6, i, 1)?.squeeze(6)
}
