//! Tensor ops by name. Operands are tensors; every other argument is a number: axes, sizes, flags (0 or 1), dtypes
//! (their index in [`DType::ALL`]). The TypeScript package, the only caller, spells out all arguments.

use gradloom_core::tensor::{
    Attention, ConvOpts, ConvTransposeOpts, Interpolate, Operand, PadMode, PoolOpts, Session, Slice, Tensor,
};
use gradloom_core::{DType, Error, Result};

/// A cursor over the numeric arguments of an op.
pub(crate) struct Nums<'a> {
    left: &'a [f64],
    op: &'a str,
}

impl Nums<'_> {
    pub(crate) fn next(&mut self) -> Result<f64> {
        let (first, rest) = self.left.split_first().ok_or_else(|| bad(self.op, "an argument is missing"))?;
        self.left = rest;
        Ok(*first)
    }

    fn int(&mut self) -> Result<i64> {
        Ok(self.next()? as i64)
    }

    pub(crate) fn size(&mut self) -> Result<usize> {
        Ok(self.next()?.max(0.0) as usize)
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        Ok(self.next()? != 0.0)
    }

    fn dtype(&mut self) -> Result<DType> {
        let i = self.size()?;
        DType::ALL.get(i).copied().ok_or_else(|| bad(self.op, "there is no such dtype"))
    }

    /// All remaining numbers, as integers.
    fn ints(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.left).iter().map(|&x| x as i64).collect()
    }

    pub(crate) fn sizes(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.left).iter().map(|&x| x.max(0.0) as usize).collect()
    }

    /// The next `n` numbers.
    fn take(&mut self, n: usize) -> Result<Vec<usize>> {
        (0..n).map(|_| self.size()).collect()
    }
}

pub(crate) fn bad(op: &str, what: &str) -> Error {
    Error::value("op", format!("{op}: {what}"))
}

/// The type of a numeric operand beside a tensor. JavaScript does not distinguish integers from fractions: beside an
/// integer tensor, integers in the range of its dtype are integers; a negative exponent is not, since the result is a
/// fraction.
fn weak_operand(dtype: DType, v: f64, exponent: bool) -> Operand {
    let dtype = if dtype == DType::Bool { DType::I32 } else { dtype };
    // JavaScript represents integers exactly only up to 2^53
    let end = (1u64 << (dtype.bits() - u32::from(dtype.is_signed())).min(53)) as f64;
    let begin = if dtype.is_signed() && !exponent { -end } else { 0.0 };
    match dtype.is_int() && v.trunc() == v && (begin..end).contains(&v) {
        true => Operand::Int(v as i64),
        false => Operand::Float(v),
    }
}

/// Runs an op. Most ops give one tensor; split, sort, topk, attention and grad give several.
pub(crate) fn run(s: &Session, name: &str, x: &[Tensor], nums: &[f64]) -> Result<Vec<Tensor>> {
    let mut n = Nums { left: nums, op: name };
    let at = |i: usize| x.get(i).ok_or_else(|| bad(name, "an operand is missing"));
    if let Some(f) = find(BINARY, name) {
        let rhs = match x.get(1) {
            Some(b) => Operand::Tensor(b.clone()),
            None => weak_operand(at(0)?.dtype(), n.next()?, name == "pow"),
        };
        return Ok(vec![f(at(0)?, rhs)?]);
    }
    if let Some(f) = find(UNARY, name) {
        return Ok(vec![f(at(0)?)?]);
    }
    if let Some(f) = find(PAIR, name) {
        return Ok(vec![f(at(0)?, at(1)?)?]);
    }
    if let Some(f) = find(REDUCE, name) {
        let keep = n.flag()?;
        return Ok(vec![f(at(0)?, &n.ints(), keep)?]);
    }
    if let Some(t) = create(s, name, &mut n)? {
        return Ok(vec![t]);
    }
    let a = at(0)?;
    if let Some(out) = crate::train::run(name, x, &mut n)? {
        return Ok(out);
    }
    let several = match name {
        "split" => Some(a.split(&n.take(nums.len() - 1)?, n.int()?)?),
        "sort" => Some(pair(a.sort(n.int()?, n.flag()?)?)),
        "topk" => Some(pair(a.topk(n.size()?, n.int()?, n.flag()?)?)),
        "attention" => {
            let opts = Attention { causal: n.flag()?, mask: x.get(3), ..Attention::default() };
            Some(pair(a.attention_weighted(at(1)?, at(2)?, &opts)?))
        }
        "grad" => Some(a.grad(&x[1..].iter().collect::<Vec<_>>())?),
        _ => None,
    };
    if let Some(out) = several {
        return Ok(out);
    }
    let out = match name {
        "assign" => {
            a.assign(at(1)?)?;
            a.clone()
        }
        "assign_at" => {
            a.assign_at(n.int()?, at(1)?, at(2)?)?;
            a.clone()
        }
        "clone" => a.clone(),
        "detach" => a.detach(),
        "contiguous" => a.contiguous(),
        "cast" => a.cast(n.dtype()?)?,
        "bitcast" => a.bitcast(n.dtype()?)?,
        "reshape" => a.reshape(&n.ints())?,
        "permute" => a.permute(&n.ints())?,
        "transpose" => a.transpose(n.int()?, n.int()?)?,
        "flatten" => a.flatten(n.int()?, n.int()?)?,
        "squeeze" => a.squeeze(n.int()?)?,
        "unsqueeze" => a.unsqueeze(n.int()?)?,
        "expand" => a.expand(&n.sizes())?,
        "flip" => a.flip(&n.ints())?,
        "repeat" => a.repeat(&n.sizes())?,
        "narrow" => a.narrow(n.int()?, n.size()?, n.size()?)?,
        "pad" => {
            let mode = match n.size()? {
                1 => PadMode::Reflect,
                2 => PadMode::Replicate,
                3 => PadMode::Circular,
                _ => PadMode::Constant,
            };
            let value = n.next()?;
            let pairs: Vec<(i64, i64)> = n.ints().chunks_exact(2).map(|p| (p[0], p[1])).collect();
            a.pad(&pairs, mode, value)?
        }
        "slice" => {
            // start, end, step for each axis; NaN for an open end
            let mut slices = Vec::new();
            for c in nums.chunks_exact(3) {
                let open = |v: f64| (!v.is_nan()).then_some(v as i64);
                slices.push(Slice::step(open(c[0]), open(c[1]), c[2] as i64));
            }
            a.slice(&slices)?
        }
        "cat" => Tensor::cat(&x.iter().collect::<Vec<_>>(), n.int()?)?,
        "stack" => Tensor::stack(&x.iter().collect::<Vec<_>>(), n.int()?)?,
        "roll" => a.roll(n.int()?, n.int()?)?,
        "gather" => a.gather(n.int()?, at(1)?)?,
        "index_select" => a.index_select(n.int()?, at(1)?)?,
        "one_hot" => a.one_hot(n.size()?)?,
        "where" => a.select(at(1)?, at(2)?)?,
        "clamp" => a.clamp(weak_operand(a.dtype(), n.next()?, false), weak_operand(a.dtype(), n.next()?, false))?,
        "leaky_relu" => a.leaky_relu(n.next()?)?,
        "elu" => a.elu(n.next()?)?,
        "softplus" => a.softplus(n.next()?)?,
        "softmax" => a.softmax(n.int()?)?,
        "log_softmax" => a.log_softmax(n.int()?)?,
        "argmax" => a.argmax(n.int()?, n.flag()?)?,
        "argmin" => a.argmin(n.int()?, n.flag()?)?,
        "cumsum" => a.cumsum(n.int()?)?,
        "var" | "std" => {
            let (correction, keep) = (n.size()?, n.flag()?);
            let axes = n.ints();
            if name == "var" { a.var(&axes, correction, keep)? } else { a.std(&axes, correction, keep)? }
        }
        "linear" => a.linear(at(1)?, x.get(2))?,
        "conv" => {
            let opts = conv_opts(&mut n)?;
            a.conv(at(1)?, x.get(2), &opts)?
        }
        "conv_transpose" => {
            let rank = n.left.first().copied().unwrap_or(0.0) as usize;
            let conv = conv_opts(&mut n)?;
            let output_padding = n.take(rank)?;
            a.conv_transpose(at(1)?, x.get(2), &ConvTransposeOpts { conv, output_padding })?
        }
        "max_pool" | "avg_pool" => {
            let rank = n.size()?;
            let kernel = n.take(rank)?;
            let stride = n.take(rank)?;
            let padding = n.take(rank)?;
            let opts = PoolOpts::new(&kernel).stride(&stride).padding(&padding);
            if name == "max_pool" { a.max_pool(&opts)? } else { a.avg_pool(&opts)? }
        }
        "layer_norm" => a.layer_norm(n.size()?, x.get(1), x.get(2), n.next()?)?,
        "rms_norm" => a.rms_norm(n.size()?, x.get(1), n.next()?)?,
        "group_norm" => a.group_norm(n.size()?, x.get(1), x.get(2), n.next()?)?,
        "instance_norm" => a.instance_norm(x.get(1), x.get(2), n.next()?)?,
        "interpolate" => {
            let (linear, align) = (n.flag()?, n.flag()?);
            let how = if linear { Interpolate::Linear } else { Interpolate::Nearest };
            a.interpolate(&n.sizes(), how, align)?
        }
        // with a key (two u32) as input one plan serves every step; without a key the session's random stream is used
        "dropout" => match x.get(1) {
            Some(key) => a.dropout_with(&Tensor::rand_bits_keyed(key, 0, &a.shape())?, n.next()?)?,
            None => a.dropout(n.next()?)?,
        },
        "to_storage" => a.to_storage()?,
        "tril" => a.tril(n.int()?)?,
        "triu" => a.triu(n.int()?)?,
        "cross_entropy" => a.cross_entropy(at(1)?, None, n.next()?)?,
        _ => return Err(bad(name, "there is no such op")),
    };
    Ok(vec![out])
}

fn pair((a, b): (Tensor, Tensor)) -> Vec<Tensor> {
    vec![a, b]
}

fn conv_opts(n: &mut Nums<'_>) -> Result<ConvOpts> {
    let rank = n.size()?;
    let opts = ConvOpts::new().stride(&n.take(rank)?).padding(&n.take(rank)?);
    Ok(opts.dilation(&n.take(rank)?).groups(n.size()?))
}

fn create(s: &Session, name: &str, n: &mut Nums<'_>) -> Result<Option<Tensor>> {
    Ok(Some(match name {
        "full" => {
            let (v, dt) = (n.next()?, n.dtype()?);
            Tensor::full(s, v, dt, &n.sizes())?
        }
        "arange" => Tensor::arange(s, n.next()?, n.next()?, n.next()?, n.dtype()?)?,
        "linspace" => Tensor::linspace(s, n.next()?, n.next()?, n.size()?, DType::F32)?,
        "eye" => Tensor::eye(s, n.size()?, n.size()?, DType::F32)?,
        "rand" => Tensor::rand(s, &n.sizes())?,
        "randn" => Tensor::randn(s, &n.sizes())?,
        "uniform" => {
            let (lo, hi) = (n.next()?, n.next()?);
            Tensor::uniform(s, lo, hi, &n.sizes())?
        }
        "randint" => {
            let (lo, hi) = (n.int()? as i32, n.int()? as i32);
            Tensor::randint(s, lo, hi, &n.sizes())?
        }
        "kaiming_uniform" => {
            let a = n.next()?;
            Tensor::kaiming_uniform(s, a, &n.sizes())?
        }
        _ => return crate::train::create(s, name, n),
    }))
}

/// Ops of one signature, by name.
type Table<F> = &'static [(&'static str, F)];

fn find<F: Copy>(table: Table<F>, name: &str) -> Option<F> {
    table.iter().find(|entry| entry.0 == name).map(|entry| entry.1)
}

static UNARY: Table<fn(&Tensor) -> Result<Tensor>> = &[
    ("neg", Tensor::neg),
    ("abs", Tensor::abs),
    ("sign", Tensor::sign),
    ("floor", Tensor::floor),
    ("ceil", Tensor::ceil),
    ("round", Tensor::round),
    ("trunc", Tensor::trunc),
    ("square", Tensor::square),
    ("sqrt", Tensor::sqrt),
    ("rsqrt", Tensor::rsqrt),
    ("reciprocal", Tensor::reciprocal),
    ("exp", Tensor::exp),
    ("exp2", Tensor::exp2),
    ("log", Tensor::log),
    ("log2", Tensor::log2),
    ("sin", Tensor::sin),
    ("cos", Tensor::cos),
    ("tan", Tensor::tan),
    ("tanh", Tensor::tanh),
    ("erf", Tensor::erf),
    ("relu", Tensor::relu),
    ("relu6", Tensor::relu6),
    ("sigmoid", Tensor::sigmoid),
    ("silu", Tensor::silu),
    ("gelu", Tensor::gelu),
    ("gelu_tanh", Tensor::gelu_tanh),
    ("mish", Tensor::mish),
    ("hard_swish", Tensor::hard_swish),
    ("logical_not", Tensor::logical_not),
    ("isnan", Tensor::isnan),
    ("isinf", Tensor::isinf),
];

/// Ops on two tensors, or a tensor and a number.
static BINARY: Table<fn(&Tensor, Operand) -> Result<Tensor>> = &[
    ("add", Tensor::add),
    ("sub", Tensor::sub),
    ("mul", Tensor::mul),
    ("div", Tensor::div),
    ("mod", Tensor::modulo),
    ("floor_div", Tensor::floor_div),
    ("pow", Tensor::pow),
    ("maximum", Tensor::maximum),
    ("minimum", Tensor::minimum),
    ("lt", Tensor::lt),
    ("le", Tensor::le),
    ("gt", Tensor::gt),
    ("ge", Tensor::ge),
    ("eq", Tensor::eq),
    ("ne", Tensor::ne),
    ("logical_and", Tensor::logical_and),
    ("logical_or", Tensor::logical_or),
    ("logical_xor", Tensor::logical_xor),
];

/// Reductions over axes; the flag keeps reduced axes with length 1.
static REDUCE: Table<fn(&Tensor, &[i64], bool) -> Result<Tensor>> = &[
    ("sum", Tensor::sum),
    ("prod", Tensor::prod),
    ("max", Tensor::max),
    ("min", Tensor::min),
    ("mean", Tensor::mean),
    ("any", Tensor::any),
    ("all", Tensor::all),
    ("logsumexp", Tensor::logsumexp),
];

/// Ops on two tensors.
static PAIR: Table<fn(&Tensor, &Tensor) -> Result<Tensor>> = &[
    ("matmul", Tensor::matmul),
    ("embedding", Tensor::embedding),
    ("mse_loss", Tensor::mse_loss),
    ("l1_loss", Tensor::l1_loss),
    ("bce_with_logits", Tensor::bce_with_logits),
];
