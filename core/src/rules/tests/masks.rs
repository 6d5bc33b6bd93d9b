//! Tests of masks, of gates and of the `LATE` forms.

use crate::DType;
use crate::rewrite::rewrite1;
use crate::rules::testing::{Rng, check_equal, parse, range, show, validated, var};
use crate::rules::under::simplify_under;
use crate::rules::{LATE, SYMBOLIC};
use crate::target::{Isa, Target};
use crate::uop::{Graph, Op, UOp};

fn setup<'a>(g: &mut Graph, ranges: &[usize]) -> Vec<(&'a str, UOp)> {
    let names = ["r0", "r1", "r2", "r3"];
    ranges.iter().enumerate().map(|(i, &n)| (names[i], range(g, i as u8, n))).collect()
}

fn under(ranges: &[usize], cond: &str, text: &str, want: &str) {
    let g = &mut Graph::new();
    let rs = setup(g, ranges);
    let (cond, u) = (parse(g, cond, &rs), parse(g, text, &rs));
    let cond = crate::rules::simplify(g, cond);
    let u = crate::rules::simplify(g, u);
    let got = simplify_under(g, cond, u);
    let none = g.int(0, g.dtype(u));
    let (a, b) = (g.select(cond, u, none), g.select(cond, got, none));
    check_equal(g, a, b, 300, &mut Rng(3), text);
    let want = parse(g, want, &rs);
    assert_eq!(show(g, got), show(g, want), "{text}");
}

#[test]
fn a_condition_simplifies_what_it_guards() {
    under(&[10], "r0 < 4", "r0 % 4", "r0");
    under(&[10], "3 < r0", "r0 // 4 * 7 + (r0 < 3)", "r0 // 4 * 7");
    under(&[10, 10], "r0 == 3", "r0 * 10 + r1", "r1 + 30");
    // a padded row index inside a flattened address
    under(&[8, 3], "-1 < r0 + r1 - 1 & r0 + r1 - 1 < 8", "(r0 + r1 - 1) % 8 * 5", "r0*5 + r1*5 + -5");
    under(&[8, 3, 4], "0 < r0 + r1 & r0 + r1 < 9", "((r0 + r1 - 1)*4 + r2) // 32", "0");
    under(&[8, 3, 4], "0 < r0 + r1 & r0 + r1 < 9", "((r0 + r1 - 1)*4 + r2) // 4 % 8", "r0 + r1 + -1");
    // a strided and dilated window: neither term of a bounded sum has the factor 1
    let window = "5 < r0*3 + r1*2 & r0*3 + r1*2 < 76 & 5 < r2*3 + r3*2 & r2*3 + r3*2 < 76";
    let address = "(r0*210 + r1*140 + r2*3 + r3*2 + 4474) % 4900";
    under(&[24, 7, 24, 7], window, address, "r0*210 + r1*140 + r2*3 + r3*2 + -426");
    under(&[8, 3], "0 < r0*2 + r1 & r0*2 + r1 < 9", "(r0*2 + r1 + 7) % 8 * 3", "r0*6 + r1*3 + -3");
    // a padded row and column in one address
    let (rows, cols) = ("0 < r0 + r1 & r0 + r1 < 9", "0 < r2 + r3 & r2 + r3 < 5");
    let want = "r0*4 + r1*4 + r2 + r3 + -5";
    under(&[8, 3, 4, 3], &format!("{rows} & {cols}"), "((r0 + r1 - 1)*4 + r2 + r3 - 1) % 32", want);
}

/// The exponential of a sigmoid, which is used with and without the condition, is computed once. A selection between a
/// value and a constant, however, is specialised to the condition.
#[test]
fn what_is_chosen_once_is_computed_once() {
    let g = &mut Graph::new();
    let bits = var(g, "x", DType::I32, -9, 9);
    let x = g.bitcast(bits, DType::F32);
    let (zero, one) = (g.float(0.0, DType::F32), g.float(1.0, DType::F32));
    let negative = g.binary(Op::CmpLt, x, zero);
    let minus = g.unary(Op::Neg, x);
    for (other, exponentials) in [(minus, 1), (zero, 2)] {
        let chosen = g.select(negative, x, other);
        let e = g.unary(Op::Exp2, chosen);
        let (above, below) = (g.select(negative, e, one), g.binary(Op::Add, e, one));
        let y = g.binary(Op::Mul, above, below);
        let y = crate::rules::simplify(g, y);
        assert_eq!(g.reachable(&[y]).iter().filter(|&&u| g.op(u) == Op::Exp2).count(), exponentials);
    }
}

/// The address of a gated load is simplified under its gate, and a selection that repeats the gate is removed.
#[test]
fn gates_simplify_addresses() {
    for (ranges, gate, index, want) in [
        // a transposed convolution's row
        (&[32, 3][..], "0 < r0*3 + r1", "((r0*3 + r1 + 1) // 2 + 47) % 48 * 160", "r0*160 + (r0 + r1 + -1)//2*160"),
        // upsampling under reflection padding
        (&[130], "0 < r0 & r0 < 129", "((r0 + 1) // 2 + 63) % 64", "(r0 + -1) // 2"),
        // a convolution's window made by padding and reshaping: `r0 + r1*24` is `r0 - r1` modulo 25
        (&[24, 5], "r1 < r0 + 1 & r0 < r1 + 20", "(r0 + r1*24) // 25 * 7 + (r0 + r1*24) % 25", "r0 + r1*6"),
        (&[130], "r0 < 1", "((r0 + 1) // 2 + 63) % 64", "63"),
    ] {
        let g = &mut Graph::new();
        let rs = setup(g, ranges);
        let (c, i) = (parse(g, gate, &rs), parse(g, index, &rs));
        let (p, z) = (g.param(0, DType::F32, 10_000), g.float(0.0, DType::F32));
        let at = g.index(p, i);
        let load = g.load_gated(at, z, c);
        let u = g.select(c, load, z);
        let out = validated(g, u, &[&SYMBOLIC], 300, &mut Rng(17)).0;
        assert_eq!(g.op(out), Op::Load);
        let got = g.src_at(g.src_at(out, 0), 1);
        let want = parse(g, want, &rs);
        let want = crate::rules::simplify(g, want);
        assert_eq!(show(g, got), show(g, want), "{index} where {gate}");
    }
}

#[test]
fn late_forms_are_equal_and_free_of_floor_division() {
    let mut rng = Rng(21);
    let mut t = Target::x86(Isa::Avx2, 1);
    for _ in 0..3_000 {
        let g = &mut Graph::new();
        let leaves = super::random::some_leaves(g, &mut rng);
        let u = super::random::index_expr(g, &mut rng, &leaves, 4);
        let s = crate::rules::simplify(g, u);
        let out = rewrite1(g, s, &[&LATE], &mut t);
        check_equal(g, s, out, 30, &mut rng, "late");
        assert!(g.reachable(&[out]).iter().all(|&u| !matches!(g.op(u), Op::FloorDiv | Op::FloorMod)));
    }
    // all pairs of i8 values, and so all signs of both operands
    let g = &mut Graph::new();
    let (x, y) = (var(g, "x", DType::I8, -128, 127), var(g, "y", DType::I8, -128, 127));
    for op in [Op::FloorDiv, Op::FloorMod] {
        let u = g.binary(op, x, y);
        let out = rewrite1(g, u, &[&LATE], &mut t);
        check_equal(g, u, out, 20_000, &mut rng, "late i8");
    }
}

#[test]
fn division_by_multiplication_is_right_to_the_end_of_its_range() {
    let mut t = Target::eval();
    for (n, d) in [(1000, 3), (16384, 7), (10000, 10), (2048, 641), (30000, 49), (224, 25)] {
        let g = &mut Graph::new();
        let r = range(g, 0, n);
        let k = g.idx(d);
        let q = g.binary(Op::FloorDiv, r, k);
        let out = rewrite1(g, q, &[&LATE], &mut t);
        assert_eq!(g.op(out), Op::Shr, "{n} {d}");
        for i in 0..n as i64 {
            let env = [(r, crate::dtype::Scalar::Int(i))].into_iter().collect();
            let v = crate::rules::testing::eval(g, out, &env).expect("a value");
            assert_eq!(v.as_i64(), i / d, "{i} / {d}");
        }
    }
}

#[test]
fn floats_fuse_only_where_the_target_does() {
    let g = &mut Graph::new();
    let v: Vec<UOp> = ["a", "b", "c"].iter().map(|n| var(g, n, DType::F32, 0, 0)).collect();
    let m = g.binary(Op::Mul, v[0], v[1]);
    let s = g.binary(Op::Add, v[2], m);
    let fused = rewrite1(g, s, &[&LATE], &mut Target::x86(Isa::Avx2, 1));
    assert_eq!((g.op(fused), g.src(fused).to_vec()), (Op::MulAdd, v));
    assert_eq!(rewrite1(g, s, &[&LATE], &mut Target::wasm(false, 1)), s);
}

#[test]
fn absolute_values_lose_the_sign_of_zero() {
    for mut t in [Target::x86(Isa::Avx2, 1), Target::wasm(false, 1), Target::eval()] {
        for turned in [false, true] {
            let g = &mut Graph::new();
            let x = var(g, "x", DType::F32, 0, 0);
            let minus = g.unary(Op::Neg, x);
            let u = if turned { g.binary(Op::Max, minus, x) } else { g.binary(Op::Max, x, minus) };
            let out = rewrite1(g, u, &[&LATE], &mut t);
            for v in [0.0, -0.0, 1.5, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                let env = [(x, crate::dtype::Scalar::float(v))].into_iter().collect();
                let got = crate::rules::testing::eval(g, out, &env).expect("a value").as_f64();
                assert!(got == v.abs() && got.is_sign_positive() || got.is_nan() && v.is_nan(), "|{v}| is {got}");
            }
        }
    }
}
