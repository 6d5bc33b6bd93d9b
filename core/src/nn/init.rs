//! Initial values of weights, by torch's names. Each function gives the tensor new values, as loading does: nothing runs
//! until they are realized.

use crate::tensor::Tensor;
use crate::util::decimal::Shown;
use crate::{Error, Result};

/// Which side of a weight the variance is kept on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fan {
    /// Of what goes forward.
    #[default]
    In,
    /// Of the gradient that goes back.
    Out,
}

/// The factor by which a nonlinearity's weights are larger than a linear map's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gain {
    /// Also for convolutions and sigmoid: 1.
    Linear,
    /// 5/3.
    Tanh,
    /// The square root of 2.
    Relu,
    /// By the slope below 0.
    LeakyRelu(f64),
    /// 3/4.
    Selu,
}

impl Gain {
    /// The number.
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

/// `(inputs, outputs)` of a weight `[out, in, kernel..]`, each times the size of the kernel.
pub fn fans(t: &Tensor) -> Result<(f64, f64)> {
    let shape = t.shape();
    let &[out, inp, ref kernel @ ..] = shape.as_slice() else {
        return Err(Error::value("init", format!("a weight of at least two axes is needed, not {shape:?}")));
    };
    let field = kernel.iter().product::<usize>() as f64;
    Ok((inp as f64 * field, out as f64 * field))
}

fn put(t: &Tensor, value: Tensor) -> Result<()> {
    t.set(&value.cast(t.want_float("init")?)?.to_storage()?)
}

/// Every element the same.
pub fn constant(t: &Tensor, value: f64) -> Result<()> {
    put(t, t.full_like(value)?)
}

/// Uniform in `[low, high)`.
pub fn uniform(t: &Tensor, low: f64, high: f64) -> Result<()> {
    put(t, Tensor::uniform(t.session(), low, high, &t.shape())?)
}

/// Normal.
pub fn normal(t: &Tensor, mean: f64, std: f64) -> Result<()> {
    put(t, Tensor::normal(t.session(), mean, std, &t.shape())?)
}

/// Normal, but never outside `[low, high]`.
pub fn trunc_normal(t: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    put(t, Tensor::trunc_normal(t.session(), mean, std, low, high, &t.shape())?)
}

/// Uniform with deviation `gain * sqrt(2 / (fan_in + fan_out))` (Glorot and Bengio).
pub fn xavier_uniform(t: &Tensor, gain: f64) -> Result<()> {
    let (i, o) = fans(t)?;
    let limit = gain * (6.0 / (i + o)).sqrt();
    uniform(t, -limit, limit)
}

/// Normal with deviation `gain * sqrt(2 / (fan_in + fan_out))`.
pub fn xavier_normal(t: &Tensor, gain: f64) -> Result<()> {
    let (i, o) = fans(t)?;
    normal(t, 0.0, gain * (2.0 / (i + o)).sqrt())
}

fn kaiming(t: &Tensor, fan: Fan, gain: Gain) -> Result<f64> {
    let (i, o) = fans(t)?;
    Ok(gain.value() / if fan == Fan::In { i } else { o }.sqrt())
}

/// Uniform with deviation `gain / sqrt(fan)` (He et al.).
pub fn kaiming_uniform(t: &Tensor, fan: Fan, gain: Gain) -> Result<()> {
    let limit = 3f64.sqrt() * kaiming(t, fan, gain)?;
    uniform(t, -limit, limit)
}

/// Normal with deviation `gain / sqrt(fan)` (He et al.).
pub fn kaiming_normal(t: &Tensor, fan: Fan, gain: Gain) -> Result<()> {
    normal(t, 0.0, kaiming(t, fan, gain)?)
}

/// Ones where both indices are the same: `[n, m]`.
pub fn eye(t: &Tensor) -> Result<()> {
    let shape = t.want_rank("init", 2)?;
    put(t, Tensor::eye(t.session(), shape[0], shape[1], t.want_float("init")?)?)
}

/// Convolutions that pass their channels on, group by group: `[out, in, kernel..]`.
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

/// Steps of the iteration towards an orthogonal matrix: the smallest singular value grows by 15/8 a step.
const POLAR_STEPS: usize = 28;

/// Rows (or columns, if there are more rows) that are orthogonal and of length `gain`, over the axes after the first taken
/// as one (Saxe et al.). The orthogonal factor of a normal matrix's polar decomposition, which is as evenly distributed as
/// torch's QR, by an iteration of products (Björck and Bowie 1971, order 5).
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
    // no singular value of such a matrix is much above sqrt(n) + sqrt(m)
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

/// Normal with a share of zeros in each column, at random places: `[n, m]`.
pub fn sparse(t: &Tensor, sparsity: f64, std: f64) -> Result<()> {
    let shape = t.want_rank("init", 2)?;
    if !(0.0..=1.0).contains(&sparsity) {
        return Err(Error::value("init", format!("sparsity {} is not in [0, 1]", Shown(sparsity))));
    }
    let zeros = (shape[0] as f64 * sparsity).ceil() as usize;
    let order = Tensor::rand_bits(t.session(), &shape)?.argsort(0, false)?.argsort(0, false)?;
    put(t, order.lt(zeros)?.select(0, Tensor::normal(t.session(), 0.0, std, &shape)?)?)
}
