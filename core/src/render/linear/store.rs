//! Stores that every machine emits in the same way: of one element, and of lanes that are interleaved in memory with
//! the elements of a register axis of two.

use super::lower::{Lower, Point, Tile};
use super::machine::Machine;
use crate::Result;
use crate::uop::UOp;

impl<M: Machine> Lower<'_, M> {
    /// Emits a branch around what a scalar gate guards and returns the label that the caller must place after it. Every
    /// value that is used inside must have been computed before, since later code may reuse it.
    pub(in crate::render) fn skip_unless_gate(&mut self, gate: UOp, pt: &Point, off: usize) -> Result<u32> {
        let condition = self.demand_reg(gate, pt, off, 1)?;
        let skip = self.f.new_label();
        M::skip_unless(self, condition, skip);
        Ok(skip)
    }

    /// Stores one lane, under its gate if it has one.
    pub(in crate::render) fn store_lane(
        &mut self,
        index: UOp,
        value: UOp,
        gate: Option<UOp>,
        pt: &Point,
        off: usize,
    ) -> Result<()> {
        let v = self.demand_reg(value, pt, off, 1)?;
        let m = self.address(index, pt, off)?;
        let skip = gate.map(|g| self.skip_unless_gate(g, pt, off)).transpose()?;
        M::store_scalar(self, self.g.dtype(value), m, v);
        if let Some(l) = skip {
            self.f.label(l);
        }
        Ok(())
    }

    /// Stores lanes that are two elements apart in memory; the elements of a register axis of two fill the gaps
    /// ([`crate::codegen::Program::woven`]). Two vectors are interleaved in registers and stored as two contiguous
    /// vectors.
    pub(in crate::render) fn store_interleaved(&mut self, index: UOp, value: UOp, tile: &Tile, axis: u8) -> Result<()> {
        let dt = self.g.dtype(value);
        let axis = self.p.tiles.iter().position(|t| t.id == axis).expect("a tile axis of the program");
        for pt in tile.points().into_iter().filter(|p| p.0[axis] == 0) {
            let mut next = pt;
            next.0[axis] = 1;
            for (off, w) in self.parts(tile.lane, dt) {
                if w == 1 {
                    for at in [&pt, &next] {
                        self.store_lane(index, value, None, at, off)?;
                    }
                    continue;
                }
                let [a, b] = [self.demand_reg(value, &pt, off, w)?, self.demand_reg(value, &next, off, w)?];
                for (half, r) in M::interleave(self, a, b, w).into_iter().enumerate() {
                    let m = self.address(index, &pt, off + half * w / 2)?;
                    M::store_vector(self, dt, w, m, r);
                }
            }
        }
        Ok(())
    }
}
