//! Translates operators, given by their names in the schema. Each reads its inputs in dequantised form, except those on
//! integers.

use super::flat::Table;
use super::write::Attr;
use super::{Cx, Tensor};
use super::{moves, names, sequences};
use crate::error::{Error, Result};

/// Permutations of axes: from channels last to channels first, and back.
pub(super) const TO_FIRST: [usize; 4] = [0, 3, 1, 2];
const TO_LAST: [i64; 4] = [0, 2, 3, 1];

/// One operator with its inputs, outputs (`out` is the first one) and options.
pub(super) struct Op<'a> {
    pub(super) name: &'static str,
    pub(super) inputs: Vec<i32>,
    pub(super) outputs: Vec<i32>,
    pub(super) out: Tensor,
    options: Option<Table<'a>>,
    /// The custom options of a custom operator, a C structure.
    custom: &'a [u8],
}

impl Op<'_> {
    pub(super) fn int(&self, slot: usize, default: i32) -> Result<i64> {
        self.options.map_or(Ok(default), |o| o.i32(slot, default)).map(i64::from)
    }

    pub(super) fn byte(&self, slot: usize) -> Result<i8> {
        self.options.map_or(Ok(0), |o| o.i8(slot))
    }

    pub(super) fn bool(&self, slot: usize) -> Result<bool> {
        self.options.map_or(Ok(false), |o| o.bool(slot))
    }

    pub(super) fn float(&self, slot: usize) -> Result<f32> {
        self.options.map_or(Ok(0.0), |o| o.f32(slot))
    }

    pub(super) fn refuse<T>(&self, what: impl Into<String>) -> Result<T> {
        let context = format!("operator {} that makes `{}`", self.name, self.out.name);
        Err(Error::Unsupported { what: what.into(), context })
    }

    pub(super) fn input(&self, i: usize) -> Option<usize> {
        self.inputs.get(i).and_then(|&t| usize::try_from(t).ok())
    }

    pub(super) fn want(&self, i: usize) -> Result<usize> {
        let missing = || Error::format("tflite", format!("an operator for `{}` lacks input {i}", self.out.name), None);
        self.input(i).ok_or_else(missing)
    }
}

/// Translates one operator.
pub(super) fn translate(cx: &mut Cx<'_>, t: Table<'_>) -> Result<()> {
    let code = cx.codes.table(t.i32(0, 0)? as u32 as usize)?;
    // Files of older versions of the schema have the number in one byte.
    let number = code.i32(3, 0)?.max(i32::from(code.i8(0)?));
    let name = names::name(number);
    if t.list(1, 4)?.len > 4096 {
        return Err(Error::format("tflite", "an operator has more than 4096 inputs", None));
    }
    let outputs = t.i32s(2)?;
    let nothing = || Error::format("tflite", format!("operator {name} makes nothing"), None);
    let out = cx.tensor(*outputs.first().ok_or_else(nothing)?)?.clone();
    let op = Op { name, inputs: t.i32s(1)?, outputs, out, options: t.table(4)?, custom: t.bytes(5)? };
    if name == "CUSTOM" {
        return match code.text(1)? {
            "Convolution2DTransposeBias" => transpose_conv_bias(cx, &op),
            other => op.refuse(format!("the custom operator `{other}`")),
        };
    }
    if let Some(made) = moves::translate_multi_output(cx, &op)? {
        for (&t, name) in op.outputs.iter().zip(made) {
            let index = cx.tensor(t)?.index;
            cx.set(index, name)?;
        }
        return Ok(());
    }
    if let Some(codes) = resized_codes(cx, &op)? {
        cx.stored.insert(op.out.index, codes);
        return Ok(());
    }
    for translate in [moves::one, sequences::one] {
        if let Some(made) = translate(cx, &op)? {
            return cx.set(op.out.index, made);
        }
    }
    let made = one(cx, &op)?;
    cx.set(op.out.index, made)
}

pub(super) fn real(cx: &mut Cx<'_>, op: &Op<'_>, i: usize) -> Result<String> {
    cx.real(op.want(i)?, &[])
}

/// The values of a constant input of 32- or 64-bit integers.
pub(super) fn known(cx: &Cx<'_>, op: &Op<'_>, i: usize) -> Result<Vec<i64>> {
    let t = cx.tensor(op.want(i)? as i32)?;
    let Some(data) = cx.data(t)? else { return op.refuse(format!("`{}`, which is not constant,", t.name)) };
    if data.len() > 1 << 12 {
        return op.refuse(format!("`{}` of so many elements", t.name));
    }
    let wide = |b: &[u8]| b.try_into().map_or(0, i64::from_le_bytes);
    let narrow = |b: &[u8]| b.try_into().map_or(0, i32::from_le_bytes).into();
    match t.kind {
        2 => Ok(data.chunks_exact(4).map(narrow).collect()),
        4 => Ok(data.chunks_exact(8).map(wide).collect()),
        kind => op.refuse(format!("integers of type {kind}")),
    }
}

/// Applies the operator's fused activation.
pub(super) fn activate(cx: &mut Cx<'_>, op: &Op<'_>, x: String, slot: usize) -> Result<String> {
    let name = &op.out.name;
    let (low, high) = match op.byte(slot)? {
        0 => return Ok(x),
        1 => return Ok(cx.node("Relu", &[x], &[], name)),
        4 => return Ok(cx.node("Tanh", &[x], &[], name)),
        2 => (-1.0, 1.0),
        3 => (0.0, 6.0),
        other => return op.refuse(format!("activation {other}")),
    };
    clip(cx, op, x, low, high)
}

fn clip(cx: &mut Cx<'_>, op: &Op<'_>, x: String, low: f32, high: f32) -> Result<String> {
    let bounds = [cx.float(low)?, cx.float(high)?];
    let [low, high] = bounds;
    Ok(cx.node("Clip", &[x, low, high], &[], &op.out.name))
}

fn one(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    if let Some(unary) = unary(op.name) {
        let x = real(cx, op, 0)?;
        return Ok(cx.node(unary, &[x], &[], &op.out.name));
    }
    if let Some((compare, not)) = comparison(op.name) {
        let inputs = [real(cx, op, 0)?, real(cx, op, 1)?];
        let y = cx.node(compare, &inputs, &[], &op.out.name);
        return Ok(if not { cx.node("Not", &[y], &[], &op.out.name) } else { y });
    }
    match op.name {
        "ADD" | "MUL" | "SUB" | "DIV" => {
            let kind = match op.name {
                "ADD" => "Add",
                "MUL" => "Mul",
                "SUB" => "Sub",
                _ => "Div",
            };
            let inputs = [real(cx, op, 0)?, real(cx, op, 1)?];
            let y = cx.node(kind, &inputs, &[], &op.out.name);
            activate(cx, op, y, 0)
        }
        "MAXIMUM" | "MINIMUM" | "POW" | "PRELU" | "SELECT_V2" | "SELECT" => {
            let kind = match op.name {
                "MAXIMUM" => "Max",
                "MINIMUM" => "Min",
                "POW" => "Pow",
                "PRELU" => "PRelu",
                _ => "Where",
            };
            let inputs = (0..op.inputs.len()).map(|i| real(cx, op, i)).collect::<Result<Vec<_>>>()?;
            Ok(cx.node(kind, &inputs, &[], &op.out.name))
        }
        "AVERAGE_POOL_2D" | "MAX_POOL_2D" => pool(cx, op),
        "CONCATENATION" => {
            let inputs = (0..op.inputs.len()).map(|i| real(cx, op, i)).collect::<Result<Vec<_>>>()?;
            let axis = op.int(0, 0)?;
            let y = cx.node("Concat", &inputs, &[("axis", Attr::Int(axis))], &op.out.name);
            activate(cx, op, y, 1)
        }
        "CONV_2D" | "DEPTHWISE_CONV_2D" => conv(cx, op),
        "FULLY_CONNECTED" => fully_connected(cx, op),
        "L2_NORMALIZATION" => {
            let x = real(cx, op, 0)?;
            let axes = cx.ints(&[-1])?;
            let norm = cx.node("ReduceL2", &[x.clone(), axes], &[], &op.out.name);
            // The lower bound that TensorFlow Lite applies to the norm.
            let least = cx.constant(1, &[], &1e-6f32.to_le_bytes())?;
            let norm = cx.node("Max", &[norm, least], &[], &op.out.name);
            let y = cx.node("Div", &[x, norm], &[], &op.out.name);
            activate(cx, op, y, 0)
        }
        "RELU_N1_TO_1" | "RELU6" | "RELU_0_TO_1" => {
            let x = real(cx, op, 0)?;
            let (low, high) = match op.name {
                "RELU_N1_TO_1" => (-1.0, 1.0),
                "RELU6" => (0.0, 6.0),
                _ => (0.0, 1.0),
            };
            clip(cx, op, x, low, high)
        }
        "RESHAPE" | "SQUEEZE" | "EXPAND_DIMS" => {
            // The output shape is declared in the file, with at most one dimension that may change.
            let open = op.out.open.iter().filter(|&&d| d < 0).count();
            if open > 1 {
                return op.refuse("a reshape to more than one open axis");
            }
            let inputs = [real(cx, op, 0)?, cx.ints(&op.out.open)?];
            Ok(cx.node("Reshape", &inputs, &[("allowzero", Attr::Int(i64::from(open == 0)))], &op.out.name))
        }
        "RESIZE_BILINEAR" | "RESIZE_NEAREST_NEIGHBOR" => {
            let x = cx.real(op.want(0)?, &TO_FIRST)?;
            resize(cx, op, x)
        }
        "SOFTMAX" => {
            let mut x = real(cx, op, 0)?;
            let beta = op.float(0)?;
            if beta != 1.0 {
                let beta = cx.float(beta)?;
                x = cx.node("Mul", &[x, beta], &[], &op.out.name);
            }
            Ok(cx.node("Softmax", &[x], &[("axis", Attr::Int(-1))], &op.out.name))
        }
        "PAD" | "PADV2" => pad(cx, op),
        "TRANSPOSE" => {
            let perm = known(cx, op, 1)?;
            let x = real(cx, op, 0)?;
            Ok(cx.node("Transpose", &[x], &[("perm", Attr::Ints(perm))], &op.out.name))
        }
        "MEAN" | "SUM" | "REDUCE_PROD" | "REDUCE_MAX" | "REDUCE_MIN" => {
            let kind = match op.name {
                "MEAN" => "ReduceMean",
                "SUM" => "ReduceSum",
                "REDUCE_PROD" => "ReduceProd",
                "REDUCE_MAX" => "ReduceMax",
                _ => "ReduceMin",
            };
            let axes = known(cx, op, 1)?;
            let inputs = [real(cx, op, 0)?, cx.ints(&axes)?];
            let keep = i64::from(op.bool(0)?);
            Ok(cx.node(kind, &inputs, &[("keepdims", Attr::Int(keep))], &op.out.name))
        }
        "LEAKY_RELU" => {
            let x = real(cx, op, 0)?;
            let alpha = op.float(0)?;
            Ok(cx.node("LeakyRelu", &[x], &[("alpha", Attr::Float(alpha))], &op.out.name))
        }
        "LOG_SOFTMAX" => {
            let x = real(cx, op, 0)?;
            Ok(cx.node("LogSoftmax", &[x], &[("axis", Attr::Int(-1))], &op.out.name))
        }
        "CAST" => {
            // A cast converts the codes of a quantised tensor, not its dequantised values.
            let x = cx.stored(op.want(0)?)?;
            // f16 results are cast from f32 when they are stored.
            let to = if op.out.kind == 1 { 1 } else { op.out.elem()? };
            Ok(cx.node("Cast", &[x], &[("to", Attr::Int(i64::from(to)))], &op.out.name))
        }
        "ARG_MAX" | "ARG_MIN" => {
            let &[axis] = &known(cx, op, 1)?[..] else { return op.refuse("more than one axis") };
            let x = real(cx, op, 0)?;
            let kind = if op.name == "ARG_MAX" { "ArgMax" } else { "ArgMin" };
            let y = cx.node(kind, &[x], &[("axis", Attr::Int(axis)), ("keepdims", Attr::Int(0))], &op.out.name);
            Ok(cx.node("Cast", &[y], &[("to", Attr::Int(i64::from(op.out.elem()?)))], &op.out.name))
        }
        "RSQRT" => {
            let x = real(cx, op, 0)?;
            let root = cx.node("Sqrt", &[x], &[], &op.out.name);
            Ok(cx.node("Reciprocal", &[root], &[], &op.out.name))
        }
        "SQUARE" => {
            let x = real(cx, op, 0)?;
            Ok(cx.node("Mul", &[x.clone(), x], &[], &op.out.name))
        }
        "SQUARED_DIFFERENCE" => {
            let inputs = [real(cx, op, 0)?, real(cx, op, 1)?];
            let d = cx.node("Sub", &inputs, &[], &op.out.name);
            Ok(cx.node("Mul", &[d.clone(), d], &[], &op.out.name))
        }
        "FLOOR_DIV" | "FLOOR_MOD" => floor_division(cx, op),
        "BATCH_MATMUL" => {
            let mut sides = Vec::new();
            for side in 0..2 {
                let x = op.want(side)?;
                let rank = cx.tensor(x as i32)?.shape.len();
                let mut order: Vec<usize> = (0..rank).collect();
                match op.bool(side)? {
                    true if rank < 2 => return op.refuse("a product of vectors"),
                    true => order.swap(rank - 2, rank - 1),
                    false => order.clear(),
                }
                sides.push(cx.real(x, &order)?);
            }
            Ok(cx.node("MatMul", &sides, &[], &op.out.name))
        }
        "GELU" => {
            let x = real(cx, op, 0)?;
            let how = if op.bool(0)? { "tanh" } else { "none" };
            Ok(cx.node("Gelu", &[x], &[("approximate", Attr::Text(how))], &op.out.name))
        }
        // Dequantise and Quantize: reading and writing the tensors does all of it.
        "DEQUANTIZE" | "QUANTIZE" => real(cx, op, 0),
        "TRANSPOSE_CONV" => transpose_conv(cx, op),
        _ => op.refuse(format!("operator {} of TensorFlow Lite with {} outputs", op.name, op.outputs.len())),
    }
}

/// The ONNX operator of a comparison or logical operator, and whether its result must be inverted.
fn comparison(operator: &str) -> Option<(&'static str, bool)> {
    Some(match operator {
        "LESS" => ("Less", false),
        "GREATER" => ("Greater", false),
        "GREATER_EQUAL" => ("GreaterOrEqual", false),
        "LESS_EQUAL" => ("LessOrEqual", false),
        "EQUAL" => ("Equal", false),
        "NOT_EQUAL" => ("Equal", true),
        "LOGICAL_OR" => ("Or", false),
        "LOGICAL_AND" => ("And", false),
        _ => return None,
    })
}

/// Quotient or remainder of a division that rounds towards minus infinity.
fn floor_division(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let (x, y) = (real(cx, op, 0)?, real(cx, op, 1)?);
    let name = &op.out.name;
    // All other types are floats here.
    if !matches!(op.out.kind, 2 | 4) {
        if op.name == "FLOOR_DIV" {
            let q = cx.node("Div", &[x, y], &[], name);
            return Ok(cx.node("Floor", &[q], &[], name));
        }
        // The remainder as of C's fmod, with the dividend's sign.
        let rest = cx.node("Mod", &[x, y.clone()], &[("fmod", Attr::Int(1))], name);
        let signs = [&rest, &y].map(|v| cx.node("Sign", std::slice::from_ref(v), &[], name));
        let zero = cx.constant(1, &[], &0f32.to_le_bytes())?;
        let product = cx.node("Mul", &signs, &[], name);
        let apart = cx.node("Less", &[product, zero], &[], name);
        let other = cx.node("Add", &[rest.clone(), y], &[], name);
        return Ok(cx.node("Where", &[apart, other, rest], &[], name));
    }
    let rest = cx.node("Mod", &[x.clone(), y.clone()], &[], name);
    if op.name == "FLOOR_MOD" {
        return Ok(rest);
    }
    let whole = cx.node("Sub", &[x, rest], &[], name);
    Ok(cx.node("Div", &[whole, y], &[], name))
}

/// The ONNX operators for operators with one input and no options.
fn unary(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "FLOOR" => "Floor",
        "LOGISTIC" => "Sigmoid",
        "RELU" => "Relu",
        "TANH" => "Tanh",
        "EXP" => "Exp",
        "NEG" => "Neg",
        "SIN" => "Sin",
        "LOG" => "Log",
        "SQRT" => "Sqrt",
        "LOGICAL_NOT" => "Not",
        "ABS" => "Abs",
        "CEIL" => "Ceil",
        "COS" => "Cos",
        "ELU" => "Elu",
        "ROUND" => "Round",
        "HARD_SWISH" => "HardSwish",
        "SIGN" => "Sign",
        _ => return None,
    })
}

fn padding(op: &Op<'_>) -> Result<Attr<'static>> {
    match op.byte(0)? {
        0 => Ok(Attr::Text("SAME_UPPER")),
        1 => Ok(Attr::Text("VALID")),
        other => op.refuse(format!("padding {other}")),
    }
}

/// Transposes back to channels last.
pub(super) fn last(cx: &mut Cx<'_>, op: &Op<'_>, x: String) -> String {
    cx.node("Transpose", &[x], &[("perm", Attr::Ints(TO_LAST.to_vec()))], &op.out.name)
}

fn rank_four(cx: &Cx<'_>, op: &Op<'_>, i: usize) -> Result<[usize; 4]> {
    let t = cx.tensor(op.want(i)? as i32)?;
    let wrong = || Error::format("tflite", format!("`{}` has the shape {:?}, not four axes", t.name, t.shape), None);
    <[usize; 4]>::try_from(&t.shape[..]).ok().filter(|s| !s.contains(&0)).ok_or_else(wrong)
}

fn conv(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let ([_, _, _, channels], weight) = (rank_four(cx, op, 0)?, rank_four(cx, op, 1)?);
    let deep = op.name == "DEPTHWISE_CONV_2D";
    // `[o, h, w, i]` or (depthwise) `[1, h, w, o]` -> `[o, i / groups, h, w]`
    let order = if deep { [3, 0, 1, 2] } else { [0, 3, 1, 2] };
    let groups = if deep { channels } else { channels / weight[3].min(channels) };
    let mut inputs = vec![cx.real(op.want(0)?, &TO_FIRST)?, cx.real(op.want(1)?, &order)?];
    if let Some(bias) = op.input(2) {
        inputs.push(cx.real(bias, &[])?);
    }
    let (activation, wide, high) = if deep { (4, 5, 6) } else { (3, 4, 5) };
    let attrs = [
        ("auto_pad", padding(op)?),
        ("strides", Attr::Ints(vec![op.int(2, 0)?, op.int(1, 0)?])),
        ("dilations", Attr::Ints(vec![op.int(high, 1)?, op.int(wide, 1)?])),
        ("group", Attr::Int(groups as i64)),
    ];
    let y = cx.node("Conv", &inputs, &attrs, &op.out.name);
    let y = activate(cx, op, y, activation)?;
    Ok(last(cx, op, y))
}

fn pool(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let x = cx.real(op.want(0)?, &TO_FIRST)?;
    let attrs = [
        ("auto_pad", padding(op)?),
        ("strides", Attr::Ints(vec![op.int(2, 0)?, op.int(1, 0)?])),
        ("kernel_shape", Attr::Ints(vec![op.int(4, 0)?, op.int(3, 0)?])),
    ];
    let y = cx.node(if op.name == "AVERAGE_POOL_2D" { "AveragePool" } else { "MaxPool" }, &[x], &attrs, &op.out.name);
    let y = activate(cx, op, y, 5)?;
    Ok(last(cx, op, y))
}

/// A transposed convolution of input `x` with weights `w`, `[o, h, w, i]`, to the size of the output tensor.
fn conv_back(
    cx: &mut Cx<'_>,
    op: &Op<'_>,
    x: usize,
    w: usize,
    bias: Option<usize>,
    stride: [i64; 2],
) -> Result<String> {
    let ([_, h, wide, _], [_, kh, kw, _]) = (rank_four(cx, op, x)?, rank_four(cx, op, w)?);
    let &[_, oh, ow, _] = &op.out.shape[..] else { return op.refuse("a transposed convolution of another rank") };
    let (mut before, mut after, mut more) = (vec![], vec![], vec![]);
    for (n, k, s, out) in [(h, kh, stride[0], oh), (wide, kw, stride[1], ow)] {
        let full = (n as i64 - 1).checked_mul(s).and_then(|v| v.checked_add(k as i64));
        let Some(cut) = full.and_then(|f| f.checked_sub(out as i64)) else { return op.refuse("such a stride") };
        before.push(cut.max(0) / 2);
        after.push(cut.max(0) - cut.max(0) / 2);
        more.push((-cut).max(0));
    }
    let mut inputs = vec![cx.real(op.want(x)?, &TO_FIRST)?, cx.real(op.want(w)?, &[3, 0, 1, 2])?];
    if let Some(bias) = bias {
        inputs.push(cx.real(bias, &[])?);
    }
    before.extend(after);
    let attrs =
        [("strides", Attr::Ints(stride.to_vec())), ("pads", Attr::Ints(before)), ("output_padding", Attr::Ints(more))];
    Ok(cx.node("ConvTranspose", &inputs, &attrs, &op.out.name))
}

fn transpose_conv(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let y = conv_back(cx, op, 2, 1, op.input(3), [op.int(2, 0)?, op.int(1, 0)?])?;
    let y = activate(cx, op, y, 3)?;
    Ok(last(cx, op, y))
}

/// MediaPipe's custom operator. Its options are three 32-bit integers: padding, stride of columns, stride of rows.
fn transpose_conv_bias(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<()> {
    let value = |i: usize| op.custom.get(4 * i..4 * i + 4).and_then(|b| b.try_into().ok()).map(i32::from_le_bytes);
    let (Some(wide), Some(high)) = (value(1), value(2)) else { return op.refuse("custom options of this length") };
    let y = conv_back(cx, op, 0, 1, op.input(2), [i64::from(high), i64::from(wide)])?;
    let y = last(cx, op, y);
    cx.set(op.out.index, y)
}

fn fully_connected(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let weight = cx.tensor(op.want(1)? as i32)?;
    let &[_, depth] = &weight.shape[..] else { return op.refuse(format!("weights of shape {:?}", weight.shape)) };
    if op.byte(1)? != 0 {
        return op.refuse("shuffled weights");
    }
    let rows = cx.ints(&[-1, depth as i64])?;
    let x = real(cx, op, 0)?;
    let x = cx.node("Reshape", &[x, rows], &[], &op.out.name);
    let mut inputs = vec![x, real(cx, op, 1)?];
    if let Some(bias) = op.input(2) {
        inputs.push(cx.real(bias, &[])?);
    }
    let mut y = cx.node("Gemm", &inputs, &[("transB", Attr::Int(1))], &op.out.name);
    if op.out.shape.len() != 2 {
        let shape = cx.ints(&op.out.open)?;
        y = cx.node("Reshape", &[y, shape], &[], &op.out.name);
    }
    activate(cx, op, y, 0)
}

/// Bilinear resizing of codes, as TensorFlow Lite computes it. With weights such as 1/2 an interpolated code is often
/// exactly half-way between two codes, and is then rounded away from zero. Interpolating dequantised values would round
/// such ties arbitrarily.
fn resized_codes(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<Option<String>> {
    if op.name != "RESIZE_BILINEAR" {
        return Ok(None);
    }
    let (index, out) = (op.want(0)?, &op.out);
    let from = cx.tensor(index as i32)?.clone();
    let same = (from.kind, &from.scale, &from.zero) == (out.kind, &out.scale, &out.zero);
    if !from.is_quantised() || !same || from.scale.len() != 4 || !matches!(from.kind, 3 | 7 | 9) {
        return Ok(None);
    }
    let name = &out.name;
    let codes = cx.stored(index)?;
    let x = cx.node("Cast", &[codes], &[("to", Attr::Int(1))], name);
    let order = TO_FIRST.iter().map(|&a| a as i64).collect();
    let x = cx.node("Transpose", &[x], &[("perm", Attr::Ints(order))], name);
    let y = resize(cx, op, x)?;
    let (sign, size, half) =
        (cx.node("Sign", std::slice::from_ref(&y), &[], name), cx.node("Abs", &[y], &[], name), cx.float(0.5)?);
    let size = cx.node("Add", &[size, half], &[], name);
    let size = cx.node("Floor", &[size], &[], name);
    let whole = cx.node("Mul", &[sign, size], &[], name);
    Ok(Some(cx.node("Cast", &[whole], &[("to", Attr::Int(i64::from(out.elem()?)))], name)))
}

/// Resizes `x`, which has channels first; the result has channels last.
fn resize(cx: &mut Cx<'_>, op: &Op<'_>, x: String) -> Result<String> {
    let linear = op.name == "RESIZE_BILINEAR";
    // The schema keeps the slots of two deprecated fields.
    let first = if linear { 2 } else { 0 };
    let (corners, half) = (op.bool(first)?, op.bool(first + 1)?);
    let (coordinates, nearest) = match (corners, half) {
        (true, _) => ("align_corners", "round_prefer_ceil"),
        (_, true) => ("half_pixel", "round_prefer_ceil"),
        _ => ("asymmetric", "floor"),
    };
    let sizes = known(cx, op, 1)?;
    let inputs = [x, String::new(), String::new(), cx.ints(&sizes)?];
    let attrs = [
        ("mode", Attr::Text(if linear { "linear" } else { "nearest" })),
        ("coordinate_transformation_mode", Attr::Text(coordinates)),
        ("nearest_mode", Attr::Text(nearest)),
        ("axes", Attr::Ints(vec![2, 3])),
    ];
    let y = cx.node("Resize", &inputs, &attrs, &op.out.name);
    Ok(last(cx, op, y))
}

fn pad(cx: &mut Cx<'_>, op: &Op<'_>) -> Result<String> {
    let pairs = known(cx, op, 1)?;
    let pads: Vec<i64> = pairs.iter().step_by(2).chain(pairs.iter().skip(1).step_by(2)).copied().collect();
    let mut inputs = vec![real(cx, op, 0)?, cx.ints(&pads)?];
    if op.name == "PADV2" {
        inputs.push(real(cx, op, 2)?);
    }
    Ok(cx.node("Pad", &inputs, &[], &op.out.name))
}
