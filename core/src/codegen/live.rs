//! Loops and launches that end where nobody needs more: the turns that a kernel's conditions leave ([`crate::schedule::Ast::live`]), rounded up
//! to whole turns of what opts have made of the loops. A tile computes some elements too many and keeps its speed.
//!
//! In: conditions that opts carried along, each `loop < scalar` to begin with. [`turns`] makes a number of turns of each, once the opts are applied;
//! the launch takes those of its loops ([`super::opt::launch`]) and says how long it is then ([`Extent`]), and the loops that are left end there.
//! One turn at least is run, so that a launch is never empty.

use super::axes::Kernel;
use crate::rules::{below, simplify_with};
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};
use smallvec::SmallVec;
use std::sync::OnceLock;

/// A sum of multiples of products of launch scalars.
type Sum = Vec<(i64, Vec<Box<str>>)>;
/// Terms of a sum, and sums of which the largest is meant, that are worth having.
const MOST_TERMS: usize = 16;

/// How many turns a loop makes: the largest of some sums, divided by what a turn takes, and rounded up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns {
    /// The sums.
    pub sums: Vec<Sum>,
    /// What a turn takes.
    pub step: i64,
    /// The most turns; 1 is the least.
    pub most: u32,
}

/// How long a dimension of a launch is: the product of the turns of its loops. Of none it is what the program says.
pub type Extent = Vec<Turns>;

impl Turns {
    /// The turns of a loop that has no end.
    pub fn all(n: usize) -> Turns {
        Turns { sums: Vec::new(), step: 1, most: n as u32 }
    }

    /// Their number for values of the launch scalars.
    ///
    /// # Errors
    /// What `value` says of one that it does not know.
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

/// The turns of a loop, as a node and as a launch computes them.
#[derive(Clone)]
pub struct Live {
    /// The loop's id.
    pub id: u8,
    /// The number of turns, a scalar of i32.
    pub node: UOp,
    /// The same; `None` where only the kernel can compute it.
    pub turns: Option<Turns>,
}

/// What is done to kernels that have conditions. These functions are called through a table that [`enable`] makes at run time, not by their
/// names: so the linker leaves them out of a WebAssembly module that never calls [`enable`], which is one that makes no plans for every length.
/// A `const` or `static` table would keep them in.
struct How {
    turns: fn(&mut Kernel),
    extent: fn(&Kernel, &[UOp], &[Option<Live>]) -> Extent,
    loops: fn(&mut Kernel),
    joined: fn(&mut Kernel, UOp, UOp, UOp, usize) -> Option<Vec<UOp>>,
    grid: fn([u32; 3], &[Extent; 3], &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]>,
    usual: fn(&Kernel) -> Usual,
}

static HOW: OnceLock<Box<How>> = OnceLock::new();

/// From now on loops and launches end where nobody needs more; before, all of their turns are made.
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

/// Makes numbers of turns of the conditions in `k.live`.
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

/// A scalar as the largest of some sums.
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
            // the largest of products only where all are of one sign
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

/// The turns of the loops that become one dimension of a launch, outermost first; none where the launch cannot be told how many there are.
pub fn of_launch(k: &Kernel, group: &[UOp]) -> SmallVec<[Option<Live>; 4]> {
    let of = |r: &UOp| k.turns.iter().find(|t| t.id == k.g.range_arg(*r).id && t.turns.is_some()).cloned();
    group.iter().map(of).collect()
}

/// How long a launch of these loops is.
pub fn extent(k: &Kernel, group: &[UOp], live: &[Option<Live>]) -> Extent {
    let how = HOW.get().filter(|_| live.iter().any(Option::is_some));
    how.map_or_else(Extent::new, |how| (how.extent)(k, group, live))
}

fn extent_of(k: &Kernel, group: &[UOp], live: &[Option<Live>]) -> Extent {
    let all = |r: UOp| Turns::all(k.g.range_len(r));
    group.iter().zip(live).map(|(&r, l)| l.as_ref().and_then(|l| l.turns.clone()).unwrap_or_else(|| all(r))).collect()
}

/// Turns that loops with ends usually make, by the loops' ids.
pub type Usual = SmallVec<[(u8, SmallVec<[usize; 8]>); 2]>;

/// For who chooses tiles: some lengths, from the least to the largest, of loops that end where nobody needs more.
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

/// The loops that no launch took end where nobody needs more.
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

/// A launch grid for values of the launch scalars.
///
/// # Errors
/// What `value` says of a scalar that it does not know.
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
    /// The conditions where the loop `joined` has taken the places of `a` and of `b`, the inner one of `nb` turns; `None` if one of them is about `b`.
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
