//! Decoder-only language models: builds, from a file's metadata and weights, graphs that read some tokens, append their
//! keys and values to caches (the KV cache), and give the logits of the next token. Also encoders, whose graphs read whole
//! texts and give a vector or a score of each.
//!
//! | file | contents |
//! |---|---|
//! | `arch` | the supported architectures, one description each |
//! | `config` | a model's hyperparameters, from GGUF metadata or a `config.json` |
//! | `names` | the names of weights in files of either format |
//! | `rope`, `rotary` | the speeds of rotations, and their application |
//! | `decoder` | the graph of a decoder |
//! | `context`, `cache` | which rows of the caches tokens are written to and attend to; the caches of keys and values |
//! | `read` | the tensors of GGUF files, each in the form in which it is used |
//! | `mamba` | layers with a state in place of attention |
//! | `feed` | the feed-forward networks, which may be mixtures of experts |
//! | `adapter` | low-rank adapters (LoRA) from PEFT's files and GGUF, which can be switched without another plan |
//! | `learn` | training of low-rank adapters beside a frozen model |
//! | `batch` | graphs that decode several texts at once, give the logits of every token, or give hidden states |
//! | `encoder`, `encoders` | encoders: embeddings and scores of several texts at once; their architectures |
//! | `pooling` | how the states of a text's tokens become one vector |
//! | `remote`, `remote_encoder`, `remote_files` | graphs that are built here for a session elsewhere, which has the device |
//! | `grammar`, `schema`, `pattern`, `gbnf` | which tokens may come next, according to a JSON schema or a grammar in GBNF |
//! | `tools` | function calls: the grammar that constrains them |
//! | `calls` | function calls: finding them in the generated text |
//! | `guess` | speculative tokens, guessed from repetitions in the text itself |
//! | `half_precision` | matrix products in 16 bits |
//! | `sample` | chooses a token from logits |
//! | `stream` | turns tokens into whole characters as they come; stop strings |
//!
//! A [`Decoder`] has one graph for each number of tokens that it can read at once ([`Decoder::chunk`]). The position of
//! these tokens in the text is a launch variable, so that one plan serves all positions. Never here: waiting, files,
//! and the loop over tokens; these belong to the host.
#![deny(clippy::unwrap_used)]

mod adapter;
mod arch;
mod batch;
mod cache;
mod calls;
mod config;
mod context;
mod decoder;
mod encoder;
mod encoders;
mod feed;
mod gbnf;
mod grammar;
mod guess;
mod half_precision;
mod learn;
mod mamba;
mod names;
mod pattern;
mod pooling;
mod read;
mod remote;
mod remote_encoder;
mod remote_files;
mod rope;
mod rotary;
mod sample;
mod schema;
mod stream;
mod tools;

pub use adapter::Adapter;
pub use arch::{ARCHES, Arch};
pub use batch::{Batch, LONGEST, States};
pub use calls::{Call, Splitter, text_with_calls};
pub use config::{Config, Experts, ends, ends_of};
pub use decoder::{Chunk, Decoder, LAST, POSITION, SEQUENCE, chunks};
pub use encoder::{Encoder, Pack, PackInputs, USED, packs};
pub use encoders::ENCODERS;
pub use grammar::{Grammar, Matcher, Vocabulary};
pub use guess::{accepted, guess};
pub use learn::{Learned, Learner, Lora, RateSchedule, TrainingBatch, Windows};
pub use mamba::Ssm;
pub use pooling::{Pooler, Pooling};
pub use remote::{Graph, Loss, Remote, Wanted};
pub use remote_encoder::{PackGraph, RemoteEncoder};
pub use remote_files::{Buffer, Input};
pub use rope::{FACTORS, Rope};
pub use sample::{Sampler, SamplingOptions};
pub use stream::Stream;
pub use tools::Calls;

use crate::error::Error;

/// Whether this build has what pages leave out, so that they download less: several texts at once.
const DESKTOP: bool = cfg!(any(test, feature = "desktop"));

fn err(what: impl Into<String>) -> Error {
    Error::Model { what: what.into(), node: None }
}
