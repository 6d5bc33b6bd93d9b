//! Planning and compiling in small pieces, between which a caller can look at its clock, its event loop or an
//! [`Interrupt`]: one pass of the scheduler, one pass over a kernel, its rendering, one call of the device's compiler.
//! Runs are submitted in pieces too. A start may be dropped after any piece: the engine is then as it was before,
//! except for programs that a later start finds compiled.

use super::bound::Bound;
use super::exec::{Engine, Held, Pending, Replay};
use super::plan::{Compiled, Job, PartialKernel, Plan};
use super::state::State;
use crate::codegen::{Opt, VarInfo};
use crate::device::Step;
use crate::interrupt::Interrupt;
use crate::schedule::{Scheduling, Stepped};
use crate::target::Target;
use crate::uop::{Graph, UOp};
use crate::{Error, Result};
use std::collections::VecDeque;

/// Limit on loop iterations (`Limits::max_loop_iterations`) below which scheduling is not repeated with smaller
/// kernels.
const MIN_LOOP_LIMIT: u32 = 256;

/// Work submitted between two looks at an interrupt, in operations or bytes of the kernels: some milliseconds.
const PORTION: u64 = 1 << 26;

/// A computation that is being planned and compiled: [`Engine::begin`] makes it, [`Engine::go_on`] advances it.
pub struct Starting {
    /// The node of each root, and the session buffer of each external slot.
    pub(super) nodes: Vec<UOp>,
    pub(super) externals: Vec<u32>,
    pub(super) stage: StartStage,
}

/// There is one of them at a time, so its size does not matter.
#[allow(clippy::large_enum_variant)]
pub(super) enum StartStage {
    Known(Held),
    Plan(Box<Closed>, Box<Scheduling>),
    Compile(Box<Closed>, Compiling),
    Gone,
}

/// The graph to plan, and the key of the plan.
pub(super) struct Closed {
    pub(super) key: u128,
    pub(super) graph: Graph,
    pub(super) roots: Vec<UOp>,
    pub(super) constant: Vec<bool>,
    /// The graph's variables, found when it was checked.
    pub(super) vars: Vec<VarInfo>,
}

/// A plan whose kernels are being compiled.
pub(super) struct Compiling {
    pub(super) plan: Plan,
    pub(super) todo: VecDeque<(Job, Option<Vec<Opt>>)>,
    /// The kernel that is partly compiled.
    pub(super) partial: Option<(Job, Option<Vec<Opt>>, PartialKernel)>,
    /// Kernels that are compiled and not on the device yet.
    pub(super) fresh: VecDeque<(u128, Compiled)>,
    /// The plan was made here and did not come from the host's cache, so the host should store it.
    pub(super) is_new: bool,
    /// The target it was scheduled for: that of the device, or one with a smaller limit on loop iterations.
    pub(super) scheduled_for: Target,
}

/// A run whose steps are being submitted.
pub struct Running {
    pub(super) replay: Replay,
    /// The node of each root; empty for a run of a captured computation.
    pub(super) nodes: Vec<UOp>,
    pub(super) outputs: Vec<UOp>,
    pub(super) bound: Bound,
    pub(super) at: usize,
}

impl Running {
    /// May the run be dropped at this point? Not once it may have overwritten a buffer.
    pub fn may_stop(&self) -> bool {
        self.at <= self.bound.first_write
    }
}

impl Engine {
    /// Sets the interrupt that planning and compiling check between their pieces, until another one is set.
    pub fn set_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// The interrupt that was set.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Does the next piece of what [`Engine::begin`] began. Returns `Some` once everything is planned and has been
    /// given to the device to compile.
    ///
    /// # Errors
    /// Those of planning and compiling, and that of the interrupt if it fires.
    pub fn go_on(&mut self, s: &mut Starting) -> Result<Option<Pending>> {
        self.interrupt.check()?;
        let held = match std::mem::replace(&mut s.stage, StartStage::Gone) {
            StartStage::Known(held) => held,
            StartStage::Plan(closed, mut scheduling) => {
                s.stage = match scheduling.step()? {
                    Stepped::Part => StartStage::Plan(closed, scheduling),
                    Stepped::Pass(pass) => {
                        if let Some(watcher) = &mut self.watcher {
                            watcher.scheduled(pass, &scheduling);
                        }
                        StartStage::Plan(closed, scheduling)
                    }
                    Stepped::Done(schedule) => {
                        let compiling = self.scheduled(&closed, schedule, scheduling.target())?;
                        StartStage::Compile(closed, compiling)
                    }
                };
                return Ok(None);
            }
            StartStage::Compile(closed, mut c) => match self.compile_some(&mut c) {
                Ok(true) => self.add_plan(*closed, c),
                Ok(false) => {
                    s.stage = StartStage::Compile(closed, c);
                    return Ok(None);
                }
                // the scheduler bounds a kernel's iterations before its loops are chosen: where the bound was too low,
                // schedule again with smaller kernels
                Err(Error::Turns { .. }) if c.scheduled_for.limits.max_loop_iterations >= MIN_LOOP_LIMIT => {
                    let fewer = c.scheduled_for.limits.max_loop_iterations / 4;
                    let mut scheduled_for = c.scheduled_for;
                    scheduled_for.limits.max_loop_iterations = fewer;
                    let again = Scheduling::new(&closed.graph, &closed.roots, closed.constant.len(), &scheduled_for);
                    s.stage = StartStage::Plan(closed, Box::new(again));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            },
            StartStage::Gone => return Err(Error::Internal("a start that has ended goes on".into())),
        };
        let (nodes, externals) = (std::mem::take(&mut s.nodes), std::mem::take(&mut s.externals));
        Ok(Some(Pending { held, externals, nodes }))
    }

    /// Submits further steps of about `work` operations or bytes, at least one step. A run that is submitted in
    /// portions begins a new portion at its first step that overwrites existing data. True once all steps are submitted
    /// and the device needs no further calls to carry them out.
    pub fn submit_some(&mut self, r: &mut Running, work: u64) -> Result<bool> {
        let b = &r.bound;
        if r.at < b.steps.len() {
            let (mut end, mut sum) = (r.at + 1, b.work[r.at]);
            while end < b.steps.len() && (work == u64::MAX || end != b.first_write) {
                let more = sum.saturating_add(b.work[end]);
                if more > work {
                    break;
                }
                (end, sum) = (end + 1, more);
            }
            self.counters.launches += (end - r.at) as u64;
            self.counters.work = self.counters.work.wrapping_add(sum);
            self.give(&b.steps[r.at..end])?;
            r.at = end;
        }
        let done = r.at == b.steps.len() && self.device.work()?;
        if done {
            self.ran();
        }
        Ok(done)
    }

    /// Submits steps; one at a time if the watcher wants to see each.
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

    /// Submits all remaining steps of a run. The interrupt can end the run until it begins to overwrite existing data.
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

    /// How much work to submit before the next look at the interrupt; no limit if the interrupt cannot fire.
    pub fn portion(&self) -> u64 {
        if self.interrupt.can_fire() { PORTION } else { u64::MAX }
    }

    /// The values of a captured computation that ran again, as nodes in the shapes of its roots.
    pub fn values(&mut self, state: &mut State, r: Running) -> Result<Vec<UOp>> {
        let roots = self.roots(state, &r)?;
        let values = roots.iter().zip(r.replay.shapes());
        let values = values.map(|(&flat, shape)| state.graph.reshape(flat, shape)).collect();
        self.keep_bound(r.replay.held.key, r.bound);
        Ok(values)
    }
}
