//! ONNX: parses model files ([`proto`], [`tensor`]) and builds them as graphs of lazy tensors.
//!
//! | file | contents |
//! |---|---|
//! | `proto`, `tensor` | the file's protobuf messages; constants as ranges of the file; external data |
//! | `model`, `check` | [`Model`]: checks order, cycles and operators of the nodes, and finds inputs whose values decide shapes |
//! | `build` | [`Bound`]: a model in a session, built for concrete input shapes |
//! | `stage` | builds that pause when they need a value which a device has to compute, and resume with it |
//! | `strings` | tensors of strings, represented as i32 indices into a table |
//! | `value`, `prim` | values that are known on the host or lazy tensors; the primitives that operators are composed of |
//! | `fold` | constant folding: operators on known values are evaluated while the graph is built |
//! | `inspect` | shapes and values that a build gives each node, without a run |
//! | `outputs` | a copy of the model with intermediate values as additional outputs |
//! | `compare` | the first values in which two runs differ |
//! | `weights`, `network` | which tensors are weights; [`Network`]: a model whose weights are trained |
//! | `save` | writes the file again with new values of some tensors |
//! | `ops` | the operators, one table per file |
//! | `runner` | [`Runner`]: caches a plan for each input signature, or one for all lengths of inputs, and replays it |
//!
//! This module never opens files or talks to devices. Data outside the model file is requested through
//! [`ExternalData`].

mod build;
mod check;
mod compare;
mod fold;
mod inspect;
mod model;
mod network;
mod ops;
mod outputs;
mod prim;
pub mod proto;
mod runner;
mod save;
mod stage;
mod strings;
pub mod tensor;
mod value;
mod weights;

pub use build::{Bound, Feed};
pub use compare::Drift;
pub use inspect::{NodeReport, Report, State, inspect};
pub use model::{Model, Port, show_dims};
pub use network::{Lora, Network, Train};
pub use ops::{Operators, supported};
pub use runner::{Again, Input, Inputs, Lengths, Run, Runner};
pub use tensor::{ExternalData, NoExternalData};
pub use weights::Weight;

#[cfg(test)]
mod build_tests;
#[cfg(test)]
mod network_tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod tests;
