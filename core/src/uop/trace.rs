//! What rewrites of a graph did: hits per rule, and on demand each firing with both sides. A graph that has a [`Trace`] records into it.

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
    /// Its replacement, not yet rewritten further.
    pub after: UOp,
}

/// Collects firings.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Times each (set, rule) fired.
    pub hits: FxHashMap<(&'static str, &'static str), u64>,
    /// Every firing in order, if `log` is on.
    pub firings: Vec<Firing>,
    log: bool,
}

impl Trace {
    /// Counts only.
    pub fn counting() -> Trace {
        Trace::default()
    }

    /// Counts, and keeps each firing.
    pub fn logging() -> Trace {
        Trace { log: true, ..Trace::default() }
    }

    /// The rules that fired as `set.rule`, with their counts; the most frequent first.
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
