//! Ends loops and launches early where later results are not needed: the kernel's conditions
//! ([`crate::schedule::Ast::live`]) say which iterations are needed, and their number is rounded up to whole iterations
//! of the loops that opts have made. A tile then computes some unneeded elements, and keeps its speed.
//!
//! In: conditions that opts carried along, each of the form `loop < scalar` at first, where the scalar is made of
//! launch scalars (lengths of a run). [`turns`] computes a number of iterations from each, once the opts are applied.
//! The launch takes over the numbers of its loops ([`super::opt::launch`]) and computes its size from them
//! ([`Extent`]); the remaining loops end there. At least one iteration runs, so a launch is never empty.

use super::axes::Kernel;
use crate::rules::{below, simplify_with};
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// A polynomial in launch scalars: a sum of terms, each a factor and the names of the scalars that it is multiplied by.
type Sum = Vec<(i64, Vec<Box<str>>)>;
/// The most terms, over all sums of one [`Turns`]; with more the launch is not shortened.
const MOST_TERMS: usize = 16;

/// The number of iterations of a loop as a function of launch scalars: the maximum of the sums, divided by `step` and
/// rounded up, at least 1 and at most `most`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The sums whose maximum is the number of elements; without any the number of iterations is `most`.
    pub sums: Vec<Sum>,
    /// Elements that one iteration covers.
    pub step: i64,
    /// The largest number of iterations; the least is 1.
    pub most: u32,
}

/// The size of a launch dimension: the product of the iterations of its loops. If empty, the size is the constant in
/// the program's grid.
pub type Extent = Vec<Turns>;

impl Turns {
    /// A fixed number of iterations.
    pub fn all(n: usize) -> Turns {
        Turns { sums: Vec::new(), step: 1, most: n as u32 }
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
        let turns = end.saturating_add(self.step - 1).div_euclid(self.step);
        Ok(turns.clamp(1, i64::from(self.most)) as u32)
    }
}

/// The number of iterations of a loop, in the form that the kernel computes and in the form that the launch computes.
#[derive(Clone)]
pub struct Live {
    /// Range id of the loop.
    pub id: u8,
    /// The number of iterations, as a node: a scalar of i32.
    pub node: UOp,
    /// The same number as a function of launch scalars; `None` where only the kernel can compute it.
    pub turns: Option<Turns>,
}

/// The functions for kernels that have conditions. They are called through a table that [`enable`] fills at run time,
/// not by their names: so the linker leaves them out of a WebAssembly module that never calls [`enable`], which is one
/// that makes no plans for variable lengths. A `const` or `static` table would keep them in.
struct How {
    turns: fn(&mut Kernel),
    extent: fn(&Kernel, &[UOp], &[Option<Live>]) -> Extent,
    loops: fn(&mut Kernel),
    joined: fn(&mut Kernel, UOp, UOp, UOp, usize) -> Option<Vec<UOp>>,
    grid: fn([u32; 3], &[Extent; 3], &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]>,
    usual: fn(&Kernel) -> Usual,
}

static HOW: OnceLock<Box<How>> = OnceLock::new();

/// Enables early ends of loops and launches; before this call all iterations run.
pub fn enable() {
    let how = || How {
        turns: turns_of,
        extent: extent_of,
        loops: loops_of,
        joined: joined_of,
        grid: grid_of,
        usual: usual_of,
    };
    HOW.get_or_init(|| Box::new(how()));
}

/// Computes numbers of iterations from the conditions in `k.live`, into `k.turns`.
pub fn turns(k: &mut Kernel) {
    if let Some(how) = HOW.get().filter(|_| !k.live.is_empty()) {
        (how.turns)(k);
    }
}

fn turns_of(k: &mut Kernel) {
    for r in k.ranges_of(AxisKind::Loop) {
        let (id, n) = (k.g.range_arg(r).id, k.g.range_len(r));
        if k.g.dtype(r) != DType::I32 {
            continue;
        }
        for i in 0..k.live.len() {
            let cond = k.live[i];
            if k.g.ranges(cond) >> id & 1 == 0 {
                continue;
            }
            let Some((step, end)) = below(&mut k.g, cond, r, 0) else { continue };
            let turns = sums(&k.g, end).map(|sums| Turns { sums, step, most: n as u32 });
            let (more, by, one, all) = (k.g.idx(step - 1), k.g.idx(step), k.g.idx(1), k.g.idx(n as i64));
            let node = k.g.binary(Op::Add, end, more);
            let node = k.g.binary(Op::FloorDiv, node, by);
            let node = k.g.binary(Op::Max, node, one);
            let node = k.g.binary(Op::Min, node, all);
            let node = simplify_with(&mut k.g, node, &mut k.memo);
            if k.g.const_int(node) != Some(n as i64) {
                k.turns.push(Live { id, node, turns });
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
pub fn of_launch(k: &Kernel, group: &[UOp]) -> SmallVec<[Option<Live>; 4]> {
    let of = |r: &UOp| k.turns.iter().find(|t| t.id == k.g.range_arg(*r).id && t.turns.is_some()).cloned();
    group.iter().map(of).collect()
}

/// The size of a launch dimension that is made of these loops.
pub fn extent(k: &Kernel, group: &[UOp], live: &[Option<Live>]) -> Extent {
    let how = HOW.get().filter(|_| live.iter().any(Option::is_some));
    how.map_or_else(Extent::new, |how| (how.extent)(k, group, live))
}

fn extent_of(k: &Kernel, group: &[UOp], live: &[Option<Live>]) -> Extent {
    let all = |r: UOp| Turns::all(k.g.range_len(r));
    group.iter().zip(live).map(|(&r, l)| l.as_ref().and_then(|l| l.turns.clone()).unwrap_or_else(|| all(r))).collect()
}

/// Typical numbers of iterations of loops with variable ends, by range id.
pub type Usual = SmallVec<[(u8, SmallVec<[usize; 8]>); 2]>;

/// For the choice of tiles: sample lengths, from the least to the largest, of the loops whose length depends on launch
/// scalars.
pub fn usual(k: &Kernel) -> Usual {
    HOW.get().filter(|_| !k.live.is_empty()).map_or_else(Usual::new, |how| (how.usual)(k))
}

fn usual_of(k: &Kernel) -> Usual {
    let mut out = Usual::new();
    for &cond in &k.live {
        if let &[r, end] = k.g.src(cond)
            && k.g.op(r) == Op::Range
        {
            let n = k.g.range_len(r) as i64;
            let (low, high) = k.g.bounds(end);
            let (mut turns, high) = (low.clamp(1, n), high.clamp(1, n));
            let mut list = SmallVec::new();
            while turns < high && list.len() < 7 {
                list.push(turns as usize);
                turns += (turns / 2).max(1);
            }
            list.push(high as usize);
            out.push((k.g.range_arg(r).id, list));
        }
    }
    out
}

/// Gives the loops that did not become launch dimensions their ends.
pub fn loops(k: &mut Kernel) {
    if let Some(how) = HOW.get().filter(|_| !k.turns.is_empty()) {
        (how.loops)(k);
    }
}

fn loops_of(k: &mut Kernel) {
    let left: Vec<u8> = k.ranges_of(AxisKind::Loop).iter().map(|&r| k.g.range_arg(r).id).collect();
    let ends = k.turns.iter().filter(|t| left.contains(&t.id)).map(|t| (t.id, t.node));
    k.reach.extend(ends);
}

/// The launch grid for given values of the launch scalars.
///
/// # Errors
/// What `value` returns for a scalar that it does not know.
pub(crate) fn grid(grid: [u32; 3], extents: &[Extent; 3], value: &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]> {
    match HOW.get().filter(|_| extents.iter().any(|e| !e.is_empty())) {
        Some(how) => (how.grid)(grid, extents, value),
        None => Ok(grid),
    }
}

fn grid_of(mut grid: [u32; 3], extents: &[Extent; 3], value: &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]> {
    for (n, turns) in grid.iter_mut().zip(extents) {
        if !turns.is_empty() {
            *n = turns.iter().try_fold(1u32, |n, t| Ok::<_, Error>(n.saturating_mul(t.at(value)?)))?.min(*n);
        }
    }
    Ok(grid)
}

impl Kernel {
    /// The conditions after the loops `a` (outer) and `b` (inner, of `nb` iterations) were fused into `joined`; `None`
    /// if a condition depends on `b` or has another form than `a < scalar`.
    pub(super) fn live_joined(&mut self, a: UOp, b: UOp, joined: UOp, nb: usize) -> Option<Vec<UOp>> {
        match HOW.get().filter(|_| !self.live.is_empty()) {
            Some(how) => (how.joined)(self, a, b, joined, nb),
            None => Some(Vec::new()),
        }
    }
}

fn joined_of(k: &mut Kernel, a: UOp, b: UOp, joined: UOp, nb: usize) -> Option<Vec<UOp>> {
    let mut out = Vec::with_capacity(k.live.len());
    for &c in &k.live.clone() {
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
        let t = Turns { sums: sums(&g, end).unwrap(), step: 16, most: 300 };
        let at = |b: i64, l: i64| t.at(&|name| Ok(if name == "b" { b } else { l })).unwrap();
        assert_eq!([at(1, 1), at(2, 7), at(8, 64)], [1, 11, 300]);
        let over = g.binary(Op::FloorDiv, x, three);
        assert_eq!(sums(&g, over), None);
        assert_eq!(Turns::all(7).at(&|_| Ok(0)).unwrap(), 7);
    }
}
