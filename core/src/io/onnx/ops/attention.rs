//! Attention operators of the standard domain, and those that go with them: rotary embeddings, cache updates, linear
//! attention, causal convolution.

use super::super::build::run_graph;
use super::super::value::{Cx, Value};
use super::elementwise::one;
use super::reduce::softmax;
use super::{AttrValue, Op, OpDef, float_op, op};
use crate::dtype::{DType, Scalar};
use crate::error::Result;
use crate::tensor::Tensor;
use crate::util::sorted::SortedMap;

pub(super) static OPS: &[OpDef] = &[
    float_op("Attention", 55, 0, attention_op),
    float_op("RotaryEmbedding", 7, 0, |o| {
        let (x, cos, sin) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
        let at = o.opt(3);
        one(rotary_op(o, &x, at.as_ref(), &cos, &sin))
    }),
    float_op("LinearAttention", 63, 0, linear_attention),
    float_op("CausalConvWithState", 15, 0, causal_conv),
    op("TensorScatter", 0, tensor_scatter),
    float_op("SwiGLU", 3, 0, |o| {
        let (a, b, alpha) = (o.arg(0)?, o.arg(1)?, o.float("alpha", 1.0)?);
        if a.shape() != b.shape() {
            return o.fail(format!("shapes {:?} and {:?} differ", a.shape(), b.shape()));
        }
        let gate = o.cx.unary(Tensor::sigmoid, &o.cx.with(Cx::mul, &a, alpha)?)?;
        one(o.cx.mul(&o.cx.mul(&a, &gate)?, &b))
    }),
    OpDef { domain: "ai.onnx.preview", ..float_op("FlexAttention", 7, 0, flex_attention) },
];

/// `[batch, seq, heads * size] -> [batch, heads, seq, size]`
pub(super) fn split_heads(o: &Op<'_, '_>, x: &Value, heads: usize) -> Result<Value> {
    match *x.shape() {
        [b, s, n] if heads > 0 && n % heads == 0 => {
            o.cx.permute(&o.cx.reshape(x, &[b, s, heads, n / heads])?, &[0, 2, 1, 3])
        }
        _ => o.fail(format!("{:?} does not split into {heads} heads", x.shape())),
    }
}

/// `[batch, heads, seq, size] -> [batch, seq, heads * size]`
pub(super) fn join_heads(cx: &Cx<'_>, x: &Value) -> Result<Value> {
    let (b, h, s, d) = (x.dim(0)?, x.dim(1)?, x.dim(2)?, x.dim(3)?);
    cx.reshape(&cx.permute(x, &[0, 2, 1, 3])?, &[b, s, h * d])
}

/// Repeats each key or value head of `[batch, heads, seq, size]` for the query heads that share it (grouped-query
/// attention).
pub(super) fn spread_heads(o: &Op<'_, '_>, x: &Value, heads: usize) -> Result<Value> {
    let (b, h, s, d) = (x.dim(0)?, x.dim(1)?, x.dim(2)?, x.dim(3)?);
    if h == heads {
        return Ok(x.clone());
    }
    if h == 0 || heads % h != 0 {
        return o.fail(format!("{heads} query heads share {h} key heads"));
    }
    let wide = o.cx.expand(&o.cx.reshape(x, &[b, h, 1, s, d])?, &[b, h, heads / h, s, d])?;
    o.cx.reshape(&wide, &[b, heads, s, d])
}

/// The numbers 0 .. n along one axis of a tensor of that rank; the other axes have length 1.
pub(super) fn iota_along(cx: &Cx<'_>, n: usize, axis: usize, rank: usize) -> Result<Value> {
    let mut shape = vec![1; rank];
    shape[axis] = n;
    cx.reshape(&cx.count_up(n)?, &shape)
}

/// `a <= b`
pub(super) fn less_equal(cx: &Cx<'_>, a: &Value, b: &Value) -> Result<Value> {
    cx.not(&cx.lt(b, a)?)
}

/// The conjunction of an optional mask and another one.
pub(super) fn and_mask(cx: &Cx<'_>, a: Option<Value>, b: Value) -> Result<Option<Value>> {
    Ok(Some(match a {
        None => b,
        Some(a) => cx.and(&a, &b)?,
    }))
}

/// Which keys each query may attend to, and what is added to its scores.
#[derive(Default)]
pub(super) struct Mask {
    /// Bool, true where attending is allowed; broadcasts to `[batch, heads, queries, keys]`.
    pub(super) allowed: Option<Value>,
    /// Added to the scores; same shape as `allowed`, in a float dtype.
    pub(super) bias: Option<Value>,
}

impl Mask {
    /// Restricts query `i`, at position `offset + i`, to the keys from `left` before to `right` after that position; a
    /// negative number is no limit. Causal attention has `right = 0`.
    pub(super) fn positions(
        &mut self,
        cx: &Cx<'_>,
        (queries, keys): (usize, usize),
        offset: &Value,
        (left, right): (i64, i64),
    ) -> Result<()> {
        let ahead = if cx.folds(&[offset], queries.saturating_mul(keys)) {
            let (i, j) = (iota_along(cx, queries, 2, 4)?, iota_along(cx, keys, 3, 4)?);
            cx.sub(&j, &cx.add(&i, &cx.cast(offset, DType::I64)?)?)?
        } else {
            // Index expressions of 32 bits instead of tables: loops over keys end where such a comparison says so.
            let (i, j) = (cx.indices_along(queries, 2, 4)?, cx.indices_along(keys, 3, 4)?);
            // An offset beyond these bounds allows as much as the bound.
            let least = queries as f64 + right.max(0) as f64;
            let most = keys as f64 + left.max(0) as f64;
            let offset = cx.cast(&cx.clamp(offset, -least, most)?, DType::I32)?;
            cx.sub(&j, &cx.add(&i, &offset)?)?
        };
        if right >= 0 {
            let fits = less_equal(cx, &ahead, &cx.scalar_like(&ahead, right as f64))?;
            self.allowed = and_mask(cx, self.allowed.take(), fits)?;
        }
        if left >= 0 {
            let fits = less_equal(cx, &cx.scalar_like(&ahead, -left as f64), &ahead)?;
            self.allowed = and_mask(cx, self.allowed.take(), fits)?;
        }
        Ok(())
    }

    /// Adds a mask of bools (allowed) or of numbers (added to scores).
    pub(super) fn add(&mut self, cx: &Cx<'_>, mask: &Value) -> Result<()> {
        if mask.dtype() == DType::Bool {
            self.allowed = and_mask(cx, self.allowed.take(), mask.clone())?;
            return Ok(());
        }
        self.bias = Some(match self.bias.take() {
            None => mask.clone(),
            Some(b) => cx.add(&b, mask)?,
        });
        Ok(())
    }

    /// The scores with this mask. `additive` is [`Mask::additive_mask`].
    pub(super) fn apply(&self, cx: &Cx<'_>, scores: &Value, additive: Option<&Value>) -> Result<Value> {
        let Some(additive) = additive else { return Ok(scores.clone()) };
        let Some(allowed) = self.allowed.as_ref().filter(|a| !a.is_known()) else { return cx.add(scores, additive) };
        // A computed condition selects, so that nothing behind it is read, and loops over keys can end there.
        let biased = self.bias.as_ref().map_or(Ok(scores.clone()), |b| cx.add(scores, &cx.cast(b, scores.dtype())?))?;
        cx.select(allowed, &biased, &cx.scalar(scores.dtype(), f64::NEG_INFINITY))
    }

    /// The whole mask as one addend of the scores, with -infinity where attending is not allowed.
    pub(super) fn additive_mask(&self, cx: &Cx<'_>, dtype: DType) -> Result<Option<Value>> {
        let Some(allowed) = &self.allowed else {
            return self.bias.as_ref().map(|b| cx.cast(b, dtype)).transpose();
        };
        let zero = cx.scalar(dtype, 0.0);
        let bias = self.bias.as_ref().map_or(Ok(zero), |b| cx.cast(b, dtype))?;
        cx.select(allowed, &bias, &cx.scalar(dtype, f64::NEG_INFINITY)).map(Some)
    }
}

/// Softmax of masked scores, `[batch, heads, queries, keys]`. A query that may attend to no key gets zeros (softmax
/// alone would give NaN).
pub(super) fn probabilities(cx: &Cx<'_>, scores: &Value, bias: Option<&Value>, precision: DType) -> Result<Value> {
    let last = scores.nth_last(1)?;
    let p = softmax(cx, &cx.cast(scores, precision)?, &[last])?;
    let Some(bias) = bias else { return Ok(p) };
    let top = cx.reduce(Tensor::max, bias, &[bias.nth_last(1)?], true)?;
    let blind = cx.eq(&top, &cx.scalar_like(&top, f64::NEG_INFINITY))?;
    let some = cx.host(&blind)?.is_none_or(|b| b.data.iter().any(|&b| b != 0));
    if some { cx.select(&blind, &cx.scalar_like(&p, 0.0), &p) } else { Ok(p) }
}

/// `softcap * tanh(x / softcap)`
pub(super) fn soft_cap(cx: &Cx<'_>, x: Value, cap: f64) -> Result<Value> {
    if cap <= 0.0 {
        return Ok(x);
    }
    cx.with(Cx::mul, &cx.unary(Tensor::tanh, &cx.with(Cx::div, &x, cap)?)?, cap)
}

/// The scores of `[batch, heads, seq, size]` queries and keys; each side is multiplied by the square root of `scale`,
/// as the specification has it.
fn scaled_scores(cx: &Cx<'_>, q: &Value, k: &Value, scale: f64) -> Result<Value> {
    let root = scale.sqrt();
    cx.matmul(&cx.with(Cx::mul, q, root)?, &cx.swap(&cx.with(Cx::mul, k, root)?, 2, 3)?)
}

fn attention_op(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (q, mut k, mut v) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let flat = q.rank() == 3;
    let q = if flat {
        let (hq, hk) = (o.size(o.int("q_num_heads", 0)?)?, o.size(o.int("kv_num_heads", 0)?)?);
        (k, v) = (split_heads(o, &k, hk)?, split_heads(o, &v, hk)?);
        split_heads(o, &q, hq)?
    } else {
        q
    };
    if q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || k.shape_in(..3)? != v.shape_in(..3)? || q.dtype() != k.dtype()
    {
        return o.fail(format!("queries {:?}, keys {:?}, values {:?}", q.shape(), k.shape(), v.shape()));
    }
    let past = o.opt(4).map_or(0, |p| p.shape().get(2).copied().unwrap_or(0));
    for (i, new) in [(4, &mut k), (5, &mut v)] {
        if let Some(old) = o.opt(i) {
            *new = o.cx.concat(&[old, new.clone()], 2)?;
        }
    }
    let (heads, queries, keys) = (q.dim(1)?, q.dim(2)?, k.dim(2)?);
    let scale = o.float_opt("scale")?.unwrap_or(1.0 / (q.dim(3)? as f64).sqrt());
    let (wide_k, wide_v) = (spread_heads(o, &k, heads)?, spread_heads(o, &v, heads)?);
    let mut mask = Mask::default();
    let lens = o.opt(6).map(|n| o.cx.reshape(&o.cx.cast(&n, DType::I64)?, &[n.len(), 1, 1, 1])).transpose()?;
    let offset = match &lens {
        Some(n) if o.opt(4).is_none() => o.cx.with(Cx::sub, n, queries as f64)?,
        _ => o.cx.scalar(DType::I64, past as f64),
    };
    let (left, mut right) = (o.int("left_window_size", -1)?, o.int("right_window_size", -1)?);
    if o.flag("is_causal", false)? {
        right = 0;
    }
    mask.positions(o.cx, (queries, keys), &offset, (left, right))?;
    if let Some(n) = &lens {
        let inside = o.cx.lt(&iota_along(o.cx, keys, 3, 4)?, n)?;
        mask.allowed = and_mask(o.cx, mask.allowed.take(), inside)?;
    }
    if let Some(m) = o.opt(3) {
        mask.add(o.cx, &widen_mask(o, &m, keys)?)?;
    }
    let cx = &o.cx;
    let mut scores = vec![scaled_scores(cx, &q, &wide_k, scale)?];
    scores.push(soft_cap(cx, scores[0].clone(), o.float("softcap", 0.0)?)?);
    let bias = mask.additive_mask(cx, q.dtype())?;
    scores.push(mask.apply(cx, &scores[1], bias.as_ref())?);
    let precision = o.dtype_attr("softmax_precision", q.dtype())?;
    let p = cx.cast(&probabilities(cx, &scores[2], bias.as_ref(), precision)?, q.dtype())?;
    let y = cx.matmul(&cx.cast(&p, v.dtype())?, &wide_v)?;
    scores.push(p);
    let y = if flat { join_heads(cx, &y)? } else { y };
    let Some(shown) = scores.get(o.size(o.int("qk_matmul_output_mode", 0)?)?) else {
        return o.fail("the mode of the scores' output is unknown");
    };
    Ok(vec![y, k, v, shown.clone()])
}

/// Pads a mask that is shorter than the keys; the remaining keys are masked out.
fn widen_mask(o: &Op<'_, '_>, m: &Value, keys: usize) -> Result<Value> {
    o.want_rank(m, 1)?;
    let last = m.nth_last(1)?;
    let (zero, mut after) = (vec![0; m.rank()], vec![0; m.rank()]);
    if m.dim(last)? != 1 || keys == 0 {
        after[last] = keys.saturating_sub(m.dim(last)?);
    }
    let fill = if m.dtype() == DType::Bool { Scalar::Int(0) } else { Scalar::from_f64(f64::NEG_INFINITY, m.dtype()) };
    o.cx.pad(m, &zero, &after, fill)
}

/// Attention whose scores and probabilities subgraphs of the node may modify.
fn flex_attention(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (q, k, v) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    if q.rank() != 4 || k.rank() != 4 || v.rank() != 4 {
        return o.fail("queries, keys and values of rank 4 are wanted");
    }
    let scale = o.float_opt("scale")?.unwrap_or(1.0 / (q.dim(3)? as f64).sqrt());
    let (k, v) = (spread_heads(o, &k, q.dim(1)?)?, spread_heads(o, &v, q.dim(1)?)?);
    let own = if matches!(q.dtype(), DType::F16 | DType::BF16) { DType::F32 } else { q.dtype() };
    let precision = o.dtype_attr("softmax_precision", own)?;
    let mut scores = o.cx.cast(&scaled_scores(o.cx, &q, &k, scale)?, precision)?;
    scores = modified(o, "score_mod", scores)?;
    let p = softmax(o.cx, &scores, &[3])?;
    let p = modified(o, "prob_mod", p)?;
    let y = o.cx.matmul(&p, &o.cx.cast(&v, precision)?)?;
    one(o.cx.cast(&y, v.dtype()))
}

fn modified(o: &mut Op<'_, '_>, name: &str, x: Value) -> Result<Value> {
    let node = o.node;
    let graph = node.attributes.iter().find_map(|a| match &a.value {
        AttrValue::Graph(g) if a.name == name => Some(&**g),
        _ => None,
    });
    let Some(graph) = graph else { return Ok(x) };
    let [input] = &graph.inputs[..] else { return o.fail(format!("`{name}` does not take one input")) };
    let values = crate::util::gather::<SortedMap<_, _>, _>([(input.name.clone(), x)]);
    match run_graph(o.cx, graph, o.scope, values, o.depth, o.opset)?.pop() {
        Some(y) => Ok(y),
        None => o.fail(format!("`{name}` gives nothing")),
    }
}

/// Rotates pairs of elements of `[batch, seq, heads, size]` by angles `[batch or 1, seq, size / 2]`, given as cosines
/// and sines. Elements after `2 * angles` are passed through.
pub(super) fn rotate(cx: &Cx<'_>, x: &Value, cos: &Value, sin: &Value, interleaved: bool) -> Result<Value> {
    let half = cos.dim(2)?;
    let (b, s, h) = (x.dim(0)?, x.dim(1)?, x.dim(2)?);
    let turned = cx.narrow(x, 3, 0, 2 * half)?;
    let rest = cx.narrow(x, 3, 2 * half, x.dim(3)?.saturating_sub(2 * half))?;
    let axis = if interleaved { 4 } else { 3 };
    let pairs = cx.reshape(&turned, &if interleaved { [b, s, h, half, 2] } else { [b, s, h, 2, half] })?;
    let mut flat = pairs.shape().to_vec();
    flat.remove(axis);
    let part = |i: usize| cx.reshape(&cx.narrow(&pairs, axis, i, 1)?, &flat);
    let (re, im) = (part(0)?, part(1)?);
    let angle = |v: &Value| cx.reshape(&cx.cast(v, x.dtype())?, &[v.dim(0)?, s, 1, half]);
    let (cos, sin) = (angle(cos)?, angle(sin)?);
    let real = cx.sub(&cx.mul(&cos, &re)?, &cx.mul(&sin, &im)?)?;
    let imag = cx.add(&cx.mul(&sin, &re)?, &cx.mul(&cos, &im)?)?;
    flat.insert(axis, 1);
    let joined = cx.concat(&[cx.reshape(&real, &flat)?, cx.reshape(&imag, &flat)?], axis)?;
    cx.concat(&[cx.reshape(&joined, &[b, s, h, 2 * half])?, rest], 3)
}

/// Rotary embedding of `[batch, heads, seq, size]` or `[batch, seq, heads * size]`.
pub(super) fn rotary_op(o: &Op<'_, '_>, x: &Value, at: Option<&Value>, cos: &Value, sin: &Value) -> Result<Value> {
    let heads = o.size(o.int("num_heads", 0)?)?;
    let cx = &o.cx;
    let wide = match *x.shape() {
        [_, _, _, _] => cx.permute(x, &[0, 2, 1, 3])?,
        [b, s, n] => {
            let dim = o.size(o.int("rotary_embedding_dim", 0)?)?;
            // Without a number of heads, the tables give the size of a head.
            let size = if heads > 0 {
                n / heads
            } else if dim > 0 {
                n
            } else {
                2 * cos.shape().last().unwrap_or(&1)
            };
            if size == 0 || n % size != 0 {
                return o.fail(format!("{:?} does not split into {heads} heads", x.shape()));
            }
            cx.reshape(x, &[b, s, n / size, size])?
        }
        _ => return o.fail(format!("an input of rank 3 or 4 is wanted, not {:?}", x.shape())),
    };
    let table = |t: &Value| match at {
        Some(at) => cx.gather(t, at, 0),
        None if t.rank() == 2 => cx.reshape(t, &[1, t.dim(0)?, t.dim(1)?]),
        None => Ok(t.clone()),
    };
    let (cos, sin) = (table(cos)?, table(sin)?);
    let fits = cos.rank() == 3
        && cos.shape() == sin.shape()
        && cos.dim(1)? == wide.dim(1)?
        && 2 * cos.dim(2)? <= wide.dim(3)?;
    if !fits {
        return o.fail(format!("tables {:?} and {:?} do not fit {:?}", cos.shape(), sin.shape(), x.shape()));
    }
    let y = rotate(cx, &wide, &cos, &sin, o.flag("interleaved", false)?)?;
    if x.rank() == 4 { cx.permute(&y, &[0, 2, 1, 3]) } else { cx.reshape(&y, x.shape()) }
}

/// Linear attention: a matrix state for each head that for each token is decayed, corrected (delta rule), updated with
/// the outer product of key and value, and multiplied with the query.
fn linear_attention(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (q, k, v) = (o.arg(0)?, o.arg(1)?, o.arg(2)?);
    let (hq, hk) = (o.size(o.int("q_num_heads", 0)?)?, o.size(o.int("kv_num_heads", 0)?)?);
    let dtype = q.dtype();
    let wide = |o: &Op<'_, '_>, x: &Value, h: usize| split_heads(o, &o.cx.cast(x, DType::F32)?, h);
    let (q, k, v) = (wide(o, &q, hq)?, wide(o, &k, hk)?, wide(o, &v, hk)?);
    let (b, t, dk, dv) = (q.dim(0)?, q.dim(2)?, k.dim(3)?, v.dim(3)?);
    let rule = o.str("update_rule", "gated_delta")?;
    let (gated, delta) = (rule.starts_with("gated"), rule.ends_with("delta"));
    if !gated && !delta && rule != "linear" {
        return o.fail(format!("the rule `{rule}` is unknown"));
    }
    // `[batch, heads, seq, 1 or size]`
    let decay = match o.opt(4).filter(|_| gated) {
        Some(g) => Some(o.cx.unary(Tensor::exp, &wide(o, &g, hk)?)?),
        None if gated => return o.fail("the decay is missing"),
        None => None,
    };
    let beta = match o.opt(5).filter(|_| delta) {
        Some(x) => Some(wide(o, &x, x.shape().last().copied().unwrap_or(0))?),
        None if delta => return o.fail("beta is missing"),
        None => None,
    };
    let scale = o.float("scale", 0.0)?;
    let scale = if scale == 0.0 { 1.0 / (dk as f64).sqrt() } else { scale };
    let state_shape = [b, hk, dk, dv];
    let (mut state, kept) = match o.opt(3) {
        Some(s) if s.shape() == state_shape => (o.cx.cast(&s, DType::F32)?, s.dtype()),
        Some(s) => return o.fail(format!("a state of {:?}, not {state_shape:?}", s.shape())),
        None => (o.cx.full(DType::F32, &state_shape, Scalar::float(0.0))?, dtype),
    };
    let mut rows = Vec::with_capacity(t);
    for i in 0..t {
        o.cx.step()?;
        let cx = &o.cx;
        let at = |x: &Value| cx.narrow(x, 2, i, 1);
        // The state has a row for each key element and a column for each value element.
        let column = cx.swap(&at(&k)?, 2, 3)?;
        if let Some(g) = &decay {
            state = cx.mul(&state, &cx.swap(&at(g)?, 2, 3)?)?;
        }
        let mut value = at(&v)?;
        if let Some(beta) = &beta {
            let known = cx.reduce(Tensor::sum, &cx.mul(&state, &column)?, &[2], true)?;
            value = cx.mul(&at(beta)?, &cx.sub(&value, &known)?)?;
        }
        state = cx.add(&state, &cx.mul(&column, &value)?)?;
        let read = cx.matmul(&at(&q)?, &spread_heads(o, &state, hq)?)?;
        rows.push(cx.with(Cx::mul, &read, scale)?);
    }
    if rows.is_empty() {
        return o.unsupported("a sequence of no tokens");
    }
    let y = join_heads(o.cx, &o.cx.concat(&rows, 2)?)?;
    Ok(vec![o.cx.cast(&y, dtype)?, o.cx.cast(&state, kept)?])
}

/// A causal depthwise convolution over time. The last `taps - 1` inputs are returned as the state for the next call.
fn causal_conv(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (x, w) = (o.arg(0)?, o.arg(1)?);
    let ([b, c, _], [wc, 1, taps]) = (x.shape(), w.shape()) else {
        return o.fail(format!("input {:?} and weights {:?}", x.shape(), w.shape()));
    };
    let (b, c, taps) = (*b, *c, *taps);
    if *wc != c || taps == 0 {
        return o.fail(format!("weights {:?} do not fit {:?}", w.shape(), x.shape()));
    }
    let past = match o.opt(3) {
        Some(p) => p,
        None => o.cx.full(x.dtype(), &[b, c, taps - 1], Scalar::from_f64(0.0, x.dtype()))?,
    };
    let padded = o.cx.concat(&[past, x.clone()], 2)?;
    let win = super::super::prim::Window { kernel: vec![taps], stride: vec![1], dilation: vec![1], pads: vec![(0, 0)] };
    let mut y = o.cx.conv(&padded, &w, &win, c)?;
    if let Some(bias) = o.opt(2) {
        y = o.cx.add(&y, &o.cx.reshape(&bias, &[1, c, 1])?)?;
    }
    match o.str("activation", "none")?.as_str() {
        "none" => {}
        "silu" | "swish" => {
            let wide = o.cx.cast(&y, DType::F32)?;
            y = o.cx.cast(&o.cx.mul(&wide, &o.cx.unary(Tensor::sigmoid, &wide)?)?, x.dtype())?;
        }
        other => return o.fail(format!("the activation `{other}` is unknown")),
    }
    let n = padded.dim(2)?;
    let state = o.cx.narrow(&padded, 2, n - (taps - 1), taps - 1)?;
    Ok(vec![y, state])
}

/// Writes new rows into a cache, for each batch from its own position on.
fn tensor_scatter(o: &mut Op<'_, '_>) -> Result<Vec<Value>> {
    let (cache, update) = (o.arg(0)?, o.arg(1)?);
    let axis = o.axis(o.int("axis", -2)?, cache.rank())?;
    let (n, new) = (cache.dim(axis)?, update.shape().get(axis).copied().unwrap_or(0));
    let fits = cache.rank() == update.rank()
        && (0..cache.rank()).all(|a| a == axis || cache.extent(a) == update.extent(a))
        && axis > 0
        && (1..=n).contains(&new);
    if !fits {
        return o.fail(format!("an update of {:?} for a cache of {:?}", update.shape(), cache.shape()));
    }
    let mut lead = vec![1; cache.rank()];
    lead[0] = cache.dim(0)?;
    let cx = &o.cx;
    let first = match o.opt(2) {
        Some(w) => cx.reshape(&cx.cast(&w, DType::I64)?, &lead)?,
        None => cx.full(DType::I64, &lead, Scalar::Int(0))?,
    };
    // For each position of the cache the index of the update's row that belongs there.
    let mut from = cx.sub(&iota_along(cx, n, axis, cache.rank())?, &first)?;
    match o.str("mode", "linear")?.as_str() {
        "linear" => {}
        "circular" => {
            let turn = cx.with(Cx::rem, &from, n as f64)?;
            let below = cx.lt(&turn, &cx.scalar_like(&turn, 0.0))?;
            from = cx.select(&below, &cx.with(Cx::add, &turn, n as f64)?, &turn)?;
        }
        other => return o.fail(format!("the mode `{other}` is unknown")),
    }
    let last = cx.scalar_like(&from, (new - 1) as f64);
    let inside = cx.and(&less_equal(cx, &cx.scalar_like(&from, 0.0), &from)?, &less_equal(cx, &from, &last)?)?;
    let index = cx.expand(&cx.clamp(&from, 0.0, (new - 1) as f64)?, cache.shape())?;
    one(cx.select(&inside, &cx.gather_elements(&update, &index, axis)?, &cache))
}
