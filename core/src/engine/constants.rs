//! What does not change from run to run, while graphs are rewritten around it: which nodes are made of weights and numbers
//! alone, along which of their axes they differ, and how to take them at the size that they have before they repeat.

use crate::analysis::constant::is_constant;
use crate::analysis::reshape::groups;
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Lengths by axis.
pub(super) type Lens = SmallVec<[usize; 6]>;

/// What is known of a node.
#[derive(Clone, Default)]
struct Known {
    /// Made of nothing but weights and numbers.
    constant: bool,
    /// And all of them floats.
    floats: bool,
    /// The axes along which a constant is not everywhere the same.
    varies: SmallVec<[bool; 6]>,
}

/// A graph and what is known of its constants. Sources must be learnt before their users.
pub(super) struct Constants<'a> {
    pub(super) g: &'a mut Graph,
    /// The buffers that are no constants.
    inputs: &'a [u32],
    known: FxHashMap<UOp, Known>,
}

impl<'a> Constants<'a> {
    /// Nothing is known yet.
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

    /// The lengths of a constant where it repeats nothing, seen in `shape`.
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

    /// A constant without the axes' repetitions; `None` if it is not the same along them.
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
        // the repetition itself goes where it can be seen
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

    /// Notes what is known of a node whose sources are known.
    pub(super) fn learn(&mut self, u: UOp) -> UOp {
        if self.known.contains_key(&u) {
            return u;
        }
        let g = &*self.g;
        let src = g.value_src(u);
        let all = |f: fn(&Known) -> bool| src.iter().all(|s| self.known.get(s).is_some_and(f));
        // of others it is not known along which axes they differ
        let known = g.op(u).is_alu() || g.op(u).is_movement() || matches!(g.op(u), Op::Buffer | Op::Const);
        let is = |s: UOp| self.known.get(&s).is_some_and(|k| k.constant);
        let constant = known && is_constant(g, u, self.inputs, is);
        let floats = constant && g.dtype(u).is_float() && all(|k| k.floats);
        let varies = if constant { varies(g, u, &self.known) } else { SmallVec::new() };
        self.known.insert(u, Known { constant, floats, varies });
        u
    }
}

/// The axes along which a node of these sources is not everywhere the same, or may be.
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

/// A group of axes varies along all of its new axes if it did along any old one.
fn reshaped(old: &[usize], new: &[usize], varies: &[bool]) -> SmallVec<[bool; 6]> {
    let mut out: SmallVec<[bool; 6]> = SmallVec::from_elem(false, new.len());
    for group in groups(old, new) {
        let any = varies[group.from].contains(&true);
        out[group.to].fill(any);
    }
    out
}
