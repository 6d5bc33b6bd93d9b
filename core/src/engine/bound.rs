//! The steps of a plan's last run, kept for its next run, which only replaces the buffers that differ: without this, a
//! run of many short kernels would spend as long on looking up programs and buffers as on the kernels.
//! Never: plans whose calls depend on values of variables, or that write to buffers of the caller.

use super::exec::{Engine, Loaded};
use super::plan::{Place, Plan};
use super::state::State;
use crate::Result;
use crate::codegen::ParamInfo;
use crate::device::{Step, View};
use crate::uop::UOp;

/// The steps of a plan's run.
#[derive(Default)]
pub(super) struct Bound {
    pub(super) steps: Vec<Step>,
    /// Estimated work of each step (`Compiled::work`).
    pub(super) work: Vec<u64>,
    /// The first step that writes to an existing buffer. Once it is submitted the run is not interrupted, so that no
    /// buffer is left half overwritten.
    pub(super) first_write: usize,
    /// The value of `Engine::epoch` for which the programs and arenas in the steps are valid.
    epoch: u64,
    /// May the steps serve another run? And how many runs have not been added to their programs' launch counts yet?
    lasts: bool,
    runs: u64,
    /// The caller's buffers, and the arguments of steps at which they are used.
    wants: Vec<Want>,
    /// For each output: the arguments (step, index) at which it is used.
    outputs: Vec<Vec<(u32, u32)>>,
}

/// A session buffer that some steps read.
struct Want {
    slot: u32,
    /// The key of the kernel that packs it, if these steps read a packed copy.
    pack: Option<u128>,
    view: View,
    arguments: Vec<(u32, u32)>,
}

impl Engine {
    /// All steps of a run of the plan, and the nodes of the outputs that were allocated for it.
    pub(super) fn bound(
        &mut self,
        state: &mut State,
        key: u128,
        plan: &Plan,
        externals: &[u32],
    ) -> Result<(Bound, Vec<UOp>)> {
        if let Some(mut bound) = self.bound.remove(&key).filter(|b| b.epoch == self.epoch) {
            self.restore(state, plan, externals)?;
            // bringing something back to the device may have moved an arena
            if self.exchange(state, externals, &mut bound)? && bound.epoch == self.epoch {
                let (outputs, views) = self.outputs(state, plan)?;
                for (view, arguments) in views.iter().zip(&bound.outputs) {
                    put(&mut bound.steps, arguments, *view);
                }
                bound.runs += 1;
                return Ok((bound, outputs));
            }
        }
        let (steps, outputs) = self.bind(state, plan, externals)?;
        Ok((self.note(plan, steps), outputs))
    }

    /// Keeps the steps of a run for the next one.
    pub(super) fn keep_bound(&mut self, key: u128, bound: Bound) {
        if bound.lasts && bound.epoch == self.epoch && self.plans.contains(key) {
            self.bound.insert(key, bound);
        }
    }

    /// Discards all kept steps, since programs or arenas were replaced.
    pub(super) fn unbind(&mut self) {
        self.count_launches();
        self.epoch += 1;
        self.bound.clear();
    }

    /// Adds the runs that reused kept steps to the launch counts of their programs.
    pub(super) fn count_launches(&mut self) {
        for held in self.plans.values() {
            let runs = self.bound.get_mut(&held.key).map_or(0, |b| std::mem::take(&mut b.runs));
            for loaded in held.plan.calls.iter().filter(|_| runs > 0).filter_map(|c| self.programs.get(&c.program)) {
                loaded.launches.set(loaded.launches.get() + runs);
            }
        }
    }

    /// Puts the caller's buffers into the steps and uploads those that only the host has. False if a packed copy has to
    /// be made first.
    fn exchange(&mut self, state: &mut State, externals: &[u32], bound: &mut Bound) -> Result<bool> {
        for want in &mut bound.wants {
            let id = externals[want.slot as usize];
            let there = match want.pack {
                Some(key) => match self.copy_of(id, key) {
                    Some(c) => Some((c.buf, c.bytes)),
                    None => return Ok(false),
                },
                None => self.buffers.get(&id).copied(),
            };
            let view = match there {
                Some((buf, bytes)) => View { buf, offset: 0, bytes },
                None => self.whole(state, id)?,
            };
            if view != want.view {
                want.view = view;
                put(&mut bound.steps, &want.arguments, view);
            }
        }
        Ok(true)
    }

    /// Records where the steps of a plan use the caller's buffers and the outputs.
    fn note(&self, plan: &Plan, steps: Vec<Step>) -> Bound {
        let mut b = Bound { first_write: steps.len(), epoch: self.epoch, ..Bound::default() };
        b.outputs.resize_with(plan.outputs.len(), Vec::new);
        b.lasts = plan.vars.is_empty();
        for (at, (c, step)) in (0u32..).zip(plan.calls.iter().zip(&steps)) {
            let Some(Loaded { compiled, .. }) = self.programs.get(&c.program) else { continue };
            b.work.push(compiled.work());
            let written = |(a, p): (&Place, &ParamInfo)| matches!(a, Place::External(_)) && p.written;
            if c.args.iter().zip(&compiled.source.params).any(written) {
                b.first_write = b.first_write.min(at as usize);
            }
            let Step::Launch { args, .. } = step else { continue };
            for (i, (a, &view)) in (0u32..).zip(c.args.iter().zip(args)) {
                match *a {
                    Place::External(slot) => {
                        let pack = compiled.packs.iter().find(|p| p.slot == i).map(|p| p.key);
                        match b.wants.iter_mut().find(|w| (w.slot, w.pack) == (slot, pack)) {
                            Some(w) => w.arguments.push((at, i)),
                            None => b.wants.push(Want { slot, pack, view, arguments: vec![(at, i)] }),
                        }
                    }
                    Place::Output(o) => b.outputs[o as usize].push((at, i)),
                    Place::Arena { .. } => {}
                }
            }
        }
        b.work.resize(steps.len(), 0);
        b.lasts &= b.first_write == steps.len();
        Bound { steps, ..b }
    }
}

/// Sets these arguments (step, index) of the steps to a buffer.
fn put(steps: &mut [Step], arguments: &[(u32, u32)], view: View) {
    for &(step, i) in arguments {
        if let Step::Launch { args, .. } = &mut steps[step as usize] {
            args[i as usize] = view;
        }
    }
}
