//! Movement ops and gathers on padded tensors: axes are merged, split, sliced, padded, flipped and indexed. In: the
//! view in each build and its padded operand. Out: the padded view, with as few elements moved as possible.

use super::nodes::{bits, merged, parts_of, single, span};
use super::{Axis, AxisPart, Fill, Form, Lengths, Made, NO_FORM, PaddedTensor, Tuple, padded_shape};
use crate::dtype::Scalar;
use crate::uop::{Arg, Axes, Op, Pairs, UOp};
use smallvec::SmallVec;

/// The length of an axis that has at most one part.
fn sum_of(a: &Axis) -> Option<Form> {
    single(a).ok().map(|f| f.len)
}

impl Lengths<'_> {
    /// Reshapes by regrouping the parts into axes; nothing moves.
    pub(super) fn reshape(&mut self, t: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let rank = self.rank(t)?;
        let mut parts: Vec<AxisPart> = x.axes.iter().flatten().cloned().collect();
        parts.reverse();
        let mut axes: SmallVec<[Axis; 6]> = SmallVec::new();
        for i in 0..rank {
            let mut left = self.sizes(t, i);
            let mut own: Vec<AxisPart> = Vec::new();
            while left.iter().any(|&n| n != 1) {
                let apart = || format!("an axis of {left:?} elements is not made of the lengths of the one before");
                let f = parts.pop().ok_or_else(apart)?;
                let f = match self.taken_apart(&f, &left) {
                    Some((first, rest)) => {
                        parts.push(rest);
                        first
                    }
                    None => f,
                };
                let of: Vec<i64> = self.points.lists().iter().map(|p| f.len.at(p)).collect();
                let by = if f.len.is_number() {
                    let by = left.iter().fold(of[0], |g, &n| common(g, n));
                    if by != of[0] && by > 1 {
                        let rest = of[0] / by;
                        parts.push(AxisPart { len: Form::number(rest), capacity: rest as usize });
                    }
                    vec![by; left.len()]
                } else {
                    of.clone()
                };
                if left.iter().zip(&by).any(|(n, d)| *d <= 0 || n % d != 0) || by.iter().all(|d| *d == 1) {
                    return Err(apart());
                }
                left.iter_mut().zip(&by).for_each(|(n, d)| *n /= d);
                own.push(match f.len.is_number() {
                    true => AxisPart { len: Form::number(by[0]), capacity: by[0] as usize },
                    false => f,
                });
            }
            axes.push(merged(own));
        }
        if parts.iter().any(|f| f.capacity != 1) {
            return Err("a reshape leaves elements over".to_owned());
        }
        let node = self.g.reshape(x.node, &padded_shape(&axes));
        Ok(PaddedTensor { node, axes, fill: x.fill })
    }

    /// Splits a part whose length is a constant multiple of an axis of `left` elements into that axis and the rest:
    /// `2n` elements become `[n, 2]`.
    fn taken_apart(&self, f: &AxisPart, left: &[i64]) -> Option<(AxisPart, AxisPart)> {
        let of: Vec<i64> = self.points.lists().iter().map(|p| f.len.at(p)).collect();
        let k = of.first()? / left.first().filter(|n| **n > 0)?;
        let whole = k > 1 && of.iter().zip(left).all(|(a, b)| a.checked_div(k) == Some(*b) && a % k == 0);
        let rest = usize::try_from(k).ok().filter(|k| whole && !f.len.is_number() && f.capacity % k == 0)?;
        let first = AxisPart { len: f.len.over(k)?, capacity: f.capacity / rest };
        Some((first, AxisPart { len: Form::number(k), capacity: rest }))
    }

    /// Merges the parts of axis `i` into one if only the outermost of them changes its length, because the elements are
    /// then contiguous.
    pub(super) fn join_parts(&mut self, x: &mut PaddedTensor, i: usize) {
        let Some((first, rest)) = x.axes[i].split_first().filter(|(_, rest)| !rest.is_empty()) else { return };
        let by: usize = rest.iter().map(|f| f.capacity).product();
        if rest.iter().any(|f| !f.len.is_number()) {
            return;
        }
        let Some(len) = i64::try_from(by).ok().and_then(|by| Form::number(0).plus(&first.len, by)) else { return };
        x.axes[i] = [AxisPart { len, capacity: first.capacity * by }].into_iter().collect();
        x.node = self.g.reshape(x.node, &padded_shape(&x.axes));
    }

    pub(super) fn expand(&mut self, t: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let rank = self.rank(t)?;
        let (mut axes, mut parts, mut before) = (x.axes.clone(), 0u64, 0);
        let (mut thin, mut shape): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for i in 0..rank {
            let was = x.axes.get(i).ok_or("an expanded axis is missing")?;
            let own = parts_of(&x.axes, i);
            if was.is_empty() {
                axes[i] = self.axis(&self.sizes(t, i))?;
                let n = axes[i].len().max(1);
                thin.extend(vec![1; n]);
            } else {
                for (j, p) in own.clone().enumerate() {
                    let set = x.fill.map_or(0, |f| f.parts >> p & 1);
                    parts |= set << ((before + j) % 64);
                }
                thin.extend(was.iter().map(|f| f.capacity));
            }
            before += parts_of(&axes, i).len();
            shape.extend(padded_shape(std::slice::from_ref(&axes[i])));
        }
        let node = self.g.reshape(x.node, &thin);
        let node = self.g.expand(node, &shape);
        let fill = x.fill.map(|f| Fill { parts, value: f.value }).filter(|f| f.parts != 0);
        Ok(PaddedTensor { node, axes, fill })
    }

    pub(super) fn permute(&mut self, t: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let Arg::Axes(order) = self.same_arg(t)? else { return Err("no axes".to_owned()) };
        let (mut axes, mut own): (SmallVec<[Axis; 6]>, Axes) = (SmallVec::new(), Axes::new());
        let (mut parts, mut n) = (0u64, 0);
        for &a in &order {
            let (at, count) = span(&x.axes, a as usize);
            own.extend((at..at + count).map(|i| i as u8));
            axes.push(x.axes[a as usize].clone());
            for p in parts_of(&x.axes, a as usize) {
                parts |= x.fill.map_or(0, |f| f.parts >> p & 1) << (n % 64);
                n += 1;
            }
        }
        let node = self.g.permute(x.node, &own);
        Ok(PaddedTensor { node, axes, fill: x.fill.map(|f| Fill { parts, value: f.value }) })
    }

    /// `x` read along one axis at `index`, which has the shape of the result.
    pub(super) fn read(&mut self, x: UOp, index: UOp, axis: usize) -> Made<UOp> {
        self.add(Op::Gather, self.g.dtype(x), &[x, index], Arg::Axes(Axes::from_slice(&[axis as u8])))
    }

    /// Shifts a node along axis `at` by a form: element `i` of the result is element `i + by`, or zero where there is
    /// none. The result has `capacity` elements along the axis, and reads nothing from `len` on if that is given.
    pub(super) fn moved(&mut self, x: UOp, at: usize, capacity: usize, by: &Form, len: Option<&Form>) -> Made<UOp> {
        let mut shape = self.g.shape(x).to_vec();
        shape[at] = capacity;
        let (place, by) = (self.places(&shape, at), self.scalar(by));
        let by = self.spread(by, &shape);
        let mut index = self.g.binary(Op::Add, place, by);
        if let Some(len) = len {
            let len = self.scalar(len);
            index = self.within(index, len);
        }
        self.read(x, index, at)
    }

    /// The index where it is below `len`, else -1, at which a gather reads zero.
    pub(super) fn within(&mut self, index: UOp, len: UOp) -> UOp {
        let (shape, dt) = (self.g.shape(index).to_vec(), self.g.dtype(index));
        let len = self.g.cast(len, dt);
        let len = self.spread(len, &shape);
        let inside = self.g.binary(Op::CmpLt, index, len);
        let none = self.g.int(-1, dt);
        self.g.select(inside, index, none)
    }

    /// The two numbers of the pair for axis `i` (of a pad or slice) as forms.
    pub(super) fn pair(&self, t: &Tuple, i: usize) -> Made<(Form, Form)> {
        let of = |u: &UOp| if let Arg::Pairs(p) = self.g.arg(*u) { p.get(i).copied() } else { None };
        let pairs: Vec<(usize, usize)> = t.iter().filter_map(of).collect();
        let form = |f: fn(&(usize, usize)) -> usize| -> Made<Form> {
            let values: Vec<i64> = pairs.iter().map(|p| f(p) as i64).collect();
            let found = (values.len() == t.len()).then(|| self.points.form(&values)).flatten();
            found.ok_or_else(|| format!("{NO_FORM} {values:?}"))
        };
        Ok((form(|p| p.0)?, form(|p| p.1)?))
    }

    pub(super) fn pad(&mut self, t: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let mut out = x.clone();
        for i in 0..x.axes.len() {
            let (before, after) = self.pair(t, i)?;
            let zero = Form::number(0);
            if before == zero && after == zero {
                continue;
            }
            self.join_parts(&mut out, i);
            if before.bounds(self.vars).0 < 0 || after.bounds(self.vars).0 < 0 {
                return Err("a pad that is none for some lengths".to_owned());
            }
            let old = single(&out.axes[i])?;
            let sum = old.len.plus(&before, 1).and_then(|f| f.plus(&after, 1)).ok_or("a length overflows")?;
            let new = self.axis_part(sum)?;
            let at = span(&out.axes, i).0;
            let (first, capacity) = (before.constant as usize, new.capacity);
            if before.is_number() {
                let parts = bits(parts_of(&out.axes, i));
                let whole = self.masked(&out, parts, Scalar::from_i64(0, self.g.dtype(out.node)));
                let mut pairs = Pairs::from_elem((0, 0), self.g.shape(whole.node).len());
                pairs[at] = (first, capacity.saturating_sub(first + old.capacity));
                out.node = self.g.pad(whole.node, &pairs);
                let shape = self.g.shape(out.node).clone();
                let mut keep: Pairs = shape.iter().map(|&n| (0, n)).collect();
                keep[at].1 = keep[at].1.min(capacity);
                out.node = self.g.shrink(out.node, &keep);
            } else {
                let back = zero.plus(&before, -1).ok_or("a length overflows")?;
                let len = (!old.len.is_number()).then_some(&old.len);
                out.node = self.moved(out.node, at, capacity, &back, len)?;
            }
            out.axes[i] = merged([new]);
            out.fill = None;
        }
        Ok(out)
    }

    pub(super) fn shrink(&mut self, t: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let mut out = x.clone();
        for i in 0..x.axes.len() {
            let is_whole = |u: &UOp| {
                let n = self.g.shape(self.g.src_at(*u, 0))[i];
                matches!(self.g.arg(*u), Arg::Pairs(p) if p[i] == (0, n))
            };
            if t.iter().all(is_whole) {
                continue;
            }
            let (begin, end) = self.pair(t, i)?;
            let len = end.plus(&begin, -1).ok_or("a length overflows")?;
            self.join_parts(&mut out, i);
            let whole = sum_of(&out.axes[i]);
            let behind = whole.and_then(|w| w.plus(&end, -1)).map(|f| f.bounds(self.vars).0);
            if begin.bounds(self.vars).0 < 0 || behind.is_some_and(|n| n < 0) {
                return Err("a slice that is cut off for some lengths".to_owned());
            }
            let zero = Form::number(0);
            if begin == zero && out.axes[i].len() < 2 && single(&out.axes[i])?.len == len {
                continue;
            }
            let old = single(&out.axes[i])?;
            let new = self.axis_part(len)?;
            let at = span(&out.axes, i).0;
            if begin.is_number() && begin.constant as usize + new.capacity <= old.capacity {
                let mut keep: Pairs = self.g.shape(out.node).iter().map(|&n| (0, n)).collect();
                keep[at] = (begin.constant as usize, begin.constant as usize + new.capacity);
                out.node = self.g.shrink(out.node, &keep);
            } else {
                out.node = self.moved(out.node, at, new.capacity, &begin, None)?;
            }
            out.axes[i] = merged([new]);
            out.fill = None;
        }
        Ok(out)
    }

    pub(super) fn flip(&mut self, t: &Tuple, x: &PaddedTensor) -> Made<PaddedTensor> {
        let Arg::Axes(list) = self.same_arg(t)? else { return Err("no axes".to_owned()) };
        let mut out = x.clone();
        for &a in &list {
            self.join_parts(&mut out, a as usize);
            let f = single(&out.axes[a as usize])?;
            let at = span(&out.axes, a as usize).0;
            if f.len.is_number() {
                out.node = self.g.flip(out.node, &[at as u8]);
                continue;
            }
            let shape = self.g.shape(out.node).to_vec();
            let last = f.len.plus(&Form::number(1), -1).ok_or("a length overflows")?;
            let (place, last) = (self.places(&shape, at), self.scalar(&last));
            let last = self.spread(last, &shape);
            let index = self.g.binary(Op::Sub, last, place);
            out.node = self.read(out.node, index, at)?;
            out.fill = None;
        }
        Ok(out)
    }

    pub(super) fn gather(&mut self, t: &Tuple, x: &PaddedTensor, index: &PaddedTensor) -> Made<PaddedTensor> {
        let Arg::Axes(list) = self.same_arg(t)? else { return Err("no axes".to_owned()) };
        let a = list.first().copied().unwrap_or(0) as usize;
        let along = |i: &PaddedTensor, x: &PaddedTensor| -> SmallVec<[Axis; 6]> {
            i.axes
                .iter()
                .zip(&x.axes)
                .enumerate()
                .map(|(i, (p, q))| if i == a { p.clone() } else { q.clone() })
                .collect()
        };
        let (wide, other) = (along(index, x), || "its index is made of different lengths".to_owned());
        let index = match self.aligned(index, &wide) {
            Some(index) => index,
            None => index.clone(),
        };
        let narrow = along(x, &index);
        let x = &self.aligned(x, &narrow).ok_or_else(other)?;
        let parts = x.axes[a].clone();
        let (at, n) = span(&index.axes, a);
        let mut sizes = self.g.shape(x.node).to_vec();
        let flat: usize = sizes.drain(at..at + span(&x.axes, a).1).product();
        sizes.insert(at, flat);
        let source = self.g.reshape(x.node, &sizes);
        let mut shape = self.g.shape(index.node).to_vec();
        let whole = shape.clone();
        let flat: usize = shape.drain(at..at + n).product();
        shape.insert(at, flat);
        let mut i = self.g.reshape(index.node, &shape);
        if parts.iter().any(|f| !f.len.is_number()) {
            let dt = self.g.dtype(i);
            if dt.int_range().is_none_or(|(low, _)| low >= 0) {
                return Err(format!("an index of {dt} into a length that changes"));
            }
            let lens: Vec<Form> = parts.iter().map(|f| f.len.clone()).collect();
            let total = self.times(&lens);
            i = self.within(i, total);
            if parts.len() > 1 {
                // a negative index stays negative, so that it still reads zero
                let (place, zero) = (self.place_of(i, &parts, false), self.g.int(0, dt));
                let before = self.g.binary(Op::CmpLt, i, zero);
                i = self.g.select(before, i, place);
            }
        }
        let node = self.read(source, i, at)?;
        Ok(PaddedTensor { node: self.g.reshape(node, &whole), axes: index.axes.clone(), fill: None })
    }
}

fn common(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
