//! Plans row kernels: a reduction whose result is read back over the axes that it reduced is fused into its reader's
//! kernel. In: the graph and its cuts. Out: fewer cuts, and for each row kernel its loops ([`Cuts::rows`]).
//!
//! softmax, layer norm and the like reduce rows, broadcast the result over the same rows and go on. Each element of the
//! result depends on one row, so one kernel can do it all with the row in cache: loops over rows, inside them the
//! reductions one after the other, and then the loops over the row. This requires that every reduction of the kernel is
//! needed exactly once per row: its kept axes are output axes (or digits of them), the same ones for all reductions of
//! the kernel.
//!
//! To follow axes through reshapes, each axis of a node is described by a list of *digits*: output axes or parts of
//! them. For example below a reshape of `[n, 3, 4]` to `[n, 12]` the last two axes are the digits `i / 4 % 3` and `i % 4`
//! of the result's last index `i`.

use super::fuse::{Cuts, base, buffer_node};
use crate::analysis::product;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The axis from which a digit is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum DigitSource {
    /// An axis of the kernel's result.
    Out(u8),
    /// A reduced axis, or an index that is no digit of an output axis, as behind a shift or a gather.
    Other(u32),
}

/// A part of an axis: `index / stride % len`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Digit {
    pub(super) from: DigitSource,
    pub(super) stride: usize,
    pub(super) len: usize,
}

impl Digit {
    /// The stride of the next more significant digit.
    pub(super) fn end(&self) -> usize {
        self.stride * self.len
    }
}

/// The digits of one axis, most significant first; empty if the axis has one element.
pub(super) type Axis = SmallVec<[Digit; 2]>;
/// One way in which a kernel indexes a node: the digits of each of the node's axes.
pub(super) type View = SmallVec<[Axis; 4]>;

/// A part of an output axis, as a loop of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Axis of the kernel's result.
    pub axis: usize,
    /// Elements of the axis that one step of the part advances.
    pub stride: usize,
    /// Number of steps.
    pub len: usize,
}

/// The loops of a row kernel, outermost first: those over rows, then those over a row.
pub type Loops = Vec<Part>;

/// The plan of a row kernel.
pub struct Rows {
    /// Its loops.
    pub loops: Loops,
    /// Kept values: nodes that are computed once per row into a local array. For each axis of such a node: does the
    /// number of the row determine its index?
    pub kept: FxHashMap<UOp, SmallVec<[bool; 6]>>,
    /// A sum of products in which a factor that is constant over the row is applied to the sum instead of to each term.
    pub scaled: Option<UOp>,
}

/// The most views (index mappings) at which a row kernel may need one of its nodes.
const MAX_VIEWS: usize = 4;
/// The same for a buffer that it reads, or a movement op: several parts of one buffer are several views of one node.
const MAX_READS: usize = 16;
/// The most nodes of a row kernel.
const MAX_NODES: usize = 2000;
/// Fusing into one kernel over at most this many elements always pays, as a second launch costs more than it saves.
const SMALL: usize = 1 << 14;

/// Fuses each reduction into the kernel of its only reader where that gives a row kernel, starting from the last
/// kernel.
pub fn merge(g: &Graph, roots: &[UOp], nodes: &[UOp], cuts: &mut Cuts, t: &Target) {
    let mut readers = Readers::new(g, roots, nodes, cuts);
    let mut reduces = vec![false; g.len()];
    for &u in nodes {
        let below = g.src(u).iter().any(|s| reduces[s.0 as usize] && !cuts.is_cut(*s));
        reduces[u.0 as usize] = g.op(u) == Op::Reduce || below;
    }
    for &u in nodes.iter().rev() {
        if cuts.is_cut(u)
            && !cuts.is_forced(u)
            && reduces[u.0 as usize]
            && let Some(owner) = readers.only(u)
        {
            cuts.set(u, false);
            match plan(g, owner, cuts, t) {
                Some(loops) => drop(cuts.rows.insert(owner, Rows { loops, kept: FxHashMap::default(), scaled: None })),
                None => cuts.set(u, true),
            }
        }
        readers.visit(g, u, cuts);
    }
}

/// For each node the kernels that compute it, or that read it if it is a cut.
pub(super) struct Readers {
    of: Vec<SmallVec<[UOp; 2]>>,
    kept: Vec<bool>,
    moved: FxHashMap<UOp, UOp>,
}

impl Readers {
    pub(super) fn new(g: &Graph, roots: &[UOp], nodes: &[UOp], cuts: &Cuts) -> Readers {
        let mut r =
            Readers { of: vec![SmallVec::new(); g.len()], kept: vec![false; g.len()], moved: FxHashMap::default() };
        for &u in roots {
            r.kept[buffer_node(g, u).0 as usize] = true;
        }
        for &u in nodes.iter().filter(|&&u| matches!(g.op(u), Op::After | Op::Sink) && !cuts.is_cut(u)) {
            g.src(u).iter().for_each(|&s| r.kept[base(g, s).0 as usize] = true);
        }
        r
    }

    /// Adds the kernels that contain `u` to the users of its sources.
    pub(super) fn visit(&mut self, g: &Graph, u: UOp, cuts: &Cuts) {
        if matches!(g.op(u), Op::After | Op::Sink) {
            return;
        }
        let owners = if cuts.is_cut(u) { SmallVec::from_elem(u, 1) } else { self.of[u.0 as usize].clone() };
        for &s in g.src(u) {
            let list = &mut self.of[s.0 as usize];
            for &o in &owners {
                // it only matters whether there is more than one
                if list.len() < 3 && !list.contains(&o) {
                    list.push(o);
                }
            }
        }
    }

    /// The kernel of `from` is now part of the kernel of `to`.
    pub(super) fn moved(&mut self, from: UOp, to: UOp) {
        self.moved.insert(from, to);
    }

    pub(super) fn only(&self, u: UOp) -> Option<UOp> {
        let mut owners = self.of[u.0 as usize].iter().map(|o| self.moved.get(o).copied().unwrap_or(*o));
        let first = owners.next().filter(|_| !self.kept[u.0 as usize])?;
        owners.all(|o| o == first).then_some(first)
    }
}

/// The node that a kernel's store addresses, and the value that is stored.
pub(super) fn stored(g: &Graph, owner: UOp) -> (UOp, UOp) {
    match g.op(owner) {
        Op::Store => (g.src_at(owner, 0), g.src_at(owner, 1)),
        Op::Contiguous => (owner, g.src_at(owner, 0)),
        _ => (owner, owner),
    }
}

/// The loops of `owner`'s kernel, if it is a row kernel and fast on the target.
fn plan(g: &Graph, owner: UOp, cuts: &Cuts, t: &Target) -> Option<Loops> {
    if matches!(g.op(owner), Op::Scatter | Op::Scan | Op::Recurrence | Op::Custom) {
        return None;
    }
    let shape = g.shape(stored(g, owner).0);
    let mut walk = Walk::new(g, cuts);
    walk.run(owner, t)?;
    let outer = walk.outer?;
    let rows: usize = outer.iter().map(|d| d.len).product();
    let loops = loops(shape, &outer)?;
    let inner = &loops[outer.len()..];
    let row: usize = inner.iter().map(|p| p.len).product();
    // the row is one loop over consecutive elements of memory
    let is_contiguous = matches!(inner, [p] if p.axis + 1 == shape.len() && p.stride == 1);
    let longest = row.max(walk.row_work);
    // the reductions of a row and the loop that reads them back count as iterations of the same thread
    let fits = longest <= t.limits.max_loop_iterations as usize / 4;
    (fits && !is_shared(rows, walk.product, t) && pays(rows, longest, row > 1, is_contiguous, t)).then_some(loops)
}

/// Do several threads of a GPU share each sum of so many products of a vector and a matrix, as there are too few results to
/// keep it busy? In a kernel of one such sum they do, in one of several each result has a single thread.
fn is_shared(rows: usize, len: usize, t: &Target) -> bool {
    t.caps.has_local && !t.machine.software && rows < t.machine.workgroups.busy && rows.saturating_mul(len) > SMALL
}

/// Is one kernel over whole rows faster than one kernel for each reduction and one for the rest?
fn pays(rows: usize, row: usize, is_read_back: bool, is_contiguous: bool, t: &Target) -> bool {
    if rows.saturating_mul(row) <= SMALL {
        return true;
    }
    match (t.caps.has_local, t.machine.software) {
        // on CPUs threads divide the rows among them
        (false, _) => rows >= 2 * t.limits.threads || t.limits.threads == 1 || !is_read_back,
        (true, true) => rows >= 64,
        // a workgroup shares a long row; otherwise one thread processes each row, which pays for many rows that are
        // short or only reduced
        (true, false) => {
            let shared = is_contiguous && row >= 128 && (rows >= 64 || row <= t.machine.workgroups.row);
            shared || rows >= 1024 && (row <= 256 || !is_read_back)
        }
    }
}

/// Splits the axes of the result into loops: first the digits in `outer`, then those that remain of each axis. `None`
/// if an axis does not split evenly.
pub(super) fn loops(shape: &[usize], outer: &[Digit]) -> Option<Loops> {
    let mut inner = Loops::new();
    for (axis, &n) in shape.iter().enumerate() {
        let source = DigitSource::Out(axis as u8);
        let mut own: SmallVec<[Digit; 4]> = outer.iter().copied().filter(|d| d.from == source).collect();
        sort::by_key(&mut own, |d| std::cmp::Reverse(d.stride));
        let mut above = n;
        for d in own.iter().chain(&[Digit { from: DigitSource::Other(0), stride: 0, len: 0 }]) {
            // the part between the previous, more significant digit and this one
            let top = if d.len == 0 { 1 } else { d.stride * d.len };
            if top > above || above % top != 0 {
                return None;
            }
            if above > top {
                inner.push(Part { axis, stride: top, len: above / top });
            }
            above = d.stride;
        }
    }
    let part = |d: &Digit| match d.from {
        DigitSource::Out(a) => Some(Part { axis: a as usize, stride: d.stride, len: d.len }),
        DigitSource::Other(_) => None,
    };
    let mut all: Loops = outer.iter().map(part).collect::<Option<_>>()?;
    all.extend(inner);
    Some(all)
}

/// Is every operand of the reduction broadcast in it, as in a matrix product? Such a reduction is tiled, not streamed
/// by row.
fn contracts(g: &Graph, reduce: UOp, cuts: &Cuts) -> bool {
    let mut stack: SmallVec<[UOp; 8]> = SmallVec::from_elem(g.src_at(reduce, 0), 1);
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some(u) = stack.pop() {
        if !seen.insert(u) || seen.len() > MAX_NODES {
            continue;
        }
        if cuts.is_cut(u) || matches!(g.op(u), Op::Param | Op::After) {
            return false;
        }
        let whole = |s: &UOp| g.op(u) == Op::Reduce || g.numel(*s) >= g.numel(u);
        stack.extend(g.src(u).iter().copied().filter(whole));
    }
    true
}

/// Is it a sum of products with a broadcast factor? In a product of two matrices both factors are broadcast, in that of
/// a vector and a matrix one is.
pub(super) fn is_product(g: &Graph, reduce: UOp) -> bool {
    let repeated = |s: UOp| product::repeats(g, s, g.src_at(reduce, 0));
    product::factors(g, reduce).is_some_and(|pair| pair.into_iter().any(repeated))
}

/// A traversal of a kernel from its result down to what it reads, which finds the views of all nodes.
pub(super) struct Walk<'a> {
    g: &'a Graph,
    cuts: &'a Cuts,
    /// For each index that is no digit (`DigitSource::Other(i)` is entry `i - 1`): the digits it depends on, and how
    /// many of its values are used.
    others: Vec<(Axis, usize)>,
    /// The digits that every reduction of the kernel keeps.
    pub(super) outer: Option<SmallVec<[Digit; 4]>>,
    /// Contractions inside the kernel are accepted, for chains and attention.
    pub(super) chains: bool,
    /// Every node of the kernel and every buffer it reads, users first, with the views at which each is needed.
    pub(super) seen: Vec<(UOp, SmallVec<[View; 2]>)>,
    buffers: SmallVec<[UOp; 8]>,
    /// For each node the digits that decide whether it is needed at all: those of axes padded above it, and of gather
    /// indices.
    gates: FxHashMap<UOp, Axis>,
    /// The digits in `gates` of all reductions.
    gated: Axis,
    /// Number of terms of the longest reduction, and of the longest product of a vector and a matrix among them.
    row_work: usize,
    product: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(g: &'a Graph, cuts: &'a Cuts) -> Walk<'a> {
        let (buffers, seen) = (SmallVec::new(), Vec::new());
        Walk {
            g,
            cuts,
            others: Vec::new(),
            outer: None,
            chains: false,
            seen,
            buffers,
            gates: FxHashMap::default(),
            gated: Axis::new(),
            row_work: 0,
            product: 0,
        }
    }

    fn whole(&self, from: DigitSource, len: usize) -> Axis {
        if len == 1 { Axis::new() } else { Axis::from_elem(Digit { from, stride: 1, len }, 1) }
    }

    /// A new index that is no digit, depends on the digits `of`, and takes `used` of its `len` values.
    fn other(&mut self, len: usize, of: Axis, used: usize) -> Axis {
        self.others.push((of, used));
        self.whole(DigitSource::Other(self.others.len() as u32), len)
    }

    /// Does a view depend on a digit of the result?
    pub(super) fn depends(&self, view: &View, o: &Digit) -> bool {
        let mut stack: SmallVec<[Digit; 8]> = view.iter().flatten().copied().collect();
        let mut seen = rustc_hash::FxHashSet::default();
        while let Some(d) = stack.pop() {
            if d.from == o.from && d.stride < o.stride * o.len && o.stride < d.stride * d.len {
                return true;
            }
            if let Some((of, _)) = self.made_of(&d).filter(|_| seen.insert(d.from)) {
                stack.extend_from_slice(of);
            }
        }
        false
    }

    /// Number of elements that are read through a view.
    pub(super) fn elements(&self, view: &View) -> usize {
        view.iter().flatten().map(|d| self.made_of(d).map_or(d.len, |x| x.1.min(d.len))).product()
    }

    /// A key that is equal for views that read the same elements, whichever numbers their indices have.
    pub(super) fn outline(&self, view: &View) -> Axis {
        let mut out = Axis::new();
        let mut stack: SmallVec<[Digit; 8]> = view.iter().rev().flatten().copied().collect();
        while let Some(d) = stack.pop() {
            match self.made_of(&d) {
                Some((of, used)) if out.len() < MAX_NODES => {
                    out.push(Digit { from: DigitSource::Other(0), stride: *used, len: d.len });
                    stack.extend(of.iter().rev().copied());
                }
                _ => out.push(d),
            }
        }
        out
    }

    fn made_of(&self, d: &Digit) -> Option<&(Axis, usize)> {
        match d.from {
            DigitSource::Other(i) => self.others.get((i as usize).wrapping_sub(1)),
            DigitSource::Out(_) => None,
        }
    }

    /// Traverses the kernel, users first. `None` if it is no row kernel.
    pub(super) fn run(&mut self, owner: UOp, t: &Target) -> Option<()> {
        let g = self.g;
        let (target, value) = stored(g, owner);
        let shape = g.shape(target);
        if shape.contains(&0) {
            return None;
        }
        let view = shape.iter().enumerate().map(|(a, &n)| self.whole(DigitSource::Out(a as u8), n)).collect();
        let mut views: FxHashMap<UOp, SmallVec<[View; 2]>> = FxHashMap::default();
        let mut pending = crate::util::gather::<crate::util::sorted::SortedSet<_>, _>([value]);
        views.insert(value, SmallVec::from_elem(view, 1));
        let mut visited = 0;
        while let Some(u) = pending.pop_last() {
            visited += 1;
            if visited > MAX_NODES {
                return None;
            }
            let leaf = self.cuts.is_cut(u) && u != owner;
            if leaf || matches!(g.op(u), Op::Param | Op::After) {
                let b = if leaf { u } else { buffer_node(g, u) };
                if !self.buffers.contains(&b) {
                    self.buffers.push(b);
                }
                self.seen.push((u, views.remove(&u).unwrap_or_default()));
                continue;
            }
            let here = views.remove(&u).unwrap_or_default();
            if g.op(u) == Op::Reduce && !(self.chains && is_product(g, u)) {
                self.reduction(u, &here)?;
            }
            for view in &here {
                for (k, &s) in g.src(u).iter().enumerate() {
                    self.gate(u, k, s, view);
                    let down = self.down(u, k, s, view);
                    let list = views.entry(s).or_default();
                    if !list.contains(&down) {
                        let read =
                            matches!(g.op(s), Op::Param | Op::After) || self.cuts.is_cut(s) || g.op(s).is_movement();
                        if list.len() == if read { MAX_READS } else { MAX_VIEWS } {
                            return None;
                        }
                        list.push(down);
                        pending.insert(s);
                    }
                }
            }
            self.seen.push((u, here));
        }
        let outer = self.outer.as_deref().unwrap_or_default();
        let of_row = |d: &Digit| outer.iter().any(|o| d.from == o.from && d.stride >= o.stride && d.end() <= o.end());
        (self.buffers.len() < t.limits.max_buffers && self.gated.iter().all(of_row)).then_some(())
    }

    /// Records for the source `s` of `u` the digits that decide whether it is needed.
    fn gate(&mut self, u: UOp, k: usize, s: UOp, view: &View) {
        let mut all = self.gates.get(&u).cloned().unwrap_or_default();
        match (self.g.op(u), self.g.arg(u)) {
            (Op::Pad, Arg::Pairs(pairs)) => {
                all.extend(view.iter().zip(pairs).filter(|x| *x.1 != (0, 0)).flat_map(|x| x.0.iter().copied()))
            }
            (Op::Gather, _) if k == 0 => all.extend(view.iter().flatten().copied()),
            _ => {}
        }
        if all.is_empty() {
            return;
        }
        let list = self.gates.entry(s).or_default();
        all.into_iter().for_each(|d| {
            if !list.contains(&d) {
                list.push(d)
            }
        });
    }

    /// Checks that a reduction is needed exactly once per row, and that it keeps the same digits as the kernel's other
    /// ones.
    fn reduction(&mut self, u: UOp, views: &[View]) -> Option<()> {
        let [view] = views else { return None };
        // if the gate varied within a row, the row would be reduced again for each of its elements
        self.gated.extend(self.gates.get(&u).into_iter().flatten().copied());
        let mut kept: SmallVec<[Digit; 4]> = view.iter().flatten().copied().collect();
        if kept.iter().any(|d| matches!(d.from, DigitSource::Other(_))) {
            return None;
        }
        sort::ascending(&mut kept);
        // merge adjacent digits
        let mut joined: SmallVec<[Digit; 4]> = SmallVec::new();
        for d in kept {
            match joined.last_mut() {
                Some(l) if l.from == d.from && l.stride * l.len == d.stride => l.len *= d.len,
                Some(l) if l.from == d.from && l.stride * l.len > d.stride => return None,
                _ => joined.push(d),
            }
        }
        if !self.chains && contracts(self.g, u, self.cuts) {
            return None;
        }
        sort::by_key(&mut joined, |d| (d.from, std::cmp::Reverse(d.stride)));
        let len = (self.g.numel(self.g.src_at(u, 0)) / self.g.numel(u).max(1)) as usize;
        self.row_work = self.row_work.max(len);
        if is_product(self.g, u) {
            self.product = self.product.max(len);
        }
        match &self.outer {
            Some(o) if *o != joined => None,
            _ => {
                self.outer = Some(joined);
                Some(())
            }
        }
    }

    /// The view of a source of `u`.
    fn down(&mut self, u: UOp, k: usize, s: UOp, view: &View) -> View {
        let g = self.g;
        let inner = g.shape(s).clone();
        match (g.op(u), g.arg(u)) {
            (Op::Reshape, _) => self.reshape(view, &inner),
            (Op::Permute, Arg::Axes(axes)) => {
                let mut out: View = SmallVec::from_elem(Axis::new(), inner.len());
                for (i, &a) in axes.iter().enumerate() {
                    out[a as usize] = view[i].clone();
                }
                out
            }
            (Op::Expand, _) => {
                view.iter().zip(&inner).map(|(d, &n)| if n == 1 { Axis::new() } else { d.clone() }).collect()
            }
            (Op::Reduce, Arg::Reduce(_, axes)) => {
                let mut out = view.clone();
                for &a in axes {
                    let n = inner[a as usize];
                    out[a as usize] = self.other(n, Axis::new(), n);
                }
                out
            }
            (Op::Shrink | Op::Pad, Arg::Pairs(pairs)) => {
                let moved = |i: usize| match g.op(u) {
                    Op::Pad => pairs[i] != (0, 0),
                    _ => pairs[i] != (0, inner[i]),
                };
                let n = |i: usize| inner[i].min(g.shape(u)[i]);
                (0..inner.len())
                    .map(|i| if moved(i) { self.other(inner[i], view[i].clone(), n(i)) } else { view[i].clone() })
                    .collect()
            }
            (Op::Flip, Arg::Axes(axes)) => (0..inner.len())
                .map(|i| match axes.contains(&(i as u8)) {
                    true => self.other(inner[i], view[i].clone(), inner[i]),
                    false => view[i].clone(),
                })
                .collect(),
            (Op::Gather, Arg::Axes(axes)) if k == 0 => {
                let mut out = view.clone();
                // a gather may read any element of its axis
                let (n, all) = (inner[axes[0] as usize], view.iter().flatten().copied().collect());
                out[axes[0] as usize] = self.other(n, all, n);
                out
            }
            _ if inner.is_empty() => View::new(),
            _ => view.clone(),
        }
    }

    /// The view below a reshape: the digits are distributed over the axes of `inner`, starting with the last one.
    fn reshape(&mut self, view: &View, inner: &[usize]) -> View {
        if inner.contains(&0) {
            return self.opaque(view, inner);
        }
        let mut digits: SmallVec<[Digit; 8]> = view.iter().flatten().copied().collect();
        let mut out: View = SmallVec::from_elem(Axis::new(), inner.len());
        for (a, &n) in inner.iter().enumerate().rev() {
            let mut left = n;
            while left > 1 {
                let Some(d) = digits.pop() else { return self.opaque(view, inner) };
                if left % d.len == 0 {
                    out[a].insert(0, d);
                    left /= d.len;
                } else if d.len % left == 0 {
                    out[a].insert(0, Digit { len: left, ..d });
                    digits.push(Digit { stride: d.stride * left, len: d.len / left, ..d });
                    left = 1;
                } else {
                    return self.opaque(view, inner);
                }
            }
        }
        out
    }

    fn opaque(&mut self, view: &View, shape: &[usize]) -> View {
        let all: Axis = view.iter().flatten().copied().collect();
        shape.iter().map(|&n| self.other(n, all.clone(), n)).collect()
    }
}
