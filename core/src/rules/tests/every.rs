//! Every rule fires in this suite, and each firing is validated.

use crate::DType;
use crate::rules::SYMBOLIC;
use crate::rules::testing::{Rng, validated, var};
use crate::uop::{Graph, Op, UOp};
use std::collections::BTreeSet;

struct Bench {
    g: Graph,
    rng: Rng,
    fired: BTreeSet<&'static str>,
}

impl Bench {
    fn run(&mut self, f: impl FnOnce(&mut Graph) -> UOp) {
        let u = f(&mut self.g);
        let (_, fired) = validated(&mut self.g, u, &[&SYMBOLIC], 200, &mut self.rng);
        self.fired.extend(fired);
    }
}

#[test]
fn every_rule_fires() {
    let mut b = Bench { g: Graph::new(), rng: Rng(31), fired: BTreeSet::new() };
    use Op::*;
    for dt in [DType::I32, DType::U32, DType::I64, DType::U64, DType::I8, DType::U8] {
        let full = |g: &mut Graph, n: &str| {
            let (lo, hi) = dt.int_range().expect("an int");
            var(g, n, dt, lo.max(i64::MIN as i128) as i64, hi.min(i64::MAX as i128) as i64)
        };
        let c = |g: &mut Graph, v: i64| g.int(v, dt);
        for (op, k) in [
            (Add, 0),
            (Sub, 0),
            (Mul, 0),
            (Mul, 1),
            (And, 0),
            (And, -1),
            (Or, 0),
            (Xor, 0),
            (Shl, 0),
            (Shr, 0),
            (Sub, 5),
            (FloorDiv, 0),
            (FloorMod, 0),
            (FloorDiv, 1),
            (FloorMod, 1),
            (Shl, 3),
            (Shr, 3),
            (And, 7),
            (FloorDiv, -3),
        ] {
            b.run(|g| {
                let (x, k) = (full(g, "x"), c(g, k));
                g.binary(op, x, k)
            });
        }
        for op in [Add, Sub, Mul, Max, Min, And, Or, Xor, FloorDiv, FloorMod, CmpLt, CmpEq, CmpNe] {
            b.run(|g| {
                let x = full(g, "x");
                g.binary(op, x, x)
            });
            b.run(|g| {
                let (x, y, k) = (full(g, "x"), full(g, "y"), c(g, 5));
                let s = g.binary(Mul, x, k);
                let t = g.binary(Mul, y, k);
                let st = g.binary(op, s, t);
                let ts = g.binary(op, t, s);
                g.binary(CmpLt, st, ts)
            });
        }
        for (op, j, k) in [(Add, 5, 3), (Mul, 5, 3), (Max, 3, 5), (Min, 5, 3)] {
            b.run(|g| {
                let (x, j, k) = (full(g, "x"), c(g, j), c(g, k));
                let s = g.binary(op, x, j);
                g.binary(op, s, k)
            });
        }
        b.run(|g| {
            let (x, k) = (full(g, "x"), c(g, 3));
            let n = g.unary(Neg, x);
            let nn = g.unary(Neg, n);
            let m = g.binary(Mul, x, k);
            let m = g.unary(Neg, m);
            g.binary(Xor, nn, m)
        });
    }
    // index arithmetic on small values
    b.run(|g| {
        let (x, k, n) = (var(g, "i", DType::I32, 0, 50), g.idx(4), g.idx(17));
        let s = g.binary(Mul, x, k);
        g.binary(CmpLt, s, n)
    });
    b.run(|g| {
        let (x, k) = (var(g, "i", DType::I32, 0, 50), g.idx(4));
        let s = g.unary(Neg, x);
        let shl = g.binary(Shl, x, k);
        let d = g.binary(Idiv, shl, k);
        let m = g.binary(Imod, x, k);
        let s = g.binary(Max, s, d);
        let w = g.bitcast(m, DType::U32);
        let w = g.cast(w, DType::I32);
        g.binary(Min, s, w)
    });
    for (op, lo) in [(Max, true), (Max, false), (Min, true), (Min, false)] {
        b.run(|g| {
            let (x, y) = (var(g, "i", DType::I32, 0, 5), var(g, "j", DType::I32, 5, 9));
            if lo { g.binary(op, x, y) } else { g.binary(op, y, x) }
        });
    }
    b.run(|g| {
        let x = var(g, "i", DType::I32, 1, 5);
        g.binary(FloorDiv, x, x)
    });
    b.run(|g| {
        let (x, k) = (var(g, "i", DType::I32, 0, 9), g.idx(4));
        let shl = g.binary(Shl, x, k);
        let k = g.idx(2);
        let shr = g.binary(Shr, x, k);
        let k = g.idx(7);
        let and = g.binary(And, x, k);
        let s = g.binary(Add, shl, shr);
        g.binary(Add, s, and)
    });
    bools(&mut b);
    casts(&mut b);
    floats(&mut b);
    let all = SYMBOLIC.rules.iter().map(|r| r.name);
    b.fired.insert("store_under"); // has a test of its own, since a store has no value to compare
    let unfired: Vec<_> = all.filter(|n| !b.fired.contains(n)).collect();
    assert!(unfired.is_empty(), "never fired: {unfired:?}");
}

fn bools(b: &mut Bench) {
    use Op::*;
    let p = |g: &mut Graph| var(g, "p", DType::Bool, 0, 1);
    let q = |g: &mut Graph| var(g, "q", DType::Bool, 0, 1);
    let not = |g: &mut Graph, x: UOp| {
        let t = g.bool(true);
        g.binary(CmpNe, x, t)
    };
    for op in [Add, Mul, Max, Min, Xor, And, Or, CmpNe, CmpEq] {
        for k in [false, true] {
            b.run(|g| {
                let (x, k) = (p(g), g.bool(k));
                g.binary(op, x, k)
            });
        }
        b.run(|g| {
            let (x, y) = (p(g), q(g));
            let n = g.binary(op, x, y);
            not(g, n)
        });
        b.run(|g| {
            let x = p(g);
            let n = not(g, x);
            let nn = not(g, n);
            let a = g.binary(op, x, n);
            let c = g.binary(op, n, x);
            let d = g.binary(And, a, c);
            g.binary(Xor, d, nn)
        });
        b.run(|g| {
            let (x, y) = (p(g), q(g));
            let a = g.binary(And, x, y);
            let c = g.binary(op, x, a);
            let d = g.binary(op, a, x);
            g.binary(CmpNe, c, d)
        });
    }
    b.run(|g| {
        let (ptr, i, q) = (g.param(0, DType::Bool, 9), var(g, "i", DType::I32, 0, 8), q(g));
        let at = g.index(ptr, i);
        let x = g.load(at);
        let n = not(g, x);
        let (a, o) = (g.binary(And, x, q), g.binary(Or, n, x));
        let o2 = g.binary(Or, a, x);
        g.binary(CmpNe, o, o2)
    });
    for (k, gt) in [(3, false), (3, true)] {
        b.run(|g| {
            let (x, k) = (var(g, "i", DType::I32, -9, 9), g.idx(k));
            let c = if gt { g.binary(CmpLt, k, x) } else { g.binary(CmpLt, x, k) };
            not(g, c)
        });
    }
    for case in 0..9 {
        b.run(|g| {
            let (c, d, x, y) = (p(g), q(g), var(g, "x", DType::I32, -5, 5), var(g, "y", DType::I32, -5, 5));
            let (t, f, r) = (g.bool(true), g.bool(false), var(g, "r", DType::Bool, 0, 1));
            let inner = g.select(c, x, y);
            let (dxy, dyx) = (g.select(d, x, y), g.select(d, y, x));
            match case {
                0 => g.select(c, t, f),
                1 => g.select(c, f, t),
                2 => g.select(c, r, f),
                3 => g.select(c, t, r),
                4 => g.select(c, inner, y),
                5 => g.select(c, x, inner),
                6 => g.select(c, dxy, y),
                7 => g.select(c, x, dxy),
                _ => g.select(c, x, dyx),
            }
        });
    }
    b.run(|g| {
        let (c, d, x, z) = (p(g), q(g), var(g, "x", DType::I32, -5, 5), g.idx(7));
        let w = g.select(c, x, z);
        let s = g.binary(Add, w, z);
        let k = g.select(d, z, s);
        let c2 = not(g, c);
        let o = g.select(c2, k, x);
        let t = t_of(g);
        g.select(t, o, x)
    });
    b.run(|g| {
        let (c, d, x, y) = (p(g), q(g), var(g, "x", DType::I32, -5, 5), var(g, "y", DType::I32, -5, 5));
        let cd = g.binary(And, c, d);
        let cx = g.select(c, x, y);
        let v = g.binary(Add, cx, y);
        g.select(cd, v, x)
    });
    b.run(|g| {
        let (c, x, y) = (p(g), g.idx(3), g.idx(4));
        let w = g.select(c, x, y);
        let f = g.cast(w, DType::F32);
        let k = g.float(2.0, DType::F32);
        g.binary(Mul, f, k)
    });
    b.run(|g| {
        let (c, x) = (p(g), var(g, "x", DType::I32, -5, 5));
        g.select(c, x, x)
    });
    // gates
    for gate in [true, false] {
        b.run(|g| {
            let (ptr, x, alt, c) = (g.param(0, DType::I32, 10), var(g, "x", DType::I32, 0, 9), g.idx(0), g.bool(gate));
            let at = g.index(ptr, x);
            g.load_gated(at, alt, c)
        });
    }
    b.run(|g| {
        let (x, four) = (var(g, "x", DType::I32, 0, 9), g.idx(4));
        let (c, m) = (g.binary(CmpLt, x, four), g.binary(FloorMod, x, four));
        let (ptr, zero) = (g.param(0, DType::I32, 9), g.idx(0));
        let at = g.index(ptr, m);
        let load = g.load_gated(at, zero, c);
        let v = g.select(c, load, zero);
        let store = g.node(Store, DType::Void, &[at, v, c], crate::uop::Arg::None);
        let out = crate::rewrite::rewrite1(g, store, &[&SYMBOLIC], &mut ());
        assert_eq!(g.src_at(g.src_at(out, 0), 1), x);
        v
    });
}

fn t_of(g: &mut Graph) -> UOp {
    g.bool(true)
}

fn casts(b: &mut Bench) {
    use DType::*;
    for (from, mid, to) in [
        (I32, I64, I32),
        (I32, I8, I16),
        (I8, F32, F64),
        (I32, F32, F64),
        (Bool, I32, F32),
        (U8, I32, F32),
        (I64, I32, I8),
        (F32, F64, F32),
        (F16, F32, BF16),
        (F32, I32, F32),
        (I32, I32, I32),
        (U32, I32, U32),
        (F32, F16, F32),
        (U8, I8, U8),
    ] {
        b.run(|g| {
            let (lo, hi) = from.int_range().map_or((0, 0), |(a, b)| (a as i64, b as i64));
            let x = var(g, "x", from, lo, hi);
            let y = g.cast(x, mid);
            let z = g.cast(y, to);
            let same = g.node(Op::Cast, to, &[z], crate::uop::Arg::None);
            g.node(Op::Bitcast, to, &[same], crate::uop::Arg::None)
        });
    }
    b.run(|g| {
        let x = var(g, "x", F32, 0, 0);
        let y = g.bitcast(x, I32);
        g.bitcast(y, U32)
    });
    for op in [Op::Add, Op::Mul, Op::FloorDiv] {
        b.run(|g| {
            let x = var(g, "x", I32, 0, 100);
            let y = var(g, "y", I64, 0, 100);
            let w = g.cast(x, I64);
            let s = g.binary(op, w, y);
            let k = g.int(50, I64);
            let c = g.binary(Op::CmpLt, w, k);
            let n = g.cast(s, I32);
            g.select(c, n, x)
        });
    }
    for op in [Op::CmpLt, Op::CmpEq, Op::CmpNe] {
        for k in [0, 1, 2] {
            b.run(|g| {
                let p = var(g, "p", Bool, 0, 1);
                let (x, k) = (g.cast(p, F32), g.float(k as f64, F32));
                g.binary(op, x, k)
            });
        }
    }
}

fn floats(b: &mut Bench) {
    use Op::*;
    for dt in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for (op, k) in [
            (Add, -0.0),
            (Sub, 0.0),
            (Mul, 1.0),
            (Mul, -1.0),
            (Div, 1.0),
            (Div, 4.0),
            (Div, -0.5),
            (Add, 0.0),
            (Mul, 0.0),
            (Div, 3.0),
            (Sub, -0.0),
            (Div, 0.0),
        ] {
            b.run(|g| {
                let (x, k) = (var(g, "x", dt, 0, 0), g.float(k, dt));
                g.binary(op, x, k)
            });
        }
        b.run(|g| {
            let (x, y) = (var(g, "x", dt, 0, 0), var(g, "y", dt, 0, 0));
            let n = g.unary(Neg, y);
            let (a, s) = (g.binary(Add, x, n), g.binary(Sub, x, n));
            let t = g.unary(Trunc, a);
            let t = g.unary(Trunc, t);
            let k = g.float(3.0, dt);
            let s = g.binary(Max, k, s);
            g.binary(Mul, t, s)
        });
        b.run(|g| {
            let x = var(g, "i", DType::I8, -128, 127);
            let f = g.cast(x, dt);
            g.unary(Trunc, f)
        });
    }
}
