//! Kept values: nodes that a row kernel computes once per row and reads several times (in attention, scores and
//! exponentials). They are stored in a local array, an [`Op::Stage`] node. The array has one axis for each axis of the
//! value whose index the number of the row does not determine.

use super::{Lower, Request, Tuple};
use crate::Result;
use crate::dtype::Scalar;
use crate::uop::{Arg, AxisKind, Op, UOp};
use smallvec::SmallVec;

impl<'a> Lower<'a> {
    /// For each axis of a kept node: does the number of the row determine its index? `None` if the node is not kept.
    pub(super) fn kept(&self, u: UOp) -> Option<&'a [bool]> {
        self.rows.and_then(|r| r.kept.get(&u)).map(|k| &k[..])
    }

    /// The request that computes the whole array from which `r` wants one element.
    pub(super) fn fill(&mut self, r: &Request) -> Result<Request> {
        let mut idx = r.idx.clone();
        for (a, _) in self.kept(r.node).unwrap_or_default().iter().enumerate().filter(|x| !x.1) {
            idx[a] = self.range(self.g.shape(r.node)[a], AxisKind::Fill)?;
        }
        Ok(Request { fills: true, ..Request::new(r.node, idx, None) })
    }

    pub(super) fn store_kept(&mut self, r: &Request, value: UOp) {
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_elem(self.simp(value), 1);
        src.extend(r.idx.iter().copied().filter(|&i| self.k.op(i) == Op::Range && self.k.kind(i) == AxisKind::Fill));
        let stage = self.k.node(Op::Stage, self.g.dtype(r.node), &src, Arg::None);
        self.stages.insert(r.node, stage);
    }

    pub(super) fn read_kept(&mut self, r: &Request, row: &[bool]) -> UOp {
        let own = |a: &usize| !row[*a];
        let shape: SmallVec<[usize; 6]> = (0..row.len()).filter(own).map(|a| self.g.shape(r.node)[a]).collect();
        let idx: Tuple = (0..row.len()).filter(own).map(|a| r.idx[a]).collect();
        let at = self.flat(&shape, &idx);
        let index = self.k.index(self.stages[&r.node], at);
        match r.valid {
            None => self.k.load(index),
            Some(gate) => {
                let zero = self.k.constant(Scalar::Int(0), self.g.dtype(r.node));
                self.k.load_gated(index, zero, gate)
            }
        }
    }

    /// Splits a product into the part that varies over `ranges` and an invariant factor: the part, the op (Mul or Div)
    /// that applies the factor to the sum of the parts, and the factor.
    pub(super) fn scaled(&mut self, x: UOp, ranges: &[UOp]) -> Option<(UOp, Op, UOp)> {
        let k = &self.k;
        let set = ranges.iter().fold(0, |m, &r| m | k.ranges(r));
        let fixed = |u: UOp| k.ranges(u) & set == 0;
        let (a, b) = (k.op(x) == Op::Mul).then(|| (k.src_at(x, 0), k.src_at(x, 1)))?;
        for (f, other) in [(a, b), (b, a)] {
            let (how, y, factor) = match (k.op(f), k.src(f)) {
                (Op::Mul | Op::Div, &[y, c]) if fixed(c) => (k.op(f), y, c),
                (Op::Mul, &[c, y]) if fixed(c) => (Op::Mul, y, c),
                _ => continue,
            };
            if fixed(y) {
                continue;
            }
            let product = self.k.binary(Op::Mul, y, other);
            return Some((product, how, factor));
        }
        None
    }
}
