//! Ends loops and launches early where later results are not needed: the kernel's conditions
//! ([`crate::schedule::Ast::live`]) say which iterations are needed, and their number is rounded up to whole iterations
//! of the loops that opts have made. A tile then computes some unneeded elements, and keeps its speed.
//!
//! In: conditions that opts carried along, each of the form `loop < scalar` at first, where the scalar is made of
//! launch scalars (lengths of a run). [`count_iterations`] computes a number of iterations from each, once the opts are
//! applied. The launch takes over the numbers of its loops ([`super::opt::launch`]) and computes its size from them
//! ([`LaunchDim`]); the remaining loops end there. At least one iteration runs, so a launch is never empty.

use super::axes::Kernel;
use crate::rules::{simplify_with, upper_limit};
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// A polynomial in launch scalars: a sum of terms, each a factor and the names of the scalars that it is multiplied by.
type Sum = Vec<(i64, Vec<Box<str>>)>;
/// The most terms, over all sums of one [`IterationCount`]; with more the launch is not shortened.
const MOST_TERMS: usize = 16;

/// The number of iterations of a loop as a function of launch scalars: the maximum of the sums, divided by `step` and
/// rounded up, at least 1 and at most `most`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationCount {
    /// The sums whose maximum is the number of elements; without any the number of iterations is `most`.
    pub sums: Vec<Sum>,
    /// Elements that one iteration covers.
    pub step: i64,
    /// The largest number of iterations; the least is 1.
    pub most: u32,
}

/// The size of a launch dimension: the product of the iterations of its loops. If empty, the size is the constant in
/// the program's grid.
pub type LaunchDim = Vec<IterationCount>;

impl IterationCount {
    /// A fixed number of iterations.
    pub fn all(n: usize) -> IterationCount {
        IterationCount { sums: Vec::new(), step: 1, most: n as u32 }
    }

    /// The number for given values of the launch scalars.
    ///
    /// # Errors
    /// What `value` returns for a scalar that it does not know.
    pub fn at(&self, value: &dyn Fn(&str) -> Result<i64>) -> Result<u32> {
        let mut most: Option<i64> = None;
        for sum in &self.sums {
            let mut all = 0i64;
            for (k, names) in sum {
                let term = names.iter().try_fold(*k, |n, name| Ok::<_, Error>(n.saturating_mul(value(name)?)))?;
                all = all.saturating_add(term);
            }
            most = most.max(Some(all));
        }
        let Some(end) = most else { return Ok(self.most) };
        let iterations = end.saturating_add(self.step - 1).div_euclid(self.step);
        Ok(iterations.clamp(1, i64::from(self.most)) as u32)
    }
}

/// The number of iterations of a loop, in the form that the kernel computes and in the form that the launch computes.
#[derive(Clone)]
pub struct NeededIterations {
    /// Range id of the loop.
    pub id: u8,
    /// The number of iterations, as a node: a scalar of i32.
    pub node: UOp,
    /// The same number as a function of launch scalars; `None` where only the kernel can compute it.
    pub count: Option<IterationCount>,
}

/// The functions for kernels that have conditions. They are called through a table that [`enable`] fills at run time,
/// not by their names: so the linker leaves them out of a WebAssembly module that never calls [`enable`], which is one
/// that makes no plans for variable lengths. A `const` or `static` table would keep them in.
struct Hooks {
    count_iterations: fn(&mut Kernel),
    launch_dim: fn(&Kernel, &[UOp], &[Option<NeededIterations>]) -> LaunchDim,
    loops: fn(&mut Kernel),
    joined: fn(&mut Kernel, UOp, UOp, UOp, usize) -> Option<Vec<UOp>>,
    grid: fn([u32; 3], &[LaunchDim; 3], &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]>,
    sample_lengths: fn(&Kernel) -> SampleLengths,
}

static HOOKS: OnceLock<Box<Hooks>> = OnceLock::new();

/// Enables early ends of loops and launches; before this call all iterations run.
pub fn enable() {
    let hooks = || Hooks {
        count_iterations: count_iterations_of,
        launch_dim: launch_dim_of,
        loops: loops_of,
        joined: joined_of,
        grid: grid_of,
        sample_lengths: sample_lengths_of,
    };
    HOOKS.get_or_init(|| Box::new(hooks()));
}

/// Computes numbers of iterations from the conditions in `k.needed_conditions`, into `k.needed_iterations`.
pub fn count_iterations(k: &mut Kernel) {
    if let Some(hooks) = HOOKS.get().filter(|_| !k.needed_conditions.is_empty()) {
        (hooks.count_iterations)(k);
    }
}

fn count_iterations_of(k: &mut Kernel) {
    for r in k.ranges_of(AxisKind::Loop) {
        let (id, n) = (k.g.range_arg(r).id, k.g.range_len(r));
        if k.g.dtype(r) != DType::I32 {
            continue;
        }
        for i in 0..k.needed_conditions.len() {
            let cond = k.needed_conditions[i];
            if k.g.ranges(cond) >> id & 1 == 0 {
                continue;
            }
            let Some((step, end)) = upper_limit(&mut k.g, cond, r, 0) else { continue };
            let count = sums(&k.g, end).map(|sums| IterationCount { sums, step, most: n as u32 });
            let (more, by, one, all) = (k.g.idx(step - 1), k.g.idx(step), k.g.idx(1), k.g.idx(n as i64));
            let node = k.g.binary(Op::Add, end, more);
            let node = k.g.binary(Op::FloorDiv, node, by);
            let node = k.g.binary(Op::Max, node, one);
            let node = k.g.binary(Op::Min, node, all);
            let node = simplify_with(&mut k.g, node, &mut k.memo);
            if k.g.const_int(node) != Some(n as i64) {
                k.needed_iterations.push(NeededIterations { id, node, count });
                break;
            }
        }
    }
}

/// A scalar as the maximum of polynomials in launch scalars; `None` if it does not have that form.
fn sums(g: &Graph, u: UOp) -> Option<Vec<Sum>> {
    let src = g.src(u);
    let all = match (g.op(u), src) {
        (Op::Const, _) => vec![vec![(g.const_int(u)?, Vec::new())]],
        (Op::Var, _) => {
            let Arg::Var { name, .. } = g.arg(u) else { return None };
            vec![vec![(1, vec![name.clone()])]]
        }
        (Op::Max, &[x, y]) => {
            let mut all = sums(g, x)?;
            all.extend(sums(g, y)?);
            all
        }
        (Op::Add, &[x, y]) => {
            let (x, y) = (sums(g, x)?, sums(g, y)?);
            x.iter().flat_map(|a| y.iter().map(move |b| [&a[..], &b[..]].concat())).collect()
        }
        (Op::Mul, &[x, y]) => {
            let (x, y) = (sums(g, x)?, sums(g, y)?);
            // a factor distributes over a maximum only if it is never negative
            if x.len() > 1 && g.bounds(src[1]).0 < 0 || y.len() > 1 && g.bounds(src[0]).0 < 0 {
                return None;
            }
            let times = |a: &Sum, b: &Sum| -> Sum {
                let one = |(k, p): &(i64, Vec<Box<str>>), (m, q): &(i64, Vec<Box<str>>)| {
                    (k.saturating_mul(*m), [&p[..], &q[..]].concat())
                };
                a.iter().flat_map(|s| b.iter().map(move |t| one(s, t))).collect()
            };
            x.iter().flat_map(|a| y.iter().map(move |b| times(a, b))).collect()
        }
        _ => return None,
    };
    (all.iter().map(Vec::len).sum::<usize>() <= MOST_TERMS).then_some(all)
}

/// For the loops that become one launch dimension, outermost first, the numbers of iterations; `None` for a loop whose
/// number the launch cannot compute.
pub fn of_launch(k: &Kernel, group: &[UOp]) -> SmallVec<[Option<NeededIterations>; 4]> {
    let of = |r: &UOp| k.needed_iterations.iter().find(|t| t.id == k.g.range_arg(*r).id && t.count.is_some()).cloned();
    group.iter().map(of).collect()
}

/// The size of a launch dimension that is made of these loops.
pub fn launch_dim(k: &Kernel, group: &[UOp], live: &[Option<NeededIterations>]) -> LaunchDim {
    let hooks = HOOKS.get().filter(|_| live.iter().any(Option::is_some));
    hooks.map_or_else(LaunchDim::new, |hooks| (hooks.launch_dim)(k, group, live))
}

fn launch_dim_of(k: &Kernel, group: &[UOp], live: &[Option<NeededIterations>]) -> LaunchDim {
    let all = |r: UOp| IterationCount::all(k.g.range_len(r));
    group.iter().zip(live).map(|(&r, l)| l.as_ref().and_then(|l| l.count.clone()).unwrap_or_else(|| all(r))).collect()
}

/// Typical numbers of iterations of loops with variable ends, by range id.
pub type SampleLengths = SmallVec<[(u8, SmallVec<[usize; 8]>); 2]>;

/// For the choice of tiles: sample lengths, from the least to the largest, of the loops whose length depends on launch
/// scalars.
pub fn sample_lengths(k: &Kernel) -> SampleLengths {
    HOOKS
        .get()
        .filter(|_| !k.needed_conditions.is_empty())
        .map_or_else(SampleLengths::new, |hooks| (hooks.sample_lengths)(k))
}

fn sample_lengths_of(k: &Kernel) -> SampleLengths {
    let mut out = SampleLengths::new();
    for &cond in &k.needed_conditions {
        if let &[r, end] = k.g.src(cond)
            && k.g.op(r) == Op::Range
        {
            let n = k.g.range_len(r) as i64;
            let (low, high) = k.g.bounds(end);
            let (mut iterations, high) = (low.clamp(1, n), high.clamp(1, n));
            let mut list = SmallVec::new();
            while iterations < high && list.len() < 7 {
                list.push(iterations as usize);
                iterations += (iterations / 2).max(1);
            }
            list.push(high as usize);
            out.push((k.g.range_arg(r).id, list));
        }
    }
    out
}

/// Gives the loops that did not become launch dimensions their ends.
pub fn loops(k: &mut Kernel) {
    if let Some(hooks) = HOOKS.get().filter(|_| !k.needed_iterations.is_empty()) {
        (hooks.loops)(k);
    }
}

fn loops_of(k: &mut Kernel) {
    let left: Vec<u8> = k.ranges_of(AxisKind::Loop).iter().map(|&r| k.g.range_arg(r).id).collect();
    let ends = k.needed_iterations.iter().filter(|t| left.contains(&t.id)).map(|t| (t.id, t.node));
    k.loop_limits.extend(ends);
}

/// The launch grid for given values of the launch scalars.
///
/// # Errors
/// What `value` returns for a scalar that it does not know.
pub(crate) fn grid(grid: [u32; 3], extents: &[LaunchDim; 3], value: &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]> {
    match HOOKS.get().filter(|_| extents.iter().any(|e| !e.is_empty())) {
        Some(hooks) => (hooks.grid)(grid, extents, value),
        None => Ok(grid),
    }
}

fn grid_of(mut grid: [u32; 3], extents: &[LaunchDim; 3], value: &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]> {
    for (n, iterations) in grid.iter_mut().zip(extents) {
        if !iterations.is_empty() {
            *n = iterations.iter().try_fold(1u32, |n, t| Ok::<_, Error>(n.saturating_mul(t.at(value)?)))?.min(*n);
        }
    }
    Ok(grid)
}

impl Kernel {
    /// The conditions after the loops `a` (outer) and `b` (inner, of `nb` iterations) were fused into `joined`; `None`
    /// if a condition depends on `b` or has another form than `a < scalar`.
    pub(super) fn joined_conditions(&mut self, a: UOp, b: UOp, joined: UOp, nb: usize) -> Option<Vec<UOp>> {
        match HOOKS.get().filter(|_| !self.needed_conditions.is_empty()) {
            Some(hooks) => (hooks.joined)(self, a, b, joined, nb),
            None => Some(Vec::new()),
        }
    }
}

fn joined_of(k: &mut Kernel, a: UOp, b: UOp, joined: UOp, nb: usize) -> Option<Vec<UOp>> {
    let mut out = Vec::with_capacity(k.needed_conditions.len());
    for &c in &k.needed_conditions.clone() {
        if k.g.depends(c, b) {
            return None;
        }
        out.push(match *k.g.src(c) {
            _ if !k.g.depends(c, a) => c,
            [r, end] if r == a && k.g.op(c) == Op::CmpLt => {
                let n = k.g.idx(nb as i64);
                let end = k.g.binary(Op::Mul, end, n);
                k.g.binary(Op::CmpLt, joined, end)
            }
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_computes_what_the_kernel_does() {
        let mut g = Graph::new();
        let var = |g: &mut Graph, name: &str, max| {
            g.node(Op::Var, DType::I32, &[], Arg::Var { name: name.into(), min: 1, max })
        };
        let (b, l) = (var(&mut g, "b", 8), var(&mut g, "l", 64));
        let (twelve, three) = (g.idx(12), g.idx(3));
        let x = g.binary(Op::Mul, l, b);
        let x = g.binary(Op::Mul, x, twelve);
        let y = g.binary(Op::Add, l, three);
        let end = g.binary(Op::Max, x, y);
        let t = IterationCount { sums: sums(&g, end).unwrap(), step: 16, most: 300 };
        let at = |b: i64, l: i64| t.at(&|name| Ok(if name == "b" { b } else { l })).unwrap();
        assert_eq!([at(1, 1), at(2, 7), at(8, 64)], [1, 11, 300]);
        let over = g.binary(Op::FloorDiv, x, three);
        assert_eq!(sums(&g, over), None);
        assert_eq!(IterationCount::all(7).at(&|_| Ok(0)).unwrap(), 7);
    }
}
