//! Makes the padded tensor for a node, op by op (`views` has the movement ops). In: the node in each build, its sources
//! done. Out: the node that stands for all builds.

use super::{Axis, AxisPart, Fill, Form, Lengths, Made, PaddedTensor, Tuple, padded_shape};
use crate::DType;
use crate::dtype::Scalar;
use crate::engine::Bytes;
use crate::uop::{Arg, Axes, Graph, Op, Pairs, ReduceOp, Shape, UOp, recurrence};
use crate::util::decimal::Shown;
use smallvec::SmallVec;

/// All parts whose length changes, each with the number of its axis in the node.
fn changing(axes: &[Axis]) -> Vec<(usize, AxisPart)> {
    let mut at = 0;
    let mut out = Vec::new();
    for a in axes {
        for (i, f) in a.iter().enumerate() {
            if !f.len.is_number() {
                out.push((at + i, f.clone()));
            }
        }
        at += a.len().max(1);
    }
    out
}

/// The node's axes that belong to the tensor's axis `i`: the first one, and how many.
pub(super) fn span(axes: &[Axis], i: usize) -> (usize, usize) {
    (axes[..i].iter().map(|a| a.len().max(1)).sum(), axes[i].len().max(1))
}

/// The numbers that the parts of axis `i` have among the parts whose length changes.
pub(super) fn parts_of(axes: &[Axis], i: usize) -> std::ops::Range<usize> {
    let count = |a: &Axis| a.iter().filter(|f| !f.len.is_number()).count();
    let before: usize = axes[..i].iter().map(count).sum();
    before..before + count(&axes[i])
}

pub(super) fn bits(range: std::ops::Range<usize>) -> u64 {
    range.fold(0, |m, i| m | 1 << (i % 64))
}

/// The axis with adjacent parts of constant length merged into one.
pub(super) fn merged(parts: impl IntoIterator<Item = AxisPart>) -> Axis {
    let mut out = Axis::new();
    for f in parts {
        match out.last_mut() {
            _ if f.len == Form::number(1) => {}
            Some(last) if last.len.is_number() && f.len.is_number() => {
                last.capacity *= f.capacity;
                last.len = Form::number(last.capacity as i64);
            }
            _ => out.push(f),
        }
    }
    out
}

/// The only part of an axis; an error if it has more than one.
pub(super) fn single(a: &Axis) -> Made<AxisPart> {
    match &a[..] {
        [] => Ok(AxisPart { len: Form::number(1), capacity: 1 }),
        [one] => Ok(one.clone()),
        _ => Err("an axis that was made of several lengths is cut or indexed".to_owned()),
    }
}

impl Lengths<'_> {
    /// Makes the tensor for a node whose `n` sources are done.
    pub(super) fn node(&mut self, t: &Tuple, n: usize) -> Made<PaddedTensor> {
        let src: Vec<Tuple> = (0..n).map(|i| self.src(t, i)).collect();
        let made = |i: usize| self.made.get(&src[i]).cloned().ok_or("a source is missing");
        let x: Vec<PaddedTensor> = (0..n).map(made).collect::<std::result::Result<_, _>>()?;
        match self.g.op(t[0]) {
            Op::Const => self.number(t),
            Op::Buffer => self.input(t),
            Op::Iota => self.iota(t),
            Op::Detach => Ok(x[0].clone()),
            Op::Contiguous if n == 1 => {
                let node = self.g.with_src(t[0], &[x[0].node]);
                Ok(PaddedTensor { node, ..x[0].clone() })
            }
            Op::Reshape => self.reshape(t, &x[0]),
            Op::Expand => self.expand(t, &x[0]),
            Op::Permute => self.permute(t, &x[0]),
            Op::Pad => self.pad(t, &x[0]),
            Op::Shrink => self.shrink(t, &x[0]),
            Op::Flip => self.flip(t, &x[0]),
            Op::Gather => self.gather(t, &x[0], &x[1]),
            Op::Scatter => self.scatter(t, &x),
            Op::Scan => self.scan(t, &x),
            Op::Recurrence => self.recurrence(t, &x),
            Op::Reduce => self.reduce(t, &src[0], &x[0]),
            op if op.is_alu() => self.elementwise(t, &x),
            op => Err(format!("{} of a length that changes", op.name())),
        }
    }

    pub(super) fn same_arg(&self, t: &Tuple) -> Made<Arg> {
        let arg = self.g.arg(t[0]).clone();
        match t.iter().all(|&u| *self.g.arg(u) == arg) {
            true => Ok(arg),
            false => Err(format!("{} differs from length to length", self.g.op(t[0]).name())),
        }
    }

    pub(super) fn add(&mut self, op: Op, dtype: DType, src: &[UOp], arg: Arg) -> Made<UOp> {
        self.g.try_node(op, dtype, src, arg).map_err(|e| e.to_string())
    }

    /// A scalar expanded to a shape.
    pub(super) fn spread(&mut self, x: UOp, shape: &[usize]) -> UOp {
        let x = self.g.reshape(x, &vec![1; shape.len()]);
        self.g.expand(x, shape)
    }

    /// The index along one of a node's axes, in the node's shape.
    pub(super) fn places(&mut self, shape: &[usize], axis: usize) -> UOp {
        let n = shape[axis];
        let iota = self.g.node(Op::Iota, DType::I32, &[], Arg::Shape(Shape::from_slice(&[n])));
        let mut thin = vec![1; shape.len()];
        thin[axis] = n;
        let iota = self.g.reshape(iota, &thin);
        self.g.expand(iota, shape)
    }

    /// A mask that is true below the actual lengths of these changing parts; `None` if there are no such parts.
    fn inside(&mut self, axes: &[Axis], parts: u64) -> Option<UOp> {
        let shape = padded_shape(axes);
        let mut all: Option<UOp> = None;
        for (_, (at, f)) in changing(axes).into_iter().enumerate().filter(|(i, _)| parts >> (i % 64) & 1 == 1) {
            let mut thin = vec![1; shape.len()];
            thin[at] = f.capacity;
            let (place, len) = (self.places(&thin, at), self.scalar(&f.len));
            let len = self.spread(len, &thin);
            let one = self.g.binary(Op::CmpLt, place, len);
            let one = self.g.expand(one, &shape);
            all = Some(all.map_or(one, |a| self.g.binary(Op::And, a, one)));
        }
        all
    }

    /// `x` with `value` in the elements behind the lengths of these parts.
    pub(super) fn masked(&mut self, x: &PaddedTensor, parts: u64, value: Scalar) -> PaddedTensor {
        let number = value.as_f64();
        if x.fill.is_some_and(|f| f.parts & parts == parts && f.value == number) {
            return x.clone();
        }
        let Some(inside) = self.inside(&x.axes, parts) else { return x.clone() };
        let other = self.g.constant(value, self.g.dtype(x.node));
        let node = self.g.select(inside, x.node, other);
        PaddedTensor { node, axes: x.axes.clone(), fill: Some(Fill { parts, value: number }) }
    }

    /// A constant that depends on the lengths: a form, a product of forms, or a number divided by such a product.
    fn number(&mut self, t: &Tuple) -> Made<PaddedTensor> {
        let dt = self.g.dtype(t[0]);
        let values: Vec<f64> = t.iter().filter_map(|&u| self.g.const_val(u)).map(|c| c.as_f64_of(dt)).collect();
        let ints: Option<Vec<i64>> =
            values.iter().map(|v| (v.fract() == 0.0 && v.abs() < 1e15).then_some(*v as i64)).collect();
        let scalar = |node| Ok(PaddedTensor { node, axes: SmallVec::new(), fill: None });
        // the bounds of a flat index are the product of its lengths, negated or off by one
        for (sign, more) in [(1, 0), (-1, 0), (1, -1), (-1, -1), (1, 1), (-1, 1)] {
            let Some(v) = &ints else { break };
            let v: Vec<i64> = v.iter().map(|n| sign * (n - more)).collect();
            if let Some(forms) = self.points.product(&v, &self.known) {
                let mut node = self.times(&forms);
                if (sign, more) != (1, 0) {
                    let (sign, more) = (self.g.idx(sign), self.g.idx(more));
                    node = self.g.binary(Op::Mul, node, sign);
                    node = self.g.binary(Op::Add, node, more);
                }
                return scalar(self.g.cast(node, dt));
            }
        }
        let known = self.known.clone();
        let pairs =
            known.iter().enumerate().flat_map(|(i, a)| known[i..].iter().map(move |b| vec![a.clone(), b.clone()]));
        let singles: Vec<Vec<Form>> = known.iter().map(|f| vec![f.clone()]).collect();
        for forms in singles.into_iter().chain(pairs).filter(|_| dt.is_float()) {
            let of = |p: &Vec<i64>| forms.iter().fold(1.0, |n, f| n * f.at(p) as f64);
            let over: Vec<f64> = values.iter().zip(self.points.lists()).map(|(v, p)| v * of(p)).collect();
            let whole = over[0].round();
            if whole != 0.0 && over.iter().all(|o| (o - whole).abs() <= 1e-6 * whole.abs()) {
                let (below, top) = (self.times(&forms), self.g.float(whole, dt));
                let below = self.g.cast(below, dt);
                return scalar(self.g.binary(Op::Div, top, below));
            }
        }
        Err(format!("a constant that is {} for one length and {} for another", Shown(values[0]), Shown(values[1])))
    }

    pub(super) fn times(&mut self, forms: &[Form]) -> UOp {
        let all: Vec<UOp> = forms.iter().map(|f| self.scalar(f)).collect();
        all.into_iter().reduce(|a, b| self.g.binary(Op::Mul, a, b)).unwrap_or_else(|| self.g.idx(1))
    }

    fn input(&mut self, t: &Tuple) -> Made<PaddedTensor> {
        let id = |u: UOp| if let Arg::Buffer { id, .. } = self.g.arg(u) { self.buffers.get(id).copied() } else { None };
        let first = id(t[0]);
        let Some(i) = first.filter(|_| t.iter().all(|&u| id(u) == first)) else {
            return self.table(t);
        };
        let given = &self.given[i];
        let parts = given.dims.iter().map(|f| self.axis_part(f.clone())).collect::<Made<Vec<_>>>()?;
        let (given, capacity) = (given.node, given.capacity.clone());
        let whole = self.g.reshape(given, &capacity);
        let keep: Pairs = parts.iter().map(|f| (0, f.capacity)).collect();
        let begin = self.g.shrink(whole, &keep);
        let axis = merged(parts);
        let node = self.g.reshape(begin, &padded_shape(std::slice::from_ref(&axis)));
        Ok(PaddedTensor { node, axes: [axis].into_iter().collect(), fill: None })
    }

    /// A table that each build made for itself: the same in all of them, or a few integers that are products of forms.
    fn table(&mut self, t: &Tuple) -> Made<PaddedTensor> {
        const MOST: usize = 16;
        let other = || "a table that is another one for each length".to_owned();
        let of =
            |u: &UOp| if let Arg::Buffer { id, .. } = self.g.arg(*u) { self.tables.get(id).cloned() } else { None };
        let all: Vec<Bytes> = t.iter().map(of).collect::<Option<_>>().ok_or_else(other)?;
        if all.iter().all(|b| b[..] == all[0][..]) {
            return Ok(self.constant(t[0]));
        }
        let dt = self.g.dtype(t[0]);
        let (size, n) = (dt.size(), self.g.numel(t[0]) as usize);
        if !dt.is_int() || n > MOST || all.iter().any(|b| b.len() != n * size) {
            return Err(other());
        }
        let places = self.places(&[n], 0);
        let mut sum: Option<UOp> = None;
        for i in 0..n {
            let number = |b: &Bytes| Scalar::read(dt, &b[i * size..][..size]).as_i64();
            let values: Vec<i64> = all.iter().map(number).collect();
            let forms = self.points.product(&values, &self.known).ok_or_else(other)?;
            let one = self.times(&forms);
            let one = self.g.cast(one, dt);
            let one = self.spread(one, &[n]);
            let end = self.g.idx(i as i64);
            let end = self.spread(end, &[n]);
            let before = self.g.binary(Op::CmpLt, places, end);
            sum = Some(sum.map_or(one, |s| self.g.select(before, s, one)));
        }
        let node = sum.ok_or_else(other)?;
        Ok(PaddedTensor { node, ..self.constant(t[0]) })
    }

    /// The tensor with its axes in the same parts as `axes`, if that needs no moving: an axis along which it only
    /// repeats can be given any parts.
    pub(super) fn aligned(&mut self, x: &PaddedTensor, axes: &[Axis]) -> Option<PaddedTensor> {
        if x.axes[..] == *axes {
            return Some(x.clone());
        }
        if x.axes.len() != axes.len() || self.g.op(x.node) != Op::Expand {
            return None;
        }
        let source = self.g.src_at(x.node, 0);
        let (thin, mut own) = (self.g.shape(source).to_vec(), Vec::new());
        let len = |a: &Axis, p: &Vec<i64>| a.iter().fold(1i64, |n, f| n.saturating_mul(f.len.at(p)));
        for (i, (a, b)) in x.axes.iter().zip(axes).enumerate() {
            let (at, n) = span(&x.axes, i);
            let part = &thin[at..at + n];
            if a == b {
                own.extend_from_slice(part);
                continue;
            }
            if part.iter().any(|&k| k != 1) || self.points.lists().iter().any(|p| len(a, p) != len(b, p)) {
                return None;
            }
            own.extend(vec![1; b.len().max(1)]);
        }
        let node = self.g.reshape(source, &own);
        let node = self.g.expand(node, &padded_shape(axes));
        Some(PaddedTensor { node, axes: axes.iter().cloned().collect(), fill: None })
    }

    fn iota(&mut self, t: &Tuple) -> Made<PaddedTensor> {
        let values: Vec<i64> = t.iter().map(|&u| self.g.numel(u) as i64).collect();
        let axis = self.axis(&values)?;
        let one = single(&axis)?;
        let node = self.g.node(Op::Iota, DType::I32, &[], Arg::Shape(Shape::from_slice(&[one.capacity])));
        Ok(PaddedTensor { node, axes: [axis].into_iter().collect(), fill: None })
    }

    /// The size of axis `i` of the node in each build.
    pub(super) fn sizes(&self, t: &Tuple, i: usize) -> Vec<i64> {
        t.iter().map(|&u| self.g.shape(u)[i] as i64).collect()
    }

    pub(super) fn rank(&self, t: &Tuple) -> Made<usize> {
        let rank = self.g.shape(t[0]).len();
        let same = t.iter().all(|&u| self.g.shape(u).len() == rank);
        same.then_some(rank).ok_or_else(|| "its number of axes differs from length to length".to_owned())
    }

    fn elementwise(&mut self, t: &Tuple, x: &[PaddedTensor]) -> Made<PaddedTensor> {
        let arg = self.same_arg(t)?;
        let mut made: Vec<SmallVec<[Axis; 6]>> = Vec::new();
        x.iter().map(|x| &x.axes).filter(|a| !a.is_empty()).for_each(|a| {
            if !made.contains(a) {
                made.push(a.clone());
            }
        });
        let mut list = made.is_empty().then(|| (SmallVec::new(), x.to_vec()));
        for axes in made {
            let mut one = |x: &PaddedTensor| if x.axes.is_empty() { Some(x.clone()) } else { self.aligned(x, &axes) };
            if let Some(all) = x.iter().map(&mut one).collect::<Option<Vec<PaddedTensor>>>() {
                list = Some((axes, all));
                break;
            }
        }
        // an axis may have one part in one operand and several in another
        let (axes, x) = match list {
            Some(list) => list,
            None => self.joined(x).ok_or_else(|| "its operands are made of different lengths".to_owned())?,
        };
        let x = &x[..];
        let shape = padded_shape(&axes);
        let one =
            |s: &mut Self, x: &PaddedTensor| match x.axes.is_empty() && !axes.is_empty() && s.g.op(x.node) != Op::Const
            {
                true => s.spread(x.node, &shape),
                false => x.node,
            };
        let src: Vec<UOp> = x.iter().map(|x| one(self, x)).collect();
        let node = self.add(self.g.op(t[0]), self.g.dtype(t[0]), &src, arg)?;
        Ok(PaddedTensor { node, fill: self.filled(self.g.op(t[0]), x, &axes), axes })
    }

    /// The operands with the parts of each axis merged, if their axes are the same then.
    fn joined(&mut self, x: &[PaddedTensor]) -> Option<(SmallVec<[Axis; 6]>, Vec<PaddedTensor>)> {
        let mut all = x.to_vec();
        for x in &mut all {
            (0..x.axes.len()).for_each(|i| self.join_parts(x, i));
        }
        let axes = all.iter().map(|x| &x.axes).find(|a| !a.is_empty())?.clone();
        let mut one = |x: &PaddedTensor| if x.axes.is_empty() { Some(x.clone()) } else { self.aligned(x, &axes) };
        let all = all.iter().map(&mut one).collect::<Option<Vec<PaddedTensor>>>()?;
        Some((axes, all))
    }

    /// The known value behind the lengths of the result of an op, where one operand has such a value and the others do
    /// not vary along these parts.
    fn filled(&self, op: Op, x: &[PaddedTensor], axes: &[Axis]) -> Option<Fill> {
        let at = x.iter().position(|x| x.fill.is_some())?;
        let Fill { parts, value } = x[at].fill?;
        let list = changing(axes);
        let own: Vec<usize> =
            list.iter().enumerate().filter(|(i, _)| parts >> (i % 64) & 1 == 1).map(|(_, p)| p.0).collect();
        let steady = |x: &PaddedTensor| {
            let thin = |u: UOp| own.iter().all(|&a| self.g.shape(self.g.src_at(u, 0))[a] == 1);
            x.axes.is_empty() || self.g.op(x.node) == Op::Expand && thin(x.node)
        };
        if x.iter().enumerate().any(|(i, y)| i != at && !steady(y)) {
            return None;
        }
        let low = value == f64::NEG_INFINITY;
        let positive = |y: &PaddedTensor| self.g.const_val(y.node).is_some_and(|c| c.as_f64() > 0.0);
        let value = match (op, x) {
            (Op::Cast, _) => value,
            (Op::Exp2, _) if low => 0.0,
            (Op::Sub, _) if low && at == 0 => value,
            (Op::Mul, [a, b]) if low && positive(if at == 0 { b } else { a }) => value,
            (Op::Mul, _) if value == 0.0 => 0.0,
            (Op::Div, _) if value == 0.0 && at == 0 => 0.0,
            _ => return None,
        };
        Some(Fill { parts, value })
    }

    fn reduce(&mut self, t: &Tuple, source: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let Arg::Reduce(op, reduced) = self.same_arg(t)? else { return Err("no reduction".to_owned()) };
        let parts = reduced.iter().fold(0, |m, &a| m | bits(parts_of(&x.axes, a as usize)));
        let identity = op.identity(self.g.dtype(x.node));
        let mut whole = x.clone();
        if parts != 0 {
            // a contraction has its factors masked instead of the product, so that it is still recognised as a
            // contraction
            let is_product = op == ReduceOp::Add && source.iter().all(|&u| self.g.op(u) == Op::Mul);
            whole = match is_product && x.fill.is_none_or(|f| f.value != 0.0) {
                true => self.product(source, &x.axes, parts)?,
                false => self.masked(x, parts, identity),
            };
            if op == ReduceOp::Max {
                // other readers of the operand, as in a softmax, may use the masked one too
                self.made.insert(source.clone(), whole.clone());
            }
        }
        let mut axes = x.axes.clone();
        let mut own = Axes::new();
        for &a in &reduced {
            let (at, n) = span(&x.axes, a as usize);
            own.extend((at..at + n).map(|i| i as u8));
            axes[a as usize] = Axis::new();
        }
        let node = self.g.reduce(whole.node, op, &own);
        let node = self.g.reshape(node, &padded_shape(&axes));
        Ok(PaddedTensor { node, axes, fill: None })
    }

    /// A product whose factors are both zero behind the lengths.
    fn product(&mut self, source: &Tuple, axes: &SmallVec<[Axis; 6]>, parts: u64) -> Made<PaddedTensor> {
        let mut src = Vec::new();
        for i in 0..2 {
            let x = self.made.get(&self.src(source, i)).cloned().ok_or("a factor is missing")?;
            let x = if x.axes.is_empty() {
                x
            } else {
                self.aligned(&x, axes).ok_or("a factor is made of other lengths")?
            };
            let zero = Scalar::from_i64(0, self.g.dtype(x.node));
            src.push(if x.axes.is_empty() { x.node } else { self.masked(&x, parts, zero).node });
        }
        let shape = padded_shape(axes);
        let wide = |s: &mut Self, u: UOp| match s.g.shape(u).is_empty() && s.g.op(u) != Op::Const {
            true => s.spread(u, &shape),
            false => u,
        };
        let (a, b) = (wide(self, src[0]), wide(self, src[1]));
        let node = self.g.binary(Op::Mul, a, b);
        Ok(PaddedTensor { node, axes: axes.clone(), fill: Some(Fill { parts, value: 0.0 }) })
    }

    fn scatter(&mut self, t: &Tuple, x: &[PaddedTensor]) -> Made<PaddedTensor> {
        let Arg::Scatter(how, a) = self.same_arg(t)? else { return Err("no scatter".to_owned()) };
        let [whole, index, values] = x else { return Err("no scatter".to_owned()) };
        let (index, values) = self.updates((whole, index, values), a as usize)?;
        let at = span(&whole.axes, a as usize).0;
        let src = [whole.node, index, values];
        let node = self.add(Op::Scatter, self.g.dtype(t[0]), &src, Arg::Scatter(how, at as u8))?;
        Ok(PaddedTensor { node, axes: whole.axes.clone(), fill: None })
    }

    /// Index and values of a scatter along axis `a` of a tensor; behind the lengths the index is -1, at which nothing is
    /// written.
    pub(super) fn updates(
        &mut self,
        (whole, index, values): (&PaddedTensor, &PaddedTensor, &PaddedTensor),
        a: usize,
    ) -> Made<(UOp, UOp)> {
        let other = || "its operands are made of different lengths".to_owned();
        let values = self.aligned(values, &index.axes).ok_or_else(other)?;
        let is_fixed = |axis: &Axis| axis.iter().all(|f| f.len.is_number());
        for (i, (x, y)) in whole.axes.iter().zip(&index.axes).enumerate() {
            if i == a {
                single(x)?;
                single(y)?;
            } else if x != y && !(is_fixed(x) && is_fixed(y)) {
                return Err(other());
            }
        }
        let none = Scalar::from_i64(-1, self.g.dtype(index.node));
        let index = self.masked(index, u64::MAX, none);
        Ok((index.node, values.node))
    }

    fn scan(&mut self, t: &Tuple, x: &[PaddedTensor]) -> Made<PaddedTensor> {
        let Arg::Reduce(op, list) = self.same_arg(t)? else { return Err("no scan".to_owned()) };
        let a = list.first().copied().unwrap_or(0) as usize;
        single(&x[0].axes[a])?;
        if x.iter().any(|y| y.axes != x[0].axes) {
            return Err("its operands are made of different lengths".to_owned());
        }
        let at = span(&x[0].axes, a).0;
        let src: Vec<UOp> = x.iter().map(|x| x.node).collect();
        let node = self.add(Op::Scan, self.g.dtype(t[0]), &src, Arg::Reduce(op, Axes::from_slice(&[at as u8])))?;
        Ok(PaddedTensor { node, axes: x[0].axes.clone(), fill: None })
    }

    /// A recurrence whose number of steps changes: it makes as many as there may be, and those after the last one of a
    /// run change nothing before.
    fn recurrence(&mut self, t: &Tuple, x: &[PaddedTensor]) -> Made<PaddedTensor> {
        let Arg::Recurrence(r) = self.g.arg(t[0]).clone() else { return Err("no recurrence".to_owned()) };
        let rows = r.states..r.states + r.sequences;
        let is_fixed = |axis: &Axis| axis.iter().all(|f| f.len.is_number());
        for (i, y) in x.iter().enumerate() {
            let first = usize::from(rows.contains(&i));
            if !y.axes[first..].iter().all(is_fixed) || first == 1 && y.axes[0] != x[rows.start].axes[0] {
                return Err("a recurrence over shapes that change".to_owned());
            }
        }
        let Some(sequence) = x.get(rows.start) else { return Err("a recurrence without a sequence".to_owned()) };
        let steps = single(&sequence.axes[0])?.capacity;
        let after: Vec<i64> = t.iter().map(|&u| self.g.shape(u)[1] as i64).collect();
        let mut axes = x[0].axes.clone();
        axes.insert(0, self.axis(&after)?);
        if single(&axes[0])?.capacity != steps + 1 {
            return Err("a recurrence with another number of states than steps".to_owned());
        }
        axes.insert(0, self.axis(&vec![r.states as i64; t.len()])?);
        let stored = |g: &mut Graph, y: &PaddedTensor| match g.op(y.node) {
            Op::Contiguous | Op::Buffer => y.node,
            _ => g.node(Op::Contiguous, g.dtype(y.node), &[y.node], Arg::None),
        };
        let mut src: SmallVec<[UOp; 8]> = x[..r.states].iter().map(|y| y.node).collect();
        for y in &x[r.states..] {
            src.push(stored(self.g, y));
        }
        let arg = Arg::Recurrence(Box::new(r.with_steps(steps)));
        let node = self.add(Op::Recurrence, self.g.dtype(t[0]), &src, arg)?;
        Ok(PaddedTensor { node, axes, fill: None })
    }
}

/// The roots of the builds, in which recurrences are unrolled unless they are the same in each build but for the number
/// of their steps.
pub fn with_equal_recurrences(g: &mut Graph, roots: Vec<Tuple>) -> Vec<Tuple> {
    let Some(builds) = roots.first().map(|t| t.len()) else { return roots };
    let keys = |b: usize| -> Vec<u128> {
        let own: Vec<UOp> = roots.iter().map(|t| t[b]).collect();
        let key = |u: UOp| match g.arg(u) {
            Arg::Recurrence(r) => Some(r.key()),
            _ => None,
        };
        g.reachable(&own).into_iter().filter_map(key).collect()
    };
    let first = keys(0);
    if (1..builds).all(|b| keys(b) == first) {
        return roots;
    }
    let all: Vec<UOp> = roots.iter().flatten().copied().collect();
    let all = recurrence::unroll(g, &all, &|_| true);
    all.chunks(builds).map(|t| t.iter().copied().collect()).collect()
}
