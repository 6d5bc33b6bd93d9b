//! Mixtures of experts. Semantics: `MoE` and `QMoE` in ContribOperators.md of onnxruntime, as its CPU kernels compute
//! them.

use super::super::value::{Cx, Value};
use super::attention::iota_along;
use super::contrib::float_ms;
use super::elementwise::{gelu_tanh, one};
use super::packed::elements;
use super::quant::blocks_along;
use super::reduce::softmax;
use super::{Op, OpDef};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) static OPS: &[OpDef] = &[
    float_ms("MoE", 255, 0, |o| {
        o.allow_only(6, &ATTRIBUTES[4..])?;
        mixture(o, o.flag("normalize_routing_weights", false)?, [[2, 3], [4, 5]], &|v, _, _| Ok(v))
    }),
    float_ms("QMoE", 0x7c493, 0, |o| {
        o.allow_only(13, ATTRIBUTES)?;
        if (8..11).any(|i| o.opt(i).is_some()) || o.str("quant_type", "int")? != "int" {
            return o.unsupported("a third layer, or weights of another type");
        }
        // onnxruntime's CPU kernel always normalises
        mixture(o, true, [[2, 4], [5, 7]], &|w, i, part| decoded(o, w, part(i + 1)?, part(11 + i / 5)?))
    }),
];

#[rustfmt::skip]
const ATTRIBUTES: &[&str] = &[
    "expert_weight_bits", "block_size", "quant_type", "accuracy_level", "k", "use_sparse_mixer", "activation_type",
    "activation_alpha", "activation_beta", "swiglu_limit", "swiglu_fusion", "normalize_routing_weights",
];

/// Reads an input: the slices of the selected experts, or of all.
type Part<'a> = &'a dyn Fn(usize) -> Result<Option<Value>>;

/// Decodes weights `[.., out, bytes]` of a few bits, with a scale for each row or for each block of a row.
fn decoded(o: &Op<'_, '_>, w: Value, scale: Option<Value>, zero: Option<Value>) -> Result<Value> {
    let (bits, block) = (o.size(o.int("expert_weight_bits", 4)?)?, o.size(o.int("block_size", 0)?)?);
    let (Some(mut scale), true) = (scale, matches!(bits, 2 | 4 | 8) && w.dtype() == DType::U8) else {
        return o.unsupported(format!("{} weights of {bits} bits", w.dtype()));
    };
    let n = w.dim(w.nth_last(1)?)? * (8 / bits);
    let mut zero = match zero {
        Some(z) => elements(o.cx, &z, bits, scale.dim(scale.nth_last(1)?)?)?,
        None => o.cx.full(DType::U8, scale.shape(), Scalar::Int(1 << (bits - 1)))?,
    };
    for v in [&mut scale, &mut zero] {
        if v.rank() < w.rank() {
            *v = o.cx.reshape(v, &[v.shape(), &[1]].concat())?;
        }
        let blocks = v.dim(v.nth_last(1)?)?;
        if v.rank() != w.rank() || blocks == 0 || n % blocks != 0 || blocks > 1 && n / blocks != block {
            return o.fail(format!("scales or zero points {:?} in blocks of {block} of {n}", v.shape()));
        }
        *v = blocks_along(o, &o.cx.cast(v, DType::F32)?, w.nth_last(1)?, n / blocks, n)?;
    }
    let codes = o.cx.cast(&elements(o.cx, &w, bits, n)?, DType::F32)?;
    o.cx.mul(&o.cx.sub(&codes, &zero)?, &scale)
}

/// Applies two layers of the experts that each token of `[tokens, hidden]` selects, in f32. The experts' results are
/// summed with their routing weights (shares).
fn mixture(
    o: &Op<'_, '_>,
    normalised: bool,
    layers: [[usize; 2]; 2],
    weights: &dyn Fn(Value, usize, Part<'_>) -> Result<Value>,
) -> Result<Vec<Value>> {
    if o.flag("use_sparse_mixer", false)? {
        return o.unsupported("`use_sparse_mixer`");
    }
    let (x, router, k) = (o.arg(0)?, o.arg(1)?, o.size(o.int("k", 1)?)?);
    let ([.., hidden], &[tokens, experts]) = (x.shape(), router.shape()) else {
        return o.fail(format!("tokens {:?} and scores {:?}", x.shape(), router.shape()));
    };
    if k == 0 || k > experts || tokens == 0 || x.len() != tokens * hidden {
        return o.fail(format!("{k} of {experts} experts for tokens {:?}, {tokens} rows of scores", x.shape()));
    }
    let cx = &o.cx;
    let shares = softmax(cx, &cx.cast(&router, DType::F32)?, &[1])?;
    let (mut share, chosen) = cx.top_k(&shares, 1, k, true)?;
    if normalised {
        share = cx.div(&share, &cx.reduce(Tensor::sum, &share, &[1], true)?)?;
    }
    // For few tokens only the weights of the selected experts are gathered; for many tokens all experts are computed.
    let few = tokens * k <= experts;
    let part = |i: usize| match o.opt(i) {
        Some(v) if v.rank() < 2 || v.dim(0)? != experts => {
            o.fail(format!("input {i} of {:?} for {experts} experts", v.shape()))
        }
        Some(v) => if few { cx.gather(&v, &chosen, 0) } else { Ok(v) }.map(Some),
        None => Ok(None),
    };
    let layer = |[weight, bias]: [usize; 2], x: &Value| -> Result<Value> {
        let fits = |w: &Value| w.rank() == if few { 4 } else { 3 };
        let Some(w) = part(weight)?.filter(fits) else { return o.fail(format!("input {weight} has no experts")) };
        let w = weights(w, weight, &part)?;
        let w = cx.cast(&cx.swap(&w, w.nth_last(2)?, w.nth_last(1)?)?, DType::F32)?;
        let y = cx.matmul(x, &w)?;
        let Some(b) = part(bias)? else { return Ok(y) };
        let (lead, last) = b.shape().split_at(b.nth_last(1)?);
        cx.add(&y, &cx.cast(&cx.reshape(&b, &[lead, &[1], last].concat())?, DType::F32)?)
    };
    let rows = if few { vec![tokens, 1, 1, *hidden] } else { vec![tokens, *hidden] };
    let inner = layer(layers[0], &cx.cast(&cx.reshape(&x, &rows)?, DType::F32)?)?;
    let y = layer(layers[1], &activated(o, &inner)?)?;
    let y = if few {
        let share = cx.reshape(&share, &[tokens, k, 1, 1])?;
        cx.reduce(Tensor::sum, &cx.mul(&y, &share)?, &[1], false)?
    } else {
        let column = |v: &Value| cx.reshape(v, &[1, tokens, k]);
        let hit = cx.eq(&column(&chosen)?, &iota_along(cx, experts, 0, 3)?)?;
        let share = cx.select(&hit, &column(&share)?, &cx.scalar(DType::F32, 0.0))?;
        let share = cx.reduce(Tensor::sum, &share, &[2], true)?;
        // Results of experts that were not selected are replaced by 0, even if they are infinite or NaN.
        let some = cx.lt(&cx.scalar_like(&share, 0.0), &share)?;
        cx.reduce(Tensor::sum, &cx.select(&some, &cx.mul(&y, &share)?, &cx.scalar_like(&y, 0.0))?, &[0], false)?
    };
    one(cx.cast(&cx.reshape(&y, x.shape())?, x.dtype()))
}

fn activated(o: &Op<'_, '_>, x: &Value) -> Result<Value> {
    let cx = &o.cx;
    let gated = |x: &Value, alpha: f64| cx.mul(x, &cx.unary(Tensor::sigmoid, &cx.with(Cx::mul, x, alpha)?)?);
    match o.str("activation_type", "relu")?.as_str() {
        "identity" => Ok(x.clone()),
        "relu" => cx.with(Cx::max, x, 0.0),
        "gelu" => gelu_tanh(cx, x),
        "silu" => gated(x, 1.0),
        // Gates and values are interleaved.
        "swiglu" if o.int("swiglu_fusion", 0)? == 1 => {
            let (lead, n) = x.shape().split_at(x.nth_last(1)?);
            let pairs = cx.reshape(x, &[lead, &[n[0] / 2, 2]].concat())?;
            let part = |i: usize| cx.reshape(&cx.narrow(&pairs, x.rank(), i, 1)?, &[lead, &[n[0] / 2]].concat());
            let (mut gate, mut value) = (part(0)?, part(1)?);
            if let Some(limit) = o.float_opt("swiglu_limit")? {
                (gate, value) = (cx.with(Cx::min, &gate, limit)?, cx.clamp(&value, -limit, limit)?);
            }
            let value = cx.with(Cx::add, &value, o.float("activation_beta", 0.0)?)?;
            cx.mul(&gated(&gate, o.float("activation_alpha", 1.0)?)?, &value)
        }
        other => o.unsupported(format!("the activation `{other}` of fusion {}", o.int("swiglu_fusion", 0)?)),
    }
}
