//! Rule sets, and the `rules!` macro that writes them.
//!
//! ```text
//! rules! {
//!     /// Docs of the set.
//!     pub static SYMBOLIC(g, u) keep_shape = {
//!         add_zero:   (x + 0)                                   => x;
//!         add_terms:  ((x * [a]) + ({x} * [b]))                 => (x * {a.wrapping_add(b)});
//!         mod_mul:    ((_ * [a]) % [b]) if { b > 0 && a % b == 0 } => 0;
//!         const_fold: (any BINARY)                              => do fold;
//!         hard_one:   (Where c x (Invalid))                     => { some_rust(g, c, x) };
//!     }
//! }
//! ```
//!
//! Left: `x` binds a node, `_` matches anything, `[c]` binds an integer (or bool) constant's value as i64, and `(# c)`
//! binds a constant node. A literal matches that constant (`0` an int, `0.0` or `(-1.0)` a float, `true` a bool), and
//! `{e}` matches exactly the node `e`. `(a op b)` and `(Op a b ..)` nest (`/` is FloorDiv, `%` FloorMod; `Max` and
//! `Min` by name). `(any CLASS)` and `(any CLASS a b)` take an [`OpSet`](super::OpSet) constant, and `(x @ p)` names the
//! node that `p` matched. `if { .. }` is a side condition.
//!
//! Right: a pattern-like expression, `do path` for `fn(&mut Graph, UOp[, &mut C]) -> Option<UOp>`, or a Rust block whose
//! value is a node, an `Option` of one, or a number (a constant of the node's dtype).
//!
//! The header names the graph, the matched node and (for sets with a context, `(g, u, cx: Type)`) the context. With
//! `keep_shape` a result of another shape is refused, so that the set is safe on tensor graphs.

use super::OpSet;
use crate::uop::{Graph, Op, UOp};

/// A rule without context.
pub type PlainFn = fn(&mut Graph, UOp) -> Option<UOp>;
/// A rule with a context.
pub type CxFn<C> = fn(&mut Graph, UOp, &mut C) -> Option<UOp>;

/// One rule of a set.
pub struct Rule<F> {
    /// Its name, unique in the set.
    pub name: &'static str,
    /// The source line on which it is written.
    pub line: u32,
    /// Ops of the nodes it can match.
    pub ops: OpSet,
    /// The rule: `None` if it does not match.
    pub apply: F,
}

/// A named, ordered list of rules, indexed by op. Written with `rules!`.
pub struct Set<F: 'static> {
    /// Name for traces.
    pub name: &'static str,
    /// The rules, first match wins.
    pub rules: &'static [Rule<F>],
    /// Indices into `rules`, grouped by op.
    pub order: &'static [u16],
    /// `order[start[op] .. start[op + 1]]` are the rules for `op`.
    pub start: &'static [u16; N_OPS + 1],
    /// Refuse results whose shape differs from that of the matched node.
    pub keep_shape: bool,
}

/// A set of rules without context.
pub type RuleSet = Set<PlainFn>;
/// A set of rules with a context.
pub type RuleSetWith<C> = Set<CxFn<C>>;

/// Number of ops.
pub(crate) const N_OPS: usize = Op::ALL.len();

/// How many (op, rule) pairs the table has. For `rules!`.
pub(crate) const fn order_len<F>(rules: &[Rule<F>]) -> usize {
    let (mut n, mut i) = (0, 0);
    while i < rules.len() {
        let mut op = 0;
        while op < N_OPS {
            n += rules[i].ops.has(Op::ALL[op]) as usize;
            op += 1;
        }
        i += 1;
    }
    n
}

/// The (op, rule) pairs sorted by op, then as written. For `rules!`.
pub(crate) const fn order<F, const N: usize>(rules: &[Rule<F>]) -> ([u16; N], [u16; N_OPS + 1]) {
    let (mut out, mut start) = ([0; N], [0; N_OPS + 1]);
    let (mut n, mut op) = (0, 0);
    while op < N_OPS {
        start[op] = n as u16;
        let mut i = 0;
        while i < rules.len() {
            if rules[i].ops.has(Op::ALL[op]) {
                out[n] = i as u16;
                n += 1;
            }
            i += 1;
        }
        op += 1;
    }
    start[N_OPS] = n as u16;
    (out, start)
}

/// A rule set as the driver sees it, for a pass with context `C`. A set without context can be used in any pass.
pub trait Rules<C> {
    /// The set's name.
    fn name(&self) -> &'static str;
    /// The first rule that changes `u`: its name and the result.
    fn apply(&self, g: &mut Graph, u: UOp, cx: &mut C) -> Option<(&'static str, UOp)>;
}

impl<F> Set<F> {
    fn run(
        &self,
        g: &mut Graph,
        u: UOp,
        mut f: impl FnMut(&F, &mut Graph) -> Option<UOp>,
    ) -> Option<(&'static str, UOp)> {
        let op = g.op(u) as usize;
        for &i in &self.order[self.start[op] as usize..self.start[op + 1] as usize] {
            let rule = &self.rules[i as usize];
            if let Some(v) = f(&rule.apply, g)
                && v != u
                && (!self.keep_shape || g.shape(v) == g.shape(u))
            {
                debug_assert_eq!(g.dtype(v), g.dtype(u), "{}.{} changes the dtype", self.name, rule.name);
                return Some((rule.name, v));
            }
        }
        None
    }
}

impl<C> Rules<C> for RuleSet {
    fn name(&self) -> &'static str {
        self.name
    }
    fn apply(&self, g: &mut Graph, u: UOp, _: &mut C) -> Option<(&'static str, UOp)> {
        self.run(g, u, |f, g| f(g, u))
    }
}

impl<C> Rules<C> for RuleSetWith<C> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn apply(&self, g: &mut Graph, u: UOp, cx: &mut C) -> Option<(&'static str, UOp)> {
        self.run(g, u, |f, g| f(g, u, cx))
    }
}

/// Defines a rule set; the head of this module describes the syntax.
macro_rules! rules {
    ($(#[$doc:meta])* $vis:vis static $set:ident ($g:ident, $u:ident) $($flag:ident)? = { $(
        $name:ident : $pat:tt $(if $cond:block)? => $rhs:tt $($path:path)? ;
    )* }) => {
        $(#[$doc])*
        $vis static $set: $crate::rewrite::RuleSet = {
            use $crate::rewrite::{PlainFn, Rule};
            $(
                // a module each: its name shows in profiles, and does not hide a function of the same name
                #[allow(unused_variables, unused_imports, reason = "a pattern may name what only a condition uses")]
                mod $name {
                    use super::*;
                    pub(super) fn apply($g: &mut $crate::uop::Graph, $u: $crate::uop::UOp) -> Option<$crate::uop::UOp> {
                        $crate::rewrite::pat!($g, $u, $pat);
                        $( if !$cond { return None; } )?
                        $crate::rewrite::done!($g, $u, (), $rhs $($path)?)
                    }
                }
            )*
            const RULES: &[Rule<PlainFn>] = &[$(
                Rule { name: stringify!($name), line: line!(), ops: $crate::rewrite::pat_ops!($pat), apply: $name::apply }
            ),*];
            $crate::rewrite::set!($set, PlainFn, RULES, $($flag)?)
        };
    };
    ($(#[$doc:meta])* $vis:vis static $set:ident ($g:ident, $u:ident, $cx:ident : $ctx:ty) $($flag:ident)? = { $(
        $name:ident : $pat:tt $(if $cond:block)? => $rhs:tt $($path:path)? ;
    )* }) => {
        $(#[$doc])*
        $vis static $set: $crate::rewrite::RuleSetWith<$ctx> = {
            use $crate::rewrite::{CxFn, Rule};
            $(
                // a module each: its name shows in profiles, and does not hide a function of the same name
                #[allow(unused_variables, unused_imports, reason = "a pattern may name what only a condition uses")]
                mod $name {
                    use super::*;
                    pub(super) fn apply(
                        $g: &mut $crate::uop::Graph, $u: $crate::uop::UOp, $cx: &mut $ctx,
                    ) -> Option<$crate::uop::UOp> {
                        $crate::rewrite::pat!($g, $u, $pat);
                        $( if !$cond { return None; } )?
                        $crate::rewrite::done!($g, $u, ($cx), $rhs $($path)?)
                    }
                }
            )*
            const RULES: &[Rule<CxFn<$ctx>>] = &[$(
                Rule { name: stringify!($name), line: line!(), ops: $crate::rewrite::pat_ops!($pat), apply: $name::apply }
            ),*];
            $crate::rewrite::set!($set, CxFn<$ctx>, RULES, $($flag)?)
        };
    };
}

/// Builds the `Set` from the list of its rules.
macro_rules! set {
    ($set:ident, $f:ty, $rules:ident, keep_shape) => { $crate::rewrite::set!(@ $set, $f, $rules, true) };
    ($set:ident, $f:ty, $rules:ident,) => { $crate::rewrite::set!(@ $set, $f, $rules, false) };
    (@ $set:ident, $f:ty, $rules:ident, $keep:literal) => {{
        use $crate::rewrite::table::{N_OPS, order, order_len};
        const N: usize = order_len($rules);
        const TABLE: ([u16; N], [u16; N_OPS + 1]) = order::<$f, N>($rules);
        $crate::rewrite::Set {
            name: stringify!($set), rules: $rules, order: &TABLE.0, start: &TABLE.1, keep_shape: $keep,
        }
    }};
}

/// Expands to the statements that match a node against a pattern, and return `None` if it does not match.
#[rustfmt::skip]
macro_rules! pat {
    ($g:ident, $u:expr, _) => {};
    ($g:ident, $u:expr, [$c:ident]) => { let $c = $g.const_int($u)?; };
    ($g:ident, $u:expr, {$e:expr}) => { if $u != $e { return None; } };
    ($g:ident, $u:expr, ($l:literal)) => { $crate::rewrite::pat!($g, $u, $l); };
    ($g:ident, $u:expr, ($x:ident @ $p:tt)) => { let $x = $u; $crate::rewrite::pat!($g, $x, $p); };
    ($g:ident, $u:expr, (# $x:ident)) => { let $x = $u; $g.const_val($x)?; };
    ($g:ident, $u:expr, ($a:tt + $b:tt)) => { $crate::rewrite::pat!($g, $u, (Add $a $b)); };
    ($g:ident, $u:expr, ($a:tt - $b:tt)) => { $crate::rewrite::pat!($g, $u, (Sub $a $b)); };
    ($g:ident, $u:expr, ($a:tt * $b:tt)) => { $crate::rewrite::pat!($g, $u, (Mul $a $b)); };
    ($g:ident, $u:expr, ($a:tt / $b:tt)) => { $crate::rewrite::pat!($g, $u, (FloorDiv $a $b)); };
    ($g:ident, $u:expr, ($a:tt % $b:tt)) => { $crate::rewrite::pat!($g, $u, (FloorMod $a $b)); };
    ($g:ident, $u:expr, ($a:tt & $b:tt)) => { $crate::rewrite::pat!($g, $u, (And $a $b)); };
    ($g:ident, $u:expr, ($a:tt | $b:tt)) => { $crate::rewrite::pat!($g, $u, (Or $a $b)); };
    ($g:ident, $u:expr, ($a:tt ^ $b:tt)) => { $crate::rewrite::pat!($g, $u, (Xor $a $b)); };
    ($g:ident, $u:expr, ($a:tt << $b:tt)) => { $crate::rewrite::pat!($g, $u, (Shl $a $b)); };
    ($g:ident, $u:expr, ($a:tt >> $b:tt)) => { $crate::rewrite::pat!($g, $u, (Shr $a $b)); };
    ($g:ident, $u:expr, ($a:tt < $b:tt)) => { $crate::rewrite::pat!($g, $u, (CmpLt $a $b)); };
    ($g:ident, $u:expr, ($a:tt == $b:tt)) => { $crate::rewrite::pat!($g, $u, (CmpEq $a $b)); };
    ($g:ident, $u:expr, ($a:tt != $b:tt)) => { $crate::rewrite::pat!($g, $u, (CmpNe $a $b)); };
    ($g:ident, $u:expr, (any $class:ident $($s:tt)*)) => {
        if !$crate::rewrite::OpSet::$class.has($g.op($u)) { return None; }
        $crate::rewrite::pat!(@src $g, $u, $($s)*);
    };
    ($g:ident, $u:expr, ($op:ident $($s:tt)*)) => {
        if $g.op($u) != $crate::uop::Op::$op { return None; }
        $crate::rewrite::pat!(@src $g, $u, $($s)*);
    };
    ($g:ident, $u:expr, $l:literal) => { if !$crate::rewrite::pattern::Literal::matches($l, $g, $u) { return None; } };
    ($g:ident, $u:expr, $x:ident) => { let $x = $u; };
    (@src $g:ident, $u:expr,) => {};
    (@src $g:ident, $u:expr, $a:tt) => {
        let &[a] = $g.src($u) else { return None };
        $crate::rewrite::pat!($g, a, $a);
    };
    (@src $g:ident, $u:expr, $a:tt $b:tt) => {
        let &[a, b] = $g.src($u) else { return None };
        $crate::rewrite::pat!($g, a, $a);
        $crate::rewrite::pat!($g, b, $b);
    };
    (@src $g:ident, $u:expr, $a:tt $b:tt $c:tt) => {
        let &[a, b, c] = $g.src($u) else { return None };
        $crate::rewrite::pat!($g, a, $a);
        $crate::rewrite::pat!($g, b, $b);
        $crate::rewrite::pat!($g, c, $c);
    };
}

/// Expands to the set of ops that the root of a pattern can match.
#[rustfmt::skip]
macro_rules! pat_ops {
    (($x:ident @ $p:tt)) => { $crate::rewrite::pat_ops!($p) };
    (($a:tt + $b:tt)) => { $crate::rewrite::pat_ops!((Add)) };
    (($a:tt - $b:tt)) => { $crate::rewrite::pat_ops!((Sub)) };
    (($a:tt * $b:tt)) => { $crate::rewrite::pat_ops!((Mul)) };
    (($a:tt / $b:tt)) => { $crate::rewrite::pat_ops!((FloorDiv)) };
    (($a:tt % $b:tt)) => { $crate::rewrite::pat_ops!((FloorMod)) };
    (($a:tt & $b:tt)) => { $crate::rewrite::pat_ops!((And)) };
    (($a:tt | $b:tt)) => { $crate::rewrite::pat_ops!((Or)) };
    (($a:tt ^ $b:tt)) => { $crate::rewrite::pat_ops!((Xor)) };
    (($a:tt << $b:tt)) => { $crate::rewrite::pat_ops!((Shl)) };
    (($a:tt >> $b:tt)) => { $crate::rewrite::pat_ops!((Shr)) };
    (($a:tt < $b:tt)) => { $crate::rewrite::pat_ops!((CmpLt)) };
    (($a:tt == $b:tt)) => { $crate::rewrite::pat_ops!((CmpEq)) };
    (($a:tt != $b:tt)) => { $crate::rewrite::pat_ops!((CmpNe)) };
    ((any $class:ident $($s:tt)*)) => { $crate::rewrite::OpSet::$class };
    (($op:ident $($s:tt)*)) => { $crate::rewrite::OpSet::of($crate::uop::Op::$op) };
    ($x:ident) => { $crate::rewrite::OpSet::ALL };
}

/// Expands a right-hand side to an `Option<UOp>`.
macro_rules! done {
    ($g:ident, $u:ident, (), do $path:path) => {
        $path($g, $u)
    };
    ($g:ident, $u:ident, ($cx:ident), do $path:path) => {
        $path($g, $u, $cx)
    };
    ($g:ident, $u:ident, $cx:tt, $rhs:tt) => {{
        let result = $crate::rewrite::rhs!($g, $u, $rhs);
        $crate::rewrite::pattern::Outcome::outcome(result, $g, $u)
    }};
}

/// Expands a right-hand side to an expression.
#[rustfmt::skip]
macro_rules! rhs {
    ($g:ident, $u:ident, {$($e:tt)*}) => { { $($e)* } };
    ($g:ident, $u:ident, ($a:tt + $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Add $a $b)) };
    ($g:ident, $u:ident, ($a:tt - $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Sub $a $b)) };
    ($g:ident, $u:ident, ($a:tt * $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Mul $a $b)) };
    ($g:ident, $u:ident, ($a:tt / $b:tt)) => { $crate::rewrite::rhs!($g, $u, (FloorDiv $a $b)) };
    ($g:ident, $u:ident, ($a:tt % $b:tt)) => { $crate::rewrite::rhs!($g, $u, (FloorMod $a $b)) };
    ($g:ident, $u:ident, ($a:tt & $b:tt)) => { $crate::rewrite::rhs!($g, $u, (And $a $b)) };
    ($g:ident, $u:ident, ($a:tt | $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Or $a $b)) };
    ($g:ident, $u:ident, ($a:tt ^ $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Xor $a $b)) };
    ($g:ident, $u:ident, ($a:tt << $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Shl $a $b)) };
    ($g:ident, $u:ident, ($a:tt >> $b:tt)) => { $crate::rewrite::rhs!($g, $u, (Shr $a $b)) };
    ($g:ident, $u:ident, ($a:tt < $b:tt)) => { $crate::rewrite::rhs!($g, $u, (CmpLt $a $b)) };
    ($g:ident, $u:ident, ($a:tt == $b:tt)) => { $crate::rewrite::rhs!($g, $u, (CmpEq $a $b)) };
    ($g:ident, $u:ident, ($a:tt != $b:tt)) => { $crate::rewrite::rhs!($g, $u, (CmpNe $a $b)) };
    ($g:ident, $u:ident, ($op:ident $a:tt)) => {{
        let a = $crate::rewrite::rhs!($g, $u, $a);
        $crate::rewrite::pattern::build1($g, $crate::uop::Op::$op, $u, a)
    }};
    ($g:ident, $u:ident, ($op:ident $a:tt $b:tt)) => {{
        let (a, b) = ($crate::rewrite::rhs!($g, $u, $a), $crate::rewrite::rhs!($g, $u, $b));
        $crate::rewrite::pattern::build2($g, $crate::uop::Op::$op, $u, a, b)
    }};
    ($g:ident, $u:ident, ($op:ident $a:tt $b:tt $c:tt)) => {{
        let a = $crate::rewrite::rhs!($g, $u, $a);
        let (b, c) = ($crate::rewrite::rhs!($g, $u, $b), $crate::rewrite::rhs!($g, $u, $c));
        $crate::rewrite::pattern::build3($g, $crate::uop::Op::$op, $u, a, b, c)
    }};
    ($g:ident, $u:ident, $l:literal) => { $l };
    ($g:ident, $u:ident, $x:ident) => { $x };
}

pub(crate) use {done, pat, pat_ops, rhs, rules, set};
