//! Decides how each value of a program is held in locals: which of its tile axes have one local per index, whether the
//! lane axis is held in v128 or in scalars, and where and how the value is used.

use super::func::fits_lane;
use crate::DType;
use crate::codegen::Program;
use crate::uop::{Arg, Op, RangeSet, UOp};
use smallvec::SmallVec;

/// The kind of a value's locals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// No value, or one that needs no local: constants, tile ranges, pointers, addresses.
    Inline,
    /// One scalar per index.
    Scalar,
    /// Four scalars per chunk of the lane axis, for 64-bit elements.
    Lanes,
    /// One v128 per chunk of the lane axis.
    Vec,
}

/// The layout of one node.
#[derive(Clone, Debug)]
pub(super) struct Info {
    /// Range id and extent of each tile axis other than the lane axis, outermost first.
    pub(super) axes: SmallVec<[(u8, u32); 4]>,
    /// Product of these extents.
    pub(super) count: u32,
    /// Does it have the vectorised lane axis?
    pub(super) lane: bool,
    /// The kind of its locals.
    pub(super) form: Form,
    /// The first of its slots, which number the locals of all values.
    pub(super) slot: u32,
    /// The first of its slots for vectors with its scalar in every lane; `u32::MAX` if no user needs such a vector.
    pub(super) splat: u32,
    /// Does a user need it as a scalar?
    pub(super) scalar_use: bool,
    /// The last position in the order at which it may be needed.
    pub(super) last_use: u32,
}

impl Default for Info {
    fn default() -> Info {
        let axes = SmallVec::new();
        Info {
            axes,
            count: 1,
            lane: false,
            form: Form::Inline,
            slot: 0,
            splat: u32::MAX,
            scalar_use: false,
            last_use: 0,
        }
    }
}

/// The layout of a program.
pub(super) struct Layout {
    pub(super) info: Vec<Info>,
    /// Total number of slots.
    pub(super) slots: u32,
    /// The ranges that are vectorised lane axes; no value depends on two of them.
    pub(super) lanes: RangeSet,
    /// Number of v128 that a lane axis takes; it is the same for all.
    pub(super) chunks: u32,
}

/// Must this node be computed lane by lane, because there is no vector instruction for it?
pub(super) fn lane_by_lane(p: &Program, lane_of: &dyn Fn(UOp) -> bool, u: UOp) -> bool {
    let g = &p.g;
    let wide = |x: UOp| !fits_lane(g.dtype(x));
    let op = g.op(u);
    wide(u)
        || matches!(op, Op::Idiv | Op::Imod)
        || (op.is_alu() && g.src(u).iter().any(|&s| wide(s)))
        || (matches!(op, Op::Shl | Op::Shr) && lane_of(g.src_at(u, 1)))
}

/// The number of bytes before and after every buffer that must be readable.
pub const SLACK: usize = 64 << 10;

/// Does an access stay within half of [`SLACK`] of its buffer at every point of its tile, whether its gate holds or
/// not? It may then be loaded without a branch and masked afterwards.
pub(super) fn within_slack(p: &Program, index: UOp) -> bool {
    let g = &p.g;
    let (mut lo, mut hi) = g.bounds(g.src_at(index, 1));
    if let Arg::Strides(strides) = g.arg(index) {
        for &(id, stride) in strides {
            let last = p.tiles.iter().find(|t| t.id == id).map_or(0, |t| t.len as i64 - 1);
            lo = lo.saturating_add((stride * last).min(0));
            hi = hi.saturating_add((stride * last).max(0));
        }
    }
    let mut ptr = g.src_at(index, 0);
    while g.op(ptr) == Op::After {
        ptr = g.src_at(ptr, 0);
    }
    let len = match g.arg(ptr) {
        Arg::Param { len, .. } | Arg::Scratch { len, .. } => *len as i64,
        _ => return false,
    };
    // half of the slack, because addresses may be held with a bias as large as the other half; an access has up to 16
    // bytes
    let room = SLACK as i64 / 2 / g.dtype(index).size() as i64 - 16;
    lo >= -room && hi < len + room
}

impl Layout {
    pub(super) fn new(p: &Program) -> Layout {
        let vectors = || p.tiles.iter().filter(|t| t.lane && t.len % 4 == 0);
        let lanes = vectors().fold(0, |m: RangeSet, t| m | 1 << t.id);
        let chunks = vectors().next().map_or(1, |t| t.len as u32 / 4);
        let mut info = vec![Info::default(); p.g.len()];
        for u in p.g.reachable(&p.order) {
            info[u.0 as usize] = value_layout(p, lanes, u);
        }
        uses(p, &mut info);
        let mut slots = 0;
        for i in &mut info {
            let n = match i.form {
                Form::Inline => 0,
                Form::Scalar => i.count,
                Form::Lanes => i.count * chunks * 4,
                Form::Vec => i.count * chunks,
            };
            i.slot = slots;
            slots += n;
            if i.splat != u32::MAX {
                i.splat = slots;
                slots += i.count;
            }
        }
        Layout { info, slots, lanes, chunks }
    }
}

fn value_layout(p: &Program, lanes: RangeSet, u: UOp) -> Info {
    let g = &p.g;
    let tile = p.tile(u);
    let lane = tile.iter().any(|t| lanes >> t.id & 1 == 1);
    let axes: SmallVec<[(u8, u32); 4]> =
        tile.iter().filter(|t| lanes >> t.id & 1 == 0).map(|t| (t.id, t.len as u32)).collect();
    let count = axes.iter().map(|a| a.1).product();
    let inline = match g.op(u) {
        Op::Const | Op::Param | Op::Scratch | Op::Index => true,
        Op::Range => g.kind(u).is_tile(),
        Op::After => p.is_pointer(u),
        _ => g.dtype(u) == DType::Void,
    };
    let form = match (inline, lane) {
        (true, _) => Form::Inline,
        (_, false) => Form::Scalar,
        _ if fits_lane(g.dtype(u)) => Form::Vec,
        _ => Form::Lanes,
    };
    Info { axes, count, lane, form, ..Info::default() }
}

fn uses(p: &Program, info: &mut [Info]) {
    let g = &p.g;
    for &u in &p.order {
        let has_lane = |x: UOp| info[x.0 as usize].lane;
        let vector = match g.op(u) {
            Op::AccUpdate | Op::AccMulAdd => has_lane(g.src_at(u, 0)) && fits_lane(g.dtype(g.src_at(u, 0))),
            Op::Store => has_lane(u) && fits_lane(g.dtype(g.src_at(u, 1))),
            Op::Index | Op::Range | Op::End => false,
            _ => info[u.0 as usize].form == Form::Vec && !lane_by_lane(p, &has_lane, u),
        };
        for (i, &s) in g.src(u).iter().enumerate() {
            let scalar_operand = match g.op(u) {
                Op::Load => i == 2 && !within_slack(p, g.src_at(u, 0)),
                Op::Store => i == 2,
                Op::Shl | Op::Shr => i == 1,
                _ => false,
            };
            let si = &mut info[s.0 as usize];
            if vector && !scalar_operand && si.form == Form::Scalar && fits_lane(g.dtype(s)) {
                si.splat = 0;
            } else {
                si.scalar_use = true;
            }
        }
    }
    // values are emitted on demand, so one is needed where its user is emitted, which is where the user's own user is
    // emitted
    for (at, &u) in p.order.iter().enumerate().rev() {
        let lazy = g.dtype(u) != DType::Void && !matches!(g.op(u), Op::Acc | Op::Range);
        let user = if lazy { info[u.0 as usize].last_use.max(at as u32) } else { at as u32 };
        for &s in g.src(u) {
            let si = &mut info[s.0 as usize];
            si.last_use = si.last_use.max(user);
        }
    }
}
