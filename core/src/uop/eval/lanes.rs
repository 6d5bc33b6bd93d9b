//! Vectors of values of one dtype, and the elementwise ops on them, for the interpreters. Three representations cover
//! all dtypes: f32 (also for f16 and bf16, always rounded to their own precision), f64, and i64 (for integers, wrapped
//! to their width, for bool as 0 or 1, and for u64 as its bit pattern).

use crate::DType;
use crate::dtype::Scalar;
use crate::uop::{Op, ReduceOp};
use crate::util::trig;
use crate::util::words::{dot_bytes, dot_pairs, lookup_bytes};
use half::{bf16, f16};
use std::ops::Range;

/// Values of one dtype, which the owner keeps beside them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lanes {
    F32(Vec<f32>),
    F64(Vec<f64>),
    Int(Vec<i64>),
}

impl Lanes {
    /// `n` copies of a constant.
    pub(super) fn splat(v: Scalar, dt: DType, n: usize) -> Lanes {
        match dt {
            DType::F64 => Lanes::F64(vec![v.as_f64(); n]),
            DType::F16 | DType::BF16 | DType::F32 => Lanes::F32(vec![v.as_f64() as f32; n]),
            _ => Lanes::Int(vec![v.as_i64(); n]),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Lanes::F32(v) => v.len(),
            Lanes::F64(v) => v.len(),
            Lanes::Int(v) => v.len(),
        }
    }

    pub(super) fn get(&self, i: usize) -> Scalar {
        match self {
            Lanes::F32(v) => Scalar::float(v[i] as f64),
            Lanes::F64(v) => Scalar::float(v[i]),
            Lanes::Int(v) => Scalar::Int(v[i]),
        }
    }

    /// The elements at the given positions.
    pub(super) fn pick(&self, at: impl Iterator<Item = usize>) -> Lanes {
        match self {
            Lanes::F32(v) => Lanes::F32(at.map(|i| v[i]).collect()),
            Lanes::F64(v) => Lanes::F64(at.map(|i| v[i]).collect()),
            Lanes::Int(v) => Lanes::Int(at.map(|i| v[i]).collect()),
        }
    }

    /// Concatenates parts, which all have the same representation.
    pub(super) fn concat(parts: Vec<Lanes>) -> Lanes {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or(Lanes::Int(Vec::new()));
        for p in parts {
            match (&mut all, p) {
                (Lanes::F32(a), Lanes::F32(b)) => a.extend(b),
                (Lanes::F64(a), Lanes::F64(b)) => a.extend(b),
                (Lanes::Int(a), Lanes::Int(b)) => a.extend(b),
                _ => unreachable!("parts have one representation"),
            }
        }
        all
    }

    /// Appends all elements to `out` as little-endian values of `dt`.
    pub(super) fn append_bytes(&self, dt: DType, out: &mut Vec<u8>) {
        fn put<T: Copy, const N: usize>(v: &[T], out: &mut Vec<u8>, f: impl Fn(T) -> [u8; N]) {
            out.reserve(v.len() * N);
            v.iter().for_each(|&x| out.extend_from_slice(&f(x)));
        }
        match (self, dt) {
            (Lanes::F32(v), DType::F16) => put(v, out, |x| f16::from_f32(x).to_le_bytes()),
            (Lanes::F32(v), DType::BF16) => put(v, out, |x| bf16::from_f32(x).to_le_bytes()),
            (Lanes::F32(v), _) => put(v, out, f32::to_le_bytes),
            (Lanes::F64(v), _) => put(v, out, f64::to_le_bytes),
            (Lanes::Int(v), dt) => match dt.size() {
                1 => put(v, out, |x| [x as u8]),
                2 => put(v, out, |x| (x as i16).to_le_bytes()),
                4 => put(v, out, |x| (x as i32).to_le_bytes()),
                _ => put(v, out, i64::to_le_bytes),
            },
        }
    }

    /// Reads little-endian elements of `dt` at the element positions `at`, which must be inside `bytes`.
    pub(super) fn read(dt: DType, bytes: &[u8], at: Positions<'_>) -> Lanes {
        fn get<T, const N: usize>(bytes: &[u8], at: Positions<'_>, f: impl Fn([u8; N]) -> T) -> Vec<T> {
            let mut out = Vec::with_capacity(at.n);
            let (elems, _) = bytes.as_chunks::<N>();
            for &Run { start, stride, n } in at.runs {
                match stride {
                    1 => out.extend(elems[start..start + n].iter().map(|&b| f(b))),
                    _ => out.extend((0..n as isize).map(|i| f(elems[(start as isize + i * stride) as usize]))),
                }
            }
            out
        }
        match dt {
            DType::F32 => Lanes::F32(get(bytes, at, f32::from_le_bytes)),
            DType::F16 => Lanes::F32(get(bytes, at, |b| f16::from_le_bytes(b).to_f32())),
            DType::BF16 => Lanes::F32(get(bytes, at, |b| bf16::from_le_bytes(b).to_f32())),
            DType::F64 => Lanes::F64(get(bytes, at, f64::from_le_bytes)),
            DType::Bool => Lanes::Int(get(bytes, at, |[b]| (b != 0) as i64)),
            DType::I8 => Lanes::Int(get(bytes, at, |[b]| b as i8 as i64)),
            DType::U8 | DType::Void => Lanes::Int(get(bytes, at, |[b]| b as i64)),
            DType::I16 => Lanes::Int(get(bytes, at, |b| i16::from_le_bytes(b) as i64)),
            DType::U16 => Lanes::Int(get(bytes, at, |b| u16::from_le_bytes(b) as i64)),
            DType::I32 => Lanes::Int(get(bytes, at, |b| i32::from_le_bytes(b) as i64)),
            DType::U32 => Lanes::Int(get(bytes, at, |b| u32::from_le_bytes(b) as i64)),
            DType::I64 | DType::U64 => Lanes::Int(get(bytes, at, i64::from_le_bytes)),
        }
    }
}

/// The `n` element positions `start, start + stride, ..`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) stride: isize,
    pub(super) n: usize,
}

/// A list of runs, and the total number of positions in them.
#[derive(Clone, Copy)]
pub(super) struct Positions<'a> {
    pub(super) runs: &'a [Run],
    pub(super) n: usize,
}

/// An elementwise op with result dtype `dt` on equally long sources of dtypes `sdt`. `None` if the op does not take
/// these dtypes.
pub(super) fn alu(op: Op, dt: DType, src: &[&Lanes], sdt: &[DType]) -> Option<Lanes> {
    use Lanes::*;
    let n = src.first()?.len();
    let out = match (op, src) {
        (Op::Cast, [x]) => cast(x, sdt[0], dt),
        (Op::Bitcast, [x]) => bitcast(x, sdt[0], dt)?,
        (Op::CmpLt | Op::CmpEq | Op::CmpNe, [x, y]) => {
            let mut o = vec![0; n];
            match (x, y) {
                (F32(x), F32(y)) => compare(op, x, y, &mut o),
                (F64(x), F64(y)) => compare(op, x, y, &mut o),
                (Int(x), Int(y)) if sdt[0] == DType::U64 => compare(op, &bias(x), &bias(y), &mut o),
                (Int(x), Int(y)) => compare(op, x, y, &mut o),
                _ => return None,
            }
            Int(o)
        }
        (Op::Where, [Int(c), F32(x), F32(y)]) => F32(select(c, x, y)),
        (Op::Where, [Int(c), F64(x), F64(y)]) => F64(select(c, x, y)),
        (Op::Where, [Int(c), Int(x), Int(y)]) => Int(select(c, x, y)),
        (_, [F32(x)]) if dt.is_float() => F32(f32_unary(op, x)?),
        (_, [F64(x)]) => F64(f64_unary(op, x)?),
        (Op::Neg, [Int(x)]) if dt.is_int() => Int(x.iter().map(|x| x.wrapping_neg()).collect()),
        (_, [F32(x), F32(y)]) => F32(f32_binary(op, x, y)?),
        (_, [F64(x), F64(y)]) => F64(f64_binary(op, x, y)?),
        (_, [Int(x), Int(y)]) => Int(int_binary(op, dt, x, y)?),
        (Op::MulAdd, [F32(a), F32(b), F32(c)]) => F32((0..n).map(|i| a[i].mul_add(b[i], c[i])).collect()),
        (Op::MulAdd, [F64(a), F64(b), F64(c)]) => F64((0..n).map(|i| a[i].mul_add(b[i], c[i])).collect()),
        (Op::MulAdd, [Int(a), Int(b), Int(c)]) if dt.is_int() => {
            Int((0..n).map(|i| a[i].wrapping_mul(b[i]).wrapping_add(c[i])).collect())
        }
        (Op::DotBytes, [Int(a), Int(b), Int(c)]) => Int((0..n).map(|i| c[i] + dot_bytes(a[i], b[i])).collect()),
        (Op::DotPairs, [Int(a), Int(b), Int(c)]) => Int((0..n).map(|i| c[i] + dot_pairs(a[i], b[i])).collect()),
        (Op::LookupBytes, [Int(a), Int(t0), Int(t1), Int(t2), Int(t3)]) => {
            Int((0..n).map(|i| lookup_bytes(a[i], [t0[i], t1[i], t2[i], t3[i]])).collect())
        }
        _ => return None,
    };
    Some(rounded(out, dt))
}

/// Rounds or wraps freshly computed values to their dtype.
fn rounded(mut x: Lanes, dt: DType) -> Lanes {
    match (&mut x, dt) {
        (Lanes::F32(v), DType::F16) => v.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
        (Lanes::F32(v), DType::BF16) => v.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
        (Lanes::Int(v), DType::I8) => v.iter_mut().for_each(|x| *x = *x as i8 as i64),
        (Lanes::Int(v), DType::I16) => v.iter_mut().for_each(|x| *x = *x as i16 as i64),
        (Lanes::Int(v), DType::I32) => v.iter_mut().for_each(|x| *x = *x as i32 as i64),
        (Lanes::Int(v), DType::U8) => v.iter_mut().for_each(|x| *x = *x as u8 as i64),
        (Lanes::Int(v), DType::U16) => v.iter_mut().for_each(|x| *x = *x as u16 as i64),
        (Lanes::Int(v), DType::U32) => v.iter_mut().for_each(|x| *x = *x as u32 as i64),
        _ => {}
    }
    x
}

/// Maps u64 bit patterns to i64 of the same order.
fn bias(v: &[i64]) -> Vec<i64> {
    v.iter().map(|&x| x ^ i64::MIN).collect()
}

fn map2<T: Copy>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> Vec<T> {
    x.iter().zip(y).map(|(&a, &b)| f(a, b)).collect()
}

fn select<T: Copy>(c: &[i64], x: &[T], y: &[T]) -> Vec<T> {
    c.iter().zip(x.iter().zip(y)).map(|(&c, (&a, &b))| if c != 0 { a } else { b }).collect()
}

fn compare<T: PartialOrd + Copy>(op: Op, x: &[T], y: &[T], out: &mut [i64]) {
    let pairs = out.iter_mut().zip(x.iter().zip(y));
    match op {
        Op::CmpLt => pairs.for_each(|(o, (a, b))| *o = (a < b) as i64),
        Op::CmpEq => pairs.for_each(|(o, (a, b))| *o = (a == b) as i64),
        _ => pairs.for_each(|(o, (a, b))| *o = (a != b) as i64),
    }
}

macro_rules! float_ops {
    ($t:ty, $unary:ident, $binary:ident, $max:ident, $min:ident) => {
        /// The larger; NaN if either is NaN.
        pub(super) fn $max(a: $t, b: $t) -> $t {
            if a.is_nan() || a >= b { a } else { b }
        }

        /// The smaller; NaN if either is NaN.
        pub(super) fn $min(a: $t, b: $t) -> $t {
            if a.is_nan() || a <= b { a } else { b }
        }

        fn $unary(op: Op, x: &[$t]) -> Option<Vec<$t>> {
            // transcendental functions are computed in f64 and rounded once
            let map = |f: fn(f64) -> f64| x.iter().map(|&v| f(v as f64) as $t).collect();
            Some(match op {
                Op::Neg => x.iter().map(|v| -v).collect(),
                Op::Exp2 => map(f64::exp2),
                Op::Log2 => map(f64::log2),
                Op::Sin => map(trig::sin),
                Op::Cos => map(trig::cos),
                Op::Tan => map(trig::tan),
                Op::Sqrt => x.iter().map(|v| v.sqrt()).collect(),
                Op::Recip => x.iter().map(|v| 1.0 / v).collect(),
                Op::Trunc => x.iter().map(|v| v.trunc()).collect(),
                _ => return None,
            })
        }

        fn $binary(op: Op, x: &[$t], y: &[$t]) -> Option<Vec<$t>> {
            Some(match op {
                Op::Add => map2(x, y, |a, b| a + b),
                Op::Sub => map2(x, y, |a, b| a - b),
                Op::Mul => map2(x, y, |a, b| a * b),
                Op::Div => map2(x, y, |a, b| a / b),
                Op::Pow => map2(x, y, |a, b| (a as f64).powf(b as f64) as $t),
                Op::Imod => map2(x, y, |a, b| a % b),
                Op::Max => map2(x, y, $max),
                Op::Min => map2(x, y, $min),
                _ => return None,
            })
        }
    };
}

float_ops!(f32, f32_unary, f32_binary, max_f32, min_f32);
float_ops!(f64, f64_unary, f64_binary, max_f64, min_f64);

/// A binary integer op in i64; the caller wraps the results to the width of `dt`.
fn int_binary(op: Op, dt: DType, x: &[i64], y: &[i64]) -> Option<Vec<i64>> {
    let (bool, u64) = (dt == DType::Bool, dt == DType::U64);
    let mask = dt.bits() as i64 - 1;
    Some(match op {
        Op::Add if bool => map2(x, y, |a, b| a | b),
        Op::Mul if bool => map2(x, y, |a, b| a & b),
        Op::And => map2(x, y, |a, b| a & b),
        Op::Or => map2(x, y, |a, b| a | b),
        Op::Xor => map2(x, y, |a, b| a ^ b),
        Op::Max if u64 => map2(x, y, |a, b| (a as u64).max(b as u64) as i64),
        Op::Min if u64 => map2(x, y, |a, b| (a as u64).min(b as u64) as i64),
        Op::Max => map2(x, y, i64::max),
        Op::Min => map2(x, y, i64::min),
        _ if bool => return None,
        Op::Add => map2(x, y, i64::wrapping_add),
        Op::Sub => map2(x, y, i64::wrapping_sub),
        Op::Mul => map2(x, y, i64::wrapping_mul),
        Op::Idiv | Op::FloorDiv if u64 => map2(x, y, |a, b| (a as u64).checked_div(b as u64).map_or(a, |q| q as i64)),
        Op::Imod | Op::FloorMod if u64 => map2(x, y, |a, b| (a as u64).checked_rem(b as u64).map_or(0, |r| r as i64)),
        Op::Idiv => map2(x, y, |a, b| if b == 0 { a } else { a.wrapping_div(b) }),
        Op::Imod => map2(x, y, |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
        Op::FloorDiv => map2(x, y, floor_div),
        Op::FloorMod => map2(x, y, floor_mod),
        Op::Shl => map2(x, y, |a, s| a << (s & mask)),
        Op::Shr if u64 => map2(x, y, |a, s| ((a as u64) >> (s & mask)) as i64),
        Op::Shr => map2(x, y, |a, s| a >> (s & mask)),
        _ => return None,
    })
}

fn floor_div(a: i64, b: i64) -> i64 {
    if b == 0 {
        return a;
    }
    let q = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

fn floor_mod(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    let r = a.wrapping_rem(b);
    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
}

fn cast(x: &Lanes, from: DType, to: DType) -> Lanes {
    fn map<T: Copy, U>(v: &[T], f: impl Fn(T) -> U) -> Vec<U> {
        v.iter().map(|&x| f(x)).collect()
    }
    let saturate = |v: f64| Scalar::float(v).cast(DType::F64, to).as_i64();
    match (x, to) {
        (Lanes::Int(v), DType::Bool) => Lanes::Int(map(v, |x| (x != 0) as i64)),
        (Lanes::F32(v), DType::Bool) => Lanes::Int(map(v, |x| (x != 0.0) as i64)),
        (Lanes::F64(v), DType::Bool) => Lanes::Int(map(v, |x| (x != 0.0) as i64)),
        (Lanes::Int(v), DType::F64) if from == DType::U64 => Lanes::F64(map(v, |x| x as u64 as f64)),
        (Lanes::Int(v), DType::F64) => Lanes::F64(map(v, |x| x as f64)),
        (Lanes::F32(v), DType::F64) => Lanes::F64(map(v, |x| x as f64)),
        (Lanes::F64(v), DType::F16) => Lanes::F32(map(v, |x| f16::from_f64(x).to_f32())),
        (Lanes::F64(v), DType::BF16) => Lanes::F32(map(v, |x| bf16::from_f64(x).to_f32())),
        (Lanes::F64(v), DType::F32) => Lanes::F32(map(v, |x| x as f32)),
        (Lanes::Int(v), to) if to.is_float() && from == DType::U64 => Lanes::F32(map(v, |x| x as u64 as f32)),
        (Lanes::Int(v), to) if to.is_float() => Lanes::F32(map(v, |x| x as f32)),
        (Lanes::F32(_), to) if to.is_float() => x.clone(),
        (Lanes::F64(_), DType::F64) | (Lanes::Int(_), _) => x.clone(),
        (Lanes::F32(v), DType::I32) => Lanes::Int(map(v, |x| x as i32 as i64)),
        (Lanes::F32(v), _) => Lanes::Int(map(v, |x| saturate(x as f64))),
        (Lanes::F64(v), _) => Lanes::Int(map(v, saturate)),
    }
}

fn bitcast(x: &Lanes, from: DType, to: DType) -> Option<Lanes> {
    if from.size() != to.size() {
        return None;
    }
    let mut bytes = Vec::new();
    x.append_bytes(from, &mut bytes);
    let n = x.len();
    Some(Lanes::read(to, &bytes, Positions { runs: &[Run { start: 0, stride: 1, n }], n }))
}

/// A reduction of values of a dtype. Its accumulators are [`Lanes`] too: f64 for all floats, and i64 for integers,
/// which are wrapped to their width at the end ([`Reducer::finish`]).
#[derive(Clone, Copy)]
pub(super) struct Reducer {
    pub(super) op: ReduceOp,
    pub(super) dt: DType,
}

impl Reducer {
    /// `n` new accumulators, which hold the identity of the operation.
    pub(super) fn start(self, n: usize) -> Lanes {
        let id = self.op.identity(self.dt);
        Lanes::splat(id, if self.dt.is_float() { DType::F64 } else { self.dt }, n)
    }

    /// Folds elements `range` of `x`, in order, into accumulator `i`.
    pub(super) fn fold(self, acc: &mut Lanes, i: usize, x: &Lanes, range: Range<usize>) {
        match (acc, x) {
            (Lanes::F64(a), Lanes::F32(v)) => a[i] = self.fold_floats(a[i], v[range].iter().map(|&x| x as f64)),
            (Lanes::F64(a), Lanes::F64(v)) => a[i] = self.fold_floats(a[i], v[range].iter().copied()),
            (Lanes::Int(a), Lanes::Int(v)) => a[i] = self.fold_ints(a[i], v[range].iter().copied()),
            _ => unreachable!("a reducer's values have its dtype"),
        }
    }

    /// Folds `x[i]` into accumulator `i` for every `i`.
    pub(super) fn fold_each(self, acc: &mut Lanes, x: &Lanes) {
        match (acc, x) {
            (Lanes::F64(a), Lanes::F32(v)) => self.each_float(a, v.iter().map(|&x| x as f64)),
            (Lanes::F64(a), Lanes::F64(v)) => self.each_float(a, v.iter().copied()),
            (Lanes::Int(a), Lanes::Int(v)) => {
                a.iter_mut().zip(v).for_each(|(a, &v)| *a = self.fold_ints(*a, std::iter::once(v)));
            }
            _ => unreachable!("a reducer's values have its dtype"),
        }
    }

    fn each_float(self, acc: &mut [f64], v: impl Iterator<Item = f64>) {
        let pairs = acc.iter_mut().zip(v);
        match self.op {
            ReduceOp::Add => pairs.for_each(|(a, v)| *a += v),
            ReduceOp::Mul => pairs.for_each(|(a, v)| *a *= v),
            ReduceOp::Max => pairs.for_each(|(a, v)| *a = max_f64(*a, v)),
            ReduceOp::Min => pairs.for_each(|(a, v)| *a = min_f64(*a, v)),
        }
    }

    fn fold_floats(self, a: f64, v: impl Iterator<Item = f64>) -> f64 {
        match self.op {
            ReduceOp::Add => v.fold(a, |a, b| a + b),
            ReduceOp::Mul => v.fold(a, |a, b| a * b),
            ReduceOp::Max => v.fold(a, max_f64),
            ReduceOp::Min => v.fold(a, min_f64),
        }
    }

    fn fold_ints(self, a: i64, v: impl Iterator<Item = i64>) -> i64 {
        let u64 = self.dt == DType::U64;
        match self.op {
            ReduceOp::Add if self.dt == DType::Bool => v.fold(a, |a, b| a | b),
            ReduceOp::Add => v.fold(a, i64::wrapping_add),
            ReduceOp::Mul => v.fold(a, i64::wrapping_mul),
            ReduceOp::Max if u64 => v.fold(a, |a, b| (a as u64).max(b as u64) as i64),
            ReduceOp::Min if u64 => v.fold(a, |a, b| (a as u64).min(b as u64) as i64),
            ReduceOp::Max => v.fold(a, i64::max),
            ReduceOp::Min => v.fold(a, i64::min),
        }
    }

    /// The results in the reduced dtype: floats are rounded to it, integers wrapped.
    pub(super) fn finish(self, acc: Lanes) -> Lanes {
        if self.dt.is_float() { cast(&acc, DType::F64, self.dt) } else { rounded(acc, self.dt) }
    }
}
