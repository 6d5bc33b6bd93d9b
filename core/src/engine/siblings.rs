//! Joins contractions of one value with several constants into one contraction with the constants concatenated: the
//! projections of attention, branches of 1x1 convolutions. Operations that are the same for all results (biases,
//! activations) are done once on the joined result, and each result is a slice of it.
//!
//! Only results that are stored in memory anyway take part: a result that its reader would use in the same kernel stays
//! on its own.

use super::constants::{Constants, Lens};
use crate::DType;
use crate::analysis::product::factors;
use crate::uop::{Arg, Axes, Graph, Op, ReduceOp, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most contractions that are joined into one.
const MAX_JOINED: usize = 16;

/// What contractions must have in common to be joined: the value; the axis along which their constants are
/// concatenated; the reduced axes; the shapes of the product and of the constant, with 0 for that axis; whether the
/// constant is the second factor; and the dtype.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Family {
    value: UOp,
    axis: usize,
    reduced: Axes,
    product: Lens,
    constant: Lens,
    second: bool,
    dtype: DType,
}

/// An operation that is done on all results alike.
enum Step {
    /// A reshape to this shape, in which the concatenated axis is 0, and the number of that axis.
    Reshape(Lens, usize),
    /// A binary op with one constant for each result, and the operand (0 or 1) that is the constant.
    Binary(Op, SmallVec<[UOp; 4]>, usize),
    /// A unary op.
    Unary(Op),
}

/// Contractions that become one.
struct Group {
    family: Family,
    reduces: Vec<UOp>,
    lens: Vec<usize>,
    steps: Vec<Step>,
    /// The results after all steps, and the axis along which they are slices of the joined result.
    results: Vec<UOp>,
    axis: usize,
}

/// `roots` rewritten with contractions joined. `inputs` are the buffers that are not constant.
pub fn join(g: &mut Graph, roots: &[UOp], inputs: &[u32]) -> Vec<UOp> {
    let nodes = g.value_nodes(roots);
    let mut users: FxHashMap<UOp, SmallVec<[UOp; 2]>> = FxHashMap::default();
    for &u in &nodes {
        g.value_src(u).iter().for_each(|&s| users.entry(s).or_default().push(u));
    }
    // a root is read from outside the graph too
    roots.iter().for_each(|&r| users.entry(r).or_default().extend([r, r]));
    let mut c = Constants::new(g, inputs);
    let mut families: FxHashMap<Family, usize> = FxHashMap::default();
    let mut found: Vec<(Family, Vec<UOp>)> = Vec::new();
    for &u in &nodes {
        c.learn(u);
        let Some(f) = family(&c, u) else { continue };
        let at = *families.entry(f.clone()).or_insert(found.len());
        if at == found.len() {
            found.push((f, Vec::new()));
        }
        found[at].1.push(u);
    }
    let users = Users { of: users };
    let groups: Vec<Group> = found.into_iter().filter_map(|(f, all)| group(&mut c, &users, f, all)).collect();
    if groups.is_empty() {
        return roots.to_vec();
    }
    let mut results: FxHashMap<UOp, (usize, usize)> = FxHashMap::default();
    for (i, group) in groups.iter().enumerate() {
        group.results.iter().enumerate().for_each(|(j, &t)| _ = results.insert(t, (i, j)));
    }
    let mut joined: Vec<Option<UOp>> = groups.iter().map(|_| None).collect();
    let mut map: FxHashMap<UOp, UOp> = FxHashMap::default();
    for u in nodes {
        let src: SmallVec<[UOp; 4]> = c.g.value_src(u).iter().map(|x| map[x]).collect();
        let v = match (c.g.op(u), results.get(&u)) {
            (_, Some(&(i, j))) => {
                let value = map[&groups[i].family.value];
                let whole = *joined[i].get_or_insert_with(|| build_joined(&mut c, &groups[i], value));
                slice(c.g, whole, &groups[i], j)
            }
            (Op::Detach, _) if c.g.src(u).len() > 1 => src[0],
            _ => c.g.with_src(u, &src),
        };
        map.insert(u, v);
    }
    roots.iter().map(|r| map[r]).collect()
}

/// The family of a sum of products of a value with a constant, if the constant adds exactly one axis to those of the
/// value.
fn family(c: &Constants<'_>, u: UOp) -> Option<Family> {
    let g = &*c.g;
    let Arg::Reduce(_, reduced) = g.arg(u) else { return None };
    let (product, pair) = (g.src_at(u, 0), factors(g, u)?);
    if c.is(product) {
        return None;
    }
    let second = c.is(pair[1]);
    let (value, weight) = (pair[!second as usize], pair[second as usize]);
    // constants computed from integers stay as packed as they are
    if !c.is_of_floats(weight) || g.op(value) != Op::Expand {
        return None;
    }
    let value = g.src_at(value, 0);
    let shape = g.shape(product);
    let mut constant = c.least(weight, shape);
    let own = |i: &usize| constant[*i] > 1 && g.shape(value)[*i] == 1 && !reduced.contains(&(*i as u8));
    let axis = (0..shape.len()).find(own)?;
    if (axis + 1..shape.len()).any(|i| own(&i)) || c.is_scalar(weight) {
        return None;
    }
    let mut product = shape.clone();
    (product[axis], constant[axis]) = (0, 0);
    Some(Family { value, axis, reduced: reduced.clone(), product, constant, second, dtype: g.dtype(u) })
}

struct Users {
    of: FxHashMap<UOp, SmallVec<[UOp; 2]>>,
}

impl Users {
    /// The user of a node that is used exactly once.
    fn only(&self, u: UOp) -> Option<UOp> {
        match self.of.get(&u).map(|l| &l[..]) {
            Some(&[one]) => Some(one),
            _ => None,
        }
    }

    /// Is a value stored in memory in any case? It is if it has several readers, or if a contraction reads it;
    /// otherwise its only reader may well use it in the same kernel.
    fn is_stored(&self, g: &Graph, u: UOp) -> bool {
        let below = |mut at: UOp| loop {
            match self.only(at) {
                Some(user) if g.op(user).is_movement() => at = user,
                user => return user,
            }
        };
        match below(u) {
            Some(user) if g.op(user) == Op::Mul => below(user).is_some_and(|r| g.op(r) == Op::Reduce),
            Some(user) => !g.op(user).is_alu(),
            None => true,
        }
    }
}

/// Those members of a family for which joining pays; `None` if fewer than two are left.
fn group(c: &mut Constants<'_>, users: &Users, family: Family, mut all: Vec<UOp>) -> Option<Group> {
    let weight = |c: &Constants<'_>, u: UOp| c.g.src_at(c.g.src_at(u, 0), family.second as usize);
    all.retain(|&u| read_once(c.g, users, weight(c, u)));
    all.truncate(MAX_JOINED);
    while all.len() > 1 {
        let (steps, results, axis) = shared_steps(c, users, &all, family.axis);
        let before = all.len();
        let stored: Vec<bool> = results.iter().map(|&t| users.is_stored(c.g, t)).collect();
        let mut keep = stored.iter();
        all.retain(|_| keep.next().copied().unwrap_or(false));
        if all.len() == before {
            let lens = all.iter().map(|&u| c.g.shape(c.g.src_at(u, 0))[family.axis]).collect();
            return Some(Group { family, reduces: all, lens, steps, results, axis });
        }
    }
    None
}

/// Does a constant have a single reader, down to the node that computes it?
fn read_once(g: &Graph, users: &Users, mut u: UOp) -> bool {
    while users.only(u).is_some() {
        if !g.op(u).is_movement() {
            return true;
        }
        u = g.src_at(u, 0);
    }
    false
}

/// The operations that follow all results alike, the nodes after them, and the axis along which those are slices.
fn shared_steps(c: &mut Constants<'_>, users: &Users, all: &[UOp], mut axis: usize) -> (Vec<Step>, Vec<UOp>, usize) {
    let (mut steps, mut results) = (Vec::new(), all.to_vec());
    loop {
        let next: Option<Vec<UOp>> = results.iter().map(|&t| users.only(t)).collect();
        let Some((next, step)) = next.and_then(|n| step(c, &results, &n, axis).map(|s| (n, s))) else {
            return (steps, results, axis);
        };
        if let Step::Reshape(_, to) = step {
            axis = to;
        }
        steps.push(step);
        results = next;
    }
}

/// The operation that leads from `results` to their only users, if it is the same for all.
fn step(c: &mut Constants<'_>, results: &[UOp], next: &[UOp], axis: usize) -> Option<Step> {
    let g = &*c.g;
    let first = next[0];
    let op = g.op(first);
    if next.iter().any(|&u| g.op(u) != op || g.dtype(u) != g.dtype(first)) {
        return None;
    }
    if op == Op::Reshape {
        let mut to: Option<(Lens, usize)> = None;
        for (&t, &u) in results.iter().zip(next) {
            let (old, mut new) = (g.shape(t), g.shape(u).clone());
            let before: usize = old[..axis].iter().product();
            let fits = |i: &usize| new[..*i].iter().product::<usize>() == before && new[*i] == old[axis];
            let at = (0..new.len()).find(fits)?;
            new[at] = 0;
            if to.get_or_insert_with(|| (new.clone(), at)) != &(new, at) {
                return None;
            }
        }
        let (shape, at) = to?;
        return Some(Step::Reshape(shape, at));
    }
    if op.is_unary() {
        return (!matches!(op, Op::Cast | Op::Bitcast)).then_some(Step::Unary(op));
    }
    if !op.is_binary() || results.iter().zip(next).any(|(&t, &u)| g.shape(t) != g.shape(u)) {
        return None;
    }
    let side = g.src(first).iter().position(|&s| s != results[0])?;
    let same = |(&t, &u): (&UOp, &UOp)| g.src_at(u, 1 - side) == t && c.is(g.src_at(u, side));
    if !results.iter().zip(next).all(same) {
        return None;
    }
    let with: SmallVec<[UOp; 4]> = next.iter().map(|&u| g.src_at(u, side)).collect();
    let scalars = with.iter().filter(|&&w| c.is_scalar(w)).count();
    let equal = scalars == with.len() && with.iter().all(|&w| w == with[0]);
    (equal || scalars == 0).then_some(Step::Binary(op, with, side))
}

/// Builds the joined contraction of a group and the operations that follow it.
fn build_joined(c: &mut Constants<'_>, group: &Group, value: UOp) -> UOp {
    let f = &group.family;
    let n: usize = group.lens.iter().sum();
    let mut shape = f.product.clone();
    shape[f.axis] = n;
    let weights: SmallVec<[UOp; 4]> =
        group.reduces.iter().map(|&u| c.g.src_at(c.g.src_at(u, 0), f.second as usize)).collect();
    let weight = side_by_side(c, &weights, f.axis, &shape);
    let value = c.g.expand(value, &shape);
    let pair = if f.second { [value, weight] } else { [weight, value] };
    let product = c.g.binary(Op::Mul, pair[0], pair[1]);
    let mut y = c.g.reduce(product, ReduceOp::Add, &f.reduced);
    let mut axis = f.axis;
    for step in &group.steps {
        y = match step {
            Step::Reshape(shape, to) => {
                axis = *to;
                let mut shape = shape.clone();
                shape[axis] = n;
                c.g.reshape(y, &shape)
            }
            Step::Unary(op) => c.g.unary(*op, y),
            Step::Binary(op, list, side) => {
                let shape = c.g.shape(y).clone();
                let with = if c.is_scalar(list[0]) { list[0] } else { side_by_side(c, list, axis, &shape) };
                let pair = if *side == 1 { [y, with] } else { [with, y] };
                c.g.binary(*op, pair[0], pair[1])
            }
        };
    }
    y
}

/// Concatenates constants along an axis at the smallest shape that holds them, then expands the result to `shape`.
fn side_by_side(c: &mut Constants<'_>, list: &[UOp], axis: usize, shape: &[usize]) -> UOp {
    let mut least: Lens = shape.iter().map(|&n| n.min(1)).collect();
    for &w in list {
        let own = c.least(w, c.g.shape(w));
        least.iter_mut().zip(&own).for_each(|(a, &b)| *a = b.max(*a));
    }
    let mut sum: Option<UOp> = None;
    let mut at = 0;
    for &w in list {
        let n = c.g.shape(w)[axis];
        least[axis] = n;
        let small = c.narrowed(w, &least).unwrap_or(w);
        let mut pairs: SmallVec<[(usize, usize); 6]> = least.iter().map(|_| (0, 0)).collect();
        pairs[axis] = (at, shape[axis] - at - n);
        let part = c.g.pad(small, &pairs);
        sum = Some(sum.map_or(part, |s| c.g.binary(Op::Add, s, part)));
        at += n;
    }
    least[axis] = shape[axis];
    let sum = sum.unwrap_or(list[0]);
    c.g.expand(sum, shape)
}

fn slice(g: &mut Graph, whole: UOp, group: &Group, j: usize) -> UOp {
    let mut pairs: SmallVec<[(usize, usize); 6]> = g.shape(whole).iter().map(|&n| (0, n)).collect();
    let at: usize = group.lens[..j].iter().sum();
    pairs[group.axis] = (at, at + group.lens[j]);
    g.shrink(whole, &pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scale::tests::{buffer, channels, matmul, values};

    fn contractions(g: &Graph, u: UOp) -> usize {
        g.value_nodes(&[u]).into_iter().filter(|&u| g.op(u) == Op::Reduce).count()
    }

    /// Three projections of one value, each with a bias if `bias`, and their readers: a product of the first two,
    /// multiplied with the third.
    fn attention(g: &mut Graph, widths: [usize; 3], bias: bool) -> UOp {
        let x = buffer(g, 0, &[5, 6]);
        let mut all: SmallVec<[UOp; 3]> = SmallVec::new();
        for (i, n) in widths.into_iter().enumerate() {
            let w = buffer(g, 1 + i as u32, &[6, n]);
            let y = matmul(g, x, w);
            let b = buffer(g, 4 + i as u32, &[n]);
            let b = channels(g, b, 5);
            all.push(if bias { g.binary(Op::Add, b, y) } else { y });
        }
        let k = g.permute(all[1], &[1, 0]);
        let scores = matmul(g, all[0], k);
        matmul(g, scores, all[2])
    }

    #[test]
    fn projections_of_one_value_are_one_contraction() {
        for bias in [false, true] {
            let mut g = Graph::new();
            let y = attention(&mut g, [4, 4, 3], bias);
            let want = values(&g, y);
            let new = join(&mut g, &[y], &[0])[0];
            assert_eq!((contractions(&g, y), contractions(&g, new)), (5, 3));
            // biases too are added once
            let adds = |g: &Graph, u: UOp| {
                let of_input =
                    |u: &UOp| g.reachable(&[*u]).iter().any(|&x| matches!(g.arg(x), Arg::Buffer { id: 0, .. }));
                g.value_nodes(&[u]).into_iter().filter(|&u| g.op(u) == Op::Add && of_input(&u)).count()
            };
            assert_eq!((adds(&g, y), adds(&g, new)), (3 * bias as usize, bias as usize));
            assert_eq!(values(&g, new), want);
        }
    }

    #[test]
    fn what_its_reader_goes_on_with_stays_alone() {
        let mut g = Graph::new();
        let x = buffer(&mut g, 0, &[5, 6]);
        let (a, b) = (buffer(&mut g, 1, &[6, 4]), buffer(&mut g, 2, &[6, 4]));
        let (a, b) = (matmul(&mut g, x, a), matmul(&mut g, x, b));
        let gated = g.binary(Op::Mul, a, b);
        assert_eq!(join(&mut g, &[gated], &[0]), [gated]);
        // weights that are inputs are not constant
        let y = attention(&mut g, [4, 4, 3], false);
        assert_eq!(join(&mut g, &[y], &[0, 1, 2, 3]), [y]);
    }
}
