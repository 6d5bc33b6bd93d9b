//! Caches that grow: if an output is an input with new elements concatenated at its end, or one with room added at its end
//! and new elements scattered into it, the graph stores the new elements into the input's buffer in place, and that
//! buffer is the output. It has the capacity for the largest length, so nothing is copied.

use super::nodes::{merged, single};
use super::{Form, Lengths, Made, PaddedTensor, Points, Stuck, Tuple, padded_shape};
use crate::DType;
use crate::uop::{Arg, Axes, Graph, Op, ScatterMode, UOp};
use smallvec::SmallVec;

/// An output that is an input with something appended.
pub struct Grown {
    /// The input's number.
    pub input: usize,
    /// The axis of the concatenation.
    pub axis: usize,
    /// The length of that axis in the output.
    pub len: Form,
}

/// An input with something appended along an axis, in one build.
struct Join {
    past: UOp,
    new: UOp,
    axis: usize,
    /// The positions of the new elements along the axis; without it they come after the past ones.
    index: Option<UOp>,
}

/// The tensor that a node pads at the end of one axis, and the axis.
fn extended(g: &Graph, u: UOp) -> Option<(UOp, usize)> {
    let Arg::Pairs(pairs) = g.arg(u) else { return None };
    let mut changed = pairs.iter().enumerate().filter(|(_, p)| **p != (0, 0));
    let (axis, &(before, _)) = changed.next().filter(|_| g.op(u) == Op::Pad)?;
    (before == 0 && changed.next().is_none()).then_some((g.src_at(u, 0), axis))
}

/// What a node appends to a tensor, if it does: as [`crate::Tensor::cat`] does, or a scatter into the padded tensor.
fn join(g: &Graph, u: UOp) -> Option<Join> {
    let &[x, index, new] = g.src(u) else { return None };
    let &Arg::Scatter(ScatterMode::Unique, along) = g.arg(u) else { return concatenation(g, u) };
    let (past, axis) = extended(g, x).filter(|e| e.1 == along as usize)?;
    Some(Join { past, new, axis, index: Some(index) })
}

/// The concatenation that a node is, if it has the form in which `Tensor::cat` makes one.
fn concatenation(g: &Graph, u: UOp) -> Option<Join> {
    let &[cond, a, b] = g.src(u) else { return None };
    if g.op(u) != Op::Where || g.op(a) != Op::Pad || g.op(b) != Op::Pad {
        return None;
    }
    let (Arg::Pairs(pa), Arg::Pairs(pb)) = (g.arg(a), g.arg(b)) else { return None };
    let mut changed = pa.iter().zip(pb).enumerate().filter(|(_, (p, q))| **p != (0, 0) || **q != (0, 0));
    let (axis, (p, q)) = changed.next()?;
    let (past, new) = (g.src_at(a, 0), g.src_at(b, 0));
    let n = g.shape(past)[axis];
    if changed.next().is_some() || *p != (0, g.shape(new)[axis]) || *q != (n, 0) {
        return None;
    }
    let bare = |mut u: UOp| {
        while matches!(g.op(u), Op::Reshape | Op::Expand | Op::Cast) {
            u = g.src_at(u, 0);
        }
        u
    };
    // the condition compares the index along this axis
    let mut thin = vec![1; g.shape(u).len()];
    thin[axis] = n + g.shape(new)[axis];
    let less = bare(cond);
    let &[place, end] = g.src(less) else { return None };
    let is_place = g.op(bare(place)) == Op::Iota && g.shape(less).as_slice() == thin;
    (g.op(less) == Op::CmpLt && is_place && g.const_int(bare(end)) == Some(n as i64)).then_some(Join {
        past,
        new,
        axis,
        index: None,
    })
}

/// The nodes of a graph that read a tensor or its buffer.
fn readers(g: &Graph, roots: &[UOp], past: UOp) -> usize {
    let buffer = g.src(past).first();
    let is_read = |u: &&UOp| **u != past && g.src(**u).iter().any(|s| *s == past || Some(s) == buffer);
    g.reachable(roots).iter().filter(is_read).count()
}

/// The input that an output starts with, if it does so in all builds; `inputs` has the buffers of each input. Where new
/// elements are scattered they may overwrite old ones, so nothing else in the graph may read the input.
pub fn grown(g: &Graph, points: &Points, roots: &[Tuple], root: &Tuple, inputs: &[Vec<u32>]) -> Option<Grown> {
    let first = join(g, root[0])?;
    if first.index.is_some() {
        let own: Vec<UOp> = roots.iter().map(|t| t[0]).collect();
        if readers(g, &own, first.past) > 1 {
            return None;
        }
    }
    let mut ids = Vec::new();
    for &u in root {
        let j = join(g, u).filter(|j| j.axis == first.axis && j.index.is_some() == first.index.is_some())?;
        let buffer = g.src(j.past).first().copied().filter(|_| g.op(j.past) == Op::Reshape)?;
        let Arg::Buffer { id, .. } = g.arg(buffer) else { return None };
        ids.push(*id);
    }
    let input = inputs.iter().position(|own| *own == ids)?;
    let sizes: Vec<i64> = root.iter().map(|&u| g.shape(u)[first.axis] as i64).collect();
    let len = points.form(&sizes).filter(|f| !f.is_number())?;
    Some(Grown { input, axis: first.axis, len })
}

impl Lengths<'_> {
    /// Replaces what an output appends to an input by a store into the input's buffer; other readers of the output read
    /// that buffer.
    pub fn grow(&mut self, root: &Tuple) -> std::result::Result<(), Stuck> {
        let stuck = |why: String| Stuck { node: root[0], why };
        let lost = || stuck("it is no join".to_owned());
        let joins: Option<Vec<Join>> = root.iter().map(|&u| join(self.g, u)).collect();
        let joins = joins.ok_or_else(lost)?;
        let new: Tuple = joins.iter().map(|j| j.new).collect();
        let new = self.tensor(&new)?;
        let index: Option<Tuple> = joins.iter().map(|j| j.index).collect();
        let index = index.map(|i| self.tensor(&i)).transpose()?;
        let made = self.stored(&joins[0], root, &new, index.as_ref()).map_err(stuck)?;
        self.made.insert(root.clone(), made);
        Ok(())
    }

    fn stored(
        &mut self,
        join: &Join,
        root: &Tuple,
        new: &PaddedTensor,
        index: Option<&PaddedTensor>,
    ) -> Made<PaddedTensor> {
        let Arg::Buffer { id, .. } = self.g.arg(self.g.src_at(join.past, 0)) else {
            return Err("no buffer".to_owned());
        };
        let given = &self.given[self.buffers.get(id).copied().ok_or("no input")?];
        let (axis, before) = (join.axis, given.dims[join.axis].clone());
        let sizes: Vec<i64> = root.iter().map(|&u| self.g.shape(u)[axis] as i64).collect();
        let len = self.points.form(&sizes).ok_or("no length")?;
        let mut axes: SmallVec<[super::Axis; 6]> = SmallVec::new();
        for (i, f) in given.dims.iter().enumerate() {
            axes.push(merged([self.axis_part(if i == axis { len.clone() } else { f.clone() })?]));
        }
        let capacity = padded_shape(&axes);
        let same = axes.iter().zip(&new.axes).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if !same || capacity.as_slice() != given.capacity {
            return Err("what is joined is made of other lengths".to_owned());
        }
        let whole = self.g.reshape(given.node, &capacity);
        let whole = PaddedTensor { node: whole, axes, fill: None };
        let (index, value) = match index {
            Some(index) => self.updates((&whole, index, new), axis)?,
            None => (self.index_behind(new, axis, &before)?, new.node),
        };
        let target = Arg::Axes(Axes::from_slice(&[axis as u8]));
        let target = self.add(Op::Gather, self.g.dtype(whole.node), &[whole.node, index], target)?;
        let store = self.g.store(target, value);
        let after = self.g.after(given.node, &[store]);
        Ok(PaddedTensor { node: self.g.reshape(after, &capacity), ..whole })
    }

    /// The positions of new elements that come after `before` old ones; -1 behind the length.
    fn index_behind(&mut self, new: &PaddedTensor, axis: usize, before: &Form) -> Made<UOp> {
        let own = single(&new.axes[axis])?;
        let shape = self.g.shape(new.node).to_vec();
        let (place, at) = (self.places(&shape, axis), self.scalar(before));
        let at = self.spread(at, &shape);
        let mut index = self.g.binary(Op::Add, place, at);
        if !own.len.is_number() {
            let n = self.scalar(&own.len);
            let n = self.spread(n, &shape);
            let (inside, none) = (self.g.binary(Op::CmpLt, place, n), self.g.int(-1, DType::I32));
            index = self.g.select(inside, index, none);
        }
        Ok(index)
    }
}
