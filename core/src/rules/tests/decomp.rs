//! Decompositions: accuracy of the polynomials against f64, and equality of widened arithmetic.

use crate::DType;
use crate::dtype::Scalar;
use crate::rewrite::rewrite1;
use crate::rules::decomp::{decompose, exp_below_zero};
use crate::rules::testing::{Rng, check_equal, reinterpret, var};
use crate::rules::{LATE, fold};
use crate::target::{DTypeSet, Isa, Target};
use crate::uop::eval::eval_exprs;
use crate::uop::{Arg, Graph, Op, UOp};

/// A scalar function as a list of nodes, which evaluates fast on many points; multiply-adds are fused.
struct Compiled {
    g: Graph,
    order: Vec<UOp>,
    vals: Vec<Scalar>,
    inputs: Vec<UOp>,
    out: UOp,
}

impl Compiled {
    fn new(dt: DType, t: &Target, f: impl FnOnce(&mut Graph, UOp) -> UOp) -> Compiled {
        let mut g = Graph::new();
        let x = var(&mut g, "x", dt, 0, 0);
        let u = f(&mut g, x);
        Compiled::of(g, vec![x], u, t)
    }

    fn of(mut g: Graph, inputs: Vec<UOp>, u: UOp, t: &Target) -> Compiled {
        let out = decompose(&mut g, u, t).expect("it has a lowering");
        let out = rewrite1(&mut g, out, &[&LATE], &mut t.clone());
        let order = g.reachable(&[out]);
        for &u in &order {
            assert!(
                !matches!(g.op(u), Op::Exp2 | Op::Log2 | Op::Sin | Op::Cos | Op::Tan | Op::Pow),
                "{:?} is left",
                g.op(u)
            );
        }
        let vals = vec![Scalar::Int(0); g.len()];
        Compiled { g, order, vals, inputs, out }
    }

    fn at(&mut self, v: f64) -> f64 {
        self.at_all(&[v])
    }

    fn at_all(&mut self, v: &[f64]) -> f64 {
        for &u in &self.order {
            let (op, dt) = (self.g.op(u), self.g.dtype(u));
            let src: Vec<(Scalar, DType)> =
                self.g.src(u).iter().map(|s| (self.vals[s.0 as usize], self.g.dtype(*s))).collect();
            self.vals[u.0 as usize] = match op {
                Op::Const => self.g.const_val(u).expect("a constant"),
                Op::Var => {
                    let i = self.inputs.iter().position(|&x| x == u).expect("an input");
                    Scalar::from_f64(v[i], dt)
                }
                Op::MulAdd => {
                    let [a, b, c] = [0, 1, 2].map(|i| src[i].0.as_f64());
                    // a*b is exact in f64 for f32 operands
                    let fused =
                        if dt == DType::F32 { (a as f32).mul_add(b as f32, c as f32) as f64 } else { a.mul_add(b, c) };
                    Scalar::from_f64(fused, dt)
                }
                Op::Bitcast => reinterpret(src[0].0, src[0].1, dt),
                _ => fold(op, dt, &src).unwrap_or_else(|| panic!("{op:?} on {src:?}")),
            };
        }
        self.vals[self.out.0 as usize].as_f64()
    }
}

/// The distance of `got` from `want` in ulp of the f32 nearest to `want`.
fn ulp32(got: f64, want: f64) -> f64 {
    let w = want as f32;
    if got.is_nan() || w.is_nan() || w.is_infinite() || got.is_infinite() {
        let same = (got.is_nan() && w.is_nan()) || got == w as f64;
        return if same { 0.0 } else { f64::INFINITY };
    }
    let exp = (w.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    (got - want).abs() / 2f64.powi(exp - 23)
}

/// A target that fuses multiply-adds, and one that does not.
fn targets() -> [Target; 2] {
    [Target::x86(Isa::Avx2, 1), Target::wasm(false, 1)]
}

/// The largest error over a sample of the f32 in `range` (evenly spaced by bit pattern), and over their negatives if
/// `both`.
fn worst(c: &mut Compiled, range: (f32, f32), both: bool, f: impl Fn(f64) -> f64) -> (f64, f64) {
    let (a, b) = (range.0.to_bits(), range.1.to_bits());
    let stride = ((b - a) / 12_000).max(1);
    let mut worst = (0.0, 0.0);
    for bits in (a..b).step_by(stride as usize).chain([b]) {
        let x = f32::from_bits(bits) as f64;
        for x in if both { vec![x, -x] } else { vec![x] } {
            let e = ulp32(c.at(x), f(x));
            if e > worst.0 {
                worst = (e, x);
            }
        }
    }
    worst
}

#[test]
fn exp2_f32_is_within_two_ulp() {
    for t in targets() {
        let mut c = Compiled::new(DType::F32, &t, |g, x| g.unary(Op::Exp2, x));
        let w = worst(&mut c, (0.0, 160.0), true, f64::exp2);
        println!("exp2 {}: {w:?}, {} nodes", t.name, c.order.len());
        assert!(w.0 <= 2.0, "{w:?}");
        for x in [
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            0.0,
            -0.0,
            128.0,
            127.9999,
            -126.5,
            -149.0,
            -149.9,
            1e30,
            -1e30,
        ] {
            assert!(ulp32(c.at(x), (x as f32 as f64).exp2()) <= 1.0, "exp2({x}) = {}", c.at(x));
        }
    }
}

#[test]
fn exp_f32_is_within_two_ulp_of_the_true_exponential() {
    for (t, sign) in targets().iter().zip([1.0, -1.0]) {
        let mut c = Compiled::new(DType::F32, t, |g, x| {
            let k = g.float(sign * std::f64::consts::LOG2_E, DType::F32);
            let m = g.binary(Op::Mul, x, k);
            g.unary(Op::Exp2, m)
        });
        let w = worst(&mut c, (0.0, 110.0), true, |x| (x * sign).exp());
        println!("exp {}: {w:?}, {} nodes", t.name, c.order.len());
        assert!(w.0 <= 2.0, "{w:?}");
        for x in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, 88.72283, -103.9, 1e30] {
            assert!(ulp32(c.at(x), (x as f32 as f64 * sign).exp()) <= 1.0, "exp({x}) = {}", c.at(x));
        }
    }
}

#[test]
fn exp_f32_below_zero_is_within_two_ulp_too() {
    for t in targets() {
        let mut c = Compiled::new(DType::F32, &t, |g, x| {
            let k = g.float(std::f64::consts::LOG2_E, DType::F32);
            // the points are positive
            let x = g.unary(Op::Neg, x);
            let m = g.binary(Op::Mul, x, k);
            let u = g.unary(Op::Exp2, m);
            exp_below_zero(g, u, &t).expect("the target has no exponential")
        });
        let w = worst(&mut c, (0.0, 110.0), false, |x| (-x).exp());
        assert!(w.0 <= 2.0, "{w:?}");
        for x in [f64::INFINITY, f64::NAN, 0.0, 87.33655, 87.4, 103.9, 104.1, 1e30] {
            assert!(ulp32(c.at(x), (-(x as f32 as f64)).exp()) <= 1.0, "exp(-{x}) = {}", c.at(x));
        }
    }
}

#[test]
fn exp_f32_of_minus_a_size_needs_one_power_of_two() {
    for t in targets() {
        let exp = |g: &mut Graph, x: UOp| {
            let k = g.float(std::f64::consts::LOG2_E, DType::F32);
            let m = g.binary(Op::Mul, x, k);
            g.unary(Op::Exp2, m)
        };
        let mut plain = Compiled::new(DType::F32, &t, exp);
        let mut c = Compiled::new(DType::F32, &t, |g, x| {
            let (zero, minus) = (g.float(0.0, DType::F32), g.unary(Op::Neg, x));
            let negative = g.binary(Op::CmpLt, x, zero);
            let size = g.select(negative, x, minus);
            exp(g, size)
        });
        let size = |c: &mut Compiled| c.order.len();
        assert!(size(&mut c) < size(&mut plain), "{} nodes, {} without the sign", size(&mut c), size(&mut plain));
        let w = worst(&mut c, (0.0, 110.0), true, |x| (-x.abs()).exp());
        assert!(w.0 <= 2.0, "{w:?}");
        for x in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, 87.4, -103.9, 104.1, -1e30] {
            assert!(ulp32(c.at(x), (-(x as f32 as f64).abs()).exp()) <= 1.0, "exp(-|{x}|) = {}", c.at(x));
        }
    }
}

#[test]
fn log2_f32_is_within_two_ulp() {
    for t in targets() {
        let mut c = Compiled::new(DType::F32, &t, |g, x| g.unary(Op::Log2, x));
        let all = worst(&mut c, (1e-45, f32::MAX), false, f64::log2);
        let near = worst(&mut c, (0.7, 1.5), false, f64::log2);
        println!("log2 {}: {all:?} {near:?}, {} nodes", t.name, c.order.len());
        assert!(all.0 <= 2.0 && near.0 <= 2.0, "{all:?} {near:?}");
        for x in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, -0.0, -1.0, 1.0, 1e-45, -1e-45] {
            assert!(ulp32(c.at(x), (x as f32 as f64).log2()) <= 1.0, "log2({x}) = {}", c.at(x));
        }
    }
}

/// Tests points of every exponent, floats near multiples of pi/2, and evenly spaced points.
#[test]
fn circular_functions_f32_are_within_two_ulp_everywhere() {
    let list: [(Op, fn(f64) -> f64); 3] = [(Op::Sin, f64::sin), (Op::Cos, f64::cos), (Op::Tan, f64::tan)];
    for t in targets().iter().chain([&Target::wgsl("gpu")]) {
        for (op, f) in list {
            let mut c = Compiled::new(DType::F32, t, |g, x| g.unary(op, x));
            let mut rng = Rng(77);
            let mut worst = (0.0, 0.0);
            let mut check = |c: &mut Compiled, x: f32| {
                let x = x as f64;
                let e = ulp32(c.at(x), f(x));
                if e > worst.0 {
                    worst = (e, x);
                }
            };
            for exponent in 0..255u32 {
                for _ in 0..60 {
                    check(&mut c, f32::from_bits(exponent << 23 | rng.below(1 << 23) as u32));
                }
            }
            // the floats nearest to multiples of pi/2, where the reduction cancels most
            for n in 1..1500 {
                check(&mut c, (n as f64 * std::f64::consts::FRAC_PI_2) as f32);
                check(&mut c, -(n as f64 * 77.0 * std::f64::consts::FRAC_PI_2) as f32);
            }
            // and the floats that are closest to a multiple of pi/2 among all floats
            for x in [16367173.0 * 2f32.powi(72), 15126177.0 * 2f32.powi(60), f32::MAX, 5e6, 1e7, 1e30] {
                check(&mut c, x);
                check(&mut c, -x);
            }
            for i in 0..4000 {
                check(&mut c, 0.6 + i as f32 * 1e-4);
            }
            println!("{op:?} {}: {worst:?}, {} nodes", t.name, c.order.len());
            assert!(worst.0 <= 2.0, "{op:?} {}: {worst:?}", t.name);
            for x in [0.0, -0.0, 1e-30, -1e-45, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                let (got, want) = (c.at(x), f(x as f32 as f64));
                let zero = want != 0.0 || got.is_sign_negative() == want.is_sign_negative();
                assert!(ulp32(got, want) <= 1.0 && zero, "{op:?}({x}) = {got}");
            }
        }
    }
}

/// A power as a list of nodes, with the exponent as a second input or, if `y` is given, as a constant.
fn power(dt: DType, t: &Target, y: Option<f64>) -> Compiled {
    let mut g = Graph::new();
    let x = var(&mut g, "x", dt, 0, 0);
    let (exponent, inputs) = match y {
        Some(y) => (g.float(y, dt), vec![x]),
        None => {
            let y = var(&mut g, "y", dt, 0, 0);
            (y, vec![x, y])
        }
    };
    let u = g.binary(Op::Pow, x, exponent);
    Compiled::of(g, inputs, u, t)
}

#[test]
fn powers_f32_are_within_two_ulp() {
    let special =
        [0.0, 1.0, 0.5, 2.0, 3.0, 7.25, 1e-45, 1e-40, 1e7, 16777217.0, 1e30, 3.4028235e38, f64::INFINITY, f64::NAN];
    for t in targets().iter().chain([&Target::wgsl("gpu")]) {
        let mut c = power(DType::F32, t, None);
        let mut rng = Rng(21);
        let mut worst = (0.0, 0.0, 0.0);
        for i in 0..20_000 {
            let x = match i % 4 {
                0 => f32::from_bits(rng.below(0x7F80_0000) as u32),
                1 => f32::from_bits(0x3F00_0000 + rng.below(1 << 24) as u32),
                2 => f32::from_bits(0x3F80_0000 - 100 + rng.below(200) as u32),
                // mantissas near the ends of their interval, where the logarithm is least accurate
                _ => f32::from_bits(0x3F35_04F3 - 1000 + rng.below(2000) as u32 + ((rng.below(2) as u32) << 23)),
            };
            let x = f64::from(x);
            let y = (rng.next() as i64 as f64 / 2f64.powi(63)) * 152.0 / x.log2();
            let y = f64::from(y.clamp(-3e38, 3e38) as f32);
            let e = ulp32(c.at_all(&[x, y]), x.powf(y));
            if e > worst.0 && x > 0.0 {
                worst = (e, x, y);
            }
        }
        println!("pow {}: {worst:?}, {} nodes", t.name, c.order.len());
        assert!(worst.0 <= 1.5, "{}: {worst:?}", t.name);
        let all = || special.into_iter().chain(special.map(|x| -x)).map(|x| f64::from(x as f32));
        for (x, y) in all().flat_map(|x| all().map(move |y| (x, y))) {
            let (got, want) = (c.at_all(&[x, y]), x.powf(y));
            let sign = want.is_nan()
                || (want as f32 != 0.0 && want.is_finite())
                || got.is_sign_negative() == want.is_sign_negative();
            assert!(ulp32(got, want) <= 1.5 && sign, "{}: {x}^{y} = {got}, not {want}", t.name);
        }
        for y in [0.75, -0.75, 5.0, -3.0, 7.5, -6.0, 0.1, 1e-3, 300.0, f64::INFINITY, f64::NAN, 0.0] {
            let mut c = power(DType::F32, t, Some(y));
            let y = f64::from(y as f32);
            for x in all() {
                let (got, want) = (c.at(x), x.powf(y));
                assert!(ulp32(got, want) <= 1.5, "{}: {x}^{y} = {got}, not {want}", t.name);
            }
            if y == 0.75f64 {
                println!("pow 0.75 {}: {} nodes", t.name, c.order.len());
            }
        }
    }
}

#[test]
fn f64_functions_are_good_to_fifteen_digits() {
    let mut rng = Rng(4);
    for t in targets() {
        let mut c = power(DType::F64, &t, None);
        let mut worst = (0.0, 0.0, 0.0);
        for _ in 0..6_000 {
            let x = f64::from_bits(rng.below(0x7FF0_0000_0000_0000)).max(f64::MIN_POSITIVE);
            let y = (rng.next() as i64 as f64 / 2f64.powi(63)) * 1020.0 / x.log2();
            let (got, want) = (c.at_all(&[x, y]), x.powf(y));
            let e = ((got - want) / want).abs();
            if e > worst.0 {
                worst = (e, x, y);
            }
        }
        println!("pow f64 {}: {worst:?}, {} nodes", t.name, c.order.len());
        assert!(worst.0 < 4.5e-16, "{worst:?}");
        for (x, y) in [
            (-2.0, 3.0),
            (-0.0, -1.0),
            (0.0, 2.5),
            (f64::INFINITY, 5e-324),
            (1.0, f64::NAN),
            (-8.0, 0.5),
            (5e-324, 1.0),
        ] {
            let (got, want) = (c.at_all(&[x, y]), f64::powf(x, y));
            assert!(got == want || got.is_nan() && want.is_nan(), "{x}^{y} = {got}, not {want}");
        }
        for (op, lo, hi, f) in [
            (Op::Exp2, -1000.0, 1000.0, f64::exp2 as fn(f64) -> f64),
            (Op::Log2, 0.0, 4.0, f64::log2),
            (Op::Log2, 0.0, 1e300, f64::log2),
            (Op::Sin, -10.0, 10.0, f64::sin),
            (Op::Sin, -1e8, 1e8, f64::sin),
            (Op::Sin, -1e22, 1e22, f64::sin),
            (Op::Sin, -1.7e308, 1.7e308, f64::sin),
            (Op::Cos, -10.0, 10.0, f64::cos),
            (Op::Cos, -1e300, 1e300, f64::cos),
            (Op::Tan, -10.0, 10.0, f64::tan),
            (Op::Tan, -1e300, 1e300, f64::tan),
        ] {
            let mut c = Compiled::new(DType::F64, &t, |g, x| g.unary(op, x));
            let mut worst = (0.0, 0.0);
            for _ in 0..6_000 {
                let x = lo + (hi - lo) * (rng.below(1 << 40) as f64 / (1u64 << 40) as f64);
                let (got, want) = (c.at(x), f(x));
                let e = ((got - want) / want).abs();
                if e > worst.0 {
                    worst = (e, x);
                }
            }
            println!("{op:?} f64 {}: {worst:?}", t.name);
            assert!(worst.0 < 2e-15, "{op:?} on {lo}..{hi}: {worst:?}");
            for x in [0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -1.0, 5e-324, 1e-310] {
                let (got, want) = (c.at(x), f(x));
                let same = got == want || (got.is_nan() && want.is_nan()) || ((got - want) / want).abs() < 1e-15;
                assert!(same, "{op:?}({x}) = {got}, not {want}");
            }
        }
    }
}

#[test]
fn arithmetic_of_missing_dtypes_is_widened() {
    use DType::*;
    let mut t = Target::wgsl("wgpu");
    t.caps.arithmetic = DTypeSet::of(&[Bool, I32, U32, F32]);
    let mut rng = Rng(8);
    for dt in [F16, BF16, I8, I16, U8, U16] {
        let ints = [Op::Idiv, Op::Imod, Op::And, Op::Or, Op::Xor, Op::Shl, Op::Shr];
        let both = [Op::Add, Op::Sub, Op::Mul, Op::Max, Op::Min, Op::CmpLt, Op::CmpEq, Op::CmpNe];
        let floats = [Op::Div];
        for op in both.iter().chain(if dt.is_float() { &floats[..] } else { &ints[..] }) {
            let g = &mut Graph::new();
            let (lo, hi) = dt.int_range().map_or((0, 0), |(a, b)| (a as i64, b as i64));
            let (x, y) = (var(g, "x", dt, lo, hi), var(g, "y", dt, lo, hi));
            let u = g.binary(*op, x, y);
            let n = if dt.is_float() { g.unary(Op::Sqrt, y) } else { g.unary(Op::Neg, y) };
            let u = if g.dtype(u) == Bool { g.select(u, n, x) } else { g.binary(Op::Add, u, n) };
            let out = decompose(g, u, &t).expect("a lowering");
            for v in g.reachable(&[out]) {
                let arithmetic = g.op(v).is_alu() && !matches!(g.op(v), Op::Cast | Op::Where);
                assert!(!arithmetic || t.caps.arithmetic.has(g.dtype(g.src_at(v, 0))), "{op:?} {dt} left");
            }
            check_equal(g, u, out, 3000, &mut rng, "widened");
        }
    }
}

#[test]
fn remainders_of_floats_are_exact() {
    let mut rng = Rng(5);
    // a target with f64, and one without
    for t in [Target::wasm(false, 1), Target::wgsl("wgpu")] {
        let g = &mut Graph::new();
        let (x, y) = (var(g, "x", DType::F32, 0, 0), var(g, "y", DType::F32, 0, 0));
        let u = g.binary(Op::Imod, x, y);
        let out = decompose(g, u, &t).expect("a lowering");
        assert!(g.reachable(&[out]).iter().all(|&v| g.op(v) != Op::Imod || g.dtype(v).is_int()));
        // random samples have all magnitudes; these are extreme quotients and subnormal operands
        for (a, b) in [(1e30, 3.0), (3.4e38, 1e-45), (3.4e38, 1.1754944e-38), (7.25, 0.1), (1e-40, 1e-45), (-5.5, 2.0)]
        {
            for (a, b) in [(a, b), (-a, b), (a, -b), (b, a)] {
                let [a, b] = [a, b].map(|v: f64| Scalar::from_f64(v, DType::F32));
                let at = rustc_hash::FxHashMap::from_iter([(x, a), (y, b)]);
                let got = crate::rules::testing::eval(g, out, &at).expect("a value").as_f64();
                let want = a.as_f64() % b.as_f64();
                assert_eq!((got, got.is_sign_negative()), (want, want.is_sign_negative()), "{a:?} % {b:?}");
            }
        }
        check_equal(g, u, out, 3000, &mut rng, "remainder");
    }
}

#[test]
fn trunc_through_integers_is_exact() {
    let mut t = Target::wasm(false, 1);
    t.caps.functions = &[];
    let mut rng = Rng(12);
    for dt in [DType::F32, DType::F64] {
        let g = &mut Graph::new();
        let x = var(g, "x", dt, 0, 0);
        let u = g.unary(Op::Trunc, x);
        let out = rewrite1(g, u, &[&crate::rules::decomp::OPS], &mut t);
        assert_ne!(out, u);
        check_equal(g, u, out, 5000, &mut rng, "trunc");
    }
}

#[test]
fn missing_f64_is_a_typed_error() {
    let g = &mut Graph::new();
    let (x, y) = (var(g, "x", DType::F64, 0, 0), var(g, "y", DType::F32, 0, 0));
    let s = g.binary(Op::Add, x, x);
    let t = Target::wgsl("webgpu");
    assert_eq!(decompose(g, s, &t).expect_err("no f64 there").code(), "E_UNSUPPORTED");
    let c = g.cast(y, DType::F64);
    assert_eq!(decompose(g, c, &t).expect_err("no f64 there").code(), "E_UNSUPPORTED");
    let s = g.binary(Op::Add, y, y);
    assert_eq!(decompose(g, s, &t), Ok(s));
}

#[test]
fn bytes_are_looked_up_one_by_one_where_there_is_no_instruction() {
    let (with, without) = (Target::wasm(false, 1), Target::wgsl("webgpu"));
    let mut g = Graph::new();
    let table = [0x0302_0180, 0x7F06_05FF, 0x0B0A_0908, -0x0F0E_0D0C].map(|v| g.int(v, DType::I32));
    let computed = var(&mut g, "t", DType::I32, -9, 9);
    let fifteen = g.int(15, DType::I32);
    for word in [0x0F08_0700, -1, 0x8142_C3F4 - (1 << 32), 5] {
        let index = g.int(word, DType::I32);
        let masked = g.binary(Op::And, index, fifteen);
        for (index, first, t) in [(index, table[0], &without), (masked, table[0], &without), (index, computed, &with)] {
            let u = g.node(Op::LookupBytes, DType::I32, &[index, first, table[1], table[2], table[3]], Arg::None);
            let out = decompose(&mut g, u, t).expect("it has a lowering");
            assert!(g.reachable(&[out]).iter().all(|&x| g.op(x) != Op::LookupBytes));
            let values = eval_exprs(&g, &[u, out], |x| (x == computed).then_some(Scalar::Int(7)));
            assert!(values[0].is_some() && values[0] == values[1], "{word:x}: {values:?}");
        }
        let u = g.node(Op::LookupBytes, DType::I32, &[index, table[0], table[1], table[2], table[3]], Arg::None);
        assert_eq!(decompose(&mut g, u, &with), Ok(u));
    }
}

#[test]
fn products_of_bytes_are_taken_one_by_one_where_there_is_no_instruction() {
    let t = Target::wasm(false, 1);
    let mut g = Graph::new();
    let all = [[0x7F80_FF01, -2, 5], [-1, 0x807F_01FF, i64::from(i32::MAX)], [0x0102_0304, 0x0506_0708, -9]];
    for words in all {
        let src = words.map(|v| g.int(i64::from(v as i32), DType::I32));
        let u = g.node(Op::DotBytes, DType::I32, &src, Arg::None);
        let out = decompose(&mut g, u, &t).expect("it has a lowering");
        assert!(g.reachable(&[out]).iter().all(|&x| g.op(x) != Op::DotBytes));
        let values = eval_exprs(&g, &[u, out], |_| None);
        assert!(values[0].is_some() && values[0] == values[1], "{words:?}: {values:?}");
    }
}
