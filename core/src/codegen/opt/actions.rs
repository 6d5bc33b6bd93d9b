//! The opts that a search tries, as a table: the axes to which each applies, and the amounts. A new kind of opt needs
//! one more row.

use super::{Level, Opt, Part};
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Op, UOp};
use crate::util::sort;

/// The kind of axes to which an opt applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Axes {
    Output,
    Reduced,
    Any,
}

/// One row of the table: the part to which an axis is cut, or padding if there is none; the kind of axes; and the
/// amounts.
struct Action {
    part: Option<Part>,
    axes: Axes,
    amounts: &'static [u32],
    /// The amounts are multiples of the target's vector length.
    vectors: bool,
    gpu_only: bool,
}

const fn cut(part: Part, axes: Axes, amounts: &'static [u32]) -> Action {
    Action { part: Some(part), axes, amounts, vectors: false, gpu_only: false }
}

const ACTIONS: &[Action] = &[
    Action { part: None, axes: Axes::Any, amounts: &[1, 2, 4], vectors: true, gpu_only: false },
    Action { vectors: true, ..cut(Part::Lane, Axes::Any, &[1, 2, 3, 4]) },
    cut(Part::Upcast, Axes::Output, &[2, 3, 4, 5, 6, 7, 8, 12]),
    cut(Part::Unroll, Axes::Reduced, &[2, 3, 4, 5, 7, 8, 9, 16]),
    cut(Part::Accum, Axes::Reduced, &[2, 4, 8]),
    cut(Part::Loop, Axes::Any, &[8, 16, 32, 64, 128, 256]),
    Action { gpu_only: true, ..cut(Part::Group, Axes::Reduced, &[4, 8, 16, 32, 64]) },
    Action { gpu_only: true, ..cut(Part::Local, Axes::Output, &[2, 4, 8, 16, 32, 64]) },
];

impl Action {
    fn opt(&self, axis: u8, amount: u32) -> Opt {
        self.part.map_or(Opt::Pad { axis, to: amount }, |part| Opt::Cut { axis, by: amount, part })
    }

    /// The amounts in elements, for a target.
    fn amounts(&self, t: &Target) -> impl Iterator<Item = u32> + use<> {
        let unit = if self.vectors { t.caps.lanes as u32 } else { 1 };
        self.amounts.iter().map(move |&n| n * unit)
    }
}

/// Every single opt that a search may try next on a kernel. Not all of them fit: applying one may fail.
pub fn next(k: &Kernel, t: &Target) -> Vec<Opt> {
    let g = &k.g;
    let loops: Vec<UOp> = k.ranges().into_iter().filter(|&r| g.kind(r).is_loop()).collect();
    let id = |r: UOp| g.range_arg(r).id;
    let mut out: Vec<Opt> = loops.iter().flat_map(|&r| on_axis(id(r), g.kind(r), g.range_len(r), t)).collect();
    for (i, &a) in loops.iter().enumerate() {
        let others = loops[i + 1..].iter().filter(|&&b| g.kind(b) == g.kind(a));
        out.extend(others.map(|&b| Opt::swap(id(a), id(b))));
    }
    if !t.caps.has_local && !k.reduces().is_empty() {
        let mut slots: Vec<u32> = Vec::new();
        for u in k.nodes().into_iter().filter(|&u| g.op(u) == Op::Load) {
            if let Arg::Param { slot, .. } = g.arg(g.src_at(g.src_at(u, 0), 0)) {
                slots.push(*slot);
            }
        }
        sort::ascending(&mut slots);
        slots.dedup();
        let levels: Vec<Level> = loops.iter().map(|&r| Level::In(id(r))).chain([Level::Outside]).collect();
        for param in slots {
            out.extend(levels.iter().map(|&level| Opt::stage(param, level)));
        }
    }
    out
}

/// The same opt with other amounts.
pub fn variants(o: &Opt, t: &Target) -> Vec<Opt> {
    let (part, axis) = match *o {
        Opt::Cut { axis, part, .. } => (Some(part), axis),
        Opt::Pad { axis, .. } => (None, axis),
        Opt::Swap { .. } | Opt::Join { .. } | Opt::Stage(_) | Opt::Keep { .. } => return Vec::new(),
    };
    let rows = ACTIONS.iter().filter(|a| a.part == part);
    rows.flat_map(|a| a.amounts(t).map(|n| a.opt(axis, n))).filter(|other| other != o).collect()
}

/// The opts of the table for an axis with this id, kind and length.
fn on_axis(id: u8, kind: AxisKind, len: usize, t: &Target) -> Vec<Opt> {
    let mut out = Vec::new();
    for a in ACTIONS {
        let here = match a.axes {
            Axes::Output => kind == AxisKind::Loop,
            Axes::Reduced => kind == AxisKind::Reduce,
            Axes::Any => kind.is_loop(),
        };
        if !here || a.gpu_only && !t.caps.has_local || a.vectors && t.caps.lanes < 2 {
            continue;
        }
        for amount in a.amounts(t) {
            let fits = match a.part {
                None => !len.is_multiple_of(amount as usize) && len * 2 > amount as usize,
                // a GPU's vector is one vec4
                Some(Part::Lane) if t.caps.has_local && amount as usize > t.caps.lanes => false,
                Some(_) => amount as usize <= len && len.is_multiple_of(amount as usize),
            };
            if fits {
                out.push(a.opt(id, amount));
            }
        }
        // a short axis is also unrolled as a whole
        if a.part == Some(Part::Unroll) && len > 1 && len <= 32 && !a.amounts.contains(&(len as u32)) {
            out.push(Opt::unroll(id, len));
        }
    }
    out
}
