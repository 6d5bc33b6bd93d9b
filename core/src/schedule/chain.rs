//! Plans chains: a contraction, a row kernel over its result, and a contraction over the result of that, as one kernel.
//! This is attention on CPUs: scores, softmax, product with the values.
//!
//! Each row of such a kernel computes its scores into a local array, reduces them, computes from them the operand of
//! the last contraction, and contracts. The intermediate rows are never stored in memory. Code generation processes
//! several rows at once.

use super::fuse::{Cuts, base};
use super::rows::{self, Digit, DigitSource, Readers, Rows, View, Walk, is_product, stored};
use crate::DType;
use crate::analysis::work::work;
use crate::target::Target;
use crate::uop::{Graph, Op, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Keeping a value that is needed at several positions costs about this many operations, so cheaper ones are
/// recomputed.
const KEPT_COST: u32 = 8;
/// The most bytes of kept values per row, so that those of several rows stay in a second-level cache.
const ROW_BYTES: usize = 32 << 10;
/// Elements (f32) of a cache line.
const LINE_ELEMS: usize = 16;
/// The most bytes of contracted operands that the rows of one group share, so that they stay in a cache from row to
/// row.
const SHARED_BYTES: usize = 2 << 20;

/// Fuses contractions with the row kernels between them, on CPUs.
pub fn merge(g: &Graph, roots: &[UOp], nodes: &[UOp], cuts: &mut Cuts, t: &Target) {
    if t.caps.has_local || cuts.rows.is_empty() {
        return;
    }
    let mut readers = Readers::new(g, roots, nodes, cuts);
    let free = |cuts: &Cuts, u: UOp| cuts.is_cut(u) && !cuts.is_forced(u);
    for &u in nodes.iter().rev() {
        if free(cuts, u)
            && g.op(base(g, u)) != Op::Contiguous
            && let Some(row) = readers.only(u).filter(|&r| cuts.rows.get(&r).is_some_and(|r| r.kept.is_empty()))
            && free(cuts, row)
            && let Some(owner) = readers.only(row).filter(|o| !cuts.rows.contains_key(o))
        {
            cuts.set(u, false);
            cuts.set(row, false);
            match plan(g, owner, cuts, t) {
                Some(rows) => {
                    cuts.rows.remove(&row);
                    cuts.rows.insert(owner, rows);
                    readers.moved(row, owner);
                }
                None => {
                    cuts.set(u, true);
                    cuts.set(row, true);
                }
            }
        }
        readers.visit(g, u, cuts);
    }
}

/// The plan of `owner`'s kernel, if it is a chain.
fn plan(g: &Graph, owner: UOp, cuts: &Cuts, t: &Target) -> Option<Rows> {
    if matches!(g.op(owner), Op::Scatter | Op::Scan | Op::Recurrence | Op::Custom) {
        return None;
    }
    let shape = g.shape(stored(g, owner).0);
    let mut walk = Walk::new(g, cuts);
    walk.chains = true;
    walk.run(owner, t)?;
    let outer = walk.outer.take()?;
    let seen = std::mem::take(&mut walk.seen);
    let mut chain = Chain { g, cuts, walk, owner, outer, seen, kept: FxHashMap::default(), scaled: None };
    let last = chain.contractions()?;
    chain.values(last)?;
    chain.no_kept_below_pad()?;
    let rows: usize = chain.outer.iter().map(|d| d.len).product();
    let row_elems: u64 = chain.kept.keys().map(|&u| g.numel(u) / rows as u64).sum();
    // vectors run along an axis of each array, so that must be at least a vector long; and a row no longer than a cache
    // line is cheaper stored than computed next to its product
    let inside =
        |(u, row): (&UOp, &SmallVec<[bool; 6]>)| g.shape(*u).iter().zip(row).filter(|x| !*x.1).map(|x| *x.0).max();
    let least = |kept| inside(kept).unwrap_or(0) >= t.caps.lanes.max(LINE_ELEMS);
    let width = rows::loops(shape, &chain.outer)?[chain.outer.len()..].iter().map(|p| p.len).max()?;
    if row_elems * 4 > ROW_BYTES as u64 || !chain.kept.iter().all(least) || width < t.caps.lanes {
        return None;
    }
    let order = chain.order(t)?;
    Some(Rows { loops: rows::loops(shape, &order)?, kept: chain.kept, scaled: chain.scaled })
}

struct Chain<'a> {
    g: &'a Graph,
    cuts: &'a Cuts,
    walk: Walk<'a>,
    owner: UOp,
    outer: SmallVec<[Digit; 4]>,
    seen: Vec<(UOp, SmallVec<[View; 2]>)>,
    kept: FxHashMap<UOp, SmallVec<[bool; 6]>>,
    scaled: Option<UOp>,
}

impl Chain<'_> {
    fn is_leaf(&self, u: UOp) -> bool {
        matches!(self.g.op(u), Op::Param | Op::After) || self.cuts.is_cut(u) && u != self.owner
    }

    /// Is the digit one of the row number's digits, or part of one?
    fn in_row(&self, d: &Digit) -> bool {
        self.outer.iter().any(|o| o.from == d.from && d.stride >= o.stride && d.stride * d.len <= o.stride * o.len)
    }

    /// Makes `u` a kept value. This is possible if all its views agree on which axes the row number determines, and if
    /// these axes have a different index in each row.
    fn keep(&mut self, u: UOp, views: &[View]) -> Option<()> {
        if self.g.dtype(u) != DType::F32 {
            return None;
        }
        let rows: usize = self.outer.iter().map(|d| d.len).product();
        let first = views.first()?;
        let mut axes: SmallVec<[bool; 6]> = SmallVec::new();
        for (a, axis) in first.iter().enumerate() {
            let inside = axis.iter().filter(|d| self.in_row(d)).count();
            if inside != 0 && inside != axis.len() {
                return None;
            }
            let is_row = axis.is_empty() || inside > 0;
            let same = |v: &View| if is_row { v[a] == *axis } else { v[a].iter().all(|d| !self.in_row(d)) };
            if !views.iter().all(same) {
                return None;
            }
            axes.push(is_row);
        }
        let lens = first.iter().zip(&axes).filter(|x| *x.1).flat_map(|x| x.0).map(|d| d.len);
        if lens.product::<usize>() != rows || self.g.numel(u) <= rows as u64 {
            return None;
        }
        self.kept.insert(u, axes);
        Some(())
    }

    /// The last contraction of the chain. The results of all others become kept values.
    fn contractions(&mut self) -> Option<UOp> {
        let mut last = None;
        for (u, views) in self.seen.clone() {
            if self.g.op(u) != Op::Reduce || self.is_leaf(u) || !is_product(self.g, u) {
                continue;
            }
            let whole = |v: &View| v.iter().flatten().all(|d| matches!(d.from, DigitSource::Out(_)));
            match views[..] {
                [ref v] if whole(v) && last.is_none() => last = Some(u),
                _ => {
                    self.is_matrix_product(u).then_some(())?;
                    let top = self.elementwise_top(u);
                    let views = self.seen.iter().find(|s| s.0 == top)?.1.clone();
                    self.keep(top, &views)?;
                }
            }
        }
        last.filter(|_| !self.kept.is_empty())
    }

    /// Is the product, within one row, that of a vector and a matrix? If both factors vary over all elements of the
    /// row, as in a depthwise convolution, several rows have nothing in common to load once.
    fn is_matrix_product(&self, reduce: UOp) -> bool {
        let x = self.g.src_at(reduce, 0);
        let terms = self.g.numel(x) / self.g.numel(reduce).max(1);
        let one_vector = |view: &View| {
            let own: View =
                view.iter().map(|axis| axis.iter().copied().filter(|d| !self.in_row(d)).collect()).collect();
            self.walk.elements(&own) as u64 <= terms
        };
        let views = |s: UOp| self.seen.iter().find(|n| n.0 == s).map(|n| &n.1);
        // looks below the broadcast of the vector, but not into the tensor below that: the other factor may be part of
        // it as well
        let is_vector = |mut s: UOp| loop {
            if views(s).is_some_and(|v| v.iter().all(one_vector)) {
                return true;
            }
            if !self.g.op(s).is_movement() {
                return false;
            }
            s = self.g.src_at(s, 0);
        };
        self.g.src(x).iter().any(|&s| is_vector(s))
    }

    /// The last node of the elementwise computations on `u` that have no other users: it is kept in place of `u`.
    fn elementwise_top(&self, u: UOp) -> UOp {
        let (mut top, mut at) = (u, u);
        loop {
            let inside = self.seen.iter().map(|s| s.0).filter(|&s| !self.is_leaf(s));
            let mut users = inside.filter(|&s| self.g.src(s).contains(&at));
            let (Some(user), None) = (users.next(), users.next()) else { return top };
            let op = self.g.op(user);
            let same = self.g.numel(user) == self.g.numel(u) && (op.is_alu() || op.is_movement());
            if !same || self.g.dtype(user) != DType::F32 {
                return top;
            }
            at = user;
            top = if op.is_alu() { user } else { top };
        }
    }

    /// Keeps the expensive values that are needed at several positions, and the operands of the last contraction that
    /// are computed per row.
    fn values(&mut self, last: UOp) -> Option<()> {
        let g = self.g;
        let product = g.src_at(last, 0);
        if g.op(product) != Op::Mul {
            return None;
        }
        let mut operands: SmallVec<[UOp; 2]> = g.src(product).iter().map(|&s| base(g, s)).collect();
        for o in &mut operands {
            if let Some(x) = self.unscaled(*o) {
                self.scaled = Some(last);
                *o = x;
            }
        }
        let mut cost: FxHashMap<UOp, u32> = FxHashMap::default();
        // sources first
        let mut all = self.seen.clone();
        all.reverse();
        for (u, views) in all.into_iter().filter(|(u, _)| *u < last) {
            if self.is_leaf(u) || self.kept.contains_key(&u) || g.op(u) == Op::Reduce {
                continue;
            }
            let below = g.src(u).iter().map(|s| cost.get(s).copied().unwrap_or(0)).sum::<u32>();
            let own = below.saturating_add(work(g.op(u)).hidden);
            let several = views.len() > 1 && own >= KEPT_COST;
            let read = operands.contains(&u) && own > 0;
            let kept = g.op(u).is_alu() && (several || read) && self.keep(u, &views).is_some();
            cost.insert(u, if kept { 0 } else { own });
        }
        // at least one operand is computed per row
        operands.iter().any(|o| self.kept.contains_key(o)).then_some(())
    }

    /// The value below a scaling by one number per row (in a softmax, the division by the sum).
    fn unscaled(&self, u: UOp) -> Option<UOp> {
        let (g, rows) = (self.g, self.outer.iter().map(|d| d.len as u64).product::<u64>());
        let one = |s: UOp| g.numel(base(g, s)) == rows && !self.is_leaf(base(g, s));
        let whole = |s: UOp| g.numel(base(g, s)) == g.numel(u) && g.numel(u) > rows && !self.is_leaf(base(g, s));
        match (g.op(u), g.src(u)) {
            _ if self.is_leaf(u) => None,
            (Op::Mul | Op::Div, &[x, y]) if whole(x) && one(y) => Some(base(g, x)),
            (Op::Mul, &[y, x]) if whole(x) && one(y) => Some(base(g, x)),
            _ => None,
        }
    }

    /// Padding and gathers may request elements outside a tensor, so no kept value may lie below one.
    fn no_kept_below_pad(&self) -> Option<()> {
        let mut stack: Vec<UOp> = self.seen.iter().map(|s| s.0).filter(|&u| !self.is_leaf(u)).collect();
        stack.retain(|&u| matches!(self.g.op(u), Op::Pad | Op::Gather));
        let mut seen = rustc_hash::FxHashSet::default();
        while let Some(u) = stack.pop() {
            if self.kept.contains_key(&u) {
                return None;
            }
            if !self.is_leaf(u) && seen.insert(u) {
                stack.extend_from_slice(self.g.src(u));
            }
        }
        Some(())
    }

    /// The strides at which the views of the kernel's inputs split a digit of the row number.
    fn boundaries(&self, o: &Digit) -> SmallVec<[usize; 4]> {
        let mut out = SmallVec::new();
        let leaves = self.seen.iter().filter(|(u, _)| self.is_leaf(*u));
        for d in leaves.flat_map(|(_, views)| views).flatten().flatten().filter(|d| d.from == o.from) {
            for s in [d.stride, d.end()] {
                let inside = s > o.stride && s < o.end() && s.is_multiple_of(o.stride) && o.end().is_multiple_of(s);
                if inside && !out.contains(&s) {
                    out.push(s);
                }
            }
        }
        out
    }

    /// Number of elements that one row reads through a view.
    fn elements_of_row(&self, view: &View) -> usize {
        let inside = |d: &Digit| {
            let one: View = SmallVec::from_elem(SmallVec::from_elem(*d, 1), 1);
            !self.outer.iter().any(|o| self.walk.depends(&one, o))
        };
        view.iter().map(|axis| axis.iter().filter(|d| inside(d)).map(|d| d.len).product::<usize>()).product()
    }

    /// The digits of the row number, in the order of loops: innermost the one over which most of the input stays the
    /// same.
    fn order(&self, t: &Target) -> Option<SmallVec<[Digit; 4]>> {
        let shared = |o: &Digit| -> SmallVec<[View; 4]> {
            let mut seen = rustc_hash::FxHashSet::default();
            let leaves = self.seen.iter().filter(|(u, _)| self.is_leaf(*u));
            let views = leaves.flat_map(|(u, views)| views.iter().map(move |v| (*u, v)));
            let shared = views.filter(|(_, v)| !self.walk.depends(v, o));
            shared.filter(|&(u, v)| seen.insert((u, self.walk.outline(v)))).map(|x| x.1.clone()).collect()
        };
        // what one row reads of them, so that a matrix counts more than a mask of all rows
        let read = |o: &Digit| -> usize { shared(o).iter().map(|v| self.elements_of_row(v)).sum() };
        let mut order: SmallVec<[Digit; 4]> = SmallVec::new();
        for &o in &self.outer {
            // a digit is split where that separates rows which share input, such as heads that share keys and values
            let halves = self.boundaries(&o).into_iter().map(|s| {
                let low = Digit { len: s / o.stride, ..o };
                [Digit { stride: s, len: o.end() / s, ..o }, low]
            });
            match halves.max_by_key(|h| read(&h[1])).filter(|h| read(&h[1]) > 2 * read(&o)) {
                Some(halves) => order.extend(halves),
                None => order.push(o),
            }
        }
        sort::by_key(&mut order, read);
        let inner = *order.last()?;
        let groups: usize = order[..order.len() - 1].iter().map(|d| d.len).product();
        let shared = shared(&inner).iter().map(|v| self.walk.elements(v)).sum::<usize>() * 4;
        // if rows share no matrix, each is a product of a vector and a matrix, and any thread may take any of them
        if shared == 0 {
            return (groups * inner.len >= t.limits.threads).then_some(order);
        }
        (inner.len > 1 && groups >= t.limits.threads && shared / groups <= SHARED_BYTES).then_some(order)
    }
}
