//! Graph rewriting: how rules are written ([`crate::rules!`], [`pattern`]), and how they are run ([`driver`]).
//!
//! A rule is a named function from a node to an equal (or lowered) node, dispatched by op. A rule set is a named list
//! of rules, and a pass lists the sets that it runs. Never: a concrete rule (those live in `crate::rules` and in the
//! passes).

pub mod driver;
pub mod pattern;
pub mod table;

pub use driver::Memo;
pub(crate) use driver::{rewrite_with, rewrite1, substitute, substitute1};
pub use pattern::OpSet;
pub use table::{CxFn, PlainFn, Rule, RuleSet, RuleSetWith, Rules, Set};
pub(crate) use table::{done, pat, pat_ops, rhs, rules, set};
