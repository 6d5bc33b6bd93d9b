//! What a rewrite did: hits per rule, and on demand each firing with both sides. Optional; passed in with the memo.

use crate::uop::UOp;
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

    pub(super) fn record(&mut self, f: Firing) {
        *self.hits.entry((f.set, f.rule)).or_default() += 1;
        if self.log {
            self.firings.push(f);
        }
    }
}
