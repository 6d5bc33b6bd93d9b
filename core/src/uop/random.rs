//! Random tensor graphs for property tests. The same seed gives the same graph on every host. The compiler itself does
//! not use this module.

use super::recurrence::Recurrence;
use super::{Arg, Axes, Graph, Op, ReduceOp, ScatterMode, Shape, UOp};
use crate::DType;
use crate::dtype::Scalar;

/// A small reproducible generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.bits() % n as u64) as usize }
    }

    /// True with probability `1 / n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A random one of the items, of which there must be at least one.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A random value of `dt`: small, or, if `special`, with probability 1/8 an extreme or special value.
    pub fn value(&mut self, dt: DType, special: bool) -> Scalar {
        if special && self.once_in(8) {
            return match dt.int_range() {
                Some((lo, hi)) => {
                    let v = self.pick(&[lo, lo + 1, hi, hi - 1, 0]);
                    Scalar::from_i64(v as i64, dt)
                }
                None => {
                    let v = self.pick(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 0.0, 1e30, 1e-40, 65520.0]);
                    Scalar::from_f64(v, dt)
                }
            };
        }
        match dt {
            DType::Bool => Scalar::Int(self.below(2) as i64),
            dt if dt.is_float() => Scalar::from_f64((self.below(257) as f64 - 128.0) / 32.0, dt),
            dt if dt.is_unsigned() => Scalar::from_i64(self.below(20) as i64, dt),
            dt => Scalar::from_i64(self.below(41) as i64 - 20, dt),
        }
    }
}

/// What graphs to generate.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Number of attempts to add an op to the graph.
    pub ops: usize,
    /// Element types to use.
    pub dtypes: &'a [DType],
    /// Also use infinities, NaN and extreme integers as values.
    pub special: bool,
    /// Use only float ops that are exact on small values (sums, max, min, neg, trunc), so that reassociation does not
    /// change the result.
    pub exact: bool,
    /// The most elements that a tensor may have.
    pub max_elems: usize,
}

/// A tensor graph with the contents of its buffers.
#[derive(Clone)]
pub struct RandomGraph {
    /// The nodes.
    pub g: Graph,
    /// The results.
    pub roots: Vec<UOp>,
    /// The contents of each buffer, indexed by buffer id.
    pub buffers: Vec<Vec<u8>>,
}

/// A random valid tensor graph.
pub fn tensor_graph(seed: u64, o: Options<'_>) -> RandomGraph {
    let mut m = Maker { rng: Rng(seed), g: Graph::new(), pool: Vec::new(), buffers: Vec::new(), o };
    for _ in 0..1 + m.rng.below(3) {
        m.buffer();
    }
    for _ in 0..o.ops {
        if let Some(u) = m.grow() {
            m.pool.push(u);
        }
    }
    let n = 1 + m.rng.below(3);
    let roots = m.pool.iter().rev().take(n).copied().collect();
    RandomGraph { g: m.g, roots, buffers: m.buffers }
}

struct Maker<'a> {
    rng: Rng,
    g: Graph,
    pool: Vec<UOp>,
    buffers: Vec<Vec<u8>>,
    o: Options<'a>,
}

impl Maker<'_> {
    fn shape(&mut self) -> Shape {
        loop {
            let rank = self.rng.below(6);
            let s: Shape = (0..rank)
                .map(|_| match self.rng.below(20) {
                    0 => 0,
                    1..4 => 1,
                    _ => 2 + self.rng.below(16),
                })
                .collect();
            if s.iter().product::<usize>() <= self.o.max_elems {
                return s;
            }
        }
    }

    fn buffer(&mut self) {
        let (shape, dt) = (self.shape(), self.rng.pick(self.o.dtypes));
        let len: usize = shape.iter().product();
        let mut bytes = vec![0; len * dt.size()];
        for b in bytes.chunks_exact_mut(dt.size()) {
            self.rng.value(dt, self.o.special).write(dt, b);
        }
        let id = self.buffers.len() as u32;
        self.buffers.push(bytes);
        let b = self.g.node(Op::Buffer, dt, &[], Arg::Buffer { id, len });
        let u = self.g.reshape(b, &shape);
        self.pool.push(u);
    }

    fn any(&mut self) -> UOp {
        // prefers recent values, so that graphs become deep
        let n = self.pool.len();
        let back = self.rng.below(n).min(self.rng.below(n));
        self.pool[n - 1 - back]
    }

    /// A value of the shape and dtype of `x`, or a scalar.
    fn partner(&mut self, x: UOp) -> UOp {
        let dt = self.g.dtype(x);
        let fits: Vec<UOp> = self.pool.iter().copied().filter(|&y| self.g.shape(y) == self.g.shape(x)).collect();
        if !fits.is_empty() && !self.rng.once_in(4) {
            let y = self.rng.pick(&fits);
            return self.g.cast(y, dt);
        }
        let v = self.rng.value(dt, self.o.special);
        self.g.node(Op::Const, dt, &[], Arg::Const(v))
    }

    fn grow(&mut self) -> Option<UOp> {
        let x = self.any();
        match self.rng.below(19) {
            kind @ 0..15 => self.pure(kind, x),
            15 if self.rng.once_in(2) => self.scatter(x),
            15 => self.scan(x),
            16 if self.rng.once_in(3) => Some(self.g.unary(Op::Contiguous, x)),
            16 => self.gather(x),
            _ => self.recurrence(x),
        }
    }

    /// An elementwise op, a movement or a reduction, by a number below 15.
    fn pure(&mut self, kind: usize, x: UOp) -> Option<UOp> {
        let dt = self.g.dtype(x);
        match kind {
            0..2 => self.unary(x, dt),
            2..7 => self.binary(x, dt),
            7 => {
                let to = self.rng.pick(self.o.dtypes);
                Some(self.g.cast(x, to))
            }
            8 => {
                let same = |d: &&DType| d.size() == dt.size() && **d != DType::Bool;
                let to: Vec<DType> = self.o.dtypes.iter().filter(same).copied().collect();
                // only integers are reinterpreted, since the payload of a NaN is not specified
                if to.is_empty() || dt.is_float() || dt == DType::Bool {
                    return None;
                }
                let to = self.rng.pick(&to);
                (!to.is_float() || self.o.special).then(|| self.g.bitcast(x, to))
            }
            9 => {
                let (y, op) = (self.partner(x), self.rng.pick(&[Op::CmpLt, Op::CmpEq, Op::CmpNe]));
                let c = self.g.binary(op, x, y);
                let z = self.partner(x);
                Some(self.g.select(c, x, z))
            }
            10..13 => self.movement(x),
            _ => self.reduce(x),
        }
    }

    fn unary(&mut self, x: UOp, dt: DType) -> Option<UOp> {
        use Op::*;
        let op = match dt {
            DType::Bool => return None,
            dt if dt.is_float() && self.o.exact => self.rng.pick(&[Neg, Trunc]),
            dt if dt.is_float() => self.rng.pick(&[Neg, Exp2, Log2, Sin, Cos, Tan, Sqrt, Recip, Trunc]),
            _ => Neg,
        };
        Some(self.g.unary(op, x))
    }

    fn binary(&mut self, x: UOp, dt: DType) -> Option<UOp> {
        use Op::*;
        let op = match dt {
            DType::Bool => self.rng.pick(&[Add, Mul, And, Or, Xor, Max, Min]),
            dt if dt.is_float() && self.o.exact => self.rng.pick(&[Add, Sub, Max, Min]),
            dt if dt.is_float() => self.rng.pick(&[Add, Sub, Mul, Div, Max, Min]),
            _ => self
                .rng
                .pick(&[Add, Sub, Mul, Idiv, Imod, FloorDiv, FloorMod, And, Or, Xor, Shl, Shr, Max, Min, CmpLt, CmpEq]),
        };
        let y = self.partner(x);
        Some(if self.rng.once_in(2) { self.g.binary(op, x, y) } else { self.g.binary(op, y, x) })
    }

    fn movement(&mut self, x: UOp) -> Option<UOp> {
        let shape = self.g.shape(x).clone();
        let rank = shape.len();
        match self.rng.below(6) {
            0 => {
                let to = self.refactored(&shape);
                Some(self.g.reshape(x, &to))
            }
            1 if rank > 0 => {
                let mut axes: Vec<u8> = (0..rank as u8).collect();
                for i in (1..rank).rev() {
                    axes.swap(i, self.rng.below(i + 1));
                }
                Some(self.g.permute(x, &axes))
            }
            2 => {
                let mut to = shape;
                for n in to.iter_mut().filter(|n| **n == 1) {
                    *n = 1 + self.rng.below(6);
                }
                (to.iter().product::<usize>() <= self.o.max_elems).then(|| self.g.expand(x, &to))
            }
            3 if rank > 0 => {
                let pairs: Vec<(usize, usize)> = shape.iter().map(|_| (self.rng.below(3), self.rng.below(3))).collect();
                let n: usize = shape.iter().zip(&pairs).map(|(n, p)| n + p.0 + p.1).product();
                (n <= self.o.max_elems).then(|| self.g.pad(x, &pairs))
            }
            4 if rank > 0 => {
                let pairs: Vec<(usize, usize)> = shape
                    .iter()
                    .map(|&n| {
                        let a = self.rng.below(n.min(3) + 1);
                        (a, n - self.rng.below((n - a).min(3) + 1))
                    })
                    .collect();
                Some(self.g.shrink(x, &pairs))
            }
            5 if rank > 0 => {
                let axes: Vec<u8> = (0..rank as u8).filter(|_| self.rng.once_in(2)).collect();
                Some(self.g.flip(x, &axes))
            }
            _ => None,
        }
    }

    /// A random shape with the same number of elements: inserts axes of size 1, merges neighbouring axes and splits
    /// axes.
    fn refactored(&mut self, shape: &[usize]) -> Shape {
        let mut s: Shape = shape.iter().copied().collect();
        for _ in 0..1 + self.rng.below(3) {
            let i = self.rng.below(s.len());
            match self.rng.below(3) {
                0 if s.len() > 1 && i + 1 < s.len() => {
                    s[i] *= s[i + 1];
                    s.remove(i + 1);
                }
                1 if !s.is_empty() && s[i] > 1 => {
                    let d = (2..=s[i]).find(|d| s[i].is_multiple_of(*d)).unwrap_or(s[i]);
                    s[i] /= d;
                    s.insert(i + self.rng.below(2), d);
                }
                _ => s.insert(i, 1),
            }
        }
        s
    }

    fn reduce(&mut self, x: UOp) -> Option<UOp> {
        use ReduceOp::*;
        let rank = self.g.shape(x).len();
        let axes: Vec<u8> = (0..rank as u8).filter(|_| self.rng.once_in(2)).collect();
        let product = if self.o.exact && self.g.dtype(x).is_float() { Add } else { Mul };
        let op = self.rng.pick(&[Add, Add, Add, product, Max, Min]);
        (!axes.is_empty()).then(|| self.g.reduce(x, op, &axes))
    }

    /// Indices of an axis of length `len`, from -1 to `len`: one out of range at either end.
    fn indices(&mut self, shape: &[usize], len: usize) -> UOp {
        let n = shape.iter().product();
        let iota = self.g.node(Op::Iota, DType::I32, &[], Arg::Shape(Shape::from_slice(&[n])));
        let (seven, m, one) = (self.g.idx(7), self.g.idx(len as i64 + 2), self.g.idx(1));
        let i = self.g.binary(Op::Mul, iota, seven);
        let i = self.g.binary(Op::Imod, i, m);
        let i = self.g.binary(Op::Sub, i, one);
        self.g.reshape(i, shape)
    }

    /// A random operation and axis for a Scatter or Scan of `x`; `None` for scalars and empty tensors.
    fn combined(&mut self, x: UOp) -> Option<(ReduceOp, u8)> {
        use ReduceOp::*;
        let rank = self.g.shape(x).len();
        let product = if self.o.exact && self.g.dtype(x).is_float() { Add } else { Mul };
        let op = self.rng.pick(&[Add, Add, product, Max, Min]);
        (rank > 0 && self.g.numel(x) > 0).then(|| (op, self.rng.below(rank) as u8))
    }

    fn scatter(&mut self, x: UOp) -> Option<UOp> {
        let (op, axis) = self.combined(x)?;
        let (dt, shape) = (self.g.dtype(x), self.g.shape(x).clone());
        let mut src = self.partner(x);
        if self.g.shape(src).is_empty() {
            let ones: Shape = shape.iter().map(|_| 1).collect();
            src = self.g.reshape(src, &ones);
            src = self.g.expand(src, &shape);
        }
        // updates may be one element shorter than the target along an axis
        let cut = self.rng.below(shape.len());
        let keep = shape.iter().enumerate().map(|(a, &n)| (0, n - usize::from(a == cut && n > 1)));
        src = self.g.shrink(src, &keep.collect::<Vec<_>>());
        let (updates, len) = (self.g.shape(src).clone(), shape[axis as usize]);
        let i = self.indices(&updates, len);
        let how = if self.rng.once_in(4) { ScatterMode::Overwrite } else { ScatterMode::Combine(op) };
        Some(self.g.node(Op::Scatter, dt, &[x, i, src], Arg::Scatter(how, axis)))
    }

    fn scan(&mut self, x: UOp) -> Option<UOp> {
        let (op, axis) = self.combined(x)?;
        let dt = self.g.dtype(x);
        Some(self.g.node(Op::Scan, dt, &[x], Arg::Reduce(op, Axes::from_slice(&[axis]))))
    }

    fn gather(&mut self, x: UOp) -> Option<UOp> {
        let mut shape = self.g.shape(x).clone();
        if shape.is_empty() {
            return None;
        }
        let axis = self.rng.below(shape.len());
        let len = shape[axis];
        shape[axis] = 1 + self.rng.below(4);
        let n: usize = shape.iter().product();
        if n > self.o.max_elems {
            return None;
        }
        let i = self.indices(&shape, len);
        let dt = self.g.dtype(x);
        Some(self.g.node(Op::Gather, dt, &[x, i], Arg::Axes(Axes::from_slice(&[axis as u8]))))
    }

    /// A recurrence along the first axis of `x`, whose step is some random ops on one or two states, the element of `x`
    /// and other values; all states after all steps, or some of them.
    fn recurrence(&mut self, x: UOp) -> Option<UOp> {
        let (first, steps) = (self.any(), *self.g.shape(x).first()?);
        let (dt, shape, n) = (self.g.dtype(first), self.g.shape(first).clone(), self.g.numel(first) as usize);
        let states = 1 + self.rng.below(2);
        // steps would multiply the errors of functions
        if !self.o.exact && !self.o.special {
            return None;
        }
        if self.g.numel(x) == 0 || n == 0 || states * (steps + 1) * n > self.o.max_elems {
            return None;
        }
        let mut src = vec![first];
        if states == 2 {
            let other = self.partner(first);
            src.push(if self.g.shape(other).is_empty() { self.spread(other, &shape) } else { other });
        }
        src.push(self.g.unary(Op::Contiguous, x));
        let as_long = |&y: &UOp| self.g.shape(y).first() == Some(&steps) && self.g.numel(y) > 0;
        if let Some(y) = self.pool.iter().copied().rev().find(|y| as_long(y) && *y != x) {
            src.push(self.g.unary(Op::Contiguous, y));
        }
        let sequences = src.len() - states;
        for _ in 0..self.rng.below(3) {
            let c = self.any();
            if self.g.numel(c) > 0 {
                src.push(self.g.unary(Op::Contiguous, c));
            }
        }
        let mut body = Graph::new();
        let mut pool: Vec<UOp> = Vec::new();
        for (slot, &s) in src.iter().enumerate() {
            let is_sequence = (states..states + sequences).contains(&slot);
            let own: Shape = self.g.shape(s).iter().skip(usize::from(is_sequence)).copied().collect();
            let param = body.param(slot as u32, self.g.dtype(s), own.iter().product());
            pool.push(body.reshape(param, &own));
        }
        // recent values are used more often, so states come last
        pool.rotate_left(states);
        let mut step = Maker { rng: Rng(self.rng.bits()), g: body, pool, buffers: Vec::new(), o: self.o };
        let own = step.pool[step.pool.len() - states..].to_vec();
        for _ in 0..2 + step.rng.below(6) {
            let x = step.any();
            let kind = step.rng.below(20);
            let made = if kind < 15 { step.pure(kind, x) } else { step.product(x) };
            step.pool.extend(made);
        }
        let next: Vec<UOp> = own.iter().map(|&state| step.next(state, dt, &shape)).collect();
        let made = Recurrence::new(steps, states, sequences, step.g, &next).ok()?;
        let all = self.g.node(Op::Recurrence, dt, &src, Arg::Recurrence(Box::new(made)));
        let (state, from) = (self.rng.below(states), self.rng.pick(&[1, steps]));
        if self.rng.once_in(3) {
            return Some(all);
        }
        let mut part: Vec<(usize, usize)> = self.g.shape(all).iter().map(|&n| (0, n)).collect();
        (part[0], part[1]) = ((state, state + 1), (from, steps + 1));
        let part = self.g.shrink(all, &part);
        let mut whole = shape;
        if from < steps || self.rng.once_in(2) {
            whole.insert(0, steps + 1 - from);
        }
        Some(self.g.reshape(part, &whole))
    }

    /// A scalar as a tensor of a shape.
    fn spread(&mut self, x: UOp, shape: &[usize]) -> UOp {
        let ones: Shape = shape.iter().map(|_| 1).collect();
        let x = self.g.reshape(x, &ones);
        self.g.expand(x, shape)
    }

    /// Does a sum of products have one value, in whatever order it is summed up, and if products with zero are zero?
    fn has_exact_products(&self, dt: DType) -> bool {
        dt.is_int() || self.o.exact && !self.o.special && matches!(dt, DType::F32 | DType::F64)
    }

    /// The product of `x`, as a matrix, with another value as a matrix.
    fn product(&mut self, x: UOp) -> Option<UOp> {
        let (w, dt, k) = (self.any(), self.g.dtype(x), *self.g.shape(x).last()?);
        let (n, m) = (self.g.numel(x) as usize, self.g.numel(w) as usize);
        if !self.has_exact_products(dt) || n == 0 || m == 0 || !m.is_multiple_of(k) || n / k * m > 4 * self.o.max_elems
        {
            return None;
        }
        let (rows, columns) = (n / k, m / k);
        let w = self.g.cast(w, dt);
        let (x, w) = (self.small(x, dt), self.small(w, dt));
        let (x, w) = (self.g.reshape(x, &[rows, 1, k]), self.g.reshape(w, &[1, columns, k]));
        let (x, w) = (self.g.expand(x, &[rows, columns, k]), self.g.expand(w, &[rows, columns, k]));
        let xw = self.g.binary(Op::Mul, x, w);
        let sum = self.g.reduce(xw, ReduceOp::Add, &[2]);
        Some(self.g.reshape(sum, &[rows, columns]))
    }

    /// A recent value as the next one of a state. Floats stay small, so that sums in later steps are exact.
    fn next(&mut self, state: UOp, dt: DType, shape: &[usize]) -> UOp {
        let mut x = self.any();
        x = self.g.cast(x, dt);
        if self.g.shape(x).as_slice() != shape {
            let axes: Vec<u8> = (0..self.g.shape(x).len() as u8).collect();
            let n = shape.iter().product::<usize>();
            x = match self.g.numel(x) as usize {
                m if m == n => self.g.reshape(x, shape),
                0 => state,
                m if m > n => {
                    let flat = self.g.reshape(x, &[m]);
                    let flat = self.g.shrink(flat, &[(m - n, m)]);
                    self.g.reshape(flat, shape)
                }
                _ => {
                    let op = self.rng.pick(&[ReduceOp::Add, ReduceOp::Max]);
                    let sum = if axes.is_empty() { x } else { self.g.reduce(x, op, &axes) };
                    let sum = self.g.reshape(sum, &[]);
                    self.spread(sum, shape)
                }
            };
        }
        if self.rng.once_in(2) {
            x = self
                .binary(state, dt)
                .map_or(x, |y| if self.g.shape(y).as_slice() == shape { self.mixed(x, y) } else { x });
        }
        self.small(x, dt)
    }

    /// Of floats the part below 8, where there are products without fractions.
    fn small(&mut self, x: UOp, dt: DType) -> UOp {
        if !dt.is_float() {
            return x;
        }
        let (low, high) = (self.g.float(-8.0, dt), self.g.float(8.0, dt));
        let x = self.g.binary(Op::Max, x, low);
        let x = self.g.binary(Op::Min, x, high);
        if self.has_exact_products(dt) { self.g.unary(Op::Trunc, x) } else { x }
    }

    /// Two values of one dtype and shape combined; comparisons are other dtypes.
    fn mixed(&mut self, x: UOp, y: UOp) -> UOp {
        let y = self.g.cast(y, self.g.dtype(x));
        let op = self.rng.pick(&[Op::Max, Op::Min, Op::Add]);
        self.g.binary(op, x, y)
    }
}
