//! A session: one graph, one set of buffers and one random stream, shared by all its tensors. Nothing is global;
//! combining tensors of different sessions is an error. Never: planning or running (see `engine`).

use crate::engine::state::State;
use crate::target::Target;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cheap handle to a session's shared state. Tensors keep their session alive.
#[derive(Clone, Default)]
pub struct Session {
    state: Arc<Mutex<State>>,
}

impl Session {
    /// A new empty session with seed 0.
    pub fn new() -> Session {
        Session::default()
    }

    /// A new empty session for a device of this kind: ops that can be written in several ways are written in the one
    /// that is fastest there.
    pub fn for_target(t: &Target) -> Session {
        let session = Session::new();
        session.state().products_before_taps = t.machine.products_before_taps;
        session
    }

    /// Restarts the random stream with a seed. The same seed gives the same numbers on every device.
    pub fn manual_seed(&self, seed: u64) {
        let mut s = self.state();
        (s.seed, s.draws) = (seed, 0);
    }

    /// The state, locked. Cloning or dropping a tensor of this session locks it too, so neither may happen while the
    /// guard is held.
    pub fn state(&self) -> MutexGuard<'_, State> {
        // the state is consistent between any two calls that change the graph, so a panic elsewhere leaves it usable
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes nodes that no tensor needs from the graph; returns the ids of buffers that died, for the engine to free.
    pub fn compact(&self) -> Vec<u32> {
        self.state().compact()
    }

    /// Whether both handles belong to the same session.
    pub fn is(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}
