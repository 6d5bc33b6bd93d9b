//! Products of several tokens in 16 bits, for devices that multiply matrices of those many times as fast as of f32 and add up in f32. Both
//! factors are rounded: a matrix in blocks to f16, whose elements are made once for all tokens of a chunk, and the tokens' rows to what the
//! matrix is of.
//!
//! A row of f16 is divided by its largest element first, since f16 ends at 65504 and some models' activations do not. A bf16 has three
//! digits, too few for a row: it is the sum of two, of which the second is what the first one lacks, so that products with bf16 take
//! twice the rows.

use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Are there such products? Pages have none, and none of this.
pub(super) const BUILT: bool = cfg!(any(test, feature = "integers"));

/// Tokens that fill a tile's shorter side. Of fewer a product reads its matrix once as it is, and takes as long as that.
const LEAST: usize = 8;
/// Below it a row counts as zero: what it is divided by would have no f32 as its inverse.
const TINY: f64 = 1e-30;

/// Is the product of `n` rows made so?
pub(super) fn pays(n: usize, weight: DType) -> bool {
    BUILT && n >= LEAST && matches!(weight, DType::F16 | DType::BF16)
}

/// Is the attention of `n` queries of such a width made so too? It is one kernel then on a device that multiplies quickly so.
pub(super) fn attends(n: usize, width: usize) -> bool {
    BUILT && n >= LEAST && width.is_multiple_of(16) && width <= 128
}

/// Floats rounded to f16, as f32.
pub(super) fn rounded(x: &Tensor) -> Result<Tensor> {
    x.cast(DType::F16)?.cast(DType::F32)
}

/// The same of what is stored so.
pub(super) fn stored(x: &Tensor) -> Result<Tensor> {
    x.cast(DType::F16)?.contiguous().cast(DType::F32)
}

/// `x [n, k]`, f32, times the rows of `weight [m, k]`, of f16 or bf16: `[n, m]`, f32.
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
