//! ONNX: the model file as plain data ([`proto`], [`tensor`]), and its import as a graph of lazy tensors.
//!
//! | file | what it has |
//! |---|---|
//! | `proto`, `tensor` | the file's messages; constants as ranges of the file; external data |
//! | `model`, `check` | [`Model`]: order of nodes, cycles, unknown operators, which inputs must be known |
//! | `build` | [`Bound`]: a model in a session, built for concrete input shapes |
//! | `stage` | builds that stop for values which a device has to compute, and go on |
//! | `strings` | tensors of strings, as codes |
//! | `value`, `prim` | values known on the host or lazy; the primitives that operators are made of |
//! | `fold` | what is made of known values, evaluated while the graph is built |
//! | `inspect` | what a build would make of each node, before any run |
//! | `outputs` | the same model with inner values as its outputs |
//! | `compare` | where the values of two runs part |
//! | `weights`, `network` | which tensors are weights; [`Network`]: a model whose weights learn |
//! | `save` | the file again, with other values of its tensors |
//! | `ops` | the operators, a table a file |
//! | `runner` | [`Runner`]: plans per input signature, or for every length of one, replayed |
//!
//! Never here: files and devices. Data outside the model file comes through [`ExternalData`].

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
pub use runner::{Input, Inputs, Lengths, Run, Runner};
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
