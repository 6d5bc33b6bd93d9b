//! Quantised tensors as graphs that decode them. At load the fields of a tensor's blocks are separated into planes (all
//! scales, all low bits, all high bits), which take no more memory than the file. The kernels that read the tensor then
//! compute its elements from the planes by shifts, lookups in tables of 16 bytes and multiplications. Kinds
//! with larger code books (IQ1 to IQ3) are not stored as indices into the books but as what the books say, in 3 or 4 bits
//! an element, which takes more memory than the file: IQ2_XXS 3.4 bits an element, not 2.1.
#![deny(clippy::unwrap_used)]

use super::planes::{Order, Plane, group_of, has_signed_codes, planes};
use super::{Activations, Entry, Gguf, IntegerMatrix, Kind, Packed, Use, decode, err, packed, words};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::Result;
use crate::tensor::{Session, Tensor};

/// The tensors of a whole file in a session, with their names, in file order. Plain elements keep their dtype and share
/// the file's bytes. Quantised tensors are lazy f32 tensors that each consumer decodes again; realize one to store its
/// elements decoded.
pub fn tensors(session: &Session, file: &Bytes) -> Result<Vec<(String, Tensor)>> {
    let all = matrices(session, file, &|_| Use::Product(Activations::F32))?;
    Ok(all.into_iter().map(|(name, t, _)| (name, t)).collect())
}

/// As [`tensors`], and for each matrix that can be multiplied without decoding it first also its blocks ([`Packed`]).
/// `uses` says for a tensor's name what the matrix is used for, which decides the order of its elements in memory.
pub fn matrices(session: &Session, file: &Bytes, uses: &dyn Fn(&str) -> Use) -> Result<Vec<Matrix>> {
    matrices_of(session, file, &Gguf::parse(file)?.entries, uses)
}

/// Name, tensor of decoded elements, and the blocks to multiply with, if the tensor's kind and use have any.
pub type Matrix = (String, Tensor, Option<Packed>);

/// As [`matrices`], for a selection of the file's tensors.
pub fn matrices_of(
    session: &Session,
    file: &Bytes,
    entries: &[Entry],
    uses: &dyn Fn(&str) -> Use,
) -> Result<Vec<Matrix>> {
    let one = |e: &Entry| {
        let range = e.range.start as usize..e.range.end as usize;
        let raw = file.slice(range).ok_or_else(|| err("a tensor lies outside of the file"))?;
        let (t, packed) = matrix_of(session, e, &raw, uses(&e.name))?;
        Ok((e.name.clone(), t, packed))
    };
    entries.iter().map(one).collect()
}

/// One tensor as [`tensors`] makes it, from the bytes of this tensor alone (read by range).
pub fn tensor_of(session: &Session, e: &Entry, raw: &Bytes) -> Result<Tensor> {
    Ok(matrix_of(session, e, raw, Use::Product(Activations::F32))?.0)
}

/// One tensor as [`matrices`] makes it, from the bytes of this tensor alone.
pub fn matrix_of(session: &Session, e: &Entry, raw: &Bytes, purpose: Use) -> Result<(Tensor, Option<Packed>)> {
    match e.kind.plain() {
        Some(dtype) => Ok((Tensor::from_bytes(session, dtype, &e.shape, raw.clone())?, None)),
        None => tensor(session, e.kind, &e.shape, raw, purpose),
    }
}

/// One quantised tensor from its bytes: its decoded elements, and its blocks if [`Packed`] supports their kind.
pub(super) fn tensor(
    session: &Session,
    kind: Kind,
    shape: &[usize],
    raw: &Bytes,
    purpose: Use,
) -> Result<(Tensor, Option<Packed>)> {
    let row = shape.last().copied().unwrap_or(1);
    if planes(kind).is_empty() || raw.is_empty() {
        let host = decode(kind, shape, raw)?;
        return Ok((Tensor::from_bytes(session, host.dtype, shape, Bytes::new(host.data))?, None));
    }
    let blocks = row / kind.block_elems();
    let rows = raw.len() / kind.block_bytes() / blocks;
    let group = if shape.len() == 2 && purpose != Use::Rows { group_of(rows) } else { 1 };
    let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
    let plane = |order: Order, i: usize| {
        let (dtype, [runs, len]) = order.elements(i);
        let shape = [rows / order.group, blocks, len, runs, order.group];
        Tensor::from_bytes(session, dtype, &shape, order.plane(raw, i))
    };
    if words::INTEGERS
        && let Use::Product(activations @ (Activations::I16 | Activations::I16Pairs { .. } | Activations::I8)) = purpose
        && group > 1
        && let Some(layout) = packed::layout(kind)
    {
        let order = Order { kind, group: layout.max_interleaved_rows(activations).min(group), blocks, words: true };
        let planes_of = (0..planes(kind).len()).map(|i| plane(order, i)?.squeeze(3)).collect::<Result<Vec<_>>>()?;
        let codes = |(i, p): (usize, &Tensor)| match packed::has_codes(kind, i) {
            true if has_signed_codes(kind) => sub_offset(&words::bytes(p)?, 128),
            true => words::bytes(p),
            false => Ok(p.clone()),
        };
        let p = planes_of.iter().enumerate().map(codes).collect::<Result<Vec<_>>>()?;
        let all = elements(kind, &p)?.reshape(&[rows / order.group, row, order.group])?;
        let words = IntegerMatrix::new(kind, activations, planes_of, [rows, row]);
        return Ok((all.transpose(1, 2)?.reshape(&dims)?, Some(Packed::of_words(kind, words))));
    }
    // Rows are contiguous here: adjacent GPU threads load adjacent words of one row.
    if words::INTEGERS
        && purpose == Use::Product(Activations::F16)
        && shape.len() == 2
        && let Some(_) = packed::layout(kind)
    {
        let order = Order { kind, group: 1, blocks, words: true };
        let planes_of = (0..planes(kind).len()).map(|i| plane(order, i)?.squeeze(3)).collect::<Result<Vec<_>>>()?;
        let codes = |(i, p): (usize, &Tensor)| match packed::has_codes(kind, i) {
            true if has_signed_codes(kind) => sub_offset(&words::bytes(p)?.bit_xor(128)?, 128),
            true => words::bytes(p),
            false => Ok(p.clone()),
        };
        let p = planes_of.iter().enumerate().map(codes).collect::<Result<Vec<_>>>()?;
        return Ok((elements(kind, &p)?.reshape(&dims)?, Packed::new(kind, shape, &planes_of, true)?));
    }
    let order = Order { kind, group, blocks, words: false };
    let in_order =
        |(i, p): (usize, &Plane)| plane(order, i)?.transpose(2, 3)?.reshape(&[rows / group, blocks, p.n, group]);
    let p = planes(kind).iter().enumerate().map(in_order).collect::<Result<Vec<_>>>()?;
    // Elements in the planes' memory order, so that a kernel which stores them decoded writes adjacent addresses.
    let all = elements(kind, &p)?.reshape(&[rows / group, row, group])?;
    let packed = if purpose == Use::Rows { None } else { Packed::new(kind, shape, &p, false)? };
    Ok((all.transpose(1, 2)?.reshape(&dims)?, packed))
}

/// The decoded f32 elements `[rows / group, blocks, .., group]` from planes `[rows / group, blocks, n, group]`.
fn elements(kind: Kind, p: &[Tensor]) -> Result<Tensor> {
    let last = &p[p.len() - 1];
    match kind {
        Kind::Q8_0 => scaled(last, &p[0], &[32]),
        Kind::Q4_0 => scaled(&sub_offset(&fields(last, 16, 4)?, 8)?, &p[0], &[32]),
        Kind::Q4_1 => scaled(&fields(last, 16, 4)?, &p[0], &[32])?.add(p[1].cast(DType::F32)?),
        Kind::Q5_0 => scaled(&sub_offset(&five(last, &p[1])?, 16)?, &p[0], &[32]),
        Kind::Q5_1 => scaled(&five(last, &p[2])?, &p[0], &[32])?.add(p[1].cast(DType::F32)?),
        Kind::IQ4_NL | Kind::MXFP4 => scaled(&coded(kind, &fields(last, 16, 4)?)?, &p[0], &[32]),
        Kind::NVFP4 => scaled(&coded(kind, &fields(last, 16, 4)?)?, &p[0], &[4, 16]),
        Kind::IQ4_XS | Kind::IQ3_XXS | Kind::IQ3_S => {
            scaled(&coded(kind, &fields(last, 16, 4)?)?, &sub_scales(&p[0], &p[1])?, &[8, 32])
        }
        Kind::IQ2_XXS | Kind::IQ2_XS | Kind::IQ2_S | Kind::IQ1_S | Kind::IQ1_M => {
            let q = join(&fields(last, 32, 2)?, &fields(&p[2], 32, 1)?, 2)?;
            let factors = p[1].shape()[2] as i64;
            scaled(&coded(kind, &q)?, &sub_scales(&p[0], &p[1])?, &[factors, 256 / factors])
        }
        Kind::TQ1_0 | Kind::TQ2_0 => scaled(&sub_offset(&fields(last, 32, 2)?, 1)?, &p[0], &[256]),
        Kind::Q2_K => with_minimum(&fields(last, 32, 2)?, p, &[16, 16]),
        Kind::Q4_K => with_minimum(&fields(last, 32, 4)?, p, &[8, 32]),
        Kind::Q5_K => with_minimum(&join(&fields(last, 32, 4)?, &fields(&p[4], 32, 1)?, 4)?, p, &[8, 32]),
        Kind::Q3_K => {
            let q = join(&fields(last, 32, 2)?, &fields(&p[2], 32, 1)?, 2)?;
            scaled(&sub_offset(&q, 4)?, &sub_scales(&p[0], &p[1])?, &[16, 16])
        }
        _ => {
            let q = join(&fields(last, 64, 4)?, &fields(&p[2], 32, 2)?, 4)?;
            scaled(&sub_offset(&q, 32)?, &sub_scales(&p[0], &p[1])?, &[16, 16])
        }
    }
}

/// Splits bytes into fields of `bits` bits: `[.., g*n, rows] -> [.., g*f*n, rows]` with `f = 8 / bits` fields a byte.
/// For each `n` bytes the result has first the lowest field of all of them, then the next field, and so on.
fn fields(bytes: &Tensor, n: i64, bits: i64) -> Result<Tensor> {
    let shape = bytes.shape();
    let (r, b, rows) = (shape[0] as i64, shape[1] as i64, shape[3] as i64);
    let count = 8 / bits;
    // Shifted as 32-bit integers, since few processors have vector shifts of bytes.
    let shifts = Tensor::arange(bytes.session(), 0.0, 8.0, bits as f64, DType::I32)?.reshape(&[count, 1, 1])?;
    let all = bytes.cast(DType::I32)?.reshape(&[r, b, -1, 1, n, rows])?.shift_right(&shifts)?;
    all.bit_and((1 << bits) - 1)?.reshape(&[r, b, -1, rows])
}

/// The 5-bit codes of Q5_0 and Q5_1.
fn five(low: &Tensor, high: &Tensor) -> Result<Tensor> {
    join(&fields(low, 16, 4)?, &fields(high, 4, 1)?, 4)
}

fn join(low: &Tensor, high: &Tensor, bits: i64) -> Result<Tensor> {
    low.bit_or(high.shift_left(bits)?)
}

fn sub_offset(q: &Tensor, by: i64) -> Result<Tensor> {
    q.sub(by)
}

/// What the codes of a kind with a table stand for.
fn coded(kind: Kind, q: &Tensor) -> Result<Tensor> {
    match packed::layout(kind).and_then(|l| Some((l.table?, l.code_offset))) {
        Some((table, offset)) => sub_offset(&q.lookup_bytes(table)?.bit_and(255)?, offset.into()),
        None => Err(err(format!("a table of {}", kind.name()))),
    }
}

fn sub_scales(d: &Tensor, scales: &Tensor) -> Result<Tensor> {
    d.cast(DType::F32)?.mul(scales.cast(DType::F32)?)
}

/// `q * d`, where a block has the shape `split` and `d` one scale for each part of it: `[.., blocks, ..split, rows]`.
fn scaled(q: &Tensor, d: &Tensor, split: &[i64]) -> Result<Tensor> {
    let d = d.cast(DType::F32)?;
    parts(q, split)?.cast(DType::F32)?.mul(if split.len() > 1 { d.unsqueeze(-2)? } else { d })
}

/// `q * d * s - min * m`, where planes 0 to 3 are d, min, s and m: the block's scale and minimum, and the factors of
/// both for each part of the block.
fn with_minimum(q: &Tensor, p: &[Tensor], split: &[i64]) -> Result<Tensor> {
    scaled(q, &sub_scales(&p[0], &p[2])?, split)?.sub(sub_scales(&p[1], &p[3])?.unsqueeze(-2)?)
}

fn parts(q: &Tensor, split: &[i64]) -> Result<Tensor> {
    let shape = q.shape();
    q.reshape(&[&[shape[0] as i64, shape[1] as i64], split, &[shape[3] as i64]].concat())
}
