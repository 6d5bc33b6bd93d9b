//! Elementwise ops as PTX instructions on scalars.
//!
//! Integers below 32 bits are computed in 32 bits and wrapped. Float sums and products state a rounding mode (`.rn`),
//! since ptxas fuses those without one. On f16 and bf16 there are only casts and selections.

use super::super::cstyle::Alu;
use super::func::{Class, Func};
use crate::DType::{self, *};
use crate::target::functions;
use crate::uop::Op;

/// The type suffix of an instruction on values of this dtype.
fn ty(dt: DType) -> &'static str {
    match dt {
        F32 => "f32",
        F64 => "f64",
        I64 => "s64",
        U64 => "u64",
        _ if dt.is_unsigned() => "u32",
        _ => "s32",
    }
}

/// The untyped suffix for values of this dtype, by size only.
fn bits(dt: DType) -> &'static str {
    Class::of(dt).bits()
}

/// `x` where the predicate holds, else `y`.
pub(super) fn select(w: &mut Func, dt: DType, c: &str, x: &str, y: &str) -> String {
    if dt != Bool {
        return w.op(Class::of(dt), &format!("selp.{}", bits(dt)), &[x, y, c]);
    }
    let yes = w.op(Class::Pred, "and.pred", &[c, x]);
    let not = w.op(Class::Pred, "not.pred", &[c]);
    let no = w.op(Class::Pred, "and.pred", &[&not, y]);
    w.op(Class::Pred, "or.pred", &[&yes, &no])
}

/// Prints an op and returns the register of its result; `None` if PTX has no such op on this dtype.
pub(super) fn print(w: &mut Func, a: Alu, x: &[String]) -> Option<String> {
    let (float, class) = (a.from.is_float(), Class::of(a.from));
    let x: Vec<&str> = x.iter().map(String::as_str).collect();
    match a.op {
        Op::Cast => return Some(cast(w, a.from, a.to, x[0])),
        Op::Bitcast => return bitcast(w, a.from, a.to, x[0]),
        Op::Where => return Some(select(w, a.to, x[0], x[1], x[2])),
        _ if matches!(a.from, F16 | BF16) => return None,
        _ if a.from == Bool => return logic(w, a.op, &x),
        _ => {}
    }
    let t = ty(a.from);
    if let Some(word) = functions::word(functions::PTX, a.op, a.from) {
        return Some(w.op(class, word, &x));
    }
    Some(match a.op {
        Op::CmpLt => w.op(Class::Pred, &format!("setp.lt.{t}"), &x),
        Op::CmpEq => w.op(Class::Pred, &format!("setp.eq.{t}"), &x),
        Op::CmpNe if float => w.op(Class::Pred, &format!("setp.neu.{t}"), &x),
        Op::CmpNe => w.op(Class::Pred, &format!("setp.ne.{t}"), &x),
        Op::Neg if float => w.op(class, &format!("neg.{t}"), &x),
        // the approximate power, for an Exp2 with a number: within 2 ulp, and subnormals are flushed to zero
        Op::Exp2 if a.from == F32 => w.op(class, "ex2.approx.ftz.f32", &x),
        Op::Recip if float => w.op(class, &format!("rcp.rn.{t}"), &x),
        Op::Add if float => w.op(class, &format!("add.rn.{t}"), &x),
        Op::Sub if float => w.op(class, &format!("sub.rn.{t}"), &x),
        Op::Mul if float => w.op(class, &format!("mul.rn.{t}"), &x),
        Op::Div if float => w.op(class, &format!("div.rn.{t}"), &x),
        Op::MulAdd if float => w.op(class, &format!("fma.rn.{t}"), &x),
        Op::Max | Op::Min if float => extreme(w, a, &x),
        Op::Max => w.op(class, &format!("max.{t}"), &x),
        Op::Min => w.op(class, &format!("min.{t}"), &x),
        _ if float => return None,
        Op::DotBytes => {
            let [a, b] = [x[0], x[1]].map(|v| w.register(v, class));
            w.op(class, "dp4a.u32.s32", &[&a, &b, x[2]])
        }
        Op::Neg => {
            let signed = if class == Class::B64 { "neg.s64" } else { "neg.s32" };
            let r = w.op(class, signed, &x);
            cut(w, a.to, r)
        }
        Op::Add | Op::Sub => {
            let r = w.op(class, &format!("{}.{t}", a.op.name()), &x);
            cut(w, a.to, r)
        }
        Op::Mul => {
            let r = w.op(class, &format!("mul.lo.{t}"), &x);
            cut(w, a.to, r)
        }
        Op::MulAdd => {
            let r = w.op(class, &format!("mad.lo.{t}"), &x);
            cut(w, a.to, r)
        }
        Op::Idiv | Op::Imod => {
            let r = divide(w, a, x[0], x[1]);
            cut(w, a.to, r)
        }
        Op::And | Op::Or | Op::Xor => w.op(class, &format!("{}.{}", a.op.name(), bits(a.from)), &x),
        Op::Shl | Op::Shr => {
            let by = shift(w, a.from, x[1]);
            if a.op == Op::Shr {
                return Some(w.op(class, &format!("shr.{t}"), &[x[0], &by]));
            }
            let r = w.op(class, &format!("shl.{}", bits(a.from)), &[x[0], &by]);
            cut(w, a.to, r)
        }
        _ => return None,
    })
}

fn logic(w: &mut Func, op: Op, x: &[&str]) -> Option<String> {
    let p = Class::Pred;
    Some(match op {
        Op::Add | Op::Max | Op::Or => w.op(p, "or.pred", x),
        Op::Mul | Op::Min | Op::And => w.op(p, "and.pred", x),
        Op::Xor | Op::CmpNe => w.op(p, "xor.pred", x),
        Op::CmpEq => {
            let differ = w.op(p, "xor.pred", x);
            w.op(p, "not.pred", &[&differ])
        }
        Op::CmpLt => {
            let not = w.op(p, "not.pred", &[x[0]]);
            w.op(p, "and.pred", &[&not, x[1]])
        }
        Op::MulAdd => {
            let both = w.op(p, "and.pred", &x[..2]);
            w.op(p, "or.pred", &[&both, x[2]])
        }
        _ => return None,
    })
}

/// Wraps a 32-bit result to a narrower dtype.
fn cut(w: &mut Func, dt: DType, r: String) -> String {
    match dt {
        I8 => w.op(Class::B32, "cvt.s32.s8", &[&r]),
        I16 => w.op(Class::B32, "cvt.s32.s16", &[&r]),
        U8 => w.op(Class::B32, "and.b32", &[&r, "255"]),
        U16 => w.op(Class::B32, "and.b32", &[&r, "65535"]),
        _ => r,
    }
}

/// The shift count as a 32-bit operand, which shifts of all dtypes take.
fn shift(w: &mut Func, dt: DType, by: &str) -> String {
    let mask = i64::from(dt.bits() as u32) - 1;
    if let Ok(n) = by.parse::<i64>() {
        return (n & mask).to_string();
    }
    let by = match Class::of(dt) {
        Class::B64 if by.starts_with('%') => w.op(Class::B32, "cvt.u32.u64", &[by]),
        _ => by.to_string(),
    };
    w.op(Class::B32, "and.b32", &[&by, &mask.to_string()])
}

/// The maximum or minimum; NaN if either operand is NaN.
fn extreme(w: &mut Func, a: Alu, x: &[&str]) -> String {
    let (t, class) = (ty(a.from), Class::of(a.from));
    if a.from == F32 && w.sm.has_bf16() {
        return w.op(class, &format!("{}.NaN.f32", a.op.name()), x);
    }
    let less = if a.op == Op::Max { "gt" } else { "lt" };
    let c = w.op(Class::Pred, &format!("setp.{less}.{t}"), x);
    let nan = w.op(Class::Pred, &format!("setp.nan.{t}"), &[x[0], x[0]]);
    // a NaN as second operand is selected, since comparisons with NaN are false
    let first = w.op(Class::Pred, "or.pred", &[&c, &nan]);
    w.op(class, &format!("selp.{}", bits(a.from)), &[x[0], x[1], &first])
}

/// The quotient or remainder. Where the result of the instruction is undefined (division by 0, the smallest integer by
/// -1), the divisor is replaced by 1.
fn divide(w: &mut Func, a: Alu, x: &str, y: &str) -> String {
    let (t, b, class) = (ty(a.from), bits(a.from), Class::of(a.from));
    let op = if a.op == Op::Idiv { format!("div.{t}") } else { format!("rem.{t}") };
    if a.positive {
        return w.op(class, &op, &[x, y]);
    }
    let none = w.op(Class::Pred, &format!("setp.eq.{t}"), &[y, "0"]);
    if !a.from.is_signed() || a.from.bits() < 32 {
        let safe = w.op(class, &format!("selp.{b}"), &["1", y, &none]);
        return w.op(class, &op, &[x, &safe]);
    }
    let minus = w.op(Class::Pred, &format!("setp.eq.{t}"), &[y, "-1"]);
    let odd = w.op(Class::Pred, "or.pred", &[&none, &minus]);
    let safe = w.op(class, &format!("selp.{b}"), &["1", y, &odd]);
    let q = w.op(class, &op, &[x, &safe]);
    if a.op == Op::Imod {
        return q;
    }
    let negated = w.op(class, &format!("neg.{t}"), &[x]);
    w.op(class, &format!("selp.{b}"), &[&negated, &q, &minus])
}

fn cast(w: &mut Func, from: DType, to: DType, x: &str) -> String {
    let x = &w.register(x, Class::of(from));
    // 16-bit floats are converted by way of f32
    match (from, to) {
        _ if from == to => return x.to_string(),
        (F16, _) => {
            let f = w.op(Class::F32, "cvt.f32.f16", &[x]);
            return cast(w, F32, to, &f);
        }
        (BF16, _) => {
            let n = w.op(Class::B32, "cvt.u32.u16", &[x]);
            let n = w.op(Class::B32, "shl.b32", &[&n, "16"]);
            let f = w.op(Class::F32, "mov.b32", &[&n]);
            return cast(w, F32, to, &f);
        }
        (F32, F16) => {
            let r = w.op(Class::B16, "cvt.rn.f16.f32", &[x]);
            if w.sm.has_bf16() {
                w.narrow(&r, x, "f16");
            }
            return r;
        }
        (F32, BF16) => return to_bf16(w, x),
        (_, F16 | BF16) => {
            let f = cast(w, from, F32, x);
            return cast(w, F32, to, &f);
        }
        _ => {}
    }
    let (class, a, b) = (Class::of(to), ty(from), ty(to));
    match (from, to) {
        (Bool, F32) => w.op(class, "selp.f32", &["0f3F800000", "0f00000000", x]),
        (Bool, F64) => w.op(class, "selp.f64", &["0d3FF0000000000000", "0d0000000000000000", x]),
        (Bool, _) => w.op(class, &format!("selp.{}", bits(to)), &["1", "0", x]),
        (F32, Bool) => w.op(class, "setp.neu.f32", &[x, "0f00000000"]),
        (F64, Bool) => w.op(class, "setp.neu.f64", &[x, "0d0000000000000000"]),
        (_, Bool) => w.op(class, &format!("setp.ne.{a}"), &[x, "0"]),
        (F32, F64) => w.op(class, "cvt.f64.f32", &[x]),
        (F64, F32) => w.op(class, "cvt.rn.f32.f64", &[x]),
        _ if to.is_float() => w.op(class, &format!("cvt.rn.{b}.{a}"), &[x]),
        _ if from.is_float() => to_integer(w, from, to, x),
        _ => between(w, from, to, x),
    }
}

/// Casts between integers, which keep the low bits.
fn between(w: &mut Func, from: DType, to: DType, x: &str) -> String {
    let (a, b) = (Class::of(from), Class::of(to));
    let r = match (a, b) {
        (Class::B32, Class::B64) => w.op(b, &format!("cvt.{}.{}", ty(to), ty(from)), &[x]),
        (Class::B64, Class::B32) => w.op(b, "cvt.u32.u64", &[x]),
        _ => x.to_string(),
    };
    let same = b == Class::B32 && to.bits() < 32 && to.bits() > from.bits() && from.is_unsigned();
    if same { r } else { cut(w, to, r) }
}

/// Casts from floats to integers, which saturate; NaN gives 0.
fn to_integer(w: &mut Func, from: DType, to: DType, x: &str) -> String {
    let (f, class) = (ty(from), Class::of(to));
    let mut r = w.op(class, &format!("cvt.rzi.{}.{f}", ty(to)), &[x]);
    if let (true, Some((lo, hi))) = (to.bits() < 32, to.int_range()) {
        let t = ty(to);
        r = w.op(class, &format!("max.{t}"), &[&r, &lo.to_string()]);
        r = w.op(class, &format!("min.{t}"), &[&r, &hi.to_string()]);
    }
    // the instruction converts NaN to 0 in 32 bits, but to the smallest or largest integer in 64
    let number = w.op(Class::Pred, &format!("setp.num.{f}"), &[x, x]);
    w.op(class, &format!("selp.{}", bits(to)), &[&r, "0", &number])
}

/// Rounds to nearest, ties to even; NaN stays NaN.
fn to_bf16(w: &mut Func, x: &str) -> String {
    if w.sm.has_bf16() {
        let r = w.op(Class::B16, "cvt.rn.bf16.f32", &[x]);
        w.narrow(&r, x, "bf16");
        return r;
    }
    let i = Class::B32;
    let n = w.op(i, "mov.b32", &[x]);
    let high = w.op(i, "shr.u32", &[&n, "16"]);
    let odd = w.op(i, "and.b32", &[&high, "1"]);
    let up = w.op(i, "add.s32", &[&odd, "32767"]);
    let sum = w.op(i, "add.s32", &[&n, &up]);
    let rounded = w.op(i, "shr.u32", &[&sum, "16"]);
    let quiet = w.op(i, "or.b32", &[&high, "64"]);
    let nan = w.op(Class::Pred, "setp.nan.f32", &[x, x]);
    let r = w.op(i, "selp.b32", &[&quiet, &rounded, &nan]);
    w.op(Class::B16, "cvt.u16.u32", &[&r])
}

fn bitcast(w: &mut Func, from: DType, to: DType, x: &str) -> Option<String> {
    if from.size() != to.size() {
        return None;
    }
    let (a, b) = (Class::of(from), Class::of(to));
    let x = &w.register(x, a);
    Some(match (a, b) {
        (Class::Pred, Class::Pred) | (Class::B16, Class::B16) => x.to_string(),
        (Class::Pred, _) => w.op(b, &format!("selp.{}", b.bits()), &["1", "0", x]),
        (_, Class::Pred) => w.op(b, "setp.ne.s32", &[x, "0"]),
        (Class::B32, Class::B32) if to.bits() < 32 => cut(w, to, x.to_string()),
        (Class::B16, Class::B32) => {
            let r = w.op(b, "cvt.u32.u16", &[x]);
            cut(w, to, r)
        }
        (Class::B32, Class::B16) => w.op(b, "cvt.u16.u32", &[x]),
        _ if a == b => x.to_string(),
        (Class::B64 | Class::F64, _) => w.op(b, "mov.b64", &[x]),
        _ => w.op(b, "mov.b32", &[x]),
    })
}
