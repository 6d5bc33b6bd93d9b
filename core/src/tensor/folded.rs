//! Constants of a model that were computed, found again by how and of which buffers, so that all plans of the model share them: a plan is
//! made for each shape of inputs, and each finds the same constants in its graph (`engine::GRAPH_PASSES`).

use super::{Session, Tensor};
use crate::uop::{UOp, hash};
use rustc_hash::{FxHashMap, FxHashSet};

/// A constant that large is computed once for all plans.
const SHARED: usize = 1024;

/// A structure and the buffers it is computed of.
type Origin = (u128, Vec<u32>);

/// The constants of one model.
#[derive(Default)]
pub struct Folded(FxHashMap<Origin, Tensor>);

impl Folded {
    /// Those of some constants that are not known yet, which the caller computes; what is known takes the places of the others.
    pub fn unknown(&mut self, session: &Session, constants: Vec<UOp>) -> Vec<Tensor> {
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
            if t.numel() >= SHARED {
                self.0.insert(origin, t.clone());
            }
            out.push(t);
        }
        out
    }

    /// Forgets those in storage that is not among these buffers.
    pub fn keep(&mut self, used: &FxHashSet<u32>) {
        self.0.retain(|_, t| t.buffer().is_none_or(|id| used.contains(&id)));
    }
}
