//! Accumulators, which live in registers, and folds (reductions of tile axes within one value).

use super::lower::{Lower, Point, Val, points};
use super::machine::Machine;
use super::mir::VReg;
use crate::uop::{Arg, Op, ReduceOp, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use smallvec::SmallVec;

impl<M: Machine> Lower<'_, M> {
    /// Creates and initialises the registers of an accumulator, one for each element and part of its tile.
    pub(in crate::render) fn acc(&mut self, u: UOp) -> Result<()> {
        let (dt, tile, init) = (self.g.dtype(u), self.tiles[u.0 as usize].clone(), self.g.src_at(u, 0));
        let parts = self.parts_of(u, tile.lane);
        let mut all = Vec::new();
        for pt in tile.points() {
            let mut list = Vec::new();
            for &(off, w) in &parts {
                let v = self.demand(init, &pt, off, w)?;
                let r = self.fresh(dt, w);
                self.move_to(r, v, dt, w);
                list.push(r);
            }
            all.push(list);
        }
        self.accs.insert(u, all);
        Ok(())
    }

    pub(in crate::render) fn acc_regs(&self, acc: UOp, pt: &Point) -> Result<Vec<VReg>> {
        let elem = self.tiles[acc.0 as usize].elem(pt) as usize;
        let all = self.accs.get(&acc).ok_or_else(|| Error::Internal("accumulator used before its Acc".into()))?;
        Ok(all[elem].clone())
    }

    pub(in crate::render) fn acc_read(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let (acc, dt) = (self.g.src_at(u, 0), self.g.dtype(u));
        let parts = self.parts_of(acc, self.tiles[acc.0 as usize].lane);
        let at = parts.iter().position(|&p| p == (off, w)).ok_or_else(|| Error::Internal("accumulator part".into()))?;
        let r = self.acc_regs(acc, pt)?[at];
        if self.last_change.get(&acc) <= Some(&self.position[u.0 as usize]) {
            return Ok(Val::R(r));
        }
        let t = self.fresh(dt, w);
        self.move_to(t, Val::R(r), dt, w);
        Ok(Val::R(t))
    }

    /// Register axes of the operands `from` that `acc` does not have and that an update therefore reduces, outermost
    /// first.
    pub(in crate::render) fn folded(&self, acc: UOp, from: &[UOp]) -> SmallVec<[(u8, u16); 4]> {
        let have = &self.tiles[acc.0 as usize].regs;
        let mut out: SmallVec<[(u8, u16); 4]> = SmallVec::new();
        for f in from {
            for a in &self.tiles[f.0 as usize].regs {
                if !have.contains(a) && !out.contains(a) {
                    out.push(*a);
                }
            }
        }
        sort::ascending(&mut out);
        out
    }

    /// `acc = acc op x`.
    pub(in crate::render) fn acc_update(&mut self, u: UOp) -> Result<()> {
        let (acc, x) = (self.g.src_at(u, 0), self.g.src_at(u, 1));
        let Arg::Reduce(op, _) = *self.g.arg(u) else {
            return Err(Error::Internal("AccUpdate without its op".into()));
        };
        let (dt, tile) = (self.g.dtype(acc), self.tiles[acc.0 as usize].clone());
        let lane = self.tiles[x.0 as usize].lane;
        for outer in points(&self.folded(acc, &[x]), Point::default()) {
            for pt in points(&tile.regs, outer) {
                let regs = self.acc_regs(acc, &pt)?;
                if lane > 0 && tile.lane == 0 {
                    let v = self.fold_lanes(x, &pt, op)?;
                    self.combine(op, dt, 1, Val::R(regs[0]), v, Some(regs[0]))?;
                    continue;
                }
                for (&(off, w), &r) in self.parts_of(acc, tile.lane).iter().zip(&regs) {
                    let v = M::operand_for(self, x, u, &pt, off, w)?;
                    self.combine(op, dt, w, Val::R(r), v, Some(r))?;
                }
            }
        }
        Ok(())
    }

    /// `acc += a * b`.
    pub(in crate::render) fn acc_mul_add(&mut self, u: UOp) -> Result<()> {
        let [acc, a, b] = *self.g.src(u) else {
            return Err(Error::Internal("AccMulAdd takes three sources".into()));
        };
        if self.acc_dot(u)? {
            return Ok(());
        }
        let (dt, tile) = (self.g.dtype(acc), self.tiles[acc.0 as usize].clone());
        let lane = self.tiles[a.0 as usize].lane.max(self.tiles[b.0 as usize].lane);
        let parts = self.parts_of(acc, tile.lane.max(lane));
        for outer in points(&self.folded(acc, &[a, b]), Point::default()) {
            for pt in points(&tile.regs, outer) {
                let regs = self.acc_regs(acc, &pt)?;
                for (k, &(off, w)) in parts.iter().enumerate() {
                    let x = M::operand_for(self, a, u, &pt, off, w)?;
                    let y = M::operand_for(self, b, u, &pt, off, w)?;
                    if tile.lane == 0 && lane > 0 {
                        let p = self.binary(Op::Mul, dt, w, x, y, None)?;
                        let v = M::reduce_lanes(self, ReduceOp::Add, dt, w, p)?;
                        self.combine(ReduceOp::Add, dt, 1, Val::R(regs[0]), v, Some(regs[0]))?;
                        continue;
                    }
                    match dt {
                        DType::F32 | DType::F64 => M::fma(self, dt, w, regs[k], x, y)?,
                        _ => {
                            let p = self.binary(Op::Mul, dt, w, x, y, None)?;
                            self.combine(ReduceOp::Add, dt, w, Val::R(regs[k]), Val::R(p), Some(regs[k]))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn binary(&mut self, op: Op, dt: DType, w: usize, a: Val, b: Val, into: Option<VReg>) -> Result<VReg> {
        M::binary(self, op, dt, w, a, b, into)
    }

    fn combine(&mut self, op: ReduceOp, dt: DType, w: usize, a: Val, b: Val, into: Option<VReg>) -> Result<Val> {
        let r = self.binary(op.op(), dt, w, a, b, into)?;
        if let Some(t) = into
            && t != r
        {
            self.move_to(t, Val::R(r), dt, w);
        }
        Ok(Val::R(r))
    }

    /// Reduces tile axes of a value, pairwise.
    pub(in crate::render) fn fold(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let x = self.g.src_at(u, 0);
        let Arg::Reduce(op, _) = *self.g.arg(u) else {
            return Err(Error::Internal("Fold without its op".into()));
        };
        let all = &self.tiles[x.0 as usize];
        let kept = &self.tiles[u.0 as usize];
        let axes: SmallVec<[(u8, u16); 4]> = all.regs.iter().filter(|a| !kept.regs.contains(a)).copied().collect();
        let across = all.lane > 0 && kept.lane == 0;
        let list = points(&axes, *pt);
        if !across {
            return self.tree(x, op, &list, off, w);
        }
        let dt = self.g.dtype(x);
        let mut total: Option<Val> = None;
        // parts of the same width are combined as vectors, then the lanes of that sum are reduced
        let parts = self.parts_of(x, all.lane);
        let mut at = 0;
        while at < parts.len() {
            let width = parts[at].1;
            let mut sum = self.tree(x, op, &list, parts[at].0, width)?;
            at += 1;
            while at < parts.len() && parts[at].1 == width {
                let more = self.tree(x, op, &list, parts[at].0, width)?;
                sum = self.combine(op, dt, width, sum, more, None)?;
                at += 1;
            }
            let sum = self.reg(sum, dt, width)?;
            let scalar = M::reduce_lanes(self, op, dt, width, sum)?;
            total = Some(match total {
                Some(t) => self.combine(op, dt, 1, t, scalar, None)?,
                None => scalar,
            });
        }
        total.ok_or_else(|| Error::Internal("a fold of nothing".into()))
    }

    fn tree(&mut self, x: UOp, op: ReduceOp, list: &[Point], off: usize, w: usize) -> Result<Val> {
        let dt = self.g.dtype(x);
        match list {
            [] => Ok(self.constant(op.identity(dt), dt, w)),
            [pt] => self.demand(x, pt, off, w),
            _ => {
                let (l, r) = list.split_at(list.len().div_ceil(2));
                let (a, b) = (self.tree(x, op, l, off, w)?, self.tree(x, op, r, off, w)?);
                self.combine(op, dt, w, a, b, None)
            }
        }
    }

    fn fold_lanes(&mut self, x: UOp, pt: &Point, op: ReduceOp) -> Result<Val> {
        let dt = self.g.dtype(x);
        let mut total: Option<Val> = None;
        for (off, w) in self.parts_of(x, self.tiles[x.0 as usize].lane) {
            let v = self.demand_reg(x, pt, off, w)?;
            let s = M::reduce_lanes(self, op, dt, w, v)?;
            total = Some(match total {
                Some(t) => self.combine(op, dt, 1, t, s, None)?,
                None => s,
            });
        }
        total.ok_or_else(|| Error::Internal("a fold of nothing".into()))
    }
}
