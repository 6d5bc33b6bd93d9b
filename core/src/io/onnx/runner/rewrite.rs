//! What a stage of a run goes through between its build and its plan: passes over its graph, one at a time, since those of a large
//! model take long. Between two of them the caller may look at its clock.

use super::{End, Run, Runner, Stage};
use crate::engine::{Engine, GRAPH_PASSES, RootId};
use crate::error::Result;
use crate::tensor::Tensor;

impl Runner {
    /// Does the pass that comes next, or plans what all of them have made.
    pub(super) fn rewrite(
        &mut self,
        engine: &mut Engine,
        run: &Run,
        next: usize,
        values: Vec<Tensor>,
        end: End,
    ) -> Result<Stage> {
        let Some(pass) = GRAPH_PASSES.get(next) else { return self.plan_stage(engine, run, values, end) };
        let inputs: Vec<u32> = self.input_buffers(run).into_iter().flatten().collect();
        let roots: Vec<RootId> = values.iter().map(Tensor::root).collect();
        let found = engine.rewrite(pass, &mut self.session.state(), &roots, &inputs)?;
        let constants = self.folded.unknown(&self.session, found);
        if constants.is_empty() {
            return Ok(Stage::Rewrite(next + 1, values, end));
        }
        let roots: Vec<RootId> = constants.iter().map(Tensor::root).collect();
        let starting = engine.begin(&mut self.session.state(), &roots)?;
        Ok(Stage::PlanFold(starting, values, end))
    }

    pub(super) fn plan_stage(&self, engine: &mut Engine, run: &Run, values: Vec<Tensor>, end: End) -> Result<Stage> {
        let roots: Vec<_> = values.iter().map(Tensor::root).collect();
        let inputs = self.input_buffers(run);
        {
            let mut state = self.session.state();
            let nodes: Vec<_> = roots.iter().map(|&r| state.node(r)).collect();
            let swapped: Vec<u32> = inputs.iter().flatten().copied().collect();
            state.freeze(&nodes, &swapped);
        }
        let starting = engine.begin(&mut self.session.state(), &roots)?;
        Ok(Stage::Plan(starting, values, end))
    }
}
