//! The last rewrites before a program is printed: the canonical forms of [`super::SYMBOLIC`] become what processors
//! execute, such as `x // 8` a shift. The two sets undo each other's work, so they must never run together.

use crate::DType;
use crate::analysis::linear::{bounds, fits};
use crate::rewrite::rules;
use crate::target::Target;
use crate::uop::{Graph, Op, UOp};

rules! {
    /// Floor division and remainder become shifts, masks, multiplications or truncating divisions; sums with negated
    /// terms become subtractions; sums of products become fused multiply-adds where the target has them (f32 and f64
    /// only, where omitting one rounding is allowed); maxima of a value and its negative become absolute values.
    pub static LATE(g, u, t: Target) = {
        div_shift:      (x / [d]) if { d > 0 && d & (d - 1) == 0 && is_int(g, x) }
                                                   => (x >> { d.trailing_zeros() as i64 });
        mod_mask:       (x % [d]) if { d > 0 && d & (d - 1) == 0 && is_int(g, x) } => (x & { d - 1 });
        div_multiply:   (x / [d])                  => { divide_by_multiply(g, x, d) };
        mod_multiply:   (x % [d])                  => { remainder_by_multiply(g, x, d) };
        div_trunc:      (x / y) if { nonneg(g, x) && nonneg(g, y) } => (Idiv x y);
        mod_trunc:      (x % y) if { nonneg(g, x) && nonneg(g, y) } => (Imod x y);
        div_floor:      (x / y)                    => { floor_div(g, x, y) };
        mod_floor:      (x % y)                    => { floor_mod(g, x, y) };
        mul_minus:      (x * (-1)) if { is_int(g, x) } => (Neg x);
        add_neg:        (x + (Neg y)) if { is_int(g, x) } => (x - y);
        neg_add:        ((Neg x) + y) if { is_int(g, x) } => (y - x);
        mul_add:        ((a * b) + c) if { fuses(g, u, t) } => (MulAdd a b c);
        add_mul:        (c + (a * b)) if { fuses(g, u, t) } => (MulAdd a b c);
        abs:            (Max x (Neg {x}))          => { abs_by_mask(g, x, t) };
        abs_neg:        (Max (Neg x) {x})          => { abs_by_mask(g, x, t) };
    }
}

fn is_int(g: &Graph, u: UOp) -> bool {
    g.dtype(u).is_int()
}

fn nonneg(g: &Graph, u: UOp) -> bool {
    g.dtype(u).is_unsigned() || (is_int(g, u) && g.bounds(u).0 >= 0)
}

fn fuses(g: &Graph, u: UOp, t: &Target) -> bool {
    t.caps.fma && matches!(g.dtype(u), DType::F32 | DType::F64) && t.caps.arithmetic.has(g.dtype(u))
}

/// `|x|`, which is the maximum of x and -x, by clearing the sign bit. For a zero the maximum may be either 0.0 or -0.0,
/// so the positive zero that this gives is right.
fn abs_by_mask(g: &mut Graph, x: UOp, t: &Target) -> Option<UOp> {
    let dt = g.dtype(x);
    let (bits, mask) = match dt {
        DType::F32 => (DType::U32, i64::from(i32::MAX)),
        DType::F64 => (DType::U64, i64::MAX),
        _ => return None,
    };
    if !t.caps.arithmetic.has(dt) || !t.caps.arithmetic.has(bits) {
        return None;
    }
    let (all, mask) = (g.bitcast(x, bits), g.int(mask, bits));
    let size = g.binary(Op::And, all, mask);
    Some(g.bitcast(size, dt))
}

/// `x // d = x*m >> s` for `0 <= x <= hi`, where `m = ceil(2^s / d)`. It is exact if `hi * (m*d - 2^s) < 2^s`, because
/// the error is then smaller than the distance to the next multiple of d, and if `hi*m` fits the dtype.
fn divide_by_multiply(g: &mut Graph, x: UOp, d: i64) -> Option<UOp> {
    let (dt, (lo, hi)) = (g.dtype(x), bounds(g, x));
    if lo < 0 || d < 3 || !matches!(dt, DType::I32 | DType::U32) || !fits(dt, (lo, hi)) {
        return None;
    }
    let d = d as i128;
    let (s, m) = (1..31).map(|s| (s, ((1i128 << s) + d - 1) / d)).find(|&(s, m)| hi * (m * d - (1 << s)) < 1 << s)?;
    if !fits(dt, (0, hi * m)) {
        return None;
    }
    let (m, s) = (g.int(m as i64, dt), g.int(s as i64, dt));
    let product = g.binary(Op::Mul, x, m);
    Some(g.binary(Op::Shr, product, s))
}

fn remainder_by_multiply(g: &mut Graph, x: UOp, d: i64) -> Option<UOp> {
    let q = divide_by_multiply(g, x, d)?;
    let d = g.int(d, g.dtype(x));
    let back = g.binary(Op::Mul, q, d);
    Some(g.binary(Op::Sub, x, back))
}

/// Is the truncating quotient one too large for floor division? It is if `r != 0` and the signs of r and y differ.
fn truncation_exceeds_floor(g: &mut Graph, r: UOp, y: UOp) -> UOp {
    let zero = g.int(0, g.dtype(r));
    let negative = g.binary(Op::CmpLt, r, zero);
    if nonneg(g, y) {
        return negative;
    }
    let below = g.binary(Op::CmpLt, y, zero);
    let differ = g.binary(Op::CmpNe, negative, below);
    let some = g.binary(Op::CmpNe, r, zero);
    g.binary(Op::And, some, differ)
}

fn floor_div(g: &mut Graph, x: UOp, y: UOp) -> UOp {
    let (q, r) = (g.binary(Op::Idiv, x, y), g.binary(Op::Imod, x, y));
    let up = truncation_exceeds_floor(g, r, y);
    let one = g.cast(up, g.dtype(x));
    g.binary(Op::Sub, q, one)
}

fn floor_mod(g: &mut Graph, x: UOp, y: UOp) -> UOp {
    let r = g.binary(Op::Imod, x, y);
    let up = truncation_exceeds_floor(g, r, y);
    let zero = g.int(0, g.dtype(x));
    let shift = g.select(up, y, zero);
    g.binary(Op::Add, r, shift)
}
