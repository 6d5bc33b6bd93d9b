//! The passes that run after opts are applied and reductions are lowered to loops. In: a kernel graph with ops that a
//! target may lack. Out: a [`Program`]: only ops of the target, addresses as an offset and strides, nodes in execution
//! order, and the data that a launch needs.

mod address;
mod linearize;

pub use address::split_addresses;
pub use linearize::linearize;

use super::axes::{Kernel, Stats};
use super::program::{Program, TileAxis, VarInfo};
use crate::Result;
use crate::rewrite::rewrite1;
use crate::rules::LATE;
use crate::target::Target;
use crate::uop::{Arg, Op, UOp};
use crate::util::sort;

/// Rewrites ops and dtypes that the target lacks in terms of those that it has. `Error::Unsupported` if there is no way
/// to do that.
pub fn decompose(k: &mut Kernel, t: &Target) -> Result<()> {
    k.sink = crate::rules::decomp::decompose(&mut k.g, k.sink, t)?;
    Ok(())
}

/// The last identities: index divisions become shifts, and fused multiply-add, subtraction and negation become ops of
/// their own.
pub fn finish(k: &mut Kernel, t: &Target) {
    k.sink = rewrite1(&mut k.g, k.sink, &[&LATE], &mut t.clone());
}

/// Packs the finished kernel into a [`Program`], with all data that renderers and launches need.
pub fn package(k: Kernel, order: Vec<UOp>, stats: Stats) -> Program {
    let g = &k.g;
    // a buffer whose last use was removed is still passed, unpacked; a packed one has the length of its copy
    let mut params = k.params.clone();
    let mut left: Vec<u32> = Vec::new();
    let mut vars: Vec<VarInfo> = Vec::new();
    let mut tiles: Vec<TileAxis> = Vec::new();
    for u in k.nodes() {
        match (g.op(u), g.arg(u)) {
            (Op::Param, Arg::Param { slot, len }) => {
                params[*slot as usize].len = *len;
                left.push(*slot);
            }
            (Op::Var, _) => vars.extend(VarInfo::of(g, u)),
            _ => {}
        }
    }
    let mut packs = k.packs;
    packs.retain(|p| left.contains(&p.slot));
    tiles.extend(k.tiles.iter().map(|&u| {
        let r = g.range_arg(u);
        TileAxis { id: r.id, len: g.range_len(u), lane: r.lane }
    }));
    sort::by(&mut vars, |a, b| a.name.cmp(&b.name));
    let mut p = Program {
        name: String::new(),
        order,
        params,
        vars,
        grid: k.grid,
        extents: k.extents,
        local: k.local,
        tiles,
        flops: stats.flops,
        bytes: stats.bytes,
        packs,
        opts: Vec::new(),
        refused: 0,
        g: k.g,
    };
    for &u in &p.order {
        let slot = p.slot(u).map(|s| s as usize);
        match (p.g.op(u), slot) {
            (Op::Load, Some(s)) => p.params[s].read = true,
            (Op::Store, Some(s)) => p.params[s].written = true,
            _ => {}
        }
    }
    p.name = name(&p);
    p
}

fn name(p: &Program) -> String {
    let reduces = p.order.iter().any(|&u| matches!(p.g.op(u), Op::Acc | Op::Fold));
    let mut out = String::from(if reduces { "r" } else { "e" });
    for g in p.grid.iter().rev().chain(p.local.iter().rev()).filter(|&&n| n > 1) {
        out += &format!("_{g}");
    }
    for &u in &p.order {
        if p.g.op(u) == Op::Range && p.g.kind(u).is_loop() {
            out += &format!("_{}", p.g.bounds(u).1 + 1);
        }
    }
    for t in &p.tiles {
        out += &format!("{}{}", if t.lane { "_v" } else { "_t" }, t.len);
    }
    out
}
