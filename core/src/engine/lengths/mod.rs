//! One graph for every length: what several builds of a graph for different lengths have in common.
//!
//! In come the roots of one graph, built for some values of its variables ([`Points`]); out comes a graph whose tensors have room for the
//! largest lengths, and whose actual lengths are launch scalars. Nobody who builds graphs has to know of it: a number of a shape,
//! of a view or of a constant is recognised as a form of the variables by the values that it has in the builds. What differs in any other
//! way is [`Stuck`], and such a graph has a plan for each shape.
//!
//! A tensor here is padded: an axis whose length changes has room for the largest, and what lies behind the length may be anything. An axis that was
//! made of several (batch and length, say) stays several in memory, so no reshape needs to move anything ([`Factor`]). Where a
//! value depends on all of an axis, it is masked first (`nodes`): terms of sums and candidates of maxima, what lies beside a
//! pad, indices.

mod form;
mod grow;
mod nodes;
mod views;
mod windows;

pub use form::{Form, MOST_VARIABLES, Points, Variable};
pub use grow::{Grown, grown};

use crate::engine::Bytes;
use crate::uop::{Arg, Graph, Op, Pairs, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// One node in each build.
pub type Tuple = SmallVec<[UOp; 8]>;

/// A part of an axis with room for `room` elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// How many there are.
    pub len: Form,
    /// How many there is room for.
    pub room: usize,
}

/// The parts of an axis, outermost first: none of an axis of one element. Of two neighbours one at least changes its length.
pub type Axis = SmallVec<[Factor; 2]>;

/// What stands behind the lengths of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fill {
    /// A bit for each part whose length changes, in order.
    parts: u64,
    value: f64,
}

/// A tensor with room.
#[derive(Clone, Debug)]
pub struct Roomy {
    /// Its node; an axis of it is a part of one of the tensor's.
    pub node: UOp,
    /// Its axes.
    pub axes: SmallVec<[Axis; 6]>,
    fill: Option<Fill>,
}

/// What cannot be had for every length.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// The node, in the first build.
    pub node: UOp,
    /// Why.
    pub why: String,
}

/// An input of the graph.
pub struct Given {
    /// Its buffers in the builds.
    pub buffers: Vec<u32>,
    /// The buffer with room: its flat node.
    pub node: UOp,
    /// Its dimensions.
    pub dims: Vec<Form>,
    /// Sizes of the buffer with room.
    pub room: Vec<usize>,
    /// Does the graph add to it in place?
    pub grows: bool,
}

/// A graph for every length under way.
pub struct Lengths<'a> {
    g: &'a mut Graph,
    vars: &'a [Variable],
    points: &'a Points,
    /// Lengths that inputs have.
    known: Vec<Form>,
    given: &'a [Given],
    buffers: FxHashMap<u32, usize>,
    tables: FxHashMap<u32, Bytes>,
    made: FxHashMap<Tuple, Roomy>,
}

/// Sizes of the node of a tensor with these axes.
pub fn room_of(axes: &[Axis]) -> SmallVec<[usize; 8]> {
    let mut out = SmallVec::new();
    for a in axes {
        if a.is_empty() {
            out.push(1);
        }
        out.extend(a.iter().map(|f| f.room));
    }
    out
}

/// How it is said that a number is no form of the lengths, as a quotient of one is none.
pub const NO_FORM: &str = "no form of the lengths is";

/// Bytes of an output that is handed out with the room between its elements, and cut out by whoever reads it.
const FEW_BYTES: usize = 1 << 24;

type Made<T> = std::result::Result<T, String>;

impl<'a> Lengths<'a> {
    /// Of these inputs. `tables` are elements of buffers that each build has made for itself.
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

    /// The tensor that a node is in each of the builds.
    pub fn tensor(&mut self, root: &Tuple) -> std::result::Result<Roomy, Stuck> {
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

    /// Builds in which a slice takes all of an axis have no node for it: they get one, where others have.
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

    /// How many sources all of them have; an error if they are different operations.
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

    /// What does not depend on any length.
    fn constant(&self, u: UOp) -> Roomy {
        let axis = |&n: &usize| match n {
            1 => Axis::new(),
            n => [Factor { len: Form::number(n as i64), room: n }].into_iter().collect(),
        };
        Roomy { node: u, axes: self.g.shape(u).iter().map(axis).collect(), fill: None }
    }

    /// A number that the builds have, as parts of an axis.
    fn axis(&self, values: &[i64]) -> Made<Axis> {
        if values.iter().all(|&n| n == 1) {
            return Ok(Axis::new());
        }
        let none = || format!("{NO_FORM} {values:?}");
        let forms = self.points.product(values, &self.known).ok_or_else(none)?;
        forms.into_iter().map(|f| self.factor(f)).collect()
    }

    fn factor(&self, len: Form) -> Made<Factor> {
        let (low, high) = len.bounds(self.vars);
        let room = usize::try_from(high).ok().filter(|_| low >= 0);
        let room = room.ok_or_else(|| format!("a length between {low} and {high}"))?;
        Ok(Factor { len, room })
    }

    /// A form as a scalar of i32.
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

    /// A tensor as an output: where it has room between its elements, and the sizes of that; else flat, first the elements that there are.
    /// No more is computed than there is.
    pub fn output(&mut self, t: &Roomy) -> (UOp, Option<Vec<usize>>) {
        let parts: Vec<Factor> = t.axes.iter().flatten().cloned().collect();
        let total: usize = parts.iter().map(|f| f.room).product();
        let Some(last) = parts.iter().rposition(|f| !f.len.is_number()) else {
            return (self.g.reshape(t.node, &[total]), None);
        };
        let is_outermost = parts[..last].iter().all(|f| f.room == 1);
        let few = total.saturating_mul(self.g.dtype(t.node).size()) <= FEW_BYTES;
        if !is_outermost && few && t.axes.iter().all(|a| a.len() < 2) {
            let room = room_of(&t.axes);
            let changes =
                |(i, a): (usize, &Axis)| Some((i as u8, a.first().filter(|f| !f.len.is_number())?.len.clone()));
            let ends: Vec<(u8, Form)> = t.axes.iter().enumerate().filter_map(changes).collect();
            return (self.wanted(t.node, &ends), Some(room.to_vec()));
        }
        if is_outermost && t.axes.iter().all(|a| a.len() < 2) {
            // the elements that there are come first as it is
            let axis = t.axes.iter().position(|a| a.iter().any(|f| !f.len.is_number()));
            let ends: Vec<(u8, Form)> = axis.map(|a| (a as u8, parts[last].len.clone())).into_iter().collect();
            return (self.wanted(t.node, &ends), None);
        }
        // rows, of which each has as many elements whatever the lengths are
        let (own, rest) = parts.split_at(last + 1);
        let columns: usize = rest.iter().map(|f| f.room).product();
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

    /// A tensor of which only what is below an end is wanted, along some of its node's axes.
    fn wanted(&mut self, x: UOp, ends: &[(u8, Form)]) -> UOp {
        let mut src: SmallVec<[UOp; 4]> = [x].into_iter().collect();
        for (_, end) in ends {
            src.push(self.scalar(end));
        }
        self.g.node(Op::Contiguous, self.g.dtype(x), &src, Arg::Axes(ends.iter().map(|e| e.0).collect()))
    }

    /// Where elements of these numbers, as they are counted without room, are in memory. `all` are numbers behind the last one too, which are
    /// anywhere.
    fn place_of(&mut self, numbers: UOp, parts: &[Factor], all: bool) -> UOp {
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
            stride *= f.room as i64;
        }
        at.unwrap_or(rest)
    }
}
