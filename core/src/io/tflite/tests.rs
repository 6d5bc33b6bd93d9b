//! Tests with damaged files and one intact file.
#![allow(clippy::indexing_slicing)]

use super::{is_tflite, to_onnx};
use crate::error::Error;
use crate::io::testing::mutate;

#[test]
fn other_files_are_refused() {
    assert!(!is_tflite(b"GGUF"));
    assert!(matches!(to_onnx(b"\x08\0\0\0TFL3"), Err(Error::Format { .. })));
    assert!(matches!(to_onnx(b""), Err(Error::Format { .. })));
}

#[test]
fn damaged_files_are_errors() {
    let file = include_bytes!("../../../../tests/models/selfie_segmentation/model.tflite");
    assert!(to_onnx(file).is_ok());
    // The tables are at the end of the file, after the weights.
    mutate(file.get(file.len() - 60_000..).unwrap_or_default(), 20, |tail| {
        let _ = to_onnx(&[&file[..file.len() - 60_000], tail].concat());
    });
    for cut in (0..file.len()).step_by(9973) {
        assert!(to_onnx(&file[..cut]).is_err());
    }
}

#[test]
fn damaged_quantised_files_are_errors() {
    for file in [
        &include_bytes!("../../../../tests/fixtures/tflite/pieces_channel.tflite")[..],
        include_bytes!("../../../../tests/fixtures/tflite/image_nibbles.tflite"),
    ] {
        assert!(to_onnx(file).is_ok());
        mutate(file, 40, |damaged| {
            let _ = to_onnx(damaged);
        });
    }
}
