//! Arithmetic in a dtype that the target lacks is done in a wider one: f16 and bf16 in f32, 8- and 16-bit integers in
//! 32 bits. The result of each op is rounded or wrapped back. Integers stay exact: sums, products and bit operations
//! are right modulo 2^n, and the other ops cannot overflow in the wider dtype.

use crate::DType::{self, *};
use crate::rewrite::rules;
use crate::target::Target;
use crate::uop::{Graph, Op, UOp};
use smallvec::SmallVec;

rules! {
    /// Widens arithmetic on dtypes that the target lacks.
    pub static WIDEN(g, u, t: Target) = {
        widen:        (any ALU)  => do widen;
        cast_via_f32: (Cast x)   => do cast_via_f32;
    }
}

/// The wider dtype in which `op` on `dt` is to be computed; `None` if the target has the op, or no such dtype.
fn wider(op: Op, dt: DType, t: &Target) -> Option<DType> {
    let wide = match dt {
        _ if t.has_op(op, dt) => return None,
        F16 | BF16 => F32,
        I8 | I16 => I32,
        U8 | U16 => U32,
        _ => return None,
    };
    t.caps.arithmetic.has(wide).then_some(wide)
}

/// Converts a source to the wide dtype; constants are converted at once.
fn convert(g: &mut Graph, x: UOp, to: DType) -> UOp {
    match g.const_val(x) {
        Some(v) => {
            let v = v.cast(g.dtype(x), to);
            g.node(Op::Const, to, &[], crate::uop::Arg::Const(v))
        }
        None => g.cast(x, to),
    }
}

fn widen(g: &mut Graph, u: UOp, t: &mut Target) -> Option<UOp> {
    let op = g.op(u);
    let from = g.dtype(*g.src(u).last()?);
    if matches!(op, Op::Cast | Op::Bitcast | Op::Where) {
        return None; // conversions and selections need no arithmetic
    }
    let wide = wider(op, from, t)?;
    let mut src: SmallVec<[UOp; 4]> = g.srcs(u).iter().map(|&s| convert(g, s, wide)).collect();
    if matches!(op, Op::Shl | Op::Shr) {
        let mask = g.int(from.bits() as i64 - 1, wide);
        src[1] = g.binary(Op::And, src[1], mask); // counts are taken modulo the narrow width
    }
    let to = if g.dtype(u) == from { wide } else { g.dtype(u) };
    let v = g.node(op, to, &src, g.arg(u).clone());
    Some(g.cast(v, g.dtype(u)))
}

/// Is this a conversion between a dtype other than f32 and a 16-bit float that the target can store but not compute
/// with?
pub(super) fn converts_narrow_float(g: &Graph, u: UOp, t: &Target) -> bool {
    if g.op(u) != Op::Cast {
        return false;
    }
    let (from, to) = (g.dtype(g.src_at(u, 0)), g.dtype(u));
    let only_stored = |dt: DType| matches!(dt, F16 | BF16) && !t.caps.arithmetic.has(dt);
    (only_stored(from) && to != F32) || (only_stored(to) && from != F32)
}

/// Splits such conversions into two, from the source to f32 and from f32 to the result.
fn cast_via_f32(g: &mut Graph, u: UOp, t: &mut Target) -> Option<UOp> {
    if !converts_narrow_float(g, u, t) {
        return None;
    }
    let f = convert(g, g.src_at(u, 0), F32);
    Some(g.cast(f, g.dtype(u)))
}
