//! TensorFlow Lite files in every form of numbers, against TensorFlow Lite's reference kernels (`fixtures/make_tflite.py`).

use gradloom::OnnxModel;
use gradloom::io::{HostTensor, npz};
use std::path::Path;

/// The files, and how far a result may be off: in steps of its code, or for floats in parts of the largest value.
///
/// One operator rounds to a neighbouring step at most; through the thirty layers of `image_*` such steps add up, as they do between
/// TensorFlow Lite's own kernels (its XNNPACK ones are as far from the reference ones, and under `image_tensor` its reference kernels
/// are 4 steps from those that were recorded). Under `dense_dynamic` TensorFlow Lite
/// rounds the activations to 8 bits, and we do not.
const CASES: [(&str, f64); 17] = [
    ("floats", 2e-6),
    ("pieces_f32", 2e-6),
    ("pieces_channel", 1.0),
    ("image_f32", 2e-6),
    ("image_half", 2e-6),
    ("image_channel", 3.0),
    ("image_tensor", 5.0),
    ("image_old", 5.0),
    ("resize_tensor", 0.0),
    ("image_u8", 3.0),
    ("image_float", 0.04),
    ("image_16x8", 3.0),
    ("image_nibbles", 3.0),
    ("dense_dynamic", 1e-2),
    ("sequences", 2e-6),
    ("lstm_batch", 2e-6),
    ("lstm_steps", 2e-6),
];

fn check(device: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tflite");
    for (case, limit) in CASES {
        let opened = gradloom::open(device, 2).unwrap();
        let file = folder.join(format!("{case}.tflite"));
        let mut m = OnnxModel::load(&file, opened).unwrap_or_else(|e| panic!("{case}: {e}"));
        let arrays = npz::read(&std::fs::read(folder.join(format!("{case}.npz"))).unwrap()).unwrap();
        let part = |p: &str| -> Vec<(&str, HostTensor)> {
            arrays.iter().filter_map(|(n, t)| Some((n.strip_prefix(p)?, t.clone()))).collect()
        };
        let got = m.run(&part("in/")).unwrap_or_else(|e| panic!("{case} on {device}: {e}"));
        let expected = part("out/");
        assert_eq!(got.len(), expected.len(), "{case}");
        for (name, want) in expected {
            let got = &got.iter().find(|o| o.0 == name).unwrap_or_else(|| panic!("{case} has no {name}")).1;
            assert_eq!((got.dtype, &got.shape), (want.dtype, &want.shape), "{case} {name}");
            let (a, b) = (got.to_f64(), want.to_f64());
            let largest = b.iter().fold(0f64, |m, v| m.max(v.abs()));
            let unit = if want.dtype.is_float() { largest.max(1e-30) } else { 1.0 };
            let off: Vec<f64> = a.iter().zip(&b).map(|(x, y)| (x - y).abs() / unit).collect();
            let worst = off.iter().fold(0f64, |m, &v| m.max(v));
            // a NaN is not below the limit either
            assert!(off.iter().all(|&v| v <= limit), "{case} on {device}, `{name}`: off by {worst:.1e}");
        }
    }
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn tflite_runs_on_the_processor() {
    check("cpu");
}

#[test]
fn tflite_runs_in_the_interpreter() {
    check("eval");
}
