//! Writes a model's file again with new values for some tensors. Everything else is copied byte for byte, including
//! fields that this project does not read.
//!
//! Tensors that lie in other files are included, so that the result is complete. Spec: onnx.proto of
//! <https://github.com/onnx/onnx>.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::model::Model;
use super::proto::{Budget, as_onnx};
use super::tensor::{TensorData, TensorProto, dtype_of, is_code_type, parse_tensor};
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::io::protobuf::{Field, Message, Writer};
use std::borrow::Cow;

/// The maximum length of a protobuf message, in bytes.
const MAX_MESSAGE_BYTES: usize = i32::MAX as usize;

/// Consecutive pieces of the file to write.
type Parts<'a> = Vec<Cow<'a, [u8]>>;

fn length(parts: &Parts<'_>) -> usize {
    parts.iter().fold(0, |n, p| n.saturating_add(p.len()))
}

impl Model {
    /// The file with these values in place of the tensors of those names, cast to the dtypes that the file stores. The
    /// result is complete: weights from other files are included.
    ///
    /// # Errors
    /// `E_VALUE` for a name that no tensor of the main graph has and for another shape; `E_UNSUPPORTED` for a result of
    /// more than 2 GiB, which the format does not allow.
    pub fn file_with(&self, values: &[(String, HostTensor)]) -> Result<Vec<u8>> {
        let constants = self.constants();
        let mut new = Vec::with_capacity(values.len());
        for (name, value) in values {
            let bad = |what: String| Error::value("file_with", what);
            let t = constants
                .iter()
                .find(|t| t.name == *name)
                .ok_or_else(|| bad(format!("no tensor is called `{name}`")))?;
            let Some(dtype) = dtype_of(t.elem).filter(|_| !is_code_type(t.elem)) else {
                t.dtype()?;
                return Err(bad(format!("`{name}` holds codes")));
            };
            if value.shape != t.shape {
                return Err(bad(format!("`{name}` has shape {:?}, not {:?}", t.shape, value.shape)));
            }
            let data =
                if value.dtype == dtype { Cow::Borrowed(&value.data[..]) } else { Cow::Owned(value.cast(dtype).data) };
            new.push((t, data));
        }
        let file = self.file_bytes();
        let mut parts: Parts<'_> = Vec::new();
        let whole = Message::new(file);
        each(whole, file, &mut parts, &mut |f, parts| {
            if f.number != 7 {
                return Ok(false);
            }
            let mut graph: Parts<'_> = Vec::new();
            each(f.message()?, file, &mut graph, &mut |f, graph| self.in_graph(&new, f, graph))?;
            push(parts, 7, graph);
            Ok(true)
        })
        .map_err(as_onnx)?;
        let len = length(&parts);
        if len > MAX_MESSAGE_BYTES {
            let what = format!("a file of {len} bytes");
            return Err(Error::Unsupported { what, context: "ONNX files end at 2 GiB".to_owned() });
        }
        let mut out = crate::budget::room(len)?;
        parts.iter().for_each(|p| out.extend_from_slice(p));
        Ok(out)
    }

    /// Writes a field of the graph if it changes; returns whether it does.
    fn in_graph<'a>(
        &'a self,
        new: &[(&'a TensorProto, Cow<'a, [u8]>)],
        f: &Field<'a>,
        out: &mut Parts<'a>,
    ) -> Result<bool> {
        let file = self.file_bytes();
        let of = |name: &str| new.iter().find(|(t, _)| t.name == name);
        match f.number {
            5 => {
                let old = parse_tensor(f.message()?, &mut Budget::of(file))?;
                let bytes = match (of(&old.name), &old.data) {
                    (Some((_, data)), _) => data.clone(),
                    (None, TensorData::External(_)) => Cow::Owned(self.stored(&old)?),
                    _ => return Ok(false),
                };
                push(out, 5, tensor(&old, &old.name, bytes));
                Ok(true)
            }
            1 => {
                let output = first(f.message()?, 2)?.map(|f| f.str()).transpose()?;
                let Some((t, data)) = output.and_then(of) else { return Ok(false) };
                let mut node: Parts<'a> = Vec::new();
                each(f.message()?, file, &mut node, &mut |f, node| {
                    let is_value = f.number == 5 && first(f.message()?, 1)?.is_some_and(|n| n.str() == Ok("value"));
                    if is_value {
                        let mut attribute: Parts<'a> = Vec::new();
                        each(f.message()?, file, &mut attribute, &mut |f, out| {
                            if f.number == 5 {
                                push(out, 5, tensor(t, "", data.clone()));
                            }
                            Ok(f.number == 5)
                        })?;
                        push(node, 5, attribute);
                    }
                    Ok(is_value)
                })?;
                push(out, 1, node);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Copies the fields of a message. `change` returns true for fields that it has written anew.
fn each<'a>(
    mut m: Message<'a>,
    file: &'a [u8],
    out: &mut Parts<'a>,
    change: &mut dyn FnMut(&Field<'a>, &mut Parts<'a>) -> Result<bool>,
) -> Result<()> {
    let mut kept = m.span().start;
    let mut end = kept;
    while let Some(f) = m.next_field()? {
        let mut now = Vec::new();
        end = m.span().start;
        if change(&f, &mut now)? {
            out.push(Cow::Borrowed(file.get(kept..f.at).unwrap_or_default()));
            out.append(&mut now);
            kept = end;
        }
    }
    out.push(Cow::Borrowed(file.get(kept..end).unwrap_or_default()));
    Ok(())
}

/// The first field with this number.
fn first<'a>(mut m: Message<'a>, number: u32) -> Result<Option<Field<'a>>> {
    while let Some(f) = m.next_field()? {
        if f.number == number {
            return Ok(Some(f));
        }
    }
    Ok(None)
}

/// Appends a message as a field of another message.
fn push<'a>(out: &mut Parts<'a>, number: u64, mut message: Parts<'a>) {
    let mut head = Writer::default();
    head.begin(number, length(&message));
    out.push(Cow::Owned(head.0));
    out.append(&mut message);
}

/// A tensor with its elements as raw data.
fn tensor<'a>(of: &TensorProto, name: &str, data: Cow<'a, [u8]>) -> Parts<'a> {
    let mut head = Writer::default();
    of.shape.iter().for_each(|&d| head.int(1, d as i64));
    head.int(2, i64::from(of.elem));
    if !name.is_empty() {
        head.text(8, name);
    }
    head.begin(9, data.len());
    vec![Cow::Owned(head.0), data]
}
