//! A session: one graph, one set of buffers, one random stream. Nothing is global; tensors of different sessions do not mix.
//! Never: planning or running (see `engine`).

use crate::engine::state::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cheap handle on shared session state. Tensors keep their session alive.
#[derive(Clone, Default)]
pub struct Session {
    state: Arc<Mutex<State>>,
}

impl Session {
    /// A new empty session with seed 0.
    pub fn new() -> Session {
        Session::default()
    }

    /// Restarts the random stream. The same seed gives the same numbers on every device.
    pub fn manual_seed(&self, seed: u64) {
        let mut s = self.state();
        (s.seed, s.draws) = (seed, 0);
    }

    /// The state, locked. Do not drop or clone a tensor of this session while holding it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        // state is consistent between graph calls, so a panic elsewhere does not spoil it
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compacts the graph; returns the ids of dead buffers for the engine to free.
    pub fn compact(&self) -> Vec<u32> {
        self.state().compact()
    }

    /// Is it the same session?
    pub fn is(&self, other: &Session) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}
