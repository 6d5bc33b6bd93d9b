//! What PyTorch gave for these networks, and how far a step is from it.

use super::weights::{Output, Step, Weights};
use super::{bert, resnet, retinanet, rnnt, unet3d};
use gradloom::io::npz;
use gradloom::{Error, Result};
use std::path::Path;

/// A network on its own sample.
pub(crate) type Network = fn(&Weights) -> Result<Output>;

/// The networks by name.
pub(crate) const NETWORKS: [(&str, Network); 5] = [
    ("bert", bert::network),
    ("resnet", resnet::network),
    ("retinanet", retinanet::network),
    ("rnnt", rnnt::network),
    ("unet3d", unet3d::network),
];

/// How far anything may be off, as a part of the largest of its kind.
pub(crate) const LIMIT: f64 = 1e-4;

/// The largest difference of predictions, losses and gradients, each as a part of the largest one, and where it is.
///
/// # Errors
/// `E_INPUT` where the recording is missing, or is of other weights.
pub(crate) fn off(name: &str, step: &Step) -> Result<(f64, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/fixtures/mlperf/{name}.npz"));
    let bad = |what: String| Error::Input { name: path.display().to_string(), what };
    let arrays = npz::read(&std::fs::read(&path).map_err(|e| bad(e.to_string()))?)?;
    let get = |key: &str| arrays.iter().find(|a| a.0 == key).map(|a| &a.1).ok_or_else(|| bad(format!("has no {key}")));
    let names = String::from_utf8_lossy(&get("names")?.data).into_owned();
    let own: Vec<&str> = step.gradients.iter().map(|g| g.0.as_str()).collect();
    if names.lines().ne(own.iter().copied()) {
        return Err(bad(format!("is of weights {:?}, and there are {own:?}", names.lines().collect::<Vec<_>>())));
    }
    let lengths: Vec<f64> = step.gradients.iter().map(|g| g.1).collect();
    let mut most = (0f64, String::new());
    for (key, got) in [("prediction", &step.prediction[..]), ("losses", &step.losses), ("gradients", &lengths)] {
        let want = get(key)?.to_f64();
        let scale = want.iter().fold(0f64, |m, x| m.max(x.abs()));
        if want.len() != got.len() {
            return Err(bad(format!("has {} of {key}, and there are {}", want.len(), got.len())));
        }
        // a value that is no number is as far off as can be
        let differ = |(a, b): (&f64, &f64)| if (a - b).is_finite() { (a - b).abs() / scale } else { f64::INFINITY };
        for (i, off) in got.iter().zip(&want).map(differ).enumerate() {
            let name = if key == "gradients" { own[i] } else { "" };
            if off > most.0 {
                most = (off, format!("{key}[{i}] {name}: {} is {}", want[i], got[i]));
            }
        }
    }
    Ok(most)
}
