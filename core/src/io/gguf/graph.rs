//! Quantised tensors as graphs: the blocks of a tensor are sorted into planes (scales, low bits, high bits) when it is loaded,
//! which takes no more memory than the file, and elements are made of them by shifts and products in the kernels that read
//! them. What needs larger tables is decoded at load.
#![deny(clippy::unwrap_used)]

use super::blocks::{self, E2M1, IQ4, e8m0_half};
use super::{Activations, Entry, Gguf, Kind, Packed, Words, decode, packed, words};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::Result;
use crate::tensor::{Session, Tensor};
use std::sync::Arc;

/// The tensors of a whole file in a session, by name in file order. Plain elements have their dtype and share the file's
/// bytes; blocks are f32 that is computed where it is read. Realize one to have its elements in memory.
pub fn tensors(session: &Session, file: &Arc<Vec<u8>>) -> Result<Vec<(String, Tensor)>> {
    let all = matrices(session, file, &|_| Activations::F32)?;
    Ok(all.into_iter().map(|(name, t, _)| (name, t)).collect())
}

/// The same, with the blocks of those matrices that can be multiplied as they are, each with such activations as are said of its name.
pub fn matrices(
    session: &Session,
    file: &Arc<Vec<u8>>,
    activations: &dyn Fn(&str) -> Activations,
) -> Result<Vec<(String, Tensor, Option<Packed>)>> {
    let index = Gguf::parse(file)?;
    let mut out = Vec::with_capacity(index.entries.len());
    for e in index.entries {
        let raw = e.bytes(file)?;
        let (t, packed) = match e.kind.plain() {
            Some(dtype) => {
                let range = e.range.start as usize..e.range.end as usize;
                let bytes = Bytes::slice_of(file.clone(), range).unwrap_or_else(|| Bytes::new(raw.to_vec()));
                (Tensor::from_bytes(session, dtype, &e.shape, bytes)?, None)
            }
            None => tensor(session, e.kind, &e.shape, raw, activations(&e.name))?,
        };
        out.push((e.name, t, packed));
    }
    Ok(out)
}

/// One tensor of a file from its bytes alone, as [`tensors`] makes it.
pub fn tensor_of(session: &Session, e: &Entry, raw: &[u8]) -> Result<Tensor> {
    Ok(matrix_of(session, e, raw, Activations::F32)?.0)
}

/// The same as [`matrices`] makes it.
pub fn matrix_of(
    session: &Session,
    e: &Entry,
    raw: &[u8],
    activations: Activations,
) -> Result<(Tensor, Option<Packed>)> {
    match e.kind.plain() {
        Some(dtype) => Ok((Tensor::from_bytes(session, dtype, &e.shape, Bytes::new(raw.to_vec()))?, None)),
        None => tensor(session, e.kind, &e.shape, raw, activations),
    }
}

/// Are codes signed bytes? As words they are moved by 128.
pub(super) fn moved(kind: Kind) -> bool {
    kind == Kind::Q8_0
}

/// One quantised tensor from its bytes: its elements, and its blocks if [`Packed`] has their kind.
pub(super) fn tensor(
    session: &Session,
    kind: Kind,
    shape: &[usize],
    raw: &[u8],
    activations: Activations,
) -> Result<(Tensor, Option<Packed>)> {
    let row = shape.last().copied().unwrap_or(1);
    if planes(kind).is_empty() || raw.is_empty() {
        let host = decode(kind, shape, raw)?;
        return Ok((Tensor::from_bytes(session, host.dtype, shape, Bytes::new(host.data))?, None));
    }
    let count = raw.len() / kind.block_bytes();
    let per_row = row / kind.block_elems();
    let mut parts: Vec<Vec<u8>> =
        planes(kind).iter().map(|(dt, n)| Vec::with_capacity(count * n * dt.size())).collect();
    for b in raw.chunks_exact(kind.block_bytes()) {
        sort(kind, b, &mut parts);
    }
    let rows = count / per_row;
    let mut group =
        if shape.len() == 2 { GROUPS.into_iter().find(|g| rows.is_multiple_of(*g)).unwrap_or(1) } else { 1 };
    if words::INTEGERS
        && activations != Activations::F32
        && group > 1
        && let Some(layout) = packed::layout(kind)
    {
        group = layout.most_rows().min(group);
        let mut planes_of = Vec::with_capacity(parts.len());
        for (i, (&(dtype, n), mut bytes)) in planes(kind).iter().zip(parts).enumerate() {
            let codes = packed::has_codes(kind, i);
            if codes && moved(kind) {
                bytes.iter_mut().for_each(|b| *b ^= 0x80);
            }
            let (dtype, n) = if codes { (DType::I32, n / 4) } else { (dtype, n) };
            let bytes = interleaved(&bytes, group, per_row, [1, n], dtype.size());
            planes_of.push(Tensor::from_bytes(session, dtype, &[rows / group, per_row, n, group], Bytes::new(bytes))?);
        }
        let codes = |(i, p): (usize, &Tensor)| match packed::has_codes(kind, i) {
            true if moved(kind) => less(&words::bytes(p)?, 128),
            true => words::bytes(p),
            false => Ok(p.clone()),
        };
        let p = planes_of.iter().enumerate().map(codes).collect::<Result<Vec<_>>>()?;
        let all = elements(kind, &p)?.reshape(&[rows / group, row, group])?;
        let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        let words = Words::new(kind, activations, planes_of, [rows, row]);
        return Ok((all.transpose(1, 2)?.reshape(&dims)?, Some(Packed::of_words(kind, words))));
    }
    let mut p = Vec::with_capacity(parts.len());
    for (i, ((dtype, n), bytes)) in planes(kind).iter().zip(parts).enumerate() {
        // without groups in the order of the file
        let len = if group > 1 { packed::run_of(kind, i, *n) } else { *n };
        let bytes = if group > 1 { interleaved(&bytes, group, per_row, [n / len, len], dtype.size()) } else { bytes };
        let plane =
            Tensor::from_bytes(session, *dtype, &[rows / group, per_row, len, n / len, group], Bytes::new(bytes))?;
        p.push(plane.transpose(2, 3)?.reshape(&[rows / group, per_row, *n, group])?);
    }
    let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
    // in the order in which they lie: what stores them stores neighbours
    let all = elements(kind, &p)?.reshape(&[rows / group, row, group])?;
    Ok((all.transpose(1, 2)?.reshape(&dims)?, Packed::new(kind, shape, &p)?))
}

/// Rows of a matrix that lie interleaved, element by element: they are the lanes of a product, so that vectors are loaded where
/// they are, nothing is added up across lanes, and scales come as vectors too. The most that divides the rows is taken.
const GROUPS: [usize; 3] = [64, 32, 16];

/// Each `group` rows with the elements of a place side by side. Of the `runs` runs of `len` elements that a block has, first come the
/// first elements of each: a product takes all runs at once, and so reads one stream.
fn interleaved(bytes: &[u8], group: usize, blocks: usize, [runs, len]: [usize; 2], size: usize) -> Vec<u8> {
    let (n, row) = (runs * len, blocks * runs * len * size);
    let mut out = vec![0; bytes.len()];
    for (from, to) in bytes.chunks_exact(group * row).zip(out.chunks_exact_mut(group * row)) {
        // a block's lines of all rows stay in the first caches meanwhile
        for block in 0..blocks {
            for (r, from) in from.chunks_exact(row).enumerate() {
                for (at, x) in from[block * n * size..][..n * size].chunks_exact(size).enumerate() {
                    let place = block * n + at % len * runs + at / len;
                    to[(place * group + r) * size..][..size].copy_from_slice(x);
                }
            }
        }
    }
    out
}

const F16: DType = DType::F16;
const U8: DType = DType::U8;
const I8: DType = DType::I8;

/// Dtype and elements of each plane of a block; none for a kind that is decoded at load.
fn planes(kind: Kind) -> &'static [(DType, usize)] {
    match kind {
        Kind::Q4_0 | Kind::IQ4_NL => &[(F16, 1), (U8, 16)],
        Kind::Q4_1 => &[(F16, 1), (F16, 1), (U8, 16)],
        Kind::Q5_0 => &[(F16, 1), (U8, 4), (U8, 16)],
        Kind::Q5_1 => &[(F16, 1), (F16, 1), (U8, 4), (U8, 16)],
        Kind::Q8_0 => &[(F16, 1), (I8, 32)],
        Kind::Q2_K => &[(F16, 1), (F16, 1), (U8, 16), (U8, 16), (U8, 64)],
        Kind::Q3_K => &[(F16, 1), (I8, 16), (U8, 32), (U8, 64)],
        Kind::Q4_K => &[(F16, 1), (F16, 1), (U8, 8), (U8, 8), (U8, 128)],
        Kind::Q5_K => &[(F16, 1), (F16, 1), (U8, 8), (U8, 8), (U8, 32), (U8, 128)],
        Kind::Q6_K => &[(F16, 1), (I8, 16), (U8, 64), (U8, 128)],
        Kind::TQ2_0 => &[(F16, 1), (U8, 64)],
        Kind::IQ4_XS => &[(F16, 1), (I8, 8), (U8, 128)],
        Kind::MXFP4 => &[(DType::BF16, 1), (U8, 16)],
        _ => &[],
    }
}

/// Appends a block to the planes of its kind.
fn sort(kind: Kind, b: &[u8], p: &mut [Vec<u8>]) {
    let signed = |s: i8| s as u8;
    match kind {
        Kind::Q2_K => {
            p[0].extend(&b[80..82]);
            p[1].extend(&b[82..84]);
            p[2].extend(b[..16].iter().map(|s| s & 15));
            p[3].extend(b[..16].iter().map(|s| s >> 4));
            p[4].extend(&b[16..80]);
        }
        Kind::Q3_K => {
            p[0].extend(&b[108..110]);
            p[1].extend(blocks::q3_scales(&b[96..]).map(signed));
            p[2].extend(&b[..32]);
            p[3].extend(&b[32..96]);
        }
        Kind::Q4_K | Kind::Q5_K => {
            let (scales, mins) = blocks::q4_scales(&b[4..]);
            p[0].extend(&b[..2]);
            p[1].extend(&b[2..4]);
            p[2].extend(scales);
            p[3].extend(mins);
            p[4].extend(&b[16..if kind == Kind::Q4_K { 144 } else { 48 }]);
            if kind == Kind::Q5_K {
                p[5].extend(&b[48..]);
            }
        }
        Kind::Q6_K => {
            p[0].extend(&b[208..]);
            p[1].extend(&b[192..208]);
            p[2].extend(&b[128..192]);
            p[3].extend(&b[..128]);
        }
        Kind::TQ2_0 => {
            p[0].extend(&b[64..]);
            p[1].extend(&b[..64]);
        }
        Kind::IQ4_XS => {
            p[0].extend(&b[..2]);
            p[1].extend(blocks::iq4_scales(b).map(signed));
            p[2].extend(&b[8..]);
        }
        Kind::MXFP4 => {
            p[0].extend(e8m0_half(b[0]).to_le_bytes());
            p[1].extend(&b[1..]);
        }
        // scales, then bits, as they lie in the file
        _ => {
            let mut at = 0;
            for ((dt, n), p) in planes(kind).iter().zip(p) {
                p.extend(&b[at..at + n * dt.size()]);
                at += n * dt.size();
            }
        }
    }
}

/// Elements `[rows / group, blocks, .., group]` as f32 from planes `[rows / group, blocks, n, group]`.
fn elements(kind: Kind, p: &[Tensor]) -> Result<Tensor> {
    let last = &p[p.len() - 1];
    match kind {
        Kind::Q8_0 => scaled(last, &p[0], &[32]),
        Kind::Q4_0 => scaled(&less(&fields(last, 16, 4)?, 8)?, &p[0], &[32]),
        Kind::Q4_1 => scaled(&fields(last, 16, 4)?, &p[0], &[32])?.add(p[1].cast(DType::F32)?),
        Kind::Q5_0 => scaled(&less(&five(last, &p[1])?, 16)?, &p[0], &[32]),
        Kind::Q5_1 => scaled(&five(last, &p[2])?, &p[0], &[32])?.add(p[1].cast(DType::F32)?),
        Kind::IQ4_NL => scaled(&coded(&fields(last, 16, 4)?, &IQ4)?, &p[0], &[32]),
        Kind::MXFP4 => scaled(&coded(&fields(last, 16, 4)?, &E2M1)?, &p[0], &[32]),
        Kind::IQ4_XS => scaled(&coded(&fields(last, 16, 4)?, &IQ4)?, &sub_scales(&p[0], &p[1])?, &[8, 32]),
        Kind::TQ2_0 => scaled(&less(&fields(last, 32, 2)?, 1)?, &p[0], &[256]),
        Kind::Q2_K => with_minimum(&fields(last, 32, 2)?, p, &[16, 16]),
        Kind::Q4_K => with_minimum(&fields(last, 32, 4)?, p, &[8, 32]),
        Kind::Q5_K => with_minimum(&join(&fields(last, 32, 4)?, &fields(&p[4], 32, 1)?, 4)?, p, &[8, 32]),
        Kind::Q3_K => {
            let q = join(&fields(last, 32, 2)?, &fields(&p[2], 32, 1)?, 2)?;
            scaled(&less(&q, 4)?, &sub_scales(&p[0], &p[1])?, &[16, 16])
        }
        _ => {
            let q = join(&fields(last, 64, 4)?, &fields(&p[2], 32, 2)?, 4)?;
            scaled(&less(&q, 32)?, &sub_scales(&p[0], &p[1])?, &[16, 16])
        }
    }
}

/// Fields of `bits` in bytes, `[.., g*n, rows] -> [.., g*f*n, rows]` with `f` fields a byte: of each `n` bytes first all lowest
/// fields.
fn fields(bytes: &Tensor, n: i64, bits: i64) -> Result<Tensor> {
    let shape = bytes.shape();
    let (r, b, rows) = (shape[0] as i64, shape[1] as i64, shape[3] as i64);
    let count = 8 / bits;
    // words: few machines have vectors that shift bytes
    let shifts = Tensor::arange(bytes.session(), 0.0, 8.0, bits as f64, DType::I32)?.reshape(&[count, 1, 1])?;
    let all = bytes.cast(DType::I32)?.reshape(&[r, b, -1, 1, n, rows])?.shift_right(&shifts)?;
    all.bit_and((1 << bits) - 1)?.reshape(&[r, b, -1, rows])
}

/// The five bits of Q5_0 and Q5_1: the fifth of element `i` is bit `i` of 4 bytes.
fn five(low: &Tensor, high: &Tensor) -> Result<Tensor> {
    join(&fields(low, 16, 4)?, &fields(high, 1, 1)?, 4)
}

fn join(low: &Tensor, high: &Tensor, bits: i64) -> Result<Tensor> {
    low.bit_or(high.shift_left(bits)?)
}

fn less(q: &Tensor, by: i64) -> Result<Tensor> {
    q.sub(by)
}

/// The values that 4-bit codes stand for.
fn coded(q: &Tensor, table: &[i8; 16]) -> Result<Tensor> {
    let t = Tensor::new(q.session(), table, &[16])?;
    let shape: Vec<i64> = q.shape().iter().map(|&d| d as i64).collect();
    t.index_select(0, &q.flatten(0, -1)?)?.reshape(&shape)
}

fn sub_scales(d: &Tensor, scales: &Tensor) -> Result<Tensor> {
    d.cast(DType::F32)?.mul(scales.cast(DType::F32)?)
}

/// `q * d`, where a block has the shape `split` and `d` one value for each part: `[.., blocks, ..split, rows]`.
fn scaled(q: &Tensor, d: &Tensor, split: &[i64]) -> Result<Tensor> {
    let d = d.cast(DType::F32)?;
    parts(q, split)?.cast(DType::F32)?.mul(if split.len() > 1 { d.unsqueeze(-2)? } else { d })
}

/// `q * d * s - min * m` of planes d, min, s, m.
fn with_minimum(q: &Tensor, p: &[Tensor], split: &[i64]) -> Result<Tensor> {
    scaled(q, &sub_scales(&p[0], &p[2])?, split)?.sub(sub_scales(&p[1], &p[3])?.unsqueeze(-2)?)
}

fn parts(q: &Tensor, split: &[i64]) -> Result<Tensor> {
    let shape = q.shape();
    q.reshape(&[&[shape[0] as i64, shape[1] as i64], split, &[shape[3] as i64]].concat())
}
