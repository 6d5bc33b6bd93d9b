//! Moves the inputs of a plan to the device some megabytes at a time before the plan runs: weights are uploaded, packed
//! or recomputed. Binding a plan does the same in one go for everything still missing, so these pieces only serve
//! callers that must not block for long.

use super::exec::{Engine, Pending, Replay};
use super::plan::{Place, Plan};
use super::start::Running;
use super::state::State;
use crate::Result;
use rustc_hash::FxHashSet;

/// Bytes that one call moves, which takes some milliseconds. A buffer that is converted or packed is not split.
const PIECE_BYTES: usize = 4 << 20;

impl Engine {
    /// Moves more of the inputs of a planned computation to the device. True once all are there.
    ///
    /// # Errors
    /// Those of uploads and of the device.
    pub fn bring(&mut self, state: &mut State, p: &Pending) -> Result<bool> {
        let plan = p.held.plan.clone();
        self.bring_for(state, &plan, &p.externals)
    }

    fn bring_for(&mut self, state: &mut State, plan: &Plan, externals: &[u32]) -> Result<bool> {
        let missing = self.missing_reads(plan, externals);
        let ids: Vec<u32> = missing.iter().map(|m| m.0).collect();
        let again = |id: &&u32| self.recipes.contains_key(id) && !self.buffers.contains_key(id);
        if let Some(id) = ids.iter().find(again).copied() {
            self.run_recipe(state, id, &ids)?;
            return Ok(false);
        }
        let mut sum = 0;
        for (id, copy) in missing {
            if sum >= PIECE_BYTES || !self.buffers.contains_key(&id) && !self.upload_some(state, id, PIECE_BYTES)? {
                return Ok(false);
            }
            sum += match copy {
                Some(key) => self.packed(state, id, key)?.bytes,
                None => self.whole(state, id)?.bytes,
            };
        }
        Ok(true)
    }

    /// The session buffers that the plan reads and that are not on the device. If the plan reads a packed copy, the key
    /// of the kernel that packs it comes with the buffer.
    fn missing_reads(&self, plan: &Plan, externals: &[u32]) -> Vec<(u32, Option<u128>)> {
        let (mut seen, mut missing) = (FxHashSet::default(), Vec::new());
        for c in &plan.calls {
            for (i, a) in (0u32..).zip(&c.args) {
                let &Place::External(slot) = a else { continue };
                let id = externals[slot as usize];
                let packs = self.programs.get(&c.program).map(|l| &l.compiled.packs);
                let copy = packs.and_then(|p| p.iter().find(|p| p.slot == i)).map(|p| p.key);
                let here = match copy {
                    Some(key) => self.copy_of(id, key).is_some(),
                    None => self.buffers.contains_key(&id),
                };
                if !here && seen.insert((id, copy)) {
                    missing.push((id, copy));
                }
            }
        }
        missing
    }

    /// Declares all inputs of a computation constant, so that they can be uploaded again: for results that are computed
    /// from weights alone. To be called before [`Engine::bring`] and [`Engine::launch`].
    pub fn freeze_reads(&mut self, state: &mut State, p: &Pending) {
        for &id in &p.externals {
            state.buffer_mut(id).into_iter().for_each(|b| b.constant = true);
        }
    }

    /// Runs a computation whose inputs are constant ([`Engine::freeze_reads`]) to its end.
    ///
    /// # Errors
    /// As [`Engine::finish`].
    pub fn finish_constants(&mut self, state: &mut State, p: Pending) -> Result<Replay> {
        while !self.bring(state, &p)? {}
        let mut running = self.launch(state, p)?;
        self.submit_all(&mut running)?;
        self.concluded_constants(state, running)
    }

    /// Ends the run of a computation whose inputs are constant. Its results are then weights too: if the bytes of all
    /// inputs are on the host, the results can be recomputed, so they need not stay on the device beside packed copies
    /// of them.
    ///
    /// # Errors
    /// As [`Engine::concluded`].
    pub fn concluded_constants(&mut self, state: &mut State, r: Running) -> Result<Replay> {
        let (replay, outputs) = self.conclude(state, r)?;
        self.remember_recipe(state, &replay, &outputs);
        Ok(replay)
    }
}
