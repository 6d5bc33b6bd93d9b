//! C expressions for operations on vectors.

use super::super::cstyle::Alu;
use super::dialect::{C, element};
use crate::DType::{self, *};
use crate::uop::Op;

/// A vector expression, or `None` where C has none.
pub(super) fn vector(c: &mut C, a: Alu, x: &[String], lanes: usize) -> Option<String> {
    let bits = a.from.bits() - 1;
    if matches!(a.from, F16 | BF16) && !matches!(a.op, Op::Where | Op::Cast) {
        return None;
    }
    Some(match a.op {
        Op::Cast => return cast_vector(c, a.from, a.to, &x[0], lanes),
        Op::Bitcast if a.from.size() == a.to.size() && a.from != Bool && a.to != Bool => {
            format!("({}){}", c.vec(a.to, lanes), x[0])
        }
        Op::Where => select(c, a.to, &x[0], &x[1], &x[2], lanes),
        Op::CmpLt if a.from == Bool => format!("~{} & {}", x[0], x[1]),
        Op::CmpLt => c.mask(&format!("{} < {}", x[0], x[1]), a.from, lanes),
        Op::CmpEq => c.mask(&format!("{} == {}", x[0], x[1]), a.from, lanes),
        Op::CmpNe => c.mask(&format!("{} != {}", x[0], x[1]), a.from, lanes),
        Op::Add | Op::Max | Op::Or if a.from == Bool => format!("{} | {}", x[0], x[1]),
        Op::Mul | Op::Min | Op::And if a.from == Bool => format!("{} & {}", x[0], x[1]),
        Op::MulAdd if a.from == Bool => format!("({} & {}) | {}", x[0], x[1], x[2]),
        Op::Neg => format!("-{}", x[0]),
        Op::Recip => format!("1 / {}", x[0]),
        Op::Div => format!("{} / {}", x[0], x[1]),
        Op::Add => format!("{} + {}", x[0], x[1]),
        Op::Sub => format!("{} - {}", x[0], x[1]),
        Op::Mul => format!("{} * {}", x[0], x[1]),
        Op::MulAdd => format!("{} * {} + {}", x[0], x[1], x[2]),
        Op::And => format!("{} & {}", x[0], x[1]),
        Op::Or => format!("{} | {}", x[0], x[1]),
        Op::Xor => format!("{} ^ {}", x[0], x[1]),
        Op::Shl => format!("{} << ({} & {bits})", x[0], x[1]),
        Op::Shr => format!("{} >> ({} & {bits})", x[0], x[1]),
        Op::Max | Op::Min => {
            let sign = if a.op == Op::Max { ">" } else { "<" };
            let nan = if a.from.is_float() { format!("({0} != {0}) | ", x[0]) } else { String::new() };
            let m = format!("{nan}({} {sign} {})", x[0], x[1]);
            bitwise_select(c, a.to, &m, &x[0], &x[1], lanes)
        }
        _ => return None,
    })
}

/// `mask ? x : y` per lane, where the mask's elements are as wide as the values'.
fn bitwise_select(c: &mut C, dt: DType, mask: &str, x: &str, y: &str, lanes: usize) -> String {
    let int = match element(dt).size() {
        1 => I8,
        2 => I16,
        4 => I32,
        _ => I64,
    };
    let (m, v) = (c.vec(int, lanes), c.vec(dt, lanes));
    // y ^ ((x ^ y) & m)
    format!("({v})(({m}){y} ^ ((({m}){x} ^ ({m}){y}) & ({m})({mask})))")
}

fn select(c: &mut C, dt: DType, cond: &str, x: &str, y: &str, lanes: usize) -> String {
    let int = match element(dt).size() {
        1 => I8,
        2 => I16,
        4 => return bitwise_select(c, dt, cond, x, y, lanes),
        _ => I64,
    };
    let m = c.vec(int, lanes);
    bitwise_select(c, dt, &format!("__builtin_convertvector({cond}, {m})"), x, y, lanes)
}

fn cast_vector(c: &mut C, from: DType, to: DType, x: &str, lanes: usize) -> Option<String> {
    if matches!(from, F16 | BF16) || matches!(to, F16 | BF16) || (from.is_float() && to.is_int()) {
        if (from, to) == (BF16, F32) {
            let (u, f) = (c.vec(U32, lanes), c.vec(F32, lanes));
            return Some(format!("({f})(__builtin_convertvector({x}, {u}) << 16)"));
        }
        return None;
    }
    if to == Bool {
        return Some(c.mask(&format!("{x} != 0"), from, lanes));
    }
    let v = c.vec(to, lanes);
    Some(match from {
        Bool => format!("__builtin_convertvector(-{x}, {v})"),
        _ => format!("__builtin_convertvector({x}, {v})"),
    })
}
