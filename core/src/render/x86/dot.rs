//! Dot products: pairs of bf16 into f32 (`vdpbf16ps`, which treats subnormals as zero), and quadruples of unsigned by
//! signed bytes and pairs of 16-bit integers into i32 (`vpdpbusd`, `vpdpwssd`); and lookups of bytes (`vpshufb`).

use super::table::V3;
use super::{Lower, Opnd};
use crate::DType::*;
use crate::Result;
use crate::render::linear::Gate;
use crate::render::linear::dot::{Dot, Factor, Form, Step};
use crate::render::linear::lower::{Point, Val, vec_size};
use crate::render::linear::mir::{Mem, Size, VReg};
use crate::target::Isa;
use crate::uop::{Op, UOp};
use iced_x86::Code;

/// 32-bit lanes of the registers of [`Dot`] steps.
const LANES: usize = 16;

impl Lower<'_> {
    pub(super) fn dot_step(&mut self, d: &Dot, mut s: Step) -> Result<()> {
        let z = |r| Opnd::R(r, vec_size(LANES));
        let acc = s.acc;
        let a = self.group(d.a, &mut s)?;
        if d.a.dt == BF16 {
            let b = match d.b.lanes {
                // one instruction only uses it and broadcasts it from memory
                false if s.single_use => Opnd::M(Mem { broadcast: true, ..self.group_at(d.b, s.pt, s.off)? }),
                _ => z(self.group(d.b, &mut s)?),
            };
            self.f.update(Code::EVEX_Vdpbf16ps_zmm_k1z_zmm_zmmm512b32, &[z(acc), z(a), b]);
            return Ok(());
        }
        let code = Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32;
        let b = self.group(d.b, &mut s)?;
        match (d.a.dt, d.b.dt) {
            (U8, I8) => self.f.update(code, &[z(acc), z(a), z(b)]),
            (I8, U8) => self.f.update(code, &[z(acc), z(b), z(a)]),
            (dt, _) => {
                // both factors have the same signedness: b is shifted by 128 to the other one, and what that adds, 128
                // or -128 times the sum of `a`, is subtracted
                let (shifted, correction) = (self.shifted(d.b, b, &mut s)?, self.correction(d.a, a, &mut s)?);
                match dt {
                    I8 => self.f.update(code, &[z(acc), z(shifted), z(a)]),
                    _ => self.f.update(code, &[z(acc), z(a), z(shifted)]),
                }
                self.v3(V3::Sub, LANES, acc, acc, Val::R(correction));
            }
        }
        Ok(())
    }

    /// The correction for a shifted other factor: 128 times the sum of each group of signed bytes, -128 times that of
    /// unsigned ones.
    fn correction(&mut self, x: Factor, from: VReg, s: &mut Step) -> Result<VReg> {
        let key = self.group_key(x, s, Form::Correction);
        if let Some(&r) = s.known.get(&key) {
            return Ok(r);
        }
        let z = |r| Opnd::R(r, vec_size(LANES));
        let r = self.f.reg(vec_size(LANES));
        let (zero, half) = (self.lanes_of(0, LANES), self.lanes_of(0x8080_8080, LANES));
        self.move_to(r, zero, I32, LANES);
        let half = self.reg(half, I32, LANES)?;
        let (unsigned, signed) = if x.dt == I8 { (half, from) } else { (from, half) };
        self.f.update(Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32, &[z(r), z(unsigned), z(signed)]);
        s.known.insert(key, r);
        Ok(r)
    }
}

/// The ops [`Op::DotBytes`] and [`Op::DotPairs`]: dot products of words.
impl Lower<'_> {
    pub(super) fn dot_words(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let (op, src) = (self.g.op(u), self.g.srcs(u));
        if w == 1 {
            let [a, b, c] = [src[0], src[1], src[2]].map(|s| self.first_lane(s, pt, off));
            let (a, b, c, d) = (a?, b?, c?, self.f.reg(Size::X));
            self.move_to(d, Val::R(c), F32, 4);
            self.add_dot(op, 4, d, a, Val::R(b))?;
            return Ok(self.from_first_lane(d));
        }
        let d = self.f.reg(vec_size(w));
        let c = self.demand(src[2], pt, off, w)?;
        self.move_to(d, c, I32, w);
        let a = self.demand_reg(src[0], pt, off, w)?;
        // if several parts of the lane axis use the word, it is loaded once
        let single_use = self.parts(self.tiles[u.0 as usize].lane, I32).len() == 1;
        let same = single_use && self.g.op(src[1]) == Op::Load && self.tiles[src[1].0 as usize].lane == 0;
        let b = match same && self.m.isa >= Isa::Avx512Vnni && self.gate(src[1], pt, off, 1) == Gate::Open {
            // the instruction broadcasts it from memory
            true => Val::M(Mem { broadcast: true, ..self.address(self.g.src_at(src[1], 0), pt, 0)? }),
            false => self.demand(src[1], pt, off, w)?,
        };
        self.add_dot(op, w, d, a, b)?;
        Ok(Val::R(d))
    }

    /// A word in the first lane of a vector: scalars are computed there.
    fn first_lane(&mut self, u: UOp, pt: &Point, off: usize) -> Result<VReg> {
        let (v, x) = (self.demand_reg(u, pt, off, 1)?, self.f.reg(Size::X));
        self.f.def(Code::VEX_Vmovd_xmm_rm32, &[Opnd::R(x, Size::X), Opnd::R(v, Size::D)]);
        Ok(x)
    }

    fn from_first_lane(&mut self, x: VReg) -> Val {
        let r = self.f.reg(Size::Q);
        self.f.emit(Code::VEX_Vmovd_rm32_xmm, &[Opnd::R(r, Size::D), Opnd::R(x, Size::X)], 1, !1, 9);
        Val::R(r)
    }

    /// The op [`Op::LookupBytes`]. Each 128 bits of a vector have a copy of the table.
    pub(super) fn lookup_bytes(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        let index = self.g.src_at(u, 0);
        let Some(table) = self.g.lookup_table(u) else {
            return Err(self.unsupported("a lookup in a computed table".into()));
        };
        let (mut at, lanes) = match w {
            1 => (self.first_lane(index, pt, off)?, 4),
            _ => (self.demand_reg(index, pt, off, w)?, w),
        };
        if let Some(mask) = self.g.lookup_mask(index) {
            let (mask, low) = (self.lanes_of(mask, lanes), self.f.reg(vec_size(lanes)));
            self.v3(V3::And, lanes, low, at, mask);
            at = low;
        }
        let table = self.pool(&table.repeat(lanes / 4));
        let (table, d) = (self.reg(table, I32, lanes)?, self.f.reg(vec_size(lanes)));
        self.v3(V3::ShuffleBytes, lanes, d, table, Val::R(at));
        Ok(if w == 1 { self.from_first_lane(d) } else { Val::R(d) })
    }

    /// `d += a . b`.
    fn add_dot(&mut self, op: Op, w: usize, d: VReg, a: VReg, b: Val) -> Result<()> {
        let size = vec_size(w);
        let z = |r| Opnd::R(r, size);
        if self.m.isa >= Isa::Avx512Vnni {
            let code = match w {
                16 if op == Op::DotPairs => Code::EVEX_Vpdpwssd_zmm_k1z_zmm_zmmm512b32,
                8 if op == Op::DotPairs => Code::EVEX_Vpdpwssd_ymm_k1z_ymm_ymmm256b32,
                _ if op == Op::DotPairs => Code::EVEX_Vpdpwssd_xmm_k1z_xmm_xmmm128b32,
                16 => Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32,
                8 => Code::EVEX_Vpdpbusd_ymm_k1z_ymm_ymmm256b32,
                _ => Code::EVEX_Vpdpbusd_xmm_k1z_xmm_xmmm128b32,
            };
            let b = self.opnd(b, w);
            self.f.update(code, &[z(d), z(a), b]);
            return Ok(());
        }
        // without VNNI: products of pairs of 16 bits, first of the even bytes, then of the odd ones
        let (multiply, [right, left, signed]) = match w {
            16 => (
                Code::EVEX_Vpmaddwd_zmm_k1z_zmm_zmmm512,
                [
                    Code::EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8,
                    Code::EVEX_Vpsllw_zmm_k1z_zmmm512_imm8,
                    Code::EVEX_Vpsraw_zmm_k1z_zmmm512_imm8,
                ],
            ),
            8 => (
                Code::VEX_Vpmaddwd_ymm_ymm_ymmm256,
                [Code::VEX_Vpsrlw_ymm_ymm_imm8, Code::VEX_Vpsllw_ymm_ymm_imm8, Code::VEX_Vpsraw_ymm_ymm_imm8],
            ),
            _ => (
                Code::VEX_Vpmaddwd_xmm_xmm_xmmm128,
                [Code::VEX_Vpsrlw_xmm_xmm_imm8, Code::VEX_Vpsllw_xmm_xmm_imm8, Code::VEX_Vpsraw_xmm_xmm_imm8],
            ),
        };
        let b = self.reg(b, I32, w)?;
        let add = |l: &mut Self, x: VReg, y: VReg| {
            let p = l.f.reg(size);
            l.f.def(multiply, &[z(p), z(x), z(y)]);
            l.v3(V3::Add, w, d, d, Val::R(p));
        };
        if op == Op::DotPairs {
            add(self, a, b);
            return Ok(());
        }
        let shifted = |l: &mut Self, code: Code, x: VReg| {
            let r = l.f.reg(size);
            // the VEX forms of these shifts have no memory operand
            l.f.emit(code, &[z(r), z(x), Opnd::I8(8)], 1, !1, 9);
            r
        };
        let mask = self.lanes_of(0x00FF_00FF, w);
        let even = self.f.reg(size);
        self.v3(V3::And, w, even, a, mask);
        let up = shifted(self, left, b);
        let parts = [(even, shifted(self, signed, up)), (shifted(self, right, a), shifted(self, signed, b))];
        parts.into_iter().for_each(|(x, y)| add(self, x, y));
        Ok(())
    }
}
