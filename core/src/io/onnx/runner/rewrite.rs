//! The rewrite passes over a stage's graph between its build and its plan. They run one at a time, since those of a
//! large model take long, and the caller may check its clock between two of them.

use super::{End, Run, Runner, Stage};
use crate::engine::{Engine, GRAPH_PASSES, RootId};
use crate::error::Result;
use crate::tensor::Tensor;

impl Runner {
    /// Runs the next pass, or starts planning when all have run. If a pass finds large constants that are not computed
    /// yet, these are planned first.
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
        let constants = self.folded.take_uncached(&self.session, found);
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
