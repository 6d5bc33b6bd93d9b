//! Translation validation: evaluates kernel expressions on given leaf values, and checks each firing of a rule on
//! random ones. Every value that is defined before must be the same afterwards, bit for bit; all NaNs count as equal.

use super::fold::fold;
use crate::DType;
use crate::dtype::Scalar;
use crate::rewrite::{Memo, Rules, rewrite_with};
use crate::uop::{Arg, AxisKind, Graph, Op, Trace, UOp};
use crate::util::trig;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A small deterministic random number generator (xorshift64*).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
    pub(crate) fn between(&mut self, lo: i64, hi: i64) -> i64 {
        (lo as i128 + (self.next() as i128) % (hi as i128 - lo as i128 + 1)) as i64
    }
    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// The values of leaves. A leaf without a value is undefined, as one that is masked out.
pub(crate) type Env = FxHashMap<UOp, Scalar>;

/// Evaluates `u` with the leaf values of `env`; the value of a load is derived from its index.
pub(crate) fn eval(g: &Graph, u: UOp, env: &Env) -> Option<Scalar> {
    let mut memo: FxHashMap<UOp, Option<Scalar>> = FxHashMap::default();
    for n in g.reachable(&[u]) {
        let src = g.src(n);
        let v = match g.op(n) {
            Op::Const => g.const_val(n),
            Op::Where => match memo[&src[0]] {
                Some(c) => memo[&src[if c.as_bool() { 1 } else { 2 }]],
                None => None,
            },
            op if op.is_alu() => src
                .iter()
                .map(|&s| memo[&s].map(|v| (v, g.dtype(s))))
                .collect::<Option<Vec<_>>>()
                .and_then(|src| fold(op, g.dtype(n), &src).or_else(|| inexact(op, g.dtype(n), &src))),
            Op::Index => memo[&src[1]],
            Op::Load if src.len() == 3 && memo[&src[2]].is_some_and(|c| !c.as_bool()) => memo[&src[1]],
            Op::Load => memo[&src[0]].map(|i| Scalar::from_i64(i.as_i64().wrapping_mul(7919) % 101, g.dtype(n))),
            _ => env.get(&n).copied(),
        };
        memo.insert(n, v);
    }
    memo[&u]
}

/// The values that [`fold`] does not give because they depend on the host: NaN payloads and functions of the f64
/// library.
fn inexact(op: Op, dt: DType, src: &[(Scalar, DType)]) -> Option<Scalar> {
    let x = src[0].0.as_f64();
    if op == Op::Bitcast {
        return Some(reinterpret(src[0].0, src[0].1, dt));
    }
    Some(Scalar::float(match op {
        Op::Exp2 => x.exp2(),
        Op::Log2 => x.log2(),
        Op::Sin => trig::sin(x),
        Op::Cos => trig::cos(x),
        Op::Tan => trig::tan(x),
        Op::Pow => x.powf(src[1].0.as_f64()),
        _ => return None,
    }))
}

/// The same bits as a value of another dtype; every NaN becomes the quiet NaN.
pub(crate) fn reinterpret(x: Scalar, from: DType, to: DType) -> Scalar {
    let mut bytes = [0; 8];
    x.write(from, &mut bytes);
    Scalar::read(to, &bytes)
}

fn is_leaf(g: &Graph, u: UOp) -> bool {
    let op = g.op(u);
    !op.is_alu() && !matches!(op, Op::Const | Op::Index | Op::Load)
}

/// The leaves of `roots`.
pub(crate) fn leaves(g: &Graph, roots: &[UOp]) -> Vec<UOp> {
    g.reachable(roots).into_iter().filter(|&u| is_leaf(g, u)).collect()
}

/// A random value for a leaf within its bounds; the ends of the bounds are more frequent.
pub(crate) fn sample(g: &Graph, u: UOp, rng: &mut Rng) -> Scalar {
    let dt = g.dtype(u);
    if dt.is_float() {
        let v = match rng.below(8) {
            0 => rng.pick(&[0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, 3.4e38]),
            _ => (rng.next() as i64 as f64) / (1u64 << rng.below(63)) as f64,
        };
        return Scalar::from_f64(v, dt);
    }
    let (lo, hi) = g.bounds(u);
    Scalar::from_i64(
        match rng.below(6) {
            0 => lo,
            1 => hi,
            2 => rng.between(lo.max(-3), hi.min(3).max(lo.max(-3))),
            _ => rng.between(lo, hi),
        },
        dt,
    )
}

/// Checks on `points` random assignments of leaves that `after` has the value of `before` wherever that is defined.
pub(crate) fn check_equal(g: &Graph, before: UOp, after: UOp, points: usize, rng: &mut Rng, what: &str) {
    let leaves = leaves(g, &[before, after]);
    for _ in 0..points {
        let env: Env = leaves.iter().map(|&l| (l, sample(g, l, rng))).collect();
        let want = eval(g, before, &env);
        let got = eval(g, after, &env);
        assert!(
            want.is_none() || want == got,
            "{what}: {} = {want:?} became {} = {got:?} at {env:?}",
            show(g, before),
            show(g, after)
        );
    }
}

/// Rewrites `root` and validates every firing; returns the image and the names of the rules that fired.
pub(crate) fn validated(
    g: &mut Graph,
    root: UOp,
    sets: &[&dyn Rules<()>],
    points: usize,
    rng: &mut Rng,
) -> (UOp, BTreeSet<&'static str>) {
    g.trace = Some(Box::new(Trace::logging()));
    let out = rewrite_with(g, &[root], sets, &mut (), &mut Memo::new())[0];
    let trace = g.trace.take().expect("it was given");
    for f in &trace.firings {
        check_equal(g, f.before, f.after, points, rng, f.rule);
    }
    check_equal(g, root, out, points, rng, "whole rewrite");
    (out, trace.hits.keys().map(|k| k.1).collect())
}

/// Checks that every node under `root` lies in its bounds at `env`.
pub(crate) fn check_bounds(g: &Graph, root: UOp, env: &Env) {
    for u in g.reachable(&[root]) {
        let dt = g.dtype(u);
        if dt.is_float() || dt == DType::U64 || dt == DType::Void {
            continue;
        }
        if let Some(v) = eval(g, u, env) {
            let (lo, hi) = g.bounds(u);
            assert!(lo <= v.as_i64() && v.as_i64() <= hi, "{} = {v:?} outside {lo}..={hi} at {env:?}", show(g, u));
        }
    }
}

/// An expression as text, fully parenthesised except for sums and products.
pub(crate) fn show(g: &Graph, u: UOp) -> String {
    let s = |i: usize| show(g, g.src_at(u, i));
    let infix = |op: &str| format!("({}{op}{})", s(0), s(1));
    match g.op(u) {
        Op::Const => format!("{:?}", g.const_val(u).expect("a constant")),
        Op::Range => format!("r{}", g.range_arg(u).id),
        Op::Var => match g.arg(u) {
            Arg::Var { name, .. } => name.to_string(),
            _ => String::new(),
        },
        Op::Add => infix("+"),
        Op::Sub => infix("-"),
        Op::Mul => infix("*"),
        Op::FloorDiv => infix("//"),
        Op::FloorMod => infix("%"),
        Op::CmpLt => infix("<"),
        Op::CmpEq => infix("=="),
        Op::CmpNe => infix("!="),
        Op::And => infix("&"),
        Op::Or => infix("|"),
        Op::Cast => format!("{}({})", g.dtype(u), s(0)),
        op => {
            let src: Vec<String> = g.src(u).iter().map(|&x| show(g, x)).collect();
            if src.is_empty() { op.name() } else { format!("{}({})", op.name(), src.join(", ")) }
        }
    }
}

/// A range `r{id}` of length `n`.
pub(crate) fn range(g: &mut Graph, id: u8, n: usize) -> UOp {
    g.range(n, id, AxisKind::Loop)
}

/// A variable.
pub(crate) fn var(g: &mut Graph, name: &str, dt: DType, min: i64, max: i64) -> UOp {
    g.node(Op::Var, dt, &[], Arg::Var { name: name.into(), min, max })
}

/// Parses an expression: `r0*4+r1`, `(a // 4) % 7`, `a<3&b<2`, with ranges and variables given by name, i32.
pub(crate) fn parse(g: &mut Graph, text: &str, names: &[(&str, UOp)]) -> UOp {
    let tokens = tokenise(text);
    let mut at = 0;
    let u = binary(g, &tokens, &mut at, names, 0);
    assert_eq!(at, tokens.len(), "trailing text in {text}");
    u
}

fn tokenise(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let chars: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut i = 0;
    while i < chars.len() {
        let mut j = i + 1;
        if chars[i].is_alphanumeric() {
            while j < chars.len() && chars[j].is_alphanumeric() {
                j += 1;
            }
        } else if matches!(chars[i], '/' | '=' | '!') && j < chars.len() && matches!(chars[j], '/' | '=') {
            j += 1;
        }
        out.push(chars[i..j].iter().collect());
        i = j;
    }
    out
}

const LEVELS: &[&[(&str, Op)]] = &[
    &[("|", Op::Or)],
    &[("&", Op::And)],
    &[("<", Op::CmpLt), ("==", Op::CmpEq), ("!=", Op::CmpNe)],
    &[("+", Op::Add), ("-", Op::Sub)],
    &[("*", Op::Mul), ("//", Op::FloorDiv), ("%", Op::FloorMod)],
];

fn binary(g: &mut Graph, t: &[String], at: &mut usize, names: &[(&str, UOp)], level: usize) -> UOp {
    let Some(ops) = LEVELS.get(level) else { return atom(g, t, at, names) };
    let mut x = binary(g, t, at, names, level + 1);
    while let Some(&(_, op)) = t.get(*at).and_then(|tok| ops.iter().find(|o| o.0 == tok)) {
        *at += 1;
        let y = binary(g, t, at, names, level + 1);
        x = g.binary(op, x, y);
    }
    x
}

fn atom(g: &mut Graph, t: &[String], at: &mut usize, names: &[(&str, UOp)]) -> UOp {
    let tok = t[*at].clone();
    *at += 1;
    match tok.as_str() {
        "(" => {
            let x = binary(g, t, at, names, 0);
            assert_eq!(t[*at], ")");
            *at += 1;
            x
        }
        "-" => {
            let v: i64 = t[*at].parse().expect("a number");
            *at += 1;
            g.idx(-v)
        }
        "!" => {
            let x = atom(g, t, at, names);
            let y = g.bool(true);
            g.binary(Op::CmpNe, x, y)
        }
        "true" => g.bool(true),
        "false" => g.bool(false),
        _ => match tok.parse::<i64>() {
            Ok(v) => g.idx(v),
            Err(_) => names.iter().find(|n| n.0 == tok).unwrap_or_else(|| panic!("unknown name {tok}")).1,
        },
    }
}
