//! Windows of an array that overlap, in languages that load an element at a time: each element is loaded once in a block, and
//! vectors are made of what is there.

use super::value::Point;
use super::walk::Walk;
use super::{At, Dialect};
use crate::Result;
use crate::codegen::TileAxis;
use crate::uop::{Arg, Graph, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

/// What windows have loaded so far.
#[derive(Default)]
pub(super) struct Windows {
    /// Names of elements by their array (by the load, where somebody may write to the array) and address, with the depth of
    /// the block that has them.
    elements: FxHashMap<(UOp, String, i64), (String, usize)>,
    /// Loads of which another one reads the same places or their neighbours.
    overlapping: Option<FxHashSet<UOp>>,
}

impl Windows {
    /// The block below `depth` has ended.
    pub(super) fn close(&mut self, depth: usize) {
        self.elements.retain(|_, x| x.1 <= depth);
    }
}

impl<D: Dialect> Walk<'_, D> {
    /// Do several vectors of a load, or those of it and another load, share elements?
    pub(super) fn slides(&mut self, u: UOp) -> bool {
        let (p, g) = (self.p, &self.p.g);
        let near =
            |list: &[(u8, i64)]| list.iter().any(|x| x.1.abs() < 4 && p.tiles.iter().any(|t| t.id == x.0 && !t.lane));
        if matches!(g.arg(g.src_at(u, 0)), Arg::Strides(s) if near(s)) {
            return true;
        }
        let overlapping = self.windows.overlapping.get_or_insert_with(|| {
            let mut found: FxHashMap<(UOp, UOp), Vec<UOp>> = FxHashMap::default();
            for &u in p.order.iter().filter(|&&u| g.op(u) == Op::Load) {
                let index = g.src_at(u, 0);
                found.entry((p.base(u), shifted(g, g.src_at(index, 1)).0)).or_default().push(u);
            }
            found.into_values().filter(|list| list.len() > 1).flatten().collect()
        });
        overlapping.contains(&u)
    }

    /// A vector of neighbours, each of which is loaded once in the block: from anywhere if it lies beyond the `last` element
    /// of the array, if that is given.
    pub(super) fn window(&mut self, u: UOp, point: &Point, lane: TileAxis, last: Option<usize>) -> Result<String> {
        let g = &self.p.g;
        let index = g.src_at(u, 0);
        let (p, mut at) = self.address(index, point, Some(lane))?;
        let (root, c) = shifted(g, g.src_at(index, 1));
        if c != 0 {
            at = At { base: self.scalar(root, point)?, plus: at.plus + c, ..at };
        }
        let read_only = self.p.slot(index).is_some_and(|s| !self.p.params[s as usize].written);
        let array = if read_only { self.p.base(u) } else { u };
        let mut parts = Vec::new();
        for at in (0..lane.len as i64).map(|i| at.plus(i)) {
            let key = (array, at.base.clone(), at.plus);
            let name = match self.windows.elements.get(&key) {
                Some((name, _)) => name.clone(),
                None => {
                    let x = match last {
                        Some(last) => self.d.load_inside(&p, &at, last),
                        None => self.d.load(&p, &at, 1),
                    };
                    let name = self.temp(p.dt, 1, &x);
                    self.windows.elements.insert(key, (name.clone(), self.depth));
                    name
                }
            };
            parts.push(name);
        }
        Ok(self.d.pack(&parts, p.dt))
    }
}

/// An offset as another one and a constant.
fn shifted(g: &Graph, offset: UOp) -> (UOp, i64) {
    let by = |i: usize| g.const_int(g.src_at(offset, i));
    match g.op(offset) {
        Op::Add => by(1).map(|c| (g.src_at(offset, 0), c)).unwrap_or((offset, 0)),
        _ => (offset, 0),
    }
}
