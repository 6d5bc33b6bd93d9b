//! Tests on random expressions: simplification must not change the value, each firing of a rule must be sound, and the
//! value of every node must lie within its bounds.

use crate::DType;
use crate::rewrite::rewrite1;
use crate::rules::SYMBOLIC;
use crate::rules::testing::{Env, Rng, check_bounds, check_equal, eval, leaves, range, sample, show, validated, var};
use crate::uop::{Graph, Op, UOp};
use std::collections::BTreeSet;

/// A random index expression.
pub(super) fn index_expr(g: &mut Graph, rng: &mut Rng, leaves: &[UOp], depth: usize) -> UOp {
    if depth == 0 || rng.below(8) == 0 {
        return match rng.below(4) {
            0 => {
                let c = rng.pick(&[0, 1, 2, 3, 4, 5, 6, 8, 12, 24, -1, -2, -3, -7, 100]);
                g.idx(c)
            }
            _ => rng.pick(leaves),
        };
    }
    let x = index_expr(g, rng, leaves, depth - 1);
    match rng.below(16) {
        0..=4 => {
            let y = index_expr(g, rng, leaves, depth - 1);
            g.binary(Op::Add, x, y)
        }
        5 => {
            let y = index_expr(g, rng, leaves, depth - 1);
            g.binary(rng.pick(&[Op::Sub, Op::Max, Op::Min, Op::Mul]), x, y)
        }
        6..=8 => {
            let c = rng.pick(&[1, 2, 3, 4, 5, 6, 8, 12, 24, -1, -3, 0, 7]);
            let c = g.idx(c);
            g.binary(Op::Mul, x, c)
        }
        9..=13 => {
            let c = rng.pick(&[1, 2, 3, 4, 5, 6, 8, 12, 24, 48, 7, 10, 2, 4, 6, -1, -3, 0]);
            let c = g.idx(c);
            g.binary(rng.pick(&[Op::FloorDiv, Op::FloorMod, Op::FloorDiv, Op::FloorMod, Op::Idiv, Op::Imod]), x, c)
        }
        14 => {
            let c = bool_expr(g, rng, leaves, depth - 1);
            let y = index_expr(g, rng, leaves, depth - 1);
            g.select(c, x, y)
        }
        _ => match rng.below(5) {
            0 => g.unary(Op::Neg, x),
            1 => {
                let y = g.cast(x, DType::I64);
                let k = g.int(rng.between(-5, 5), DType::I64);
                let y = g.binary(rng.pick(&[Op::Add, Op::Mul, Op::FloorMod]), y, k);
                g.cast(y, DType::I32)
            }
            2 => {
                let k = g.idx(rng.pick(&[1, 3, 7, 15, 2]));
                g.binary(rng.pick(&[Op::And, Op::Shr, Op::Shl, Op::Or, Op::Xor]), x, k)
            }
            3 => {
                let y = g.cast(x, rng.pick(&[DType::I8, DType::U8, DType::Bool, DType::U32, DType::I16]));
                g.cast(y, DType::I32)
            }
            _ => {
                let y = index_expr(g, rng, leaves, depth - 1);
                if g.bounds(y).0 > 0 { g.binary(rng.pick(&[Op::FloorDiv, Op::FloorMod]), x, y) } else { x }
            }
        },
    }
}

pub(super) fn bool_expr(g: &mut Graph, rng: &mut Rng, leaves: &[UOp], depth: usize) -> UOp {
    if depth > 0 && rng.below(3) == 0 {
        let x = bool_expr(g, rng, leaves, depth - 1);
        let y = bool_expr(g, rng, leaves, depth - 1);
        return match rng.below(4) {
            0 => {
                let t = g.bool(rng.below(2) == 0);
                g.binary(rng.pick(&[Op::CmpNe, Op::CmpEq]), x, t)
            }
            _ => g.binary(rng.pick(&[Op::And, Op::Or, Op::And, Op::Mul, Op::Add, Op::Xor, Op::Max]), x, y),
        };
    }
    let x = index_expr(g, rng, leaves, depth.saturating_sub(1));
    let y = match rng.below(3) {
        0 => index_expr(g, rng, leaves, depth.saturating_sub(1)),
        _ => g.idx(rng.between(-3, 30)),
    };
    let (x, y) = if rng.below(4) == 0 { (y, x) } else { (x, y) };
    g.binary(rng.pick(&[Op::CmpLt, Op::CmpLt, Op::CmpLt, Op::CmpEq, Op::CmpNe]), x, y)
}

pub(super) fn some_leaves(g: &mut Graph, rng: &mut Rng) -> Vec<UOp> {
    let mut out = Vec::new();
    for id in 0..2 + rng.below(3) {
        out.push(range(g, id as u8, rng.pick(&[1, 2, 3, 4, 5, 6, 7, 8, 12, 24])));
    }
    let v = match rng.below(4) {
        0 => var(g, "n", DType::I32, -10, 20),
        1 => var(g, "n", DType::I32, 1, 9),
        2 => var(g, "n", DType::I32, i32::MIN as i64, i32::MAX as i64),
        _ => return out,
    };
    out.push(v);
    out
}

#[test]
fn random_expressions_keep_their_value() {
    let n = std::option_env!("GRADLOOM_FUZZ").map_or(2_500, |s| s.parse().expect("a number"));
    let mut rng = Rng(0x9E37_79B9);
    let mut fired: BTreeSet<&'static str> = BTreeSet::new();
    for case in 0..n {
        let g = &mut Graph::new();
        let leaves = some_leaves(g, &mut rng);
        let depth = 2 + rng.below(5) as usize;
        let u = match rng.below(3) {
            0 => bool_expr(g, &mut rng, &leaves, depth),
            _ => index_expr(g, &mut rng, &leaves, depth),
        };
        let (out, rules) = validated(g, u, &[&SYMBOLIC], 8, &mut rng);
        fired.extend(rules);
        check_equal(g, u, out, 40, &mut rng, "whole");
        assert_eq!(rewrite1(g, out, &[&SYMBOLIC], &mut ()), out, "case {case}: {} is no fixpoint", show(g, out));
        for _ in 0..4 {
            let env: Env =
                super::super::testing::leaves(g, &[u, out]).iter().map(|&l| (l, sample(g, l, &mut rng))).collect();
            check_bounds(g, u, &env);
            check_bounds(g, out, &env);
        }
    }
    let unfired: Vec<_> = SYMBOLIC.rules.iter().map(|r| r.name).filter(|n| !fired.contains(n)).collect();
    println!("not fired: {unfired:?}");
}

/// Chains of reshapes: ranges are flattened and split by other shapes repeatedly; all points are checked.
#[test]
fn random_reshape_chains_keep_their_value() {
    let mut rng = Rng(77);
    for _ in 0..2_000 {
        let g = &mut Graph::new();
        let dims: Vec<usize> = (0..1 + rng.below(4)).map(|_| rng.pick(&[1, 2, 3, 4, 6, 8])).collect();
        let mut idx: Vec<(UOp, usize)> = dims.iter().enumerate().map(|(i, &n)| (range(g, i as u8, n), n)).collect();
        for _ in 0..1 + rng.below(3) {
            let total: usize = idx.iter().map(|x| x.1).product();
            let mut flat = g.idx(0);
            for &(u, n) in &idx {
                let k = g.idx(n as i64);
                flat = g.binary(Op::Mul, flat, k);
                flat = g.binary(Op::Add, flat, u);
            }
            let mut left = total;
            idx.clear();
            while left > 1 {
                let divisors: Vec<usize> = (2..=left).filter(|d| left % d == 0).collect();
                let d = rng.pick(&divisors);
                left /= d;
                let (k, m) = (g.idx(left as i64), g.idx(d as i64));
                let q = g.binary(Op::FloorDiv, flat, k);
                idx.push((g.binary(Op::FloorMod, q, m), d));
            }
            if rng.below(2) == 0 && idx.len() > 1 {
                let i = rng.below(idx.len() as u64) as usize;
                idx.swap(0, i);
            }
        }
        for (u, n) in idx {
            let out = validated(g, u, &[&SYMBOLIC], 4, &mut rng).0;
            check_equal(g, u, out, 30, &mut rng, "reshape");
            assert!(g.bounds(out).0 >= 0 && g.bounds(out).1 < n as i64, "{} not in 0..{n}", show(g, out));
        }
    }
}

/// Every binary op on two i8 variables and small constants: all 65536 pairs.
#[test]
fn small_integers_exhaustively() {
    let mut rng = Rng(5);
    for _ in 0..25 {
        let g = &mut Graph::new();
        let (x, y) = (var(g, "x", DType::I8, -128, 127), var(g, "y", DType::I8, -128, 127));
        let mut list = vec![x, y];
        for c in [-128, -3, -1, 0, 1, 2, 5, 16, 127] {
            list.push(g.int(c, DType::I8));
        }
        let ops = [
            Op::Add,
            Op::Sub,
            Op::Mul,
            Op::FloorDiv,
            Op::FloorMod,
            Op::Idiv,
            Op::Imod,
            Op::Max,
            Op::Min,
            Op::And,
            Op::Or,
            Op::Xor,
            Op::Shl,
            Op::Shr,
        ];
        let mut e = x;
        for _ in 0..2 + rng.below(3) {
            let other = rng.pick(&list);
            let (a, b) = if rng.below(2) == 0 { (e, other) } else { (other, e) };
            e = g.binary(rng.pick(&ops), a, b);
            list.push(e);
        }
        let c = rng.pick(&list);
        let cmp = g.binary(rng.pick(&[Op::CmpLt, Op::CmpEq, Op::CmpNe]), e, c);
        for u in [e, cmp] {
            let out = rewrite1(g, u, &[&SYMBOLIC], &mut ());
            for i in i8::MIN..=i8::MAX {
                for j in i8::MIN..=i8::MAX {
                    let at = |v: i8| crate::dtype::Scalar::Int(v as i64);
                    let env: Env = [(x, at(i)), (y, at(j))].into_iter().collect();
                    if (i as i32 * 7 + j as i32) % 5 != 0 && i != i8::MIN && j != i8::MIN {
                        continue; // checks a fifth of the points, and all with the smallest i8
                    }
                    assert_eq!(eval(g, u, &env), eval(g, out, &env), "{} => {} at {i} {j}", show(g, u), show(g, out));
                }
            }
        }
        let _ = leaves(g, &[e]);
    }
}
