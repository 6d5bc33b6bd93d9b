//! Values on demand: `vec` and `scalar` push a value at the current tile point on the stack. They emit the code that
//! computes it, and that of its operands, unless it is in a local already.

use super::emit::{Emit, NONE};
use super::func::{at, val_type};
use super::layout::{Form, lane_by_lane};
use super::unsupported;
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Result};
use smallvec::SmallVec;
use wasm_encoder::ValType;

impl Emit<'_> {
    /// Pushes four lanes of `u`: the current chunk of its lane axis, or its scalar in every lane.
    pub(super) fn vec(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let dt = g.dtype(u);
        match g.op(u) {
            Op::Const => {
                let bits = self.lane_bits(u);
                self.vec_const([bits; 4]);
                return Ok(());
            }
            Op::Range if g.kind(u).is_tile() => {
                let id = g.range_arg(u).id;
                let at = self.tile_point[id as usize];
                let lanes = if self.info(u).lane { [0, 1, 2, 3].map(|i| self.chunk * 4 + i) } else { [at; 4] };
                self.vec_const(lanes);
                return Ok(());
            }
            _ => {}
        }
        let (form, splat) = (self.info(u).form, self.info(u).splat);
        match form {
            Form::Vec => {
                let slot = self.slot(u, 0);
                let local = self.vals[slot as usize];
                if local != NONE {
                    self.f.w().local_get(local);
                    return Ok(());
                }
                self.eval_vec(u)?;
                self.keep(slot, ValType::V128);
            }
            Form::Scalar if splat == NONE => {
                self.scalar(u, 0)?;
                self.splat(dt);
            }
            Form::Scalar => {
                let slot = splat + self.number(&self.info(u).axes);
                let local = self.vals[slot as usize];
                if local != NONE {
                    self.f.w().local_get(local);
                    return Ok(());
                }
                if g.op(u) == Op::Load && !self.info(u).scalar_use && g.src(u).len() == 1 && dt.size() == 4 {
                    self.load_splat(u)?;
                } else {
                    self.scalar(u, 0)?;
                    self.splat(dt);
                }
                self.keep(slot, ValType::V128);
            }
            Form::Lanes | Form::Inline => {
                return Err(unsupported(format!("{} {dt} as a vector", g.op(u).name()), self.p));
            }
        }
        Ok(())
    }

    /// Pushes one element of `u`; `lane` counts within the current chunk.
    pub(super) fn scalar(&mut self, u: UOp, lane: usize) -> Result<()> {
        let g = &self.p.g;
        let dt = g.dtype(u);
        match g.op(u) {
            Op::Const => {
                self.scalar_const(u);
                return Ok(());
            }
            Op::Range if g.kind(u).is_tile() => {
                let id = g.range_arg(u).id;
                let v = if self.info(u).lane { self.chunk * 4 + lane as u32 } else { self.tile_point[id as usize] };
                self.f.w().i32_const(v as i32);
                return Ok(());
            }
            Op::Range | Op::Var => {
                let Some(l) = self.index_local(u) else {
                    return Err(unsupported("range used outside its loop", self.p));
                };
                self.f.w().local_get(l);
                return Ok(());
            }
            _ => {}
        }
        match self.info(u).form {
            Form::Inline => return Err(unsupported(format!("{} as a value", g.op(u).name()), self.p)),
            Form::Vec => {
                self.vec(u)?;
                self.extract(dt, lane);
            }
            Form::Scalar | Form::Lanes => {
                let slot = self.slot(u, lane);
                let local = self.vals[slot as usize];
                if local != NONE {
                    self.f.w().local_get(local);
                    return Ok(());
                }
                self.eval_scalar(u, lane)?;
                self.keep(slot, val_type(dt));
            }
        }
        Ok(())
    }

    /// Copies the top of the stack to a new local for `slot`; within a branch it does nothing.
    fn keep(&mut self, slot: u32, t: ValType) {
        if self.branches > 0 {
            return;
        }
        let local = self.f.local(t);
        self.f.w().local_tee(local);
        self.remember(slot, local);
    }

    fn eval_vec(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let (op, dt, src) = (g.op(u), g.dtype(u), g.srcs(u));
        match op {
            Op::Load => return self.load_vec(u),
            Op::AccRead => {
                let slot = self.slot(src[0], 0);
                match self.spilled_accs.get(&slot) {
                    Some(&offset) => self.f.w().local_get(self.spill_base).v128_load(at(offset, 16)),
                    None => self.f.w().local_get(self.vals[slot as usize]),
                };
                return Ok(());
            }
            Op::Fold => return self.fold(u, 0),
            Op::After => return self.vec(src[0]),
            _ if !op.is_alu() => return Err(unsupported(format!("op {}", op.name()), self.p)),
            _ => {}
        }
        let lane_of = |x: UOp| self.info(x).lane;
        if lane_by_lane(self.p, &lane_of, u) {
            self.eval_scalar(u, 0)?;
            self.splat(dt);
            for lane in 1..4 {
                self.eval_scalar(u, lane)?;
                self.replace(dt, lane);
            }
            return Ok(());
        }
        match op {
            Op::Shl | Op::Shr => {
                self.vec(src[0])?;
                self.scalar(src[1], 0)?;
                self.vec_shift(op, dt)
            }
            Op::Where => {
                if dt == DType::F32
                    && let Some(op) = self.extreme(u)
                {
                    return self.vec_pick(op, src[2], src[1]);
                }
                self.vec(src[1])?;
                self.vec(src[2])?;
                self.vec(src[0])?;
                self.vec_select();
                Ok(())
            }
            Op::MulAdd => {
                self.vec(src[0])?;
                self.vec(src[1])?;
                if self.fma && dt == DType::F32 {
                    self.vec(src[2])?;
                    self.f.w().f32x4_relaxed_madd();
                    return Ok(());
                }
                self.vec_binary(Op::Mul, dt)?;
                self.vec(src[2])?;
                self.vec_binary(Op::Add, dt)
            }
            Op::DotPairs => {
                self.vec(src[0])?;
                self.vec(src[1])?;
                self.f.w().i32x4_dot_i16x8_s();
                self.vec(src[2])?;
                self.f.w().i32x4_add();
                Ok(())
            }
            Op::LookupBytes => {
                let Some(table) = g.lookup_table(u) else {
                    return Err(unsupported("a lookup in a computed table", self.p));
                };
                self.vec_const(words(&table));
                self.vec(src[0])?;
                self.mask_lookup(src[0]);
                self.f.w().i8x16_swizzle();
                Ok(())
            }
            Op::Max | Op::Min if dt == DType::F32 => self.vec_max(op, src[0], src[1]),
            Op::Cast => {
                self.vec(src[0])?;
                self.vec_cast(g.dtype(src[0]), dt)
            }
            Op::Bitcast => {
                self.vec(src[0])?;
                self.vec_bitcast(g.dtype(src[0]), dt);
                Ok(())
            }
            _ if src.len() == 1 => {
                self.vec(src[0])?;
                self.vec_unary(op, dt)
            }
            _ => {
                self.vec(src[0])?;
                self.vec(src[1])?;
                self.vec_binary_of(op, dt, g.dtype(src[0]))
            }
        }
    }

    /// Recognises selections that are one instruction: `x < y ? y : x` is the pseudo-maximum of x and y, and
    /// `y < x ? y : x` the pseudo-minimum. Also recognised is `high < z ? high : x` where x is the larger of z and a
    /// constant below `high`, since comparing z is then the same as comparing x.
    fn extreme(&self, u: UOp) -> Option<Op> {
        let g = &self.p.g;
        let &[c, y, x] = g.src(u) else { return None };
        let &[a, b] = g.src(c) else { return None };
        let number = |u: UOp| g.const_val(u).map(|v| v.as_f64());
        let raised = |z: UOp| match g.src(x) {
            &[_, low, from] => from == z && self.extreme(x) == Some(Op::Max) && number(low) < number(y),
            _ => false,
        };
        match g.op(c) {
            Op::CmpLt if (a, b) == (x, y) => Some(Op::Max),
            Op::CmpLt if a == y && (b == x || g.op(x) == Op::Where && number(y).is_some() && raised(b)) => {
                Some(Op::Min)
            }
            _ => None,
        }
    }

    /// Clears the upper bits of the index of a lookup on top of the stack: `swizzle` gives 0 for an index above 15.
    fn mask_lookup(&mut self, index: UOp) {
        if let Some(mask) = self.p.g.lookup_mask(index) {
            self.vec_const([mask; 4]);
            self.f.w().v128_and();
        }
    }

    fn eval_scalar(&mut self, u: UOp, lane: usize) -> Result<()> {
        let g = &self.p.g;
        let (op, dt, src) = (g.op(u), g.dtype(u), g.srcs(u));
        match op {
            Op::Load => self.load_scalar(u, lane),
            Op::AccRead => {
                let local = self.vals[self.slot(src[0], lane) as usize];
                self.f.w().local_get(local);
                Ok(())
            }
            Op::Fold => self.fold(u, lane),
            Op::After => self.scalar(src[0], lane),
            Op::Where => {
                self.scalar(src[1], lane)?;
                self.scalar(src[2], lane)?;
                self.scalar(src[0], lane)?;
                self.f.w().select();
                Ok(())
            }
            Op::MulAdd => {
                self.scalar(src[0], lane)?;
                self.scalar(src[1], lane)?;
                self.scalar_binary(Op::Mul, dt)?;
                self.scalar(src[2], lane)?;
                self.scalar_binary(Op::Add, dt)
            }
            // computed in the first lane of a vector
            Op::DotPairs => {
                self.scalar(src[0], lane)?;
                self.f.w().i32x4_splat();
                self.scalar(src[1], lane)?;
                self.f.w().i32x4_splat().i32x4_dot_i16x8_s().i32x4_extract_lane(0);
                self.scalar(src[2], lane)?;
                self.f.w().i32_add();
                Ok(())
            }
            Op::LookupBytes => {
                let Some(table) = g.lookup_table(u) else {
                    return Err(unsupported("a lookup in a computed table", self.p));
                };
                self.vec_const(words(&table));
                self.scalar(src[0], lane)?;
                self.f.w().i32x4_splat();
                self.mask_lookup(src[0]);
                self.f.w().i8x16_swizzle().i32x4_extract_lane(0);
                Ok(())
            }
            Op::Cast => {
                self.scalar(src[0], lane)?;
                self.scalar_cast(g.dtype(src[0]), dt)
            }
            Op::Bitcast => {
                self.scalar(src[0], lane)?;
                self.scalar_bitcast(g.dtype(src[0]), dt)
            }
            _ if op.is_unary() => {
                self.scalar(src[0], lane)?;
                self.scalar_unary(op, dt)
            }
            _ if op.is_binary() => {
                self.scalar(src[0], lane)?;
                self.scalar(src[1], lane)?;
                self.scalar_binary(op, g.dtype(src[0]))
            }
            _ => Err(unsupported(format!("op {}", op.name()), self.p)),
        }
    }

    /// Pushes a `Fold` at the current tile point, computed as a balanced tree over the folded axes; lanes are folded
    /// last.
    fn fold(&mut self, u: UOp, lane: usize) -> Result<()> {
        let g = &self.p.g;
        let (dt, src) = (g.dtype(u), g.srcs(u));
        let op = match g.arg(u) {
            Arg::Reduce(r, _) => r.op(),
            _ => return Err(unsupported("fold without a reduction", self.p)),
        };
        let mut axes: SmallVec<[(u8, u32); 4]> = SmallVec::new();
        let mut lane_folded = false;
        for &r in &src[1..] {
            let id = g.range_arg(r).id;
            if self.layout.lanes >> id & 1 == 1 {
                lane_folded = true;
            } else {
                axes.push((id, g.range_len(r) as u32));
            }
        }
        let count = axes.iter().map(|a| a.1).product::<u32>();
        let chunks = if lane_folded { self.chunks() } else { 1 };
        let saved = (self.tile_point, self.chunk);
        let vector = self.is_vec(src[0]);
        let lanes = if lane_folded && !vector { 4 } else { 1 };
        // element n in row-major order of register axes, chunks and lanes
        let push = |e: &mut Self, n: u32| -> Result<()> {
            e.set_tile_point(&axes, n / (chunks * lanes));
            if lane_folded {
                e.chunk = n / lanes % chunks;
            }
            let l = if lanes > 1 { (n % lanes) as usize } else { lane };
            if vector { e.vec(src[0]) } else { e.scalar(src[0], l) }
        };
        let combine = |e: &mut Self| if vector { e.vec_binary(op, dt) } else { e.scalar_binary(op, dt) };
        self.tree(0, count * chunks * lanes, &push, &combine)?;
        (self.tile_point, self.chunk) = saved;
        if vector && lane_folded {
            let t = self.f.local(ValType::V128);
            for half in [8u8, 4] {
                self.f.w().local_tee(t).local_get(t).local_get(t);
                let lanes: [u8; 16] = std::array::from_fn(|i| (i as u8 + half) % 16);
                self.f.w().i8x16_shuffle(lanes);
                self.vec_binary(op, dt)?;
            }
            self.f.release(t);
            self.extract(dt, 0);
        }
        Ok(())
    }

    /// Emits the balanced tree that combines elements `lo..hi`.
    fn tree(
        &mut self,
        lo: u32,
        hi: u32,
        push: &dyn Fn(&mut Self, u32) -> Result<()>,
        combine: &dyn Fn(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if hi - lo == 1 {
            return push(self, lo);
        }
        let mid = lo + (hi - lo).div_ceil(2);
        self.tree(lo, mid, push, combine)?;
        self.tree(mid, hi, push, combine)?;
        combine(self)
    }
}

/// The words of a table of 16 bytes.
fn words(table: &[u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    words.iter_mut().zip(table.as_chunks::<4>().0).for_each(|(word, bytes)| *word = u32::from_le_bytes(*bytes));
    words
}
