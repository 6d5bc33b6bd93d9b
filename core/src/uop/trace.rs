//! Records of the rewrites of a graph: how often each rule fired and, on demand, each firing with the node before and
//! after. A graph with a [`Trace`] (`Graph::trace`) records into it.

use super::UOp;
use rustc_hash::FxHashMap;

/// One application of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Name of the rule set.
    pub set: &'static str,
    /// Name of the rule.
    pub rule: &'static str,
    /// The node that matched.
    pub before: UOp,
    /// The node that the rule replaced it by, before other rules rewrite that.
    pub after: UOp,
}

/// Collects the firings of rules.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// How often each rule fired, by the names of its set and of the rule.
    pub hits: FxHashMap<(&'static str, &'static str), u64>,
    /// Every firing in order, for a trace made by [`Trace::logging`].
    pub firings: Vec<Firing>,
    log: bool,
}

impl Trace {
    /// A trace that only counts.
    pub fn counting() -> Trace {
        Trace::default()
    }

    /// A trace that counts and keeps each firing.
    pub fn logging() -> Trace {
        Trace { log: true, ..Trace::default() }
    }

    /// The names of the rules that fired, as `set.rule`, with their counts; the most frequent first.
    pub fn rules(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.hits.iter().map(|((set, rule), &n)| (format!("{set}.{rule}"), n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    pub(crate) fn record(&mut self, f: Firing) {
        *self.hits.entry((f.set, f.rule)).or_default() += 1;
        if self.log {
            self.firings.push(f);
        }
    }
}
