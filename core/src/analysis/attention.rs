//! Recognises attention in one kernel: `softmax(scores) v`, where the scores are sums of products themselves. In: a
//! kernel of the scheduler that has three reductions over all keys: the maximum of a row of scores, the sum of its
//! exponentials, and the sum of products with the values. Each of them computes the scores anew. Out: which node and
//! which loop plays which part ([`Attention`]), so that code generation makes one loop over keys of the three
//! (`codegen/attention.rs`).
//!
//! Between the sum of products and the exponential there may be any elementwise ops (a factor, a mask, a comparison of
//! positions). Whether a target computes it in one loop, and how, is decided in [`fit`].

mod fit;

use super::product::{sides, terms_of};
use crate::DType;
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, UOp};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::sync::OnceLock;

pub use fit::{Panels, Registers, Strategy, block, choose_strategy};

/// The most nodes of the expression for a score; a larger one is not taken for attention.
const MOST_NODES: usize = 400;

/// The parts of a kernel that is attention.
#[derive(Clone, Debug)]
pub struct Attention {
    /// The sum over keys of weights times values.
    pub sum: UOp,
    /// The sum over keys of exponentials.
    pub norm: UOp,
    /// The largest score of a row.
    pub max: UOp,
    /// The exponential of a score minus the maximum, as a node of the key loop of `sum`.
    pub exp: UOp,
    /// The score in `exp`.
    pub score: UOp,
    /// The sum of products in the score.
    pub product: UOp,
    /// The left factor of `sum`: the exponential with everything that scales it, before it is multiplied by a value.
    pub weight: UOp,
    /// Factors of the exponential in `weight` that are the same for all keys.
    pub factors: SmallVec<[UOp; 2]>,
    /// An element of the queries, of the keys and of the values: loads, or expressions over loads.
    pub elements: [UOp; 3],
    /// The constants by which the products of queries and keys are multiplied, and those of weights and values.
    pub scales: [f64; 2],
    /// The loops over queries, over the keys of `sum`, over the terms that `product` sums, and over the columns of the
    /// values.
    pub axes: [UOp; 4],
}

impl Attention {
    /// The numbers of queries, keys, terms of a score, and columns.
    pub fn lens(&self, g: &Graph) -> [usize; 4] {
        self.axes.map(|r| g.range_len(r))
    }
}

type Find = fn(&Graph, UOp) -> Option<Attention>;

/// The function behind [`find`], a pointer that is set at run time: see the table in `codegen/attention.rs`.
static FIND: OnceLock<Box<Find>> = OnceLock::new();

/// Enables the recognition of attention; outside of WebAssembly [`find`] does so itself.
pub(crate) fn enable() {
    FIND.get_or_init(|| Box::new(find_in));
}

/// The parts of a kernel, if it is attention.
pub fn find(g: &Graph, sink: UOp) -> Option<Attention> {
    if cfg!(not(target_arch = "wasm32")) {
        enable();
    }
    FIND.get().and_then(|find| find(g, sink))
}

fn find_in(g: &Graph, sink: UOp) -> Option<Attention> {
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
    // the sum of exponentials and the maximum must be over the same scores
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
    // the maximum must have no other users
    let below = |u: &UOp| g.op(*u) == Op::Sub && g.src_at(*u, 1) == max && g.src_at(*u, 0) != max;
    let asked = nodes.iter().filter(|&&u| g.src(u).contains(&max));
    let inside = |x: UOp| g.reachable(&[g.src_at(a.norm, 0), a.exp]).contains(&x);
    (asked.clone().count() == 2 && asked.clone().all(|u| below(u) && inside(*u))).then_some(a)
}

fn only(mut all: impl Iterator<Item = UOp>) -> Option<UOp> {
    all.next().filter(|_| all.next().is_none())
}

/// The parts that can be found from the sum of weighted values; `norm` is not known yet.
fn weighted(g: &Graph, sum: UOp, max: UOp) -> Option<Attention> {
    let terms = terms_of(g, sum).filter(|t| t.gate.is_none())?;
    let key = g.src_at(sum, 1);
    let sums = |u: UOp| g.reachable(&[u]).iter().any(|&x| g.op(x) == Op::Reduce);
    let (weight, value) = match terms.pair {
        [a, b] if sums(a) && !sums(b) => (a, b),
        [a, b] if sums(b) && !sums(a) => (b, a),
        _ => return None,
    };
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
    let scores = terms_of(g, product).filter(|t| t.gate.is_none())?;
    let (query, keys) = match scores.pair {
        [a, b] if g.depends(b, key) && !g.depends(a, key) => (a, b),
        [a, b] if g.depends(a, key) && !g.depends(b, key) => (b, a),
        _ => return None,
    };
    let loops: Vec<UOp> = g.reachable(&[sum]).into_iter().filter(|&u| g.op(u) == Op::Range).collect();
    let loops: Vec<UOp> = loops.into_iter().filter(|&r| g.kind(r) == AxisKind::Loop).collect();
    let [rows, _] = sides(g, &loops, [g.ranges(query), g.ranges(keys)]).own;
    // of several such loops the others are heads that share keys; the longest is the loop over queries
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
        elements: [query, keys, value],
        scales: [scores.scale, terms.scale],
        axes: [row, key, g.src_at(product, 1), column],
    })
}

/// Compares two expressions up to a renaming of loops.
struct Pairs<'a> {
    g: &'a Graph,
    loops: SmallVec<[(UOp, UOp); 4]>,
    known: FxHashSet<(UOp, UOp)>,
    /// Number of comparisons that may still be made.
    left: usize,
}

impl<'a> Pairs<'a> {
    fn new(g: &'a Graph, a: UOp, b: UOp) -> Pairs<'a> {
        Pairs { g, loops: SmallVec::from_slice(&[(a, b)]), known: FxHashSet::default(), left: 4 * MOST_NODES }
    }

    /// Is `b` the same expression as `a`, with its own loops in place of those of `a`?
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
                let paired = self.loops.contains(&(a, b));
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
