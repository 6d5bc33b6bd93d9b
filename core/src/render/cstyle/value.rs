//! A value as names: one per register of its tile, or one per register and lane where lanes are not vectors.

use crate::codegen::TileAxis;
use smallvec::SmallVec;

/// Where a point of a tile lies: `(axis id, index)`.
pub(super) type Point = SmallVec<[(u8, usize); 6]>;

/// Names of a value's registers, row-major over `axes` (without the lane axis if `vector`).
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

    /// The name that holds `point`, of which other values' axes are ignored.
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

/// `point` with one more coordinate.
pub(super) fn with(point: &Point, id: u8, i: usize) -> Point {
    let mut p = point.clone();
    p.retain(|c| c.0 != id);
    p.push((id, i));
    p
}

/// All points over the axes, row-major, each added to `from`.
pub(super) fn points(from: &Point, axes: &[TileAxis]) -> Vec<Point> {
    let mut out = vec![from.clone()];
    for a in axes {
        out = out.iter().flat_map(|p| (0..a.len).map(move |i| with(p, a.id, i))).collect();
    }
    out
}
