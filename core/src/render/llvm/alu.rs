//! Elementwise ops as LLVM instructions, on scalars and vectors.

use super::super::cstyle::Alu;
use super::dialect::{Llvm, constant_splat, mangled, scalar_type, value_type, wide};
use crate::DType::{self, *};
use crate::target::functions;
use crate::uop::Op;

/// Prints an op and returns the operand of its result; `None` if LLVM has no such op on this dtype.
pub(super) fn print(w: &mut Llvm, a: Alu, x: &[String], lanes: usize) -> Option<String> {
    let ty = &value_type(a.from, lanes);
    let (float, signed) = (a.from.is_float(), a.from.is_signed());
    if matches!(a.from, F16 | BF16) && !matches!(a.op, Op::Cast | Op::Bitcast | Op::Where) {
        return None;
    }
    let (x0, x1) = (&x[0], x.get(1).map_or("", String::as_str));
    let zero = || constant_splat(scalar_type(a.from), "0", lanes);
    let wrap = if a.no_wrap { " nsw" } else { "" };
    Some(match a.op {
        Op::Cast => cast(w, a.from, a.to, x0, lanes),
        Op::Bitcast => return bitcast(w, a.from, a.to, x0, lanes),
        Op::Where => w.op(format_args!("select {} {x0}, {ty} {x1}, {ty} {}", wide("i1", lanes), x[2])),
        Op::CmpLt if float => w.op(format_args!("fcmp olt {ty} {x0}, {x1}")),
        Op::CmpLt if signed => w.op(format_args!("icmp slt {ty} {x0}, {x1}")),
        Op::CmpLt => w.op(format_args!("icmp ult {ty} {x0}, {x1}")),
        Op::CmpEq if float => w.op(format_args!("fcmp oeq {ty} {x0}, {x1}")),
        Op::CmpEq => w.op(format_args!("icmp eq {ty} {x0}, {x1}")),
        Op::CmpNe if float => w.op(format_args!("fcmp une {ty} {x0}, {x1}")),
        Op::CmpNe => w.op(format_args!("icmp ne {ty} {x0}, {x1}")),
        Op::Add | Op::Max if a.from == Bool => w.op(format_args!("or {ty} {x0}, {x1}")),
        Op::Mul | Op::Min if a.from == Bool => w.op(format_args!("and {ty} {x0}, {x1}")),
        Op::MulAdd if a.from == Bool => {
            let both = w.op(format_args!("and {ty} {x0}, {x1}"));
            w.op(format_args!("or {ty} {both}, {}", x[2]))
        }
        Op::Neg if float => w.op(format_args!("fneg {ty} {x0}")),
        Op::Neg => w.op(format_args!("sub {ty} {}, {x0}", zero())),
        Op::MulAdd if float => intrinsic(w, "fmuladd", a.from, x, lanes),
        Op::Recip if float => {
            let one = constant_splat(scalar_type(a.from), "1.0", lanes);
            w.op(format_args!("fdiv {ty} {one}, {x0}"))
        }
        Op::Div if float => w.op(format_args!("fdiv {ty} {x0}, {x1}")),
        Op::Add if float => w.op(format_args!("fadd {ty} {x0}, {x1}")),
        Op::Sub if float => w.op(format_args!("fsub {ty} {x0}, {x1}")),
        Op::Mul if float => w.op(format_args!("fmul {ty} {x0}, {x1}")),
        Op::Add => w.op(format_args!("add{wrap} {ty} {x0}, {x1}")),
        Op::Sub => w.op(format_args!("sub{wrap} {ty} {x0}, {x1}")),
        Op::Mul => w.op(format_args!("mul{wrap} {ty} {x0}, {x1}")),
        Op::MulAdd => {
            let product = w.op(format_args!("mul{wrap} {ty} {x0}, {x1}"));
            w.op(format_args!("add{wrap} {ty} {product}, {}", x[2]))
        }
        Op::Idiv | Op::Imod if !float => divide(w, a, x0, x1, lanes),
        Op::Max | Op::Min => {
            let less = match (a.op, float, signed) {
                (Op::Max, true, _) => "fcmp ogt",
                (_, true, _) => "fcmp olt",
                (Op::Max, _, true) => "icmp sgt",
                (_, _, true) => "icmp slt",
                (Op::Max, ..) => "icmp ugt",
                _ => "icmp ult",
            };
            let mask = wide("i1", lanes);
            let c = w.op(format_args!("{less} {ty} {x0}, {x1}"));
            let m = w.op(format_args!("select {mask} {c}, {ty} {x0}, {ty} {x1}"));
            if !float {
                return Some(m);
            }
            // a NaN as second operand is already selected, since comparisons with NaN are false
            let nan = w.op(format_args!("fcmp uno {ty} {x0}, {x0}"));
            w.op(format_args!("select {mask} {nan}, {ty} {x0}, {ty} {m}"))
        }
        Op::And => w.op(format_args!("and {ty} {x0}, {x1}")),
        Op::Or => w.op(format_args!("or {ty} {x0}, {x1}")),
        Op::Xor => w.op(format_args!("xor {ty} {x0}, {x1}")),
        Op::Shl | Op::Shr if a.from != Bool => {
            let bits = constant_splat(scalar_type(a.from), &(a.from.bits() - 1).to_string(), lanes);
            let by = w.op(format_args!("and {ty} {x1}, {bits}"));
            let shift = match (a.op, signed) {
                (Op::Shl, _) => "shl",
                (_, true) => "ashr",
                _ => "lshr",
            };
            w.op(format_args!("{shift} {ty} {x0}, {by}"))
        }
        op => intrinsic(w, functions::word(functions::LLVM, op, a.from)?, a.from, x, lanes),
    })
}

/// The call of an intrinsic whose operands and result have the same type.
fn intrinsic(w: &mut Llvm, name: &str, dt: DType, x: &[String], lanes: usize) -> String {
    let ty = value_type(dt, lanes);
    let args: Vec<(&str, &str)> = x.iter().map(|x| (ty.as_str(), x.as_str())).collect();
    w.call(&ty, &format!("llvm.{name}.{}", mangled(scalar_type(dt), lanes)), &args)
}

/// The quotient or remainder. Where LLVM's result is undefined (division by 0, the smallest integer by -1), the divisor
/// is replaced by 1.
fn divide(w: &mut Llvm, a: Alu, x: &str, y: &str, lanes: usize) -> String {
    let (ty, mask, scalar) = (value_type(a.from, lanes), wide("i1", lanes), scalar_type(a.from));
    let sign = if a.from.is_signed() { 's' } else { 'u' };
    let by = |w: &mut Llvm, y: &str| match a.op {
        Op::Idiv => w.op(format_args!("{sign}div {ty} {x}, {y}")),
        _ => w.op(format_args!("{sign}rem {ty} {x}, {y}")),
    };
    if a.positive {
        return by(w, y);
    }
    let (zero, one) = (constant_splat(scalar, "0", lanes), constant_splat(scalar, "1", lanes));
    let none = w.op(format_args!("icmp eq {ty} {y}, {zero}"));
    if !a.from.is_signed() {
        let safe = w.op(format_args!("select {mask} {none}, {ty} {one}, {ty} {y}"));
        return by(w, &safe);
    }
    let minus = w.op(format_args!("icmp eq {ty} {y}, {}", constant_splat(scalar, "-1", lanes)));
    let odd = w.op(format_args!("or {mask} {none}, {minus}"));
    let safe = w.op(format_args!("select {mask} {odd}, {ty} {one}, {ty} {y}"));
    let q = by(w, &safe);
    if a.op == Op::Imod {
        return q;
    }
    let negated = w.op(format_args!("sub {ty} {zero}, {x}"));
    w.op(format_args!("select {mask} {minus}, {ty} {negated}, {ty} {q}"))
}

fn cast(w: &mut Llvm, from: DType, to: DType, x: &str, lanes: usize) -> String {
    // 16-bit floats are converted by way of f32
    match (from, to) {
        _ if from == to => return x.to_string(),
        (F16, _) => {
            let (int, half) = (wide("i16", lanes), wide("half", lanes));
            let h = w.op(format_args!("bitcast {int} {x} to {half}"));
            let f = w.op(format_args!("fpext {half} {h} to {}", wide("float", lanes)));
            return cast(w, F32, to, &f, lanes);
        }
        (BF16, _) => {
            let (short, int) = (wide("i16", lanes), wide("i32", lanes));
            let bits = w.op(format_args!("zext {short} {x} to {int}"));
            let high = w.op(format_args!("shl {int} {bits}, {}", constant_splat("i32", "16", lanes)));
            let f = w.op(format_args!("bitcast {int} {high} to {}", wide("float", lanes)));
            return cast(w, F32, to, &f, lanes);
        }
        (F32, F16) => {
            let half = wide("half", lanes);
            let h = w.op(format_args!("fptrunc {} {x} to {half}", wide("float", lanes)));
            return w.op(format_args!("bitcast {half} {h} to {}", wide("i16", lanes)));
        }
        (F32, BF16) => return to_bf16(w, x, lanes),
        (_, F16 | BF16) => {
            let f = cast(w, from, F32, x, lanes);
            return cast(w, F32, to, &f, lanes);
        }
        _ => {}
    }
    let (a, b) = (value_type(from, lanes), value_type(to, lanes));
    let (af, bf) = (from.is_float(), to.is_float());
    match to {
        Bool if af => {
            return w.op(format_args!("fcmp une {a} {x}, {}", constant_splat(scalar_type(from), "0.0", lanes)));
        }
        Bool => return w.op(format_args!("icmp ne {a} {x}, {}", constant_splat(scalar_type(from), "0", lanes))),
        _ => {}
    }
    let grows = to.size() > from.size() || from == Bool;
    let how = match (af, bf) {
        (true, true) if grows => "fpext",
        (true, true) => "fptrunc",
        (false, true) if from.is_signed() => "sitofp",
        (false, true) => "uitofp",
        (true, false) => {
            let kind = if to.is_signed() { "fptosi" } else { "fptoui" };
            let name = |dt| mangled(scalar_type(dt), lanes);
            return w.call(&b, &format!("llvm.{kind}.sat.{}.{}", name(to), name(from)), &[(&a, x)]);
        }
        (false, false) if grows && from.is_signed() => "sext",
        (false, false) if grows => "zext",
        (false, false) if to.size() < from.size() => "trunc",
        (false, false) => return x.to_string(),
    };
    w.op(format_args!("{how} {a} {x} to {b}"))
}

/// Rounds to nearest, ties to even; NaN stays NaN.
fn to_bf16(w: &mut Llvm, x: &str, lanes: usize) -> String {
    let (float, int, short) = (wide("float", lanes), wide("i32", lanes), wide("i16", lanes));
    let c = |n: i32| constant_splat("i32", &n.to_string(), lanes);
    let bits = w.op(format_args!("bitcast {float} {x} to {int}"));
    let high = w.op(format_args!("lshr {int} {bits}, {}", c(16)));
    let odd = w.op(format_args!("and {int} {high}, {}", c(1)));
    let up = w.op(format_args!("add {int} {odd}, {}", c(0x7fff)));
    let sum = w.op(format_args!("add {int} {bits}, {up}"));
    let rounded = w.op(format_args!("lshr {int} {sum}, {}", c(16)));
    let quiet = w.op(format_args!("or {int} {high}, {}", c(64)));
    let nan = w.op(format_args!("fcmp uno {float} {x}, {x}"));
    let r = w.op(format_args!("select {} {nan}, {int} {quiet}, {int} {rounded}", wide("i1", lanes)));
    w.op(format_args!("trunc {int} {r} to {short}"))
}

fn bitcast(w: &mut Llvm, from: DType, to: DType, x: &str, lanes: usize) -> Option<String> {
    if from.size() != to.size() {
        return None;
    }
    let (a, b) = (value_type(from, lanes), value_type(to, lanes));
    Some(match (from, to) {
        _ if a == b => x.to_string(),
        (Bool, _) => w.op(format_args!("zext {a} {x} to {b}")),
        (_, Bool) => w.op(format_args!("icmp ne {a} {x}, {}", constant_splat("i8", "0", lanes))),
        _ => w.op(format_args!("bitcast {a} {x} to {b}")),
    })
}
