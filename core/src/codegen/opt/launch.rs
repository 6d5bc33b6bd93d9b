//! Maps the output loops that opts have left to the launch (pass `launch`). On GPUs they become the up to three
//! dimensions of the grid and of a workgroup, and a loop that is longer than the device allows is split over two
//! dimensions. On CPUs the outermost ones become one grid loop, of which each thread takes slices.

use crate::analysis::{Affine, Role, affine};
use crate::codegen::axes::Kernel;
use crate::codegen::live::{self, NeededIterations};
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{AxisKind, Op, RangeArg, UOp};
use crate::util::sort;
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// Grid slices wanted per thread, for load balance.
const SLICES_PER_THREAD: usize = 8;

/// CPU and WebAssembly: the outermost output loops become the grid loop, which threads share.
pub fn cpu(k: &mut Kernel, t: &Target) -> Result<()> {
    if k.role == Role::Recurrence {
        return Ok(()); // each iteration reads all of what the one before stored
    }
    let loops = k.row_loops().0;
    let Some(&first) = loops.first() else { return Ok(()) };
    let walk = k.ranges_of(AxisKind::Walk).first().map(|&w| k.g.range_arg(w).id);
    if t.limits.threads == 1 && walk.is_some_and(|w| w < k.g.range_arg(first).id) {
        return Ok(()); // a walk (ordered loop) outside all other loops stays the outermost loop
    }
    let want = match (t.limits.threads, walk) {
        (1, _) => 1,
        // the parts of a walk take equally long, so one slice per thread is enough
        (n, Some(_)) => n,
        (n, None) => n * SLICES_PER_THREAD,
    };
    let mut take = 1;
    let mut len = k.g.range_len(first);
    let limit = staged_inside(k, &loops);
    while len < want && take < limit {
        len *= k.g.range_len(loops[take]);
        take += 1;
    }
    if len > i32::MAX as usize {
        return Err(Error::Unsupported { what: format!("a launch of {len} slices"), context: t.name.clone() });
    }
    fuse(k, &loops[..take], AxisKind::Grid(0));
    k.grid = [len as u32, 1, 1];
    Ok(())
}

/// How many of the outermost loops may become part of the grid, so that no staged array is filled more often than in
/// the loop nest.
fn staged_inside(k: &Kernel, loops: &[UOp]) -> usize {
    let stages = k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Stage);
    let deepest = |s: UOp| loops.iter().rposition(|&r| k.g.depends(s, r));
    stages.filter_map(deepest).map(|i| i + 1).min().unwrap_or(loops.len())
}

/// GPU: local axes get thread dimensions (x is the one along which results are contiguous), and loops become at most
/// three grid dimensions.
pub fn gpu(k: &mut Kernel, t: &Target) -> Result<()> {
    let mut locals = k.ranges_of(AxisKind::Local(0));
    let to = match k.g.op(k.store()) {
        Op::Store => Some(affine(&k.g, k.g.src_at(k.g.src_at(k.store(), 0), 1))),
        _ => None,
    };
    let shared: Vec<UOp> = k.reduces().iter().flat_map(|&u| k.g.src(u)[1..].to_vec()).collect();
    let reads = k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Load).map(|u| k.g.src_at(k.g.src_at(u, 0), 1));
    let reads: Vec<Affine> = reads.map(|at| affine(&k.g, at)).collect();
    let has = |op: Op| k.nodes().into_iter().any(|u| k.g.op(u) == op);
    let staged = MATRIX_TILES_ENABLED && t.caps.copies.is_some() && has(Op::Stage) && !has(Op::Mma);
    let stride = |r: &UOp| match &to {
        // threads that share a reduction get dimension x if they then read neighbouring elements
        _ if shared.contains(r) && reads.iter().any(|a| (1..=4).contains(&a.stride(&k.g, *r).unwrap_or(0))) => 0,
        // an axis that is a digit of fused axes has no stride, but its elements are neighbours
        Some(to) if staged && to.stride(&k.g, *r).is_none() => 1,
        to => to.as_ref().and_then(|a| a.stride(&k.g, *r)).map_or(i64::MAX, i64::abs),
    };
    sort::by_key(&mut locals, |r| std::cmp::Reverse(stride(r)));
    // an axis of two threads that read different rows of one staged factor and the same elements of the other becomes
    // dimension x: one read of the second factor serves both
    if staged {
        sort::by_key(&mut locals, |&r| k.g.range_len(r) == 2);
    }
    // the threads of a subgroup are consecutive along dimension x
    let subgroup = k.nodes().into_iter().find(|&u| k.g.op(u) == Op::Mma).map(|u| k.g.src_at(u, 2));
    sort::by_key(&mut locals, |&r| Some(r) == subgroup);
    if locals.len() > 3 {
        return Err(Error::value("opt", "more than three local axes"));
    }
    for (d, &r) in locals.iter().rev().enumerate() {
        let n = k.g.range_len(r);
        k.local[d] = n as u32;
        if d > 0 {
            fuse(k, &[r], AxisKind::Local(d as u8));
        }
    }
    let mut groups: Vec<Vec<UOp>> = k.row_loops().0.into_iter().map(|r| vec![r]).collect();
    let size = |k: &Kernel, g: &[UOp]| g.iter().map(|&r| k.g.range_len(r)).product::<usize>();
    while groups.len() > 3 {
        // fuse the two neighbouring dimensions with the smallest product
        let i = (0..groups.len() - 1).min_by_key(|&i| size(k, &groups[i]) * size(k, &groups[i + 1])).unwrap_or(0);
        let next = groups.remove(i + 1);
        groups[i].extend(next);
    }
    for (d, group) in groups.iter().rev().enumerate() {
        let n = size(k, group);
        let limit = t.limits.max_grid[d] as usize;
        if n <= limit {
            k.grid[d] = n as u32;
            fuse(k, group, AxisKind::Grid(d as u8));
            continue;
        }
        // too long for one dimension: split it over two
        let free = (0..3).rev().find(|&e| e >= groups.len() && k.grid[e] == 1);
        let factor = (2..=t.limits.max_grid[2] as usize).find(|f| n % f == 0 && n / f <= limit);
        let (Some(e), Some(f)) = (free, factor) else {
            return Err(Error::Unsupported { what: format!("a launch of {n} workgroups"), context: t.name.clone() });
        };
        k.grid[d] = (n / f) as u32;
        k.grid[e] = f as u32;
        let hi = k.new_range(f, AxisKind::Grid(e as u8), false)?;
        let id = k.g.range_arg(group[0]).id;
        let lo = k.g.range(n / f, id, AxisKind::Grid(d as u8));
        let c = k.g.idx((n / f) as i64);
        let wide = k.g.binary(Op::Mul, hi, c);
        let flat = k.g.binary(Op::Add, wide, lo);
        scatter(k, group, flat, &[]);
    }
    Ok(())
}

/// Fuses neighbouring loops into one range of `kind`. If only part of their iterations is needed for some lengths, the
/// launch covers only that part.
fn fuse(k: &mut Kernel, group: &[UOp], kind: AxisKind) {
    let n: usize = group.iter().map(|&r| k.g.range_len(r)).product();
    let id = k.g.range_arg(group[0]).id;
    let whole = k.g.range_with(n, RangeArg { id, kind, lane: false });
    let mut live = live::of_launch(k, group);
    if let AxisKind::Grid(d) = kind {
        k.extents[d as usize] = live::launch_dim(k, group, &live);
    } else {
        live.fill(None);
    }
    scatter(k, group, whole, &live);
}

/// Replaces each loop of a group by its digit of `flat`; a loop with an entry in `live` has only that many iterations.
fn scatter(k: &mut Kernel, group: &[UOp], flat: UOp, live: &[Option<NeededIterations>]) {
    let mut map = FxHashMap::default();
    let (mut stride, one) = (k.g.idx(1), k.g.idx(1));
    for (i, &r) in group.iter().enumerate().rev() {
        let n = k.g.range_len(r);
        let iterations = match live.get(i) {
            Some(Some(live)) => live.node,
            _ => k.g.idx(n as i64),
        };
        let mut v = flat;
        if stride != one {
            v = k.g.binary(Op::FloorDiv, v, stride);
        }
        if i > 0 {
            v = k.g.binary(Op::FloorMod, v, iterations);
        } else if k.g.op(stride) != Op::Const {
            // the clamp keeps the known bounds of the loop
            let last = k.g.idx(n as i64 - 1);
            v = k.g.binary(Op::Min, v, last);
        }
        map.insert(r, v);
        stride = k.g.binary(Op::Mul, stride, iterations);
        stride = simplify_with(&mut k.g, stride, &mut k.memo);
    }
    k.replace(&map);
}
