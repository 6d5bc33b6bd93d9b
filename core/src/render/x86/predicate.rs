//! Conditions in AVX-512 mask registers. With 16 lanes a comparison writes a mask register, and selects and masked
//! moves read one; kept as a vector of ones and zeros, a condition would be converted in both directions. In: a
//! condition that a single instruction uses. Out: its mask in k1.

use super::table::cmp;
use super::{Lower, Opnd};
use crate::render::linear::lower::{Point, Val, wide};
use crate::render::linear::mir::{Size, VReg};
use crate::uop::{Op, UOp};
use crate::{DType, Result};
use iced_x86::{Code, Register};

/// Lanes of a mask register.
const LANES: usize = 16;
/// Number of mask registers that a condition may use (k1 to k7).
const MASK_REGISTERS: u32 = 7;

/// A condition whose operands have been computed.
pub(super) enum Predicate {
    /// A mask vector: lanes of all ones or zeros.
    Lanes(VReg),
    /// A comparison of two values of a dtype.
    Compare(Op, DType, VReg, Val),
    /// The negation of a condition.
    Not(Box<Predicate>),
    /// Two conditions joined by `and`, `or` or, for `cmp_ne`, exclusive `or`.
    Combined(Op, Box<[Predicate; 2]>),
}

impl Lower<'_> {
    /// The condition `u` of its user `by`, at sixteen lanes.
    pub(super) fn predicate(&mut self, u: UOp, by: UOp, pt: &Point, off: usize) -> Result<Predicate> {
        self.nested_predicate(u, by, pt, off, 1)
    }

    /// The same, while the mask registers below `k` hold the conditions that it will be joined with.
    fn nested_predicate(&mut self, u: UOp, by: UOp, pt: &Point, off: usize, k: u32) -> Result<Predicate> {
        if !self.compares(u, by, pt, off, k) {
            return Ok(Predicate::Lanes(self.demand_reg(u, pt, off, LANES)?));
        }
        let (op, [a, b]) = (self.g.op(u), [0, 1].map(|i| self.g.src_at(u, i)));
        let of = self.g.dtype(b);
        if of == DType::Bool {
            if self.negates(op, b) {
                return Ok(Predicate::Not(Box::new(self.nested_predicate(a, u, pt, off, k)?)));
            }
            let (first, second) =
                (self.nested_predicate(a, u, pt, off, k)?, self.nested_predicate(b, u, pt, off, k + 1)?);
            return Ok(Predicate::Combined(op, Box::new([first, second])));
        }
        let first = self.demand_reg(a, pt, off, LANES)?;
        Ok(Predicate::Compare(op, of, first, self.demand_mem(b, u, pt, off, LANES)?))
    }

    /// Is `u` a comparison, or a combination with at least one comparison, that only `by` uses? A condition with
    /// several uses is kept as a mask vector, and conditions that are all mask vectors are combined as vectors.
    fn compares(&self, u: UOp, by: UOp, pt: &Point, off: usize, k: u32) -> bool {
        let g = self.g;
        let (&[a, b], op) = (g.src(u), g.op(u)) else { return false };
        if k >= MASK_REGISTERS
            || !self.used_once(u, by)
            || self.tiles[u.0 as usize].lane == 0
            || g.const_val(u).is_some()
        {
            return false;
        }
        if matches!(op, Op::CmpLt | Op::And)
            && (self.known_value(u, pt, off, LANES).is_some() || self.unknown_part(u, pt, off, LANES) != u)
        {
            return false;
        }
        match (op, g.dtype(b)) {
            (Op::And | Op::Or | Op::CmpNe, DType::Bool) => {
                self.compares(a, u, pt, off, k) || self.compares(b, u, pt, off, k + 1)
            }
            (Op::CmpLt | Op::CmpEq | Op::CmpNe, of) => of != DType::Bool && !wide(of),
            _ => false,
        }
    }

    /// Is an operation with `b` a negation?
    fn negates(&self, op: Op, b: UOp) -> bool {
        op == Op::CmpNe && self.g.const_val(b).is_some_and(|c| c.as_bool())
    }

    /// Puts the condition in k1. No other instruction may be emitted between this and the one that reads k1.
    pub(super) fn predicate_to_k1(&mut self, p: &Predicate) {
        self.predicate_to(p, 1);
    }

    fn predicate_to(&mut self, p: &Predicate, k: u32) {
        let mask = |k: u32| Opnd::P(Register::K0 + k);
        match p {
            Predicate::Lanes(r) => {
                let ops = [mask(k), Opnd::R(*r, Size::Z)];
                self.f.emit(Code::EVEX_Vpmovd2m_kr_zmm, &ops, 1, !1, 9);
            }
            Predicate::Compare(op, dt, a, b) => {
                let b = self.opnd(*b, LANES);
                let (code, how) = match (dt.is_float(), op) {
                    (true, Op::CmpLt) => (Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, cmp::LT),
                    (true, Op::CmpEq) => (Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, cmp::EQ),
                    (true, _) => (Code::EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae, cmp::NE),
                    // narrow unsigned integers are zero-extended, so that the signed comparison orders them correctly
                    (_, Op::CmpLt) if *dt == DType::U32 => (Code::EVEX_Vpcmpud_kr_k1_zmm_zmmm512b32_imm8, 1),
                    (_, Op::CmpLt) => (Code::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8, 1),
                    (_, Op::CmpEq) => (Code::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8, 0),
                    _ => (Code::EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8, 4),
                };
                self.f.emit(code, &[mask(k), Opnd::R(*a, Size::Z), b, Opnd::I8(how)], 1, !1, 2);
            }
            Predicate::Not(p) => {
                self.predicate_to(p, k);
                self.f.emit(Code::VEX_Knotw_kr_kr, &[mask(k), mask(k)], 1, !1, 9);
            }
            Predicate::Combined(op, both) => {
                self.predicate_to(&both[0], k);
                self.predicate_to(&both[1], k + 1);
                let code = match op {
                    Op::And => Code::VEX_Kandw_kr_kr_kr,
                    Op::Or => Code::VEX_Korw_kr_kr_kr,
                    _ => Code::VEX_Kxorw_kr_kr_kr,
                };
                self.f.emit(code, &[mask(k), mask(k), mask(k + 1)], 1, !1, 9);
            }
        }
    }
}
