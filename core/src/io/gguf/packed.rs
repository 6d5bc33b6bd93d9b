//! Products of a vector and a matrix whose elements stay in blocks. The codes of a block are taken in *runs*: neighbours that lie in
//! neighbouring bytes at the same bits, so that a shift by a constant and a mask make vectors of them. What elements have in
//! common (a scale, a minimum) is applied to a run's products, not to each element.

use super::words::INTEGERS;
use super::{Kind, Words, err};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;
use std::cmp::Ordering;

/// A matrix in blocks, sorted into planes.
pub struct Packed {
    kind: Kind,
    /// `[rows, blocks, n]`, as `planes::planes` lists them; in memory rows may be interleaved.
    planes: Vec<Tensor>,
    /// Codes are words of four neighbours, signed bytes where they are of 8 bits.
    by_words: bool,
    rows: usize,
    cols: usize,
    /// Codes as words, for products in bytes; then there are no planes.
    words: Option<Words>,
}

/// Bits of bytes that lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) plane: usize,
    /// The first byte.
    pub(super) at: usize,
    pub(super) shift: u32,
    pub(super) bits: u32,
}

/// How the runs of a block are made.
pub(super) struct Layout {
    /// Elements of a run.
    pub(super) len: usize,
    /// Parts of a block that are made alike: the runs of the first one say where those of the others are.
    pub(super) parts: usize,
    /// The bits of run `t`.
    pub(super) low: fn(usize) -> Field,
    /// Bits above these, and where they go.
    pub(super) high: Option<(fn(usize) -> Field, u32)>,
    /// What is taken from each code.
    pub(super) less: i32,
    /// Planes of factors for each run, which are multiplied with the block's own.
    pub(super) scales: Option<usize>,
    /// Planes of the block's minimum and of factors of it for each run.
    pub(super) minimum: Option<(usize, Option<usize>)>,
}

impl Layout {
    /// Rows that are multiplied at once: of blocks in which each run has a scale there is too much to hold for more than a register's.
    pub(super) fn most_rows(&self) -> usize {
        if self.scales.is_some() { 16 } else { usize::MAX }
    }
}

fn field(plane: usize, at: usize, shift: usize, bits: u32) -> Field {
    Field { plane, at, shift: shift as u32, bits }
}

/// How a kind's elements are made, if by shifts and products alone.
pub(super) fn layout(kind: Kind) -> Option<Layout> {
    let low: fn(usize) -> Field = |t| field(1, 0, 4 * t, 4);
    let plain = Layout { len: 16, parts: 1, low, high: None, less: 0, scales: None, minimum: None };
    Some(match kind {
        Kind::Q8_0 => Layout { low: |t| field(1, 16 * t, 0, 8), ..plain },
        Kind::Q4_0 => Layout { less: 8, ..plain },
        Kind::Q4_1 => Layout { low: |t| field(2, 0, 4 * t, 4), minimum: Some((1, None)), ..plain },
        Kind::Q4_K | Kind::Q5_K => Layout {
            len: 32,
            parts: if kind == Kind::Q4_K { 4 } else { 1 },
            low: match kind {
                Kind::Q4_K => |t| field(4, t / 2 * 32, t % 2 * 4, 4),
                _ => |t| field(5, t / 2 * 32, t % 2 * 4, 4),
            },
            high: (kind == Kind::Q5_K).then_some((|t| field(4, 0, t, 1), 4)),
            scales: Some(2),
            minimum: Some((1, Some(3))),
            ..plain
        },
        Kind::Q2_K => Layout {
            parts: 2,
            low: |t| field(4, t / 8 * 32 + t % 2 * 16, t / 2 % 4 * 2, 2),
            scales: Some(2),
            minimum: Some((1, Some(3))),
            ..plain
        },
        Kind::Q3_K => Layout {
            low: |t| field(3, t / 8 * 32 + t % 2 * 16, t / 2 % 4 * 2, 2),
            high: Some((|t| field(2, t % 2 * 16, t / 2, 1), 2)),
            less: 4,
            scales: Some(1),
            ..plain
        },
        Kind::Q6_K => Layout {
            parts: 2,
            low: |t| field(3, t / 8 * 64 + t % 4 * 16, t / 4 % 2 * 4, 4),
            high: Some((|t| field(2, t / 8 * 32 + t % 2 * 16, t / 2 % 4 * 2, 2), 4)),
            less: 32,
            scales: Some(1),
            ..plain
        },
        Kind::TQ2_0 => Layout { len: 32, parts: 2, low: |t| field(1, t / 4 * 32, t % 4 * 2, 2), less: 1, ..plain },
        _ => return None,
    })
}

/// Does a plane hold codes?
pub(super) fn has_codes(kind: Kind, plane: usize) -> bool {
    layout(kind).is_some_and(|l| (l.low)(0).plane == plane || l.high.is_some_and(|h| h.0(0).plane == plane))
}

/// Elements of the runs into which a plane of `n` elements a block falls: all of them if it holds no codes.
pub(super) fn run_of(kind: Kind, plane: usize, n: usize) -> usize {
    let Some(l) = layout(kind) else { return n };
    if has_codes(kind, plane) && n.is_multiple_of(l.len) { l.len } else { n }
}

impl Packed {
    /// A matrix `[rows, cols]` of planes `[rows / group, blocks, n, group]`; none for a kind whose elements are not made by shifts and
    /// products.
    pub(super) fn new(kind: Kind, shape: &[usize], planes: &[Tensor], by_words: bool) -> Result<Option<Packed>> {
        let (&[rows, cols], Some(_)) = (shape, layout(kind)) else { return Ok(None) };
        let in_rows = |p: &Tensor| {
            let s = p.shape();
            p.permute(&[0, 3, 1, 2])?.reshape(&[s[0] * s[3], s[1], s[2]])
        };
        let planes = planes.iter().map(in_rows).collect::<Result<_>>()?;
        Ok(Some(Packed { kind, planes, by_words: by_words && INTEGERS, rows, cols, words: None }))
    }

    pub(super) fn of_words(kind: Kind, words: Words) -> Packed {
        let [rows, cols] = words.shape();
        Packed { kind, planes: Vec::new(), by_words: true, rows, cols, words: Some(words) }
    }

    /// Pages have no such codes.
    fn by_words(&self) -> bool {
        INTEGERS && self.by_words
    }

    /// Its products with vectors of bytes, if it was made for them.
    pub fn words(&self) -> Option<&Words> {
        self.words.as_ref().filter(|_| INTEGERS)
    }

    /// Its shape, `[rows, cols]`.
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// Its product with a vector `[cols]`, f32: `[rows]`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor> {
        let Some(l) = layout(self.kind).filter(|_| self.words.is_none()) else {
            return Err(err("a product in floats with a matrix for products in bytes"));
        };
        if x.shape() != [self.cols] {
            return Err(err(format!("a product of {:?} with {:?}", self.shape(), x.shape())));
        }
        // parts side by side, so that what all have in common comes again for each
        let (block, parts) = (self.kind.block_elems(), if self.by_words() { l.parts } else { 1 });
        // whole bytes are one run of a block
        let n = if self.by_words() && (l.low)(0).bits == 8 { block } else { l.len };
        let (runs, all) = (block / n / parts, self.cols / block * parts);
        // an axis of words, which threads go along, and the codes in each
        let (x, len) = match self.by_words() {
            true => {
                let x = x.reshape(&[1, all, runs, n / 4, 4])?.permute(&[0, 1, 3, 2, 4])?;
                (x.reshape(&[1, all * n / 4, runs, 4])?, [all * n / 4, 4])
            }
            false => (x.reshape(&[1, all, runs, n])?, [all, n]),
        };
        let x = |t: usize| x.narrow(2, t, 1)?.squeeze(2);
        let planes = self.planes.iter().map(|p| self.in_parts(p, parts)).collect::<Result<Vec<_>>>()?;
        // what all of a part have in common: `[rows, all, 1]`
        let wide = |p: &Tensor| match self.by_words() {
            true => p.expand(&[self.rows, all, n / 4])?.reshape(&[self.rows, len[0], 1]),
            false => Ok(p.clone()),
        };
        let own = wide(&planes[0].cast(DType::F32)?)?;
        let factor = |plane: usize, t: usize| wide(&planes[plane].narrow(2, t, 1)?.cast(DType::F32)?);
        let mut sum: Option<Tensor> = None;
        for t in 0..runs {
            let mut code = self.field(&planes, (l.low)(t), n, 0)?;
            if let Some((high, bits)) = l.high {
                code = code.bit_or(self.field(&planes, high(t), n, bits)?)?;
            }
            let x = x(t)?;
            let mut y = x.mul(code.cast(DType::F32)?)?;
            if l.less != 0 {
                // the same for all rows, so that this is the first addend and costs nothing
                y = y.add(x.mul(-f64::from(l.less))?)?;
            }
            if let Some(p) = l.scales {
                y = y.mul(own.mul(factor(p, t)?)?)?;
            }
            if let Some((p, factors)) = l.minimum {
                let least = wide(&planes[p].cast(DType::F32)?)?;
                // ggml takes minima that have factors away, and adds those that have none
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

    /// A plane of which each part has its own elements, or those of its block: `[rows, blocks * parts, ..]`.
    fn in_parts(&self, plane: &Tensor, parts: usize) -> Result<Tensor> {
        let s = plane.shape();
        let all = s[1] * parts;
        match s[2].is_multiple_of(parts) {
            true => plane.reshape(&[s[0], all, s[2] / parts]),
            false => plane.unsqueeze(2)?.expand(&[s[0], s[1], parts, s[2]])?.reshape(&[s[0], all, s[2]]),
        }
    }

    /// A field of the codes of a run, `to` bits from its end: `[rows, blocks, n]`, i32; of words `[rows, blocks * n / 4, 4]`.
    fn field(&self, planes: &[Tensor], f: Field, n: usize, to: u32) -> Result<Tensor> {
        if self.by_words() {
            let words = planes[f.plane].narrow(2, f.at / 4, n / 4)?.flatten(1, 2)?.unsqueeze(-1)?;
            let at = |from: f64, by: f64| Tensor::arange(words.session(), from, from + 4.0 * by, by, DType::I32);
            return match f.bits {
                8 => words.shift_left(at(24.0, -8.0)?)?.shift_right(24),
                bits => {
                    let code = words.shift_right(at(f64::from(f.shift), 8.0)?)?.bit_and((1i64 << bits) - 1)?;
                    moved(code, 0, to)
                }
            };
        }
        let code = moved(planes[f.plane].narrow(2, f.at, n)?.cast(DType::I32)?, f.shift, to)?;
        match f.shift + f.bits == 8 && to == 0 {
            true => Ok(code),
            false => code.bit_and(((1i64 << f.bits) - 1) << to),
        }
    }
}

/// The bits of integers, those from `from` on moved to `to`.
pub(super) fn moved(x: Tensor, from: u32, to: u32) -> Result<Tensor> {
    match from.cmp(&to) {
        Ordering::Greater => x.shift_right(i64::from(from - to)),
        Ordering::Equal => Ok(x),
        Ordering::Less => x.shift_left(i64::from(to - from)),
    }
}
