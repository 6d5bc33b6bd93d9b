//! One program per op and dtype over all pairs of edge values, one per pair of cast dtypes.

use super::alu::alu;
use super::build::{Build, Data, noise, stored};
use super::{Sample, Tol};
use crate::nodes::MakeNodes;
use gradloom_core::DType::{self, *};
use gradloom_core::dtype::Scalar;
use gradloom_core::rules::decomp::decompose;
use gradloom_core::target::{Lang, Target};
use gradloom_core::uop::{AxisKind, Graph, Op, UOp};

pub(super) fn add(t: &Target, out: &mut Vec<Sample>) {
    for dt in dtypes(t) {
        for &op in ops_of(dt) {
            if t.has_op(op, dt) || !t.caps.arithmetic.has(dt) {
                out.push(op_sample(t, op, dt));
            }
        }
    }
    for op in [Op::Sin, Op::Cos, Op::Tan] {
        out.push(circular_sample(t, op));
    }
    out.push(power_sample(t));
    out.extend([Op::DotBytes, Op::DotPairs].map(|op| dot_sample(t, op)));
    out.push(lookup_sample(t));
    let mut all = dtypes(t);
    all.extend([F16, BF16].into_iter().filter(|d| t.caps.storage.has(*d) && !t.caps.arithmetic.has(*d)));
    for &from in &all {
        for &to in &all {
            if from != to {
                out.push(cast_sample(t, from, to));
            }
        }
    }
    let words = [(F32, I32), (F32, U32), (I32, U32), (I64, U64), (F64, I64), (I16, U16), (I8, U8)];
    for (a, b) in words.into_iter().chain([(F16, I16), (F16, U16), (BF16, U16)]) {
        if all.contains(&a) && all.contains(&b) {
            out.push(bitcast_sample(t, a, b));
            // WGSL computes f16 as f32, and makes none of bits
            if a != F16 || t.lang != Lang::Wgsl {
                out.push(bitcast_sample(t, b, a));
            }
        }
    }
}

/// The dtypes that arithmetic is tried in. WGSL computes the 8, 16 and 64 bit ones in its own way.
fn dtypes(t: &Target) -> Vec<DType> {
    DType::ALL.into_iter().filter(|&d| t.caps.arithmetic.has(d) || t.lang == Lang::Wgsl && d != F64).collect()
}

fn ops_of(dt: DType) -> &'static [Op] {
    use Op::*;
    const FLOAT: &[Op] = &[
        Neg, Exp2, Log2, Sin, Cos, Tan, Sqrt, Recip, Trunc, Add, Sub, Mul, Div, Pow, Max, Min, CmpLt, CmpEq, CmpNe,
        Where, MulAdd,
    ];
    const INT: &[Op] =
        &[Neg, Add, Sub, Mul, Idiv, Imod, Max, Min, And, Or, Xor, Shl, Shr, CmpLt, CmpEq, CmpNe, Where, MulAdd];
    const BOOL: &[Op] = &[Add, Mul, Max, Min, And, Or, Xor, CmpLt, CmpEq, CmpNe, Where];
    match dt {
        Bool => BOOL,
        F16 | BF16 => &[Neg, Sqrt, Recip, Trunc, Add, Sub, Mul, Div, Max, Min, CmpLt, CmpEq, CmpNe, Where],
        _ if dt.is_float() => FLOAT,
        _ => INT,
    }
}

/// Values where ops have corners.
pub(super) fn edges(dt: DType) -> Vec<Scalar> {
    let list: Vec<f64> = match dt {
        Bool => vec![0.0, 1.0],
        _ if dt.is_float() => {
            let big = if dt == F16 { 6e4 } else { 1e10 };
            let nan = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
            let mut v = vec![0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.25, 3.0, 7.75, -100.0, 255.5, big, -big, 1.0 / 1024.0];
            v.extend(nan);
            v
        }
        _ => {
            let (lo, hi) = dt.int_range().unwrap();
            let small = [-100i128, -33, -8, -7, -3, -2, -1, 0, 1, 2, 3, 5, 7, 31, 100];
            let wide = [1 << 16, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 33) + 5, -(1 << 32), 123_456_789_012_345];
            let ends = [lo, lo + 1, hi - 1, hi, hi / 3];
            let mut v: Vec<i128> =
                small.into_iter().chain(wide).chain(ends).filter(|x| (lo..=hi).contains(x)).collect();
            v.sort();
            v.dedup();
            return v.into_iter().map(|x| Scalar::Int(x as i64)).collect();
        }
    };
    list.into_iter().map(|v| Scalar::from_f64(v, dt)).collect()
}

/// `out[i] = f(ins[0][i], ..)` with lanes, two registers where the length allows.
pub(super) fn elementwise(
    t: &Target,
    name: &str,
    ins: &[Data],
    want: Data,
    tol: Tol,
    f: impl Fn(&mut Graph, &[UOp]) -> UOp,
) -> Sample {
    let (lanes, regs) = (t.caps.lanes.max(1), 2);
    let step = lanes * regs;
    let n = want.values.len().next_multiple_of(step);
    let fill = |d: &Data| Data { dt: stored(t, d.dt), values: d.values.iter().cycle().take(n).copied().collect() };
    let mut b = Build::new(t);
    let ptrs: Vec<UOp> = ins.iter().map(|d| b.input(fill(d))).collect();
    let dst = b.output(fill(&want));
    b.tol = tol;
    let i = b.launch(n / step);
    let reg = b.tile(regs, AxisKind::Upcast, false);
    let mut strides = vec![(reg, lanes as i64)];
    if lanes > 1 {
        strides.push((b.tile(lanes, AxisKind::Upcast, true), 1));
    }
    let at = b.times(i, step as i64);
    let xs: Vec<UOp> = ptrs.iter().zip(ins).map(|(&p, d)| b.load(p, at, &strides, d.dt)).collect();
    let y = f(&mut b.g, &xs);
    b.store(dst, at, &strides, y);
    b.finish(name)
}

/// A function of angles as the target computes it, on every exponent and on the floats next to multiples of pi/2.
fn circular_sample(t: &Target, op: Op) -> Sample {
    let mut values = vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, -f32::MAX, 1e-45, 1e7, 5e6];
    // shaders may take subnormal numbers for zero
    let least = u32::from(t.lang == Lang::Wgsl);
    for exponent in least..255u32 {
        for i in 0..32 {
            let mantissa = (noise((exponent * 32 + i) as usize).abs() * 8_388_607.0) as u32;
            values.push(f32::from_bits((i & 1) << 31 | exponent << 23 | mantissa));
        }
    }
    values.extend((1..2000).map(|n| (n as f64 * 13.0 * std::f64::consts::FRAC_PI_2) as f32));
    let x: Vec<Scalar> = values.iter().map(|&v| Scalar::float(v as f64)).collect();
    let want = x.iter().map(|&x| alu(op, F32, &[x])).collect();
    let x = Data { dt: F32, values: x };
    // a tangent beyond pi/4 is a quotient, and shaders may be 2.5 ulp off in a division
    let ulp = if op == Op::Tan && t.lang == Lang::Wgsl { 4.0 } else { 2.0 };
    elementwise(t, &format!("{}_everywhere", op.name()), &[x], Data { dt: F32, values: want }, Tol::Ulp(ulp), |g, x| {
        let u = g.unary(op, x[0]);
        decompose(g, u, t).expect("it has a lowering")
    })
}

/// Powers as the target computes them: of every size, of bases next to 1, and at the ends of what there is.
fn power_sample(t: &Target) -> Sample {
    let shader = t.lang == Lang::Wgsl;
    // shaders may take subnormal numbers for zero
    let lost = |v: f32| shader && v.is_subnormal();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (a, b) in powers() {
        if !lost(a) && !lost(b) && !lost(f64::from(a).powf(f64::from(b)) as f32) {
            x.push(Scalar::float(a.into()));
            y.push(Scalar::float(b.into()));
        }
    }
    let want = x.iter().zip(&y).map(|(&x, &y)| alu(Op::Pow, F32, &[x, y])).collect();
    let (x, y) = (Data { dt: F32, values: x }, Data { dt: F32, values: y });
    elementwise(t, "pow_everywhere", &[x, y], Data { dt: F32, values: want }, Tol::Ulp(2.0), |g, x| {
        let u = g.binary(Op::Pow, x[0], x[1]);
        decompose(g, u, t).expect("it has a lowering")
    })
}

/// Bases and exponents whose powers are numbers, and some with special values.
pub fn powers() -> Vec<(f32, f32)> {
    let mut out =
        vec![(1e7, 1.0), (f32::MAX, 1.0), (f32::MAX, 0.5), (10.0, 38.0), (10.0, -38.0), (2.0, 127.0), (2.0, -126.0)];
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (state >> 32) as u32
    };
    for i in 0..4000 {
        // of all sizes, between 1/2 and 2, next to 1
        let base = match i % 3 {
            0 => f32::from_bits(1 + next() % 0x7F7F_FFFE),
            1 => f32::from_bits(0x3F00_0000 + next() % (1 << 24)),
            _ => f32::from_bits(0x3F80_0000 - 200 + next() % 400),
        };
        let size = f64::from(next() as i32) / 2f64.powi(31) * 149.0;
        let exponent = size / f64::from(base).log2();
        out.push((base, exponent.clamp(-3e38, 3e38) as f32));
        let whole = (exponent as f32).trunc();
        if whole.abs() < 1e7 {
            out.push((-base, whole));
        }
    }
    let special =
        [0.0, 1.0, 0.5, 2.0, 3.0, 7.25, 1e-45, 1e-40, 1e7, 16777217.0, 1e30, f32::MAX, f32::INFINITY, f32::NAN];
    for x in special.into_iter().chain(special.map(|x| -x)) {
        out.extend(special.into_iter().chain(special.map(|y| -y)).map(|y| (x, y)));
    }
    out
}

fn op_sample(t: &Target, op: Op, dt: DType) -> Sample {
    let e = edges(dt);
    let tame: Vec<Scalar> = (0..32).map(|i| Scalar::from_f64(noise(i) * 100.0, dt)).collect();
    let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
    for (i, &x) in e.iter().enumerate() {
        for (j, &y) in e.iter().enumerate().take(if op.is_unary() { 1 } else { e.len() }) {
            if op == Op::MulAdd && dt.is_float() {
                a.push(tame[i % 32]);
                b.push(tame[(i + 3 * j) % 32]);
                c.push(tame[(i + 7 * j) % 32]);
            } else {
                a.push(x);
                b.push(y);
                c.push(Scalar::Int(((i + j) % 2) as i64));
            }
        }
    }
    let data = |values: &[Scalar], dt| Data { dt, values: values.to_vec() };
    let (ins, out) = match op {
        _ if op.is_unary() => (vec![data(&a, dt)], dt),
        Op::Where => (vec![data(&c, Bool), data(&a, dt), data(&b, dt)], dt),
        Op::MulAdd => (vec![data(&a, dt), data(&b, dt), data(&c, dt)], dt),
        _ => (vec![data(&a, dt), data(&b, dt)], if op.is_compare() { Bool } else { dt }),
    };
    let n = a.len();
    let values = (0..n).map(|i| alu(op, dt, &ins.iter().map(|d| d.values[i]).collect::<Vec<_>>())).collect();
    let tol = match op {
        Op::MulAdd if dt.is_float() => Tol::Rel { rel: 1e-6, floor: 100.0 },
        Op::Div | Op::Pow | Op::Recip | Op::Sqrt | Op::Exp2 | Op::Log2 | Op::Sin | Op::Cos | Op::Tan | Op::MulAdd => {
            Tol::of(dt)
        }
        // which of two zeros is the larger is not said
        Op::Max | Op::Min if dt.is_float() => Tol::Rel { rel: 0.0, floor: 0.0 },
        Op::Add | Op::Sub | Op::Mul if matches!(dt, F16 | BF16) => Tol::of(dt),
        _ => Tol::Exact,
    };
    let tol = if out == Bool { Tol::Exact } else { tol };
    let name = format!("{}_{dt}", op.name());
    elementwise(t, &name, &ins, Data { dt: out, values }, tol, |g, x| match op {
        _ if op.is_unary() => g.unary(op, x[0]),
        Op::Where => g.select(x[0], x[1], x[2]),
        Op::MulAdd => {
            let dt = g.dtype(x[0]);
            g.node(op, dt, x, gradloom_core::uop::Arg::None)
        }
        _ => g.binary(op, x[0], x[1]),
    })
}

/// Words of bytes or halves of all sizes, and sums that wrap.
fn dot_sample(t: &Target, op: Op) -> Sample {
    let ins = words();
    let values = (0..ins[0].len()).map(|i| alu(op, I32, &[ins[0][i], ins[1][i], ins[2][i]])).collect();
    let ins = ins.map(|values| Data { dt: I32, values });
    let name = if op == Op::DotPairs { "dot_pairs" } else { "dot_bytes" };
    elementwise(t, name, &ins, Data { dt: I32, values }, Tol::Exact, |g, x| {
        let u = g.node(op, I32, x, gradloom_core::uop::Arg::None);
        decompose(g, u, t).expect("it has a lowering")
    })
}

/// Bytes with any upper bits as indices of a constant table.
fn lookup_sample(t: &Target) -> Sample {
    let table = [0x0302_01FFi64, 0x7F80_4041, -0x0102_0304, 0x1122_3344].map(Scalar::Int);
    let [values, ..] = words();
    let found = values.iter().map(|&x| alu(Op::LookupBytes, I32, &[&[x][..], &table].concat())).collect();
    let ins = [Data { dt: I32, values }];
    elementwise(t, "lookup_bytes", &ins, Data { dt: I32, values: found }, Tol::Exact, |g, x| {
        let table = table.map(|word| g.int(word.as_i64(), I32));
        let u = g.node(Op::LookupBytes, I32, &[x, &table].concat(), gradloom_core::uop::Arg::None);
        decompose(g, u, t).expect("it has a lowering")
    })
}

/// Three columns of words: random ones, and ones at the ends of the ranges of their parts.
fn words() -> [Vec<Scalar>; 3] {
    let word =
        |i: usize| Scalar::Int(i64::from((i as u32).wrapping_mul(0x9E37_79B1).rotate_left(i as u32 % 31) as i32));
    let edge = [
        0i64,
        -1,
        0x7F80_7F80,
        0x0101_0101,
        -0x7F7F_7F80,
        0x7FFF_8000,
        -0x7FFF_8000,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
    ];
    let mut columns = [Vec::new(), Vec::new(), Vec::new()];
    for i in 0..121 {
        let at = |k: usize| match (i + k) % 3 {
            0 => Scalar::Int(edge[(i / 3 + k) % edge.len()]),
            _ => word(3 * i + k),
        };
        columns.iter_mut().enumerate().for_each(|(k, v)| v.push(at(k)));
    }
    columns
}

fn cast_sample(t: &Target, from: DType, to: DType) -> Sample {
    let mut values = edges(from);
    if from.is_float() {
        for v in [127.5, 128.0, -129.0, 256.0, 32767.5, 65519.0, 65520.0, 2147483648.0, -3e9, 4294967295.0, 1.0009766] {
            values.push(Scalar::from_f64(v, from));
        }
        for v in [2f64.powi(63), -(2f64.powi(63)), 2f64.powi(64), 1e30, -1e30, 3.1e-5, 5.97e-8, 1e-9] {
            values.push(Scalar::from_f64(v, from));
        }
    }
    let want = Data { dt: to, values: values.iter().map(|v| v.cast(from, to)).collect() };
    let ins = [Data { dt: from, values }];
    // one rounding step of slack: through f32 is allowed
    elementwise(t, &format!("cast_{from}_{to}"), &ins, want, Tol::of(to), |g, x| g.cast(x[0], to))
}

fn bitcast_sample(t: &Target, from: DType, to: DType) -> Sample {
    let mut values = edges(from);
    if to.is_float() {
        values.retain(|v| {
            let mut b = [0; 8];
            v.write(from, &mut b);
            let f = Scalar::read(to, &b).as_f64();
            f.is_normal()
        });
    }
    let conv = |v: &Scalar| {
        let mut b = [0; 8];
        v.write(from, &mut b);
        Scalar::read(to, &b)
    };
    let want = Data { dt: to, values: values.iter().map(conv).collect() };
    let ins = [Data { dt: from, values }];
    elementwise(t, &format!("bitcast_{from}_{to}"), &ins, want, Tol::Exact, |g, x| g.bitcast(x[0], to))
}
