//! Translates TensorFlow Lite files to ONNX files ([`to_onnx`]); the ONNX importer does everything else.
//!
//! Tensors keep their axis order (channels last); convolutions are surrounded by transpositions, which are only index
//! arithmetic for the compiler. A quantised tensor keeps its 8 bits between operators, which compute in floats: results
//! may differ from TensorFlow Lite's by one quantisation step where its fixed-point multipliers round differently.
//! Weights are copied once. Sizes are checked before anything is allocated, and all constants together may be at most
//! twice as large as the file. Spec: schema.fbs of TensorFlow Lite, version 3.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

mod flat;
mod moves;
mod names;
mod ops;
mod sequences;
#[cfg(test)]
mod tests;
mod write;

use crate::error::{Error, Result};
use crate::io::{MAX_RANK, element_count};
use flat::{List, Table};
use std::collections::BTreeMap;
use write::{Attr, Proto};

/// The schema's number of the 4-bit integer type.
const INT4: i8 = 17;

/// The ONNX operator set that the result uses.
const OPSET: i64 = 21;

/// True for a file with the identifier of TensorFlow Lite.
pub fn is_tflite(file: &[u8]) -> bool {
    file.get(4..8) == Some(b"TFL3")
}

/// Translates a TensorFlow Lite file to an ONNX file with the same inputs and outputs.
///
/// Errors: `Format` for a damaged file, `Unsupported` with the operator and the tensor that it computes.
pub fn to_onnx(file: &[u8]) -> Result<Vec<u8>> {
    if !is_tflite(file) {
        return Err(Error::format("tflite", "the file does not begin as one of TensorFlow Lite", None));
    }
    let root = Table::root(file)?;
    let graphs = root.list(2, 4)?;
    let graph = graphs.table(0)?;
    let tensors = graph.list(0, 4)?;
    let mut cx = Cx {
        file,
        codes: root.list(1, 4)?,
        buffers: root.list(4, 4)?,
        tensors: Vec::new(),
        body: Proto::default(),
        stored: BTreeMap::new(),
        real: BTreeMap::new(),
        names: 0,
        left: file.len().saturating_mul(2).saturating_add(1 << 16),
    };
    for i in 0..tensors.len {
        let t = Tensor::read(i, tensors.table(i)?, &mut cx)?;
        cx.tensors.push(t);
    }
    for t in graph.i32s(1)? {
        let t = cx.tensor(t)?.clone();
        if cx.stored.insert(t.index, t.name.clone()).is_some() {
            return Err(Error::format("tflite", format!("the input `{}` appears twice", t.name), None));
        }
        cx.body.bytes(11, &write::port(&t.name, t.elem()?, &t.open).0);
    }
    let operators = graph.list(3, 4)?;
    for i in 0..operators.len {
        let before = cx.body.0.len();
        ops::translate(&mut cx, operators.table(i)?)?;
        cx.limit(before)?;
    }
    for t in graph.i32s(2)? {
        let t = cx.tensor(t)?.clone();
        let from = cx.stored(t.index)?;
        if from != t.name {
            let done = write::node("Identity", &t.name, &[from], std::slice::from_ref(&t.name), &[]);
            cx.body.bytes(1, &done.0);
        }
        cx.body.bytes(12, &write::port(&t.name, t.elem()?, &t.open).0);
    }
    cx.body.text(2, "tflite");
    Ok(write::model(&cx.body, OPSET))
}

/// A tensor as the file describes it.
#[derive(Clone)]
struct Tensor {
    index: usize,
    name: String,
    shape: Vec<usize>,
    /// The shape with -1 for dimensions that may change.
    open: Vec<i64>,
    kind: i8,
    buffer: usize,
    scale: Vec<u8>,
    zero: Vec<i64>,
    axis: i32,
}

impl Tensor {
    fn read(index: usize, t: Table<'_>, cx: &mut Cx<'_>) -> Result<Tensor> {
        let name = t.text(3)?;
        if name.len() > 1024 || t.list(0, 4)?.len > MAX_RANK {
            return Err(Error::format("tflite", format!("tensor {index} has too long a name or too many axes"), None));
        }
        let name = name.to_owned();
        let shape = t.i32s(0)?;
        let open = if t.list(7, 4)?.len == shape.len() { t.i32s(7)? } else { shape.clone() };
        let bad = || Error::format("tflite", format!("tensor `{name}` has the shape {shape:?}"), None);
        let sizes: Vec<usize> = shape.iter().filter_map(|&d| usize::try_from(d).ok()).collect();
        if sizes.len() != shape.len() || sizes.len() > MAX_RANK || element_count(&sizes).is_none() {
            return Err(bad());
        }
        let (mut scale, mut zero, mut axis) = (Vec::new(), Vec::new(), 0);
        if let Some(q) = t.table(4)? {
            cx.charge((q.list(2, 4)?.len + q.list(3, 8)?.len) * 8)?;
            scale = q.i32s(2)?.iter().flat_map(|v| v.to_le_bytes()).collect();
            zero = q.i64s(3)?;
            axis = q.i32(6, 0)?;
        }
        let open = open.iter().map(|&d| i64::from(d)).collect();
        let buffer = t.i32(2, 0)? as u32 as usize;
        Ok(Tensor { index, name, shape: sizes, open, kind: t.i8(1)?, buffer, scale, zero, axis })
    }

    /// ONNX's number of the element type.
    fn elem(&self) -> Result<i32> {
        Ok(match self.kind {
            0 => 1,
            1 => 10,
            2 => 6,
            3 => 2,
            4 => 7,
            6 => 9,
            7 => 5,
            9 => 3,
            10 => 11,
            12 => 13,
            15 => 12,
            16 => 4,
            17 => 22,
            18 => 16,
            other => {
                let what = format!("element type {other} of TensorFlow Lite");
                return Err(Error::Unsupported { what, context: format!("tensor `{}`", self.name) });
            }
        })
    }

    fn element_size(&self) -> usize {
        match self.kind {
            4 | 10 | 12 => 8,
            0 | 2 | 15 => 4,
            1 | 7 | 16 | 18 => 2,
            _ => 1,
        }
    }

    /// Bytes of all elements; 4-bit elements are packed two to a byte.
    fn byte_count(&self) -> Option<usize> {
        let n = element_count(&self.shape)?;
        if self.kind == INT4 { Some(n.div_ceil(2)) } else { n.checked_mul(self.element_size()) }
    }

    fn is_quantised(&self) -> bool {
        !self.scale.is_empty() && matches!(self.kind, 2 | 3 | 4 | 7 | 9 | INT4)
    }
}

/// A graph being translated.
struct Cx<'a> {
    file: &'a [u8],
    codes: List<'a>,
    buffers: List<'a>,
    tensors: Vec<Tensor>,
    body: Proto,
    /// ONNX names of tensors in their stored form (quantised ones as codes), by index.
    stored: BTreeMap<usize, String>,
    /// ONNX names of tensors in dequantised form, by index and axis order.
    real: BTreeMap<(usize, Vec<usize>), String>,
    names: usize,
    /// The budget of constants that is left, in bytes.
    left: usize,
}

impl<'a> Cx<'a> {
    fn tensor(&self, index: i32) -> Result<&Tensor> {
        let bad =
            || Error::format("tflite", format!("tensor {index} is out of range for {}", self.tensors.len()), None);
        usize::try_from(index).ok().and_then(|at| self.tensors.get(at)).ok_or_else(bad)
    }

    /// Limits the size of the translated graph relative to the file.
    fn limit(&mut self, before: usize) -> Result<()> {
        let most = self.file.len().saturating_mul(8).saturating_add(32 << 20);
        if self.body.0.len() > most || self.body.0.len() - before > most {
            return Err(Error::format("tflite", "too many parts for the size of the file", None));
        }
        Ok(())
    }

    fn fresh(&mut self, stem: &str) -> String {
        self.names += 1;
        format!("{}~{}", stem.chars().take(64).collect::<String>(), self.names)
    }

    /// Adds a node; returns the name of its only output.
    fn node(&mut self, op: &str, inputs: &[String], attrs: &[(&str, Attr<'_>)], stem: &str) -> String {
        let out = self.fresh(stem);
        let n = write::node(op, &out, inputs, std::slice::from_ref(&out), attrs);
        self.body.bytes(1, &n.0);
        out
    }

    /// Adds a node with several outputs; returns their names.
    fn nodes(&mut self, op: &str, n: usize, inputs: &[String], attrs: &[(&str, Attr<'_>)], stem: &str) -> Vec<String> {
        let out: Vec<String> = (0..n).map(|_| self.fresh(stem)).collect();
        let name = out.first().map_or("", String::as_str);
        self.body.bytes(1, &write::node(op, name, inputs, &out, attrs).0);
        out
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or_else(|| Error::format("tflite", "constants are more than twice the size of the file", None))?;
        Ok(())
    }

    /// Adds a constant; returns its name.
    fn constant(&mut self, elem: i32, shape: &[usize], data: &[u8]) -> Result<String> {
        self.charge(data.len())?;
        let name = self.fresh("constant");
        self.body.bytes(5, &write::tensor(&name, elem, shape, data).0);
        Ok(name)
    }

    fn ints(&mut self, values: &[i64]) -> Result<String> {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant(7, &[values.len()], &data)
    }

    fn float(&mut self, value: f32) -> Result<String> {
        self.constant(1, &[], &value.to_le_bytes())
    }

    /// The bytes of a constant tensor, exactly as many as its shape needs; `None` for one that is computed.
    fn data(&self, t: &Tensor) -> Result<Option<&'a [u8]>> {
        if t.buffer == 0 {
            return Ok(None);
        }
        let b = self.buffers.table(t.buffer)?;
        let mut data = b.bytes(0)?;
        let (offset, size) = (b.u64(1)?, b.u64(2)?);
        if offset > 1 {
            let range =
                usize::try_from(offset).ok().zip(offset.checked_add(size).and_then(|e| usize::try_from(e).ok()));
            let outside = || Error::format("tflite", format!("the data of `{}` lies outside the file", t.name), None);
            data = range.and_then(|(from, to)| self.file.get(from..to)).ok_or_else(outside)?;
        }
        match t.byte_count() {
            _ if data.is_empty() => Ok(None),
            Some(n) if n == data.len() => Ok(Some(data)),
            _ => {
                let what = format!("{} bytes do not fill `{}` of shape {:?}", data.len(), t.name, t.shape);
                Err(Error::format("tflite", what, None))
            }
        }
    }

    /// The ONNX name of a tensor in its stored form; a constant is added when it is first used.
    fn stored(&mut self, index: usize) -> Result<String> {
        if let Some(name) = self.stored.get(&index) {
            return Ok(name.clone());
        }
        let t = self.tensor(index as i32)?.clone();
        let Some(data) = self.data(&t)? else {
            return Err(Error::format("tflite", format!("tensor `{}` is read before it is made", t.name), None));
        };
        let name = self.constant(t.elem()?, &t.shape, data)?;
        self.stored.insert(index, name.clone());
        Ok(name)
    }

    /// The ONNX name of a tensor in dequantised form, with its axes permuted if `order` is not empty.
    fn real(&mut self, index: usize, order: &[usize]) -> Result<String> {
        let key = (index, order.to_vec());
        if let Some(name) = self.real.get(&key) {
            return Ok(name.clone());
        }
        let t = self.tensor(index as i32)?.clone();
        let name = if !order.is_empty() {
            let plain = self.real(index, &[])?;
            let perm = Attr::Ints(order.iter().map(|&a| a as i64).collect());
            self.node("Transpose", &[plain], &[("perm", perm)], &t.name)
        } else {
            let stored = self.stored(index)?;
            match () {
                // The i64 bias of networks with 16-bit activations. ONNX does not dequantise 64-bit integers.
                () if t.is_quantised() && t.kind == 4 => {
                    let wide = self.node("Cast", &[stored], &[("to", Attr::Int(1))], &t.name);
                    let scale = self.quantization_params(&t)?.swap_remove(0);
                    self.node("Mul", &[wide, scale], &[], &t.name)
                }
                () if t.is_quantised() => {
                    let mut inputs = vec![stored];
                    inputs.extend(self.quantization_params(&t)?);
                    let axis = [("axis", Attr::Int(i64::from(t.axis)))];
                    self.node("DequantizeLinear", &inputs, &axis, &t.name)
                }
                () if t.kind == 1 => self.node("Cast", &[stored], &[("to", Attr::Int(1))], &t.name),
                () => stored,
            }
        };
        self.real.insert(key, name.clone());
        Ok(name)
    }

    /// The names of scale and zero point of a quantised tensor (no zero point for 4-bit types if it is 0): scalars, or
    /// one value for each index of the quantised axis.
    fn quantization_params(&mut self, t: &Tensor) -> Result<Vec<String>> {
        let n = t.scale.len() / 4;
        let axis = usize::try_from(t.axis).ok().and_then(|a| t.shape.get(a)).copied();
        if n != 1 && axis != Some(n) || t.zero.len() > n {
            return Err(Error::format("tflite", format!("`{}` has {n} scales for {:?}", t.name, t.shape), None));
        }
        let shape = if n == 1 { vec![] } else { vec![n] };
        let scale = self.constant(1, &shape, &t.scale)?;
        if t.kind == INT4 && t.zero.iter().all(|&z| z == 0) {
            return Ok(vec![scale]);
        }
        let zero = (0..n).map(|i| t.zero.get(i).copied().unwrap_or(0));
        let zero: Vec<u8> = zero.flat_map(|z| z.to_le_bytes().into_iter().take(t.element_size())).collect();
        Ok(vec![scale, self.constant(t.elem()?, &shape, &zero)?])
    }

    /// Defines a tensor by the name of its dequantised value, which is quantised again if the tensor is.
    fn set(&mut self, index: usize, name: String) -> Result<()> {
        let t = self.tensor(index as i32)?.clone();
        let stored = match () {
            () if t.is_quantised() => {
                let mut inputs = vec![name];
                inputs.extend(self.quantization_params(&t)?);
                self.node("QuantizeLinear", &inputs, &[("axis", Attr::Int(i64::from(t.axis)))], &t.name)
            }
            () if t.kind == 1 => self.node("Cast", &[name], &[("to", Attr::Int(10))], &t.name),
            () => name,
        };
        self.stored.insert(index, stored);
        Ok(())
    }
}
