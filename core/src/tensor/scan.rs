//! Running reductions along an axis, in linear time. A long axis with few others beside it goes in blocks, which threads
//! share: what comes before a block is added to it afterwards.

use super::{Tensor, check_axis};
use crate::uop::{Arg, Axes, Op, ReduceOp};
use crate::{DType, Result};

/// Longest axis that is always taken in one go.
const SHORT: usize = 256;
/// Rows that are enough to share among threads.
const ROWS: usize = 512;

impl Tensor {
    /// Running sum along an axis.
    pub fn cumsum(&self, axis: i64) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.scan("cumsum", ReduceOp::Add, axis)
    }

    /// Running product along an axis.
    pub fn cumprod(&self, axis: i64) -> Result<Tensor> {
        self.cast(self.dtype().sum_dtype())?.scan("cumprod", ReduceOp::Mul, axis)
    }

    /// Running maximum along an axis.
    pub fn cummax(&self, axis: i64) -> Result<Tensor> {
        self.scan("cummax", ReduceOp::Max, axis)
    }

    /// Running minimum along an axis.
    pub fn cummin(&self, axis: i64) -> Result<Tensor> {
        self.scan("cummin", ReduceOp::Min, axis)
    }

    fn scan(&self, name: &'static str, op: ReduceOp, axis: i64) -> Result<Tensor> {
        let a = check_axis(name, axis, self.rank().max(1))?;
        if self.rank() == 0 || self.dim(a as i64)? <= 1 || self.numel() == 0 {
            return Ok(self.clone());
        }
        let dtype = self.dtype();
        if matches!(op, ReduceOp::Add | ReduceOp::Mul) && matches!(dtype, DType::F16 | DType::BF16) {
            return self.cast(DType::F32)?.scan(name, op, axis)?.cast(dtype);
        }
        let (n, a) = (self.dim(a as i64)?, a as i64);
        let rows = self.numel() / n;
        if n <= SHORT || rows >= ROWS {
            return Ok(self.scan_node(op, a as u8));
        }
        let size = ((n as f64).sqrt() as usize).next_power_of_two();
        let blocks = n.div_ceil(size);
        let mut pad = vec![(0, 0); self.rank()];
        pad[a as usize].1 = (blocks * size - n) as i64;
        let t = self.pad(&pad, super::PadMode::Constant, 0)?.unflatten(a, &[blocks, size])?;
        let within = t.scan_node(op, a as u8 + 1);
        // what the blocks before come to
        let before = within.narrow(a + 1, size - 1, 1)?.narrow(a, 0, blocks - 1)?.scan(name, op, a)?;
        let mut shape = t.shape();
        shape[a as usize] = 1;
        shape[a as usize + 1] = 1;
        let nothing = Tensor::identity(self.session(), op, dtype, &shape);
        let before = Tensor::cat(&[&nothing, &before], a)?;
        let whole = match op {
            ReduceOp::Add => within.add(&before)?,
            ReduceOp::Mul => within.mul(&before)?,
            ReduceOp::Max => within.maximum(&before)?,
            ReduceOp::Min => within.minimum(&before)?,
        };
        whole.flatten(a, a + 1)?.narrow(a, 0, n)
    }

    fn scan_node(&self, op: ReduceOp, axis: u8) -> Tensor {
        self.map(|g, u| {
            let (dt, shape) = (g.dtype(u), g.shape(u).clone());
            let u = super::spread(g, u, &shape);
            g.node(Op::Scan, dt, &[u], Arg::Reduce(op, Axes::from_slice(&[axis])))
        })
    }
}
