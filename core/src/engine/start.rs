//! Planning and compiling in pieces, so that a caller can look at its clock, at its event loop or at an [`Interrupt`] between
//! them: one pass of the scheduler, one pass over a kernel, its code, one call of the device's compiler. And the submission of a run in pieces.
//! What was begun may be dropped at any point: the engine is as it was, but for programs that a later start finds compiled.

use super::bound::Bound;
use super::exec::{Engine, Held, Pending, Replay};
use super::plan::{Compiled, Half, Job, Plan};
use super::state::State;
use crate::codegen::{Opt, VarInfo};
use crate::device::Step;
use crate::interrupt::Interrupt;
use crate::schedule::Scheduling;
use crate::target::Target;
use crate::uop::{Graph, UOp};
use crate::{Error, Result};
use std::collections::VecDeque;

/// Turns of loops below which scheduling does not try smaller pieces.
const LEAST_TURNS: u32 = 256;

/// Operations or bytes between two looks at an interrupt: some milliseconds.
const PORTION: u64 = 1 << 26;

/// Roots on their way to being planned.
pub struct Starting {
    /// The node of each root, and the session buffer of each external slot.
    pub(super) nodes: Vec<UOp>,
    pub(super) externals: Vec<u32>,
    pub(super) at: At,
}

pub(super) enum At {
    Known(Held),
    Plan(Box<Closed>, Box<Scheduling>),
    Compile(Box<Closed>, Compiling),
    Gone,
}

/// What is planned, and its key.
pub(super) struct Closed {
    pub(super) key: u128,
    pub(super) graph: Graph,
    pub(super) roots: Vec<UOp>,
    pub(super) constant: Vec<bool>,
    /// Its variables, once it has been looked through.
    pub(super) vars: Vec<VarInfo>,
}

/// A plan whose kernels are compiled.
pub(super) struct Compiling {
    pub(super) plan: Plan,
    pub(super) todo: VecDeque<(Job, Option<Vec<Opt>>)>,
    /// The kernel that is on its way to code.
    pub(super) half: Option<(Job, Option<Vec<Opt>>, Half)>,
    /// Compiled, and not on the device yet.
    pub(super) fresh: VecDeque<(u128, Compiled)>,
    /// Made now, so that the host should keep it.
    pub(super) is_new: bool,
    /// What it was scheduled for: the device, or one whose threads make fewer turns of loops.
    pub(super) wish: Target,
}

/// A plan on its way to the device.
pub struct Running {
    pub(super) replay: Replay,
    /// The node of each root, of a run that was planned for them.
    pub(super) nodes: Vec<UOp>,
    pub(super) outputs: Vec<UOp>,
    pub(super) bound: Bound,
    pub(super) at: usize,
}

impl Running {
    /// May it be dropped without harm?
    pub fn may_stop(&self) -> bool {
        self.at <= self.bound.first_write
    }
}

impl Engine {
    /// What planning and compiling look at between their pieces. It holds until another one is set.
    pub fn set_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// The one that was set.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Does the next piece of what [`Engine::begin`] began. `Some` once everything is planned and given to the device to
    /// compile.
    ///
    /// # Errors
    /// Those of planning and compiling, and what the interrupt says.
    pub fn go_on(&mut self, s: &mut Starting) -> Result<Option<Pending>> {
        self.interrupt.check()?;
        let held = match std::mem::replace(&mut s.at, At::Gone) {
            At::Known(held) => held,
            At::Plan(closed, mut scheduling) => {
                s.at = match scheduling.step()? {
                    None => At::Plan(closed, scheduling),
                    Some(schedule) => {
                        let compiling = self.scheduled(&closed, schedule, scheduling.target())?;
                        At::Compile(closed, compiling)
                    }
                };
                return Ok(None);
            }
            At::Compile(closed, mut c) => match self.compile_some(&mut c) {
                Ok(true) => self.add_plan(*closed, c),
                Ok(false) => {
                    s.at = At::Compile(closed, c);
                    return Ok(None);
                }
                // a kernel's turns were counted before its loops were known: it is scheduled again, in smaller pieces
                Err(Error::Turns { .. }) if c.wish.max_turns >= LEAST_TURNS => {
                    let wish = Target { max_turns: c.wish.max_turns / 4, ..c.wish };
                    let again = Scheduling::new(&closed.graph, &closed.roots, closed.constant.len(), &wish);
                    s.at = At::Plan(closed, Box::new(again));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            },
            At::Gone => return Err(Error::Internal("a start that has ended goes on".into())),
        };
        let (nodes, externals) = (std::mem::take(&mut s.nodes), std::mem::take(&mut s.externals));
        Ok(Some(Pending { held, externals, nodes }))
    }

    /// Submits steps of about so much work, one at least; of a run in portions, those that overwrite what was there before are in another one
    /// than those before them. True once all are submitted, and done as far as that needs the caller.
    pub fn submit_some(&mut self, r: &mut Running, work: u64) -> Result<bool> {
        let b = &r.bound;
        if r.at < b.steps.len() {
            let (mut end, mut sum) = (r.at + 1, b.work[r.at]);
            while end < b.steps.len() && (work == u64::MAX || end != b.first_write) {
                sum = sum.saturating_add(b.work[end]);
                if sum > work {
                    break;
                }
                end += 1;
            }
            self.counters.launches += (end - r.at) as u64;
            self.give(&b.steps[r.at..end])?;
            r.at = end;
        }
        let done = r.at == b.steps.len() && self.device.work()?;
        if done {
            self.ran();
        }
        Ok(done)
    }

    /// Submits steps; one after the other where somebody wants to see them.
    pub(super) fn give(&mut self, steps: &[Step]) -> Result<()> {
        let Some(watcher) = self.watcher.as_mut().filter(|w| w.sees_steps()) else {
            return self.device.submit(steps);
        };
        for step in steps {
            let kernel = match step {
                Step::Launch { kernel, .. } => self.programs.values().find(|p| p.kernel == *kernel),
                Step::Copy { .. } => None,
            };
            watcher.submit(&mut *self.device, step, kernel.map(|p| &p.compiled))?;
        }
        Ok(())
    }

    /// All that is left of it, unless the interrupt ends it before it overwrites what was there.
    pub(super) fn submit_all(&mut self, r: &mut Running) -> Result<()> {
        let work = self.portion();
        loop {
            if r.may_stop() {
                self.interrupt.check()?;
            }
            if self.submit_some(r, work)? {
                return Ok(());
            }
            if r.at == r.bound.steps.len() {
                self.device.sync()?;
            }
        }
    }

    /// How much work to submit before the next look at the interrupt.
    pub fn portion(&self) -> u64 {
        if self.interrupt.can_fire() { PORTION } else { u64::MAX }
    }

    /// The values of a captured computation that has run again, as nodes.
    pub fn values(&mut self, state: &mut State, r: Running) -> Result<Vec<UOp>> {
        let roots = self.roots(state, &r)?;
        let values = roots.iter().zip(r.replay.shapes());
        let values = values.map(|(&flat, shape)| state.graph.reshape(flat, shape)).collect();
        self.keep_bound(r.replay.held.key, r.bound);
        Ok(values)
    }
}
