//! What a stage of a run goes through between its build and its plan: passes over its graph, one at a time, since those of a large
//! model take long. Between two of them the caller may look at its clock.

use super::{End, Run, Runner, Stage};
use crate::engine::{Engine, fold, scale, siblings};
use crate::error::Result;
use crate::schedule::integers;
use crate::tensor::Tensor;
use crate::uop::{UOp, hash};
use rustc_hash::FxHashMap;

/// A constant that large is computed once for all plans.
const SHARED: usize = 1024;

/// The pass that comes next.
#[derive(Clone, Copy)]
pub(super) enum Pass {
    /// Sums of products of small integers are made in integers.
    Integers,
    /// Scales move into constants.
    Scales,
    /// Products of one operand are joined.
    Siblings,
    /// What is computed of constants alone is planned on its own.
    Constants,
}

impl Runner {
    /// Does one pass.
    pub(super) fn rewrite(
        &mut self,
        engine: &mut Engine,
        run: &Run,
        pass: Pass,
        values: Vec<Tensor>,
        end: End,
    ) -> Result<Stage> {
        let inputs: Vec<u32> = self.input_buffers(run).into_iter().flatten().collect();
        let next = {
            let mut state = self.session.state();
            let nodes: Vec<UOp> = values.iter().map(|t| state.node(t.root())).collect();
            let g = &mut state.graph;
            let (new, next) = match pass {
                Pass::Integers => {
                    (integers::in_integers(g, &nodes, &inputs, engine.device().target()), Some(Pass::Scales))
                }
                Pass::Scales => (Some(scale::into_constants(g, &nodes, &inputs)), Some(Pass::Siblings)),
                Pass::Siblings => (Some(siblings::join(g, &nodes, &inputs)), Some(Pass::Constants)),
                Pass::Constants => (None, None),
            };
            let new = new.unwrap_or(nodes);
            values.iter().zip(&new).for_each(|(t, &n)| state.set_node(t.root(), n));
            next
        };
        if let Some(pass) = next {
            return Ok(Stage::Rewrite(pass, values, end));
        }
        let constants = self.constants(&values, &inputs);
        if constants.is_empty() {
            return self.plan_stage(engine, run, values, end);
        }
        let roots: Vec<_> = constants.iter().map(Tensor::root).collect();
        let starting = engine.begin(&mut self.session.state(), &roots)?;
        Ok(Stage::PlanFold(starting, values, end))
    }

    /// What is computed once for all runs, and not known yet.
    fn constants(&mut self, values: &[Tensor], inputs: &[u32]) -> Vec<Tensor> {
        let mut new = Vec::new();
        {
            let mut state = self.session.state();
            let nodes: Vec<_> = values.iter().map(|t| state.node(t.root())).collect();
            let mut known: FxHashMap<UOp, UOp> = FxHashMap::default();
            for n in fold::constant_nodes(&state.graph, &nodes, inputs) {
                let origin = hash::closed_key(&state.graph, &[n]);
                let have = self.folded.get(&origin).map(|t| state.node(t.root()));
                match have.filter(|&x| state.storage(x).is_some()) {
                    Some(x) => _ = known.insert(n, x),
                    None => new.push((n, origin)),
                }
            }
            state.replace(&known);
        }
        let mut out = Vec::new();
        for (n, origin) in new {
            let t = Tensor::from_node(&self.session, n);
            if t.numel() >= SHARED {
                self.folded.insert(origin, t.clone());
            }
            out.push(t);
        }
        out
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
