//! Recurrent layers (RNN, GRU, LSTM) as recurrences of one step. Where sequences have lengths of their own, the steps
//! are unrolled: sequences shorter than the longest keep their state once they end.

use super::super::value::{Cx, Value};
use super::contrib::float_ms;
use super::elementwise::{elu, hard_sigmoid, leaky, softplus, thresholded_relu};
use super::quant::dynamic;
use super::{Op, OpDef, attention, float_op};
use crate::dtype::{DType, Scalar};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::cell::RefCell;

pub(super) static OPS: &[OpDef] = &[
    float_op("LSTM", 239, 0, |o| recurrent(o, Kind::Lstm)),
    float_op("GRU", 47, 0, |o| recurrent(o, Kind::Gru)),
    float_op("RNN", 47, 0, |o| recurrent(o, Kind::Rnn)),
    float_ms("DynamicQuantizeLSTM", 1513, 0, |o| {
        o.allow_only(
            12,
            &["activations", "activation_alpha", "activation_beta", "clip", "direction", "hidden_size", "input_forget"],
        )?;
        // The weights of this operator are stored transposed, compared with LSTM.
        for i in [1, 2] {
            let w = o.arg(i)?;
            o.want_rank(&w, 3)?;
            if w.dtype().size() != 1 {
                return o.fail(format!("weights are bytes, not {}", w.dtype()));
            }
            o.set(i, o.cx.swap(&w, 1, 2)?);
        }
        recurrent(o, Kind::Lstm)
    }),
];

/// How many nodes one time step counts as in the build's budget: it is unrolled into some tens of operations.
const NODES_PER_STEP: usize = 64;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rnn,
    Gru,
    Lstm,
}

impl Kind {
    fn gates(self) -> usize {
        match self {
            Kind::Rnn => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Rnn => &["Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// An activation with its parameters.
pub(super) struct Act {
    name: String,
    alpha: Option<f64>,
    beta: Option<f64>,
}

impl Act {
    /// Takes the parameters that this function has from the lists, in order.
    pub(super) fn new(
        name: &str,
        alphas: &mut impl Iterator<Item = f64>,
        betas: &mut impl Iterator<Item = f64>,
    ) -> Act {
        let name = name.to_ascii_lowercase();
        let two = matches!(name.as_str(), "affine" | "scaledtanh" | "hardsigmoid");
        let one = two || matches!(name.as_str(), "leakyrelu" | "thresholdedrelu" | "elu");
        let alpha = if one { alphas.next() } else { None };
        let beta = if two { betas.next() } else { None };
        Act { name, alpha, beta }
    }

    pub(super) fn run(&self, cx: &Cx<'_>, x: &Value) -> Result<Value> {
        let (a, b) = (|d: f64| self.alpha.unwrap_or(d), |d: f64| self.beta.unwrap_or(d));
        match self.name.as_str() {
            "sigmoid" => cx.unary(Tensor::sigmoid, x),
            "tanh" => cx.unary(Tensor::tanh, x),
            "relu" => cx.with(Cx::max, x, 0.0),
            "affine" => cx.with(Cx::add, &cx.with(Cx::mul, x, a(1.0))?, b(0.0)),
            "leakyrelu" => leaky(cx, x, &cx.scalar_like(x, a(0.01))),
            "scaledtanh" => {
                let t = cx.unary(Tensor::tanh, &cx.with(Cx::mul, x, b(1.0))?)?;
                cx.with(Cx::mul, &t, a(1.0))
            }
            "hardsigmoid" => hard_sigmoid(cx, x, a(0.2), b(0.5)),
            "thresholdedrelu" => thresholded_relu(cx, x, a(1.0)),
            "elu" => elu(cx, x, a(1.0), 1.0, 1.0),
            "softplus" => softplus(cx, x),
            "softsign" => cx.div(x, &cx.with(Cx::add, &cx.unary(Tensor::abs, x)?, 1.0)?),
            other => Err(Error::Unsupported { what: format!("the activation `{other}`"), context: String::new() }),
        }
    }
}

/// A weight matrix. With scale and zero point it holds bytes, and the other factor is quantised dynamically.
struct Factor {
    w: Value,
    scale: Option<(Value, Value)>,
    /// Column ranges of `w` in use (first column, number, values), each stored contiguously: every time step reads
    /// them, and their rows are then adjacent in memory. For constant weights this copy is made once.
    columns: RefCell<Vec<(usize, usize, Value)>>,
}

impl Factor {
    /// `x` times `n` columns of the matrix from `at` on.
    fn product(&self, cx: &Cx<'_>, x: &Value, at: usize, n: usize) -> Result<Value> {
        let cut = |v: &Value| if v.len() == 1 { Ok(v.clone()) } else { cx.narrow(v, v.nth_last(1)?, at, n) };
        let Some((scale, zero)) = &self.scale else {
            let mut columns = self.columns.borrow_mut();
            if let Some((.., w)) = columns.iter().find(|c| (c.0, c.1) == (at, n)) {
                return cx.matmul(x, w);
            }
            let w = cx.stored(&cut(&self.w)?)?;
            columns.push((at, n, w.clone()));
            return cx.matmul(x, &w);
        };
        let (codes, own, middle) = dynamic(cx, x)?;
        let wide = |v: &Value, zero: &Value| cx.sub(&cx.cast(v, DType::I32)?, &cx.cast(zero, DType::I32)?);
        let y = cx.matmul(&wide(&codes, &middle)?, &wide(&cut(&self.w)?, &cut(zero)?)?)?;
        cx.mul(&cx.cast(&y, DType::F32)?, &cx.mul(&cut(scale)?, &own)?)
    }
}

/// The parameters of one direction.
struct Layer<'a> {
    kind: Kind,
    hidden: usize,
    acts: &'a [Act],
    clip: Option<f64>,
    /// Transposed recurrent weights `[hidden, gates * hidden]`.
    r: Factor,
    /// Recurrent bias `[gates * hidden]`, if any.
    rb: Option<Value>,
    /// Peephole weights `[3 * hidden]`, if any.
    peep: Option<Value>,
    linear_before_reset: bool,
    input_forget: bool,
}

impl Layer<'_> {
    fn gate(&self, cx: &Cx<'_>, v: &Value, i: usize, n: usize) -> Result<Value> {
        cx.narrow(v, v.nth_last(1)?, i * self.hidden, n * self.hidden)
    }

    fn act(&self, cx: &Cx<'_>, i: usize, v: &Value) -> Result<Value> {
        match self.clip {
            Some(c) => self.acts[i].run(cx, &cx.clamp(v, -c, c)?),
            None => self.acts[i].run(cx, v),
        }
    }

    /// One time step: `x` is the projected input `[batch, gates * hidden]`. Returns the new hidden and cell states.
    fn step(&self, cx: &Cx<'_>, x: &Value, h: &Value, c: &Value) -> Result<(Value, Value)> {
        match self.kind {
            Kind::Rnn => {
                let h = self.act(cx, 0, &cx.add(x, &self.recur(cx, h, 0, 1)?)?)?;
                Ok((h, c.clone()))
            }
            Kind::Gru => {
                let zr = cx.add(&self.gate(cx, x, 0, 2)?, &self.recur(cx, h, 0, 2)?)?;
                let zr = self.act(cx, 0, &zr)?;
                let (z, r) = (self.gate(cx, &zr, 0, 1)?, self.gate(cx, &zr, 1, 1)?);
                let past = if self.linear_before_reset {
                    cx.mul(&r, &self.recur(cx, h, 2, 1)?)?
                } else {
                    self.recur(cx, &cx.mul(&r, h)?, 2, 1)?
                };
                let n = self.act(cx, 1, &cx.add(&self.gate(cx, x, 2, 1)?, &past)?)?;
                // (1 - z) n + z h
                let h = cx.add(&n, &cx.mul(&z, &cx.sub(h, &n)?)?)?;
                Ok((h, c.clone()))
            }
            Kind::Lstm => {
                // The gates are in the order i, o, f, c.
                let all = cx.add(x, &self.recur(cx, h, 0, 4)?)?;
                let peep = |gate: Value, i: usize, c: &Value| match &self.peep {
                    Some(p) => cx.add(&gate, &cx.mul(&self.gate(cx, p, i, 1)?, c)?),
                    None => Ok(gate),
                };
                let i = self.act(cx, 0, &peep(self.gate(cx, &all, 0, 1)?, 0, c)?)?;
                let f = if self.input_forget {
                    cx.sub(&cx.scalar_like(&i, 1.0), &i)?
                } else {
                    self.act(cx, 0, &peep(self.gate(cx, &all, 2, 1)?, 2, c)?)?
                };
                let g = self.act(cx, 1, &self.gate(cx, &all, 3, 1)?)?;
                let c = cx.add(&cx.mul(&f, c)?, &cx.mul(&i, &g)?)?;
                let o = self.act(cx, 0, &peep(self.gate(cx, &all, 1, 1)?, 1, &c)?)?;
                let h = cx.mul(&o, &self.acts[2].run(cx, &c)?)?;
                Ok((h, c))
            }
        }
    }

    /// All steps: `x` is `[steps, batch, gates * hidden]`, read backwards if `reverse`. Returns the hidden states after
    /// each step, `[steps, batch, hidden]` in the order of `x`, and the last hidden and cell states.
    fn steps(&self, cx: &Cx<'_>, x: &Value, states: &[Value; 2], reverse: bool) -> Result<(Value, Vec<Value>)> {
        let turned = |x: Tensor| if reverse { x.flip(&[0]) } else { Ok(x) };
        let x = turned(cx.lazy(x)?)?;
        let kinds = if self.kind == Kind::Lstm { 2 } else { 1 };
        let initial: Vec<Tensor> = states[..kinds].iter().map(|v| cx.lazy(v)).collect::<Result<_>>()?;
        let all = Tensor::recurrence(&initial.iter().collect::<Vec<_>>(), &[&x], |states, x| {
            let at = |i: usize| Value::lazy(states[i.min(kinds - 1)].clone());
            let (h, c) = self.step(cx, &Value::lazy(x[0].clone()), &at(0), &at(1))?;
            [h, c][..kinds].iter().map(|v| cx.lazy(v)).collect()
        })?;
        let y = turned(all[0].after.clone())?;
        Ok((Value::lazy(y), all.into_iter().map(|s| Value::lazy(s.last)).collect()))
    }

    /// `h` times the recurrent weights of `n` gates from gate `at` on, plus their bias.
    fn recur(&self, cx: &Cx<'_>, h: &Value, at: usize, n: usize) -> Result<Value> {
        let y = self.r.product(cx, h, at * self.hidden, n * self.hidden)?;
        match &self.rb {
            Some(b) => cx.add(&y, &self.gate(cx, b, at, n)?),
            None => Ok(y),
        }
    }
}

fn recurrent(o: &mut Op<'_, '_>, kind: Kind) -> Result<Vec<Value>> {
    let batch_first = o.flag("layout", false)?;
    let turn = |o: &Op<'_, '_>, v: &Value| if batch_first { o.cx.swap(v, 0, 1) } else { Ok(v.clone()) };
    let (x, w, r) = (turn(o, &o.arg(0)?)?, o.arg(1)?, o.arg(2)?);
    let g = kind.gates();
    let directions: Vec<bool> = match o.str("direction", "forward")?.as_str() {
        "forward" => vec![false],
        "reverse" => vec![true],
        "bidirectional" => vec![false, true],
        other => return o.fail(format!("the direction `{other}` is unknown")),
    };
    let (n, hidden) = (directions.len(), r.shape().last().copied().unwrap_or(0));
    let &[steps, batch, input] = x.shape() else { return o.fail(format!("an input of shape {:?}", x.shape())) };
    let fits = hidden > 0
        && w.shape() == [n, g * hidden, input]
        && r.shape() == [n, g * hidden, hidden]
        && o.int_opt("hidden_size")?.is_none_or(|h| h as usize == hidden);
    if !fits {
        return o.fail(format!("weights {:?} and {:?} do not fit input {:?}", w.shape(), r.shape(), x.shape()));
    }
    // Sequence lengths `[batch, 1]`; `None` if all sequences are known to have full length.
    let lens = match o.opt(4) {
        Some(l) if l.shape() != [batch] || !l.dtype().is_int() => {
            return o.fail(format!("sequence_lens {} {:?} for {batch} sequences", l.dtype(), l.shape()));
        }
        Some(l) => match o.cx.host(&l)? {
            Some(t) if t.to_i64().iter().any(|&n| !(0..=steps as i64).contains(&n)) => {
                return o.fail(format!("sequence_lens {:?} for {steps} steps", t.to_i64()));
            }
            Some(t) if t.to_i64().iter().all(|&n| n == steps as i64) => None,
            _ => Some(o.cx.reshape(&l, &[batch, 1])?),
        },
        None => None,
    };
    let unrolled = lens.is_some() || steps * batch == 0;
    o.cx.work(if unrolled { steps } else { 1 }.saturating_mul(n * NODES_PER_STEP))?;
    // Inputs after the end of all sequences must not affect the range of dynamic quantisation.
    let x = match &lens {
        Some(l) if o.opt(8).is_some() => {
            let longest =
                o.cx.reduce(Tensor::max, &o.cx.cast(&o.cx.reshape(l, &[1, batch, 1])?, DType::I64)?, &[1], true)?;
            let read = o.cx.lt(&attention::iota_along(o.cx, steps, 0, 3)?, &longest)?;
            o.cx.select(&read, &x, &o.cx.scalar_like(&x, 0.0))?
        }
        _ => x,
    };
    // Selects `then` for sequences that are longer than `at`, and `or` for the others.
    let longer = |cx: &Cx<'_>, at: usize, then: &Value, or: &Value| match &lens {
        Some(l) => cx.select(&cx.lt(&cx.scalar_like(l, at as f64), l)?, then, or),
        None => Ok(then.clone()),
    };
    let acts = activations(o, kind, n)?;
    let zeros = o.cx.full(x.dtype(), &[n, batch, hidden], Scalar::float(0.0))?;
    let state = |o: &Op<'_, '_>, i: usize| match o.opt(i) {
        Some(v) => turn(o, &v),
        None => Ok(zeros.clone()),
    };
    let h0 = state(o, 5)?;
    let c0 = if kind == Kind::Lstm { state(o, 6)? } else { zeros.clone() };
    if h0.shape() != zeros.shape() || c0.shape() != zeros.shape() {
        return o.fail(format!("initial states {:?} and {:?}, not {:?}", h0.shape(), c0.shape(), zeros.shape()));
    }
    let (mut all, mut last_h, mut last_c) = (Vec::new(), Vec::new(), Vec::new());
    for (d, &reverse) in directions.iter().enumerate() {
        let cx = &*o.cx;
        let pick = |v: &Value| {
            let shape = v.shape_in(1..)?.to_vec();
            cx.reshape(&cx.narrow(v, 0, d, 1)?, &shape)
        };
        let gates = g * hidden;
        let (mut wb, mut rb) = (None, None);
        if let Some(b) = o.opt(3) {
            if b.shape() != [n, 2 * gates] {
                return o.fail(format!("a bias of shape {:?}", b.shape()));
            }
            let b = pick(&b)?;
            (wb, rb) = (Some(cx.narrow(&b, 0, 0, gates)?), Some(cx.narrow(&b, 0, gates, gates)?));
        }
        let factor = |v: &Value, i: usize| -> Result<Factor> {
            let w = cx.swap(&pick(v)?, 0, 1)?;
            let factor = |scale| Factor { w, scale, columns: RefCell::default() };
            let (Some(scale), Some(zero)) = (o.opt(i), o.opt(i + 1)) else { return Ok(factor(None)) };
            let own = |v: &Value| match v.len() {
                len if len == n || len == n * gates => cx.narrow(&cx.reshape(v, &[n, len / n])?, 0, d, 1),
                _ => o.fail(format!("scales or zero points {:?} for {n} directions", v.shape())),
            };
            Ok(factor(Some((own(&scale)?, own(&zero)?))))
        };
        let peep = if kind == Kind::Lstm { o.opt(7).map(|p| pick(&p)).transpose()? } else { None };
        let layer = Layer {
            kind,
            hidden,
            acts: &acts[d * kind.activations().len()..],
            clip: o.float_opt("clip")?,
            r: factor(&r, 10)?,
            rb,
            peep,
            linear_before_reset: o.flag("linear_before_reset", false)?,
            input_forget: o.flag("input_forget", false)?,
        };
        // One product projects the inputs of all steps.
        let flat = cx.reshape(&x, &[steps * batch, input])?;
        let mut proj = factor(&w, 8)?.product(cx, &flat, 0, gates)?;
        if let Some(b) = &wb {
            proj = cx.add(&proj, b)?;
        }
        let proj = cx.reshape(&proj, &[steps, batch, gates])?;
        let (mut h, mut c) = (pick(&h0)?, pick(&c0)?);
        if !unrolled {
            o.cx.step()?;
            let cx = &*o.cx;
            let (y, last) = layer.steps(cx, &proj, &[h, c], reverse)?;
            all.push(cx.reshape(&y, &[steps, 1, batch, hidden])?);
            let each = |v: &Value| cx.reshape(v, &[1, batch, hidden]);
            last_h.push(each(&last[0])?);
            last_c.push(each(last.last().unwrap_or(&last[0]))?);
            continue;
        }
        let nothing = cx.scalar_like(&x, 0.0);
        let mut outs = Vec::with_capacity(steps);
        for i in 0..steps {
            let at = if reverse { steps - 1 - i } else { i };
            let xt = o.cx.reshape(&o.cx.narrow(&proj, 0, at, 1)?, &[batch, gates])?;
            o.cx.step()?;
            let (new, cell) = layer.step(o.cx, &xt, &h, &c)?;
            outs.push(o.cx.reshape(&longer(o.cx, at, &new, &nothing)?, &[1, 1, batch, hidden])?);
            (h, c) = (longer(o.cx, at, &new, &h)?, longer(o.cx, at, &cell, &c)?);
        }
        // A sequence of length 0 ends with zeros, whatever its initial state.
        (h, c) = (longer(o.cx, 0, &h, &nothing)?, longer(o.cx, 0, &c, &nothing)?);
        if reverse {
            outs.reverse();
        }
        all.push(match outs.is_empty() {
            true => o.cx.full(x.dtype(), &[0, 1, batch, hidden], Scalar::float(0.0))?,
            false => o.cx.concat(&outs, 0)?,
        });
        last_h.push(o.cx.reshape(&h, &[1, batch, hidden])?);
        last_c.push(o.cx.reshape(&c, &[1, batch, hidden])?);
    }
    let mut y = o.cx.concat(&all, 1)?;
    if batch_first {
        y = o.cx.permute(&y, &[2, 0, 1, 3])?;
    }
    let (h, c) = (o.cx.concat(&last_h, 0)?, o.cx.concat(&last_c, 0)?);
    let mut out = vec![y, turn(o, &h)?];
    if kind == Kind::Lstm {
        out.push(turn(o, &c)?);
    }
    Ok(out)
}

fn activations(o: &Op<'_, '_>, kind: Kind, directions: usize) -> Result<Vec<Act>> {
    let names = o.strs("activations")?;
    let names: Vec<String> = if names.is_empty() {
        let default = kind.activations().iter().map(|s| (*s).to_owned());
        std::iter::repeat_n(default.collect::<Vec<_>>(), directions).flatten().collect()
    } else {
        names
    };
    if names.len() != directions * kind.activations().len() {
        return o.fail(format!("{} activations for {directions} directions", names.len()));
    }
    let list = |name: &str| -> Result<_> { Ok(o.floats_opt(name)?.unwrap_or_default().into_iter().map(f64::from)) };
    let (mut alphas, mut betas) = (list("activation_alpha")?, list("activation_beta")?);
    Ok(names.iter().map(|name| Act::new(name, &mut alphas, &mut betas)).collect())
}
