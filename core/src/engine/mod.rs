//! From a tensor graph to a plan of plain steps, and the state that survives between runs.
//! Never: waiting, clocks, threads, device handles.

pub mod state;

pub use state::{BufferInfo, Bytes, RootId, State};
