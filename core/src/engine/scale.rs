//! Moves factors of results into the constants from which the results are computed: a batch normalisation after a
//! convolution, or the scale of attention scores, becomes part of the weights and costs nothing per result.
//!
//! A multiplication by a constant is pushed down through sums, movement ops and contractions, as long as each node on
//! the way has one reader, until it reaches a constant on every path. This only applies to floats, since sums of
//! products are reassociated as everywhere (`ARCHITECTURE.md`); constants computed from integers (quantised weights)
//! stay as they are. Example: `sum(x * w) * c` becomes `sum(x * (w * c))`, where `w * c` is computed once.

use super::constants::{Constants, Lens};
use crate::rules::simplify;
use crate::uop::{Arg, Axes, Graph, Op, ReduceOp, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most nodes through which one factor is pushed.
const MOST_NODES: usize = 64;
/// A constant of at least this many elements is not scaled if something else reads it too, because both versions would
/// then be kept.
const MAX_DUPLICATED_ELEMS: usize = 1024;

/// `roots` rewritten with as few multiplications as possible. `inputs` are the buffers that are not constant.
pub fn into_constants(g: &mut Graph, roots: &[UOp], inputs: &[u32]) -> Vec<UOp> {
    let nodes = g.value_nodes(roots);
    let mut users: FxHashMap<UOp, u32> = FxHashMap::default();
    for &u in &nodes {
        g.value_src(u).iter().for_each(|&s| *users.entry(s).or_default() += 1);
    }
    roots.iter().for_each(|&r| *users.entry(r).or_default() += 1);
    let mut s = Scales { c: Constants::new(g, inputs), users, budget: 0, weighted: None };
    let rounded = rounded(s.c.g, &nodes);
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in nodes {
        let src: SmallVec<[UOp; 4]> = s.c.g.value_src(u).iter().map(|x| map[x]).collect();
        let mut v = match s.c.g.op(u) {
            Op::Detach if s.c.g.src(u).len() > 1 => src[0],
            _ => s.c.g.with_src(u, &src),
        };
        let n = s.users.get(&u).copied().unwrap_or(1);
        s.users.entry(v).or_insert(n);
        s.c.learn(v);
        if !rounded[u.0 as usize]
            && let Some(x) = s.scaled(v)
        {
            s.users.insert(x, n);
            v = x;
        }
        map.insert(u, v);
    }
    roots.iter().map(|r| map[r]).collect()
}

/// For each node: does its value reach a conversion to integers with only elementwise and movement ops between? There
/// the last bit of a product may decide the result, so such nodes are not rewritten.
fn rounded(g: &Graph, nodes: &[UOp]) -> Vec<bool> {
    let mut out = vec![false; g.len()];
    for &u in nodes.iter().rev() {
        let rounds = g.op(u) == Op::Trunc || g.op(u) == Op::Cast && !g.dtype(u).is_float();
        if rounds || out[u.0 as usize] && (g.op(u).is_alu() || g.op(u).is_movement()) {
            g.value_src(u).iter().for_each(|s| out[s.0 as usize] = true);
        }
    }
    out
}

struct Scales<'a> {
    c: Constants<'a>,
    users: FxHashMap<UOp, u32>,
    budget: usize,
    /// The product with weights below the reduction that is being passed, which makes it a contraction.
    weighted: Option<UOp>,
}

impl Scales<'_> {
    /// If `u` is the product or quotient of a value and a constant: the value with the constant moved into it.
    fn scaled(&mut self, u: UOp) -> Option<UOp> {
        if !self.c.g.dtype(u).is_float() || self.c.is(u) {
            return None;
        }
        let (x, c) = match (self.c.g.op(u), self.c.g.src(u)) {
            (Op::Mul | Op::Div, &[x, c]) if self.c.is(c) => (x, c),
            (Op::Mul, &[c, x]) if self.c.is(c) => (x, c),
            _ => return None,
        };
        if !self.c.is_of_floats(c) || self.c.g.shape(x) != self.c.g.shape(u) {
            return None;
        }
        let factor = match self.c.g.op(u) {
            Op::Div => {
                let inverse = self.c.g.unary(Op::Recip, c);
                self.number(inverse)
            }
            _ => c,
        };
        // keep the product of factor and weight about as far from infinity and zero as the weight is
        let most = f64::from(1u32 << 30);
        if self.c.g.const_val(factor).is_some_and(|v| !(most.recip()..=most).contains(&v.as_f64().abs())) {
            return None;
        }
        (self.budget, self.weighted) = (MOST_NODES, None);
        self.absorbed(x, factor)
    }

    /// `x * factor`, computed by the operations of `x` with other constants. The factor has the shape of `x`, or is a
    /// scalar.
    fn absorbed(&mut self, x: UOp, factor: UOp) -> Option<UOp> {
        self.budget = self.budget.checked_sub(1)?;
        if self.c.is(x) {
            return self.product(x, factor);
        }
        if self.users.get(&x).copied().unwrap_or(1) != 1 || self.c.g.dtype(x) != self.c.g.dtype(factor) {
            return None;
        }
        let src = self.c.g.srcs(x);
        let shape = |s: &Self, u: UOp| s.c.g.shape(u).clone();
        let made = match (self.c.g.op(x), self.c.g.arg(x).clone()) {
            (Op::Reshape, Arg::Shape(s)) => {
                let down = self.c.reshaped(factor, &shape(self, src[0]));
                let y = self.absorbed(src[0], down)?;
                self.c.g.reshape(y, &s)
            }
            (Op::Permute, Arg::Axes(axes)) => {
                let mut back: Axes = axes.clone();
                axes.iter().enumerate().for_each(|(i, &a)| back[a as usize] = i as u8);
                let down = if self.c.is_scalar(factor) { factor } else { self.c.g.permute(factor, &back) };
                self.c.learn(down);
                let y = self.absorbed(src[0], down)?;
                self.c.g.permute(y, &axes)
            }
            (Op::Flip, Arg::Axes(axes)) => {
                let down = if self.c.is_scalar(factor) { factor } else { self.c.g.flip(factor, &axes) };
                self.c.learn(down);
                let y = self.absorbed(src[0], down)?;
                self.c.g.flip(y, &axes)
            }
            (Op::Expand, Arg::Shape(s)) => {
                let down = self.c.narrowed(factor, &shape(self, src[0]))?;
                let y = self.absorbed(src[0], down)?;
                self.c.g.expand(y, &s)
            }
            (Op::Reduce, Arg::Reduce(ReduceOp::Add, axes)) => {
                let down = self.c.expanded(factor, &shape(self, src[0]));
                self.weighted = self.is_weighted(src[0], &axes).then_some(src[0]);
                let y = self.absorbed(src[0], down)?;
                self.c.g.with_src(x, &[y])
            }
            (Op::Neg, _) => {
                let y = self.absorbed(src[0], factor)?;
                self.c.g.unary(Op::Neg, y)
            }
            (Op::Add | Op::Sub, _) => {
                let y = self.absorbed(src[0], factor)?;
                let z = self.absorbed(src[1], factor)?;
                self.c.g.with_src(x, &[y, z])
            }
            // other products with constants stay: something that rounds their result may depend on the last bit
            (Op::Mul, _) if (self.c.is(src[0]) || self.c.is(src[1])) && self.weighted != Some(x) => return None,
            // one operand of a product is scaled: the constant one, if there is one
            (Op::Mul, _) => {
                let first = self.c.is(src[0]) || !self.c.is(src[1]);
                let (i, j) = if first { (0, 1) } else { (1, 0) };
                let either = |s: &mut Self, i: usize| Some((i, s.absorbed(src[i], factor)?));
                let alone = self.c.is(src[i]);
                let (i, y) = either(self, i).or_else(|| if alone { None } else { either(self, j) })?;
                let pair = if i == 0 { [y, src[1]] } else { [src[0], y] };
                self.c.g.with_src(x, &pair)
            }
            _ => return None,
        };
        Some(self.c.learn(made))
    }

    /// Is it a product with a constant that varies along a reduced axis?
    fn is_weighted(&self, u: UOp, axes: &Axes) -> bool {
        let shape = self.c.g.shape(u);
        let differs = |&c: &UOp| self.c.is(c) && axes.iter().any(|&a| self.c.least(c, shape)[a as usize] > 1);
        self.c.g.op(u) == Op::Mul && self.c.g.src(u).iter().any(differs)
    }

    /// The product of two constants, computed at the smallest shape that has all of it. `None` if it would be larger
    /// than the larger of the two, or if `x` is large and read elsewhere too.
    fn product(&mut self, x: UOp, factor: UOp) -> Option<UOp> {
        if self.c.g.dtype(x) != self.c.g.dtype(factor) || !self.c.is_of_floats(x) {
            return None;
        }
        if self.c.is_scalar(x) && self.c.is_scalar(factor) {
            let y = self.c.g.binary(Op::Mul, x, factor);
            return Some(self.number(y));
        }
        let whole = self.c.g.shape(if self.c.is_scalar(x) { factor } else { x }).clone();
        let (a, b) = (self.c.least(x, &whole), self.c.least(factor, &whole));
        let both: Lens = a.iter().zip(&b).map(|(x, y)| *x.max(y)).collect();
        let size = |s: &[usize]| s.iter().product::<usize>();
        if size(&both) > size(&a).max(size(&b)) || size(&a) >= MAX_DUPLICATED_ELEMS && !self.read_once(x) {
            return None;
        }
        let (x, factor) = (self.c.narrowed(x, &a)?, self.c.narrowed(factor, &b)?);
        let (x, factor) = (self.c.expanded(x, &both), self.c.expanded(factor, &both));
        let y = self.c.g.binary(Op::Mul, x, factor);
        self.c.learn(y);
        Some(self.c.expanded(y, &whole))
    }

    /// Folds an operation on numbers to a number; other operations on constants stay as they are.
    fn number(&mut self, u: UOp) -> UOp {
        let all = self.c.g.src(u).iter().all(|&s| self.c.g.op(s) == Op::Const);
        let u = if all { simplify(self.c.g, u) } else { u };
        self.c.learn(u)
    }

    /// Is this the only reader of a constant, down to the node that computes it?
    fn read_once(&self, mut u: UOp) -> bool {
        loop {
            if self.users.get(&u).copied().unwrap_or(1) != 1 {
                return false;
            }
            if !self.c.g.op(u).is_movement() {
                return true;
            }
            u = self.c.g.src_at(u, 0);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::uop::eval::eval_tensor;

    /// The value of `u` where buffers hold different small numbers; buffer 0 is the input.
    pub(crate) fn values(g: &Graph, u: UOp) -> Vec<f32> {
        let lens: FxHashMap<u32, usize> = g
            .iter()
            .filter_map(|u| match g.arg(u) {
                Arg::Buffer { id, len } => Some((*id, *len)),
                _ => None,
            })
            .collect();
        let bytes = |id: u32| -> Option<Vec<u8>> {
            let number = |i: usize| ((i * 7 + id as usize * 5) % 11) as f32 * 0.25 + 0.5;
            Some((0..*lens.get(&id)?).flat_map(|i| number(i).to_le_bytes()).collect())
        };
        let out = eval_tensor(g, &[u], &mut { bytes }, &|_| None).unwrap();
        out[0].data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    pub(crate) fn buffer(g: &mut Graph, id: u32, shape: &[usize]) -> UOp {
        let b = g.node(Op::Buffer, F32, &[], Arg::Buffer { id, len: shape.iter().product() });
        g.reshape(b, shape)
    }

    /// `[rows, n] x [n, cols] -> [rows, cols]`
    pub(crate) fn matmul(g: &mut Graph, x: UOp, w: UOp) -> UOp {
        let (m, k, n) = (g.shape(x)[0], g.shape(x)[1], g.shape(w)[1]);
        let (x, w) = (g.reshape(x, &[m, 1, k]), g.permute(w, &[1, 0]));
        let w = g.reshape(w, &[1, n, k]);
        let (x, w) = (g.expand(x, &[m, n, k]), g.expand(w, &[m, n, k]));
        let p = g.binary(Op::Mul, x, w);
        let r = g.reduce(p, ReduceOp::Add, &[2]);
        g.reshape(r, &[m, n])
    }

    pub(crate) fn channels(g: &mut Graph, v: UOp, rows: usize) -> UOp {
        let n = g.memory_len(v);
        let v = g.reshape(v, &[1, n]);
        g.expand(v, &[rows, n])
    }

    /// Number of products and quotients that are computed in every run.
    fn products(g: &Graph, u: UOp) -> usize {
        let mut varying = rustc_hash::FxHashSet::default();
        for u in g.value_nodes(&[u]) {
            let input = matches!(g.arg(u), Arg::Buffer { id: 0, .. });
            if input || g.src(u).iter().any(|s| varying.contains(s)) {
                varying.insert(u);
            }
        }
        varying.iter().filter(|u| matches!(g.op(**u), Op::Mul | Op::Div)).count()
    }

    fn check(g: &mut Graph, u: UOp, left: usize) {
        let want = values(g, u);
        let new = into_constants(g, &[u], &[0])[0];
        assert_eq!((g.shape(u), products(g, new)), (g.shape(new), left));
        for (a, b) in values(g, new).iter().zip(&want) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
        }
    }

    #[test]
    fn the_scale_of_a_normalisation_becomes_part_of_the_weights() {
        let mut g = Graph::new();
        let (x, w) = (buffer(&mut g, 0, &[5, 6]), buffer(&mut g, 1, &[6, 4]));
        let y = matmul(&mut g, x, w);
        let vectors: Vec<UOp> = (2..6).map(|id| buffer(&mut g, id, &[4])).collect();
        let vectors: Vec<UOp> = vectors.into_iter().map(|v| channels(&mut g, v, 5)).collect();
        let y = g.binary(Op::Add, y, vectors[0]);
        let y = g.binary(Op::Sub, y, vectors[1]);
        let y = g.binary(Op::Mul, vectors[2], y);
        let y = g.binary(Op::Add, y, vectors[3]);
        check(&mut g, y, 1);
    }

    #[test]
    fn the_scale_of_scores_goes_through_a_product_of_two_projections() {
        let mut g = Graph::new();
        let x = buffer(&mut g, 0, &[5, 6]);
        let (a, b) = (buffer(&mut g, 1, &[6, 4]), buffer(&mut g, 2, &[6, 4]));
        let (q, k) = (matmul(&mut g, x, a), matmul(&mut g, x, b));
        let bias = buffer(&mut g, 3, &[4]);
        let bias = channels(&mut g, bias, 5);
        let q = g.binary(Op::Add, q, bias);
        let k = g.permute(k, &[1, 0]);
        let scores = matmul(&mut g, q, k);
        let eight = g.float(8.0, F32);
        let scores = g.binary(Op::Div, scores, eight);
        check(&mut g, scores, 3);
    }

    #[test]
    fn what_is_read_twice_or_differs_per_row_stays() {
        let mut g = Graph::new();
        let (x, w) = (buffer(&mut g, 0, &[5, 6]), buffer(&mut g, 1, &[6, 4]));
        let y = matmul(&mut g, x, w);
        let v = buffer(&mut g, 2, &[4]);
        let v = channels(&mut g, v, 5);
        let scaled = g.binary(Op::Mul, y, v);
        let both = g.binary(Op::Add, scaled, y);
        check(&mut g, both, 2);
        let rows = buffer(&mut g, 3, &[5, 1]);
        let rows = g.expand(rows, &[5, 4]);
        let scaled = g.binary(Op::Mul, y, rows);
        check(&mut g, scaled, 2);
        let integers = g.cast(w, crate::DType::I32);
        let integers = g.cast(integers, F32);
        let z = matmul(&mut g, x, integers);
        let scaled = g.binary(Op::Mul, z, v);
        check(&mut g, scaled, 2);
    }
}
