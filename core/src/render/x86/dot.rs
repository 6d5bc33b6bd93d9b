//! Dot products in one instruction: pairs of bf16 into f32 (`vdpbf16ps`), quadruples of bytes into i32 (`vpdpbusd`).
//!
//! `acc += a * b` is one if both factors are widened loads, and a folded axis of 2 or 4 is contiguous in memory: in every
//! lane of the one (its lanes follow each other, as a packed panel has them), and in the other either too or the same for
//! all lanes. The bf16 instruction takes subnormals for zero; integers wrap as they should.

use super::gate::Gate;
use super::lower::{Lower, Point, Val, points, vec_size};
use super::mir::{Mem, Opnd, VReg};
use super::table::{self, V2, V3};
use crate::DType::{self, *};
use crate::Result;
use crate::target::Isa;
use crate::uop::{Op, UOp};
use iced_x86::Code;
use rustc_hash::FxHashMap;

/// Lanes of the instructions' registers.
const LANES: usize = 16;

/// A factor: the load, and whether its lanes differ.
#[derive(Clone, Copy)]
struct Factor {
    load: UOp,
    dt: DType,
    lanes: bool,
}

/// What `acc += a * b` is.
pub(super) struct Dot {
    a: Factor,
    b: Factor,
    /// The folded axis, by position.
    axis: u8,
}

/// What a register holds of a factor's groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Form {
    Plain,
    /// With 128 added to, or taken from, each byte.
    Moved,
    /// What the move adds to a dot product with a moved factor.
    Extra,
}

/// A factor's groups at an element, for the lanes from an offset.
type Place = (UOp, u32, usize, Form);

impl Lower<'_> {
    /// Can this AccMulAdd be done by dot products?
    pub(super) fn dot(&self, u: UOp) -> Option<Dot> {
        let [acc, a, b] = *self.g.src(u) else { return None };
        let tile = &self.tiles[acc.0 as usize];
        let (group, least) = match self.g.dtype(acc) {
            F32 => (2, Isa::Avx512Bf16),
            I32 => (4, Isa::Avx512Vnni),
            _ => return None,
        };
        if self.isa < least || tile.lane == 0 || tile.lane % LANES != 0 {
            return None;
        }
        let folded = |x: UOp| self.tiles[x.0 as usize].regs.iter().filter(|r| !tile.regs.contains(r));
        let axis = folded(a).find(|r| r.1 == group && folded(b).any(|s| s == *r))?.0;
        let (a, b) = (self.factor(a, u, axis, group)?, self.factor(b, u, axis, group)?);
        let fits = match self.g.dtype(acc) {
            F32 => a.dt == BF16 && b.dt == BF16,
            _ => matches!(a.dt, I8 | U8) && matches!(b.dt, I8 | U8),
        };
        // the one with lanes first
        let (a, b) = if a.lanes { (a, b) } else { (b, a) };
        (fits && a.lanes).then_some(Dot { a, b, axis })
    }

    fn factor(&self, x: UOp, u: UOp, axis: u8, group: u16) -> Option<Factor> {
        let g = self.g;
        let load = g.src_at(x, 0);
        if g.op(x) != Op::Cast || g.op(load) != Op::Load || self.changed_since(load, u) {
            return None;
        }
        if let [_, alt, gate] = *g.src(load) {
            // all or nothing of a group, and nothing is zeros
            let gate = &self.tiles[gate.0 as usize];
            let whole = gate.lane == 0 && gate.regs.iter().all(|r| r.0 != axis);
            if !whole || self.g.const_val(alt).is_none_or(|c| !c.is(0)) {
                return None;
            }
        }
        let (index, tile) = (g.src_at(load, 0), &self.tiles[load.0 as usize]);
        let offset = &self.tiles[g.src_at(index, 1).0 as usize];
        let together = self.p.stride(index, self.p.tiles[axis as usize].id) == 1
            && offset.lane == 0
            && offset.regs.iter().all(|r| r.0 != axis);
        let lanes = tile.lane > 0;
        let next = self.p.lane_stride(index, !0) == group as i64;
        (together && (!lanes || next)).then_some(Factor { load, dt: g.dtype(load), lanes })
    }

    /// Emits the dot products.
    pub(super) fn acc_dot(&mut self, u: UOp, d: &Dot) -> Result<()> {
        let acc = self.g.src_at(u, 0);
        let tile = self.tiles[acc.0 as usize].clone();
        let parts = self.parts(tile.lane, self.g.dtype(acc));
        let factors = [self.g.src_at(u, 1), self.g.src_at(u, 2)];
        let mut outer = self.folded(acc, &factors);
        outer.retain(|a| a.0 != d.axis);
        let mut known: FxHashMap<Place, VReg> = FxHashMap::default();
        for outer in points(&outer, Point::default()) {
            for pt in points(&tile.regs, outer) {
                let regs = self.acc_regs(acc, &pt)?;
                for (&(off, _), &r) in parts.iter().zip(&regs) {
                    self.dot_step(d, r, &pt, off, parts.len() == 1, &mut known)?;
                }
            }
        }
        Ok(())
    }

    fn dot_step(
        &mut self,
        d: &Dot,
        acc: VReg,
        pt: &Point,
        off: usize,
        once: bool,
        known: &mut FxHashMap<Place, VReg>,
    ) -> Result<()> {
        if [d.a, d.b].iter().any(|x| self.gate(x.load, pt, if x.lanes { off } else { 0 }, 1) == Gate::Shut) {
            return Ok(()); // zeros
        }
        let z = |r| Opnd::R(r, vec_size(LANES));
        let a = self.group(d.a, pt, off, known)?;
        if d.a.dt == BF16 {
            let b = match d.b.lanes {
                // used by one instruction only: broadcast by it
                false if once => Opnd::M(Mem { bcst: true, ..self.group_at(d.b, pt, off)? }),
                _ => z(self.group(d.b, pt, off, known)?),
            };
            self.f.update(Code::EVEX_Vdpbf16ps_zmm_k1z_zmm_zmmm512b32, &[z(acc), z(a), b]);
            return Ok(());
        }
        let code = Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32;
        let b = self.group(d.b, pt, off, known)?;
        match (d.a.dt, d.b.dt) {
            (U8, I8) => self.f.update(code, &[z(acc), z(a), z(b)]),
            (I8, U8) => self.f.update(code, &[z(acc), z(b), z(a)]),
            (dt, _) => {
                // one factor is moved by 128 to the other sign, and what that adds is taken off: 128 times the sum of `a`
                let (moved, extra) = (self.moved(d.b, b, pt, off, known), self.extra(d.a, a, pt, off, known)?);
                match dt {
                    I8 => self.f.update(code, &[z(acc), z(moved), z(a)]),
                    _ => self.f.update(code, &[z(acc), z(a), z(moved)]),
                }
                self.v3(V3::Sub, LANES, acc, acc, Val::R(extra));
            }
        }
        Ok(())
    }

    /// The address of a factor's group at a point, for the lanes from `off`.
    fn group_at(&mut self, x: Factor, pt: &Point, off: usize) -> Result<Mem> {
        let off = if x.lanes { off } else { 0 };
        let m = self.address(self.g.src_at(x.load, 0), pt, off)?;
        match self.gate(x.load, pt, off, 1) {
            Gate::If(gate) => self.choose(gate, pt, off, m),
            _ => Ok(m),
        }
    }

    /// Bytes with the other sign, moved by 128.
    fn moved(&mut self, x: Factor, from: VReg, pt: &Point, off: usize, known: &mut FxHashMap<Place, VReg>) -> VReg {
        let place = self.place_of(x, pt, off, Form::Moved);
        *known.entry(place).or_insert_with(|| {
            let r = self.f.reg(vec_size(LANES));
            let half = self.lanes_of(0x8080_8080, LANES);
            self.v3(V3::Xor, LANES, r, from, half);
            r
        })
    }

    /// 128 times the sum of each group of signed bytes, -128 times that of unsigned ones.
    fn extra(
        &mut self,
        x: Factor,
        from: VReg,
        pt: &Point,
        off: usize,
        known: &mut FxHashMap<Place, VReg>,
    ) -> Result<VReg> {
        let place = self.place_of(x, pt, off, Form::Extra);
        if let Some(&r) = known.get(&place) {
            return Ok(r);
        }
        let z = |r| Opnd::R(r, vec_size(LANES));
        let r = self.f.reg(vec_size(LANES));
        let (zero, half) = (self.lanes_of(0, LANES), self.lanes_of(0x8080_8080, LANES));
        self.put(r, zero, I32, LANES);
        let half = self.reg(half, I32, LANES)?;
        let (unsigned, signed) = if x.dt == I8 { (half, from) } else { (from, half) };
        self.f.update(Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32, &[z(r), z(unsigned), z(signed)]);
        known.insert(place, r);
        Ok(r)
    }

    fn place_of(&self, x: Factor, pt: &Point, off: usize, form: Form) -> Place {
        (x.load, self.tiles[x.load.0 as usize].elem(pt), if x.lanes { off } else { 0 }, form)
    }

    /// A factor's groups in a register: 32 bits a lane.
    fn group(&mut self, x: Factor, pt: &Point, off: usize, known: &mut FxHashMap<Place, VReg>) -> Result<VReg> {
        let place = self.place_of(x, pt, off, Form::Plain);
        if let Some(&r) = known.get(&place) {
            return Ok(r);
        }
        let m = self.group_at(x, pt, off)?;
        let r = self.f.reg(vec_size(LANES));
        let code = match x.lanes {
            true => table::v2(V2::Load, LANES),
            false => Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32,
        };
        self.f.def(code, &[Opnd::R(r, vec_size(LANES)), Opnd::M(m)]);
        known.insert(place, r);
        Ok(r)
    }
}
