//! Dot products: pairs of bf16 into f32 (`vdpbf16ps`), which takes subnormals for zero, and quadruples of bytes, unsigned by signed, into i32
//! (`vpdpbusd`).

use super::table::V3;
use super::{Lower, Opnd};
use crate::DType::*;
use crate::Result;
use crate::render::linear::dot::{Dot, Factor, Form, Step};
use crate::render::linear::lower::{Val, vec_size};
use crate::render::linear::mir::{Mem, VReg};
use iced_x86::Code;

/// Lanes of the instructions' registers.
const LANES: usize = 16;

impl Lower<'_> {
    pub(super) fn dot_step(&mut self, d: &Dot, mut s: Step) -> Result<()> {
        let z = |r| Opnd::R(r, vec_size(LANES));
        let acc = s.acc;
        let a = self.group(d.a, &mut s)?;
        if d.a.dt == BF16 {
            let b = match d.b.lanes {
                // used by one instruction only: broadcast by it
                false if s.once => Opnd::M(Mem { bcst: true, ..self.group_at(d.b, s.pt, s.off)? }),
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
                // one factor is moved by 128 to the other sign, and what that adds is taken off: 128 times the sum of `a`
                let (moved, extra) = (self.moved(d.b, b, &mut s)?, self.extra(d.a, a, &mut s)?);
                match dt {
                    I8 => self.f.update(code, &[z(acc), z(moved), z(a)]),
                    _ => self.f.update(code, &[z(acc), z(a), z(moved)]),
                }
                self.v3(V3::Sub, LANES, acc, acc, Val::R(extra));
            }
        }
        Ok(())
    }

    /// 128 times the sum of each group of signed bytes, -128 times that of unsigned ones.
    fn extra(&mut self, x: Factor, from: VReg, s: &mut Step) -> Result<VReg> {
        let place = self.place_of(x, s, Form::Extra);
        if let Some(&r) = s.known.get(&place) {
            return Ok(r);
        }
        let z = |r| Opnd::R(r, vec_size(LANES));
        let r = self.f.reg(vec_size(LANES));
        let (zero, half) = (self.lanes_of(0, LANES), self.lanes_of(0x8080_8080, LANES));
        self.put(r, zero, I32, LANES);
        let half = self.reg(half, I32, LANES)?;
        let (unsigned, signed) = if x.dt == I8 { (half, from) } else { (from, half) };
        self.f.update(Code::EVEX_Vpdpbusd_zmm_k1z_zmm_zmmm512b32, &[z(r), z(unsigned), z(signed)]);
        s.known.insert(place, r);
        Ok(r)
    }
}
