//! ONNX: the model file as plain data ([`proto`], [`tensor`]).
//!
//! Never here: files and devices. Data outside the model file comes through [`ExternalData`].

pub mod proto;
pub mod tensor;

pub use tensor::{ExternalData, NoExternalData};

#[cfg(test)]
mod tests;
