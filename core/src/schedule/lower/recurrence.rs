//! Lowers a Recurrence: a kernel that stores the initial states, and kernels with a loop of kind [`AxisKind::Walk`]
//! over some of the steps. An iteration loads the states from the result itself, where the one before has stored them,
//! computes what the step keeps into local arrays ([`super::kept`]), and stores the next states.
//!
//! The graph of the step is lowered like a tensor graph of its own. Its parameters are views of the op's sources:
//! [`step_value`] finds the address.

use super::super::recurrence::{kept, launches};
use super::super::rows::Rows;
use super::super::share::launch_scalar;
use super::{Buffers, Lower, Tuple};
use crate::dtype::Scalar;
use crate::schedule::fuse::{self, Cuts};
use crate::schedule::order::{Pending, State};
use crate::target::Target;
use crate::uop::recurrence::{Recurrence, held};
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Where the parameters of a step are.
pub(super) struct Step {
    /// [`step_value`]: a function pointer, so that only recurrences refer to it.
    pub(super) value: fn(&mut Lower<'_>, UOp, u32, UOp, Option<UOp>) -> UOp,
    states: usize,
    sequences: usize,
    steps: usize,
    /// The index of the step.
    at: UOp,
    /// The pointer through which an iteration loads the states.
    result: UOp,
    /// The buffers of the op's sources after the states, in which version.
    sources: Vec<State>,
}

/// The kernels of the recurrence `u`, in order.
pub(in crate::schedule) fn kernels(
    g: &Graph,
    u: UOp,
    cuts: &Cuts,
    buffers: &Buffers,
    versions: &FxHashMap<UOp, u32>,
    t: &Target,
) -> Result<Vec<Pending>> {
    let Arg::Recurrence(r) = g.arg(u) else { return Err(Error::Internal("a recurrence without a step".into())) };
    let mut out = vec![Lower::new(g, cuts, buffers, versions, t).initial_states(u, r)?];
    // they are in memory, whole and row-major: the spec demands it
    let source = |&s: &UOp| -> Result<State> {
        let at = held(g, s);
        let buffer = buffers.of.get(&fuse::buffer_node(g, at));
        let buffer = buffer.ok_or_else(|| Error::Internal("a source of a recurrence is not in memory".into()))?;
        Ok((*buffer, versions.get(&at).copied().unwrap_or(0)))
    };
    let sources: Vec<State> = g.src(u)[r.states..].iter().map(source).collect::<Result<_>>()?;
    let body = &*r.body;
    let inside = Cuts::none(body);
    let all = |u: UOp| body.shape(u).iter().map(|_| false).collect();
    let rows =
        Rows { loops: Default::default(), kept: kept(r).into_iter().map(|u| (u, all(u))).collect(), scaled: None };
    let (size, begins) = launches(r);
    for (i, from) in (0u32..).zip(begins) {
        let mut lower = Lower::new(body, &inside, buffers, versions, t);
        lower.rows = Some(&rows);
        let buffer = buffers.of[&u];
        lower.reads.push((buffer, i));
        out.push(lower.steps(r, u, g.dtype(u), (buffer, i + 1), &sources, (from, size))?);
    }
    Ok(out)
}

impl Lower<'_> {
    fn initial_states(mut self, u: UOp, r: &Recurrence) -> Result<Pending> {
        let g = self.g;
        let shape = g.shape(g.src_at(u, 0)).clone();
        let idx: Tuple = shape.iter().map(|&n| self.range(n, AxisKind::Loop)).collect::<Result<_>>()?;
        let state = self.range(r.states, AxisKind::Loop)?;
        let buffer = self.buffers.of[&u];
        let info = self.buffers.list[buffer];
        self.args.push(buffer);
        let ptr = self.k.param(0, self.t.stored_as(info.dtype)?, info.len);
        let values: SmallVec<[UOp; 2]> =
            (0..r.states).map(|s| self.evaluate(g.src_at(u, s), idx.clone(), false)).collect::<Result<_>>()?;
        let zero = self.k.idx(0);
        let store = self.store_states(r, ptr, &shape, (state, zero, &idx), &values);
        Ok(self.finished(u, store, (buffer, 0)))
    }

    /// The kernel of the `size` steps that begin with step `from`, which is a launch scalar where there are more steps.
    fn steps(
        mut self,
        r: &Recurrence,
        u: UOp,
        dtype: DType,
        written: State,
        sources: &[State],
        (from, size): (usize, usize),
    ) -> Result<Pending> {
        let g = self.g;
        let shape = g.shape(r.next[0]).clone();
        let walk = self.range(size, AxisKind::Walk)?;
        let idx: Tuple = shape.iter().map(|&n| self.range(n, AxisKind::Loop)).collect::<Result<_>>()?;
        let state = self.range(r.states, AxisKind::Loop)?;
        let info = self.buffers.list[written.0];
        self.args.push(written.0);
        let ptr = self.k.param(0, self.t.stored_as(dtype)?, info.len);
        let result = if self.k.op(walk) == Op::Range { self.k.after(ptr, &[walk]) } else { ptr };
        let mut at = walk;
        if size < r.steps {
            let dt = self.k.dtype(walk);
            let from = launch_scalar(&mut self.k, 0, (r.steps - size) as i64, dt);
            at = self.add_idx(walk, from);
        }
        self.step = Some(Step {
            value: step_value,
            states: r.states,
            sequences: r.sequences,
            steps: r.steps,
            at,
            result,
            sources: sources.to_vec(),
        });
        let values: SmallVec<[UOp; 2]> =
            r.next.iter().map(|&n| self.evaluate(n, idx.clone(), false)).collect::<Result<_>>()?;
        let after = self.shift(at, 1);
        let store = self.store_states(r, ptr, &shape, (state, after, &idx), &values);
        let mut pending = self.finished(u, store, written);
        if size < r.steps {
            pending.kernel.scalars = vec![from as i32];
        }
        Ok(pending)
    }

    /// Stores the states at index `step`; `state` is the loop over them.
    fn store_states(
        &mut self,
        r: &Recurrence,
        ptr: UOp,
        shape: &[usize],
        (state, step, idx): (UOp, UOp, &Tuple),
        values: &[UOp],
    ) -> UOp {
        let mut value = values[values.len() - 1];
        for (i, &v) in values.iter().enumerate().rev().skip(1) {
            let end = self.k.int(i as i64 + 1, self.k.dtype(state));
            let own = self.k.binary(Op::CmpLt, state, end);
            value = self.k.select(own, v, value);
        }
        let mut whole: SmallVec<[usize; 6]> = SmallVec::from_slice(&[r.states, r.steps + 1]);
        whole.extend_from_slice(shape);
        let mut place: Tuple = SmallVec::from_slice(&[state, step]);
        place.extend_from_slice(idx);
        let offset = self.flat(&whole, &place);
        let index = self.k.index(ptr, offset);
        let value = self.k.cast(value, self.k.dtype(ptr));
        self.k.store(index, value)
    }
}

/// The value of the parameter `slot` of a step, at a row-major index.
fn step_value(l: &mut Lower<'_>, u: UOp, slot: u32, i: UOp, valid: Option<UOp>) -> UOp {
    let Some(Step { states, sequences, steps, at, result, ref sources, .. }) = l.step else { return i };
    let (slot, len) = (slot as usize, l.g.memory_len(u));
    let (ptr, rows, row) = if slot < states {
        let first = l.k.idx((slot * (steps + 1)) as i64);
        let row = l.add_idx(at, first);
        (result, states * (steps + 1), row)
    } else {
        let source = sources[slot - states];
        if !l.reads.contains(&source) {
            l.reads.push(source);
        }
        let info = l.buffers.list[source.0];
        let param = l.args.iter().position(|&b| b == source.0).unwrap_or_else(|| {
            l.args.push(source.0);
            l.args.len() - 1
        });
        let dt = l.t.stored_as(info.dtype).unwrap_or(info.dtype);
        let ptr = l.k.param(param as u32, dt, info.len);
        if slot < states + sequences { (ptr, steps, at) } else { (ptr, 1, l.k.idx(0)) }
    };
    let offset = l.flat(&[rows, len], &[row, i]);
    let index = l.k.index(ptr, offset);
    let load = match valid {
        None => l.k.load(index),
        Some(gate) => {
            let zero = l.k.constant(Scalar::Int(0), l.k.dtype(ptr));
            l.k.load_gated(index, zero, gate)
        }
    };
    l.k.cast(load, l.g.dtype(u))
}
