//! Counts the instructions and bytes of one launch by walking the program; it does not estimate time (`cost.rs` does).
//! For tables that compare kernels where no hardware is at hand.

use super::Program;
use crate::DType;
use crate::uop::mma::Side;
use crate::uop::{Arg, AxisKind, Graph, Op, Space, UOp};
use std::collections::BTreeMap;

/// Counts of one launch. The body of a loop counts once for each iteration; gated accesses count as if their gate were
/// true.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of loads from buffers, by elements per load.
    pub loads: BTreeMap<usize, u64>,
    /// Number of stores to buffers, by elements per store.
    pub stores: BTreeMap<usize, u64>,
    /// Loads and stores of local arrays, in elements.
    pub local: u64,
    /// Float operations; a multiply-add is two.
    pub flops: u64,
    /// Workgroup barriers; each counts once for a workgroup.
    pub barriers: u64,
    /// Elements exchanged within subgroups (shuffles).
    pub shuffles: u64,
    /// Bytes loaded from and stored to buffers, whether caches hold them or not.
    pub bytes: u64,
}

/// Counts a program.
pub fn count(p: &Program) -> Counts {
    let g = &p.g;
    let mut c = Counts::default();
    let groups: u64 = p.grid.iter().map(|&n| n as u64).product();
    let threads: u64 = p.local.iter().map(|&n| n as u64).product();
    // on a CPU what comes before the grid loop runs once; on a GPU every thread runs everything
    let is_gpu = p.order.iter().any(|&u| g.op(u) == Op::Range && matches!(g.kind(u), AxisKind::Local(_)));
    let mut times = vec![if is_gpu { groups * threads } else { 1 }];
    for &u in &p.order {
        let now = times[times.len() - 1];
        let dt = g.dtype(u);
        match g.op(u) {
            Op::Range if g.kind(u).is_loop() => times.push(now * (g.bounds(u).1 + 1) as u64),
            Op::Range if g.kind(u) == AxisKind::Grid(0) && !is_gpu => times.push(now * groups),
            Op::End => _ = times.pop(),
            Op::Barrier if g.src(u).first().is_some_and(|&s| within(p, s)) => {}
            Op::Barrier => c.barriers += now / threads.max(1),
            Op::Load if within(p, u) => c.shuffles += now * points(p, u),
            Op::Store if within(p, u) => {}
            Op::Load | Op::Store => access(p, u, now, &mut c),
            Op::AccMulAdd if g.dtype(g.src_at(u, 0)).is_float() => c.flops += 2 * now * points(p, u),
            Op::Mma => c.flops += 2 * now * points(p, u) * terms(g, u),
            // the matrix instruction itself adds its product to the accumulator
            Op::AccUpdate if g.op(g.src_at(u, 1)) == Op::Mma => {}
            Op::AccUpdate if g.dtype(g.src_at(u, 0)).is_float() => c.flops += now * points(p, u),
            Op::MulAdd if dt.is_float() => c.flops += 2 * now * points(p, u),
            Op::Fold if dt.is_float() => c.flops += now * points(p, g.src_at(u, 0)),
            op if op.is_alu() && dt.is_float() && !matches!(op, Op::Cast | Op::Bitcast | Op::Where) => {
                c.flops += now * points(p, u);
            }
            _ => {}
        }
    }
    c
}

/// Iterations of the loop by which the WGSL renderer computes a quotient of 64-bit integers.
const LONG_DIVISION: u64 = 64;

/// An upper bound on the iterations of all loops that one GPU thread runs, for drivers that end a kernel after too
/// many.
pub fn loop_iterations(p: &Program) -> u64 {
    let g = &p.g;
    let (mut times, mut sum) = (vec![1u64], 0u64);
    for &u in &p.order {
        let now = times[times.len() - 1];
        match g.op(u) {
            Op::Range if g.kind(u).is_loop() => {
                let all = now.saturating_mul((g.bounds(u).1 + 1).max(0) as u64);
                sum = sum.saturating_add(all);
                times.push(all);
            }
            Op::End => _ = times.pop(),
            Op::Idiv | Op::Imod if matches!(g.dtype(u), DType::I64 | DType::U64) => {
                sum = sum.saturating_add(now.saturating_mul(points(p, u)).saturating_mul(LONG_DIVISION));
            }
            _ => {}
        }
    }
    sum
}

/// Does the node access subgroup storage, that is, exchange values within a subgroup?
fn within(p: &Program, u: UOp) -> bool {
    matches!(p.g.arg(p.base(u)), Arg::Scratch { space: Space::Subgroup(_), .. })
}

/// Elements of the node's tile.
fn points(p: &Program, u: UOp) -> u64 {
    p.tile(u).iter().map(|a| a.len as u64).product()
}

/// Length of the summed dimension of a matrix tile.
fn terms(g: &Graph, u: UOp) -> u64 {
    if let Arg::Mma(layout) = g.arg(u) { layout.len(Side::K) as u64 } else { 0 }
}

fn access(p: &Program, u: UOp, now: u64, c: &mut Counts) {
    let g = &p.g;
    let index = g.src_at(u, 0);
    let axes = p.tile(u);
    let all: u64 = axes.iter().map(|a| a.len as u64).product();
    let mut base = g.src_at(index, 0);
    while g.op(base) == Op::After {
        base = g.src_at(base, 0);
    }
    if !matches!(g.arg(base), Arg::Param { .. }) {
        c.local += now * all;
        return;
    }
    let (mut width, mut n) = (1, all);
    if let Some(lane) = axes.iter().find(|a| a.lane) {
        let spread = g.ranges(index) >> lane.id & 1 == 0;
        let contiguous = p.stride(index, lane.id) == 1 && g.ranges(g.src_at(index, 1)) >> lane.id & 1 == 0;
        if spread {
            n = all / lane.len as u64;
        } else if contiguous {
            (width, n) = (lane.len, all / lane.len as u64);
        }
    }
    let list = if g.op(u) == Op::Load { &mut c.loads } else { &mut c.stores };
    *list.entry(width).or_default() += now * n;
    c.bytes += now * n * (width * g.dtype(index).size()) as u64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::codegen::compile;
    use crate::schedule::Ast;
    use crate::target::Target;
    use crate::uop::ReduceOp;

    /// `y[i, j] = sum_k a[i, k] * b[k, j]`, 16 on each side.
    fn matmul() -> Ast {
        let mut g = Graph::new();
        let n = 16;
        let r = [0, 1].map(|id| g.range(n, id, AxisKind::Loop));
        let k = g.range(n, 2, AxisKind::Reduce);
        let at = |g: &mut Graph, slot: u32, x: UOp, y: UOp| {
            let (p, c) = (g.param(slot, F32, n * n), g.idx(n as i64));
            let row = g.binary(Op::Mul, x, c);
            let offset = g.binary(Op::Add, row, y);
            g.index(p, offset)
        };
        let (a, b) = (at(&mut g, 1, r[0], k), at(&mut g, 2, k, r[1]));
        let (a, b) = (g.load(a), g.load(b));
        let x = g.binary(Op::Mul, a, b);
        let sum = g.reduce_over(x, ReduceOp::Add, &[k]);
        let to = at(&mut g, 0, r[0], r[1]);
        let store = g.store(to, sum);
        let sink = g.sink(&[store]);
        Ast::new(g, sink)
    }

    #[test]
    fn a_matmul_is_counted() {
        let c = count(&compile(&matmul(), &Target::wgsl("webgpu"), Some(&[])).unwrap());
        assert_eq!((c.flops, c.barriers, c.local), (2 * 4096, 0, 0));
        assert_eq!((c.loads[&1], c.stores[&1]), (2 * 4096, 256));
        assert_eq!(c.bytes, 4 * (2 * 4096 + 256));
        let c = count(&compile(&matmul(), &Target::wgsl("webgpu"), None).unwrap());
        // a workgroup has at least as many threads as a subgroup, and some of them repeat the work of others
        assert!((2 * 4096..=4 * 4096).contains(&c.flops), "{c:?}");
        let stored = c.stores.iter().map(|(w, n)| *w as u64 * n).sum::<u64>();
        assert!((256..=2 * 256).contains(&stored), "{c:?}");
        assert!(c.loads.contains_key(&4) && c.bytes < 4 * 8192, "a tile loads less: {c:?}");
    }
}
