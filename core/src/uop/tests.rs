//! Tests of properties of the whole IR on random graphs.

use super::eval::{eval_exprs, eval_tensor};
use super::random::{Options, Rng, tensor_graph};
use super::spec::{Stage, verify};
use super::{Arg, Graph, Op, UOp, hash, label, parse, print};
use crate::DType;
use crate::dtype::Scalar;

mod spec_tests;
mod text_tests;

fn options(ops: usize) -> Options<'static> {
    Options { ops, dtypes: &DType::ALL, special: true, exact: false, max_elems: 2000 }
}

#[test]
fn random_tensor_graphs_are_valid_evaluate_and_round_trip_through_text() {
    for seed in 0..400 {
        let r = tensor_graph(seed, options(4 + seed as usize % 36));
        verify(&r.g, &r.roots, Stage::Tensor).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let eval = |g: &Graph, roots: &[UOp]| {
            eval_tensor(g, roots, &mut |id| r.buffers.get(id as usize).cloned(), &|_| None)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"))
        };
        let values = eval(&r.g, &r.roots);
        let text = print::print(&r.g, &r.roots);
        let p = parse::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(print::print(&p.graph, &p.roots), text, "seed {seed}");
        assert_eq!(hash::key(&p.graph, &p.roots), hash::key(&r.g, &r.roots), "seed {seed}");
        assert_eq!(eval(&p.graph, &p.roots), values, "seed {seed}");
    }
}

/// Compares the interpreter's evaluation of fused expressions with one that stores every value: in the second graph
/// every node is a root as well.
#[test]
fn fusing_changes_no_value() {
    for seed in 1000..1300 {
        let r = tensor_graph(seed, options(20));
        let mut g = Graph::new();
        let mut stored = Vec::new();
        let order = r.g.reachable(&r.roots);
        let mut map = rustc_hash::FxHashMap::default();
        for &u in &order {
            let src: Vec<UOp> = r.g.src(u).iter().map(|s| map[s]).collect();
            let v = g.node(r.g.op(u), r.g.dtype(u), &src, r.g.arg(u).clone());
            stored.push(v);
            map.insert(u, v);
        }
        let roots: Vec<UOp> = r.roots.iter().map(|u| map[u]).collect();
        let all: Vec<UOp> = roots.iter().chain(&stored).copied().collect();
        let eval = |g: &Graph, roots: &[UOp]| {
            eval_tensor(g, roots, &mut |id| r.buffers.get(id as usize).cloned(), &|_| None).unwrap()
        };
        let (fused, plain) = (eval(&r.g, &r.roots), eval(&g, &all));
        for (i, (a, b)) in fused.iter().zip(&plain).enumerate() {
            // all NaNs count as equal
            for (x, y) in a.data.chunks(a.dtype.size()).zip(b.data.chunks(a.dtype.size())) {
                assert_eq!(Scalar::read(a.dtype, x), Scalar::read(a.dtype, y), "seed {seed} root {i}");
            }
        }
    }
}

#[test]
fn keys_see_structure_and_nothing_else() {
    let build = |swap: bool, last: i64| {
        let mut g = Graph::new();
        if swap {
            g.int(77, DType::I32); // other node numbers
        }
        let x = g.param(0, DType::I32, 8);
        let c = g.int(last, DType::I32);
        let y = g.binary(Op::Sub, x, c);
        (hash::key(&g, &[y]), label::of(&g, &[y]))
    };
    assert_eq!(build(false, 3), build(true, 3));
    // keys must be the same on all hosts, and may change only together with hash::VERSION
    let (key, label) = build(false, 3);
    assert_eq!(format!("{key:032x}"), "071a4d41c38d8603bd972d413e964212");
    assert_eq!(format!("{label:032x}"), "65fb0f60fed75d3b88f95a0fc44dbea1", "lines of tuned opts go by it");
    let (other_key, other_label) = build(false, 4);
    assert!(key != other_key && label != other_label);
    let mut keys = rustc_hash::FxHashSet::default();
    for seed in 0..2000 {
        let r = tensor_graph(seed, options(12));
        let mut nodes = rustc_hash::FxHashSet::default();
        for u in r.g.reachable(&r.roots) {
            assert!(nodes.insert(hash::key(&r.g, &[u])), "seed {seed}: two nodes share a key");
        }
        keys.insert(hash::key(&r.g, &r.roots));
    }
    assert!(keys.len() > 1900, "{}", keys.len());
}

/// Two graphs with the same label, which took seconds to construct, must have different keys.
#[test]
fn graphs_made_to_have_one_label_have_two_keys() {
    let build = |min: u64, max: i64| {
        let mut g = Graph::new();
        let arg = Arg::Var { name: "n".into(), min: min as i64, max };
        let n = g.node(Op::Var, DType::I64, &[], arg);
        (label::of(&g, &[n]), hash::key(&g, &[n]), hash::closed_key(&g, &[n]).0)
    };
    let apart = 15628235589990732349u64;
    let (a, b) = (build(10825161805408054261, !apart as i64), build(9247773558950714361, -1));
    assert_eq!(a.0, b.0, "the construction");
    assert!(a.1 != b.1 && a.2 != b.2 && a.1 == a.2);
}

/// Values of random integer expressions lie within the bounds that the graph states.
#[test]
fn bounds_hold() {
    use Op::*;
    let binary = [Add, Sub, Mul, Idiv, Imod, FloorDiv, FloorMod, Max, Min, And, Or, Xor, Shl, Shr, CmpLt, CmpEq, CmpNe];
    let ints: Vec<DType> = DType::ALL.into_iter().filter(|d| !d.is_float()).collect();
    let mut tight = 0;
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let mut g = Graph::new();
        let mut pool: Vec<UOp> = (0..3)
            .map(|i| {
                let (a, b) = (rng.below(200) as i64 - 100, rng.below(300) as i64);
                let arg = Arg::Var { name: format!("v{i}").into(), min: a, max: a + b };
                g.node(Var, DType::I32, &[], arg)
            })
            .collect();
        for _ in 0..12 {
            let x = rng.pick(&pool);
            let dt = g.dtype(x);
            let u = match rng.below(10) {
                0..2 => g.cast(x, rng.pick(&ints)),
                2 => {
                    let v = rng.value(dt, true);
                    g.node(Const, dt, &[], Arg::Const(v))
                }
                3 if dt != DType::Bool => g.unary(Neg, x),
                4 => {
                    let (y, z) = (rng.pick(&pool), rng.pick(&pool));
                    let (c, y) = (g.cast(z, DType::Bool), g.cast(y, dt));
                    g.select(c, x, y)
                }
                _ => {
                    let y = if rng.once_in(2) {
                        let v = {
                            let extreme = rng.once_in(4);
                            rng.value(dt, extreme)
                        };
                        g.node(Const, dt, &[], Arg::Const(v))
                    } else {
                        let y = rng.pick(&pool);
                        g.cast(y, dt)
                    };
                    let op = rng.pick(&binary);
                    let legal =
                        dt != DType::Bool || matches!(op, Add | Mul | Max | Min | And | Or | Xor) || op.is_compare();
                    g.binary(if legal { op } else { Xor }, x, y)
                }
            };
            pool.push(u);
        }
        for _ in 0..20 {
            let values = eval_exprs(&g, &pool, |u| match g.arg(u) {
                Arg::Var { min, max, .. } => {
                    let span = (max - min + 1) as usize;
                    Some(Scalar::Int(min + rng.pick(&[0, span - 1, rng.clone().below(span)]) as i64))
                }
                _ => None,
            });
            for (&u, v) in pool.iter().zip(values) {
                let v = v.expect("integers always have a value").as_i64();
                let (lo, hi) = g.bounds(u);
                assert!(lo <= v && v <= hi, "seed {seed}: {} is {v}, not in {lo}..={hi}", print::line(&g, u));
                let range = g.dtype(u).int_range().unwrap();
                tight += (lo as i128 > range.0 || (hi as i128) < range.1) as usize;
            }
        }
    }
    assert!(tight > 100_000, "bounds say something: {tight}");
}
