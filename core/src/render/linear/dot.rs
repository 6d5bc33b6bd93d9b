//! Dot products in one instruction: small groups of products that are added up in each lane, of bytes into i32, or of bf16 into f32.
//!
//! `acc += a * b` is one if both factors are widened loads, and a folded axis of a group's length is contiguous in memory: in every
//! lane of the one (its lanes follow each other, as a packed panel has them), and in the other either too or the same for
//! all lanes. The machine has the instruction, and what it takes to multiply bytes of other signs than it does.

use super::Gate;
use super::lower::{Lower, Point, Val, points};
use super::machine::Machine;
use super::mir::{Mem, VReg};
use crate::DType::{self, *};
use crate::Result;
use crate::uop::{Op, UOp};
use rustc_hash::FxHashMap;

/// A factor: the load, and whether its lanes differ.
#[derive(Clone, Copy)]
pub(in crate::render) struct Factor {
    pub(in crate::render) load: UOp,
    pub(in crate::render) dt: DType,
    pub(in crate::render) lanes: bool,
}

/// What `acc += a * b` is.
pub(in crate::render) struct Dot {
    pub(in crate::render) a: Factor,
    pub(in crate::render) b: Factor,
    /// The folded axis, by position.
    axis: u8,
}

/// What a register holds of a factor's groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::render) enum Form {
    Plain,
    /// With 128 added to, or taken from, each byte.
    Moved,
    /// What the move adds to a dot product with a moved factor.
    Extra,
}

/// A factor's groups at an element, for the lanes from an offset.
type Place = (UOp, u32, usize, Form);

/// Registers that hold factors' groups, or something made of them.
pub(in crate::render) type Groups = FxHashMap<Place, VReg>;

/// A step of a dot product: an element of the accumulator, and the groups that registers hold.
pub(in crate::render) struct Step<'a> {
    pub(in crate::render) acc: VReg,
    pub(in crate::render) pt: &'a Point,
    pub(in crate::render) off: usize,
    /// Each group of the factor without lanes is used by one instruction only.
    pub(in crate::render) once: bool,
    pub(in crate::render) known: &'a mut Groups,
}

impl<M: Machine> Lower<'_, M> {
    /// Can this AccMulAdd be done by dot products?
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

    /// Does an AccMulAdd through dot products, if they fit.
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
                    let shut = |x: Factor| self.gate(x.load, &pt, if x.lanes { off } else { 0 }, 1) == Gate::Shut;
                    if shut(d.a) || shut(d.b) {
                        continue; // zeros
                    }
                    let once = parts.len() == 1;
                    M::dot_step(self, &d, Step { acc: r, pt: &pt, off, once, known: &mut known })?;
                }
            }
        }
        Ok(true)
    }

    /// The address of a factor's group at a point, for the lanes from `off`.
    pub(in crate::render) fn group_at(&mut self, x: Factor, pt: &Point, off: usize) -> Result<Mem> {
        let off = if x.lanes { off } else { 0 };
        let m = self.address(self.g.src_at(x.load, 0), pt, off)?;
        match self.gate(x.load, pt, off, 1) {
            Gate::If(gate) => M::choose(self, gate, pt, off, m),
            _ => Ok(m),
        }
    }

    /// Bytes with the other sign, moved by 128.
    pub(in crate::render) fn moved(&mut self, x: Factor, from: VReg, s: &mut Step) -> Result<VReg> {
        let place = self.place_of(x, s, Form::Moved);
        if let Some(&r) = s.known.get(&place) {
            return Ok(r);
        }
        let half = self.lanes_of(0x8080_8080, self.max_w);
        let r = M::binary(self, Op::Xor, U32, self.max_w, Val::R(from), half, None)?;
        s.known.insert(place, r);
        Ok(r)
    }

    pub(in crate::render) fn place_of(&self, x: Factor, s: &Step, form: Form) -> Place {
        (x.load, self.tiles[x.load.0 as usize].elem(s.pt), if x.lanes { s.off } else { 0 }, form)
    }

    /// A factor's groups in a register: 32 bits a lane.
    pub(in crate::render) fn group(&mut self, x: Factor, s: &mut Step) -> Result<VReg> {
        let place = self.place_of(x, s, Form::Plain);
        if let Some(&r) = s.known.get(&place) {
            return Ok(r);
        }
        let m = self.group_at(x, s.pt, s.off)?;
        let r = M::load_groups(self, x.lanes, m);
        s.known.insert(place, r);
        Ok(r)
    }
}
