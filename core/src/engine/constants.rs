//! Analysis of constants while a graph is being rewritten: which nodes are computed from weights and numbers alone,
//! along which axes such a node varies, and how to get it without the axes along which it only repeats (is broadcast).

use crate::analysis::constant::is_constant;
use crate::analysis::reshape::groups;
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The length of each axis.
pub(super) type Lens = SmallVec<[usize; 6]>;

/// What is known of a node.
#[derive(Clone, Default)]
struct Known {
    /// Is it computed from nothing but weights and numbers?
    constant: bool,
    /// Is it constant, and are all of those floats?
    floats: bool,
    /// For a constant: may its elements differ along each axis?
    varies: SmallVec<[bool; 6]>,
}

/// A graph and what is known of its constants. Call [`Constants::learn`] for the sources of a node before the node
/// itself.
pub(super) struct Constants<'a> {
    pub(super) g: &'a mut Graph,
    /// The buffers that are not constant.
    inputs: &'a [u32],
    known: FxHashMap<UOp, Known>,
}

impl<'a> Constants<'a> {
    /// An analysis that knows no node yet.
    pub(super) fn new(g: &'a mut Graph, inputs: &'a [u32]) -> Self {
        Constants { g, inputs, known: FxHashMap::default() }
    }

    /// Is it the same in every run?
    pub(super) fn is(&self, u: UOp) -> bool {
        self.known.get(&u).is_some_and(|k| k.constant)
    }

    /// Is it a constant made of floats alone?
    pub(super) fn is_of_floats(&self, u: UOp) -> bool {
        self.known.get(&u).is_some_and(|k| k.floats)
    }

    /// A number, the same for every element?
    pub(super) fn is_scalar(&self, u: UOp) -> bool {
        self.g.shape(u).is_empty()
    }

    /// The lengths of a constant, seen in `shape`, with 1 for each axis along which it only repeats.
    pub(super) fn least(&self, c: UOp, shape: &[usize]) -> Lens {
        let varies = |i: usize| self.known.get(&c).and_then(|k| k.varies.get(i).copied()).unwrap_or(false);
        shape.iter().enumerate().map(|(i, &n)| if varies(i) { n } else { n.min(1) }).collect()
    }

    pub(super) fn reshaped(&mut self, c: UOp, shape: &[usize]) -> UOp {
        let y = if self.is_scalar(c) { c } else { self.g.reshape(c, shape) };
        self.learn(y)
    }

    pub(super) fn expanded(&mut self, c: UOp, shape: &[usize]) -> UOp {
        let y = if self.is_scalar(c) { c } else { self.g.expand(c, shape) };
        self.learn(y)
    }

    /// A constant reduced to `shape`, which has 1 for axes along which it only repeats; `None` if it varies along such
    /// an axis.
    pub(super) fn narrowed(&mut self, c: UOp, shape: &[usize]) -> Option<UOp> {
        if self.is_scalar(c) {
            return Some(c);
        }
        let old = self.g.shape(c).clone();
        let varies = self.known[&c].varies.clone();
        let fits = |(i, (&n, &m)): (usize, (&usize, &usize))| n == m || m == 1 && n > 1 && !varies[i];
        if !old.iter().zip(shape).enumerate().all(fits) {
            return None;
        }
        // remove the Expand nodes that make the repetition, where they are on top
        let (mut c, mut at) = (c, old);
        while self.g.op(c) == Op::Expand {
            let inner = self.g.src_at(c, 0);
            if self.g.shape(inner).iter().zip(shape).any(|(n, m)| n < m) {
                break;
            }
            (c, at) = (inner, self.g.shape(inner).clone());
        }
        let pairs: SmallVec<[(usize, usize); 6]> = at.iter().zip(shape).map(|(&n, &m)| (0, n.min(m))).collect();
        let y = self.g.shrink(c, &pairs);
        Some(self.learn(y))
    }

    /// Records what is known of a node whose sources are known. Returns the node.
    pub(super) fn learn(&mut self, u: UOp) -> UOp {
        if self.known.contains_key(&u) {
            return u;
        }
        let g = &*self.g;
        let src = g.value_src(u);
        let all = |f: fn(&Known) -> bool| src.iter().all(|s| self.known.get(s).is_some_and(f));
        // for other ops it is not known along which axes they vary
        let known = g.op(u).is_alu() || g.op(u).is_movement() || matches!(g.op(u), Op::Buffer | Op::Const);
        let is = |s: UOp| self.known.get(&s).is_some_and(|k| k.constant);
        let constant = known && is_constant(g, u, self.inputs, is);
        let floats = constant && g.dtype(u).is_float() && all(|k| k.floats);
        let varies = if constant { varies(g, u, &self.known) } else { SmallVec::new() };
        self.known.insert(u, Known { constant, floats, varies });
        u
    }
}

/// For each axis: may the elements of a node with known sources differ along it?
fn varies(g: &Graph, u: UOp, known: &FxHashMap<UOp, Known>) -> SmallVec<[bool; 6]> {
    let shape = g.shape(u);
    let below = |i: usize| &known[&g.src_at(u, i)].varies;
    let mut out: SmallVec<[bool; 6]> = match (g.op(u), g.arg(u)) {
        (Op::Reshape, _) => reshaped(g.shape(g.src_at(u, 0)), shape, below(0)),
        (Op::Permute, Arg::Axes(axes)) => axes.iter().map(|&a| below(0)[a as usize]).collect(),
        (Op::Pad, Arg::Pairs(p)) => below(0).iter().zip(p).map(|(v, p)| *v || *p != (0, 0)).collect(),
        (op, _) if op.is_movement() => below(0).clone(),
        (op, _) if op.is_alu() => {
            let any = |i: usize| (0..g.src(u).len()).any(|k| below(k).get(i).copied().unwrap_or(false));
            (0..shape.len()).map(any).collect()
        }
        _ => shape.iter().map(|_| true).collect(),
    };
    out.iter_mut().zip(shape).for_each(|(v, &n)| *v &= n > 1);
    out
}

/// If any old axis of a group that is reshaped together varies, all of the group's new axes count as varying.
fn reshaped(old: &[usize], new: &[usize], varies: &[bool]) -> SmallVec<[bool; 6]> {
    let mut out: SmallVec<[bool; 6]> = SmallVec::from_elem(false, new.len());
    for group in groups(old, new) {
        let any = varies[group.from].contains(&true);
        out[group.to].fill(any);
    }
    out
}
