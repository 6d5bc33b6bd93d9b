//! Shares the loads of overlapping windows, in languages where loading a vector means loading its elements one by one:
//! within a block each element is loaded once, and the vectors are built from the named elements.

use super::value::Point;
use super::walk::Walk;
use super::{At, Dialect};
use crate::Result;
use crate::codegen::TileAxis;
use crate::uop::{Arg, Graph, Op, UOp};

/// The elements that windows have loaded so far in the open blocks.
#[derive(Default)]
pub(super) struct WindowLoads {
    elements: Vec<Element>,
    /// For every load of the program: its array, its offset without the constant addend, and the load itself.
    loads: Vec<(UOp, UOp, UOp)>,
}

/// An element that has been loaded into a named constant.
struct Element {
    /// The array, or the load itself if the kernel may write to the array.
    array: UOp,
    at: (String, i64),
    name: String,
    /// Nesting depth of the block in which the name is declared.
    depth: usize,
}

impl WindowLoads {
    /// Forgets the elements of the block that has just ended, which was deeper than `depth`.
    pub(super) fn close(&mut self, depth: usize) {
        self.elements.retain(|x| x.depth <= depth);
    }
}

impl<D: Dialect> Walk<'_, D> {
    /// Do several vectors of a load, or those of it and another load, share elements?
    pub(super) fn shares_elements(&mut self, u: UOp) -> bool {
        let (p, g) = (self.p, &self.p.g);
        let array = p.base(u);
        if !self.ptrs.get(&array).is_some_and(|ptr| self.d.loads_elements(ptr, 4)) {
            return false;
        }
        let overlapping =
            |list: &[(u8, i64)]| list.iter().any(|x| x.1.abs() < 4 && p.tiles.iter().any(|t| t.id == x.0 && !t.lane));
        if matches!(g.arg(g.src_at(u, 0)), Arg::Strides(s) if overlapping(s)) {
            return true;
        }
        let root = |u: UOp| shifted(g, g.src_at(g.src_at(u, 0), 1)).0;
        if self.windows.loads.is_empty() {
            let all = p.order.iter().filter(|&&u| g.op(u) == Op::Load);
            self.windows.loads = all.map(|&u| (p.base(u), root(u), u)).collect();
        }
        let own = root(u);
        self.windows.loads.iter().any(|x| x.0 == array && x.1 == own && x.2 != u)
    }

    /// A vector of adjacent elements, each of which is loaded once in the block. If `last`, the array's last element,
    /// is given, an element outside the array is replaced by any element inside.
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
            let key = (at.base.clone(), at.plus);
            let name = match self.windows.elements.iter().rfind(|x| x.array == array && x.at == key) {
                Some(x) => x.name.clone(),
                None => {
                    let x = match last {
                        Some(last) => self.d.load_inside(&p, &at, last),
                        None => self.d.load(&p, &at, 1),
                    };
                    let name = self.temp(p.dt, 1, &x);
                    self.windows.elements.push(Element { array, at: key, name: name.clone(), depth: self.depth });
                    name
                }
            };
            parts.push(name);
        }
        Ok(self.d.pack(&parts, p.dt))
    }
}

/// Splits a constant addend from an offset.
fn shifted(g: &Graph, offset: UOp) -> (UOp, i64) {
    let by = |i: usize| g.const_int(g.src_at(offset, i));
    match g.op(offset) {
        Op::Add => by(1).map(|c| (g.src_at(offset, 0), c)).unwrap_or((offset, 0)),
        _ => (offset, 0),
    }
}
