//! The opts a search may try, as data: which axes each takes and in which amounts. A new opt joins with a row.

use super::{OUTSIDE, Opt, OptOp};
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Op, UOp};
use crate::util::sort;

/// Axes that an opt applies to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Axes {
    Output,
    Reduced,
    Any,
}

/// One row: the op, its axes, and its amounts, some of them in vectors of the target.
struct Action {
    op: OptOp,
    axes: Axes,
    amounts: &'static [u32],
    /// Amounts count vectors.
    vectors: bool,
    gpu_only: bool,
}

const fn action(op: OptOp, axes: Axes, amounts: &'static [u32]) -> Action {
    Action { op, axes, amounts, vectors: false, gpu_only: false }
}

const ACTIONS: &[Action] = &[
    Action { vectors: true, ..action(OptOp::PadTo, Axes::Any, &[1, 2, 4]) },
    Action { vectors: true, ..action(OptOp::Lane, Axes::Any, &[1, 2, 3, 4]) },
    action(OptOp::Upcast, Axes::Output, &[2, 3, 4, 5, 6, 7, 8, 12]),
    action(OptOp::Unroll, Axes::Reduced, &[2, 3, 4, 5, 7, 8, 9, 16]),
    action(OptOp::Accum, Axes::Reduced, &[2, 4, 8]),
    action(OptOp::Split, Axes::Any, &[8, 16, 32, 64, 128, 256]),
    Action { gpu_only: true, ..action(OptOp::Group, Axes::Reduced, &[4, 8, 16, 32, 64]) },
    Action { gpu_only: true, ..action(OptOp::Local, Axes::Output, &[2, 4, 8, 16, 32, 64]) },
];

impl OptOp {
    /// Every opt.
    pub const ALL: [OptOp; 13] = [
        OptOp::Upcast,
        OptOp::Lane,
        OptOp::Accum,
        OptOp::Unroll,
        OptOp::Dot,
        OptOp::Tile,
        OptOp::Local,
        OptOp::Group,
        OptOp::PadTo,
        OptOp::Split,
        OptOp::Swap,
        OptOp::Stage,
        OptOp::Keep,
    ];

    /// Its name, for caches that outlive a build.
    pub const fn name(self) -> &'static str {
        match self {
            OptOp::Upcast => "upcast",
            OptOp::Lane => "lane",
            OptOp::Accum => "accum",
            OptOp::Unroll => "unroll",
            OptOp::Dot => "dot",
            OptOp::Tile => "tile",
            OptOp::Local => "local",
            OptOp::Group => "group",
            OptOp::PadTo => "padto",
            OptOp::Split => "split",
            OptOp::Swap => "swap",
            OptOp::Stage => "stage",
            OptOp::Keep => "keep",
        }
    }

    /// The opt of that name.
    pub fn from_name(name: &str) -> Option<OptOp> {
        OptOp::ALL.into_iter().find(|op| op.name() == name)
    }
}

/// Every single opt worth trying next on a kernel. Not all of them fit: applying one may fail.
pub fn next(k: &Kernel, t: &Target) -> Vec<Opt> {
    let g = &k.g;
    let loops: Vec<UOp> = k.ranges().into_iter().filter(|&r| g.kind(r).is_loop()).collect();
    let id = |r: UOp| g.range_arg(r).id;
    let mut out: Vec<Opt> = loops.iter().flat_map(|&r| on_axis(id(r), g.kind(r), g.range_len(r), t)).collect();
    for (i, &a) in loops.iter().enumerate() {
        let others = loops[i + 1..].iter().filter(|&&b| g.kind(b) == g.kind(a));
        out.extend(others.map(|&b| Opt { op: OptOp::Swap, axis: id(a), amount: u32::from(id(b)) }));
    }
    if !t.has_local && !k.reduces().is_empty() {
        let mut slots: Vec<u32> = Vec::new();
        for u in k.nodes().into_iter().filter(|&u| g.op(u) == Op::Load) {
            if let Arg::Param { slot, .. } = g.arg(g.src_at(g.src_at(u, 0), 0)) {
                slots.push(*slot);
            }
        }
        sort::ascending(&mut slots);
        slots.dedup();
        let levels: Vec<u8> = loops.iter().map(|&r| id(r)).chain([OUTSIDE]).collect();
        for amount in slots {
            out.extend(levels.iter().map(|&axis| Opt { op: OptOp::Stage, axis, amount }));
        }
    }
    out
}

/// The same opt in other amounts.
pub fn variants(o: &Opt, t: &Target) -> Vec<Opt> {
    let rows = ACTIONS.iter().filter(|a| a.op == o.op);
    let amounts = rows.flat_map(|a| a.amounts.iter().map(move |&n| n * if a.vectors { t.lanes as u32 } else { 1 }));
    amounts.filter(|&n| n != o.amount).map(|amount| Opt { amount, ..*o }).collect()
}

/// Opts on one axis of this id, kind and length.
fn on_axis(id: u8, kind: AxisKind, len: usize, t: &Target) -> Vec<Opt> {
    let mut out = Vec::new();
    for a in ACTIONS {
        let here = match a.axes {
            Axes::Output => kind == AxisKind::Loop,
            Axes::Reduced => kind == AxisKind::Reduce,
            Axes::Any => kind.is_loop(),
        };
        if !here || a.gpu_only && !t.has_local || a.vectors && t.lanes < 2 {
            continue;
        }
        for &n in a.amounts {
            let amount = n * if a.vectors { t.lanes as u32 } else { 1 };
            let fits = match a.op {
                OptOp::PadTo => !len.is_multiple_of(amount as usize) && len * 2 > amount as usize,
                // a GPU's vector is one vec4
                OptOp::Lane if t.has_local && n > 1 => false,
                _ => amount as usize <= len && len.is_multiple_of(amount as usize),
            };
            if fits {
                out.push(Opt { op: a.op, axis: id, amount });
            }
        }
        // all of a short axis at once
        if a.op == OptOp::Unroll && len > 1 && len <= 32 && !a.amounts.contains(&(len as u32)) {
            out.push(Opt { op: a.op, axis: id, amount: len as u32 });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_lead_back() {
        for op in OptOp::ALL {
            assert_eq!(OptOp::from_name(op.name()), Some(op));
        }
        assert!(ACTIONS.iter().all(|a| OptOp::ALL.contains(&a.op)));
    }
}
