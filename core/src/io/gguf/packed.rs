//! Products of a vector and a matrix whose elements stay quantised. The codes of a block are processed in *runs*:
//! neighbouring elements whose codes lie in neighbouring bytes at the same bit offset, so that one shift by a constant
//! and one mask decode a whole vector of them. A factor that elements share (a scale, a minimum) is applied to the
//! products of a run, not to each element.

use super::blocks::{E2M1_BYTES, IQ4_BYTES, plus};
use super::words::INTEGERS;
use super::{Activations, IntegerMatrix, Kind, err};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;
use std::cmp::Ordering;

/// A quantised matrix, its blocks separated into planes.
pub struct Packed {
    kind: Kind,
    /// `[rows, blocks, n]` each, in the order of `planes::planes`; in memory rows may be interleaved.
    planes: Vec<Tensor>,
    /// True if the planes of codes are i32 words that each hold the codes of four neighbouring elements, one a byte.
    /// Codes of 8 bits are signed bytes.
    by_words: bool,
    rows: usize,
    cols: usize,
    /// The matrix in the form for integer products; then `planes` is empty.
    words: Option<IntegerMatrix>,
}

/// A bit field at the same offset in each of several consecutive bytes: the low or high bits of the codes of a run.
#[derive(Clone, Copy)]
pub(super) struct Field {
    /// Index of the plane.
    pub(super) plane: usize,
    /// Index of the first byte in the block's part of the plane.
    pub(super) at: usize,
    pub(super) shift: u32,
    pub(super) bits: u32,
    /// False for a bit field of neighbouring elements in neighbouring bytes. True if all elements of the run are in the
    /// same four bytes: each four neighbours are one bit above those before them.
    pub(super) in_one_word: bool,
    /// By how many bits the field is higher in the next part along each axis of [`Layout::split`]. Parts along an axis
    /// with a step read the same bytes; without one, each reads its own.
    pub(super) steps: [u32; 3],
}

impl Field {
    fn with_steps(self, steps: [u32; 3]) -> Field {
        Field { steps, ..self }
    }
}

/// How a block of a kind divides into runs, and how the elements of a run are computed.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Elements in a run.
    pub(super) len: usize,
    /// Into how many equal parts a block divides: into parts along the first axis, these along the second, and those
    /// along the third. The fields of the first part's runs, each higher by its [`Field::steps`] and applied to a part's
    /// slices of the planes, are the fields of every part. A product may divide a block along the first axis alone: its
    /// code is longer then and has more live values, but it reads the bytes that fields share once.
    pub(super) split: [usize; 3],
    /// The low bits (or all bits) of the codes of run `t`.
    pub(super) low: fn(usize) -> Field,
    /// The field of the remaining high bits of run `t`, and the bit position where they belong in the code.
    pub(super) high: Option<(fn(usize) -> Field, u32)>,
    /// The bytes that the codes stand for, if these are no numbers themselves.
    pub(super) table: Option<&'static [u8; 16]>,
    /// Subtracted from each code, or from each byte of the table.
    pub(super) code_offset: i32,
    /// Index of the plane with a scale factor for each run or for each few neighbouring runs, multiplied with the
    /// block's own scale. Plane 0 if there is no scale of the block itself: then these are the scales.
    pub(super) scales: Option<usize>,
    /// Indices of the plane with the block's minimum and of the plane with a factor of it for each run.
    pub(super) minimum: Option<(usize, Option<usize>)>,
}

impl Layout {
    /// The number of equal parts with bytes of their own in each plane of codes.
    fn slices(&self) -> usize {
        let is_shared = (self.low)(0).steps[0] > 0 || self.high.is_some_and(|(high, _)| high(0).steps[0] > 0);
        if is_shared { 1 } else { self.split[0] }
    }

    /// The most rows that may be interleaved, and so are multiplied at once. Where each run has its own scale there are
    /// too many live values for more rows than one vector register of 16 f32 lanes holds. Products of pairs take no more
    /// rows at once either, since a word is two operands; with more rows in memory they would read it in strides.
    pub(super) fn max_interleaved_rows(&self, activations: Activations) -> usize {
        let is_narrow = self.scales.is_some() && self.split[0] < 8 || activations.is_pairs();
        if is_narrow { 16 } else { usize::MAX }
    }
}

fn field(plane: usize, at: usize, shift: usize, bits: u32) -> Field {
    Field { plane, at, shift: shift as u32, bits, in_one_word: false, steps: [0; 3] }
}

/// The fifth bits of the codes of run `t` of 16.
fn fifth(plane: usize, t: usize) -> Field {
    Field { in_one_word: true, ..field(plane, 0, 4 * t, 1) }
}

/// What the codes of IQ3_XXS, IQ3_S, IQ2 and IQ1 stand for ([`book_codes`](super::blocks::book_codes)).
static IQ3_XXS: [u8; 16] = plus(&[4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62], 62);
static IQ3_S: [u8; 16] = plus(&[1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15], 15);
static IQ2: [u8; 16] = plus(&[8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0], 43);
static IQ1: [u8; 16] = plus(&[-7, 1, 9, 0, -9, -1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0], 9);

/// The layout of a kind's blocks; `None` unless shifts and multiplications alone decode them.
pub(super) fn layout(kind: Kind) -> Option<Layout> {
    let low: fn(usize) -> Field = |t| field(1, 0, 4 * t, 4);
    let plain =
        Layout { len: 16, split: [1, 1, 1], low, high: None, table: None, code_offset: 0, scales: None, minimum: None };
    // 16 bytes have the 4-bit codes of 32 elements; the table and each part's scale are what differs
    let fours = |parts: usize, table: &'static [u8; 16], code_offset: i32| Layout {
        split: [parts, 1, 1],
        low: |t| field(2, t / 2 * 16, t % 2 * 4, 4),
        table: Some(table),
        code_offset,
        scales: Some(1),
        ..plain
    };
    let threes = Layout {
        split: [2, 4, 1],
        low: |t| field(3, t / 8 * 32 + t % 2 * 16, t / 2 % 4 * 2, 2).with_steps([0, 2, 0]),
        high: Some((|t| field(2, t % 2 * 16, t / 2, 1).with_steps([4, 1, 0]), 2)),
        scales: Some(1),
        ..plain
    };
    let book = |table: &'static [u8; 16], code_offset: i32| Layout { table: Some(table), code_offset, ..threes };
    Some(match kind {
        Kind::Q8_0 => Layout { low: |t| field(1, 16 * t, 0, 8), ..plain },
        Kind::Q4_0 => Layout { code_offset: 8, ..plain },
        Kind::Q4_1 => Layout { low: |t| field(2, 0, 4 * t, 4), minimum: Some((1, None)), ..plain },
        Kind::Q5_0 => {
            Layout { low: |t| field(2, 0, 4 * t, 4), high: Some((|t| fifth(1, t), 4)), code_offset: 16, ..plain }
        }
        Kind::Q5_1 => Layout {
            low: |t| field(3, 0, 4 * t, 4),
            high: Some((|t| fifth(2, t), 4)),
            minimum: Some((1, None)),
            ..plain
        },
        Kind::IQ4_NL => Layout { table: Some(&IQ4_BYTES), code_offset: 127, ..plain },
        Kind::MXFP4 => Layout { table: Some(&E2M1_BYTES), code_offset: 12, ..plain },
        Kind::NVFP4 => {
            Layout { low: |t| field(1, t / 2 * 16, t % 2 * 4, 4), scales: Some(0), ..fours(2, &E2M1_BYTES, 12) }
        }
        Kind::IQ4_XS => fours(8, &IQ4_BYTES, 127),
        Kind::IQ3_XXS => fours(8, &IQ3_XXS, 62),
        Kind::IQ3_S => fours(8, &IQ3_S, 15),
        Kind::IQ2_XXS | Kind::IQ2_XS | Kind::IQ2_S => book(&IQ2, 43),
        Kind::IQ1_S | Kind::IQ1_M => book(&IQ1, 9),
        Kind::Q4_K | Kind::Q5_K => Layout {
            len: 32,
            low: match kind {
                Kind::Q4_K => |t| field(4, t / 2 * 32, t % 2 * 4, 4),
                _ => |t| field(5, t / 2 * 32, t % 2 * 4, 4).with_steps([0, 4, 0]),
            },
            split: [4, if kind == Kind::Q5_K { 2 } else { 1 }, 1],
            high: (kind == Kind::Q5_K).then_some((|t| field(4, 0, t, 1).with_steps([2, 1, 0]), 4)),
            scales: Some(2),
            minimum: Some((1, Some(3))),
            ..plain
        },
        Kind::Q2_K => Layout {
            split: [2, 4, 1],
            low: |t| field(4, t / 8 * 32 + t % 2 * 16, t / 2 % 4 * 2, 2).with_steps([0, 2, 0]),
            scales: Some(2),
            minimum: Some((1, Some(3))),
            ..plain
        },
        Kind::Q3_K => Layout { code_offset: 4, ..threes },
        Kind::Q6_K => Layout {
            split: [2, 2, 2],
            low: |t| field(3, t / 8 * 64 + t % 4 * 16, t / 4 % 2 * 4, 4).with_steps([0, 4, 0]),
            high: Some((|t| field(2, t / 8 * 32 + t % 2 * 16, t / 2 % 4 * 2, 2).with_steps([0, 4, 2]), 4)),
            code_offset: 32,
            scales: Some(1),
            ..plain
        },
        Kind::TQ1_0 | Kind::TQ2_0 => {
            let low: fn(usize) -> Field = |t| field(1, t / 4 * 32, t % 4 * 2, 2).with_steps([0, 2, 0]);
            Layout { len: 32, split: [2, 4, 1], low, code_offset: 1, ..plain }
        }
        _ => return None,
    })
}

/// True if this plane holds (bits of) the elements' codes rather than scales or minima.
pub(super) fn has_codes(kind: Kind, plane: usize) -> bool {
    layout(kind).is_some_and(|l| (l.low)(0).plane == plane || l.high.is_some_and(|h| h.0(0).plane == plane))
}

/// The run length of a plane with `n` elements per block; `n` itself for a plane that holds no codes.
pub(super) fn run_of(kind: Kind, plane: usize, n: usize) -> usize {
    let Some(l) = layout(kind) else { return n };
    if has_codes(kind, plane) && n.is_multiple_of(l.len) { l.len } else { n }
}

impl Packed {
    /// A matrix `[rows, cols]` from planes `[rows / group, blocks, n, group]`; `None` for a kind without a [`Layout`].
    pub(super) fn new(kind: Kind, shape: &[usize], planes: &[Tensor], by_words: bool) -> Result<Option<Packed>> {
        let (&[rows, cols], Some(_)) = (shape, layout(kind)) else { return Ok(None) };
        let in_rows = |p: &Tensor| {
            let s = p.shape();
            p.permute(&[0, 3, 1, 2])?.reshape(&[s[0] * s[3], s[1], s[2]])
        };
        let planes = planes.iter().map(in_rows).collect::<Result<_>>()?;
        Ok(Some(Packed { kind, planes, by_words: by_words && INTEGERS, rows, cols, words: None }))
    }

    pub(super) fn of_words(kind: Kind, words: IntegerMatrix) -> Packed {
        let [rows, cols] = words.shape();
        Packed { kind, planes: Vec::new(), by_words: true, rows, cols, words: Some(words) }
    }

    /// Always false in builds for the browser, which leave the word order out.
    fn by_words(&self) -> bool {
        INTEGERS && self.by_words
    }

    /// The form for integer products, if the matrix was loaded for them.
    pub fn words(&self) -> Option<&IntegerMatrix> {
        self.words.as_ref().filter(|_| INTEGERS)
    }

    /// Its shape, `[rows, cols]`.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// The product with one vector: f32 `[cols] -> [rows]`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        let Some(l) = layout(self.kind).filter(|_| self.words.is_none()) else {
            return Err(err("a product in floats with a matrix for products in bytes"));
        };
        if x.shape() != [self.cols] {
            return Err(err(format!("a product of {:?} with {:?}", self.shape(), x.shape())));
        }
        // In word order the parts of a block are an axis of the graph; values that the parts share are repeated for
        // each.
        let (block, parts) = (self.kind.block_elems(), if self.by_words() { l.slices() } else { 1 });
        // Codes of whole bytes in word order need no fields, so all of a block is one run.
        let n = if self.by_words() && (l.low)(0).bits == 8 { block } else { l.len };
        let (runs, all) = (block / n / parts, self.cols / block * parts);
        // In word order: an axis of words, over which threads are distributed, and an axis of the 4 codes in each.
        let (x, len) = match self.by_words() {
            true => {
                let x = x.reshape(&[1, all, runs, n / 4, 4])?.permute(&[0, 1, 3, 2, 4])?;
                (x.reshape(&[1, all * n / 4, runs, 4])?, [all * n / 4, 4])
            }
            false => (x.reshape(&[1, all, runs, n])?, [all, n]),
        };
        let x = |t: usize| x.narrow(2, t, 1)?.squeeze(2);
        let planes = self.planes.iter().map(|p| self.in_parts(p, parts)).collect::<Result<Vec<_>>>()?;
        // A value that all elements of a part share, `[rows, all, 1]`, repeated for each word in word order.
        let wide = |p: &Tensor| match self.by_words() {
            true => p.expand(&[self.rows, all, n / 4])?.reshape(&[self.rows, len[0], 1]),
            false => Ok(p.clone()),
        };
        // A plane has a factor for each run or for each few runs.
        let factor = |plane: usize, t: usize| {
            let each = planes[plane].dim(2)?;
            wide(&planes[plane].narrow(2, t * each / runs, 1)?.cast(DType::F32)?)
        };
        let own = factor(0, 0)?;
        let mut sum: Option<Tensor> = None;
        for t in 0..runs {
            let mut code = self.field(&planes, (l.low)(t), n, 0)?;
            if let Some((high, bits)) = l.high {
                code = code.bit_or(self.field(&planes, high(t), n, bits)?)?;
            }
            if let Some(table) = l.table {
                code = code.lookup_bytes(table)?.bit_and(255)?;
            }
            let x = x(t)?;
            let mut y = x.mul(code.cast(DType::F32)?)?;
            if l.code_offset != 0 {
                // `x * -code_offset` is the same for all rows: as the addend of the multiply-add it costs nothing
                // extra.
                y = y.add(x.mul(-f64::from(l.code_offset))?)?;
            }
            if let Some(p) = l.scales {
                let scale = factor(p, t)?;
                y = y.mul(if p == 0 { scale } else { own.mul(scale)? })?;
            }
            if let Some((p, factors)) = l.minimum {
                let least = wide(&planes[p].cast(DType::F32)?)?;
                // In ggml's formats minima with a factor for each run are subtracted, minima without factors are added.
                y = match factors {
                    Some(f) => y.sub(x.mul(least.mul(factor(f, t)?)?)?)?,
                    None => y.mul(&own)?.add(x.mul(least)?)?,
                };
            }
            sum = Some(match sum {
                Some(sum) => sum.add(y)?,
                None => y,
            });
        }
        let Some(mut sum) = sum else { return Err(err("a block of nothing")) };
        if l.scales.is_none() && l.minimum.is_none() {
            sum = sum.mul(own)?;
        }
        sum.sum(&[1, 2], false)
    }

    /// Divides a plane by parts, `[rows, blocks * parts, ..]`: each part gets its own elements of the block, or all of
    /// them if they do not divide (values that the whole block shares).
    fn in_parts(&self, plane: &Tensor, parts: usize) -> Result<Tensor> {
        let s = plane.shape();
        let all = s[1] * parts;
        match s[2].is_multiple_of(parts) {
            true => plane.reshape(&[s[0], all, s[2] / parts]),
            false => plane.unsqueeze(2)?.expand(&[s[0], s[1], parts, s[2]])?.reshape(&[s[0], all, s[2]]),
        }
    }

    /// The field `f` of the codes of a run, shifted so that its lowest bit is bit `to`, i32: `[rows, blocks, n]`, and
    /// `[rows, blocks * n / 4, 4]` in word order.
    fn field(&self, planes: &[Tensor], f: Field, n: usize, to: u32) -> Result<Tensor> {
        let s = planes[f.plane].session();
        // In one word each four neighbours are one bit above those before: the shift differs along this axis.
        let steps = || Tensor::arange(s, 0.0, (n / 4) as f64, 1.0, DType::I32)?.reshape(&[n as i64 / 4, 1]);
        if self.by_words() {
            let at = |from: f64, by: f64| Tensor::arange(s, from, from + 4.0 * by, by, DType::I32);
            let bytes = at(f64::from(f.shift), 8.0)?;
            let code = match f.in_one_word {
                true => {
                    let words = planes[f.plane].narrow(2, f.at / 4, 1)?.unsqueeze(-1)?;
                    words.shift_right(steps()?.add(&bytes)?)?.flatten(1, 2)?
                }
                false => {
                    let words = planes[f.plane].narrow(2, f.at / 4, n / 4)?.flatten(1, 2)?.unsqueeze(-1)?;
                    if f.bits == 8 {
                        return words.shift_left(at(24.0, -8.0)?)?.shift_right(24);
                    }
                    words.shift_right(&bytes)?
                }
            };
            return shift_bits(code.bit_and((1i64 << f.bits) - 1)?, 0, to);
        }
        if f.in_one_word {
            let bytes = planes[f.plane].narrow(2, f.at, 4)?.cast(DType::I32)?.unsqueeze(2)?;
            let bits = bytes.shift_right(steps()?.add(i64::from(f.shift))?)?.flatten(2, 3)?;
            return shift_bits(bits.bit_and((1i64 << f.bits) - 1)?, 0, to);
        }
        let code = shift_bits(planes[f.plane].narrow(2, f.at, n)?.cast(DType::I32)?, f.shift, to)?;
        match f.shift + f.bits == 8 && to == 0 {
            true => Ok(code),
            false => code.bit_and(((1i64 << f.bits) - 1) << to),
        }
    }
}

/// Shifts integers so that bit `from` becomes bit `to`.
pub(super) fn shift_bits(x: Tensor, from: u32, to: u32) -> Result<Tensor> {
    match from.cmp(&to) {
        Ordering::Greater => x.shift_right(i64::from(from - to)),
        Ordering::Equal => Ok(x),
        Ordering::Less => x.shift_left(i64::from(to - from)),
    }
}
