//! Rows of the table: random numbers. All are drawn from the session's stream, so that its seed determines them.

use super::*;

ops! {
    "rand_like" (input: Tensor) in_dtype_of(&input, input.rand_like()?);
    "randn_like" (input: Tensor) in_dtype_of(&input, input.randn_like()?);
    "cauchy" (input: Tensor, median: f64 = 0.0, sigma: f64 = 1.0)
        in_dtype_of(&input, Tensor::cauchy(input.session(), median, sigma, &input.shape())?);
    "log_normal" (input: Tensor, mean: f64 = 1.0, std: f64 = 2.0)
        in_dtype_of(&input, Tensor::log_normal(input.session(), mean, std, &input.shape())?);
    "geometric" (input: Tensor, p: f64) in_dtype_of(&input, Tensor::geometric(input.session(), p, &input.shape())?);
    "normal" (s: Session, mean: Operand, std: Operand, size: Option<Vec<usize>>) {
        let (mean, std) = (tensor(&s, mean)?, tensor(&s, std)?);
        let shape = size.map_or_else(|| Ok(mean.broadcast_with(&std)?.0.shape()), Ok)?;
        Tensor::randn(&s, &shape)?.mul(std)?.add(mean)
    };
    // torch.distributions
    "distributions.gumbel" (s: Session, loc: f64, scale: f64, size: Vec<usize>) Tensor::gumbel(&s, &size)?.mul(scale)?.add(loc);
    "distributions.laplace" (s: Session, loc: f64, scale: f64, size: Vec<usize>) Tensor::laplace(&s, loc, scale, &size);
}

/// The drawn numbers, cast to the dtype of `input` if that is a float.
fn in_dtype_of(input: &Tensor, drawn: Tensor) -> Result<Tensor> {
    if input.dtype().is_float() { drawn.cast(input.dtype()) } else { Ok(drawn) }
}
