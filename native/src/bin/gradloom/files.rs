//! Reads inputs from .npy and .npz files, writes outputs to .npz.

use super::{Failure, Given, Outcome, Progress};
use gradloom::io::onnx::Model;
use gradloom::io::onnx::proto::Dim;
use gradloom::io::{HostTensor, npy, npz};
use gradloom::model::read_file;
use std::collections::BTreeMap;
use std::path::Path;

/// The inputs that the user named, checked against those of the model.
pub(crate) fn inputs(files: &Given, model: &Model) -> Outcome<Vec<(String, HostTensor)>> {
    let mut given = Vec::new();
    if let Some(path) = &files.inputs {
        given = npz::read(&read_file(path)?).map_err(|e| Failure(format!("{}: {e}", path.display())))?;
    }
    for arg in &files.input {
        let Some((name, file)) = arg.split_once('=') else {
            return Err(Failure(format!("--input {arg}: expected NAME=FILE.npy")));
        };
        let t = npy::read(&read_file(Path::new(file))?).map_err(|e| Failure(format!("{file}: {e}")))?;
        given.push((name.to_string(), t));
    }
    for (name, t) in &given {
        let Some(port) = model.input(name) else {
            let known: Vec<&str> = model.inputs().iter().map(|p| p.name.as_str()).collect();
            return Err(Failure(format!("the model has no input `{name}`; it has {}", known.join(", "))));
        };
        port.accepts(t.dtype, &t.shape)?;
    }
    for p in model.inputs().iter().filter(|p| !p.is_sequence && !p.is_optional) {
        if !given.iter().any(|(n, _)| *n == p.name) {
            return Err(Failure(format!("input `{}` is missing (see --input and --inputs)", p.name)));
        }
    }
    Ok(given)
}

/// The inputs that the user named. If there are none, zeros of the declared shapes (open dimensions have size 1).
pub(crate) fn inputs_or_zeros(files: &Given, model: &Model, progress: Progress) -> Outcome<Vec<(String, HostTensor)>> {
    if files.inputs.is_some() || !files.input.is_empty() {
        return inputs(files, model);
    }
    progress.say("no inputs given: using zeros");
    zeros(model, &BTreeMap::new())
}

/// Zeros of the declared shapes. Open dimensions have these sizes, or 1.
pub(crate) fn zeros(model: &Model, sizes: &BTreeMap<String, usize>) -> Outcome<Vec<(String, HostTensor)>> {
    let mut out = Vec::new();
    for p in model.inputs().iter().filter(|p| !p.is_sequence && !p.is_optional) {
        let (Some(dtype), Some(dims)) = (p.dtype, &p.dims) else {
            return Err(Failure(format!("input `{}` has no declared shape: give it with --input or --inputs", p.name)));
        };
        let size = |d: &Dim| match d {
            Dim::Value(v) if *v > 0 => *v as usize,
            Dim::Param(name) => sizes.get(name).copied().unwrap_or(1),
            _ => 1,
        };
        let shape: Vec<usize> = dims.iter().map(size).collect();
        let bytes = gradloom::io::byte_count(dtype, &shape).filter(|b| *b < 1 << 32);
        let bytes = bytes.ok_or_else(|| Failure(format!("input `{}` of {shape:?} is too large", p.name)))?;
        out.push((p.name.clone(), HostTensor::new(dtype, shape, vec![0; bytes])?));
    }
    Ok(out)
}

/// The inputs in the form that the engine takes.
pub(crate) fn borrowed(inputs: &[(String, HostTensor)]) -> Vec<(&str, HostTensor)> {
    inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect()
}

/// Writes arrays to an .npz file.
pub(crate) fn write(path: &Path, arrays: &[(String, HostTensor)]) -> Outcome<()> {
    let list: Vec<(&str, &HostTensor)> = arrays.iter().map(|(n, t)| (n.as_str(), t)).collect();
    std::fs::write(path, npz::write(&list)?).map_err(|e| Failure(format!("{}: {e}", path.display())))
}
