//! Operators of the domain `com.microsoft` that exported and optimised transformers use: attention with caches, fused
//! normalisations and embeddings. Semantics: ContribOperators.md of onnxruntime.

use super::super::value::{Cx, Value};
use super::attention::{
    Mask, iota_along, join_heads, probabilities, rotary_op, rotate, soft_cap, split_heads, spread_heads,
};
use super::elementwise::{gelu_erf, gelu_tanh, one};
use super::norm::{normalized, scaled_by_rms};
use super::quant::{Side, along, real, scaled_sum, shifted};
use super::reduce::softmax;
use super::rnn::Act;
use super::{Op, OpDef};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::tensor::Tensor;

pub(super) const fn ms(name: &'static str, known: u32, build: super::Build) -> OpDef {
    float_ms(name, 0, known, build)
}

/// As [`ms`], with inputs that must be floats.
pub(super) const fn float_ms(name: &'static str, floats: u32, known: u32, build: super::Build) -> OpDef {
    OpDef { domain: "com.microsoft", ..super::float_op(name, floats, known, build) }
}

pub(super) static OPS: &[OpDef] = &[
    float_ms("Attention", 55, 0, packed_attention),
    float_ms("QAttention", 284, 0, quantized_attention),
    float_ms("MultiHeadAttention", 239, 0, multi_head),
    float_ms("GroupQueryAttention", 64903, 64, group_query),
    float_ms("RotaryEmbedding", 13, 0, |o| {
        if o.float("scale", 1.0)? != 1.0 {
            return o.unsupported("`scale`");
        }
        let (x, at, cos, sin) = (o.arg(0)?, o.arg(1)?, o.arg(2)?, o.arg(3)?);
        let seq = x.shape().get(x.rank().saturating_sub(2)).copied().unwrap_or(0);
        // A single number is the position at which the sequence starts.
        let at = if at.len() == 1 && seq != 1 {
            let run = o.cx.add(&iota_along(o.cx, seq, 1, 2)?, &o.cx.cast(&o.cx.reshape(&at, &[1, 1])?, DType::I64)?)?;
            o.cx.expand(&run, &[x.dim(0)?, seq])?
        } else {
            o.cx.expand(&o.cx.reshape(&at, &[at.len() / seq.max(1), seq])?, &[x.dim(0)?, seq])?
        };
        one(rotary_op(o, &x, Some(&at), &cos, &sin))
    }),
    float_ms("SkipLayerNormalization", 31, 0, |o| {
        let sum = skip_sum(o, 4)?;
        let (y, mean, inverse) = normalized(o.cx, &sum, sum.nth_last(1)?, o.float("epsilon", 1e-12)?)?;
        Ok(vec![affine(o, y, 2, Some(3))?, mean, inverse, sum])
    }),
    float_ms("SkipSimplifiedLayerNormalization", 15, 0, |o| {
        let sum = skip_sum(o, 3)?;
        if o.has_output(1) || o.has_output(2) {
            return o.unsupported("statistics");
        }
        let y = scaled_by_rms(o.cx, &sum, sum.nth_last(1)?, o.float("epsilon", 1e-12)?)?;
        Ok(vec![affine(o, y, 2, None)?, sum.clone(), sum.clone(), sum])
    }),
    float_ms("EmbedLayerNormalization", 124, 0, |o| embed(o, [2, 3, 4, 5, 6].map(|i| o.opt(i)), o.opt(8))),
    float_ms("QEmbedLayerNormalization", 7936, 0, |o| {
        o.allow_only(18, &["epsilon"])?;
        let mut tables = [const { None }; 5];
        for (i, table) in tables.iter_mut().enumerate() {
            if let Some(t) = o.opt(2 + i) {
                *table = Some(real(o, &t, &o.arg(8 + i)?, o.opt(13 + i).as_ref())?);
            }
        }
        embed(o, tables, None)
    }),
    float_ms("CDist", 3, 0, |o| {
        let (a, b) = (o.arg(0)?, o.arg(1)?);
        let (&[m, n], &[k, _]) = (a.shape(), b.shape()) else { return o.fail("two matrices are wanted") };
        let d = o.cx.sub(&o.cx.reshape(&a, &[m, 1, n])?, &o.cx.reshape(&b, &[1, k, n])?)?;
        let sum = o.cx.reduce(Tensor::sum, &o.cx.mul(&d, &d)?, &[2], false)?;
        match o.str("metric", "sqeuclidean")?.as_str() {
            "sqeuclidean" => Ok(vec![sum]),
            "euclidean" => one(o.cx.unary(Tensor::sqrt, &sum)),
            other => o.unsupported(format!("the metric `{other}`")),
        }
    }),
    ms("ExpandDims", 2, |o| {
        let (x, axis) = (o.arg(0)?, o.known_ints(1)?);
        let mut shape = x.shape().to_vec();
        shape.insert(o.axis(axis.first().copied().unwrap_or(0), x.rank() + 1)?, 1);
        one(o.cx.reshape(&x, &shape))
    }),
    float_ms("BiasGelu", 3, 0, |o| {
        let x = o.cx.add(&o.arg(0)?, &o.arg(1)?)?;
        one(gelu_erf(o.cx, &x))
    }),
    float_ms("FastGelu", 3, 0, |o| {
        let mut x = o.arg(0)?;
        if let Some(bias) = o.opt(1) {
            x = o.cx.add(&x, &bias)?;
        }
        one(gelu_tanh(o.cx, &x))
    }),
    float_ms("FusedMatMul", 3, 0, fused_matmul),
    float_ms("TransposeMatMul", 3, 0, fused_matmul),
];

fn fused_matmul(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let side = |i: usize, name: &str, batch: &str| -> Result<Value> {
        let mut v = o.arg(i)?;
        if o.flag(batch, false)? {
            return o.unsupported(format!("`{batch}`"));
        }
        if o.flag(name, false)? && v.rank() > 1 {
            v = o.cx.swap(&v, v.nth_last(2)?, v.nth_last(1)?)?;
        }
        Ok(v)
    };
    let (a, b) = (side(0, "transA", "transBatchA")?, side(1, "transB", "transBatchB")?);
    let (y, alpha) = (o.cx.matmul(&a, &b)?, o.float("alpha", 1.0)?);
    one(if alpha == 1.0 { Ok(y) } else { o.cx.with(Cx::mul, &y, alpha) })
}

/// input + skip + bias
fn skip_sum(o: &Op<'_, '_>, bias: usize) -> Result<Value> {
    o.want_rank(&o.arg(0)?, 1)?;
    let sum = o.cx.add(&o.arg(0)?, &o.arg(1)?)?;
    o.opt(bias).map_or(Ok(sum.clone()), |b| o.cx.add(&sum, &b))
}

fn affine(o: &Op<'_, '_>, x: Value, scale: usize, shift: Option<usize>) -> Result<Value> {
    let y = o.cx.mul(&x, &o.arg(scale)?)?;
    shift.and_then(|i| o.opt(i)).map_or(Ok(y.clone()), |b| o.cx.add(&y, &b))
}

/// The layer-normalised sum of word, position and segment embeddings. `tables` are these three, then scale and shift.
fn embed(o: &Op<'_, '_>, tables: [Option<Value>; 5], at: Option<Value>) -> Result<Vec<Value>> {
    let [Some(words), Some(places), table, Some(scale), Some(shift)] = tables else {
        return o.fail("a table is missing");
    };
    let ids = o.arg(0)?;
    let [b, s] = *ids.shape() else { return o.fail(format!("ids of {:?}, not [batch, seq]", ids.shape())) };
    let mut sum = o.cx.gather(&words, &ids, 0)?;
    let at = match at {
        Some(at) => at,
        None => iota_along(o.cx, s, 1, 2)?,
    };
    sum = o.cx.add(&sum, &o.cx.gather(&places, &at, 0)?)?;
    if let (Some(kinds), Some(table)) = (o.opt(1), table) {
        sum = o.cx.add(&sum, &o.cx.gather(&table, &kinds, 0)?)?;
    }
    let y = normalized(o.cx, &sum, 2, o.float("epsilon", 1e-12)?)?.0;
    let y = o.cx.add(&o.cx.mul(&y, &scale)?, &shift)?;
    let lens = match o.opt(7) {
        Some(mask) => o.cx.reduce(Tensor::sum, &o.cx.cast(&mask, DType::I32)?, &[1], false)?,
        None => o.cx.full(DType::I32, &[b], Scalar::Int(0))?,
    };
    Ok(vec![y, lens, sum])
}

/// Adds a padding mask in onnxruntime's forms: lengths `[batch]`, or ones and zeros `[batch, keys]` or
/// `[batch, queries, keys]`. Masked scores get `mask_filter_value` added.
fn add_padding(o: &Op<'_, '_>, mask: &mut Mask, m: &Value, (batch, keys): (usize, usize), dtype: DType) -> Result<()> {
    let cx = &o.cx;
    let shape = match *m.shape() {
        [b] if b == batch => vec![b, 1, 1, 1],
        [b, k] if k == keys => vec![b, 1, 1, k],
        [b, q, k] if k == keys => vec![b, 1, q, k],
        _ => return o.unsupported(format!("a mask of shape {:?}", m.shape())),
    };
    let m4 = cx.reshape(&cx.cast(m, DType::I64)?, &shape)?;
    let seen = if m.rank() == 1 { cx.lt(&iota_along(cx, keys, 3, 4)?, &m4)? } else { cx.cast(&m4, DType::Bool)? };
    let hidden = o.float("mask_filter_value", -10000.0)?;
    mask.add(cx, &cx.select(&seen, &cx.scalar(dtype, 0.0), &cx.scalar(dtype, hidden))?)
}

/// Queries, keys and values, `[batch, heads, seq, size]` each.
struct Heads {
    q: Value,
    k: Value,
    v: Value,
}

/// Attention with a mask: `[batch, seq, heads * size]`. A sink is an additional score, for each head or for all, that
/// takes part in the softmax without a value.
fn attend(o: &Op<'_, '_>, h: &Heads, mask: &Mask, cap: f64, sink: Option<&Value>) -> Result<Value> {
    let cx = &o.cx;
    let heads = h.q.dim(1)?;
    let (k, v) = (spread_heads(o, &h.k, heads)?, spread_heads(o, &h.v, heads)?);
    let scale = o.float("scale", 0.0)?;
    let scale = if scale == 0.0 { 1.0 / (h.q.dim(3)? as f64).sqrt() } else { scale };
    let scores = cx.with(Cx::mul, &cx.matmul(&h.q, &cx.swap(&k, 2, 3)?)?, scale)?;
    let scores = soft_cap(cx, scores, cap)?;
    let bias = mask.additive_mask(cx, scores.dtype())?;
    let masked = mask.apply(cx, &scores, bias.as_ref())?;
    let wide = if matches!(scores.dtype(), DType::F16 | DType::BF16) { DType::F32 } else { scores.dtype() };
    let p = match sink {
        None => probabilities(cx, &masked, bias.as_ref(), wide)?,
        Some(s) => {
            let mut column = masked.shape().to_vec();
            let keys = std::mem::replace(&mut column[3], 1);
            let s = cx.reshape(&cx.cast(s, masked.dtype())?, &[1, s.len(), 1, 1])?;
            let all = cx.concat(&[masked, cx.expand(&s, &column)?], 3)?;
            cx.narrow(&softmax(cx, &cx.cast(&all, wide)?, &[3])?, 3, 0, keys)?
        }
    };
    join_heads(cx, &cx.matmul(&cx.cast(&p, v.dtype())?, &v)?)
}

/// Adds a causal mask; the first query follows `past` keys.
fn causal(cx: &Cx<'_>, mask: &mut Mask, queries: usize, keys: usize, past: usize) -> Result<()> {
    let offset = cx.scalar(DType::I64, past as f64);
    mask.positions(cx, (queries, keys), &offset, (-1, 0))
}

/// Attention whose queries, keys and values are computed by one matrix product.
fn packed_attention(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let mut all = o.cx.matmul(&o.arg(0)?, &o.arg(1)?)?;
    if let Some(bias) = o.opt(2) {
        all = o.cx.add(&all, &bias)?;
    }
    attend_parts(o, &all, [o.opt(3), o.opt(4), o.opt(5)])
}

/// As [`packed_attention`], with 8-bit quantised input and weights.
fn quantized_attention(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let y = o.cx.matmul(&shifted(o, 0, 6, Side::All)?, &shifted(o, 1, 7, Side::Column)?)?;
    let (a, b) = (along(o, &o.arg(3)?, 2, Side::All)?, along(o, &o.arg(4)?, 2, Side::Column)?);
    let all = scaled_sum(o, &y, &a, &b, 2)?;
    attend_parts(o, &all, [o.opt(5), o.opt(8), None])
}

fn attend_parts(o: &mut Op<'_, '_>, all: &Value, [mask, past, bias]: [Option<Value>; 3]) -> Result<Vec<Value>> {
    for name in ["do_rotary", "past_present_share_buffer"] {
        if o.flag(name, false)? {
            return o.unsupported(format!("`{name}`"));
        }
    }
    let heads = o.size(o.int("num_heads", 0)?)?;
    let [b, s, n] = *all.shape() else { return o.fail(format!("a product of {:?}", all.shape())) };
    let sizes = match o.ints_opt("qkv_hidden_sizes")? {
        Some(v) => o.sizes(&v)?,
        None => vec![n / 3; 3],
    };
    if sizes.len() != 3 || sizes.iter().sum::<usize>() != n {
        return o.fail(format!("parts of {sizes:?} in {n}"));
    }
    let part = |i: usize| {
        let from = sizes[..i].iter().sum();
        split_heads(o, &o.cx.narrow(all, 2, from, sizes[i])?, heads)
    };
    let mut h = Heads { q: part(0)?, k: part(1)?, v: part(2)? };
    if let Some(past) = past {
        if past.rank() != 5 || past.dim(0)? != 2 {
            return o.fail(format!("a past of {:?}", past.shape()));
        }
        let half = |i: usize| o.cx.reshape(&o.cx.narrow(&past, 0, i, 1)?, past.shape_in(1..)?);
        h.k = o.cx.concat(&[half(0)?, h.k], 2)?;
        h.v = o.cx.concat(&[half(1)?, h.v], 2)?;
    }
    let keys = h.k.dim(2)?;
    let mut masks = Mask::default();
    if let Some(m) = mask {
        add_padding(o, &mut masks, &m, (b, keys), all.dtype())?;
    }
    if let Some(bias) = bias {
        masks.add(o.cx, &bias)?;
    }
    if o.flag("unidirectional", false)? {
        causal(o.cx, &mut masks, s, keys, keys - s)?;
    }
    let y = attend(o, &h, &masks, 0.0, None)?;
    if h.k.shape() != h.v.shape() {
        return Ok(vec![y]);
    }
    let stack = [&[1], h.k.shape()].concat();
    let present = o.cx.concat(&[o.cx.reshape(&h.k, &stack)?, o.cx.reshape(&h.v, &stack)?], 0)?;
    Ok(vec![y, present])
}

fn multi_head(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let heads = o.size(o.int("num_heads", 0)?)?;
    let q = o.arg(0)?;
    let (Some(k), Some(v), 3) = (o.opt(1), o.opt(2), q.rank()) else { return o.unsupported("packed inputs") };
    if o.opt(8).is_some() || o.opt(9).is_some() {
        return o.unsupported("shared caches");
    }
    let hidden = q.dim(2)?;
    let mut at = 0;
    let mut split = |x: &Value| -> Result<Value> {
        if x.rank() == 4 {
            return Ok(x.clone());
        }
        let n = *x.shape().last().unwrap_or(&0);
        at += n;
        let x = match o.opt(3) {
            Some(b) => o.cx.add(x, &o.cx.narrow(&b, 0, at - n, n)?)?,
            None => x.clone(),
        };
        split_heads(o, &x, heads)
    };
    if o.opt(3).is_some_and(|b| b.rank() != 1 || b.len() < 2 * hidden) {
        return o.fail("the bias does not fit");
    }
    let mut h = Heads { q: split(&q)?, k: split(&k)?, v: split(&v)? };
    let fresh = h.k.dim(2)?;
    for (i, new) in [(6, &mut h.k), (7, &mut h.v)] {
        if let Some(old) = o.opt(i) {
            *new = o.cx.concat(&[old, new.clone()], 2)?;
        }
    }
    let (b, s, keys) = (q.dim(0)?, q.dim(1)?, h.k.dim(2)?);
    let mut mask = Mask::default();
    if let Some(m) = o.opt(4) {
        add_padding(o, &mut mask, &m, (b, keys), q.dtype())?;
    }
    if let Some(bias) = o.opt(5) {
        mask.add(o.cx, &bias)?;
    }
    if o.flag("unidirectional", false)? {
        causal(o.cx, &mut mask, s, keys, keys - fresh)?;
    }
    let y = attend(o, &h, &mask, 0.0, None)?;
    Ok(vec![y, h.k, h.v])
}

/// Grouped-query attention of a decoder, with a cache whose valid length differs by batch: `seqlens_k` is one less than
/// the valid length after this step.
fn group_query(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (heads, kv) = (o.size(o.int("num_heads", 0)?)?, o.size(o.int("kv_num_heads", 0)?)?);
    let x = o.arg(0)?;
    let [b, s, n] = *x.shape() else { return o.fail(format!("queries of {:?}", x.shape())) };
    if o.opt(12).is_some() || o.opt(13).is_some() {
        return o.unsupported("scaled caches");
    }
    if heads == 0 || kv == 0 {
        return o.fail("num_heads or kv_num_heads is missing");
    }
    let mut h = match (o.opt(1), o.opt(2)) {
        (Some(k), Some(v)) => {
            Heads { q: split_heads(o, &x, heads)?, k: split_heads(o, &k, kv)?, v: split_heads(o, &v, kv)? }
        }
        _ => {
            let all = split_heads(o, &x, heads + 2 * kv)?;
            let part = |from: usize, n: usize| o.cx.narrow(&all, 1, from, n);
            Heads { q: part(0, heads)?, k: part(heads, kv)?, v: part(heads + kv, kv)? }
        }
    };
    let size = h.q.dim(3)?;
    if n == 0 || size == 0 {
        return o.fail("empty heads");
    }
    let total = o.size(o.known_ints(6)?.first().copied().unwrap_or(0))?;
    let keys = o.opt(3).map_or(Ok(s), |past| past.dim(2).map(|n| if n == 0 { s } else { n.max(total) }))?;
    let lens = o.arg(5)?;
    let lens = o.cx.reshape(&o.cx.cast(&lens, DType::I32)?, &[lens.len(), 1, 1, 1])?;
    // Number of cached keys before this step. The first step has none, even where a row is padded and so shorter than
    // the step.
    let before = o.cx.clamp(&o.cx.with(Cx::sub, &lens, s as f64 - 1.0)?, 0.0, keys as f64)?;
    if o.flag("do_rotary", false)? {
        let at = match o.opt(9) {
            Some(at) => at,
            None => {
                let first = o.cx.reshape(&before, &[before.len(), 1])?;
                let run = o.cx.add(&o.cx.indices_along(s, 1, 2)?, &first)?;
                o.cx.expand(&run, &[b, s])?
            }
        };
        let (cos, sin) = (o.cx.gather(&o.arg(7)?, &at, 0)?, o.cx.gather(&o.arg(8)?, &at, 0)?);
        let interleaved = o.flag("rotary_interleaved", false)?;
        for x in [&mut h.q, &mut h.k] {
            let wide = o.cx.permute(x, &[0, 2, 1, 3])?;
            *x = o.cx.permute(&rotate(o.cx, &wide, &cos, &sin, interleaved)?, &[0, 2, 1, 3])?;
        }
    }
    if let (Some(k), Some(v)) = (o.opt(3), o.opt(4)) {
        h.k = cached(o, &k, &h.k, &before, keys)?;
        h.v = cached(o, &v, &h.v, &before, keys)?;
    }
    let window = o.int("local_window_size", -1)?;
    let mut mask = Mask::default();
    let left = if window > 0 { window - 1 } else { -1 };
    mask.positions(o.cx, (s, h.k.dim(2)?), &before, (left, 0))?;
    if let Some(bias) = o.opt(10) {
        mask.add(o.cx, &bias)?;
    }
    let sink = match o.opt(11) {
        None if o.flag("smooth_softmax", false)? => Some(o.cx.scalar_like(&h.q, 0.0)),
        sink => sink,
    };
    let y = attend(o, &h, &mask, o.float("softcap", 0.0)?, sink.as_ref())?;
    Ok(vec![y, h.k, h.v])
}

/// The cache with `keys` rows, new ones written after the `before` valid rows of each batch.
fn cached(o: &Op<'_, '_>, past: &Value, new: &Value, before: &Value, keys: usize) -> Result<Value> {
    let cx = &o.cx;
    if past.rank() != 4 || (0..4).any(|a| a != 2 && past.extent(a) != new.extent(a)) {
        return o.fail(format!("a cache of {:?} for {:?}", past.shape(), new.shape()));
    }
    let (old, more) = (past.dim(2)?, new.dim(2)?);
    if old == 0 {
        return Ok(new.clone());
    }
    let Some(room) = keys.checked_sub(old) else {
        return o.fail(format!("a cache of {:?} for {keys} keys", past.shape()));
    };
    let past = cx.pad(past, &[0; 4], &[0, 0, room, 0], Scalar::from_f64(0.0, past.dtype()))?;
    let at = cx.add(&cx.indices_along(more, 2, 4)?, before)?;
    cx.scatter_slices(&past, &cx.expand(&at, new.shape())?, new, 2)
}

/// Applies the activation of a fused operator, given by name.
pub(super) fn activation(o: &Op<'_, '_>, x: &Value, name: &str, params: &[f32]) -> Result<Value> {
    let p = |i: usize, default: f64| params.get(i).map_or(default, |&v| f64::from(v));
    match name {
        "" => Ok(x.clone()),
        "Clip" => o.cx.clamp(x, p(0, f64::MIN), p(1, f64::MAX)),
        _ => {
            let at = |i: usize| params.iter().skip(i).copied().map(f64::from);
            Act::new(name, &mut at(0), &mut at(1)).run(o.cx, x)
        }
    }
}
