//! Operators on weights of a few bits, in blocks that share a scale. Formats: ContribOperators.md of onnxruntime;
//! bitsandbytes for FP4 and NF4.

use super::super::value::{Cx, Value};
use super::cast::decode;
use super::contrib::float_ms;
use super::elementwise::one;
use super::quant::blocks_along;
use super::{Op, OpDef};
use crate::dtype::DType;
use crate::error::Result;
use crate::io::HostTensor;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    float_ms("MatMulNBits", 37, 0, matmul_bits),
    float_ms("MatMulBnb4", 5, 0, matmul_bnb4),
    float_ms("GatherBlockQuantized", 4, 0, gather_blocks),
];

/// A product with weights `[n, blocks, bytes]` of a few bits, with a scale for each block.
fn matmul_bits(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, packed, scales) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let (k, n) = (o.size(o.int("K", 0)?)?, o.size(o.int("N", 0)?)?);
    let (bits, block) = (o.size(o.int("bits", 4)?)?, o.size(o.int("block_size", 0)?)?);
    if !matches!(bits, 2 | 4 | 8) || block == 0 || k == 0 || n == 0 {
        return o.unsupported(format!("{bits} bits in blocks of {block}"));
    }
    let blocks = k.div_ceil(block);
    let own = match packed.code_type() {
        0 => packed.len() == n * blocks * block * bits / 8 && packed.dtype() == DType::U8,
        _ => false,
    };
    if !own || scales.len() != n * blocks || x.shape().last() != Some(&k) {
        return o.fail(format!("weights {:?} and scales {:?} for {k} x {n}", packed.shape(), scales.shape()));
    }
    let mut zero = match o.opt(3) {
        None => o.cx.scalar(DType::F32, (1 << (bits - 1)) as f64),
        Some(z) if z.dtype() == DType::U8 => {
            let row = z.len() / n * 8 / bits;
            if row < blocks {
                return o.fail(format!("zero points {:?} for {blocks} blocks", z.shape()));
            }
            let all = unpacked(o.cx, &z, bits, &[n, row, 1])?;
            o.cx.cast(&o.cx.narrow(&all, 1, 0, blocks)?, DType::F32)?
        }
        Some(z) if z.len() == n * blocks => o.cx.cast(&o.cx.reshape(&z, &[n, blocks, 1])?, DType::F32)?,
        Some(z) => return o.fail(format!("zero points {:?}", z.shape())),
    };
    let mut scales = o.cx.cast(&o.cx.reshape(&scales, &[n, blocks, 1])?, DType::F32)?;
    let weights = Blocks { codes: &packed, scales: &scales, zero: &zero, bits, shape: [n, k] };
    if block.is_multiple_of(LEAST_BLOCK) && k.is_multiple_of(block) && o.opt(4).is_none() && weights.stay_packed() {
        let y = weights.product(o.cx, &o.cx.cast(&x, DType::F32)?)?;
        return biased(o, &y, x.dtype());
    }
    let mut codes = unpacked(o.cx, &packed, bits, &[n, blocks, block])?;
    let mut wide = blocks * block;
    // `g_idx`: the rows are not in the order of blocks; it has the block of each row.
    if let Some(groups) = o.opt(4) {
        if groups.rank() != 1 || groups.len() < k {
            return o.fail(format!("groups {:?} of {k} rows", groups.shape()));
        }
        let groups = o.cx.narrow(&groups, 0, 0, k)?;
        codes = o.cx.narrow(&o.cx.reshape(&codes, &[n, wide, 1])?, 1, 0, k)?;
        scales = o.cx.gather(&scales, &groups, 1)?;
        if zero.rank() > 0 {
            zero = o.cx.gather(&zero, &groups, 1)?;
        }
        wide = k;
    }
    let w = o.cx.mul(&o.cx.sub(&o.cx.cast(&codes, DType::F32)?, &zero)?, &scales)?;
    let w = o.cx.narrow(&o.cx.reshape(&w, &[n, wide])?, 1, 0, k)?;
    let y = o.cx.matmul(&o.cx.cast(&x, DType::F32)?, &o.cx.swap(&w, 0, 1)?)?;
    biased(o, &y, x.dtype())
}

/// Adds the bias of a `MatMulNBits`.
fn biased(o: &mut Op<'_, '_>, y: &Value, dtype: DType) -> Result<Vec<Value>> {
    let y = match o.opt(5) {
        Some(b) => o.cx.add(y, &o.cx.cast(&b, DType::F32)?)?,
        None => y.clone(),
    };
    one(o.cx.cast(&y, dtype))
}

/// The fewest elements of a block for which weights stay packed: as many as fill vectors.
const LEAST_BLOCK: usize = 16;
/// How many rows of a matrix may be interleaved element by element; the largest number that divides the rows is used.
/// Interleaved rows are the vector lanes of a product: operands are contiguous loads, and no sum runs across lanes.
const GROUPS: [usize; 3] = [64, 32, 16];

/// Weights `[n, k]` of a few bits: bytes of codes, and a scale and a zero point for each block of a row, `[n, blocks, 1]`
/// (a zero point without axes is that of all blocks).
struct Blocks<'a> {
    codes: &'a Value,
    scales: &'a Value,
    zero: &'a Value,
    bits: usize,
    shape: [usize; 2],
}

impl Blocks<'_> {
    fn group(&self) -> Option<usize> {
        GROUPS.into_iter().find(|g| self.shape[0].is_multiple_of(*g))
    }

    /// True if the weights are constants whose elements can be computed inside the kernels that multiply them, so that
    /// they take no more memory than in the file.
    fn stay_packed(&self) -> bool {
        self.bits >= 4 && self.group().is_some() && self.codes.is_known()
    }

    /// A value of each row and block, `[n, blocks, len] -> [n / group, blocks, len, group]`, stored in this order.
    fn interleaved(&self, t: &Tensor, len: usize) -> Result<Tensor> {
        let (n, group) = (self.shape[0], self.group().unwrap_or(1));
        Ok(t.reshape(&[n / group, group, t.numel() / n / len, len])?.permute(&[0, 2, 3, 1])?.contiguous())
    }

    /// The product `[.., k] -> [.., n]`.
    fn product(&self, cx: &Cx<'_>, x: &Value) -> Result<Value> {
        let ([n, k], bits) = (self.shape, self.bits);
        let scales = cx.lazy(self.scales)?;
        let (blocks, per) = (scales.numel() / n, 8 / bits);
        let bytes = k / blocks / per;
        let mut to = x.shape().to_vec();
        to.pop();
        to.push(n);
        let m = x.len() / k;
        let codes = self.interleaved(&cx.lazy(self.codes)?, bytes)?.cast(DType::I32)?;
        let scales = self.interleaved(&scales, 1)?;
        let zero = cx.lazy(self.zero)?;
        let zero = if self.zero.rank() > 0 { self.interleaved(&zero, 1)? } else { zero };
        // the codes at place `i` of each byte
        let field = |i: usize| {
            let code = if i > 0 { codes.shift_right((i * bits) as i64)? } else { codes.clone() };
            if (i + 1) * bits < 8 { code.bit_and((1i64 << bits) - 1) } else { Ok(code) }
        };
        if m == 1 {
            let x = cx.lazy(x)?.reshape(&[1, blocks, bytes, per])?;
            // The sum of a byte's products is scaled once. With one zero point for all blocks `x * -zero` is the same
            // for all rows, so that it costs nothing as the addend of a multiply-add.
            let mut sum: Option<Tensor> = None;
            for i in 0..per {
                let x = x.narrow(3, i, 1)?.reshape(&[1, blocks, bytes, 1])?;
                let code = field(i)?.cast(DType::F32)?;
                let y = match self.zero.rank() {
                    0 => x.mul(code)?.add(x.mul(zero.neg()?)?)?,
                    _ => x.mul(code.sub(&zero)?)?,
                };
                sum = Some(match sum {
                    Some(sum) => sum.add(y)?,
                    None => y,
                });
            }
            let Some(sum) = sum else { return Ok(cx.scalar(DType::F32, 0.0)) };
            return Ok(Value::lazy(sum.mul(scales)?.sum(&[1, 2], false)?.reshape(&to)?));
        }
        let shifts = Tensor::arange(codes.session(), 0.0, 8.0, bits as f64, DType::I32)?.reshape(&[per, 1])?;
        let code = codes.unsqueeze(3)?.shift_right(shifts)?.bit_and((1i64 << bits) - 1)?;
        let spread = |t: &Tensor| if t.shape().len() == 4 { t.unsqueeze(3) } else { Ok(t.clone()) };
        let w = code.cast(DType::F32)?.sub(spread(&zero)?)?.mul(spread(&scales)?)?;
        let w = Value::lazy(w.permute(&[0, 4, 1, 2, 3])?.reshape(&[n, k])?);
        cx.matmul(x, &cx.swap(&w, 0, 1)?)
    }
}

/// Unpacks the elements of bytes, the low bits first.
fn unpacked(cx: &Cx<'_>, bytes: &Value, bits: usize, shape: &[usize]) -> Result<Value> {
    let column = cx.reshape(bytes, &[bytes.len(), 1])?;
    let mask = ((1u32 << bits) - 1) as f64;
    let part = |i: usize| cx.with(Cx::and, &cx.with(Cx::shr, &column, (i * bits) as f64)?, mask);
    let parts = (0..8 / bits).map(part).collect::<Result<Vec<_>>>()?;
    cx.reshape(&cx.concat(&parts, 1)?, shape)
}

/// Unpacks bytes along the last axis; the first `n` elements.
pub(super) fn elements(cx: &Cx<'_>, bytes: &Value, bits: usize, n: usize) -> Result<Value> {
    let (mut shape, last) = (bytes.shape().to_vec(), bytes.nth_last(1)?);
    shape[last] = shape[last].saturating_mul(8 / bits);
    cx.narrow(&unpacked(cx, bytes, bits, &shape)?, last, 0, n)
}

/// The numbers that the FP4 codes 0 .. 15 stand for.
#[rustfmt::skip]
const FP4: [f32; 16] = [
    0.0, 0.005_208_333_5, 2.0 / 3.0, 1.0, 1.0 / 3.0, 0.5, 1.0 / 6.0, 0.25,
    0.0, -0.005_208_333_5, -2.0 / 3.0, -1.0, -1.0 / 3.0, -0.5, -1.0 / 6.0, -0.25,
];
/// The numbers that the NF4 codes stand for: quantiles of a normal distribution.
#[rustfmt::skip]
const NF4: [f32; 16] = [
    -1.0, -0.696_192_8, -0.525_073_05, -0.394_917_5, -0.284_441_38, -0.184_773_43, -0.091_050_036, 0.0,
    0.079_580_3, 0.160_930_2, 0.246_112_3, 0.337_915_24, 0.440_709_83, 0.562_617, 0.722_956_84, 1.0,
];

/// A product with 4-bit weights `[n, k]`, the high bits of a byte first, in blocks of the flattened tensor.
fn matmul_bnb4(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    o.allow_only(3, &["K", "N", "block_size", "quant_type", "training_mode", "transB"])?;
    let (x, packed, scales) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let (k, n, block) = (o.size(o.int("K", 0)?)?, o.size(o.int("N", 0)?)?, o.size(o.int("block_size", 0)?)?);
    if !o.flag("transB", true)? {
        return o.unsupported("`transB` 0");
    }
    let table = match o.int("quant_type", -1)? {
        0 => &FP4,
        1 => &NF4,
        other => return o.unsupported(format!("quant_type {other}")),
    };
    let size = o.cx.check_shape(&[n, k])?;
    if block == 0 || size == 0 || packed.len() != size.div_ceil(2) || packed.dtype() != DType::U8 {
        return o.fail(format!("weights {:?} of {k} x {n} in blocks of {block}", packed.shape()));
    }
    let blocks = size.div_ceil(block);
    if scales.len() != blocks {
        return o.fail(format!("scales {:?} for {blocks} blocks", scales.shape()));
    }
    let codes = o.cx.flip(&unpacked(o.cx, &packed, 4, &[packed.len(), 2])?, 1)?;
    let codes = o.cx.narrow(&o.cx.reshape(&codes, &[2 * packed.len()])?, 0, 0, size)?;
    let table = Value::known(HostTensor::from_f32(vec![16], table)?);
    let w = o.cx.gather(&table, &o.cx.cast(&codes, DType::I32)?, 0)?;
    let scales = o.cx.reshape(&o.cx.cast(&scales, DType::F32)?, &[blocks])?;
    let w = o.cx.mul(&w, &blocks_along(o, &scales, 0, block, size)?)?;
    let w = o.cx.swap(&o.cx.reshape(&w, &[n, k])?, 0, 1)?;
    let y = o.cx.matmul(&o.cx.cast(&x, DType::F32)?, &w)?;
    one(o.cx.cast(&y, x.dtype()))
}

/// Looks up slices of a quantised table. Where possible only the slices that are looked up are decoded.
fn gather_blocks(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    o.allow_only(4, &["bits", "block_size", "gather_axis", "quantize_axis"])?;
    let (data, index, scales, code_type) = (o.arg(0)?, o.arg(1)?, o.arg(2)?, o.arg(0)?.code_type());
    let (rank, last) = (data.rank(), data.rank().saturating_sub(1));
    let (axis, along) = (o.axis(o.int("gather_axis", 0)?, rank)?, o.axis(o.int("quantize_axis", 1)?, rank)?);
    // Bytes hold several elements of the last axis; elements of narrow types are one byte each.
    let bits = if code_type == 0 { o.size(o.int("bits", 4)?)? } else { 8 };
    if !matches!(bits, 2 | 4 | 8) || code_type == 0 && data.dtype() != DType::U8 || bits < 8 && axis == last {
        return o.unsupported(format!("{bits} bits of {} along axis {axis}", data.dtype()));
    }
    let per = 8 / bits;
    let mut shape = data.shape().to_vec();
    shape[last] = shape[last].saturating_mul(per);
    let block = match o.size(o.int("block_size", 128)?)? {
        0 => shape[along].max(1),
        n => n,
    };
    let mut stored = shape.clone();
    stored[along] = shape[along].div_ceil(block);
    let fits = scales.shape() == stored;
    stored[last] = stored[last].div_ceil(per);
    let zero_fits = |z: Value| z.shape() == stored && z.dtype() == data.dtype() && z.code_type() == code_type;
    if !fits || !o.opt(3).is_none_or(zero_fits) {
        return o.fail(format!("scales {:?} in blocks of {block} along axis {along} of {shape:?}", scales.shape()));
    }
    let apart = axis != along;
    let rows = |v: &Value| if apart { o.cx.gather(v, &index, axis) } else { Ok(v.clone()) };
    // The looked-up codes as floats, with `n` elements along the last axis.
    let real = |v: &Value, n: usize| {
        let v = rows(v)?;
        let v = if per == 1 { decode(o.cx, &v.with_code_type(code_type))? } else { elements(o.cx, &v, bits, n)? };
        o.cx.cast(&v, DType::F32)
    };
    let at = if apart && along > axis { (along + index.rank()).saturating_sub(1) } else { along };
    let spread = |v: Value| blocks_along(o, &v, at, block, shape[along]);
    let zero = match o.opt(3) {
        Some(z) => spread(real(&z, scales.dim(last)?)?)?,
        None => o.cx.scalar(DType::F32, if code_type == 0 { f64::from(1 << (bits - 1)) } else { 0.0 }),
    };
    let scale = spread(o.cx.cast(&rows(&scales)?, DType::F32)?)?;
    let y = o.cx.mul(&o.cx.sub(&real(&data, shape[last])?, &zero)?, &scale)?;
    let y = o.cx.cast(&y, scales.dtype())?;
    one(if apart { Ok(y) } else { o.cx.gather(&y, &index, axis) })
}
