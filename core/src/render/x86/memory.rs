//! Loads and stores. Contiguous lanes are one instruction; 32-bit lanes with a gate each are one masked instruction;
//! loads of every other element are two vectors and a permutation. Other 32-bit lanes are gathered, and what remains
//! goes lane by lane. A gate that is one scalar for all lanes selects the address of zeros where the alternative is
//! zero, otherwise it is a branch.

use super::Lower;
use super::Opnd;
use super::table::{self, ShiftImm, V2, V3};
use crate::render::linear::Gate;
use crate::render::linear::address::is_word;
use crate::render::linear::lower::{Point, Val, vec_size, wide, words};
use crate::render::linear::mir::{Base, Mem, SelectedPointer, Size, VReg};
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Result};
use iced_x86::{Code, Register};
use smallvec::SmallVec;

/// Are elements of this dtype the same in memory as in a vector lane?
fn is_whole(dt: DType) -> bool {
    is_word(dt) || wide(dt)
}

impl Lower<'_> {
    /// The memory operand of an ungated load of contiguous lanes of 32 or 64 bits.
    pub(super) fn plain_load(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Option<Mem>> {
        let index = self.g.src_at(u, 0);
        let open = self.gate(u, pt, off, w) == Gate::Open;
        if !open || w == 1 || !is_whole(self.g.dtype(u)) || !self.contiguous(index) {
            return Ok(None);
        }
        let m = self.address(index, pt, off)?;
        self.prefetch_next_row(u, m, off, w);
        Ok(Some(m))
    }

    pub(super) fn load(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let (index, dt) = (self.g.src_at(u, 0), self.g.dtype(u));
        if w == 1 {
            return self.load_lane(u, pt, off, false);
        }
        let gate = match self.gate(u, pt, off, w) {
            Gate::Open => None,
            Gate::Closed => return self.demand(self.g.src_at(u, 1), pt, off, w),
            Gate::Conditional(gate) => Some(gate),
        };
        let lane_gate = gate.is_some_and(|g| self.tiles[g.0 as usize].lane > 0);
        let zero = gate.is_some() && self.g.const_val(self.g.src_at(u, 1)).is_some_and(|c| c.is(0));
        let pairs = is_word(dt) && self.lane_stride(index) == Some(2) && (gate.is_none() || lane_gate || zero);
        if !pairs && !self.contiguous(index) || lane_gate && !is_whole(dt) {
            let offset = self.g.src_at(index, 1);
            let vector = self.tiles[offset.0 as usize].lane > 0;
            if is_word(dt) && (vector || gate.is_some()) && !wide(self.g.dtype(offset)) {
                return self.gather(u, gate, pt, off, w);
            }
            return self.pack(dt, w, |l, i| l.load_lane(u, pt, off + i, true));
        }
        let m = self.address(index, pt, off)?;
        let Some(gate) = gate else {
            self.prefetch_next_row(u, m, off, w);
            return Ok(Val::R(if pairs { self.load_pairs(w, m, None) } else { self.load_vector(dt, w, m)? }));
        };
        let alt = self.demand(self.g.src_at(u, 1), pt, off, w)?;
        if !lane_gate && zero {
            let m = self.select_address(gate, pt, off, m)?;
            return Ok(Val::R(if pairs { self.load_pairs(w, m, None) } else { self.load_vector(dt, w, m)? }));
        }
        if !lane_gate {
            let r = self.fresh(dt, w);
            self.move_to(r, alt, dt, w);
            let skip = self.skip_unless_gate(gate, pt, off)?;
            let v = self.load_vector(dt, w, m)?;
            self.move_to(r, Val::R(v), dt, w);
            self.f.label(skip);
            return Ok(Val::R(r));
        }
        if w == 16 && zero && !pairs && !self.may_leave_buffer(index) {
            let condition = self.predicate(gate, u, pt, off)?;
            self.predicate_to_k1(&condition);
            return Ok(Val::R(self.load_under_k1(m)));
        }
        let (mask, words) = (self.lane_mask(gate, dt, pt, off, w)?, words(dt, w));
        let m = self.address_if_any_lane(index, m, mask, words);
        let r = if pairs { self.load_pairs(w, m, Some(mask)) } else { self.load_masked(words, m, mask) };
        if zero {
            return Ok(Val::R(r));
        }
        let alt = self.reg(alt, dt, w)?;
        Ok(Val::R(self.blend(mask, Val::R(r), alt, words)))
    }

    /// The address `m` if a scalar condition holds, otherwise that of a block of zeros: this needs no branch, and none
    /// of the work that masks cost. Loads near each other under the same condition share the selected pointer.
    pub(super) fn select_address(&mut self, gate: UOp, pt: &Point, off: usize, m: Mem) -> Result<Mem> {
        // the largest distance in bytes of loads that share a pointer, and the most bytes that one of them reads: two
        // vectors, where every other element is loaded
        const SHARE_DISTANCE: i32 = 224;
        const MAX_READ_BYTES: usize = 128;
        let condition = self.demand_reg(gate, pt, off, 1)?;
        let shareable = |c: &&SelectedPointer| {
            let same_base = Mem { disp: c.mem.disp, ..m } == c.mem;
            same_base && c.condition == condition && (m.disp - c.mem.disp).abs() <= SHARE_DISTANCE
        };
        if let Some(c) = self.f.selected_pointers.iter().find(shareable) {
            return Ok(Mem::at(Base::Reg(c.pointer), m.disp - c.mem.disp));
        }
        let zeros = self.f.pool.intern(&[0; 2 * SHARE_DISTANCE as usize + MAX_READ_BYTES]) + SHARE_DISTANCE;
        let [pointer, other] = [0; 2].map(|_| self.f.reg(Size::Q));
        self.f.def(Code::Lea_r64_m, &[Opnd::R(pointer, Size::Q), Opnd::M(m)]);
        self.f.def(Code::Lea_r64_m, &[Opnd::R(other, Size::Q), Opnd::M(Mem::at(Base::Pool, zeros))]);
        self.f.read(Code::Test_rm32_r32, &[Opnd::R(condition, Size::D), Opnd::R(condition, Size::D)]);
        self.f.emit(Code::Cmove_r64_rm64, &[Opnd::R(pointer, Size::Q), Opnd::R(other, Size::Q)], 1, !0, 9);
        self.f.selected_pointers.push(SelectedPointer { condition, mem: m, pointer });
        Ok(Mem::at(Base::Reg(pointer), 0))
    }

    /// For a masked load whose lanes may lie far from their buffer: the address `m`, or that of zeros if no lane of the
    /// mask is set. A masked load from unmapped memory gives zeros too, but the processor takes hundreds of cycles to
    /// find out that no lane needs it.
    pub(super) fn address_if_any_lane(&mut self, index: UOp, m: Mem, mask: VReg, w: usize) -> Mem {
        if !self.may_leave_buffer(index) {
            return m;
        }
        let zeros = self.f.pool.intern(&[0; 128]);
        let [pointer, other] = [0; 2].map(|_| self.f.reg(Size::Q));
        self.f.def(Code::Lea_r64_m, &[Opnd::R(pointer, Size::Q), Opnd::M(m)]);
        self.f.def(Code::Lea_r64_m, &[Opnd::R(other, Size::Q), Opnd::M(Mem::at(Base::Pool, zeros))]);
        let set = Opnd::R(mask, vec_size(w));
        match w {
            16 => {
                self.mask_to_k1(mask);
                self.f.read(Code::VEX_Kortestw_kr_kr, &[Opnd::P(Register::K1), Opnd::P(Register::K1)]);
            }
            8 => self.f.read(Code::VEX_Vptest_ymm_ymmm256, &[set, set]),
            _ => self.f.read(Code::VEX_Vptest_xmm_xmmm128, &[set, set]),
        }
        self.f.emit(Code::Cmove_r64_rm64, &[Opnd::R(pointer, Size::Q), Opnd::R(other, Size::Q)], 1, !0, 9);
        Mem::at(Base::Reg(pointer), 0)
    }

    /// May lanes of an access lie more than a page outside their buffer?
    fn may_leave_buffer(&self, index: UOp) -> bool {
        const PAGE: i64 = 4096;
        let Arg::Param { len, .. } = *self.g.arg(self.g.src_at(index, 0)) else { return false };
        let (size, (first, last)) = (self.g.dtype(index).size() as i64, self.elements(index));
        first.saturating_mul(size) < -PAGE || (last - len as i64).saturating_mul(size) > PAGE
    }

    /// Loads sixteen contiguous lanes where k1 is set; the others are zero.
    fn load_under_k1(&mut self, m: Mem) -> VReg {
        let r = self.f.reg(Size::Z);
        let i = self.f.emit(Code::EVEX_Vmovups_zmm_k1z_zmmm512, &[Opnd::R(r, Size::Z), Opnd::M(m)], 1, !1, 9);
        (i.masked, i.zeroing) = (true, true);
        r
    }

    /// Loads contiguous lanes where the mask is set; the others are zero.
    pub(super) fn load_masked(&mut self, w: usize, m: Mem, mask: VReg) -> VReg {
        let (r, size) = (self.f.reg(vec_size(w)), vec_size(w));
        match w {
            16 => {
                self.mask_to_k1(mask);
                return self.load_under_k1(m);
            }
            8 => self.f.def(Code::VEX_Vmaskmovps_ymm_ymm_m256, &[Opnd::R(r, size), Opnd::R(mask, size), Opnd::M(m)]),
            _ => self.f.def(Code::VEX_Vmaskmovps_xmm_xmm_m128, &[Opnd::R(r, size), Opnd::R(mask, size), Opnd::M(m)]),
        }
        r
    }

    /// Loads every other element from `m` on. They lie in two vectors; the second one is read one element early, so
    /// that nothing after the last element is touched.
    fn load_pairs(&mut self, w: usize, m: Mem, mask: Option<VReg>) -> VReg {
        let size = vec_size(w);
        let halves = [0usize, 1].map(|h| {
            let m = Mem { disp: m.disp + (h * (w - 1) * 4) as i32, ..m };
            let Some(mask) = mask else {
                if h == 1 {
                    return Opnd::M(m);
                }
                let r = self.f.reg(size);
                self.v2(V2::Load, w, r, Val::M(m));
                return Opnd::R(r, size);
            };
            // duplicate each lane's mask, then keep it only where the lane's element is
            let (twice, own) = (self.f.reg(size), self.f.reg(size));
            if w == 4 {
                let ops = [Opnd::R(twice, size), Opnd::R(mask, size), Opnd::I8([0x50, 0xfa][h])];
                self.f.def(Code::VEX_Vpshufd_xmm_xmmm128_imm8, &ops);
            } else {
                let lanes: Vec<u8> = (0..w).flat_map(|i| ((h * w + i) as u32 / 2).to_le_bytes()).collect();
                let lanes = self.pool(&lanes);
                let lanes = self.move_to_fresh(lanes, w);
                let wide = Code::EVEX_Vpermd_zmm_k1z_zmm_zmmm512b32;
                let code = if w == 16 { wide } else { Code::VEX_Vpermd_ymm_ymm_ymmm256 };
                self.f.def(code, &[Opnd::R(twice, size), Opnd::R(lanes, size), Opnd::R(mask, size)]);
            }
            let keep: Vec<u8> = (0..w).flat_map(|i| (((i % 2 == h) as u32).wrapping_neg()).to_le_bytes()).collect();
            let keep = self.pool(&keep);
            self.v3(V3::And, w, own, twice, keep);
            Opnd::R(self.load_masked(w, m, own), size)
        });
        let ([a, b], r) = (halves, self.f.reg(size));
        let d = Opnd::R(r, size);
        match (w, a) {
            (16, Opnd::R(first, _)) => {
                let order: Vec<u8> =
                    (0..16u32).flat_map(|i| if i < 8 { 2 * i } else { 2 * i + 1 }.to_le_bytes()).collect();
                let order = self.pool(&order);
                // this instruction overwrites the first vector and not the indices, so these may stay in a register
                let order = Opnd::R(self.move_to_fresh(order, w), size);
                self.f.update(Code::EVEX_Vpermt2ps_zmm_k1z_zmm_zmmm512b32, &[a, order, b]);
                return first;
            }
            (8, _) => {
                let t = Opnd::R(self.f.reg(size), size);
                self.f.def(Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8, &[t, a, b, Opnd::I8(0xd8)]);
                self.f.def(Code::VEX_Vpermpd_ymm_ymmm256_imm8, &[d, t, Opnd::I8(0xd8)]);
            }
            _ => self.f.def(Code::VEX_Vshufps_xmm_xmm_xmmm128_imm8, &[d, a, b, Opnd::I8(0xd8)]),
        }
        r
    }

    pub(super) fn move_to_fresh(&mut self, v: Val, w: usize) -> VReg {
        let r = self.f.reg(vec_size(w));
        self.move_to(r, v, DType::I32, w);
        r
    }

    /// Loads 32-bit lanes from arbitrary addresses: by a permutation or broadcast if possible, otherwise by a gather
    /// instruction.
    fn gather(&mut self, u: UOp, gate: Option<UOp>, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let (g, size) = (self.g, vec_size(w));
        let (index, dt) = (g.src_at(u, 0), g.dtype(u));
        if let Some(v) = self.load_permuted(u, pt, off, w)? {
            return Ok(v);
        }
        if let Some(v) = self.load_reversed(u, gate, pt, off, w)? {
            return Ok(v);
        }
        let offset = g.src_at(index, 1);
        let lane = self.p.lane_stride(index, !0);
        if w == 16
            && lane == 0
            && self.tiles[offset.0 as usize].lane == 0
            && let (Some(gate), &[_, alt, _]) = (gate, g.src(u))
        {
            // all lanes have one address: a masked broadcast reads it only if some lane's mask is set
            let m = self.address(index, pt, off)?;
            let (alt, mask) = (self.demand(alt, pt, off, w)?, self.demand_reg(gate, pt, off, w)?);
            let r = self.f.reg(size);
            self.move_to(r, alt, dt, w);
            self.mask_to_k1(mask);
            let ops = [Opnd::R(r, size), Opnd::M(m)];
            self.f.emit(Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32, &ops, 1, !0, 9).masked = true;
            return Ok(Val::R(r));
        }
        let steps: Vec<u8> = (0..w).flat_map(|i| ((lane * i as i64) as i32).to_le_bytes()).collect();
        let steps = self.pool(&steps);
        let mut m;
        let lanes = if self.tiles[offset.0 as usize].lane > 0 {
            let v = self.demand_reg(offset, pt, off, w)?;
            m = self.fixed_address(index, pt, off, None, 0)?;
            match lane {
                0 => v,
                _ => self.binary_vector(Op::Add, DType::I32, w, Val::R(v), steps, None)?,
            }
        } else {
            let at = self.address(index, pt, off)?;
            let r = self.f.reg(Size::Q);
            self.f.def(Code::Lea_r64_m, &[Opnd::R(r, Size::Q), Opnd::M(at)]);
            m = Mem { scale: 4, ..Mem::at(Base::Reg(r), 0) };
            self.reg(steps, DType::I32, w)?
        };
        (m.index, m.vector) = (Some(lanes), Some(size));
        let (r, alt) = (self.f.reg(size), g.src(u).get(1).copied());
        let init = match alt {
            Some(a) => self.demand(a, pt, off, w)?,
            None => self.lanes_of(0, w),
        };
        let mask = gate.map(|g| self.demand_reg(g, pt, off, w)).transpose()?;
        self.move_to(r, init, dt, w);
        if w == 16 {
            match mask {
                Some(mask) => self.mask_to_k1(mask),
                None => {
                    let k = Opnd::P(Register::K1);
                    self.f.emit(Code::VEX_Kxnorw_kr_kr_kr, &[k, k, k], 1, 0, 9);
                }
            }
            let ops = [Opnd::R(r, size), Opnd::M(m)];
            self.f.emit(Code::EVEX_Vgatherdps_zmm_k1_vm32z, &ops, 1, !0, 9).masked = true;
            return Ok(Val::R(r));
        }
        let k = self.f.reg(size); // the gather clears its mask, so it gets a copy
        let mask = match mask {
            Some(m) => Val::R(m),
            None => self.lanes_of(u32::MAX, w),
        };
        self.move_to(k, mask, DType::I32, w);
        let code = if w == 8 { Code::VEX_Vgatherdps_ymm_vm32y_ymm } else { Code::VEX_Vgatherdps_xmm_vm32x_xmm };
        self.f.emit(code, &[Opnd::R(r, size), Opnd::M(m), Opnd::R(k, size)], 0b101, !0, 9);
        Ok(Val::R(r))
    }

    /// Loads one lane. With `fold`, an ungated 32-bit element may remain a memory operand.
    fn load_lane(&mut self, u: UOp, pt: &Point, off: usize, fold: bool) -> Result<Val> {
        let (index, dt) = (self.g.src_at(u, 0), self.g.dtype(u));
        let gate = match self.gate(u, pt, off, 1) {
            Gate::Open => None,
            Gate::Closed => return self.demand(self.g.src_at(u, 1), pt, off, 1),
            Gate::Conditional(gate) => Some(gate),
        };
        let m = self.address(index, pt, off)?;
        let Some(gate) = gate else {
            return Ok(if fold && is_word(dt) { Val::M(m) } else { self.load_scalar(dt, m) });
        };
        let alt = self.demand(self.g.src_at(u, 1), pt, off, 1)?;
        let r = self.fresh(dt, 1);
        self.move_to(r, alt, dt, 1);
        let skip = self.skip_unless_gate(gate, pt, off)?;
        let v = self.load_scalar(dt, m);
        self.move_to(r, v, dt, 1);
        self.f.label(skip);
        Ok(Val::R(r))
    }

    /// Loads one element, extended to 32 bits if it is narrower.
    pub(super) fn load_scalar(&mut self, dt: DType, m: Mem) -> Val {
        let r = self.fresh(dt, 1);
        let (size, code) = match dt {
            DType::Bool => {
                self.f.def(Code::Mov_r32_imm32, &[Opnd::R(r, Size::D), Opnd::I32(0)]);
                self.f.read(Code::Cmp_rm8_imm8, &[Opnd::M(m), Opnd::I8(0)]);
                self.f.update(Code::Setne_rm8, &[Opnd::R(r, Size::B)]);
                return Val::R(r);
            }
            DType::I8 => (Size::D, Code::Movsx_r32_rm8),
            DType::U8 => (Size::D, Code::Movzx_r32_rm8),
            DType::I16 => (Size::D, Code::Movsx_r32_rm16),
            DType::U16 => (Size::D, Code::Movzx_r32_rm16),
            DType::F32 => (Size::X, Code::VEX_Vmovss_xmm_m32),
            DType::F64 => (Size::X, Code::VEX_Vmovsd_xmm_m64),
            DType::F16 | DType::BF16 => {
                let bits = self.f.reg(Size::Q);
                self.f.def(Code::Movzx_r32_rm16, &[Opnd::R(bits, Size::D), Opnd::M(m)]);
                if dt == DType::BF16 {
                    self.f.update(Code::Shl_rm32_imm8, &[Opnd::R(bits, Size::D), Opnd::I8(16)]);
                }
                self.f.def(Code::VEX_Vmovd_xmm_rm32, &[Opnd::R(r, Size::X), Opnd::R(bits, Size::D)]);
                if dt == DType::F16 {
                    let t = self.f.reg(Size::X);
                    self.f.def(Code::VEX_Vcvtph2ps_xmm_xmmm64, &[Opnd::R(t, Size::X), Opnd::R(r, Size::X)]);
                    return Val::R(t);
                }
                return Val::R(r);
            }
            _ if wide(dt) => (Size::Q, Code::Mov_r64_rm64),
            _ => (Size::D, Code::Mov_r32_rm32),
        };
        self.f.def(code, &[Opnd::R(r, size), Opnd::M(m)]);
        Val::R(r)
    }

    /// Loads contiguous lanes, extended to 32 bits if they are narrower.
    fn load_vector(&mut self, dt: DType, w: usize, m: Mem) -> Result<VReg> {
        let r = self.fresh(dt, w);
        let op = match dt {
            DType::Bool | DType::U8 => V2::LoadU8,
            DType::I8 => V2::LoadI8,
            DType::U16 | DType::BF16 => V2::LoadU16,
            DType::I16 => V2::LoadI16,
            DType::F16 => V2::LoadF16,
            _ => V2::Load,
        };
        self.v2(op, words(dt, w), r, Val::M(m));
        match dt {
            DType::Bool => {
                let zero = self.lanes_of(0, w);
                self.binary_vector(Op::CmpNe, DType::I32, w, Val::R(r), zero, None)
            }
            DType::BF16 => {
                let t = self.f.reg(vec_size(w));
                self.shift(ShiftImm::Shl, w, t, r, 16);
                Ok(t)
            }
            _ => Ok(r),
        }
    }

    /// Loads one element of 32 or 64 bits into all lanes with one instruction; `None` if that is not possible.
    pub(super) fn load_broadcast(&mut self, u: UOp, pt: &Point, w: usize) -> Result<Option<Val>> {
        let dt = self.g.dtype(u);
        let gate = match self.gate(u, pt, 0, 1) {
            _ if !is_whole(dt) => return Ok(None),
            Gate::Open => None,
            Gate::Conditional(gate) if self.g.const_val(self.g.src_at(u, 1)).is_some_and(|c| c.is(0)) => Some(gate),
            _ => return Ok(None),
        };
        let mut m = self.address(self.g.src_at(u, 0), pt, 0)?;
        if let Some(gate) = gate {
            m = self.select_address(gate, pt, 0, m)?;
        }
        let r = self.fresh(dt, w);
        let code = match (w, wide(dt)) {
            (8, true) => Code::EVEX_Vbroadcastsd_zmm_k1z_xmmm64,
            (_, true) => Code::VEX_Vbroadcastsd_ymm_m64,
            (16, _) => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
            (8, _) => Code::VEX_Vbroadcastss_ymm_m32,
            _ => Code::VEX_Vbroadcastss_xmm_m32,
        };
        self.f.def(code, &[Opnd::R(r, vec_size(words(dt, w))), Opnd::M(m)]);
        Ok(Some(Val::R(r)))
    }

    pub(super) fn store(&mut self, u: UOp) -> Result<()> {
        let src: SmallVec<[UOp; 4]> = self.g.srcs(u);
        let (index, value, gate) = (src[0], src[1], src.get(2).copied());
        let dt = self.g.dtype(value);
        let tile = self.tiles[u.0 as usize].clone();
        if let Some(axis) = self.transposed_axis(u) {
            return self.store_transposed(index, value, &tile, axis);
        }
        if let Some(axis) = self.p.woven(u) {
            return self.store_interleaved(index, value, &tile, axis.id);
        }
        // all lanes may store to one address: then they store in order, and the last one's value stays
        let contiguous = self.tiles[index.0 as usize].lane > 0 && self.contiguous(index);
        let lane_gate = gate.is_some_and(|g| self.tiles[g.0 as usize].lane > 0);
        let non_temporal = self.non_temporal_alignment(index);
        for pt in tile.points() {
            for (off, w) in self.parts_of(value, tile.lane) {
                if w == 1 || !contiguous || lane_gate && !is_whole(dt) {
                    for i in off..off + w {
                        self.store_lane(index, value, gate, &pt, i)?;
                    }
                    continue;
                }
                let v = self.demand_reg(value, &pt, off, w)?;
                let m = self.address(index, &pt, off)?;
                let (words, size) = (words(dt, w), vec_size(words(dt, w)));
                match gate {
                    None if non_temporal
                        .is_some_and(|unit| words > 4 && self.is_vector_aligned(index, unit, &pt, off, w)) =>
                    {
                        self.f.read(table::non_temporal_store(words), &[Opnd::M(m), Opnd::R(v, size)]);
                    }
                    None => self.store_vector(dt, w, m, v),
                    Some(g) if !lane_gate => {
                        let skip = self.skip_unless_gate(g, &pt, off)?;
                        self.store_vector(dt, w, m, v);
                        self.f.label(skip);
                    }
                    Some(g) if w == 16 => {
                        let condition = self.predicate(g, u, &pt, off)?;
                        self.predicate_to_k1(&condition);
                        let ops = [Opnd::M(m), Opnd::R(v, Size::Z)];
                        self.f.emit(table::store(16), &ops, 0, !0, 9).masked = true;
                    }
                    Some(g) => {
                        let mask = self.lane_mask(g, dt, &pt, off, w)?;
                        let (m, v, mask_) = (Opnd::M(m), Opnd::R(v, size), Opnd::R(mask, size));
                        match words {
                            16 => {
                                self.mask_to_k1(mask);
                                self.f.emit(table::store(16), &[m, v], 0, !0, 9).masked = true;
                            }
                            8 => self.f.read(Code::VEX_Vmaskmovps_m256_ymm_ymm, &[m, mask_, v]),
                            _ => self.f.read(Code::VEX_Vmaskmovps_m128_xmm_xmm, &[m, mask_, v]),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn store_scalar(&mut self, dt: DType, m: Mem, v: VReg) {
        let to = Opnd::M(m);
        match dt {
            DType::F32 => self.f.read(Code::VEX_Vmovss_m32_xmm, &[to, Opnd::R(v, Size::X)]),
            DType::F64 => self.f.read(Code::VEX_Vmovsd_m64_xmm, &[to, Opnd::R(v, Size::X)]),
            DType::F16 | DType::BF16 => {
                let (mut x, r) = (v, self.f.reg(Size::Q));
                if dt == DType::F16 {
                    x = self.f.reg(Size::X);
                    let ops = [Opnd::R(x, Size::X), Opnd::R(v, Size::X), Opnd::I8(0)];
                    self.f.emit(Code::VEX_Vcvtps2ph_xmmm64_xmm_imm8, &ops, 1, !1, 9);
                }
                self.f.emit(Code::VEX_Vmovd_rm32_xmm, &[Opnd::R(r, Size::D), Opnd::R(x, Size::X)], 1, !1, 9);
                if dt == DType::BF16 {
                    self.f.update(Code::Shr_rm32_imm8, &[Opnd::R(r, Size::D), Opnd::I8(16)]);
                }
                self.f.read(Code::Mov_rm16_r16, &[to, Opnd::R(r, Size::W)]);
            }
            _ => {
                let (code, size) = match dt.size() {
                    1 => (Code::Mov_rm8_r8, Size::B),
                    2 => (Code::Mov_rm16_r16, Size::W),
                    4 => (Code::Mov_rm32_r32, Size::D),
                    _ => (Code::Mov_rm64_r64, Size::Q),
                };
                self.f.read(code, &[to, Opnd::R(v, size)]);
            }
        }
    }

    pub(super) fn store_vector(&mut self, dt: DType, w: usize, m: Mem, v: VReg) {
        let (words, size) = (words(dt, w), vec_size(words(dt, w)));
        match dt {
            DType::F16 => {
                self.f.read(table::to_f16(w), &[Opnd::M(m), Opnd::R(v, size), Opnd::I8(0)]);
            }
            DType::BF16 => {
                let t = self.f.reg(size);
                self.shift(ShiftImm::Shr, w, t, v, 16);
                self.store_narrow(2, false, w, m, t);
            }
            DType::Bool => {
                let (t, one) = (self.f.reg(size), self.lanes_of(1, w));
                self.v3(V3::And, w, t, v, one);
                self.store_narrow(1, false, w, m, t);
            }
            _ if dt.size() < 4 => self.store_narrow(dt.size(), dt.is_signed(), w, m, v),
            _ => self.f.read(table::store(words), &[Opnd::M(m), Opnd::R(v, size)]),
        }
    }

    /// Stores the low 8 or 16 bits of each lane. The lanes hold values of that type, so saturating packs do not change
    /// them.
    fn store_narrow(&mut self, bytes: usize, signed: bool, w: usize, m: Mem, v: VReg) {
        if w == 16 {
            let code = if bytes == 1 { Code::EVEX_Vpmovdb_xmmm128_k1z_zmm } else { Code::EVEX_Vpmovdw_ymmm256_k1z_zmm };
            self.f.read(code, &[Opnd::M(m), Opnd::R(v, Size::Z)]);
            return;
        }
        let x = |r| Opnd::R(r, Size::X);
        let high = if w == 8 { self.quad(v, 8, 1) } else { v };
        let h = self.f.reg(Size::X);
        let (half, byte) = match signed {
            true => (Code::VEX_Vpackssdw_xmm_xmm_xmmm128, Code::VEX_Vpacksswb_xmm_xmm_xmmm128),
            false => (Code::VEX_Vpackusdw_xmm_xmm_xmmm128, Code::VEX_Vpackuswb_xmm_xmm_xmmm128),
        };
        self.f.def(half, &[x(h), x(v), x(high)]);
        let mut out = h;
        if bytes == 1 {
            out = self.f.reg(Size::X);
            self.f.def(byte, &[x(out), x(h), x(h)]);
        }
        let code = match bytes * w {
            16 => Code::VEX_Vmovups_xmmm128_xmm,
            8 => Code::VEX_Vmovq_xmmm64_xmm,
            _ => Code::VEX_Vmovd_rm32_xmm,
        };
        self.f.read(code, &[Opnd::M(m), x(out)]);
    }
}
