//! The engine turns a tensor graph into a plan of plain steps, runs plans on a device, and keeps the state that
//! survives between runs: buffers, plans, compiled programs.
//! Never: waiting, clocks, threads, device handles.

mod array_box;
pub mod bench;
mod bound;
mod bring;
mod buffers;
pub mod cache;
mod constants;
pub mod exec;
pub mod fold;
pub mod lengths;
pub mod memory;
pub mod passes;
pub mod plan;
mod pool;
mod prepare;
pub mod scale;
pub mod search;
pub mod siblings;
mod start;
pub mod state;
mod tuned;
pub mod watch;

pub use array_box::ArrayBox;
pub use bench::{Bench, Trying};
pub use cache::Host;
pub use exec::{Counters, Engine, Pending, Replay, close};
pub use passes::{GRAPH_PASSES, GraphPass};
pub use plan::{Compiled, Place, Plan};
pub use start::{Running, Starting};
pub use state::{BufferInfo, Bytes, HostBytes, RootId, State};
pub use watch::{LOADED, Watcher};
