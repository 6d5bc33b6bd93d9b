//! The primitives of the importer, evaluated on the host: they fold what a graph computes from shapes and constants.
//!
//! Plain loops over elements read as i64 or f64; floats round to their dtype after every primitive. Sizes are the
//! caller's to limit ([`super::value`] folds small tensors only). Nothing here knows ONNX.

use crate::dtype::{DType, Scalar};
use crate::io::{HostTensor, element_count};
use crate::util::sort;
use std::f64::consts::FRAC_PI_2;

/// Primitive on one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Un {
    /// -x
    Neg,
    /// |x|
    Abs,
    /// e^x
    Exp,
    /// natural logarithm
    Log,
    /// square root
    Sqrt,
    /// 1/x
    Recip,
    /// sine
    Sin,
    /// cosine
    Cos,
    /// tangent
    Tan,
    /// inverse sine
    Asin,
    /// inverse cosine
    Acos,
    /// inverse tangent
    Atan,
    /// hyperbolic sine
    Sinh,
    /// hyperbolic cosine
    Cosh,
    /// hyperbolic tangent
    Tanh,
    /// inverse hyperbolic sine
    Asinh,
    /// inverse hyperbolic cosine
    Acosh,
    /// inverse hyperbolic tangent
    Atanh,
    /// 1/(1+e^-x)
    Sigmoid,
    /// the error function
    Erf,
    /// round down
    Floor,
    /// round up
    Ceil,
    /// round half to even
    Round,
    /// -1, 0 or 1
    Sign,
    /// is it NaN?
    IsNan,
    /// complement of all bits; of a bool its negation
    Not,
}

/// Primitive on two operands of one dtype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bin {
    /// a + b
    Add,
    /// a - b
    Sub,
    /// a * b
    Mul,
    /// a / b; integers truncate, by zero is 0
    Div,
    /// a - b * trunc(a / b), with the sign of a (C's `%`, `fmod`)
    Rem,
    /// a to the power b
    Pow,
    /// the larger; NaN wins
    Max,
    /// the smaller; NaN wins
    Min,
    /// a < b
    Lt,
    /// a == b
    Eq,
    /// bits and
    And,
    /// bits or
    Or,
    /// bits exclusive or
    Xor,
    /// a << b
    Shl,
    /// a >> b
    Shr,
}

/// A reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Red {
    /// sum
    Sum,
    /// product
    Prod,
    /// maximum
    Max,
    /// minimum
    Min,
}

/// The shape both operands broadcast to.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let dim = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

/// Element strides of a C-order tensor.
pub(super) fn strides(shape: &[usize]) -> Vec<isize> {
    let mut out = vec![0; shape.len()];
    let mut stride = 1;
    for (s, &d) in out.iter_mut().zip(shape).rev() {
        *s = stride;
        stride *= d as isize;
    }
    out
}

/// Calls `f` with the element offset of every index of `shape`, in C order.
fn walk(shape: &[usize], strides: &[isize], base: isize, mut f: impl FnMut(usize)) {
    let count = element_count(shape).unwrap_or(0);
    let mut index = vec![0usize; shape.len()];
    let mut at = base;
    for _ in 0..count {
        f(at as usize);
        for i in (0..shape.len()).rev() {
            index[i] += 1;
            at += strides[i];
            if index[i] < shape[i] {
                break;
            }
            at -= strides[i] * shape[i] as isize;
            index[i] = 0;
        }
    }
}

/// A strided view, copied: permutations, slices, broadcasts and flips are all this.
pub(super) fn view(t: &HostTensor, shape: &[usize], strides: &[isize], base: isize) -> HostTensor {
    let size = t.dtype.size();
    let mut data = Vec::with_capacity(element_count(shape).unwrap_or(0) * size);
    walk(shape, strides, base, |at| data.extend_from_slice(&t.data[at * size..(at + 1) * size]));
    HostTensor { dtype: t.dtype, shape: shape.to_vec(), data }
}

/// Broadcasts to `shape`, which must fit.
pub(super) fn expand(t: &HostTensor, shape: &[usize]) -> HostTensor {
    if t.shape == shape {
        return t.clone();
    }
    let own = strides(&t.shape);
    let lead = shape.len() - t.shape.len();
    let s: Vec<isize> =
        (0..shape.len()).map(|i| if i < lead || t.shape[i - lead] == 1 { 0 } else { own[i - lead] }).collect();
    view(t, shape, &s, 0)
}

/// Reorders axes.
pub(super) fn permute(t: &HostTensor, order: &[usize]) -> HostTensor {
    let own = strides(&t.shape);
    let shape: Vec<usize> = order.iter().map(|&a| t.shape[a]).collect();
    let s: Vec<isize> = order.iter().map(|&a| own[a]).collect();
    view(t, &shape, &s, 0)
}

/// Takes `len[i]` elements of each axis from `start[i]` by `step[i]`, which may be negative.
pub(super) fn slice(t: &HostTensor, start: &[usize], len: &[usize], step: &[isize]) -> HostTensor {
    let own = strides(&t.shape);
    let base = start.iter().zip(&own).map(|(&a, &s)| a as isize * s).sum();
    let s: Vec<isize> = own.iter().zip(step).map(|(a, b)| a * b).collect();
    view(t, len, &s, base)
}

/// Copies `src` into `dst` at an offset of every axis.
fn place(dst: &mut HostTensor, src: &HostTensor, at: &[usize]) {
    let own = strides(&dst.shape);
    let base = at.iter().zip(&own).map(|(&a, &s)| a as isize * s).sum();
    let size = dst.dtype.size();
    let mut from = 0;
    walk(&src.shape, &own, base, |to| {
        dst.data[to * size..(to + 1) * size].copy_from_slice(&src.data[from..from + size]);
        from += size;
    });
}

/// A tensor of one value.
pub(super) fn full(dtype: DType, shape: &[usize], v: Scalar) -> HostTensor {
    let n = element_count(shape).unwrap_or(0);
    let mut one = vec![0; dtype.size()];
    v.write(dtype, &mut one);
    HostTensor { dtype, shape: shape.to_vec(), data: one.repeat(n) }
}

/// Adds `v` before and after every axis.
pub(super) fn pad(t: &HostTensor, before: &[usize], after: &[usize], v: Scalar) -> HostTensor {
    let shape: Vec<usize> = t.shape.iter().zip(before).zip(after).map(|((d, a), b)| d + a + b).collect();
    let mut out = full(t.dtype, &shape, v);
    place(&mut out, t, before);
    out
}

/// Joins along an axis.
pub(super) fn concat(parts: &[&HostTensor], axis: usize) -> HostTensor {
    let mut shape = parts[0].shape.clone();
    shape[axis] = parts.iter().map(|p| p.shape[axis]).sum();
    let mut out = full(parts[0].dtype, &shape, Scalar::Int(0));
    let mut at = vec![0; shape.len()];
    for p in parts {
        place(&mut out, p, &at);
        at[axis] += p.shape[axis];
    }
    out
}

/// Elements read for arithmetic.
enum Buf {
    I(Vec<i64>),
    F(Vec<f64>),
}

fn read(t: &HostTensor) -> Buf {
    match t.dtype {
        DType::F32 => {
            Buf::F(t.data.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect())
        }
        d if d.is_float() => Buf::F(t.scalars().map(Scalar::as_f64).collect()),
        _ => Buf::I(t.scalars().map(Scalar::as_i64).collect()),
    }
}

fn floats(dtype: DType, shape: &[usize], v: impl Iterator<Item = f64>) -> HostTensor {
    if dtype == DType::F32 {
        let data = v.flat_map(|x| (x as f32).to_le_bytes()).collect();
        return HostTensor { dtype, shape: shape.to_vec(), data };
    }
    scalars(dtype, shape, v.map(|x| Scalar::float(x).cast(DType::F64, dtype)))
}

fn ints(dtype: DType, shape: &[usize], v: impl Iterator<Item = i64>) -> HostTensor {
    scalars(dtype, shape, v.map(|x| Scalar::Int(x).cast(DType::I64, dtype)))
}

fn bools(shape: &[usize], v: impl Iterator<Item = bool>) -> HostTensor {
    HostTensor { dtype: DType::Bool, shape: shape.to_vec(), data: v.map(u8::from).collect() }
}

fn scalars(dtype: DType, shape: &[usize], v: impl Iterator<Item = Scalar>) -> HostTensor {
    let size = dtype.size();
    let mut data = Vec::with_capacity(v.size_hint().0 * size);
    let mut one = [0; 8];
    for s in v {
        s.write(dtype, &mut one);
        data.extend_from_slice(&one[..size]);
    }
    HostTensor { dtype, shape: shape.to_vec(), data }
}

/// Applies a unary primitive.
pub(super) fn unary(op: Un, t: &HostTensor) -> HostTensor {
    match read(t) {
        Buf::F(v) if op == Un::IsNan => bools(&t.shape, v.iter().map(|x| x.is_nan())),
        Buf::I(v) if op == Un::IsNan => bools(&t.shape, v.iter().map(|_| false)),
        Buf::F(v) => floats(t.dtype, &t.shape, v.into_iter().map(|x| unary_f(op, x))),
        Buf::I(v) if t.dtype == DType::Bool && op == Un::Not => bools(&t.shape, v.iter().map(|&x| x == 0)),
        Buf::I(v) => ints(
            t.dtype,
            &t.shape,
            v.into_iter().map(|x| match op {
                Un::Neg => x.wrapping_neg(),
                Un::Abs if t.dtype.is_signed() => x.wrapping_abs(),
                Un::Sign if t.dtype == DType::U64 => i64::from(x != 0),
                Un::Sign => x.signum(),
                Un::Not => !x,
                Un::Abs | Un::Floor | Un::Ceil | Un::Round => x,
                _ => unary_f(op, x as f64) as i64,
            }),
        ),
    }
}

fn arcsine(x: f64) -> f64 {
    (x / ((1.0 - x) * (1.0 + x)).sqrt()).atan()
}

fn unary_f(op: Un, x: f64) -> f64 {
    match op {
        Un::Neg => -x,
        Un::Abs => x.abs(),
        Un::Exp => x.exp(),
        Un::Log => x.ln(),
        Un::Sqrt => x.sqrt(),
        Un::Recip => 1.0 / x,
        Un::Sin => x.sin(),
        Un::Cos => x.cos(),
        // not the standard library's, which bring eight more functions into a page's module; near 0 by their series
        Un::Tan => x.sin() / x.cos(),
        Un::Asin => arcsine(x),
        Un::Acos => FRAC_PI_2 - arcsine(x),
        Un::Atan => x.atan(),
        Un::Sinh if x.abs() < 1e-4 => x + x * x * x / 6.0,
        Un::Sinh => (x.exp() - (-x).exp()) / 2.0,
        Un::Cosh => (x.exp() + (-x).exp()) / 2.0,
        Un::Tanh if x.abs() < 1e-4 => x - x * x * x / 3.0,
        Un::Tanh => {
            let e = (-2.0 * x.abs()).exp();
            ((1.0 - e) / (1.0 + e)).copysign(x)
        }
        Un::Asinh if x.abs() < 1e-4 => x - x * x * x / 6.0,
        Un::Asinh => (x.abs() + (x * x + 1.0).sqrt()).ln().copysign(x),
        Un::Acosh => (x + (x * x - 1.0).sqrt()).ln(),
        Un::Atanh if x.abs() < 1e-4 => x + x * x * x / 3.0,
        Un::Atanh => ((1.0 + x) / (1.0 - x)).ln() / 2.0,
        Un::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Un::Erf => erf(x),
        Un::Floor => x.floor(),
        Un::Ceil => x.ceil(),
        Un::Round => x.round_ties_even(),
        Un::Sign if x == 0.0 || x.is_nan() => x,
        Un::Sign => x.signum(),
        Un::IsNan | Un::Not => x,
    }
}

/// The error function to f64 accuracy: its series where it is small, a continued fraction of erfc elsewhere.
fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    let y = if a < 2.5 {
        let mut term = a;
        let mut sum = a;
        for n in 1..80 {
            term *= -a * a / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if a < 6.0 {
        let tail = (1..60).rev().fold(0.0, |f, n| f64::from(n) / 2.0 / (a + f));
        1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / (a + tail)
    } else {
        1.0
    };
    y.copysign(x)
}

/// Applies a binary primitive with broadcasting; dtypes are equal and shapes fit.
pub(super) fn binary(op: Bin, a: &HostTensor, b: &HostTensor) -> Option<HostTensor> {
    let shape = broadcast(&a.shape, &b.shape)?;
    let (a, b) = (expand(a, &shape), expand(b, &shape));
    let dtype = a.dtype;
    Some(match (read(&a), read(&b)) {
        (Buf::F(x), Buf::F(y)) => {
            let pairs = x.into_iter().zip(y);
            match op {
                Bin::Lt => bools(&shape, pairs.map(|(x, y)| x < y)),
                Bin::Eq => bools(&shape, pairs.map(|(x, y)| x == y)),
                _ => floats(dtype, &shape, pairs.map(|(x, y)| binary_f(op, x, y))),
            }
        }
        (Buf::I(x), Buf::I(y)) => {
            let wide = move |v: i64| if dtype == DType::U64 { i128::from(v as u64) } else { i128::from(v) };
            let pairs = x.into_iter().zip(y).map(move |(x, y)| (wide(x), wide(y)));
            match op {
                Bin::Lt => bools(&shape, pairs.map(|(x, y)| x < y)),
                Bin::Eq => bools(&shape, pairs.map(|(x, y)| x == y)),
                _ => ints(dtype, &shape, pairs.map(|(x, y)| binary_i(op, x, y, dtype))),
            }
        }
        _ => return None,
    })
}

fn binary_f(op: Bin, x: f64, y: f64) -> f64 {
    match op {
        Bin::Add => x + y,
        Bin::Sub => x - y,
        Bin::Mul => x * y,
        Bin::Div => x / y,
        Bin::Rem => x % y,
        Bin::Pow => x.powf(y),
        Bin::Max if x.is_nan() || x > y => x,
        Bin::Min if x.is_nan() || x < y => x,
        _ => y,
    }
}

fn binary_i(op: Bin, x: i128, y: i128, dtype: DType) -> i64 {
    let bits = i128::from(dtype.bits().max(8));
    let v = match op {
        Bin::Add if dtype == DType::Bool => x | y,
        Bin::Mul if dtype == DType::Bool => x & y,
        Bin::Add => x + y,
        Bin::Sub => x - y,
        Bin::Mul => x.wrapping_mul(y),
        Bin::Div => x.checked_div(y).unwrap_or(0),
        Bin::Rem => x.checked_rem(y).unwrap_or(0),
        Bin::Pow if y < 0 => (x as f64).powf(y as f64) as i128,
        Bin::Pow => (0..y.min(1 << 12)).fold(1i128, |p, _| i128::from(p.wrapping_mul(x) as i64)),
        Bin::Max => x.max(y),
        Bin::Min => x.min(y),
        Bin::And => x & y,
        Bin::Or => x | y,
        Bin::Xor => x ^ y,
        Bin::Shl if (0..bits).contains(&y) => x << y,
        Bin::Shr if (0..bits).contains(&y) => x >> y,
        _ => 0,
    };
    v as i64
}

/// Chooses `a` where `c` is true, else `b`, with broadcasting.
pub(super) fn select(c: &HostTensor, a: &HostTensor, b: &HostTensor) -> Option<HostTensor> {
    let shape = broadcast(&broadcast(&c.shape, &a.shape)?, &b.shape)?;
    let (c, a, b) = (expand(c, &shape), expand(a, &shape), expand(b, &shape));
    let size = a.dtype.size();
    let mut data = Vec::with_capacity(a.data.len());
    for (i, &c) in c.data.iter().enumerate() {
        let from = if c != 0 { &a.data } else { &b.data };
        data.extend_from_slice(&from[i * size..(i + 1) * size]);
    }
    Some(HostTensor { dtype: a.dtype, shape, data })
}

/// Brings `axes` last: (rows, length of a row's reduction, permuted tensor).
fn rows(t: &HostTensor, axes: &[usize]) -> (usize, HostTensor) {
    let order: Vec<usize> = (0..t.shape.len()).filter(|a| !axes.contains(a)).chain(axes.iter().copied()).collect();
    let n = axes.iter().map(|&a| t.shape[a]).product();
    (n, permute(t, &order))
}

fn kept(shape: &[usize], axes: &[usize]) -> Vec<usize> {
    shape.iter().enumerate().map(|(i, &d)| if axes.contains(&i) { 1 } else { d }).collect()
}

/// Reduces `axes`, which stay with length 1.
pub(super) fn reduce(op: Red, t: &HostTensor, axes: &[usize]) -> HostTensor {
    let (n, p) = rows(t, axes);
    let shape = kept(&t.shape, axes);
    let count = element_count(&shape).unwrap_or(0);
    let row = |i: usize| i * n..(i + 1) * n;
    match read(&p) {
        Buf::F(v) => floats(
            t.dtype,
            &shape,
            (0..count).map(|i| {
                let r = v[row(i)].iter().copied();
                match op {
                    Red::Sum => r.sum(),
                    Red::Prod => r.product(),
                    Red::Max => r.fold(f64::NEG_INFINITY, |a, b| binary_f(Bin::Max, a, b)),
                    Red::Min => r.fold(f64::INFINITY, |a, b| binary_f(Bin::Min, a, b)),
                }
            }),
        ),
        Buf::I(v) => {
            let (lo, hi) = t.dtype.int_range().unwrap_or((0, 0));
            let wide = |v: i64| if t.dtype == DType::U64 { i128::from(v as u64) } else { i128::from(v) };
            ints(
                t.dtype,
                &shape,
                (0..count).map(|i| {
                    let r = v[row(i)].iter().map(|&v| wide(v));
                    let v = match op {
                        Red::Sum => r.sum::<i128>(),
                        Red::Prod => r.fold(1i128, |a, b| i128::from(a.wrapping_mul(b) as i64)),
                        Red::Max => r.fold(lo, i128::max),
                        Red::Min => r.fold(hi, i128::min),
                    };
                    v as i64
                }),
            )
        }
    }
}

/// Index of the first largest element along an axis that stays with length 1; i64.
pub(super) fn argmax(t: &HostTensor, axis: usize) -> HostTensor {
    let (n, p) = rows(t, &[axis]);
    let shape = kept(&t.shape, &[axis]);
    let v: Vec<f64> = match read(&p) {
        Buf::F(v) => v,
        Buf::I(v) => v.into_iter().map(|x| x as f64).collect(),
    };
    let best = |r: &[f64]| (1..r.len()).fold(0, |b, i| if r[i] > r[b] { i } else { b }) as i64;
    let out: Vec<i64> = v.chunks_exact(n.max(1)).map(best).collect();
    ints(DType::I64, &shape, out.into_iter())
}

/// Sum of all elements up to each, along an axis.
pub(super) fn cumsum(t: &HostTensor, axis: usize) -> HostTensor {
    let n = t.shape[axis];
    let order: Vec<usize> = (0..t.shape.len()).filter(|&a| a != axis).chain([axis]).collect();
    let p = permute(t, &order);
    let out = match read(&p) {
        Buf::F(mut v) => {
            v.chunks_exact_mut(n.max(1)).for_each(|r| (1..r.len()).for_each(|i| r[i] += r[i - 1]));
            floats(t.dtype, &p.shape, v.into_iter())
        }
        Buf::I(mut v) => {
            let add = |r: &mut [i64]| (1..r.len()).for_each(|i| r[i] = r[i].wrapping_add(r[i - 1]));
            v.chunks_exact_mut(n.max(1)).for_each(add);
            ints(t.dtype, &p.shape, v.into_iter())
        }
    };
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    permute(&out, &back)
}

/// The `k` largest (or smallest) along an axis, sorted; ties keep their order. Values and i64 indices.
pub(super) fn top_k(t: &HostTensor, axis: usize, k: usize, largest: bool) -> (HostTensor, HostTensor) {
    let n = t.shape[axis];
    let order: Vec<usize> = (0..t.shape.len()).filter(|&a| a != axis).chain([axis]).collect();
    let p = permute(t, &order);
    let v: Vec<f64> = p.scalars().map(|s| s.as_f64_of(t.dtype)).collect();
    let mut shape = p.shape.clone();
    shape[t.shape.len() - 1] = k;
    let mut picks = Vec::new();
    for r in v.chunks_exact(n.max(1)) {
        let mut at: Vec<usize> = (0..n).collect();
        sort::by(&mut at, |&a, &b| if largest { r[b].total_cmp(&r[a]) } else { r[a].total_cmp(&r[b]) });
        picks.extend(at.into_iter().take(k).map(|i| i as i64));
    }
    let index = ints(DType::I64, &shape, picks.iter().copied());
    let size = t.dtype.size();
    let mut data = Vec::new();
    for (i, &j) in picks.iter().enumerate() {
        let at = (i / k.max(1) * n + j as usize) * size;
        data.extend_from_slice(&p.data[at..at + size]);
    }
    let values = HostTensor { dtype: t.dtype, shape, data };
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &a)| back[a] = i);
    (permute(&values, &back), permute(&index, &back))
}

/// `out[.., i.., ..] = t[.., index[i..], ..]` along an axis. Indices are in range or negative from the end; `None` if not.
pub(super) fn gather(t: &HostTensor, index: &HostTensor, axis: usize) -> Option<HostTensor> {
    let n = t.shape[axis];
    let outer: usize = t.shape[..axis].iter().product();
    let inner = t.shape[axis + 1..].iter().product::<usize>() * t.dtype.size();
    let index_values = resolve(index, n)?;
    let mut data = Vec::with_capacity(outer * index_values.len() * inner);
    for o in 0..outer {
        for &i in &index_values {
            let at = (o * n + i) * inner;
            data.extend_from_slice(&t.data[at..at + inner]);
        }
    }
    let shape = [&t.shape[..axis], &index.shape, &t.shape[axis + 1..]].concat();
    Some(HostTensor { dtype: t.dtype, shape, data })
}

fn resolve(index: &HostTensor, n: usize) -> Option<Vec<usize>> {
    let at = |i: i64| usize::try_from(if i < 0 { i + n as i64 } else { i }).ok().filter(|&i| i < n);
    index.to_i64().into_iter().map(at).collect()
}

/// `out[i, j] = t[index[i, j], j]` along an axis; the other axes of `index` are not longer than those of `t`.
pub(super) fn gather_elements(t: &HostTensor, index: &HostTensor, axis: usize) -> Option<HostTensor> {
    let picks = resolve(index, t.shape[axis])?;
    let own = strides(&t.shape);
    let mut along = own.clone();
    along[axis] = 0;
    let size = t.dtype.size();
    let mut data = Vec::with_capacity(picks.len() * size);
    let mut i = 0;
    walk(&index.shape, &along, 0, |at| {
        let at = (at + picks[i] * own[axis] as usize) * size;
        data.extend_from_slice(&t.data[at..at + size]);
        i += 1;
    });
    Some(HostTensor { dtype: t.dtype, shape: index.shape.clone(), data })
}

/// A copy of `t` whose slices at the index rows are replaced by `updates`, or combined with them.
pub(super) fn scatter_nd(
    t: &HostTensor,
    index: &HostTensor,
    updates: &HostTensor,
    how: Option<Bin>,
) -> Option<HostTensor> {
    let (&width, rows) = index.shape.split_last()?;
    let inner: usize = t.shape.get(width..)?.iter().product();
    let own = strides(&t.shape);
    let at = index.to_i64();
    let size = t.dtype.size();
    let mut out = t.clone();
    for r in 0..element_count(rows)? {
        let mut base = 0;
        for (j, &i) in at[r * width..(r + 1) * width].iter().enumerate() {
            let n = t.shape[j] as i64;
            let i = if i < 0 { i + n } else { i };
            if !(0..n).contains(&i) {
                return None;
            }
            base += i as usize * own[j] as usize;
        }
        merge(&mut out, base * size, updates.data.get(r * inner * size..(r + 1) * inner * size)?, how)?;
    }
    Some(out)
}

/// The same, element by element along an axis.
pub(super) fn scatter_elements(
    t: &HostTensor,
    index: &HostTensor,
    updates: &HostTensor,
    axis: usize,
    how: Option<Bin>,
) -> Option<HostTensor> {
    let picks = resolve(index, t.shape[axis])?;
    let own = strides(&t.shape);
    let mut along = own.clone();
    along[axis] = 0;
    let size = t.dtype.size();
    let mut out = t.clone();
    let mut i = 0;
    let mut good = Some(());
    walk(&index.shape, &along, 0, |at| {
        let at = (at + picks[i] * own[axis] as usize) * size;
        if good.is_some() {
            good = updates.data.get(i * size..(i + 1) * size).and_then(|u| merge(&mut out, at, u, how));
        }
        i += 1;
    });
    good.map(|()| out)
}

fn merge(out: &mut HostTensor, at: usize, update: &[u8], how: Option<Bin>) -> Option<()> {
    let place = out.data.get_mut(at..at + update.len())?;
    match how {
        None => place.copy_from_slice(update),
        Some(op) => {
            let shape = vec![update.len() / out.dtype.size()];
            let old = HostTensor { dtype: out.dtype, shape: shape.clone(), data: place.to_vec() };
            let new = HostTensor { dtype: out.dtype, shape, data: update.to_vec() };
            place.copy_from_slice(&binary(op, &old, &new)?.data);
        }
    }
    Some(())
}
