//! gradloom for native programs: devices, an API whose calls block until their result is there, and everything that the
//! core crate exports.

#[cfg(feature = "serve")]
pub mod access;
#[cfg(any(feature = "cuda", feature = "opencl"))]
mod binaries;
pub mod c;
pub mod cache;
#[cfg(any(feature = "vulkan", feature = "wgpu"))]
pub mod canary;
pub mod choose;
mod contain;
#[cfg(any(unix, windows))]
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod data;
pub mod debug;
pub mod devices;
pub mod disasm;
pub mod export;
mod handles;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod hazards;
#[cfg(feature = "images")]
pub mod image_folder;
pub mod limits;
pub mod llm;
#[cfg(unix)]
pub mod llvm;
mod mapped;
pub mod memory;
#[cfg(target_os = "macos")]
pub mod metal;
pub mod model;
#[cfg(feature = "opencl")]
pub mod opencl;
#[cfg(feature = "serve")]
mod page;
pub mod runtime;
#[cfg(feature = "serve")]
pub mod serve;
mod siphash;
mod steps;
mod store;
pub mod tell;
pub mod text;
pub mod tune;
mod upload;
mod vectors;
#[cfg(feature = "serve")]
pub mod viz;
#[cfg(feature = "vulkan")]
pub mod vulkan;
pub mod weights;
#[cfg(feature = "wgpu")]
pub mod wgpu;

pub use cache::NativeHost;
pub use contain::contain;
pub use devices::open;
pub use gradloom_core::*;
pub use model::OnnxModel;
pub use runtime::Runtime;
pub use tensor::{Session, Tensor};
