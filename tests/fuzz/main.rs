//! What is given to us is changed at random, and what we compute is computed in several ways.
//!
//! | target | what | must hold |
//! |---|---|---|
//! | [`parsers`] | mutated files of every format | no panic, no long wait, no memory beyond a multiple of the file |
//! | [`models`] | ONNX models changed by their structure, inspected and run | no panic, no long wait, the evaluator's values |
//! | [`calls`] | tensor methods by name on any arguments | no panic, no long wait, an error or a graph that compiles |
//! | [`frontend`] | random programs of tensor operations on every device | the evaluator's values |
//!
//! A run is repeatable: it depends on the seed alone. `npm run fuzz` runs one of them for as long as one likes; it sets
//! `GRADLOOM_FUZZ_MINUTES`, `GRADLOOM_FUZZ_SEED`, `GRADLOOM_FUZZ_DEVICES` and `GRADLOOM_FUZZ_FINDINGS`. Each finding is a file in `fixtures/fuzz/TARGET`, or
//! beside it, and every run of the tests begins with the files there.

mod calls;
mod findings;
mod frontend;
mod memory;
mod models;
mod panics;
mod parsers;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
