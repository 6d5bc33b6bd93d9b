//! Accumulator updates by dot-product instructions, which add up small groups of products in each lane: four products
//! of bytes into i32, or two of bf16 into f32.
//!
//! `acc += a * b` becomes such an instruction if both factors are widened loads and a reduced register axis, as long as
//! a group, is contiguous in memory for both. In one factor (`a`) each lane has its own group, and the groups of the
//! lanes follow each other as in a packed panel; in the other the groups are the same for all lanes or laid out
//! likewise. The machine emits the instruction and corrects for bytes whose signedness the instruction does not have.

use super::Gate;
use super::lower::{Lower, Point, Val, points};
use super::machine::Machine;
use super::mir::{Mem, VReg};
use crate::DType::{self, *};
use crate::Result;
use crate::uop::{Op, UOp};
use rustc_hash::FxHashMap;

/// A factor of a dot product: its load, the dtype in memory, and whether its groups differ between lanes.
#[derive(Clone, Copy)]
pub(in crate::render) struct Factor {
    pub(in crate::render) load: UOp,
    pub(in crate::render) dt: DType,
    pub(in crate::render) lanes: bool,
}

/// An update `acc += a * b` that dot-product instructions can do.
pub(in crate::render) struct Dot {
    pub(in crate::render) a: Factor,
    pub(in crate::render) b: Factor,
    /// The reduced axis of a group, as a position in `Program::tiles`.
    axis: u8,
}

/// What a register holds for the groups of a factor.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::render) enum Form {
    Plain,
    /// The groups with 128 added to, or subtracted from, each byte, which turns signed bytes into unsigned ones or the
    /// reverse.
    Shifted,
    /// The correction for a shifted other factor: what the shift by 128 adds to the dot product.
    Correction,
}

/// Key of a factor's register: the load, its element, the lane offset, and the form.
type GroupKey = (UOp, u32, usize, Form);

/// Registers that hold groups of factors, or values derived from them, for reuse by later steps of the update.
pub(in crate::render) type Groups = FxHashMap<GroupKey, VReg>;

/// One dot-product instruction of an update: an element of the accumulator, and the groups that registers hold already.
pub(in crate::render) struct Step<'a> {
    pub(in crate::render) acc: VReg,
    pub(in crate::render) pt: &'a Point,
    pub(in crate::render) off: usize,
    /// Only one instruction uses each group of the factor whose groups are the same for all lanes.
    pub(in crate::render) single_use: bool,
    pub(in crate::render) known: &'a mut Groups,
}

impl<M: Machine> Lower<'_, M> {
    /// Matches an AccMulAdd that dot-product instructions can do.
    fn dot(&self, u: UOp) -> Option<Dot> {
        let [acc, a, b] = *self.g.src(u) else { return None };
        let tile = &self.tiles[acc.0 as usize];
        let group = self.m.dot_group(self.g.dtype(acc))?;
        if tile.lane == 0 || tile.lane % self.max_w != 0 {
            return None;
        }
        let folded = |x: UOp| self.tiles[x.0 as usize].regs.iter().filter(|r| !tile.regs.contains(r));
        let axis = folded(a).find(|r| r.1 == group && folded(b).any(|s| s == *r))?.0;
        let (a, b) = (self.factor(a, u, axis, group)?, self.factor(b, u, axis, group)?);
        let fits = match self.g.dtype(acc) {
            F32 => a.dt == BF16 && b.dt == BF16,
            _ => matches!(a.dt, I8 | U8) && matches!(b.dt, I8 | U8),
        };
        // `a` is the factor whose groups differ between lanes
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
            // the gate must hold for all or none of a group, and the alternative must be zero
            let gate = &self.tiles[gate.0 as usize];
            let whole = gate.lane == 0 && gate.regs.iter().all(|r| r.0 != axis);
            if !whole || self.g.const_val(alt).is_none_or(|c| !c.is(0)) {
                return None;
            }
        }
        let (index, tile) = (g.src_at(load, 0), &self.tiles[load.0 as usize]);
        let offset = &self.tiles[g.src_at(index, 1).0 as usize];
        let contiguous = self.p.stride(index, self.p.tiles[axis as usize].id) == 1
            && offset.lane == 0
            && offset.regs.iter().all(|r| r.0 != axis);
        let lanes = tile.lane > 0;
        let next = self.p.lane_stride(index, !0) == group as i64;
        (contiguous && (!lanes || next)).then_some(Factor { load, dt: g.dtype(load), lanes })
    }

    /// Emits an AccMulAdd as dot products if it matches; false otherwise.
    pub(super) fn acc_dot(&mut self, u: UOp) -> Result<bool> {
        let Some(d) = self.dot(u) else { return Ok(false) };
        let acc = self.g.src_at(u, 0);
        let tile = self.tiles[acc.0 as usize].clone();
        let parts = self.parts(tile.lane, self.g.dtype(acc));
        let factors = [self.g.src_at(u, 1), self.g.src_at(u, 2)];
        let mut outer = self.folded(acc, &factors);
        outer.retain(|a| a.0 != d.axis);
        let mut known = Groups::default();
        for outer in points(&outer, Point::default()) {
            for pt in points(&tile.regs, outer) {
                let regs = self.acc_regs(acc, &pt)?;
                for (&(off, _), &r) in parts.iter().zip(&regs) {
                    let closed = |x: Factor| self.gate(x.load, &pt, if x.lanes { off } else { 0 }, 1) == Gate::Closed;
                    if closed(d.a) || closed(d.b) {
                        continue; // a factor of zeros adds nothing
                    }
                    let single_use = parts.len() == 1;
                    M::dot_step(self, &d, Step { acc: r, pt: &pt, off, single_use, known: &mut known })?;
                }
            }
        }
        Ok(true)
    }

    /// The address of a factor's group at a point, for the lanes from `off`; that of zeros where the load's gate does
    /// not hold.
    pub(in crate::render) fn group_at(&mut self, x: Factor, pt: &Point, off: usize) -> Result<Mem> {
        let off = if x.lanes { off } else { 0 };
        let m = self.address(self.g.src_at(x.load, 0), pt, off)?;
        match self.gate(x.load, pt, off, 1) {
            Gate::Conditional(gate) => M::select_address(self, gate, pt, off, m),
            _ => Ok(m),
        }
    }

    /// The groups of a factor shifted by 128, so that signed bytes become unsigned ones or the reverse.
    pub(in crate::render) fn shifted(&mut self, x: Factor, from: VReg, s: &mut Step) -> Result<VReg> {
        let key = self.group_key(x, s, Form::Shifted);
        if let Some(&r) = s.known.get(&key) {
            return Ok(r);
        }
        let half = self.lanes_of(0x8080_8080, self.max_w);
        let r = M::binary(self, Op::Xor, U32, self.max_w, Val::R(from), half, None)?;
        s.known.insert(key, r);
        Ok(r)
    }

    pub(in crate::render) fn group_key(&self, x: Factor, s: &Step, form: Form) -> GroupKey {
        (x.load, self.tiles[x.load.0 as usize].elem(s.pt), if x.lanes { s.off } else { 0 }, form)
    }

    /// Loads a factor's groups into a register, 32 bits a lane.
    pub(in crate::render) fn group(&mut self, x: Factor, s: &mut Step) -> Result<VReg> {
        let key = self.group_key(x, s, Form::Plain);
        if let Some(&r) = s.known.get(&key) {
            return Ok(r);
        }
        let m = self.group_at(x, s.pt, s.off)?;
        let r = M::load_groups(self, x.lanes, m);
        s.known.insert(key, r);
        Ok(r)
    }
}
