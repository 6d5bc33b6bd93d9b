//! Strength reduction of addresses: an address that is affine in loop indices is kept in a local that each iteration
//! increments by a constant, instead of being recomputed by multiplications and additions. Engines do not do this
//! themselves.
//!
//! For an address that is a sum of loop indices times constants, each loop has a local: at the start of a loop it is
//! set to the local of the enclosing loop, and each iteration adds the loop's own constant. Which addresses are needed
//! becomes known only while the loop's body is emitted, so the initialisation is inserted before the loop afterwards
//! (`Func::insert`).

use super::emit::Emit;
use crate::analysis::affine;
use crate::uop::UOp;
use smallvec::SmallVec;
use wasm_encoder::ValType;

/// The most addresses that one loop increments. Each takes a register, and processors have no registers for more.
const MAX_INDUCTION_ADDRESSES: usize = 6;

/// An affine address: buffer, constant, and the factor of the index of each open loop, outermost first; both in bytes.
type Key = (UOp, i32, SmallVec<[i32; 8]>);

/// An address that a loop increments by `bytes` in each iteration.
pub(super) struct Step {
    key: Key,
    local: u32,
    bytes: i32,
}

impl Emit<'_> {
    /// A local that holds `pointer + x * size + below` at the current tile point, if x is affine in the open loops and
    /// the loop has not too many such addresses.
    pub(super) fn induction_address(
        &mut self,
        buffer: UOp,
        pointer: u32,
        x: UOp,
        size: i64,
        below: i64,
    ) -> Option<u32> {
        let g = &self.p.g;
        if g.dtype(x).size() != 4 || self.info(x).lane {
            return None;
        }
        let form = affine(g, x);
        if !form.is_whole() {
            return None;
        }
        let mut at = form.constant.wrapping_mul(size).wrapping_add(below);
        let mut steps: SmallVec<[i32; 8]> = SmallVec::from_elem(0, self.scopes.len());
        for &(r, times) in &form.terms {
            let bytes = times.wrapping_mul(size);
            if g.kind(r).is_tile() {
                at = at.wrapping_add(bytes.wrapping_mul(self.tile_point[g.range_arg(r).id as usize] as i64));
                continue;
            }
            if g.dtype(r).size() != 4 {
                return None;
            }
            let depth = self.scopes.iter().position(|s| s.range == Some(r))?;
            steps[depth] = steps[depth].wrapping_add(bytes as i32);
        }
        while steps.last() == Some(&0) {
            steps.pop();
        }
        // an address that does not depend on a loop gains nothing
        if steps.is_empty() || self.scopes[steps.len() - 1].steps.len() >= MAX_INDUCTION_ADDRESSES {
            return None;
        }
        Some(self.step((buffer, at as i32, steps), pointer))
    }

    /// The local of an address in the innermost loop on which it depends, which is created if there is none.
    fn step(&mut self, key: Key, pointer: u32) -> u32 {
        let depth = key.2.len() - 1;
        if let Some(s) = self.scopes[depth].steps.iter().find(|s| s.key == key) {
            return s.local;
        }
        let mut outer = key.2.clone();
        let bytes = outer.pop().unwrap_or(0);
        while outer.last() == Some(&0) {
            outer.pop();
        }
        // a new local, since it is set at the start of the loop: the code from there to here must not use it for
        // anything else
        let local = self.f.pinned(ValType::I32);
        let base = if outer.is_empty() { None } else { Some(self.step((key.0, key.1, outer), pointer)) };
        let range = self.scopes[depth].range.filter(|&r| self.p.g.kind(r).is_launch());
        let first = range.map(|r| self.ranges[&r]);
        let start = self.scopes[depth].start;
        let n = self.f.insert(start, |w| {
            w.local_get(base.unwrap_or(pointer));
            if base.is_none() && key.1 != 0 {
                w.i32_const(key.1).i32_add();
            }
            if let Some(first) = first {
                w.local_get(first).i32_const(bytes).i32_mul().i32_add();
            }
            w.local_set(local);
        });
        for s in &mut self.scopes[depth + 1..] {
            s.start += n;
        }
        self.scopes[depth].steps.push(Step { key, local, bytes });
        local
    }

    /// Increments a loop's addresses at the end of an iteration.
    pub(super) fn increment_addresses(&mut self, steps: Vec<Step>) {
        for s in steps {
            self.f.w().local_get(s.local).i32_const(s.bytes).i32_add().local_set(s.local);
            self.f.release(s.local);
        }
    }
}
