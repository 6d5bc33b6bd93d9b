//! The passes over the graph of a model, before it is planned. In: the values that are wanted, and the buffers that differ from run to run;
//! all other buffers are constants, that is weights. Out: nodes of the same values, or nodes that are computed once for all runs.
//!
//! They do not know what file a model came from. Whoever loads one runs them in order, each with [`Engine::rewrite`], so that a caller can
//! look at its clock between two. What a kernel goes through later is the other table, `codegen::PASSES`.

use super::exec::Engine;
use super::state::{RootId, State};
use super::{fold, scale, siblings};
use crate::schedule::integers;
use crate::target::Target;
use crate::uop::spec::{self, Stage};
use crate::uop::{Graph, UOp};
use crate::{Error, Result};

/// What a pass makes of a graph.
pub enum Outcome {
    /// Nothing.
    Same,
    /// The images of the roots.
    Roots(Vec<UOp>),
    /// Nodes that are made of constants alone: their values take their places once they are computed.
    Constants(Vec<UOp>),
}

/// One pass.
pub struct GraphPass {
    /// Its name: what `gradloom kernels --passes` calls it.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    run: fn(&mut Graph, &[UOp], &[u32], &Target) -> Outcome,
}

/// All of them, in order.
pub static GRAPH_PASSES: [GraphPass; 4] = [
    GraphPass {
        name: "integer-sums",
        what: "Sums of products of dequantised bytes are made in integers, where the target has instructions for them.",
        run: |g, roots, inputs, t| integers::in_integers(g, roots, inputs, t).map_or(Outcome::Same, Outcome::Roots),
    },
    GraphPass {
        name: "scales",
        what: "Factors of results move into the weights that the results are made of.",
        run: |g, roots, inputs, _| Outcome::Roots(scale::into_constants(g, roots, inputs)),
    },
    GraphPass {
        name: "siblings",
        what: "Contractions of one value with several weights become one.",
        run: |g, roots, inputs, _| Outcome::Roots(siblings::join(g, roots, inputs)),
    },
    GraphPass {
        name: "constants",
        what: "What is made of weights alone is computed once.",
        run: |g, roots, inputs, _| Outcome::Constants(fold::constant_nodes(g, roots, inputs)),
    },
];

impl GraphPass {
    /// Runs it. `inputs` are the buffers that differ from run to run.
    ///
    /// # Errors
    /// In debug builds, what the spec says of a graph that it should not have made: it names the pass and the node.
    pub fn run(&self, g: &mut Graph, roots: &[UOp], inputs: &[u32], t: &Target) -> Result<Outcome> {
        let out = (self.run)(g, roots, inputs, t);
        if cfg!(debug_assertions)
            && let Outcome::Roots(new) | Outcome::Constants(new) = &out
        {
            let wrong = |e| Error::Internal(format!("after the pass {}: {e}", self.name));
            spec::verify(g, new, Stage::Tensor).map_err(wrong)?;
        }
        Ok(match out {
            Outcome::Roots(new) if new == roots => Outcome::Same,
            Outcome::Constants(found) if found.is_empty() => Outcome::Same,
            out => out,
        })
    }
}

impl Engine {
    /// Runs a pass over the graph of these roots, which it points at their images. The result is what is to be computed once.
    ///
    /// # Errors
    /// Those of [`GraphPass::run`].
    pub fn rewrite(
        &mut self,
        pass: &GraphPass,
        state: &mut State,
        roots: &[RootId],
        inputs: &[u32],
    ) -> Result<Vec<UOp>> {
        let nodes: Vec<UOp> = roots.iter().map(|&r| state.node(r)).collect();
        let out = pass.run(&mut state.graph, &nodes, inputs, self.device.target())?;
        let (Outcome::Roots(new) | Outcome::Constants(new)) = &out else { return Ok(Vec::new()) };
        if let Some(watcher) = &mut self.watcher {
            watcher.rewrote(pass, &state.graph, new);
        }
        match out {
            Outcome::Constants(found) => Ok(found),
            Outcome::Roots(new) => {
                roots.iter().zip(new).for_each(|(&r, n)| state.set_node(r, n));
                Ok(Vec::new())
            }
            Outcome::Same => Ok(Vec::new()),
        }
    }
}
