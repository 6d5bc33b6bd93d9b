//! Random programs of the frontend: lists of operations on small tensors of every dtype, whose values on a device must be those
//! of the evaluator. The same seed is the same program on every host.
//!
//! A program is data, so that one that fails can be made shorter, written to a file and run again: each line names an
//! operation, the lines whose values it takes, and a number of which its details (axes, sizes, constants) are drawn when its
//! operands are known. So a line means something whatever other lines become.

mod ops;
mod recurrence;

use crate::runner::block;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Engine, RootId};
use gradloom_core::uop::UOp;
use gradloom_core::uop::eval::eval_graph;
use gradloom_core::uop::random::Rng;
use gradloom_core::{DType, Error, Result, Session};
use ops::{OPS, Value};
use std::fmt;
use std::future::{Future, ready};

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As one graph, so that operations become few kernels.
    Fused,
    /// The value of each line is stored.
    Stored,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    /// Its place in [`OPS`]; of a line that was taken out, the line that stands for it is its first operand.
    op: Option<usize>,
    args: [usize; 3],
    details: u64,
}

/// Operations in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    lines: Vec<Line>,
    mode: Mode,
}

/// Values of which more than these are left out of a comparison.
const MOST_RESULTS: usize = 4;

impl Program {
    /// The program of a seed.
    pub fn random(seed: u64) -> Program {
        let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed);
        let (first, n) = (1 + rng.below(3), 1 + rng.below(9));
        let mode = if rng.once_in(3) { Mode::Stored } else { Mode::Fused };
        let mut lines = Vec::new();
        for i in 0..first + n {
            let op = if i < first { rng.below(ops::SOURCES) } else { rng.below(OPS.len()) };
            // recent values more often, so that programs get deep
            let mut arg = || i.saturating_sub(1 + rng.below(i.max(1)).min(rng.below(i.max(1))));
            let args = [arg(), arg(), arg()];
            lines.push(Line { op: Some(op), args, details: rng.bits() });
        }
        Program { lines, mode }
    }

    /// How it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The program of a text as `Display` writes it. What follows a `#` is ignored.
    pub fn parse(text: &str) -> Option<Program> {
        let mut words = text.lines().map(|l| l.split('#').next().unwrap_or("").split_whitespace());
        let mode = match words.next()?.next()? {
            "fused" => Mode::Fused,
            "stored" => Mode::Stored,
            _ => return None,
        };
        let mut lines = Vec::new();
        for mut w in words {
            let Some(name) = w.next() else { continue };
            let op = if name == "same" { None } else { Some(OPS.iter().position(|o| o.0 == name)?) };
            let mut number = || w.next()?.parse::<u64>().ok();
            let args = [number()? as usize, number()? as usize, number()? as usize];
            let (details, here) = (number()?, lines.len());
            if args.iter().any(|&a| a > here || a == here && here > 0) {
                return None;
            }
            lines.push(Line { op, args, details });
        }
        Some(Program { lines, mode })
    }

    /// The values of the lines; none where an operation does not take its operands.
    fn build(&self, session: &Session) -> Vec<Option<Value>> {
        let mut values: Vec<Option<Value>> = Vec::new();
        for line in &self.lines {
            let get = |i: usize| values.get(line.args[i]).cloned().flatten();
            let value = match line.op {
                None => get(0),
                Some(op) => ops::apply(session, op, [get(0), get(1), get(2)], Rng(line.details)).map(|mut v| {
                    if self.mode == Mode::Stored {
                        v.t = v.t.contiguous();
                    }
                    v
                }),
            };
            values.push(value);
        }
        values
    }

    /// The last values that no line uses, with the numbers of their lines.
    fn results(&self, session: &Session) -> Vec<(usize, Value)> {
        let values = self.build(session);
        let used = |i: usize| {
            self.lines[i + 1..].iter().any(|l| {
                let n = l.op.map_or(1, |op| OPS[op].1);
                l.args[..n].contains(&i)
            })
        };
        let all = values.into_iter().enumerate().rev().filter_map(|(i, v)| Some((i, v?)));
        all.filter(|&(i, _)| !used(i)).take(MOST_RESULTS).collect()
    }

    /// The programs that lack one line. What used it uses its first operand instead.
    pub fn shorter(&self) -> impl Iterator<Item = Program> + '_ {
        (0..self.lines.len()).rev().filter_map(|i| {
            let mut cut = self.clone();
            cut.lines.remove(i);
            let instead = self.lines[i].args[0];
            let moved = |a: usize| if a == i { instead } else { a - usize::from(a > i) };
            cut.lines[i..].iter_mut().for_each(|l| l.args = l.args.map(moved));
            let whole = cut.lines.iter().enumerate().all(|(at, l)| at == 0 || l.args.iter().all(|&a| a < at));
            (whole && !cut.lines.is_empty()).then_some(cut)
        })
    }

    /// The program without the lines that do not matter to `fails`.
    pub fn shrink(&self, mut fails: impl FnMut(&Program) -> bool) -> Program {
        let mut best = self.clone();
        loop {
            let next = best.shorter().find(&mut fails);
            match next {
                Some(next) => best = next,
                None => return best,
            }
        }
    }

    /// The program with the shapes and dtypes of its values.
    pub fn describe(&self) -> String {
        let session = Session::new();
        let values = self.build(&session);
        let text = self.to_string();
        let mut out = String::new();
        for (i, line) in text.lines().enumerate() {
            let value = i.checked_sub(1).and_then(|i| values[i].as_ref());
            let what = value.map_or(String::new(), |v| format!("  # {}: {} {:?}", i - 1, v.t.dtype(), v.t.shape()));
            out += &format!("{line}{what}\n");
        }
        out
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", if self.mode == Mode::Fused { "fused" } else { "stored" })?;
        for l in &self.lines {
            let [a, b, c] = l.args;
            writeln!(f, "{} {a} {b} {c} {}", l.op.map_or("same", |op| OPS[op].0), l.details)?;
        }
        Ok(())
    }
}

/// What a device makes of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The evaluator's values.
    Same,
    /// A dtype that the device does not have.
    Refused,
    /// Other values, or an error.
    Wrong(String),
}

/// Runs a program on a device that blocks. All programs of an engine belong to one session.
pub fn run(engine: &mut Engine, session: &Session, program: &Program) -> Outcome {
    block(run_async(engine, session, program, &|| ready(())))
}

/// The same where waiting must be awaited.
pub async fn run_async<F: Future<Output = ()>>(
    engine: &mut Engine,
    session: &Session,
    program: &Program,
    wait: &impl Fn() -> F,
) -> Outcome {
    let results = program.results(session);
    let outcome = match compare(engine, session, &results, wait).await {
        Ok(None) => Outcome::Same,
        Ok(Some(what)) => Outcome::Wrong(what),
        Err(Error::Unsupported { .. }) => Outcome::Refused,
        Err(e) => Outcome::Wrong(format!("{e} [{}]", e.code())),
    };
    drop(results);
    engine.collect(&mut session.state());
    outcome
}

/// Do the opts that are chosen fit all kernels of a program, on a device that need not run them?
///
/// # Errors
/// Those of compiling it.
pub fn fits(engine: &mut Engine, session: &Session, program: &Program) -> Result<bool> {
    let results = program.results(session);
    let roots: Vec<RootId> = results.iter().map(|(_, v)| v.t.root()).collect();
    let before = engine.counters().fallbacks;
    let pending = engine.start(&mut session.state(), &roots)?;
    while !engine.ready()? {}
    drop((pending, results));
    engine.collect(&mut session.state());
    Ok(engine.counters().fallbacks == before)
}

async fn compare<F: Future<Output = ()>>(
    engine: &mut Engine,
    session: &Session,
    results: &[(usize, Value)],
    wait: &impl Fn() -> F,
) -> Result<Option<String>> {
    if results.is_empty() {
        return Ok(None);
    }
    let want = {
        let s = session.state();
        let roots: Vec<UOp> = results.iter().map(|(_, v)| s.node(v.t.root())).collect();
        let mut bytes = |id: u32| s.buffer(id)?.host.as_ref().map(|h| h.to_vec());
        eval_graph(&s.graph, &roots, &mut bytes, &|_| None)?.values
    };
    let roots: Vec<RootId> = results.iter().map(|(_, v)| v.t.root()).collect();
    let before = engine.counters().fallbacks;
    let pending = engine.start(&mut session.state(), &roots)?;
    while !engine.ready()? {
        wait().await;
    }
    if engine.counters().fallbacks > before {
        return Ok(Some("opts were chosen that do not fit the kernel".into()));
    }
    engine.finish(&mut session.state(), pending)?;
    for ((line, value), want) in results.iter().zip(&want) {
        let (ticket, dtype, _) = engine.read(&mut session.state(), value.t.root())?;
        let got = loop {
            if let Some(bytes) = engine.poll(ticket, dtype)? {
                break bytes;
            }
            wait().await;
        };
        if let Some(what) = difference(value, want.dtype, &got, &want.data) {
            return Ok(Some(format!("line {line} ({} {:?}): {what}", want.dtype, value.t.shape())));
        }
    }
    Ok(None)
}

/// The first element that differs by more than rounding allows.
fn difference(value: &Value, dt: DType, got: &[u8], want: &[u8]) -> Option<String> {
    if got.len() != want.len() {
        return Some(format!("{} bytes instead of {}", got.len(), want.len()));
    }
    let limit = value.limit();
    let size = dt.size();
    got.chunks(size).zip(want.chunks(size)).enumerate().find_map(|(i, (g, w))| {
        let (g, w) = (Scalar::read(dt, g), Scalar::read(dt, w));
        let (a, b) = (g.as_f64_of(dt), w.as_f64_of(dt));
        let beyond = value.rough() && (value.wild || value.scale > 1e30);
        let same = g == w || dt.is_float() && (beyond || a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= limit);
        (!same).then(|| format!("element {i} is {g:?}, the evaluator has {w:?}, {limit:e} apart at most"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_survive_being_written() {
        for seed in 0..200 {
            let p = Program::random(seed);
            assert_eq!(Program::parse(&p.describe()), Some(p));
        }
        assert_eq!(Program::parse("fused\nadd 0 0 7 1\n"), None, "an operand that comes later");
    }

    #[test]
    fn a_sum_in_any_order_is_within_its_limit_and_little_more() {
        let text =
            "fused\narange 0 0 0 18259096060983458388\nmul 0 0 0 15061666687899590519\nsum 1 1 0 9606699099437512432\n";
        let p = Program::parse(text).expect("a program");
        let session = Session::new();
        let [_, terms, sum] = &p.build(&session)[..] else { panic!("three values") };
        let (terms, sum) = (terms.clone().expect("terms"), sum.clone().expect("their sum"));
        let root = session.state().node(terms.t.root());
        let values = {
            let s = session.state();
            eval_graph(&s.graph, &[root], &mut |_| None, &|_| None).expect("no buffers").values
        };
        let x: Vec<f32> = values[0].data.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let lanes = |n: usize| (0..n).map(|i| x.iter().skip(i).step_by(n).sum::<f32>()).sum::<f32>();
        let all = [1, 2, 4, 8, 16, 64].map(lanes);
        let apart = |a: f32| (f64::from(a) - f64::from(all[0])).abs();
        assert!(all.iter().any(|&a| apart(a) > 0.0), "the order shows: {all:?}");
        assert!(all.iter().all(|&a| apart(a) <= sum.limit()), "{all:?} within {}", sum.limit());
        let sizes: f64 = x.iter().map(|v| f64::from(v.abs())).sum();
        assert!(sum.limit() < 1e-3 * sizes, "{} of {sizes}", sum.limit());
    }

    #[test]
    fn shrinking_keeps_what_matters() {
        let has = |p: &Program, name: &str| p.lines.iter().any(|l| l.op.is_some_and(|op| OPS[op].0 == name));
        let p = (0..).map(Program::random).find(|p| has(p, "sort") && p.lines.len() > 5).expect("one of them sorts");
        let short = p.shrink(|p| has(p, "sort"));
        assert!(has(&short, "sort") && short.lines.len() <= 2, "{short}");
    }
}
