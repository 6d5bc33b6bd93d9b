//! Caches that grow: if an output is an input with new elements concatenated at its end, the graph stores the new
//! elements into the input's buffer in place, and that buffer is the output. It has the capacity for the largest
//! length, so nothing is copied.

use super::nodes::{merged, single};
use super::{Form, Lengths, Made, PaddedTensor, Points, Stuck, Tuple, padded_shape};
use crate::DType;
use crate::uop::{Arg, Axes, Graph, Op, UOp};
use smallvec::SmallVec;

/// An output that is an input with something concatenated at its end.
pub struct Grown {
    /// The input's number.
    pub input: usize,
    /// The axis of the concatenation.
    pub axis: usize,
    /// The length of that axis in the output.
    pub len: Form,
}

/// The parts of a concatenation along an axis, in one build.
struct Join {
    past: UOp,
    new: UOp,
    axis: usize,
}

/// The concatenation of `past` and `new` that a node is, if it has the form in which `Tensor::cat` makes one.
fn join(g: &Graph, u: UOp) -> Option<Join> {
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
    })
}

/// The input that an output starts with, if it does so in all builds; `inputs` has the buffers of each input.
pub fn grown(g: &Graph, points: &Points, root: &Tuple, inputs: &[Vec<u32>]) -> Option<Grown> {
    let first = join(g, root[0])?;
    let mut ids = Vec::new();
    for &u in root {
        let j = join(g, u).filter(|j| j.axis == first.axis)?;
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
    /// Replaces the concatenation that an output is by a store into the input's buffer; other readers of the
    /// concatenation read that buffer.
    pub fn grow(&mut self, root: &Tuple) -> std::result::Result<(), Stuck> {
        let stuck = |why: String| Stuck { node: root[0], why };
        let lost = || stuck("it is no join".to_owned());
        let joins: Option<Vec<Join>> = root.iter().map(|&u| join(self.g, u)).collect();
        let joins = joins.ok_or_else(lost)?;
        let new: Tuple = joins.iter().map(|j| j.new).collect();
        let new = self.tensor(&new)?;
        let made = self.stored(&joins[0], root, &new).map_err(stuck)?;
        self.made.insert(root.clone(), made);
        Ok(())
    }

    fn stored(&mut self, join: &Join, root: &Tuple, new: &PaddedTensor) -> Made<PaddedTensor> {
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
        let own = single(&new.axes[axis])?;
        let same = axes.iter().zip(&new.axes).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if !same || capacity.as_slice() != given.capacity {
            return Err("what is joined is made of other lengths".to_owned());
        }
        let whole = self.g.reshape(given.node, &capacity);
        let shape = self.g.shape(new.node).to_vec();
        let (place, at) = (self.places(&shape, axis), self.scalar(&before));
        let at = self.spread(at, &shape);
        let mut index = self.g.binary(Op::Add, place, at);
        if !own.len.is_number() {
            let n = self.scalar(&own.len);
            let n = self.spread(n, &shape);
            let (inside, none) = (self.g.binary(Op::CmpLt, place, n), self.g.int(-1, DType::I32));
            index = self.g.select(inside, index, none);
        }
        let target = Arg::Axes(Axes::from_slice(&[axis as u8]));
        let target =
            self.g.try_node(Op::Gather, self.g.dtype(whole), &[whole, index], target).map_err(|e| e.to_string())?;
        let store = self.g.store(target, new.node);
        let after = self.g.after(given.node, &[store]);
        let node = self.g.reshape(after, &capacity);
        Ok(PaddedTensor { node, axes, fill: None })
    }
}
