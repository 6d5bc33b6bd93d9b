//! The rewrite driver: applies rule sets bottom-up until no rule matches any more. Also plain substitution.
//!
//! The sources of a node are rewritten first and the node is rebuilt over them. Then the first rule that matches is
//! applied, and its result is rewritten in turn. An explicit stack replaces recursion, and a dense memo replaces
//! hashing. As nodes never change, a [`Memo`] stays valid across calls with the same rule sets on a growing graph.

use super::Rules;
use crate::uop::{Firing, Graph, UOp};
use crate::util::sort;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The results of a rewrite: what each node became. Keep one for each graph and list of rule sets, to reuse work across
/// calls.
#[derive(Clone, Debug, Default)]
pub struct Memo {
    map: Table,
    /// Number of rules fired so far.
    pub steps: u64,
    stuck: Option<String>,
}

/// State of each node: 0 not visited, 1 being rewritten, n + 2 rewritten to node n.
#[derive(Clone, Debug)]
enum Table {
    Dense(Vec<u32>),
    Sparse(FxHashMap<u32, u32>),
}

impl Default for Table {
    fn default() -> Self {
        Table::Dense(Vec::new())
    }
}

const IN_WORK: u32 = 1;

impl Table {
    fn get(&self, u: UOp) -> u32 {
        match self {
            Table::Dense(v) => v.get(u.0 as usize).copied().unwrap_or(0),
            Table::Sparse(m) => m.get(&u.0).copied().unwrap_or(0),
        }
    }

    fn set(&mut self, u: UOp, state: u32) {
        match self {
            Table::Dense(v) => {
                if u.0 as usize >= v.len() {
                    v.resize((u.0 as usize + 1).max(v.len() * 2), 0);
                }
                v[u.0 as usize] = state;
            }
            Table::Sparse(m) => {
                m.insert(u.0, state);
            }
        }
    }

    fn done(&self, u: UOp) -> Option<UOp> {
        self.get(u).checked_sub(2).map(UOp)
    }
}

impl Memo {
    /// An empty memo.
    pub fn new() -> Memo {
        Memo::default()
    }

    /// An empty memo that hashes: for rewriting a few nodes of a large graph.
    pub fn sparse() -> Memo {
        Memo { map: Table::Sparse(FxHashMap::default()), ..Memo::default() }
    }

    /// Excludes `u` and everything below it from rewriting.
    pub fn keep(&mut self, u: UOp) {
        self.map.set(u, u.0 + 2);
    }

    /// What `u` was rewritten to, if it was.
    pub fn get(&self, u: UOp) -> Option<UOp> {
        self.map.done(u)
    }

    /// The report of a rewrite that was cut off because its rules did not terminate.
    pub fn stuck(&self) -> Option<&str> {
        self.stuck.as_deref()
    }
}

/// Rewrites `roots` to a fixpoint under `sets` (earlier sets first); returns their images.
pub(crate) fn rewrite<C>(g: &mut Graph, roots: &[UOp], sets: &[&dyn Rules<C>], cx: &mut C) -> Vec<UOp> {
    rewrite_with(g, roots, sets, cx, &mut Memo::new())
}

/// [`rewrite`] for one root.
pub(crate) fn rewrite1<C>(g: &mut Graph, root: UOp, sets: &[&dyn Rules<C>], cx: &mut C) -> UOp {
    rewrite(g, &[root], sets, cx)[0]
}

enum Task {
    /// Rewrite the sources, then the node.
    Visit(UOp),
    /// Rebuild the node over its rewritten sources, and apply a rule.
    Finish(UOp),
    /// Record that the node, and the firing's `before` (the node rebuilt over its sources), became what `after` was
    /// rewritten to.
    Follow(UOp, Firing),
}

/// [`rewrite`] with a memo that outlives the call. Rules that do not terminate are a bug: debug builds panic with the
/// names of the rules that keep firing. Release builds stop there (what is built so far is still equal to the input)
/// and leave the report in [`Memo::stuck`].
pub(crate) fn rewrite_with<C>(
    g: &mut Graph,
    roots: &[UOp],
    sets: &[&dyn Rules<C>],
    cx: &mut C,
    memo: &mut Memo,
) -> Vec<UOp> {
    let limit = memo.steps + 100_000 + 200 * g.len() as u64;
    let mut recent: Vec<Firing> = Vec::new();
    let mut stack: Vec<Task> = roots.iter().rev().map(|&u| Task::Visit(u)).collect();
    let mut src: SmallVec<[UOp; 8]> = SmallVec::new();
    while let Some(task) = stack.pop() {
        match task {
            Task::Visit(u) => {
                if memo.map.get(u) != 0 {
                    continue;
                }
                memo.map.set(u, IN_WORK);
                stack.push(Task::Finish(u));
                stack.extend(g.src(u).iter().rev().filter(|&&s| memo.map.get(s) == 0).map(|&s| Task::Visit(s)));
            }
            Task::Finish(u) => {
                src.clear();
                // a source that is still being rewritten means that a rule's result contains the node that it replaces:
                // it stays as it is
                src.extend(g.src(u).iter().map(|&s| memo.map.done(s).unwrap_or(s)));
                let v = if g.src(u) == src.as_slice() { u } else { g.with_src(u, &src) };
                if v != u {
                    if let Some(w) = memo.map.done(v) {
                        memo.map.set(u, w.0 + 2);
                        continue;
                    }
                    memo.map.set(v, IN_WORK);
                }
                let fired = match memo.stuck {
                    None => sets.iter().find_map(|s| s.apply(g, v, cx).map(|(rule, w)| (s.name(), rule, w))),
                    Some(_) => None,
                };
                let Some((set, rule, w)) = fired else {
                    memo.map.set(u, v.0 + 2);
                    memo.map.set(v, v.0 + 2);
                    continue;
                };
                memo.steps += 1;
                let firing = Firing { set, rule, before: v, after: w };
                if let Some(t) = &mut g.trace {
                    t.record(firing);
                }
                if memo.steps + 64 > limit {
                    recent.push(firing);
                }
                if memo.steps >= limit {
                    memo.stuck = Some(report(&recent));
                    debug_assert!(false, "{}", report(&recent));
                }
                if memo.map.get(w) == IN_WORK && memo.stuck.is_none() {
                    memo.stuck = cycle(&stack, firing);
                    debug_assert!(memo.stuck.is_none(), "{}", memo.stuck.as_deref().unwrap_or_default());
                }
                stack.push(Task::Follow(u, firing));
                stack.push(Task::Visit(w));
            }
            Task::Follow(u, f) => {
                let end = memo.map.done(f.after).unwrap_or(f.after);
                memo.map.set(u, end.0 + 2);
                memo.map.set(f.before, end.0 + 2);
            }
        }
    }
    roots.iter().map(|&r| memo.map.done(r).unwrap_or(r)).collect()
}

/// The report of a cycle, if the firing `last` leads back to a node that is being rewritten.
fn cycle(stack: &[Task], last: Firing) -> Option<String> {
    let mut chain = vec![last];
    for task in stack.iter().rev() {
        if let Task::Follow(_, f) = task {
            chain.push(*f);
            if f.before == last.after {
                return Some(report(&chain));
            }
        }
    }
    (last.before == last.after).then(|| report(&chain))
}

fn report(recent: &[Firing]) -> String {
    let mut names: Vec<String> = recent.iter().map(|f| format!("{}.{}", f.set, f.rule)).collect();
    sort::ascending(&mut names);
    names.dedup();
    format!("rewriting does not end; the last rules to fire: {}", names.join(", "))
}

/// Replaces the nodes in `map` everywhere below `roots`, in one pass. Replacements are final: they are not searched for
/// nodes to replace.
pub(crate) fn substitute(g: &mut Graph, roots: &[UOp], map: &FxHashMap<UOp, UOp>) -> Vec<UOp> {
    let mut memo = Table::Dense(vec![0; g.len()]);
    substitute_in(g, roots, map, &mut memo)
}

/// [`substitute`] for one root. It hashes, so it is cheap on a small expression of a large graph.
pub(crate) fn substitute1(g: &mut Graph, root: UOp, map: &FxHashMap<UOp, UOp>) -> UOp {
    let mut memo = Table::Sparse(FxHashMap::default());
    substitute_in(g, &[root], map, &mut memo)[0]
}

fn substitute_in(g: &mut Graph, roots: &[UOp], map: &FxHashMap<UOp, UOp>, memo: &mut Table) -> Vec<UOp> {
    let Some(lowest) = map.keys().min().copied() else { return roots.to_vec() };
    let mut stack: Vec<(UOp, bool)> = roots.iter().rev().map(|&u| (u, false)).collect();
    let mut src: SmallVec<[UOp; 8]> = SmallVec::new();
    while let Some((u, ready)) = stack.pop() {
        if ready {
            src.clear();
            src.extend(g.src(u).iter().map(|&s| memo.done(s).unwrap_or(s)));
            let v = if g.src(u) == src.as_slice() { u } else { g.with_src(u, &src) };
            memo.set(u, v.0 + 2);
        } else if u < lowest || memo.get(u) != 0 {
            // sources have lower indices than their users, so nothing below the lowest replaced node contains a
            // replaced one
        } else if let Some(v) = map.get(&u) {
            memo.set(u, v.0 + 2);
        } else {
            stack.push((u, true));
            stack.extend(g.src(u).iter().rev().filter(|&&s| s >= lowest).map(|&s| (s, false)));
        }
    }
    roots.iter().map(|&r| memo.done(r).unwrap_or(r)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{RuleSet, rules};
    use super::*;
    use crate::DType;
    use crate::uop::{Op, Trace};

    rules! {
        static TOY(g, u) = {
            add_zero:   (x + 0)                   => x;
            add_terms:  ((x * [a]) + ({x} * [b])) => (x * {a + b});
            mod_mul:    ((_ * [a]) % [b]) if { b > 0 && a % b == 0 } => 0;
            mul_one:    (x * 1)                   => x;
            not_not:    ((x != true) != true)     => x;
            fold_add:   ([a] + [b])               => { a + b };
            named:      (Max (m @ (a + b)) {m})   => m;
            unary:      (any UNARY)               => do drop_trunc;
        }
    }
    fn drop_trunc(g: &mut Graph, u: UOp) -> Option<UOp> {
        (g.op(u) == Op::Trunc && g.op(g.src_at(u, 0)) == Op::Trunc).then(|| g.src_at(u, 0))
    }

    rules! {
        static COUNTED(g, u, cx: usize) = {
            neg: (Neg x) => { *cx += 1; g.unary(Op::Neg, x); let z = g.int(0, DType::I32); g.binary(Op::Sub, z, x) };
        }
    }

    rules! {
        static LOOP(g, u) = {
            swap: (x - y) => (y - x);
        }
    }

    rules! {
        static GROW(g, u) = {
            longer: (x - y) => (x - (Neg y));
        }
    }

    fn var(g: &mut Graph, name: &str) -> UOp {
        g.node(Op::Var, DType::I32, &[], crate::uop::Arg::Var { name: name.into(), min: 0, max: 100 })
    }

    #[test]
    fn rules_rewrite_bottom_up_to_a_fixpoint() {
        let g = &mut Graph::new();
        let x = var(g, "x");
        let (c0, c3, c4) = (g.idx(0), g.idx(3), g.idx(4));
        let a = g.binary(Op::Mul, x, c3);
        let b = g.binary(Op::Mul, x, c4);
        let ab = g.binary(Op::Add, a, b);
        let s = g.binary(Op::Add, ab, c0);
        let m = g.binary(Op::Max, s, s);
        let c7 = g.idx(7);
        let r = g.binary(Op::FloorMod, s, c7);
        g.trace = Some(Box::new(Trace::logging()));
        let mut memo = Memo::new();
        let out = rewrite_with(g, &[m, r], &[&TOY], &mut (), &mut memo);
        assert_eq!(g.op(out[0]), Op::Max);
        assert_eq!(g.op(g.src_at(out[0], 0)), Op::Mul);
        assert_eq!(g.const_int(out[1]), Some(0));
        let hits = &g.trace.as_ref().unwrap().hits;
        assert_eq!(hits[&("TOY", "add_terms")], 1);
        assert_eq!(hits[&("TOY", "mod_mul")], 1);
        // the memo survives: nothing fires again
        let steps = memo.steps;
        assert_eq!(rewrite_with(g, &[m, r], &[&TOY], &mut (), &mut memo), out);
        assert_eq!(memo.steps, steps);
    }

    #[test]
    fn sets_with_and_without_context_mix() {
        let g = &mut Graph::new();
        let x = var(g, "x");
        let n = g.unary(Op::Neg, x);
        let c0 = g.idx(0);
        let s = g.binary(Op::Add, n, c0);
        let mut count = 0usize;
        let sets: [&dyn Rules<usize>; 2] = [&TOY, &COUNTED];
        let out = rewrite1(g, s, &sets, &mut count);
        assert_eq!((g.op(out), count), (Op::Sub, 1));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_set_that_does_not_end_names_its_rules() {
        let run = |set: &'static RuleSet| {
            let g = &mut Graph::new();
            let (x, y) = (var(g, "x"), var(g, "y"));
            let s = g.binary(Op::Sub, x, y);
            rewrite1(g, s, &[set], &mut ());
        };
        for (set, name) in [(&LOOP, "LOOP.swap"), (&GROW, "GROW.longer")] {
            let report = std::panic::catch_unwind(|| run(set)).expect_err("must not end");
            let report = report.downcast::<String>().expect("a message");
            assert!(report.contains(name), "{report}");
        }
    }

    #[test]
    fn substitution_is_single_pass() {
        let g = &mut Graph::new();
        let (x, y) = (var(g, "x"), var(g, "y"));
        let s = g.binary(Op::Add, x, y);
        let m = g.binary(Op::Mul, s, x);
        let map: FxHashMap<UOp, UOp> = [(x, y), (y, x)].into_iter().collect();
        let out = substitute1(g, m, &map);
        let swapped = g.binary(Op::Add, y, x);
        assert_eq!(out, g.binary(Op::Mul, swapped, y));
        assert_eq!(substitute(g, &[m, x], &map), [out, y]);
    }
}
