//! Initial values of weights, by the names of torch's `nn.init`. Each function makes the tensor denote new values (as
//! loading does); nothing runs until it is realized. All return `Error::DType` unless the tensor is a float.

use crate::tensor::Tensor;
use crate::util::decimal::Shown;
use crate::{Error, Result};

/// Which variance [`kaiming_uniform`] and [`kaiming_normal`] preserve through a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// That of the values in the forward pass: uses the number of inputs.
    #[default]
    In,
    /// That of the gradients in the backward pass: uses the number of outputs.
    Out,
}

/// The factor on the deviation of weights that makes up for the nonlinearity after them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// 1; for linear maps, convolutions and sigmoid.
    Linear,
    /// 5/3.
    Tanh,
    /// The square root of 2.
    Relu,
    /// `sqrt(2 / (1 + slope^2))`, for this slope below 0.
    LeakyRelu(f64),
    /// 3/4.
    Selu,
}

impl Gain {
    /// The factor.
    pub fn value(self) -> f64 {
        match self {
            Gain::Linear => 1.0,
            Gain::Tanh => 5.0 / 3.0,
            Gain::Relu => 2f64.sqrt(),
            Gain::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
            Gain::Selu => 0.75,
        }
    }
}

/// `(fan_in, fan_out)` of a weight `[out, in, kernel..]`: the channels times the elements of the kernel. `Error::Value`
/// for fewer than two axes.
pub fn fans(t: &Tensor) -> Result<(f64, f64)> {
    let shape = t.shape();
    let &[out, inp, ref kernel @ ..] = shape.as_slice() else {
        return Err(Error::value("init", format!("a weight of at least two axes is needed, not {shape:?}")));
    };
    let field = kernel.iter().product::<usize>() as f64;
    Ok((inp as f64 * field, out as f64 * field))
}

/// Makes `t` denote `value`, cast to its dtype, in new storage.
fn put(t: &Tensor, value: Tensor) -> Result<()> {
    t.set(&value.cast(t.want_float("init")?)?.to_storage()?)
}

/// The same value everywhere.
pub fn constant(t: &Tensor, value: f64) -> Result<()> {
    put(t, t.full_like(value)?)
}

/// Uniform in `[low, high)`.
pub fn uniform(t: &Tensor, low: f64, high: f64) -> Result<()> {
    put(t, Tensor::uniform(t.session(), low, high, &t.shape())?)
}

/// Normal with this mean and standard deviation.
pub fn normal(t: &Tensor, mean: f64, std: f64) -> Result<()> {
    put(t, Tensor::normal(t.session(), mean, std, &t.shape())?)
}

/// Normal, restricted to `[low, high]` (see [`Tensor::trunc_normal`] for errors).
pub fn trunc_normal(t: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    put(t, Tensor::trunc_normal(t.session(), mean, std, low, high, &t.shape())?)
}

/// Uniform with standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio).
pub fn xavier_uniform(t: &Tensor, gain: f64) -> Result<()> {
    let (i, o) = fans(t)?;
    let limit = gain * (6.0 / (i + o)).sqrt();
    uniform(t, -limit, limit)
}

/// Normal with standard deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio).
pub fn xavier_normal(t: &Tensor, gain: f64) -> Result<()> {
    let (i, o) = fans(t)?;
    normal(t, 0.0, gain * (2.0 / (i + o)).sqrt())
}

/// The standard deviation `gain / sqrt(fan)`.
fn kaiming(t: &Tensor, fan: Fan, gain: Gain) -> Result<f64> {
    let (i, o) = fans(t)?;
    Ok(gain.value() / if fan == Fan::In { i } else { o }.sqrt())
}

/// Uniform with standard deviation `gain / sqrt(fan)` (He et al.).
pub fn kaiming_uniform(t: &Tensor, fan: Fan, gain: Gain) -> Result<()> {
    let limit = 3f64.sqrt() * kaiming(t, fan, gain)?;
    uniform(t, -limit, limit)
}

/// Normal with standard deviation `gain / sqrt(fan)` (He et al.).
pub fn kaiming_normal(t: &Tensor, fan: Fan, gain: Gain) -> Result<()> {
    normal(t, 0.0, kaiming(t, fan, gain)?)
}

/// The identity matrix: `[n, m]` with ones on the main diagonal. `Error::Value` unless it is a matrix.
pub fn eye(t: &Tensor) -> Result<()> {
    let shape = t.want_rank("init", 2)?;
    put(t, Tensor::eye(t.session(), shape[0], shape[1], t.want_float("init")?)?)
}

/// The weights of a convolution that copies its input channels to its output channels, in each group:
/// `[out, in, kernel..]` with 1 to 3 kernel axes. `Error::Value` for other shapes, and where the groups do not divide
/// the outputs.
pub fn dirac(t: &Tensor, groups: usize) -> Result<()> {
    let shape = t.shape();
    let &[out, inp, ref kernel @ ..] = shape.as_slice() else {
        return Err(Error::value("init", "dirac is for the weights of convolutions"));
    };
    if groups == 0 || out % groups != 0 || !(1..=3).contains(&kernel.len()) || kernel.contains(&0) {
        return Err(Error::value("init", format!("dirac: {groups} groups of shape {shape:?}")));
    }
    let s = t.session();
    let axis = |i: usize| {
        let mut line = vec![1i64; shape.len()];
        line[i] = shape[i] as i64;
        Tensor::iota(s, shape[i])?.reshape(&line)
    };
    let mut hit = axis(0)?.modulo(out / groups)?.eq(axis(1)?)?;
    for (i, k) in kernel.iter().enumerate() {
        hit = hit.logical_and(axis(i + 2)?.eq(k / 2)?)?;
    }
    let channels = axis(1)?.lt(inp.min(out / groups))?;
    put(t, hit.logical_and(channels)?.expand(&shape)?.cast(t.want_float("init")?)?)
}

/// Steps of the iteration toward an orthogonal matrix; each multiplies a small singular value by 15/8.
const POLAR_STEPS: usize = 28;

/// An orthogonal matrix times `gain`: with all axes after the first merged, the rows (or the columns, if there are more
/// rows) are orthogonal and of length `gain` (Saxe et al.). It is the orthogonal polar factor of a matrix of normal
/// numbers, which has the same distribution as torch's QR, computed by an iteration of matrix products (Björck and
/// Bowie 1971, order 5). `Error::Value` for fewer than two axes.
pub fn orthogonal(t: &Tensor, gain: f64) -> Result<()> {
    let shape = t.shape();
    if shape.len() < 2 {
        return Err(Error::value(
            "init",
            format!("orthogonal: a weight of at least two axes is needed, not {shape:?}"),
        ));
    }
    let (rows, cols) = (shape[0], shape[1..].iter().product::<usize>());
    let (n, m) = (rows.min(cols), rows.max(cols));
    // the singular values of such a matrix are at most a little above sqrt(n) + sqrt(m)
    let limit = (n as f64).sqrt() + (m as f64).sqrt() + 3.0;
    let mut x = Tensor::randn(t.session(), &[n, m])?.mul(1.0 / limit)?.contiguous();
    for _ in 0..POLAR_STEPS {
        let a = x.matmul(&x.t()?)?.contiguous();
        let b = a.mul(-1.25)?.add(a.matmul(&a)?.mul(0.375)?)?.contiguous();
        x = x.mul(1.875)?.add(b.matmul(&x)?)?.contiguous();
    }
    let x = if rows < cols { x } else { x.t()? };
    let sizes: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    put(t, x.mul(gain)?.reshape(&sizes)?)
}

/// Normal with mean 0, and zero for a fraction `sparsity` of each column, at random positions: `[n, m]`. `Error::Value`
/// unless it is a matrix and the fraction in [0, 1].
pub fn sparse(t: &Tensor, sparsity: f64, std: f64) -> Result<()> {
    let shape = t.want_rank("init", 2)?;
    if !(0.0..=1.0).contains(&sparsity) {
        return Err(Error::value("init", format!("sparsity {} is not in [0, 1]", Shown(sparsity))));
    }
    let zeros = (shape[0] as f64 * sparsity).ceil() as usize;
    let order = Tensor::rand_bits(t.session(), &shape)?.argsort(0, false)?.argsort(0, false)?;
    put(t, order.lt(zeros)?.select(0, Tensor::normal(t.session(), 0.0, std, &shape)?)?)
}
