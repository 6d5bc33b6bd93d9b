//! Running reductions (scans) along an axis, in linear time.

use super::{Tensor, check_axis};
use crate::Result;
use crate::uop::{Arg, Axes, Op, ReduceOp};

impl Tensor {
    /// Running sum along an axis (inclusive), with the dtypes of [`Tensor::sum`].
    pub fn cumsum(&self, axis: i64) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.scan("cumsum", ReduceOp::Add, axis)
    }

    /// Running product along an axis (inclusive), with the dtypes of [`Tensor::sum`].
    pub fn cumprod(&self, axis: i64) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.scan("cumprod", ReduceOp::Mul, axis)
    }

    /// Running maximum along an axis (inclusive).
    pub fn cummax(&self, axis: i64) -> Result<Tensor> {
        self.scan("cummax", ReduceOp::Max, axis)
    }

    /// Running minimum along an axis (inclusive).
    pub fn cummin(&self, axis: i64) -> Result<Tensor> {
        self.scan("cummin", ReduceOp::Min, axis)
    }

    fn scan(&self, name: &'static str, op: ReduceOp, axis: i64) -> Result<Tensor> {
        let a = check_axis(name, axis, self.rank().max(1))?;
        if self.rank() == 0 || self.dim(a as i64)? <= 1 || self.numel() == 0 {
            return Ok(self.clone());
        }
        Ok(self.scan_node(op, a as u8))
    }

    fn scan_node(&self, op: ReduceOp, axis: u8) -> Tensor {
        self.map(|g, u| {
            let (dt, shape) = (g.dtype(u), g.shape(u).clone());
            let u = super::spread(g, u, &shape);
            g.node(Op::Scan, dt, &[u], Arg::Reduce(op, Axes::from_slice(&[axis])))
        })
    }
}
