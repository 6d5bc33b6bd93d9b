//! Decoder language models: from a file's metadata and weights to graphs that read some tokens, keep their keys and values, and
//! give the logits of what comes next.
//!
//! | file | what it has |
//! |---|---|
//! | `arch` | the architectures: one description each |
//! | `config` | a model's numbers, from GGUF metadata or a `config.json` |
//! | `names` | what files call the weights |
//! | `decoder` | the graph |
//! | `adapter` | adapters of low rank, from PEFT's files and GGUF, which are exchanged without another plan |
//! | `learn` | adapters that learn beside a model |
//! | `batch` | graphs for several texts at once, for all logits, for states |
//! | `remote` | graphs for a session elsewhere |
//! | `grammar`, `schema` | which tokens may come, by a grammar or a JSON schema |
//! | `tools` | calls of functions: the grammar, and those in a text |
//! | `guess` | tokens that may come next, from the text itself |
//! | `sample` | a token from logits |
//! | `stream` | whole characters from tokens; stop strings |
//!
//! A [`Decoder`] has one graph for each number of tokens that it reads at once ([`Decoder::chunk`]); where in the text they are is
//! a launch variable, so that one plan serves all positions. Never here: waiting, files, the loop over tokens, which the host has.
#![deny(clippy::unwrap_used)]

mod adapter;
mod arch;
mod batch;
mod calls;
mod config;
mod decoder;
mod grammar;
mod guess;
mod halves;
mod learn;
mod names;
mod remote;
mod sample;
mod schema;
mod stream;
mod tools;

pub use adapter::Adapter;
pub use arch::{ARCHES, Arch};
pub use batch::{Batch, LONGEST, States};
pub use calls::{Call, Splitter, text_with_calls};
pub use config::{Config, Rope, ends, ends_of};
pub use decoder::{Chunk, Decoder, FACTORS, LAST, POSITION, SEQUENCE, chunks};
pub use grammar::{Grammar, Matcher, Vocabulary};
pub use guess::{accepted, guess};
pub use learn::{Learned, Learner, Lesson, Lora, Rates, Windows};
pub use remote::{Buffer, Graph, Input, Loss, Remote, Wanted};
pub use sample::{Choice, Sampler};
pub use stream::Stream;
pub use tools::Calls;

use crate::error::Error;

fn err(what: impl Into<String>) -> Error {
    Error::Model { what: what.into(), node: None }
}
