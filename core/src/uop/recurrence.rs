//! The argument of [`Op::Recurrence`]: a step as a tensor graph of its own ([`Recurrence::body`]), the number of steps,
//! and how many of the op's sources are states and sequences. [`unroll`] replaces the op by copies of the step.
//!
//! The body reads source `i` of the op through `Param` slot `i`: a state as it is before the step, of a sequence the
//! element of the step, and any other source whole. It has the values of elementwise and movement ops and of
//! reductions, and stores nothing.

use super::eval::eval_tensor;
use super::hash;
use super::{Arg, Graph, Op, Pairs, Shape, UOp};
use crate::dtype::Scalar;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A step that is repeated.
#[derive(Clone)]
pub struct Recurrence {
    /// Number of steps.
    pub steps: usize,
    /// Number of states: the first sources of the op are their initial values.
    pub states: usize,
    /// Number of sequences, the sources after the states.
    pub sequences: usize,
    /// The graph of one step.
    pub body: Arc<Graph>,
    /// The next value of each state, in the body.
    pub next: SmallVec<[UOp; 2]>,
    /// The elements that the reductions of one step combine.
    pub work: u64,
    /// Key of the body, by which recurrences are compared.
    key: u128,
    /// What is done with recurrences, as function pointers, so that builds which never make one contain no code for
    /// them.
    code: Code,
}

#[derive(Clone, Copy)]
struct Code {
    unroll: fn(&mut Graph, &[UOp], Wanted) -> Vec<UOp>,
    check: fn(&Graph, DType, &[UOp], &Recurrence) -> std::result::Result<(), String>,
    eval: fn(&Recurrence, &[Vec<u8>], Vars) -> Result<Vec<u8>>,
}

/// Says which recurrences are to be unrolled.
pub type Wanted<'a> = &'a dyn Fn(&Recurrence) -> bool;

/// The values of launch scalars.
type Vars<'a> = &'a dyn Fn(&str) -> Option<Scalar>;

impl Recurrence {
    /// A recurrence whose step computes `next` in the graph `body`, which must be a valid tensor graph.
    ///
    /// # Errors
    /// `E_VALUE` where the step has an op that none may have.
    pub fn new(steps: usize, states: usize, sequences: usize, body: Graph, next: &[UOp]) -> Result<Recurrence> {
        let allowed =
            |op: Op| op.is_alu() || op.is_movement() || matches!(op, Op::Const | Op::Param | Op::Iota | Op::Reduce);
        if let Some(u) = body.reachable(next).into_iter().find(|&u| !allowed(body.op(u))) {
            return Err(Error::value("recurrence", format!("a step has no {}", body.op(u).name())));
        }
        let key = hash::key(&body, next);
        let reduces = body.reachable(next).into_iter().filter(|&u| body.op(u) == Op::Reduce);
        let work = reduces.fold(0, |n: u64, u| n.saturating_add(body.numel(body.src_at(u, 0))));
        let code = Code { unroll: unroll_in, check, eval };
        let (body, next) = (Arc::new(body), SmallVec::from_slice(next));
        Ok(Recurrence { steps, states, sequences, body, next, work, key, code })
    }

    /// Checks that a node of this dtype with these sources may have this argument.
    pub(super) fn check(&self, g: &Graph, dtype: DType, src: &[UOp]) -> std::result::Result<(), String> {
        (self.code.check)(g, dtype, src, self)
    }

    /// The bytes of the op's value, from those of its sources.
    pub(super) fn eval(&self, src: &[Vec<u8>], vars: Vars) -> Result<Vec<u8>> {
        (self.code.eval)(self, src, vars)
    }

    /// The same with another number of steps.
    pub fn with_steps(&self, steps: usize) -> Recurrence {
        Recurrence { steps, ..self.clone() }
    }

    /// The structural key of the body.
    pub fn key(&self) -> u128 {
        self.key
    }

    /// Slot, dtype and number of elements of each parameter of the body.
    pub fn params(&self) -> impl Iterator<Item = (u32, DType, usize)> + '_ {
        self.body.reachable(&self.next).into_iter().filter_map(|u| match *self.body.arg(u) {
            Arg::Param { slot, len } => Some((slot, self.body.dtype(u), len)),
            _ => None,
        })
    }

    fn id(&self) -> (usize, usize, usize, u128) {
        (self.steps, self.states, self.sequences, self.key)
    }
}

impl PartialEq for Recurrence {
    fn eq(&self, other: &Recurrence) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Recurrence {}

impl Hash for Recurrence {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.id().hash(h);
    }
}

impl std::fmt::Debug for Recurrence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("step")
    }
}

/// Replaces recurrences below `roots` by one copy of the step for each of their steps, where `wanted` says so. Returns
/// the new roots.
pub fn unroll(g: &mut Graph, roots: &[UOp], wanted: Wanted) -> Vec<UOp> {
    let code = g.reachable(roots).into_iter().find_map(|u| match g.arg(u) {
        Arg::Recurrence(r) => Some(r.code),
        _ => None,
    });
    match code {
        Some(code) => (code.unroll)(g, roots, wanted),
        None => roots.to_vec(),
    }
}

/// The node below the reshapes of a source.
pub fn held(g: &Graph, mut u: UOp) -> UOp {
    while g.op(u) == Op::Reshape {
        u = g.src_at(u, 0);
    }
    u
}

fn is_in_memory(g: &Graph, u: UOp) -> bool {
    matches!(g.op(held(g, u)), Op::Buffer | Op::Param | Op::After | Op::Contiguous)
}

fn check(g: &Graph, dtype: DType, src: &[UOp], r: &Recurrence) -> std::result::Result<(), String> {
    let want = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
    let rows = r.states + r.sequences;
    want(r.states > 0 && rows <= src.len(), "fewer sources than states and sequences")?;
    let shape = g.shape(src[0]);
    let like = |s: &UOp| g.dtype(*s) == dtype && g.shape(*s) == shape;
    want(src[..r.states].iter().all(like), "states of several shapes or dtypes")?;
    let each = |s: &UOp| !g.shape(*s).is_empty() && g.shape(*s)[0] == r.steps;
    want(src[r.states..rows].iter().all(each), "a sequence without an element for each step")?;
    want(src[r.states..].iter().all(|&s| is_in_memory(g, s)), "a sequence or constant that is not in memory")?;
    let counted = r.steps.checked_add(1).and_then(|n| n.checked_mul(r.states));
    let elements = shape.iter().filter(|n| **n > 0).try_fold(counted.unwrap_or(usize::MAX), |n, &d| n.checked_mul(d));
    want(elements.is_some_and(|n| n <= isize::MAX as usize), "larger than any memory")?;
    for (slot, dtype, len) in r.params() {
        let Some(&s) = src.get(slot as usize) else { return Err(format!("no source {slot}")) };
        let steps = if (r.states..rows).contains(&(slot as usize)) { r.steps as u64 } else { 1 };
        let fits = g.dtype(s) == dtype && (len as u64).checked_mul(steps) == Some(g.numel(s));
        want(fits, "a source that is not as the step expects it")?;
    }
    let next = |&u: &UOp| r.body.dtype(u) == dtype && r.body.shape(u) == shape;
    want(r.next.len() == r.states && r.next.iter().all(next), "next states that are not like the states")
}

/// Evaluates the body once for each step.
fn eval(r: &Recurrence, src: &[Vec<u8>], vars: Vars) -> Result<Vec<u8>> {
    let rows = r.states + r.sequences;
    let mut states = src[..r.states].to_vec();
    let mut all: Vec<Vec<u8>> = states.clone();
    for step in 0..r.steps {
        let mut storage = |slot: u32| {
            let slot = slot as usize;
            Some(match states.get(slot) {
                Some(state) => state.clone(),
                None if slot < rows => {
                    let size = src[slot].len() / r.steps;
                    src[slot][step * size..(step + 1) * size].to_vec()
                }
                None => src[slot].clone(),
            })
        };
        let next = eval_tensor(&r.body, &r.next, &mut storage, vars)?;
        states = next.into_iter().map(|v| v.data).collect();
        all.iter_mut().zip(&states).for_each(|(list, s)| list.extend_from_slice(s));
    }
    Ok(all.concat())
}

fn unroll_in(g: &mut Graph, roots: &[UOp], wanted: Wanted) -> Vec<UOp> {
    let nodes = g.reachable(roots);
    let mut image: Vec<UOp> = g.iter().collect();
    let mut unrolled: FxHashMap<UOp, Unrolled> = FxHashMap::default();
    let is_root = |u: UOp| roots.contains(&u);
    for u in nodes {
        let mut src: SmallVec<[UOp; 4]> = g.src(u).iter().map(|s| image[s.0 as usize]).collect();
        let part = match g.arg(u) {
            Arg::Pairs(pairs) if g.op(u) == Op::Shrink && unrolled.contains_key(&g.src_at(u, 0)) => Some(pairs.clone()),
            _ => None,
        };
        if let Some(pairs) = part {
            image[u.0 as usize] = unrolled[&g.src_at(u, 0)].part(g, &pairs);
            continue;
        }
        for (i, s) in src.iter_mut().enumerate() {
            if let Some(made) = unrolled.get(&g.src_at(u, i)) {
                *s = made.whole(g);
            }
        }
        image[u.0 as usize] = match g.arg(u).clone() {
            Arg::Recurrence(r) if wanted(&r) => {
                let made = Unrolled::new(g, &src, &r);
                if is_root(u) {
                    image[u.0 as usize] = made.whole(g);
                }
                unrolled.insert(u, made);
                continue;
            }
            _ => g.with_src(u, &src),
        };
    }
    roots.iter().map(|r| image[r.0 as usize]).collect()
}

/// The states of an unrolled recurrence: for each state its values before the first step and after each.
struct Unrolled(SmallVec<[Vec<UOp>; 2]>);

impl Unrolled {
    fn new(g: &mut Graph, src: &[UOp], r: &Recurrence) -> Unrolled {
        let rows = r.states + r.sequences;
        // initial states are stored, so that the first step is the same kernels as the others, and their operands have
        // one use, for which they may be packed
        let stored = |&s: &UOp| match is_in_memory(g, s) {
            true => s,
            false => g.node(Op::Contiguous, g.dtype(s), &[s], Arg::None),
        };
        let mut states: SmallVec<[UOp; 2]> = src[..r.states].iter().map(stored).collect();
        let mut all: SmallVec<[Vec<UOp>; 2]> = states.iter().map(|&s| vec![s]).collect();
        for step in 0..r.steps {
            let next = g.import(&r.body, &r.next, |g, u| {
                let Arg::Param { slot, len } = *r.body.arg(u) else { return None };
                let slot = slot as usize;
                let x = match states.get(slot) {
                    Some(&state) => state,
                    None if slot < rows => {
                        let mut pairs = whole_axes(g, src[slot]);
                        pairs[0] = (step, step + 1);
                        g.shrink(src[slot], &pairs)
                    }
                    None => src[slot],
                };
                Some(g.reshape(x, &[len]))
            });
            states = SmallVec::from_vec(next);
            all.iter_mut().zip(&states).for_each(|(list, &s)| list.push(s));
        }
        Unrolled(all)
    }

    /// The value of the op.
    fn whole(&self, g: &mut Graph) -> UOp {
        let n = self.0[0].len();
        let parts: Vec<UOp> = (0..self.0.len()).map(|s| self.steps(g, s, 0, n)).collect();
        joined(g, &parts, 0)
    }

    /// State `s` after the steps `from..to`, with axes of its own for the state and the step.
    fn steps(&self, g: &mut Graph, s: usize, from: usize, to: usize) -> UOp {
        let mut shape = g.shape(self.0[s][0]).clone();
        shape.insert_from_slice(0, &[1, 1]);
        let parts: Vec<UOp> = self.0[s][from..to].iter().map(|&x| g.reshape(x, &shape)).collect();
        joined(g, &parts, 1)
    }

    /// The part of the op's value that a Shrink keeps. Of a single state it is made of the steps that are kept alone.
    fn part(&self, g: &mut Graph, pairs: &[(usize, usize)]) -> UOp {
        let (state, (from, to)) = (pairs[0], pairs[1]);
        if state.1 != state.0 + 1 || from == to {
            let whole = self.whole(g);
            return g.shrink(whole, pairs);
        }
        let steps = self.steps(g, state.0, from, to);
        let mut rest = Pairs::from_slice(pairs);
        (rest[0], rest[1]) = ((0, 1), (0, to - from));
        if rest == whole_axes(g, steps) { steps } else { g.shrink(steps, &rest) }
    }
}

/// The pairs of a Shrink that keeps everything.
fn whole_axes(g: &Graph, u: UOp) -> Pairs {
    g.shape(u).iter().map(|&n| (0, n)).collect()
}

/// Joins one or more parts of equal shape along an axis, as the frontend's `cat` does.
fn joined(g: &mut Graph, parts: &[UOp], axis: usize) -> UOp {
    let last = parts[parts.len() - 1];
    if parts.len() == 1 {
        return last;
    }
    let (size, is_float) = (g.shape(last)[axis], g.dtype(last).is_float());
    let total = size * parts.len();
    let mut padded: Vec<UOp> = Vec::with_capacity(parts.len());
    for (i, &p) in parts.iter().enumerate() {
        let mut pairs: Pairs = g.shape(p).iter().map(|_| (0, 0)).collect();
        pairs[axis] = (i * size, total - (i + 1) * size);
        padded.push(g.pad(p, &pairs));
    }
    let shape = g.shape(padded[0]).clone();
    if !is_float {
        let op = if g.dtype(last) == DType::Bool { Op::Or } else { Op::Add };
        return padded[1..].iter().fold(padded[0], |all, &p| g.binary(op, all, p));
    }
    let mut thin: Shape = shape.iter().map(|_| 1).collect();
    thin[axis] = total;
    let iota = g.node(Op::Iota, DType::I32, &[], Arg::Shape(Shape::from_slice(&[total])));
    let iota = g.reshape(iota, &thin);
    let mut whole = padded[parts.len() - 1];
    for i in (0..parts.len() - 1).rev() {
        let end = g.int(((i + 1) * size) as i64, DType::I32);
        let before = g.binary(Op::CmpLt, iota, end);
        let before = g.expand(before, &shape);
        whole = g.select(before, padded[i], whole);
    }
    whole
}
