//! Fuses attention on GPUs. The scores and everything between the two matrix products are moved into the kernel of the
//! second one, so that no score is stored in memory. In: the graph and its cuts. Out: fewer cuts, and the fused kernels
//! marked in [`Cuts::attention`].
//!
//! As scheduled, such a kernel has three reductions over all keys and computes the scores three times; code generation
//! makes one loop of them (`codegen/attention.rs`). Once it is lowered, each fused kernel is therefore checked, and if
//! code generation would not recognise it, the next round of scheduling leaves it unfused.

use super::fuse::{Cuts, base};
use super::order::Pending;
use super::rows::{self, Rows, Walk, is_product, stored};
use crate::analysis::attention;
use crate::target::Target;
use crate::uop::{Arg, Graph, Op, ReduceOp, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::OnceLock;

/// The most nodes that a search for the parts of attention visits.
const MAX_SEARCH_NODES: usize = 256;

/// Functions that are set at run time, so that a WebAssembly module without this fusion does not contain it: see the
/// table in `codegen/attention.rs`.
struct Hooks {
    merge: fn(&Graph, &[UOp], &[UOp], &mut Cuts, &Target),
    not_found: fn(&[Pending], &Cuts, &Target) -> Vec<UOp>,
}

static HOOKS: OnceLock<Box<Hooks>> = OnceLock::new();

/// Enables the fusion of attention.
pub(crate) fn enable() {
    crate::analysis::attention::enable();
    HOOKS.get_or_init(|| Box::new(Hooks { merge: merge_in, not_found: not_found_in }));
}

fn hooks() -> Option<&'static Hooks> {
    if cfg!(not(target_arch = "wasm32")) {
        enable();
    }
    HOOKS.get().map(|hooks| &**hooks)
}

/// Fuses the kernels of attention, except those whose last node is in `not_attention`.
pub(super) fn merge(g: &Graph, nodes: &[UOp], not_attention: &[UOp], cuts: &mut Cuts, t: &Target) {
    if let Some(hooks) = hooks() {
        (hooks.merge)(g, nodes, not_attention, cuts, t);
    }
}

/// The nodes of fused kernels that code generation would not turn into one loop.
pub(super) fn not_found(kernels: &[Pending], cuts: &Cuts, t: &Target) -> Vec<UOp> {
    hooks().map_or(Vec::new(), |hooks| (hooks.not_found)(kernels, cuts, t))
}

fn merge_in(g: &Graph, nodes: &[UOp], not_attention: &[UOp], cuts: &mut Cuts, t: &Target) {
    let largest = |u: UOp| g.op(u) == Op::Reduce && matches!(g.arg(u), Arg::Reduce(ReduceOp::Max, _));
    let exponentials = nodes.iter().copied().filter(|&u| {
        // the exponential of a difference to the maximum of the same scores
        let shifted = if g.op(u) == Op::Exp2 { g.src_at(u, 0) } else { return false };
        let difference = if g.op(shifted) == Op::Mul { g.src_at(shifted, 0) } else { return false };
        let max = if g.op(difference) == Op::Sub { base(g, g.src_at(difference, 1)) } else { return false };
        largest(max) && g.src_at(max, 0) == g.src_at(difference, 0)
    });
    let exponentials: Vec<UOp> = exponentials.collect();
    if exponentials.is_empty() {
        return;
    }
    let mut users: Vec<Vec<UOp>> = vec![Vec::new(); g.len()];
    for &u in nodes {
        g.src(u).iter().for_each(|s| users[s.0 as usize].push(u));
    }
    for exp in exponentials {
        let Some(found) = AttentionNodes::find(g, exp, &users) else { continue };
        let Some(owner) =
            found.owner(cuts, &users).filter(|o| !not_attention.contains(o) && !cuts.rows.contains_key(o))
        else {
            continue;
        };
        let own: Vec<UOp> = found.nodes.iter().copied().filter(|&u| u != owner && cuts.is_cut(u)).collect();
        let outside = |u: &UOp| users[u.0 as usize].iter().any(|x| !found.nodes.contains(x));
        if own.iter().any(|&u| cuts.is_forced(u)) || found.nodes.iter().any(|u| *u != found.sum && outside(u)) {
            continue;
        }
        own.iter().for_each(|&u| cuts.set(u, false));
        match loops(g, owner, cuts, t) {
            Some(loops) => {
                own.iter().for_each(|u| drop(cuts.rows.remove(u)));
                cuts.rows.insert(owner, Rows { loops, kept: FxHashMap::default(), scaled: None });
                cuts.attention.insert(owner);
            }
            None => own.iter().for_each(|&u| cuts.set(u, true)),
        }
    }
}

/// All nodes from the sum of products that gives the scores to `sum`, the sum of weights times values.
struct AttentionNodes {
    sum: UOp,
    nodes: FxHashSet<UOp>,
}

impl AttentionNodes {
    fn find(g: &Graph, exp: UOp, users: &[Vec<UOp>]) -> Option<AttentionNodes> {
        let passes = |u: UOp| g.op(u).is_alu() || g.op(u).is_movement();
        let products = |found: Vec<UOp>| {
            let mut products = found.into_iter().filter(|&u| g.op(u) == Op::Reduce && is_product(g, u));
            products.next().filter(|_| products.next().is_none())
        };
        let score = g.src_at(g.src_at(g.src_at(exp, 0), 0), 0);
        let scores =
            products(reachable_within_limit(score, |u| if passes(u) { g.src(u).to_vec() } else { Vec::new() }))?;
        let sum = products(reachable_within_limit(exp, |u| {
            if u == exp || passes(u) { users[u.0 as usize].clone() } else { Vec::new() }
        }))?;
        // the nodes on paths from the scores to the sum
        let mut above: FxHashSet<UOp> = FxHashSet::default();
        above.insert(scores);
        let below = reachable_within_limit(sum, |u| if u.0 > scores.0 { g.src(u).to_vec() } else { Vec::new() });
        if below.len() >= MAX_SEARCH_NODES {
            return None;
        }
        let mut below = below;
        below.sort_unstable();
        for u in below {
            if g.src(u).iter().any(|s| above.contains(s)) {
                above.insert(u);
            }
        }
        (above.contains(&sum) && above.contains(&exp)).then_some(AttentionNodes { sum, nodes: above })
    }

    /// The cut whose kernel contains the sum.
    fn owner(&self, cuts: &Cuts, users: &[Vec<UOp>]) -> Option<UOp> {
        let mut at = self.sum;
        while !cuts.is_cut(at) {
            let &[user] = users[at.0 as usize].as_slice() else { return None };
            at = user;
        }
        Some(at)
    }
}

/// The nodes reached from a node, itself included, up to a limit.
fn reachable_within_limit(from: UOp, next: impl Fn(UOp) -> Vec<UOp>) -> Vec<UOp> {
    let (mut found, mut at) = (vec![from], 0);
    while at < found.len() && found.len() < MAX_SEARCH_NODES {
        for u in next(found[at]) {
            if !found.contains(&u) {
                found.push(u);
            }
        }
        at += 1;
    }
    found
}

/// The loops of a kernel, if its reductions all keep the same axes.
fn loops(g: &Graph, owner: UOp, cuts: &Cuts, t: &Target) -> Option<rows::Loops> {
    if matches!(g.op(owner), Op::Scatter | Op::Scan | Op::Recurrence | Op::Custom) {
        return None;
    }
    let mut walk = Walk::new(g, cuts);
    walk.chains = true;
    walk.run(owner, t)?;
    rows::loops(g.shape(stored(g, owner).0), &walk.outer.take()?)
}

fn not_found_in(kernels: &[Pending], cuts: &Cuts, t: &Target) -> Vec<UOp> {
    let joined = kernels.iter().filter(|k| cuts.attention.contains(&k.node));
    let is = |k: &&Pending| {
        let ast = &k.kernel.ast;
        attention::find(&ast.g, ast.sink).is_some_and(|a| attention::choose_strategy(&ast.g, &a, t).is_some())
    };
    joined.filter(|k| !is(k)).map(|k| k.node).collect()
}
