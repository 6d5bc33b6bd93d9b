//! The cache of a model's folded constants (subgraphs that depend on weights alone), so that each is computed once. A
//! plan is made for each combination of input shapes, and the graph of each contains the same constants
//! (`engine::GRAPH_PASSES`); they are recognised by their structure and the buffers that they are computed from.

use super::{Session, Tensor};
use crate::uop::{UOp, hash};
use rustc_hash::{FxHashMap, FxHashSet};

/// The least number of elements with which a constant is cached; smaller ones are computed again by each plan.
const MIN_CACHED_ELEMS: usize = 1024;

/// What identifies a constant: the hash of its graph, and the ids of the buffers that it is computed from.
type Origin = (u128, Vec<u32>);

/// The computed constants of one model.
#[derive(Default)]
pub struct ConstantCache(FxHashMap<Origin, Tensor>);

impl ConstantCache {
    /// Looks up `constants`, nodes of the session's graph. Those that are cached are replaced in the graph by the
    /// stored tensors. The others are returned, for the caller to compute, and cached if they have at least 1024
    /// elements.
    pub fn take_uncached(&mut self, session: &Session, constants: Vec<UOp>) -> Vec<Tensor> {
        let mut new = Vec::new();
        {
            let mut state = session.state();
            let mut known: FxHashMap<UOp, UOp> = FxHashMap::default();
            for n in constants {
                let origin = hash::closed_key(&state.graph, &[n]);
                let have = self.0.get(&origin).map(|t| state.node(t.root()));
                match have.filter(|&x| state.storage(x).is_some()) {
                    Some(x) => _ = known.insert(n, x),
                    None => new.push((n, origin)),
                }
            }
            if !known.is_empty() {
                state.replace(&known);
            }
        }
        let mut out = Vec::new();
        for (n, origin) in new {
            let t = Tensor::from_node(session, n);
            if t.numel() >= MIN_CACHED_ELEMS {
                self.0.insert(origin, t.clone());
            }
            out.push(t);
        }
        out
    }

    /// Drops the constants whose buffer is not among `used`.
    pub fn keep(&mut self, used: &FxHashSet<u32>) {
        self.0.retain(|_, t| t.buffer().is_none_or(|id| used.contains(&id)));
    }
}
