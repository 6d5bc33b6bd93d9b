//! Constant folding: operators on small known values are evaluated while the graph is built.
//!
//! In: values on the host and a function of tensors. Out: the function's results, computed by the evaluator of tensor
//! graphs. So a folded value equals what a device computes from the same operands, with one exception: floats are
//! computed in f64 and rounded once at the end ([`Cx::compute`]), because the host can afford it. Sizes are limited by
//! [`Cx::fold`].

use super::value::{Cx, Value};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::io::HostTensor;
use crate::tensor::{Session, Tensor};
use crate::uop::UOp;
use crate::uop::eval::eval_tensor;

/// A primitive as a function of its operands.
pub(super) type Make<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// Evaluates the tensors that `make` returns for these operands.
pub(super) fn evaluate(
    operands: Vec<HostTensor>,
    make: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<Vec<HostTensor>> {
    let session = Session::default();
    let leaf = |t: HostTensor| Tensor::from_bytes(&session, t.dtype, &t.shape, Bytes::new(t.data));
    let made = make(&operands.into_iter().map(leaf).collect::<Result<Vec<_>>>()?)?;
    let state = session.state();
    let roots: Vec<UOp> = made.iter().map(|t| state.node(t.root())).collect();
    let mut bytes = |id: u32| state.buffer(id).and_then(|b| b.host.as_deref().map(<[u8]>::to_vec));
    let values = eval_tensor(&state.graph, &roots, &mut bytes, &|_| None);
    // Dropping a tensor locks the session, so the state must be released first.
    drop(state);
    Ok(values?.into_iter().map(|v| HostTensor { dtype: v.dtype, shape: v.shape.to_vec(), data: v.data }).collect())
}

/// Applies `make` to the operands with floats converted to `dtype`; the result is converted back to the first operand's
/// dtype.
pub(super) fn in_dtype(dtype: DType, operands: &[Tensor], make: Make<'_>) -> Result<Tensor> {
    let own = operands.first().map_or(dtype, Tensor::dtype);
    let wide = |t: &Tensor| if t.dtype().is_float() { t.cast(dtype) } else { Ok(t.clone()) };
    let out = make(&operands.iter().map(wide).collect::<Result<Vec<_>>>()?)?;
    if out.dtype() == dtype && own.is_float() { out.cast(own) } else { Ok(out) }
}

impl Cx<'_> {
    /// Applies a primitive with a result of `len` elements: folded if the operands are known and small, lazy otherwise.
    pub(super) fn apply(&self, operands: &[&Value], len: usize, make: Make<'_>) -> Result<Value> {
        self.apply_all(operands, len, &|t| Ok(vec![make(t)?]))?.pop().ok_or_else(nothing)
    }

    /// As [`Cx::apply`], with several results.
    pub(super) fn apply_all(
        &self,
        operands: &[&Value],
        len: usize,
        make: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Value>> {
        if let Some(known) = self.fold(operands, len) {
            return Ok(evaluate(known, make)?.into_iter().map(Value::known).collect());
        }
        Ok(make(&self.all_lazy(operands)?)?.into_iter().map(Value::lazy).collect())
    }

    fn all_lazy(&self, operands: &[&Value]) -> Result<Vec<Tensor>> {
        operands.iter().map(|v| self.lazy(v)).collect()
    }

    /// As [`Cx::apply`], for arithmetic that rounds more than once: where it is folded, floats are computed in f64 and rounded once.
    pub(super) fn compute(&self, operands: &[&Value], len: usize, make: Make<'_>) -> Result<Value> {
        match self.fold(operands, len) {
            Some(known) => {
                let mut made = evaluate(known, &|t| Ok(vec![in_dtype(DType::F64, t, make)?]))?;
                made.pop().map(Value::known).ok_or_else(nothing)
            }
            None => make(&self.all_lazy(operands)?).map(Value::lazy),
        }
    }
}

fn nothing() -> Error {
    Error::Internal("a primitive made nothing".to_owned())
}
