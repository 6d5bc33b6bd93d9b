//! A program: one compiled kernel, with its nodes in execution order. It is the input of every renderer and of the
//! interpreter.
//!
//! `order` lists nodes of `g` so that sources come first; constants, tile ranges and pointers need no position in it
//! but may appear. How to read it (semantics of each op are in [`crate::uop::op`]):
//! - **Launch.** On targets with `has_local`: `Grid(d)` and `Local(d)` ranges are workgroup and thread index. Elsewhere the
//!   only launch range is `Grid(0)`: everything after it in `order` is the body of a loop over `lo..hi`, two arguments of
//!   the kernel (the device cuts `0..grid[0]` into slices for its threads). Nodes before it run once per call. A program
//!   without a Grid range is run once (`grid == [1, 1, 1]`).
//! - **Loops.** A `Range` of kind Loop or Reduce opens a loop `0..bound` at its position; its `End` closes it. Loops are
//!   properly nested.
//! - **Tiles.** A node's tile axes are its open ranges of tile kind ([`Program::tile`]), outermost first, the lane axis
//!   (if the value has it) last. A value without tile axes is one scalar. Two operands need not have the same axes: a
//!   missing axis broadcasts. A tile range used as a value is the iota along its axis. A program may have several lane
//!   axes, all of one length; no value depends on two.
//! - **Memory.** `Index(ptr, offset)[Strides]` addresses element `offset + sum(stride * axis)`. The offset may be a tile
//!   itself (gather) or scalar. If the lane axis has stride 1 and the offset does not depend on it, lanes are contiguous.
//!   Loads and stores without a gate are in bounds, for every point of their tile. A gated one touches memory only where
//!   the gate is true.
//! - **Scratch.** Private arrays are filled by the program and read after the fill, through `After(scratch, end)`. The
//!   caller provides the memory for them ([`Program::scratch`]); its contents are undefined at first.
//! - **Accumulators.** `Acc` declares mutable registers, re-initialised each time control reaches it; `AccUpdate` and
//!   `AccMulAdd` change them; `AccRead` is their value at that point of the order.
//! - There are only ops and dtypes that the target has; no FloorDiv/FloorMod, no tensor ops.

use super::live::LaunchDim;
use super::opt::Opt;
use super::pack::Pack;
use crate::dtype::Scalar;
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Arg, AxisKind, Graph, Op, RangeSet, Space, UOp};
use crate::util::decimal::Shown;
use crate::util::sort;
use crate::{DType, Error, Result};
use smallvec::SmallVec;

/// A buffer argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Element type in memory.
    pub dtype: DType,
    /// Number of elements.
    pub len: usize,
    /// The kernel loads from it.
    pub read: bool,
    /// The kernel stores to it.
    pub written: bool,
}

impl ParamInfo {
    /// The parameters of a kernel graph by slot, with `read` and `written` still false.
    pub fn all(g: &Graph, sink: UOp) -> Vec<ParamInfo> {
        let mut list = Vec::new();
        for u in g.reachable(&[sink]) {
            if let (Op::Param, Arg::Param { slot, len }) = (g.op(u), g.arg(u)) {
                let at = *slot as usize;
                if list.len() <= at {
                    list.resize(at + 1, ParamInfo { dtype: DType::F32, len: 0, read: false, written: false });
                }
                (list[at].dtype, list[at].len) = (g.dtype(u), *len);
            }
        }
        list
    }
}

/// A scalar argument of a kernel: 4 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarInfo {
    /// Name, by which a launch gives its value.
    pub name: Box<str>,
    /// I32 or F32.
    pub dtype: DType,
    /// Inclusive bounds of an i32. Accesses are in bounds only for values within them, so every launch checks them.
    pub min: i64,
    /// See `min`.
    pub max: i64,
}

impl VarInfo {
    /// The description of a launch scalar; `None` if the node is not one.
    pub fn of(g: &Graph, u: UOp) -> Option<VarInfo> {
        let Arg::Var { name, min, max } = g.arg(u) else { return None };
        Some(VarInfo { name: name.clone(), dtype: g.dtype(u), min: *min, max: *max })
    }

    /// The four bytes of a value. Any number is allowed for an f32, an integer within the bounds for an i32.
    ///
    /// # Errors
    /// `Error::Input` for a value that the scalar may not have.
    pub fn bits(&self, value: Scalar) -> Result<u32> {
        let bad = |what: String| Err(Error::Input { name: self.name.to_string(), what });
        if self.dtype == DType::F32 {
            return Ok((value.as_f64() as f32).to_bits());
        }
        let whole = value.as_i64();
        if matches!(value, Scalar::Float(_)) && whole as f64 != value.as_f64() {
            return bad(format!("the value {} is not a whole number", Shown(value.as_f64())));
        }
        match i32::try_from(whole) {
            Ok(v) if (self.min..=self.max).contains(&whole) => Ok(v as u32),
            _ => bad(format!("the value {whole} is outside of the variable's bounds {}..={}", self.min, self.max)),
        }
    }

    /// The four bytes of some allowed value, for launches whose results are not used (timing).
    pub fn any_bits(&self) -> u32 {
        if self.dtype == DType::F32 { 1f32.to_bits() } else { 1.clamp(self.min, self.max.max(self.min)) as u32 }
    }
}

/// One axis of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileAxis {
    /// Range id.
    pub id: u8,
    /// Extent.
    pub len: usize,
    /// Is it the vector axis?
    pub lane: bool,
}

/// A kernel ready to render.
#[derive(Clone)]
pub struct Program {
    /// Identifier, e.g. `r_64_512_512`: valid in every language.
    pub name: String,
    /// The graph that holds the nodes.
    pub g: Graph,
    /// Execution order.
    pub order: Vec<UOp>,
    /// Buffers by slot.
    pub params: Vec<ParamInfo>,
    /// Scalar arguments in the order in which they are passed; `Op::Var` nodes refer to them by name.
    pub vars: Vec<VarInfo>,
    /// Launch grid.
    pub grid: [u32; 3],
    /// For each dimension of the grid its size as a function of launch scalars, where that can be less than in `grid`.
    pub extents: [LaunchDim; 3],
    /// Workgroup size; `[1, 1, 1]` on targets without workgroups.
    pub local: [u32; 3],
    /// Every tile range in use, by id.
    pub tiles: Vec<TileAxis>,
    /// Floating point operations of a launch, counted before optimisation.
    pub flops: u64,
    /// The fewest bytes that a launch moves: each buffer element that it accesses counts once.
    pub bytes: u64,
    /// Parameters that are read from packed copies.
    pub packs: Vec<Pack>,
    /// The opts that were applied.
    pub opts: Vec<Opt>,
    /// How many attempts with more opts of the heuristic failed before this one.
    pub refused: usize,
}

impl Program {
    /// The tile axes of a value: registers first in id order, the lane axis last.
    pub fn tile(&self, u: UOp) -> SmallVec<[TileAxis; 4]> {
        let open = self.g.ranges(u);
        let mut axes: SmallVec<[TileAxis; 4]> = self.tiles.iter().filter(|t| open >> t.id & 1 == 1).copied().collect();
        sort::by_key(&mut axes, |t| (t.lane, t.id));
        axes
    }

    /// The launch range of this kind, if the program has one.
    pub fn launch_range(&self, kind: AxisKind) -> Option<UOp> {
        self.order.iter().copied().find(|&u| self.g.op(u) == Op::Range && self.g.kind(u) == kind)
    }

    /// Stride of an Index along a tile axis, in elements (0 if the address does not depend on it).
    pub fn stride(&self, index: UOp, axis: u8) -> i64 {
        match self.g.arg(index) {
            Arg::Strides(s) => s.iter().find(|(id, _)| *id == axis).map_or(0, |s| s.1),
            _ => 0,
        }
    }

    /// Is the node storage rather than a value?
    pub fn is_pointer(&self, mut u: UOp) -> bool {
        while self.g.op(u) == Op::After {
            u = self.g.src_at(u, 0);
        }
        matches!(self.g.op(u), Op::Param | Op::Scratch)
    }

    /// The byte offset of each scratch array in the memory that a kernel gets for them (aligned to a cache line), and
    /// the size of that memory in bytes. Every thread that runs the kernel has such memory of its own.
    pub fn scratch(&self) -> (Vec<(UOp, usize)>, usize) {
        let mut at = 0usize;
        let mut list = Vec::new();
        for u in self.g.reachable(&self.order) {
            if let Arg::Scratch { len, .. } = self.g.arg(u) {
                list.push((u, at));
                at = at.saturating_add(len.saturating_mul(self.g.dtype(u).size())).saturating_add(63) & !63;
            }
        }
        (list, at)
    }

    /// The byte offset of each array in workgroup memory, and the bytes of all of them. Arrays whose size is a multiple
    /// of 1024 bytes come first, so that they are aligned to 1024 bytes, as matrices in panels require.
    pub fn workgroup_arrays(&self) -> (Vec<(UOp, usize)>, usize) {
        let mut list = Vec::new();
        for u in self.g.reachable(&self.order) {
            if let Arg::Scratch { len, space: Space::Workgroup, .. } = self.g.arg(u) {
                list.push((u, len.saturating_mul(self.g.dtype(u).size())));
            }
        }
        if MATRIX_TILES_ENABLED {
            sort::by_key(&mut list, |x| x.1 % 1024 != 0);
        }
        let mut at = 0usize;
        for (_, bytes) in &mut list {
            let size = std::mem::replace(bytes, at);
            at = at.saturating_add(size).saturating_add(15) & !15;
        }
        (list, at)
    }

    /// Stride of an Index, in elements, along the first lane axis in `lanes` on which it depends (0 if there is none).
    pub fn lane_stride(&self, index: UOp, lanes: RangeSet) -> i64 {
        let mut lane = self.tiles.iter().filter(|t| t.lane && lanes >> t.id & 1 == 1);
        lane.find_map(|t| Some(self.stride(index, t.id)).filter(|&s| s != 0)).unwrap_or(0)
    }

    /// The storage that an Index, Load, Store or pointer refers to.
    pub fn base(&self, mut u: UOp) -> UOp {
        while matches!(self.g.op(u), Op::After | Op::Index | Op::Load | Op::Store) {
            u = self.g.src_at(u, 0);
        }
        u
    }

    /// The register axis along which a load without lanes reads contiguous elements, if its length is a multiple of
    /// `n`.
    pub fn quad_axis(&self, load: UOp, n: usize) -> Option<TileAxis> {
        let index = self.g.src_at(load, 0);
        let axes = self.tile(load);
        if self.g.op(load) != Op::Load || axes.iter().any(|a| a.lane) {
            return None;
        }
        axes.into_iter().find(|a| self.stride(index, a.id) == 1 && a.len.is_multiple_of(n))
    }

    /// The register axis of length 2 whose elements are interleaved with the lanes of a store (the lanes have stride 2,
    /// this axis has stride 1), as the two phases of a transposed convolution are: the two vectors are interleaved and
    /// stored as two contiguous vectors.
    pub fn woven(&self, store: UOp) -> Option<TileAxis> {
        let [index, value] = *self.g.src(store) else { return None };
        let fixed = self.tile(self.g.src_at(index, 1)).is_empty();
        let fits = self.g.dtype(value).size() < 8;
        if !fixed || !fits || self.lane_stride(index, self.g.ranges(value)) != 2 {
            return None;
        }
        self.tile(store).into_iter().find(|a| !a.lane && a.len == 2 && self.stride(index, a.id) == 1)
    }

    /// The slot of the parameter an Index, Load or Store addresses, `None` for scratch.
    pub fn slot(&self, u: UOp) -> Option<u32> {
        match (self.g.op(u), self.g.arg(u)) {
            (Op::Param, Arg::Param { slot, .. }) => Some(*slot),
            (Op::Index | Op::Load | Op::Store | Op::After, _) => self.slot(self.g.src_at(u, 0)),
            _ => None,
        }
    }
}
