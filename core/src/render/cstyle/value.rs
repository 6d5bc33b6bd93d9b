//! The names of a value's registers in the text: one for each element of its tile, where a lane axis that is a vector
//! counts as one element.

use crate::codegen::TileAxis;
use smallvec::SmallVec;

/// An element of a tile, as `(axis id, index)` pairs.
pub(super) type Point = SmallVec<[(u8, usize); 6]>;

/// A value's registers, row-major over `axes` (without the lane axis if `vector`).
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub axes: SmallVec<[TileAxis; 4]>,
    /// Each name is a vector over the last axis.
    pub vector: bool,
    pub names: Vec<String>,
}

impl Val {
    pub(super) fn scalar(name: String) -> Val {
        Val { axes: SmallVec::new(), vector: false, names: vec![name] }
    }

    /// The lane axis, if the value has one.
    pub(super) fn lane(&self) -> Option<TileAxis> {
        self.axes.last().copied().filter(|a| a.lane)
    }

    /// The name that holds `point`, whose coordinates on axes that the value lacks are ignored.
    pub(super) fn at(&self, point: &Point) -> &str {
        let n = self.axes.len() - self.vector as usize;
        let index = self.axes[..n].iter().fold(0, |i, a| i * a.len + coordinate(point, a.id));
        &self.names[index]
    }
}

/// The index of `point` on an axis.
pub(super) fn coordinate(point: &Point, id: u8) -> usize {
    point.iter().find(|c| c.0 == id).map_or(0, |c| c.1)
}

/// `point` with its coordinate on axis `id` set to `i`.
pub(super) fn with(point: &Point, id: u8, i: usize) -> Point {
    let mut p = point.clone();
    p.retain(|c| c.0 != id);
    p.push((id, i));
    p
}

/// All points over the axes, row-major; other coordinates are those of `from`.
pub(super) fn points(from: &Point, axes: &[TileAxis]) -> Vec<Point> {
    let mut out = vec![from.clone()];
    for a in axes {
        out = out.iter().flat_map(|p| (0..a.len).map(move |i| with(p, a.id, i))).collect();
    }
    out
}
