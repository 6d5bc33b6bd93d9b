//! Matrix products of several tokens in 16 bits, for devices that multiply 16-bit matrices many times as fast as f32
//! and accumulate in f32. Both factors are rounded: a block-quantised matrix is decoded to f16, once for all tokens of
//! a chunk, and the tokens' rows are rounded to the dtype of the matrix.
//!
//! An f16 row is divided by its largest element first, because f16 ends at 65504 and the activations of some models do
//! not. A bf16 has three significant digits, too few for activations: there a row is the sum of two bf16 rows, the
//! second of which is the rounding error of the first, so that products with bf16 matrices have twice the rows.

use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Whether this build contains the 16-bit products. Builds for the browser leave them out.
pub(super) const HAS_F16_PRODUCTS: bool = cfg!(any(test, feature = "integers"));

/// The least number of tokens for which 16-bit products pay: it fills the shorter side of a matrix tile. With fewer
/// tokens a product is bound by reading its matrix once, whatever the arithmetic is.
const MIN_TOKENS: usize = 8;
/// A row whose largest element is below this counts as zero, so that the inverse of that element is always
/// finite in f32.
const TINY: f64 = 1e-30;

/// Whether a product of `n` rows with a matrix of this dtype is computed in 16 bits.
pub(super) fn uses_f16_product(n: usize, weight: DType) -> bool {
    HAS_F16_PRODUCTS && n >= MIN_TOKENS && matches!(weight, DType::F16 | DType::BF16)
}

/// Whether attention of `n` queries with heads of this width is computed in 16 bits, too. On a device with fast 16-bit
/// products it is then one kernel.
pub(super) fn uses_f16_attention(n: usize, width: usize) -> bool {
    HAS_F16_PRODUCTS && n >= MIN_TOKENS && width.is_multiple_of(16) && width <= 128
}

/// Values rounded to f16, as f32.
pub(super) fn rounded(x: &Tensor) -> Result<Tensor> {
    x.cast(DType::F16)?.cast(DType::F32)
}

/// Values rounded to f16 and stored so, as f32.
pub(super) fn stored(x: &Tensor) -> Result<Tensor> {
    x.cast(DType::F16)?.contiguous().cast(DType::F32)
}

/// `x [n, k]` in f32 times the rows of `weight [m, k]` in f16 or bf16: `[n, m]` in f32.
pub(super) fn product(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let own = weight.cast(DType::F32)?;
    if weight.dtype() == DType::BF16 {
        let first = x.cast(DType::BF16)?;
        let rest = x.sub(first.cast(DType::F32)?)?.cast(DType::BF16)?;
        let both = Tensor::cat(&[&first, &rest], 0)?.contiguous();
        let y = both.cast(DType::F32)?.linear(&own, None)?.contiguous();
        let [first, rest] = [0, 1].map(|i| y.narrow(0, i * x.shape()[0], x.shape()[0]));
        return first?.add(rest?);
    }
    let largest = x.abs()?.max(&[-1], true)?;
    let turns = largest.gt(TINY)?.select(largest.reciprocal()?, 0.0)?;
    stored(&x.mul(turns)?)?.linear(&own, None)?.mul(largest)
}
