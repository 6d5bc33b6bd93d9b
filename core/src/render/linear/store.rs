//! Stores that are alike on every machine: of one element, and of lanes with the elements of a register axis between them.

use super::lower::{Lower, Point, Tile};
use super::machine::Machine;
use crate::Result;
use crate::uop::UOp;

impl<M: Machine> Lower<'_, M> {
    /// Tests a scalar gate; the label to put after what it guards. Everything that is used inside must exist before.
    pub(in crate::render) fn unless(&mut self, gate: UOp, pt: &Point, off: usize) -> Result<u32> {
        let condition = self.demand_reg(gate, pt, off, 1)?;
        let skip = self.f.new_label();
        M::skip_unless(self, condition, skip);
        Ok(skip)
    }

    /// Stores one lane.
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
        let skip = gate.map(|g| self.unless(g, pt, off)).transpose()?;
        M::store_scalar(self, self.g.dtype(value), m, v);
        if let Some(l) = skip {
            self.f.label(l);
        }
        Ok(())
    }

    /// Stores lanes with the elements of a register axis of two between them ([`crate::codegen::Program::woven`]).
    pub(in crate::render) fn store_woven(&mut self, index: UOp, value: UOp, tile: &Tile, axis: u8) -> Result<()> {
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
                for (half, r) in M::weave(self, a, b, w).into_iter().enumerate() {
                    let m = self.address(index, &pt, off + half * w / 2)?;
                    M::store_vector(self, dt, w, m, r);
                }
            }
        }
        Ok(())
    }
}
