//! Attention in one kernel: `softmax(scores) v`, in which the scores are sums of products themselves. In: a kernel of the scheduler, in which the
//! maximum of a row, the sum of its exponentials and the sum of products with the values are three reductions, each over all keys and each with
//! the scores computed anew. Out: which loop is what, so that code generation makes one loop over keys of the three
//! (`codegen/attention.rs`).
//!
//! What is between the sum of products and the exponential (a factor, a mask, a comparison of places) may be anything elementwise.

use super::product::{is_half, sides, terms_of};
use crate::DType;
use crate::target::{MatrixTile, Target};
use crate::uop::mma::{Digit, Side};
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, UOp};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Nodes of a score that are looked at.
const MOST_NODES: usize = 400;
/// Columns of values, and terms of a score, for which there are registers.
const MOST_COLUMNS: usize = 128;
/// Elements after each row in workgroup memory.
const ROW_PADDING: usize = 8;

/// The parts of a kernel that is attention.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The sum over keys of weights times values.
    pub sum: UOp,
    /// The sum over keys of exponentials.
    pub norm: UOp,
    /// The largest score of a row.
    pub max: UOp,
    /// The exponential of a score below the maximum, for the loop over keys of `sum`.
    pub exp: UOp,
    /// The score in it.
    pub score: UOp,
    /// The sum of products in the score.
    pub product: UOp,
    /// The exponential with what it is multiplied by, as `sum` multiplies it with a value.
    pub weight: UOp,
    /// What multiplies the exponential in a weight, the same for all keys.
    pub factors: SmallVec<[UOp; 2]>,
    /// What queries, keys and values are loaded by.
    pub loads: [UOp; 3],
    /// What products of queries and keys are multiplied by, and those with values.
    pub scales: [f64; 2],
    /// The loops over queries, over the keys of `sum`, over what `product` sums over, and over the columns of the values.
    pub axes: [UOp; 4],
}

impl Attention {
    /// How many queries, keys, terms of a score and columns there are.
    pub fn lens(&self, g: &Graph) -> [usize; 4] {
        self.axes.map(|r| g.range_len(r))
    }
}

/// The parts of a kernel, if it is attention whose factors are floats of 16 bits as they lie in memory.
pub fn find(g: &Graph, sink: UOp) -> Option<Attention> {
    let &[store] = g.src(sink) else { return None };
    if g.op(store) != Op::Store || g.src(store).len() != 2 {
        return None;
    }
    let nodes = g.reachable(&[store]);
    let reduces: SmallVec<[UOp; 8]> = nodes.iter().copied().filter(|&u| g.op(u) == Op::Reduce).collect();
    let one_axis = |u: UOp| matches!(g.src(u), [_, r] if g.op(*r) == Op::Range);
    if reduces.len() != 6 || !reduces.iter().all(|&u| one_axis(u)) {
        return None;
    }
    let max = only(reduces.iter().copied().filter(|&u| matches!(g.arg(u), Arg::Reduce(ReduceOp::Max, _))))?;
    let mut found: Option<Attention> = None;
    for &sum in reduces.iter().filter(|&&u| u != max) {
        if let Some(a) = weighted(g, sum, max) {
            if found.is_some() {
                return None;
            }
            found = Some(a);
        }
    }
    let mut a = found?;
    // the sum of exponentials, and the maximum, are of the same scores
    let key = a.axes[1];
    a.norm = only(reduces.iter().copied().filter(|&u| {
        u != a.sum && u != max && {
            let mut pairs = Pairs::new(g, key, g.src_at(u, 1));
            matches!(g.arg(u), Arg::Reduce(ReduceOp::Add, _)) && pairs.same(a.exp, g.src_at(u, 0))
        }
    }))?;
    if !Pairs::new(g, key, g.src_at(max, 1)).same(a.score, g.src_at(max, 0)) {
        return None;
    }
    // nobody else asks for the maximum
    let below = |u: &UOp| g.op(*u) == Op::Sub && g.src_at(*u, 1) == max && g.src_at(*u, 0) != max;
    let asked = nodes.iter().filter(|&&u| g.src(u).contains(&max));
    let inside = |x: UOp| g.reachable(&[g.src_at(a.norm, 0), a.exp]).contains(&x);
    (asked.clone().count() == 2 && asked.clone().all(|u| below(u) && inside(*u))).then_some(a)
}

fn only(mut all: impl Iterator<Item = UOp>) -> Option<UOp> {
    all.next().filter(|_| all.next().is_none())
}

/// The parts that the sum of weighted values shows.
fn weighted(g: &Graph, sum: UOp, max: UOp) -> Option<Attention> {
    let terms = terms_of(g, sum).filter(|t| t.gate.is_none())?;
    let key = g.src_at(sum, 1);
    let plain = |u: UOp| g.op(u) == Op::Load && g.src(u).len() == 1 && is_half(g.dtype(u));
    let (weight, value) = match terms.pair {
        [a, b] if plain(b) && !plain(a) => (a, b),
        [a, b] if plain(a) && !plain(b) => (b, a),
        _ => return None,
    };
    if g.dtype(weight) != g.dtype(value) {
        return None;
    }
    let mut factors = SmallVec::new();
    let mut exp = weight;
    loop {
        exp = match (g.op(exp), g.src(exp)) {
            (Op::Cast, &[x]) if g.dtype(x) == DType::F32 => x,
            (Op::Mul, &[x, y]) if !g.depends(y, key) => {
                factors.push(y);
                x
            }
            (Op::Mul, &[y, x]) if !g.depends(y, key) => {
                factors.push(y);
                x
            }
            (Op::Exp2, _) => break,
            _ => return None,
        };
    }
    let power = g.src_at(exp, 0);
    let (shifted, by) = (g.op(power) == Op::Mul).then(|| (g.src_at(power, 0), g.src_at(power, 1)))?;
    let positive = g.const_val(by).is_some_and(|c| c.as_f64() > 0.0);
    if g.op(shifted) != Op::Sub || g.src_at(shifted, 1) != max || !positive || g.dtype(exp) != DType::F32 {
        return None;
    }
    let score = g.src_at(shifted, 0);
    let inside = g.reachable(&[score]);
    if inside.len() > MOST_NODES {
        return None;
    }
    let product = only(inside.iter().copied().filter(|&u| g.op(u) == Op::Reduce))?;
    let scores = terms_of(g, product).filter(|t| t.gate.is_none() && t.pair.iter().all(|&u| plain(u)))?;
    let (query, keys) = match scores.pair {
        [a, b] if g.depends(b, key) && !g.depends(a, key) => (a, b),
        [a, b] if g.depends(a, key) && !g.depends(b, key) => (b, a),
        _ => return None,
    };
    if [query, keys].iter().any(|&u| g.dtype(u) != g.dtype(value)) {
        return None;
    }
    let loops: Vec<UOp> = g.reachable(&[sum]).into_iter().filter(|&u| g.op(u) == Op::Range).collect();
    let loops: Vec<UOp> = loops.into_iter().filter(|&r| g.kind(r) == AxisKind::Loop).collect();
    let [rows, _] = sides(g, &loops, [g.ranges(query), g.ranges(keys)]).own;
    // several are heads that share keys, and queries: the longest
    let row = rows.into_iter().max_by_key(|&r| g.range_len(r))?;
    let [_, columns] = sides(g, &loops, [g.ranges(weight), g.ranges(value)]).own;
    let &[column] = columns.as_slice() else { return None };
    let right = g.depends(value, key) && !g.depends(value, row) && !g.depends(weight, column);
    right.then_some(Attention {
        sum,
        norm: sum,
        max,
        exp,
        score,
        product,
        weight,
        factors,
        loads: [query, keys, value],
        scales: [scores.scale, terms.scale],
        axes: [row, key, g.src_at(product, 1), column],
    })
}

/// The tile that both products of the kernel use, where the target has one: threads hold what it multiplies, and a product lies in their
/// registers as the left factor of the next one does, its columns being what that sums over.
pub fn tile<'a>(g: &Graph, a: &Attention, t: &'a Target) -> Option<&'a MatrixTile> {
    let fits = |tile: &&MatrixTile| {
        let l = &tile.layout;
        let turned = |d: &Digit| if d.side == Side::N { Digit { side: Side::K, ..*d } } else { *d };
        let threads = l.c.threads.iter().map(turned).eq(l.a.threads.iter().copied());
        let (own, more) = l.a.registers.split_at(l.c.registers.len().min(l.a.registers.len()));
        // what is left are further products side by side
        let mut step = l.len(Side::N);
        let beside = more.iter().all(|d| {
            let next = d.side == Side::K && d.step as usize == step;
            step *= d.len as usize;
            next
        });
        let held = !l.in_memory() && tile.sums == DType::F32 && tile.factors == g.dtype(a.loads[0]);
        held && threads && beside && l.c.registers.iter().map(turned).eq(own.iter().copied())
    };
    t.matrix_tiles.iter().find(fits).filter(|tile| t.has_local && tile.layout.threads() == t.subgroup as usize)
}

/// Keys of a block of the loop, whose keys and values have room in workgroup memory: there are two blocks at least.
pub fn block(g: &Graph, a: &Attention, t: &Target, tile: &MatrixTile) -> Option<usize> {
    let ([_, keys, terms, columns], step) = (a.lens(g), tile.layout.len(Side::K));
    // without copies that go on by themselves an element may be a word
    let size = if t.copies.is_some() { 2 } else { 4 };
    let fits = |n: usize| n * (terms + columns + 2 * ROW_PADDING) * size <= t.workgroup_bytes;
    [64, 32, 16].into_iter().find(|&n| n < keys && n % step == 0 && fits(n))
}

/// Does the kernel become one loop over keys on this target? Its rows are many enough for a tile, and a thread has registers for the columns.
pub fn pays(g: &Graph, a: &Attention, t: &Target) -> bool {
    let Some(tile) = tile(g, a, t) else { return false };
    let ([m, n, k], [rows, _, terms, columns]) = (tile.sides(), a.lens(g));
    let wide = columns.is_multiple_of(n) && columns <= MOST_COLUMNS && terms.is_multiple_of(k) && terms <= MOST_COLUMNS;
    let store = g.reachable(&[a.sum]);
    let outer = store.into_iter().filter(|&r| g.op(r) == Op::Range && g.kind(r) == AxisKind::Loop && r != a.axes[3]);
    let all_rows = outer.into_iter().all(|r| g.depends(a.product, r));
    wide && rows >= m && block(g, a, t, tile).is_some() && all_rows
}

/// Two expressions are compared, of which one has other loops in the place of some.
struct Pairs<'a> {
    g: &'a Graph,
    loops: SmallVec<[(UOp, UOp); 4]>,
    known: FxHashSet<(UOp, UOp)>,
    /// Comparisons that may still be made.
    left: usize,
}

impl<'a> Pairs<'a> {
    fn new(g: &'a Graph, a: UOp, b: UOp) -> Pairs<'a> {
        Pairs { g, loops: SmallVec::from_slice(&[(a, b)]), known: FxHashSet::default(), left: 4 * MOST_NODES }
    }

    /// Does `b` compute for its loops what `a` does for its own?
    fn same(&mut self, a: UOp, b: UOp) -> bool {
        let g = self.g;
        if self.known.contains(&(a, b)) {
            return true;
        }
        let (x, y) = (g.src(a), g.src(b));
        self.left = self.left.saturating_sub(1);
        let equal = match (g.op(a), g.op(b)) {
            _ if self.left == 0 => false,
            (Op::Range, Op::Range) => {
                let paired = self.loops.iter().any(|&p| p == (a, b));
                paired || a == b && !self.loops.iter().any(|p| p.0 == a || p.1 == b)
            }
            (p, q) if p != q || g.dtype(a) != g.dtype(b) || g.arg(a) != g.arg(b) || x.len() != y.len() => false,
            (Op::Reduce, _) => {
                let lens = |s: &[UOp]| s[1..].iter().map(|&r| g.range_len(r)).collect::<SmallVec<[usize; 4]>>();
                if lens(x) != lens(y) {
                    return false;
                }
                self.loops.extend(x[1..].iter().copied().zip(y[1..].iter().copied()));
                self.same(x[0], y[0])
            }
            (op, _) => {
                let straight = x.iter().zip(y).all(|(&p, &q)| self.same(p, q));
                straight || op.is_commutative() && self.same(x[0], y[1]) && self.same(x[1], y[0])
            }
        };
        if equal {
            self.known.insert((a, b));
        }
        equal
    }
}
