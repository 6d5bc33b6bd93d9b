//! The passes over the graph of a model before it is planned. In: the roots that are wanted, and the buffers that
//! differ from run to run (inputs); all other buffers are constants, that is weights. Out: roots with the same values,
//! or nodes that are to be computed once for all runs.
//!
//! The passes do not know what file a model came from. Whoever loads a model runs them in order, each by
//! [`Engine::rewrite`], and may look at its clock between two. The passes over a kernel are another table,
//! `codegen::PASSES`.

use super::exec::Engine;
use super::state::{RootId, State};
use super::{fold, scale, siblings};
use crate::schedule::integers;
use crate::target::Target;
use crate::uop::spec::{self, Stage};
use crate::uop::{Graph, UOp};
use crate::{Error, Result};

/// The result of a pass.
pub enum Outcome {
    /// The pass changed nothing.
    Same,
    /// The roots after rewriting.
    Roots(Vec<UOp>),
    /// Nodes that are computed from constants alone. Buffers with their values replace them once they are computed.
    Constants(Vec<UOp>),
}

/// One pass.
pub struct GraphPass {
    /// Its name: what `gradloom kernels --passes` calls it.
    pub name: &'static str,
    /// One sentence on what it does.
    pub what: &'static str,
    run: fn(&mut Graph, &[UOp], &[u32], &Target) -> Outcome,
}

/// All passes, in order.
pub static GRAPH_PASSES: [GraphPass; 4] = [
    GraphPass {
        name: "integer-sums",
        what: "Computes sums of products of dequantised bytes in integers, if the target has instructions for it.",
        run: |g, roots, inputs, t| integers::in_integers(g, roots, inputs, t).map_or(Outcome::Same, Outcome::Roots),
    },
    GraphPass {
        name: "scales",
        what: "Moves scale factors of results into the weights from which the results are computed.",
        run: |g, roots, inputs, _| Outcome::Roots(scale::into_constants(g, roots, inputs)),
    },
    GraphPass {
        name: "siblings",
        what: "Joins contractions of one value with several weights into one contraction.",
        run: |g, roots, inputs, _| Outcome::Roots(siblings::join(g, roots, inputs)),
    },
    GraphPass {
        name: "constants",
        what: "Finds the values that depend on weights alone, which are computed once.",
        run: |g, roots, inputs, _| Outcome::Constants(fold::constant_nodes(g, roots, inputs)),
    },
];

impl GraphPass {
    /// Runs the pass. `inputs` are the buffers that differ from run to run.
    ///
    /// # Errors
    /// In debug builds: `Internal` with the pass and the node, if the new graph violates the spec.
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
    /// Runs a pass over the graph of these roots and sets the roots to the rewritten nodes. Returns the nodes that are
    /// to be computed once.
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
            watcher.rewrote(pass, &state.graph, &nodes, new);
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
