//! Makes one graph for all lengths of the inputs out of several builds of the same graph, each built for other concrete
//! lengths.
//!
//! In: the roots of the builds; in each build the variables (lengths) have the values of one of the [`Points`]. Out:
//! one graph whose tensors have the capacity for the largest lengths, and whose actual lengths are launch scalars. Code
//! that builds graphs need not know of it: a number in a shape, a view or a constant is recognised as an affine form of
//! the variables by its values in the builds. If a number or a node differs in any other way the result is [`Stuck`],
//! and the caller makes a plan for each shape instead. Example: if the variable `n` is 11, 14 and 31 in three builds,
//! in which an axis has 12, 15 and 32 elements, the axis has `n + 1` elements.
//!
//! A tensor here ([`PaddedTensor`]) is padded: an axis whose length changes has the capacity for the largest length, and
//! the elements behind the actual length are undefined. An axis that was merged from several (batch and length, say)
//! stays several axes in memory, so that no reshape moves elements ([`AxisPart`]). Where a value depends on all elements
//! of an axis, the elements behind the length are masked first (`nodes`): in sums, maxima, pads and indices.

mod form;
mod grow;
mod nodes;
mod views;
mod windows;

pub use form::{Form, MOST_VARIABLES, Points, Variable};
pub use grow::{Grown, grown};
pub use nodes::with_equal_recurrences;

use crate::engine::Bytes;
use crate::uop::{Arg, Graph, Op, Pairs, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The same node in each build.
pub type Tuple = SmallVec<[UOp; 8]>;

/// A part of an axis, which may have to be padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPart {
    /// The actual number of elements.
    pub len: Form,
    /// The capacity.
    pub capacity: usize,
}

/// The parts of an axis, outermost first; empty for an axis of one element. Of two adjacent parts at least one has a
/// length that changes.
pub type Axis = SmallVec<[AxisPart; 2]>;

/// A known value that the elements behind the actual length have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fill {
    /// The parts for which this holds: a bit for each part whose length changes, in order over all axes.
    parts: u64,
    value: f64,
}

/// A tensor padded to its capacity.
#[derive(Clone, Debug)]
pub struct PaddedTensor {
    /// Its node, which has one axis for each part of each axis of the tensor.
    pub node: UOp,
    /// The axes of the tensor.
    pub axes: SmallVec<[Axis; 6]>,
    fill: Option<Fill>,
}

/// Says why a graph cannot be made for all lengths.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// The node, in the first build.
    pub node: UOp,
    /// Why.
    pub why: String,
}

/// An input of the graph.
pub struct Given {
    /// The id of its buffer in each build.
    pub buffers: Vec<u32>,
    /// The flat node of the buffer that has the capacity for the largest lengths.
    pub node: UOp,
    /// The length of each dimension.
    pub dims: Vec<Form>,
    /// The sizes of that buffer.
    pub capacity: Vec<usize>,
    /// Does the graph append to it in place?
    pub grows: bool,
}

/// A graph for all lengths that is being made.
pub struct Lengths<'a> {
    g: &'a mut Graph,
    vars: &'a [Variable],
    points: &'a Points,
    /// The lengths that inputs have, except those that are constant.
    known: Vec<Form>,
    given: &'a [Given],
    buffers: FxHashMap<u32, usize>,
    tables: FxHashMap<u32, Bytes>,
    made: FxHashMap<Tuple, PaddedTensor>,
}

/// The shape of the node of a tensor with these axes.
pub fn padded_shape(axes: &[Axis]) -> SmallVec<[usize; 8]> {
    let mut out = SmallVec::new();
    for a in axes {
        if a.is_empty() {
            out.push(1);
        }
        out.extend(a.iter().map(|f| f.capacity));
    }
    out
}

/// The start of the message that a number is no affine form of the lengths; a quotient of a length, for example, is
/// none.
pub const NO_FORM: &str = "no form of the lengths is";

/// An output of at most this many bytes is handed out with its padding between the elements; the caller removes it.
const MAX_PADDED_OUTPUT_BYTES: usize = 1 << 24;

type Made<T> = std::result::Result<T, String>;

impl<'a> Lengths<'a> {
    /// Begins a graph with these inputs. `tables` are the contents of buffers that each build made for itself.
    pub fn new(
        g: &'a mut Graph,
        vars: &'a [Variable],
        points: &'a Points,
        given: &'a [Given],
        tables: FxHashMap<u32, Bytes>,
    ) -> Lengths<'a> {
        let mut known: Vec<Form> = Vec::new();
        for f in given.iter().flat_map(|i| &i.dims).filter(|f| !f.is_number()) {
            if !known.contains(f) {
                known.push(f.clone());
            }
        }
        let ids = given.iter().enumerate().flat_map(|(i, x)| x.buffers.iter().map(move |&id| (id, i)));
        Lengths { g, vars, points, known, given, buffers: ids.collect(), tables, made: FxHashMap::default() }
    }

    /// Makes the tensor that corresponds to a node of the builds, and first all that it depends on.
    pub fn tensor(&mut self, root: &Tuple) -> std::result::Result<PaddedTensor, Stuck> {
        let mut stack: Vec<(Tuple, bool)> = vec![(root.clone(), false)];
        while let Some((t, ready)) = stack.pop() {
            if self.made.contains_key(&t) {
                continue;
            }
            let stuck = |why: String| Stuck { node: t[0], why };
            if t.iter().all(|&u| u == t[0]) {
                let made = self.constant(t[0]);
                self.made.insert(t, made);
                continue;
            }
            if let Some(level) = self.levelled(&t) {
                match self.made.get(&level).cloned() {
                    Some(made) => _ = self.made.insert(t, made),
                    None => stack.extend([(t, false), (level, false)]),
                }
                continue;
            }
            if let Some(w) = self.windows_of(&t) {
                match self.made.get(&w.of).cloned() {
                    Some(x) => {
                        let made = self.windows(&w, &x).map_err(stuck)?;
                        self.made.insert(t, made);
                    }
                    None => stack.extend([(t, false), (w.of, false)]),
                }
                continue;
            }
            let n = self.alike(&t).map_err(stuck)?;
            if ready || n == 0 {
                let made = self.node(&t, n).map_err(stuck)?;
                self.made.insert(t, made);
                continue;
            }
            let src: Vec<Tuple> = (0..n).rev().map(|i| self.src(&t, i)).collect();
            stack.push((t, true));
            stack.extend(src.into_iter().map(|s| (s, false)));
        }
        Ok(self.made[root].clone())
    }

    /// A slice that takes all of an axis has no node in the graph. If only some of the builds have a slice here, this
    /// gives the other ones a slice of everything.
    fn levelled(&mut self, t: &Tuple) -> Option<Tuple> {
        let is_slice = |g: &Graph, u: UOp| g.op(u) == Op::Shrink;
        let rank = self.g.shape(t[0]).len();
        let some = t.iter().any(|&u| is_slice(self.g, u)) && !t.iter().all(|&u| is_slice(self.g, u));
        if !some || t.iter().any(|&u| self.g.shape(u).len() != rank) {
            return None;
        }
        let slice = |&u: &UOp| {
            let whole: Pairs = self.g.shape(u).iter().map(|&n| (0, n)).collect();
            if is_slice(self.g, u) { u } else { self.g.node(Op::Shrink, self.g.dtype(u), &[u], Arg::Pairs(whole)) }
        };
        Some(t.iter().map(slice).collect())
    }

    /// The number of sources of the node, which is the same operation in all builds; an error if it is not.
    fn alike(&self, t: &Tuple) -> Made<usize> {
        let of = |u: UOp| (self.g.op(u), self.g.dtype(u), self.g.src(u).len());
        let first = of(t[0]);
        if let Some(&other) = t.iter().find(|&&u| of(u) != first) {
            return Err(format!("it is {} for one length and {} for another", first.0.name(), self.g.op(other).name()));
        }
        Ok(if first.0 == Op::Detach { 1 } else { first.2 })
    }

    fn src(&self, t: &Tuple, i: usize) -> Tuple {
        t.iter().map(|&u| self.g.src_at(u, i)).collect()
    }

    /// The tensor for a node that does not depend on any length.
    fn constant(&self, u: UOp) -> PaddedTensor {
        let axis = |&n: &usize| match n {
            1 => Axis::new(),
            n => [AxisPart { len: Form::number(n as i64), capacity: n }].into_iter().collect(),
        };
        PaddedTensor { node: u, axes: self.g.shape(u).iter().map(axis).collect(), fill: None }
    }

    /// A dimension with these values in the builds, as parts of an axis.
    fn axis(&self, values: &[i64]) -> Made<Axis> {
        if values.iter().all(|&n| n == 1) {
            return Ok(Axis::new());
        }
        let none = || format!("{NO_FORM} {values:?}");
        let forms = self.points.product(values, &self.known).ok_or_else(none)?;
        forms.into_iter().map(|f| self.axis_part(f)).collect()
    }

    fn axis_part(&self, len: Form) -> Made<AxisPart> {
        let (low, high) = len.bounds(self.vars);
        let capacity = usize::try_from(high).ok().filter(|_| low >= 0);
        let capacity = capacity.ok_or_else(|| format!("a length between {low} and {high}"))?;
        Ok(AxisPart { len, capacity })
    }

    /// The value of a form as an i32 scalar node.
    pub fn scalar(&mut self, f: &Form) -> UOp {
        let mut sum: Option<UOp> = (f.constant != 0 || f.is_number()).then(|| self.g.idx(f.constant));
        for (i, &k) in f.times.iter().enumerate().filter(|(_, k)| **k != 0) {
            let v = &self.vars[i];
            let arg = Arg::Var { name: v.name.as_str().into(), min: v.min, max: v.max };
            let mut x = self.g.node(Op::Var, crate::DType::I32, &[], arg);
            if k != 1 {
                let k = self.g.idx(k);
                x = self.g.binary(Op::Mul, x, k);
            }
            sum = Some(sum.map_or(x, |s| self.g.binary(Op::Add, x, s)));
        }
        sum.unwrap_or_else(|| self.g.idx(0))
    }

    /// Makes a tensor an output. If the sizes are returned too, the output has its padding between the elements, in
    /// these sizes; otherwise it is flat and its actual elements come first. Nothing behind the actual lengths is
    /// computed.
    pub fn output(&mut self, t: &PaddedTensor) -> (UOp, Option<Vec<usize>>) {
        let parts: Vec<AxisPart> = t.axes.iter().flatten().cloned().collect();
        let total: usize = parts.iter().map(|f| f.capacity).product();
        let Some(last) = parts.iter().rposition(|f| !f.len.is_number()) else {
            return (self.g.reshape(t.node, &[total]), None);
        };
        let is_outermost = parts[..last].iter().all(|f| f.capacity == 1);
        let few = total.saturating_mul(self.g.dtype(t.node).size()) <= MAX_PADDED_OUTPUT_BYTES;
        if !is_outermost && few && t.axes.iter().all(|a| a.len() < 2) {
            let capacity = padded_shape(&t.axes);
            let changes =
                |(i, a): (usize, &Axis)| Some((i as u8, a.first().filter(|f| !f.len.is_number())?.len.clone()));
            let ends: Vec<(u8, Form)> = t.axes.iter().enumerate().filter_map(changes).collect();
            return (self.wanted(t.node, &ends), Some(capacity.to_vec()));
        }
        if is_outermost && t.axes.iter().all(|a| a.len() < 2) {
            // only the outermost axis is padded, so the actual elements come first already
            let axis = t.axes.iter().position(|a| a.iter().any(|f| !f.len.is_number()));
            let ends: Vec<(u8, Form)> = axis.map(|a| (a as u8, parts[last].len.clone())).into_iter().collect();
            return (self.wanted(t.node, &ends), None);
        }
        // split into rows whose number of elements does not depend on the lengths
        let (own, rest) = parts.split_at(last + 1);
        let columns: usize = rest.iter().map(|f| f.capacity).product();
        let rows = total / columns.max(1);
        let mut x = self.g.reshape(t.node, &[rows, columns]);
        if !is_outermost {
            let all = self.g.node(Op::Iota, crate::DType::I32, &[], Arg::Shape([rows].into_iter().collect()));
            let at = self.place_of(all, own, true);
            let at = self.g.reshape(at, &[rows, 1]);
            let at = self.g.expand(at, &[rows, columns]);
            x = self.g.node(Op::Gather, self.g.dtype(x), &[x, at], Arg::Axes([0u8].into_iter().collect()));
        }
        let mut lens: Vec<Form> = own.iter().map(|f| f.len.clone()).collect();
        lens.push(Form::number(columns as i64));
        let (x, end) = (self.g.reshape(x, &[total]), self.times(&lens));
        (self.g.node(Op::Contiguous, self.g.dtype(x), &[x, end], Arg::Axes([0u8].into_iter().collect())), None)
    }

    /// Marks that only the elements below these ends, along these axes of the node, are needed.
    fn wanted(&mut self, x: UOp, ends: &[(u8, Form)]) -> UOp {
        let mut src: SmallVec<[UOp; 4]> = [x].into_iter().collect();
        for (_, end) in ends {
            src.push(self.scalar(end));
        }
        self.g.node(Op::Contiguous, self.g.dtype(x), &src, Arg::Axes(ends.iter().map(|e| e.0).collect()))
    }

    /// The offsets in padded memory of elements that are given by their row-major index without padding. With `all` an
    /// index may lie behind the last element; its offset is then any valid one.
    fn place_of(&mut self, numbers: UOp, parts: &[AxisPart], all: bool) -> UOp {
        let (shape, dt) = (self.g.shape(numbers).to_vec(), self.g.dtype(numbers));
        let (mut rest, mut at, mut stride) = (numbers, None, 1i64);
        for (i, f) in parts.iter().enumerate().rev() {
            let len = self.scalar(&f.len);
            let len = self.g.cast(len, dt);
            let len = self.spread(len, &shape);
            let step = self.g.int(stride, dt);
            let digit = match i {
                0 if all => {
                    let one = self.g.int(1, dt);
                    let last = self.g.binary(Op::Sub, len, one);
                    self.g.binary(Op::Min, rest, last)
                }
                0 => rest,
                _ => self.g.binary(Op::FloorMod, rest, len),
            };
            let digit = self.g.binary(Op::Mul, digit, step);
            at = Some(at.map_or(digit, |a| self.g.binary(Op::Add, a, digit)));
            rest = self.g.binary(Op::FloorDiv, rest, len);
            stride *= f.capacity as i64;
        }
        at.unwrap_or(rest)
    }
}
