//! Addresses, loads and stores. Accesses with the same pointer and offset share one i32 address in a local; constants
//! and tile strides go into the offset field of the instruction.

use super::emit::Emit;
use super::func::{at, fits_lane, val_type};
use super::layout::{SLACK, within_slack};
use super::unsupported;
use super::vector::scalar_bits;
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Result};
use wasm_encoder::{BlockType, MemArg, ValType};

/// A biased address is smaller than the true one by this many bytes. Instruction offsets are unsigned, so the bias
/// makes room for negative constants from `-BIAS` on.
const BIAS: i64 = SLACK as i64 / 2;

/// The largest constant, in bytes, that is put into the offset field of an instruction.
const MAX_OFFSET: i64 = 1 << 30;

/// An address: a local, a constant that is added to it modulo 2^32, and the offset field of the instruction, which does
/// not wrap.
#[derive(Clone, Copy)]
struct Addr {
    local: u32,
    add: i32,
    offset: u64,
}

impl Emit<'_> {
    /// The address of an Index at the current tile point; `gated` says that it may lie outside its buffer there.
    fn addr(&mut self, index: UOp, lane: usize, gated: bool) -> Result<Addr> {
        let p = self.p;
        let g = &p.g;
        let size = g.dtype(index).size() as i64;
        let (mut ptr, mut x) = (g.src_at(index, 0), g.src_at(index, 1));
        while g.op(ptr) == Op::After {
            ptr = g.src_at(ptr, 0);
        }
        let Some(&pointer) = self.pointers.get(&ptr) else {
            return Err(unsupported("address of something that is not a buffer", p));
        };
        // the offset of this tile point by the strides, in elements, and the smallest offset of any tile point
        let (mut here, mut least) = (0i64, 0i64);
        if let Arg::Strides(strides) = g.arg(index) {
            for &(id, stride) in strides {
                let Some(axis) = p.tiles.iter().find(|t| t.id == id) else { continue };
                let is_lane = self.layout.lanes >> id & 1 == 1;
                let coord = match is_lane {
                    true => self.chunk as i64 * 4 + lane as i64,
                    false => self.tile_point[id as usize] as i64,
                };
                here += stride * coord;
                least += (stride * (axis.len as i64 - 1)).min(0);
            }
        }
        if let Some(c) = g.const_int(x) {
            let offset = (c + here) * size;
            if (0..MAX_OFFSET).contains(&offset) {
                return Ok(Addr { local: pointer, add: 0, offset: offset as u64 });
            }
        }
        // accesses whose addresses differ by a constant share a local; the bias allows for negative constants
        let (a, c) = match g.const_int(g.src(x).last().copied().unwrap_or(x)) {
            Some(c) if g.op(x) == Op::Add => (g.src_at(x, 0), c),
            _ => (x, 0),
        };
        let above = |v: i64| v.saturating_mul(size) >= -BIAS;
        let whole = c.saturating_add(here).saturating_mul(size);
        let shared = above(g.bounds(a).0) && above(c.saturating_add(least)) && whole < MAX_OFFSET;
        if shared {
            x = a;
        }
        let n = {
            let i = self.info(x);
            let n = self.number(&i.axes);
            if i.lane { (n * self.chunks() + self.chunk) * 4 + lane as u32 } else { n }
        };
        // the offset field does not wrap around, so it may be used only if the address without it is valid
        let (below, add, offset) = if shared {
            let biased = c + least < 0 || self.addrs.contains_key(&(ptr, x, n, -BIAS));
            let bias = if biased { BIAS } else { 0 };
            (-bias, 0, whole + bias)
        } else if (!gated || g.bounds(x).0 + least >= 0) && (here - least) * size < MAX_OFFSET {
            (least * size, 0, (here - least) * size)
        } else {
            (0, (here * size) as i32, 0)
        };
        let offset = offset as u64;
        let key = (ptr, x, n, below);
        if let Some(&local) = self.addrs.get(&key) {
            return Ok(Addr { local, add, offset });
        }
        if let Some(local) = self.induction_address(ptr, pointer, x, size, below) {
            return Ok(Addr { local, add, offset });
        }
        self.scalar(x, lane)?;
        if g.dtype(x).size() == 8 {
            self.f.w().i32_wrap_i64();
        }
        let mut w = self.f.w();
        if size > 1 {
            w.i32_const(size.trailing_zeros() as i32).i32_shl();
        }
        w.local_get(pointer).i32_add();
        if below != 0 {
            w.i32_const(below as i32).i32_add();
        }
        let local = self.f.local(ValType::I32);
        self.f.w().local_set(local);
        self.remember_addr(key, local);
        Ok(Addr { local, add, offset })
    }

    /// Emits the addresses of an Index at all tile points, to be kept in this scope.
    pub(super) fn force_address(&mut self, index: UOp) -> Result<()> {
        let x = self.p.g.src_at(index, 1);
        if self.info(x).lane {
            return Ok(());
        }
        let axes = self.info(x).axes.clone();
        let saved = self.tile_point;
        for n in 0..axes.iter().map(|a| a.1).product() {
            self.set_tile_point(&axes, n);
            self.addr(index, 0, false)?;
        }
        self.tile_point = saved;
        Ok(())
    }

    /// Pushes the address of an Index at the current tile point without its constant part, which is returned for the
    /// offset field of the instruction.
    pub(super) fn push_addr(&mut self, index: UOp, gated: bool) -> Result<u64> {
        let a = self.addr(index, 0, gated)?;
        self.push_address(a);
        Ok(a.offset)
    }

    fn push_address(&mut self, a: Addr) {
        self.f.w().local_get(a.local);
        if a.add != 0 {
            self.f.w().i32_const(a.add).i32_add();
        }
    }

    /// Are the lanes of an access contiguous in memory?
    fn contiguous(&self, index: UOp) -> bool {
        self.p.lane_stride(index, self.layout.lanes) == 1 && !self.info(self.p.g.src_at(index, 1)).lane
    }

    /// Loads a 4-byte element and pushes it in every lane.
    pub(super) fn load_splat(&mut self, u: UOp) -> Result<()> {
        let a = self.addr(self.p.g.src_at(u, 0), 0, false)?;
        self.push_address(a);
        self.f.w().v128_load32_splat(at(a.offset, 4));
        Ok(())
    }

    /// Pushes one element of a Load.
    pub(super) fn load_scalar(&mut self, u: UOp, lane: usize) -> Result<()> {
        let g = &self.p.g;
        let (src, dt) = (g.srcs(u), g.dtype(u));
        if src.len() == 1 {
            let a = self.addr(src[0], lane, false)?;
            self.push_address(a);
            self.load_one(dt, a.offset);
            return Ok(());
        }
        let a = self.addr(src[0], lane, true)?;
        self.materialize_scalar(src[1], lane)?;
        self.scalar(src[2], lane)?;
        self.open_if(BlockType::Result(val_type(dt)));
        self.push_address(a);
        self.load_one(dt, a.offset);
        self.f.w().else_();
        self.scalar(src[1], lane)?;
        self.close_if();
        Ok(())
    }

    /// Pushes four lanes of a Load.
    pub(super) fn load_vec(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let (src, dt) = (g.srcs(u), g.dtype(u));
        if src.len() == 1 {
            return self.load_lanes(src[0], dt, false);
        }
        let (index, alt, gate) = (src[0], src[1], src[2]);
        if within_slack(self.p, index) {
            self.load_lanes(index, dt, false)?;
            if g.const_val(alt).is_some_and(|v| scalar_bits(v, dt) == 0) {
                self.vec(gate)?;
                self.f.w().v128_and();
            } else {
                self.vec(alt)?;
                self.vec(gate)?;
                self.vec_select();
            }
            return Ok(());
        }
        self.materialize_vec(alt)?;
        if !self.info(gate).lane {
            self.materialize_addr(index)?;
            self.scalar(gate, 0)?;
            self.open_if(BlockType::Result(ValType::V128));
            self.load_lanes(index, dt, true)?;
            self.f.w().else_();
            self.vec(alt)?;
            self.close_if();
            return Ok(());
        }
        self.materialize_addr(index)?;
        let mask = self.f.local(ValType::V128);
        let out = self.f.local(ValType::V128);
        self.vec(gate)?;
        self.f.w().local_set(mask);
        let contiguous = self.contiguous(index);
        if contiguous {
            self.f.w().local_get(mask).i32x4_all_true();
            self.open_if(BlockType::Result(ValType::V128));
            self.load_lanes(index, dt, true)?;
            self.f.w().else_();
        }
        self.vec(alt)?;
        self.f.w().local_set(out);
        for lane in 0..4 {
            let a = self.addr(index, lane, true)?;
            self.f.w().local_get(mask).i32x4_extract_lane(lane as u8);
            self.open_if(BlockType::Empty);
            if dt.size() == 4 {
                self.push_address(a);
                self.f.w().local_get(out).v128_load32_lane(at(a.offset, 4), lane as u8);
            } else {
                self.f.w().local_get(out);
                self.push_address(a);
                self.load_one(dt, a.offset);
                self.replace(dt, lane);
            }
            self.f.w().local_set(out);
            self.close_if();
        }
        self.f.w().local_get(out);
        if contiguous {
            self.close_if();
        }
        self.f.release(mask);
        self.f.release(out);
        Ok(())
    }

    /// Emits the addresses that an access of four lanes needs before a branch, so that they can be reused after it.
    fn materialize_addr(&mut self, index: UOp) -> Result<()> {
        for lane in 0..4 {
            self.addr(index, lane, true)?;
        }
        Ok(())
    }

    /// Opens an `if`; values that are emitted until `close_if` are not kept in locals for later.
    fn open_if(&mut self, t: BlockType) {
        self.f.w().if_(t);
        self.branches += 1;
    }

    fn close_if(&mut self) {
        self.f.w().end();
        self.branches -= 1;
    }

    fn materialize_vec(&mut self, u: UOp) -> Result<()> {
        if self.p.g.op(u) != Op::Const {
            self.vec(u)?;
            self.f.w().drop();
        }
        Ok(())
    }

    fn materialize_scalar(&mut self, u: UOp, lane: usize) -> Result<()> {
        if self.p.g.op(u) != Op::Const {
            self.scalar(u, lane)?;
            self.f.w().drop();
        }
        Ok(())
    }

    /// Loads four lanes without a gate and pushes them; `gated` says that some may lie outside the buffer.
    fn load_lanes(&mut self, index: UOp, dt: DType, gated: bool) -> Result<()> {
        if self.contiguous(index) {
            let a = self.addr(index, 0, gated)?;
            self.push_address(a);
            let o = a.offset;
            match dt {
                DType::Bool => {
                    self.f.w().v128_load32_zero(at(o, 4)).i16x8_extend_low_i8x16_u().i32x4_extend_low_i16x8_u();
                    self.vec_const([0; 4]);
                    self.f.w().i32x4_ne();
                }
                DType::I8 => {
                    self.f.w().v128_load32_zero(at(o, 4)).i16x8_extend_low_i8x16_s().i32x4_extend_low_i16x8_s();
                }
                DType::U8 => {
                    self.f.w().v128_load32_zero(at(o, 4)).i16x8_extend_low_i8x16_u().i32x4_extend_low_i16x8_u();
                }
                DType::I16 | DType::F16 => {
                    self.f.w().v128_load16x4_s(at(o, 8));
                }
                DType::U16 | DType::BF16 => {
                    self.f.w().v128_load16x4_u(at(o, 8));
                }
                _ => {
                    self.f.w().v128_load(at(o, 4));
                }
            }
            return Ok(());
        }
        let a = self.addr(index, 0, gated)?;
        self.push_address(a);
        if dt.size() == 4 {
            if self.p.lane_stride(index, self.layout.lanes) == 0 && !self.info(self.p.g.src_at(index, 1)).lane {
                self.f.w().v128_load32_splat(at(a.offset, 4));
                return Ok(());
            }
            self.f.w().v128_load32_zero(at(a.offset, 4));
            let tmp = self.f.local(ValType::V128);
            for lane in 1..4 {
                let a = self.addr(index, lane, gated)?;
                self.f.w().local_set(tmp);
                self.push_address(a);
                self.f.w().local_get(tmp).v128_load32_lane(at(a.offset, 4), lane as u8);
            }
            self.f.release(tmp);
            return Ok(());
        }
        self.load_one(dt, a.offset);
        self.splat(dt);
        for lane in 1..4 {
            let a = self.addr(index, lane, gated)?;
            self.push_address(a);
            self.load_one(dt, a.offset);
            self.replace(dt, lane);
        }
        Ok(())
    }

    fn load_one(&mut self, dt: DType, o: u64) {
        let m: MemArg = at(o, dt.size());
        let mut w = self.f.w();
        match dt {
            DType::Bool => w.i32_load8_u(m).i32_const(0).i32_ne(),
            DType::I8 => w.i32_load8_s(m),
            DType::U8 => w.i32_load8_u(m),
            DType::I16 | DType::F16 => w.i32_load16_s(m),
            DType::U16 | DType::BF16 => w.i32_load16_u(m),
            DType::I64 | DType::U64 => w.i64_load(m),
            DType::F32 => w.f32_load(m),
            DType::F64 => w.f64_load(m),
            _ => w.i32_load(m),
        };
    }

    fn store_scalar(&mut self, dt: DType, o: u64) {
        let m: MemArg = at(o, dt.size());
        let mut w = self.f.w();
        match dt.size() {
            1 => w.i32_store8(m),
            2 => w.i32_store16(m),
            8 if dt == DType::F64 => w.f64_store(m),
            8 => w.i64_store(m),
            _ if dt == DType::F32 => w.f32_store(m),
            _ => w.i32_store(m),
        };
    }

    /// Emits a Store at the current tile point.
    pub(super) fn store_one(&mut self, u: UOp, lane: bool) -> Result<()> {
        let g = &self.p.g;
        let src = g.srcs(u);
        let (index, value, gate) = (src[0], src[1], src.get(2).copied());
        let dt = g.dtype(value);
        if lane && fits_lane(dt) {
            return self.store_vec(index, value, gate);
        }
        for l in 0..if lane { 4 } else { 1 } {
            let a = self.addr(index, l, gate.is_some())?;
            if let Some(gate) = gate {
                self.materialize_scalar(value, l)?;
                self.scalar(gate, l)?;
                self.open_if(BlockType::Empty);
            }
            self.push_address(a);
            self.scalar(value, l)?;
            self.store_scalar(dt, a.offset);
            if gate.is_some() {
                self.close_if();
            }
        }
        Ok(())
    }

    fn store_vec(&mut self, index: UOp, value: UOp, gate: Option<UOp>) -> Result<()> {
        let dt = self.p.g.dtype(value);
        let Some(gate) = gate else {
            if self.contiguous(index) {
                let a = self.addr(index, 0, false)?;
                self.push_address(a);
                self.vec(value)?;
                self.store_row(dt, a.offset);
                return Ok(());
            }
            return self.store_each(index, value, None, false);
        };
        self.materialize_addr(index)?;
        self.materialize_vec(value)?;
        if !self.info(gate).lane {
            self.scalar(gate, 0)?;
            self.open_if(BlockType::Empty);
            if self.contiguous(index) {
                let a = self.addr(index, 0, true)?;
                self.push_address(a);
                self.vec(value)?;
                self.store_row(dt, a.offset);
            } else {
                self.store_each(index, value, None, true)?;
            }
            self.close_if();
            return Ok(());
        }
        let mask = self.f.local(ValType::V128);
        self.vec(gate)?;
        self.f.w().local_set(mask);
        if self.contiguous(index) {
            let a = self.addr(index, 0, true)?;
            self.f.w().local_get(mask).i32x4_all_true();
            self.open_if(BlockType::Empty);
            self.push_address(a);
            self.vec(value)?;
            self.store_row(dt, a.offset);
            self.f.w().else_();
            self.store_each(index, value, Some(mask), true)?;
            self.close_if();
        } else {
            self.store_each(index, value, Some(mask), true)?;
        }
        self.f.release(mask);
        Ok(())
    }

    /// Stores the vectors of both indices of a register axis of length 2 interleaved, element by element, as two
    /// vectors.
    pub(super) fn store_interleaved(&mut self, u: UOp, axis: u8) -> Result<()> {
        let g = &self.p.g;
        let (index, value) = (g.src_at(u, 0), g.src_at(u, 1));
        let turns = [0, 1].map(|turn| (turn, self.f.local(ValType::V128)));
        for (turn, local) in turns {
            self.tile_point[axis as usize] = turn;
            self.vec(value)?;
            self.f.w().local_set(local);
        }
        self.tile_point[axis as usize] = 0;
        for half in [0, 8] {
            let a = self.addr(index, half / 4, false)?;
            self.push_address(a);
            let words: [u8; 16] = std::array::from_fn(|i| half as u8 + (i / 8 * 4 + i / 4 % 2 * 16 + i % 4) as u8);
            self.f.w().local_get(turns[0].1).local_get(turns[1].1).i8x16_shuffle(words);
            self.store_row(g.dtype(value), a.offset);
        }
        turns.iter().for_each(|&(_, local)| self.f.release(local));
        Ok(())
    }

    /// Stores four lanes one by one; with a mask, only those whose mask is set.
    fn store_each(&mut self, index: UOp, value: UOp, mask: Option<u32>, gated: bool) -> Result<()> {
        let dt = self.p.g.dtype(value);
        for lane in 0..4 {
            let a = self.addr(index, lane, gated)?;
            if let Some(mask) = mask {
                self.f.w().local_get(mask).i32x4_extract_lane(lane as u8);
                self.open_if(BlockType::Empty);
            }
            self.push_address(a);
            if dt.size() == 4 {
                self.vec(value)?;
                self.f.w().v128_store32_lane(at(a.offset, 4), lane as u8);
            } else {
                self.scalar(value, lane)?;
                self.store_scalar(dt, a.offset);
            }
            if mask.is_some() {
                self.close_if();
            }
        }
        Ok(())
    }

    /// Stores the vector on top of the stack to consecutive elements at the address below it on the stack.
    fn store_row(&mut self, dt: DType, o: u64) {
        match dt.size() {
            1 => {
                let keep = if dt == DType::Bool { 1 } else { 0xff };
                self.vec_const([keep; 4]);
                let t = self.f.local(ValType::V128);
                self.f.w().v128_and().local_tee(t).local_get(t).i16x8_narrow_i32x4_u().local_tee(t).local_get(t);
                self.f.w().i8x16_narrow_i16x8_u().v128_store32_lane(at(o, 4), 0);
                self.f.release(t);
            }
            2 => {
                self.vec_const([0xffff; 4]);
                let t = self.f.local(ValType::V128);
                self.f.w().v128_and().local_tee(t).local_get(t).i16x8_narrow_i32x4_u();
                self.f.w().v128_store64_lane(at(o, 8), 0);
                self.f.release(t);
            }
            _ => {
                self.f.w().v128_store(at(o, 4));
            }
        }
    }
}
