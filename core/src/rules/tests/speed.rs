//! The cost of simplification: prints the time (`cargo test --release rules::tests::speed -- --nocapture`) and checks
//! the number of firings, which is the same on every machine. This finds rules that fire more often per node in larger
//! graphs, and rules that make graphs grow.

use crate::rewrite::{Memo, rewrite_with};
use crate::rules::SYMBOLIC;
use crate::rules::testing::{Rng, range};
use crate::uop::{Graph, Op, UOp};
use std::time::Instant;

/// A graph of at least `n` nodes with index expressions as reshapes produce them.
fn reshapes(n: usize) -> (Graph, Vec<UOp>) {
    let mut rng = Rng(9);
    let mut g = Graph::new();
    let mut roots = Vec::new();
    while g.len() < n {
        let dims: Vec<usize> = (0..3 + rng.below(3)).map(|_| rng.pick(&[2, 3, 4, 6, 8, 16])).collect();
        let base = rng.below(64) as u8;
        let mut flat = g.idx(0);
        for (i, &d) in dims.iter().enumerate() {
            let (r, k) = (range(&mut g, base + i as u8, d), g.idx(d as i64));
            flat = g.binary(Op::Mul, flat, k);
            flat = g.binary(Op::Add, flat, r);
        }
        let mut left: usize = dims.iter().product();
        while left > 1 {
            let divisors: Vec<usize> = (2..=left).filter(|d| left % d == 0).collect();
            let d = rng.pick(&divisors);
            left /= d;
            let (k, m) = (g.idx(left as i64), g.idx(d as i64));
            let q = g.binary(Op::FloorDiv, flat, k);
            let r = g.binary(Op::FloorMod, q, m);
            let c = g.idx(d as i64 / 2);
            roots.push(g.binary(Op::CmpLt, r, c));
            roots.push(r);
        }
    }
    (g, roots)
}

#[test]
fn ten_thousand_nodes_cost_ten_times_a_thousand() {
    let mut work = Vec::new();
    for n in [300, 1_000, 3_000, 10_000] {
        let (g0, roots) = reshapes(n);
        let mut best = f64::MAX;
        let mut steps = 0;
        let mut nodes = 0;
        for _ in 0..5 {
            let mut g = g0.clone();
            let mut memo = Memo::new();
            let start = Instant::now();
            rewrite_with(&mut g, &roots, &[&SYMBOLIC], &mut (), &mut memo);
            best = best.min(start.elapsed().as_secs_f64());
            (steps, nodes) = (memo.steps, g.len());
        }
        println!("{} nodes -> {nodes}: {:.2} ms, {steps} rules fired", g0.len(), best * 1e3);
        work.push((steps as f64 / g0.len() as f64, nodes as f64 / g0.len() as f64));
    }
    assert!(work.iter().all(|w| w.0 > 0.1), "rules fire on such graphs: {work:?}");
    let (first, last) = (work[1], work[3]);
    assert!(last.0 < first.0 * 1.25, "rules fired a node: {work:?}");
    assert!(last.1 < first.1 * 1.25, "nodes afterwards, in parts of those before: {work:?}");
}
