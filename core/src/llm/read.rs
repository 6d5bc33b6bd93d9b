//! The tensors of a model's GGUF files, which may be several (a split model), each in the form in which it is used.

use super::err;
use super::rope::FACTORS;
use crate::engine::Bytes;
use crate::error::Result;
use crate::io::gguf::{self, Activations, Gguf, Matrix, Use};
use crate::tensor::Session;

/// Names and values of those of the tensors [`FACTORS`] that files have.
pub(super) type Factors = Vec<(String, Vec<f64>)>;

/// How the tensor of that name is used: only rows are read of an embedding, unless it is the output matrix, too;
/// everything else is a factor of products, for which `wanted` says in which form activations are multiplied quickest.
pub(super) fn use_of(index: &Gguf, name: &str, wanted: Activations) -> Use {
    match name {
        "token_embd.weight"
            if ["output.weight", "token_embd_norm.weight"].iter().any(|other| index.entry(other).is_some()) =>
        {
            Use::Rows
        }
        "position_embd.weight" | "token_types.weight" => Use::Rows,
        _ => Use::Product(wanted),
    }
}

/// The merged index of the files of a split model, with all tensors, and the values of those of [`FACTORS`] that the files
/// have.
pub(super) fn read_files(
    session: &Session,
    files: &[Bytes],
    indices: Vec<Gguf>,
    activations: Activations,
) -> Result<(Gguf, Vec<Matrix>, Factors)> {
    let counts: Vec<usize> = indices.iter().map(|i| i.entries.len()).collect();
    let (index, factors) = joined(files, indices)?;
    let wanted = |name: &str| use_of(&index, name, activations);
    let (mut tensors, mut rest) = (Vec::with_capacity(index.entries.len()), &index.entries[..]);
    for (file, n) in files.iter().zip(counts) {
        let (own, others) = rest.split_at(n.min(rest.len()));
        tensors.extend(gguf::matrices_of(session, file, own, &wanted)?);
        rest = others;
    }
    Ok((index, tensors, factors))
}

/// The merged index of the files of a split model, and the values of those of [`FACTORS`] that they have.
fn joined(files: &[Bytes], indices: Vec<Gguf>) -> Result<(Gguf, Factors)> {
    let (mut index, mut factors): (Option<Gguf>, _) = (None, Vec::new());
    for (already, (file, next)) in files.iter().zip(indices).enumerate() {
        for e in FACTORS.iter().filter_map(|name| next.entry(name)) {
            factors.push((e.name.clone(), e.to_host(file)?.to_f64()));
        }
        match &mut index {
            Some(index) => index.extend(next, already as u64 - 1)?,
            None => index = Some(next),
        }
    }
    let index = index.ok_or_else(|| err("no file"))?;
    index.check_whole()?;
    Ok((index, factors))
}
