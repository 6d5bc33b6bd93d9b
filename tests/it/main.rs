//! The one integration binary: every Rust test that looks at more than one module is a module here.

mod arch;
mod canary;
mod chains;
mod chat;
mod cpu;
mod data;
mod devices;
mod digits;
mod dtypes;
mod efficientnet;
mod failing;
mod folds;
mod frontend;
mod gguf;
mod guard;
mod hostile;
#[cfg(all(unix, target_arch = "x86_64"))]
mod integers;
mod long;
mod minilm;
mod mnist;
mod models;
#[cfg(all(unix, target_arch = "x86_64"))]
mod mutations;
mod narrow;
mod numerics;
mod onnx_suite;
mod passes;
mod pins;
mod places;
mod pool;
mod random;
mod reach;
mod samples;
mod spec;
mod specials;
mod steps;
mod text;
mod textgenrnn;
mod tflite;
mod torch_ops;
mod variables;
mod wasm;
mod weights;
mod wgsl;
mod whisper;
