//! Running reductions along an axis. Element i reduces a masked copy of elements 0..=i; long axes go in blocks, so the work
//! per element is about twice the square root of the length.

use super::{Tensor, check_axis};
use crate::Result;
use crate::uop::ReduceOp;

/// Longest axis scanned in one block.
const BLOCK: usize = 256;

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
        let a = check_axis(name, axis, self.rank().max(1))? as i64;
        if self.rank() == 0 {
            return Ok(self.clone());
        }
        let t = self.move_axis(a, -1)?;
        let n = t.dim(-1)?;
        if n <= 1 {
            return Ok(self.clone());
        }
        t.scan_last(op, false)?.move_axis(-1, a)
    }

    /// Along the last axis; `exclusive` leaves element i itself out.
    fn scan_last(&self, op: ReduceOp, exclusive: bool) -> Result<Tensor> {
        let n = self.dim(-1)?;
        if n <= BLOCK {
            return self.scan_block(op, exclusive);
        }
        let blocks = n.div_ceil(BLOCK);
        let mut pad = vec![(0, 0); self.rank()];
        pad.last_mut().expect("a scanned tensor has an axis").1 = (blocks * BLOCK - n) as i64;
        let t = self.pad(&pad, super::PadMode::Constant, 0)?.unflatten(-1, &[blocks, BLOCK])?;
        let within = t.scan_block(op, exclusive)?;
        // what all earlier blocks come to
        let totals = t.reduce_last(op)?;
        let before = totals.scan_last(op, true)?.unsqueeze(-1)?;
        within.combine(op, &before)?.flatten(-2, -1)?.narrow(-1, 0, n)
    }

    fn scan_block(&self, op: ReduceOp, exclusive: bool) -> Result<Tensor> {
        let n = self.dim(-1)?;
        let i = Tensor::iota(self.session(), n)?.unsqueeze(-1)?;
        let j = Tensor::iota(self.session(), n)?.unsqueeze(0)?;
        let mask = if exclusive { j.lt(i)? } else { j.le(i)? };
        let identity = Tensor::identity(self.session(), op, self.dtype(), &[]);
        mask.select(self.unsqueeze(-2)?, identity)?.reduce_last(op)
    }

    fn reduce_last(&self, op: ReduceOp) -> Result<Tensor> {
        match op {
            ReduceOp::Add => self.sum(&[-1], false),
            ReduceOp::Mul => self.prod(&[-1], false),
            ReduceOp::Max => self.max(&[-1], false),
            ReduceOp::Min => self.min(&[-1], false),
        }
    }

    fn combine(&self, op: ReduceOp, other: &Tensor) -> Result<Tensor> {
        match op {
            ReduceOp::Add => self.add(other),
            ReduceOp::Mul => self.mul(other),
            ReduceOp::Max => self.maximum(other),
            ReduceOp::Min => self.minimum(other),
        }
    }
}
