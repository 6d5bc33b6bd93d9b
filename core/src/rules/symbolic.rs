//! The simplifier: identities, constant folding, canonical sums, comparisons, booleans, selections and casts.
//!
//! All rules are exact for every input. Integer rules either hold modulo 2^n or require operands that provably do not
//! overflow ("index" values: bounds narrower than the dtype); float rules preserve NaN and the sign of zero.
//!
//! Canonical forms: a constant operand is on the right; operands of commutative integer ops are in structural order;
//! sums of index values are flat, `t1*c1 + t2*c2 + c`, without Sub and Neg (which `LATE` restores); `x >= c` is
//! `c-1 < x`; `!b` is `b != true`; conjunctions are flat and sorted.

use super::cmp::{as_power, compare, conjunction, conjuncts, is_index};
use super::divmod::{div, modulo, recombine};
use super::fold::fold_node;
use super::under::simplify_under;
use crate::DType;
use crate::analysis::linear::{Linear, no_wrap, order};
use crate::dtype::Scalar;
use crate::rewrite::rules;
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::FxHashMap;

rules! {
    /// Exact simplification of scalar expressions; also sound on tensor graphs, where it never changes a shape.
    pub static SYMBOLIC(g, u) keep_shape = {
        // constants
        fold_const:     (any ALU)                 => do fold_const;
        fold_bounds:    (any ALU)                 => do fold_bounds;
        const_right:    (any BINARY)              => do const_right;
        // identities, any integer
        add_zero:       (x + 0)                   => x;
        sub_zero:       (x - 0)                   => x;
        mul_zero:       (_ * 0)                   => 0;
        mul_one:        (x * 1)                   => x;
        sub_self:       (x - {x}) if { is_int(g, x) } => 0;
        sub_const:      (x - [c]) if { is_int(g, x) } => (x + {c.wrapping_neg()});
        add_const:      ((x + [a]) + [b])         => (x + {a.wrapping_add(b)});
        mul_const:      ((x * [a]) * [b])         => (x * {a.wrapping_mul(b)});
        mul_const_out:  ((x * [a]) * y) if { g.op(y) != Op::Const } => ((x * y) * a);
        mul_const_out2: (x * (y * [a])) if { g.op(x) != Op::Const } => ((x * y) * a);
        neg_neg:        (Neg (Neg x))             => x;
        neg_mul:        (Neg (x * [a]))           => (x * {a.wrapping_neg()});
        div_zero:       (x / 0)                   => x;
        mod_zero:       (_ % 0)                   => 0;
        div_one:        (x / 1)                   => x;
        div_self:       (x / {x}) if { g.bounds(x).0 > 0 } => 1;
        mod_self:       (x % {x}) if { is_int(g, x) } => 0;
        idiv_floor:     (Idiv x y) if { nonneg(g, x) && g.bounds(y).0 > 0 } => (x / y);
        imod_floor:     (Imod x y) if { nonneg(g, x) && g.bounds(y).0 > 0 } => (x % y);
        // bits
        and_zero:       (_ & 0)                   => 0;
        and_ones:       (x & (-1))                => x;
        and_same:       (x & {x})                 => x;
        or_zero:        (x | 0)                   => x;
        or_same:        (x | {x})                 => x;
        xor_zero:       (x ^ 0)                   => x;
        xor_same:       (x ^ {x})                 => 0;
        shl_zero:       (x << 0)                  => x;
        shr_zero:       (x >> 0)                  => x;
        and_mod:        (x & [m]) if { is_index(g, x) && m > 0 && m < i32::MAX as i64 && (m + 1) & m == 0 && fits_const(g, x, m + 1) }
                                                  => (x % {m + 1});
        shl_mul:        (x << [_s]) if { is_index(g, u) } => { shift(g, u, Op::Mul) };
        shr_div:        (x >> [_s]) if { is_index(g, x) } => { shift(g, u, Op::FloorDiv) };
        // index sums, divisions
        canon_sum:      (any BINARY)              => do canon_sum;
        canon_neg:      (Neg x) if { no_wrap(g, u) } => (x * {-1});
        simplify_div:   (_ / _)                   => do div;
        simplify_mod:   (_ % _)                   => do modulo;
        // ordering
        max_bounds:     (Max x y) if { is_ord(g, x) && g.bounds(x).0 >= g.bounds(y).1 } => x;
        max_bounds2:    (Max x y) if { is_ord(g, x) && g.bounds(y).0 >= g.bounds(x).1 } => y;
        min_bounds:     (Min x y) if { is_ord(g, x) && g.bounds(x).1 <= g.bounds(y).0 } => x;
        min_bounds2:    (Min x y) if { is_ord(g, x) && g.bounds(y).1 <= g.bounds(x).0 } => y;
        max_same:       (Max x {x})               => x;
        min_same:       (Min x {x})               => x;
        max_const:      (Max (Max x [a]) [b]) if { is_ord(g, x) } => (Max x {a.max(b)});
        min_const:      (Min (Min x [a]) [b]) if { is_ord(g, x) } => (Min x {a.min(b)});
        order_operands: (any BINARY)              => do order_operands;
        // comparison
        cmp_self_lt:    (x < {x})                 => false;
        cmp_self_ne:    (x != {x}) if { !g.dtype(x).is_float() } => false;
        cmp_self_eq:    (x == {x}) if { !g.dtype(x).is_float() } => true;
        cmp_int:        (any COMPARE)             => do compare;
        ne_false:       (x != false)              => x;
        eq_true:        (x == true)               => x;
        eq_false:       (x == false)              => (x != true);
        not_not:        ((x != true) != true)     => x;
        not_ne:         ((x != y) != true) if { !is_true(g, y) } => (x == y);
        not_eq:         ((x == y) != true)        => (x != y);
        not_lt:         ((x < [c]) != true) if { is_int(g, x) && c > i64::MIN && fits_const(g, x, c - 1) }
                                                  => ({ g.int(c - 1, g.dtype(x)) } < x);
        not_gt:         (([c] < x) != true) if { is_int(g, x) && c < i64::MAX && fits_const(g, x, c + 1) }
                                                  => (x < { c + 1 });
        // booleans
        bool_add:       (x + y) if { is_bool(g, x) } => (x | y);
        bool_mul:       (x * y) if { is_bool(g, x) } => (x & y);
        bool_max:       (Max x y) if { is_bool(g, x) } => (x | y);
        bool_min:       (Min x y) if { is_bool(g, x) } => (x & y);
        bool_xor:       (x ^ y) if { is_bool(g, x) } => (x != y);
        and_true:       (x & true)                => x;
        or_false:       (x | false)               => x;
        or_not:         (x | ({x} != true))       => true;
        or_not2:        ((x != true) | {x})       => true;
        or_absorb:      (x | y) if { is_bool(g, x) && conjuncts(g, y).contains(&x) } => x;
        or_absorb2:     (x | y) if { is_bool(g, x) && conjuncts(g, x).contains(&y) } => y;
        conjunction:    (_ & _)                   => do conjunction;
        // selection
        where_const:    (Where [c] x y)           => { if c != 0 { x } else { y } };
        where_same:     (Where _ x {x})           => x;
        where_not:      (Where (c != true) x y)      => (Where c y x);
        where_bool:     (Where c true false)      => c;
        where_bool_not: (Where c false true)      => (c != true);
        where_and:      (Where c x false)            => (c & x);
        where_or:       (Where c true x)             => (c | x);
        where_inner:    (Where c (Where {c} x _) z) => (Where c x z);
        where_inner2:   (Where c x (Where {c} _ z)) => (Where c x z);
        where_nest_and: (Where c (Where d x y) {y}) => (Where (c & d) x y);
        where_nest_or:  (Where c x (Where d {x} y)) => (Where (c | d) x y);
        where_nest_not: (Where c x (Where d y {x})) => (Where ((c != true) & d) y x);
        where_binary:   (any BINARY)              => do where_binary;
        where_cast:     (Cast (Where c (# x) (# y))) => { let dt = g.dtype(u); let (x, y) = (g.cast(x, dt), g.cast(y, dt)); g.select(c, x, y) };
        where_closure:  (Where c x y)             => do where_closure;
        // gated memory: the address matters only where the gate is true
        load_always:    (Load i _ true)            => { g.load(i) };
        load_gated_never: (Load _ alt false)       => alt;
        load_under:     (Load (i @ (Index p x)) a c) => { let i = address_under(g, i, p, x, c)?; g.load_gated(i, a, c) };
        store_under:    (Store (i @ (Index p x)) v c) => {
            // the address must go on depending on the same ranges: lanes and threads keep distinct addresses, though
            // the gate lets only one of them store
            let i = address_under(g, i, p, x, c).filter(|&y| g.ranges(y) == g.ranges(i))?;
            g.with_src(u, &[i, v, c])
        };
        where_load:     (Where c (l @ (Load _ a d)) {a}) if { implies(g, d, c) } => l;
        // casts
        cast_same:      (Cast x) if { g.dtype(x) == g.dtype(u) } => x;
        cast_cast:      (Cast (Cast x))           => do cast_cast;
        cast_narrow:    (Cast x)                  => do cast_narrow;
        cast_cmp:       (any COMPARE)             => do cast_cmp;
        bitcast_same:   (Bitcast x) if { g.dtype(x) == g.dtype(u) } => x;
        bitcast_chain:  (Bitcast (Bitcast x))     => { let dt = g.dtype(u); g.bitcast(x, dt) };
        bitcast_sign:   (Bitcast x) if { is_int(g, x) && is_int(g, u) && nonneg(g, x) && fits_bounds(g, x, u) }
                                                  => { let dt = g.dtype(u); g.cast(x, dt) };
        // floats, exact
        fadd_zero:      (x + (-0.0))              => x;
        fsub_zero:      (x - 0.0)                 => x;
        fmul_one:       (x * 1.0)                 => x;
        fmul_minus:     (x * (-1.0))              => (Neg x);
        fdiv_one:       (Div x 1.0)               => x;
        fdiv_power:     (Div x (# c))             => do div_by_power;
        sub_neg:        (x - (Neg y)) if { g.dtype(x).is_float() } => (x + y);
        add_neg:        (x + (Neg y)) if { g.dtype(x).is_float() } => (x - y);
        trunc_trunc:    (Trunc (t @ (Trunc _)))   => t;
        trunc_int:      (Trunc (t @ (Cast x))) if { !g.dtype(x).is_float() } => t;
    }
}

fn is_int(g: &Graph, u: UOp) -> bool {
    g.dtype(u).is_int()
}

fn is_bool(g: &Graph, u: UOp) -> bool {
    g.dtype(u) == DType::Bool
}

/// Is it an integer whose bounds are ordered like its values? Those of u64, kept as i64 bit patterns, are not.
fn is_ord(g: &Graph, u: UOp) -> bool {
    is_int(g, u) && g.dtype(u) != DType::U64
}

fn nonneg(g: &Graph, u: UOp) -> bool {
    is_ord(g, u) && g.bounds(u).0 >= 0
}

fn is_true(g: &Graph, u: UOp) -> bool {
    is_bool(g, u) && g.const_int(u) == Some(1)
}

fn fits_const(g: &Graph, x: UOp, c: i64) -> bool {
    crate::analysis::linear::fits(g.dtype(x), (c as i128, c as i128))
}

/// Does every value of `x` exist in the dtype of `u`?
fn fits_bounds(g: &Graph, x: UOp, u: UOp) -> bool {
    crate::analysis::linear::fits(g.dtype(u), crate::analysis::linear::bounds(g, x)) && g.dtype(x) != DType::U64
}

fn fold_const(g: &mut Graph, u: UOp) -> Option<UOp> {
    let v = fold_node(g, u)?;
    let dt = g.dtype(u);
    Some(g.node(Op::Const, dt, &[], Arg::Const(v)))
}

/// Folds an integer or bool whose bounds leave one value to that constant.
fn fold_bounds(g: &mut Graph, u: UOp) -> Option<UOp> {
    let ((lo, hi), dt) = (g.bounds(u), g.dtype(u));
    (lo == hi && !dt.is_float() && dt != DType::U64).then(|| g.int(lo, dt))
}

fn const_right(g: &mut Graph, u: UOp) -> Option<UOp> {
    let &[x, y] = g.src(u) else { return None };
    let swap = g.op(u).is_commutative() && g.op(x) == Op::Const && g.op(y) != Op::Const;
    swap.then(|| g.with_src(u, &[y, x]))
}

/// Puts the operands of commutative integer ops into structural order. Floats stay as they are, since which product of
/// a sum becomes part of a fused multiply-add depends on the order as written. Sums and comparisons of index values and
/// conjunctions are ordered by other rules.
fn order_operands(g: &mut Graph, u: UOp) -> Option<UOp> {
    let &[x, y] = g.src(u) else { return None };
    let op = g.op(u);
    let conjunction = op == Op::And && is_bool(g, u) && g.shape(u).is_empty();
    let elsewhere = conjunction || (op == Op::Add && no_wrap(g, u)) || (op.is_compare() && is_ord(g, x));
    if !op.is_commutative() || g.op(y) == Op::Const || g.dtype(x).is_float() || elsewhere {
        return None;
    }
    (order(g, x, y) == std::cmp::Ordering::Greater).then(|| g.with_src(u, &[y, x]))
}

fn shift(g: &mut Graph, u: UOp, op: Op) -> Option<UOp> {
    let (x, dt) = (g.src_at(u, 0), g.dtype(u));
    let p = as_power(g, g.src_at(u, 1), dt)?;
    let p = g.int(p, dt);
    Some(g.binary(op, x, p))
}

/// The canonical form of sums of index values: flat, with like terms merged, quotients and remainders recombined, and
/// terms in canonical order.
fn canon_sum(g: &mut Graph, u: UOp) -> Option<UOp> {
    let is_sum = match g.op(u) {
        Op::Add | Op::Sub => true,
        Op::Mul => g.op(g.src_at(u, 1)) == Op::Const,
        _ => false,
    };
    if !is_sum || !no_wrap(g, u) || !g.shape(u).is_empty() {
        return None;
    }
    let mut sum = Linear::of(g, u);
    while recombine(g, &mut sum) {}
    let dt = g.dtype(u);
    sum.build(g, dt).filter(|&v| v != u)
}

/// `(c ? k1 : k2) op k3` with constants k becomes `c ? (k1 op k3) : (k2 op k3)`.
fn where_binary(g: &mut Graph, u: UOp) -> Option<UOp> {
    let &[x, y] = g.src(u) else { return None };
    let (w, k) = if g.op(x) == Op::Where { (x, y) } else { (y, x) };
    if g.op(w) != Op::Where || g.op(k) != Op::Const {
        return None;
    }
    let &[c, a, b] = g.src(w) else { return None };
    if g.op(a) != Op::Const || g.op(b) != Op::Const {
        return None;
    }
    let (dt, op) = (g.dtype(u), g.op(u));
    let branch = |g: &mut Graph, v: UOp| {
        let src = if w == x { [v, k] } else { [k, v] };
        g.node(op, dt, &src, Arg::None)
    };
    let (a, b) = (branch(g, a), branch(g, b));
    Some(g.select(c, a, b))
}

/// How many levels below the values of a Where known conditions are replaced. Three levels are enough for nested masks.
const KNOWN_CONDITION_DEPTH: usize = 3;

/// Replaces known conditions in the two values of a Where: within the first each clause of the condition is true,
/// within the second the condition is false. It looks [`KNOWN_CONDITION_DEPTH`] levels deep.
fn where_closure(g: &mut Graph, u: UOp) -> Option<UOp> {
    let &[c, x, y] = g.src(u) else { return None };
    if !g.shape(u).is_empty() || g.op(c) == Op::Const {
        return None;
    }
    let (t, f) = (g.bool(true), g.bool(false));
    let known: FxHashMap<UOp, UOp> = conjuncts(g, c).into_iter().map(|k| (k, t)).collect();
    let x2 = assume(g, x, &known, KNOWN_CONDITION_DEPTH);
    let y2 = assume(g, y, &FxHashMap::from_iter([(c, f)]), KNOWN_CONDITION_DEPTH);
    ((x2, y2) != (x, y)).then(|| g.select(c, x2, y2))
}

fn assume(g: &mut Graph, u: UOp, known: &FxHashMap<UOp, UOp>, depth: usize) -> UOp {
    if let Some(&v) = known.get(&u) {
        return v;
    }
    // A selection of two computed floats is left alone: what is computed from it (such as the exponential of a sigmoid)
    // is often also used outside the condition, and would be computed twice if it were specialised here.
    let constant = |i: usize| g.op(g.src_at(u, i)) == Op::Const;
    let chosen = g.op(u) == Op::Where && g.dtype(u).is_float() && !constant(1) && !constant(2);
    if depth == 0 || !g.op(u).is_alu() || chosen && known.contains_key(&g.src_at(u, 0)) {
        return u;
    }
    let src: smallvec::SmallVec<[UOp; 4]> = g.srcs(u).iter().map(|&s| assume(g, s, known, depth - 1)).collect();
    g.with_src(u, &src)
}

/// The address, simplified under its gate; `None` if that changes nothing. It is attempted only where the address
/// contains a division or selection, since nothing else can become simpler.
fn address_under(g: &mut Graph, at: UOp, p: UOp, x: UOp, gate: UOp) -> Option<UOp> {
    let mut stack: smallvec::SmallVec<[UOp; 16]> = smallvec::smallvec![x];
    let mut budget = 64;
    loop {
        let u = stack.pop()?;
        if matches!(g.op(u), Op::FloorDiv | Op::FloorMod | Op::Where | Op::Max | Op::Min) {
            break;
        }
        budget -= 1;
        if budget == 0 {
            return None;
        }
        if g.op(u).is_alu() {
            stack.extend_from_slice(g.src(u));
        }
    }
    let y = simplify_under(g, gate, x);
    (y != x).then(|| g.with_src(at, &[p, y]))
}

/// Is each clause of `weak` also a clause of `strong`?
fn implies(g: &Graph, strong: UOp, weak: UOp) -> bool {
    let have = conjuncts(g, strong);
    conjuncts(g, weak).iter().all(|c| have.contains(c))
}

/// `cast(cast(x, b), c) = cast(x, c)` where dtype b represents every value of x.
fn cast_cast(g: &mut Graph, u: UOp) -> Option<UOp> {
    let inner = g.src_at(u, 0);
    let x = g.src_at(inner, 0);
    let (a, b, c) = (g.dtype(x), g.dtype(inner), g.dtype(u));
    let exact = match (a.is_float(), b.is_float()) {
        (false, false) if b != DType::Bool => a == DType::Bool || fits_bounds(g, x, inner) || wider(a, b),
        (true, true) => a == b || (b == DType::F32 && a.size() == 2) || b == DType::F64,
        // casts from integers wrap and casts from floats saturate, so the values of x must fit c
        (false, true) => {
            let same = !c.is_int() || wider(a, c) || fits_bounds(g, x, u);
            a == DType::Bool || (same && mantissa(b).is_some_and(|m| a.is_int() && a.bits() <= m))
        }
        _ => false,
    };
    // narrowing an integer in two steps is the same as narrowing it in one
    let twice = a.is_int() && b.is_int() && c.is_int() && c.size() <= b.size();
    (exact || twice).then(|| g.cast(x, c))
}

fn wider(a: DType, b: DType) -> bool {
    match (a.int_range(), b.int_range()) {
        (Some((a0, a1)), Some((b0, b1))) => b0 <= a0 && a1 <= b1,
        _ => false,
    }
}

/// The width in bits of the integers that a float dtype represents exactly.
fn mantissa(dt: DType) -> Option<u32> {
    match dt {
        DType::F16 => Some(11),
        DType::BF16 => Some(8),
        DType::F32 => Some(24),
        DType::F64 => Some(53),
        _ => None,
    }
}

/// 64-bit index arithmetic is done in 32 bits where all of its values fit.
fn cast_narrow(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (x, to) = (g.src_at(u, 0), g.dtype(u));
    let op = g.op(x);
    let closed = matches!(op, Op::Add | Op::Sub | Op::Mul | Op::FloorDiv | Op::FloorMod | Op::Max | Op::Min | Op::Neg);
    if g.dtype(x) != DType::I64 || to != DType::I32 || !(closed || op == Op::Where) || !fits_bounds(g, x, u) {
        return None;
    }
    let src = g.srcs(x);
    let skip = (op == Op::Where) as usize;
    if !src[skip..].iter().all(|&s| fits_bounds(g, s, u)) {
        return None;
    }
    let src: smallvec::SmallVec<[UOp; 4]> =
        src.iter().enumerate().map(|(i, &s)| if i < skip { s } else { g.cast(s, to) }).collect();
    Some(g.node(op, to, &src, Arg::None))
}

/// Compares two widened integers, or one with a constant, in the dtype from before the widening.
fn cast_cmp(g: &mut Graph, u: UOp) -> Option<UOp> {
    let &[a, b] = g.src(u) else { return None };
    let inner = |g: &Graph, u: UOp| (g.op(u) == Op::Cast).then(|| g.src_at(u, 0));
    let (op, wide) = (g.op(u), g.dtype(a));
    let narrow = inner(g, a).or(inner(g, b))?;
    let dt = g.dtype(narrow);
    if dt.is_float() || wide.is_float() || dt == DType::Bool || !(wider(dt, wide) || dt == wide) {
        return bool_cmp(g, u);
    }
    let mut side = |u: UOp| match (inner(g, u), g.const_int(u)) {
        (Some(x), _) if g.dtype(x) == dt => Some(x),
        (_, Some(c)) if crate::analysis::linear::fits(dt, (c as i128, c as i128)) => Some(g.int(c, dt)),
        _ => None,
    };
    let (a, b) = (side(a)?, side(b)?);
    Some(g.binary(op, a, b))
}

/// Comparisons of a bool that was cast with a constant, such as `cast(b) != 0`: `b`, its negation, or a constant.
fn bool_cmp(g: &mut Graph, u: UOp) -> Option<UOp> {
    let &[a, k] = g.src(u) else { return None };
    if g.op(a) != Op::Cast || g.dtype(g.src_at(a, 0)) != DType::Bool {
        return None;
    }
    let (b, k) = (g.src_at(a, 0), g.const_val(k)?.as_f64_of(g.dtype(k)));
    let at = |v: f64| match g.op(u) {
        Op::CmpLt => v < k,
        Op::CmpEq => v == k,
        _ => v != k,
    };
    Some(match (at(0.0), at(1.0)) {
        (false, true) => b,
        (true, false) => {
            let t = g.bool(true);
            g.binary(Op::CmpNe, b, t)
        }
        (same, _) => g.bool(same),
    })
}

/// `x / 2^k = x * 2^-k` where both powers are normal floats.
fn div_by_power(g: &mut Graph, u: UOp) -> Option<UOp> {
    let (x, dt) = (g.src_at(u, 0), g.dtype(u));
    let c = g.const_val(g.src_at(u, 1))?.as_f64();
    let inv = 1.0 / c;
    let limit = if dt == DType::F16 { 14 } else { 100 };
    let exact = c.is_normal() && c.to_bits() << 12 == 0 && c.abs() <= 2f64.powi(limit) && inv.abs() <= 2f64.powi(limit);
    let inv = (exact && Scalar::from_f64(inv, dt).as_f64() == inv).then(|| g.float(inv, dt))?;
    Some(g.binary(Op::Mul, x, inv))
}
