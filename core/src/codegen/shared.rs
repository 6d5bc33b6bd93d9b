//! Lowers Stages on GPUs to arrays in workgroup memory: the threads of a workgroup fill an array together, and then all
//! of them read it. There is a barrier between the fill and the reads and, in a loop, one between the reads and the
//! next fill.
//!
//! Where the target has asynchronous copies from memory to workgroup memory, and a fill consists only of such copies,
//! there are several arrays in rotation (multi-buffering): while one is read, the copies for the next iterations are in
//! flight, and one barrier per iteration serves for both purposes ([`fill_pipelined`]).

use super::axes::Kernel;
use super::reduce::LoopInfo;
use super::stage::{elems, panel_rows, place_in};
use crate::analysis::affine;
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::target::{Copies, Target};
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Arg, AxisKind, Graph, Op, Space, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The most copies per thread that are unrolled; more become a loop. The second limit is for asynchronous copies, which
/// take no registers.
const UNROLLED: usize = 8;
pub(super) const UNROLLED_ASYNC: usize = 32;

/// The id of the next new local array.
pub(super) fn next_scratch(g: &Graph) -> u32 {
    g.iter().filter(|&u| g.op(u) == Op::Scratch).count() as u32
}

/// Bytes of an asynchronous copy of contiguous elements, and of one of a single element.
const COPY_BYTES: usize = 16;
const ELEMENT_COPY_BYTES: usize = 4;

/// Bytes of workgroup memory that a workgroup takes in addition to its arrays.
const RESERVED: usize = 1 << 10;

/// The fill of one array.
struct Fill {
    stage: UOp,
    /// Bytes of each copy, if the copies are asynchronous.
    async_bytes: Option<usize>,
    scratch: UOp,
    /// Destination address and value of each copy of a thread. There are several parts only where the copies cannot be
    /// expressed as one tile or loop.
    parts: SmallVec<[(UOp, UOp); 1]>,
    gate: Option<UOp>,
    /// The loop over the copies of a thread, if they are not unrolled.
    nest: Option<UOp>,
}

/// Lowers every Stage of a GPU kernel. It is an error if the arrays need more workgroup memory than the target has.
pub(super) fn lower(k: &mut Kernel, t: &Target, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<()> {
    let mut groups: Vec<Vec<UOp>> = Vec::new();
    for u in k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Stage) {
        // arrays that are filled in the same loops share barriers
        match groups.iter_mut().find(|x| loops_of(&k.g, x[0]) == loops_of(&k.g, u)) {
            Some(group) => group.push(u),
            None => groups.push(vec![u]),
        }
    }
    let (mut bytes, mut map) = (0usize, FxHashMap::default());
    let mut most = t.limits.workgroup_bytes;
    let copies = t.caps.copies.filter(|_| MATRIX_TILES_ENABLED);
    let copying = copies.is_some() && all_copied(k, &groups.concat());
    // arrays that are filled once, outside all loops, reduce the memory that is left for the others
    let mut once: Vec<UOp> = Vec::new();
    if MATRIX_TILES_ENABLED && copying && groups.len() > 1 {
        let all = groups.iter().position(|group| loops_of(&k.g, group[0]).is_empty());
        once = all.map_or(once, |i| groups.remove(i));
    }
    if !once.is_empty() {
        let fills = once.into_iter().map(|u| fill(k, t, u, true)).collect::<Result<Vec<_>>>()?;
        bytes = fills.iter().map(|f| f.bytes(&k.g, t)).fold(0, usize::saturating_add);
        match fills.iter().all(|f| f.async_bytes.is_some() && f.nest.is_none()) {
            true => fill_once(k, &fills, &mut map),
            false => fill_with_barriers(k, &fills, loops, &mut map),
        }
    }
    let copies = copies.map(|c| Copies { bytes: c.bytes.saturating_sub(bytes), ..c });
    for group in groups {
        let fills = group.into_iter().map(|u| fill(k, t, u, copying)).collect::<Result<Vec<_>>>()?;
        let size = fills.iter().map(|f| f.bytes(&k.g, t)).fold(0, usize::saturating_add);
        if let Some((copies, r)) = copies.and_then(|c| Some((c, pipelined_loop(&k.g, &fills)?)))
            && let Some(blocks) = blocks(&k.g, copies, &fills, size, r)
            && (blocks > reuse_distance(&k.g, &fills) || blocks == k.g.range_len(r))
        {
            most = most.max(bytes + copies.bytes);
            bytes = bytes.saturating_add(size * blocks);
            fill_pipelined(k, &fills, r, blocks, &mut map);
            continue;
        }
        bytes = bytes.saturating_add(size);
        fill_with_barriers(k, &fills, loops, &mut map);
    }
    if bytes > most {
        let what = format!("{bytes} bytes of workgroup memory");
        return Err(Error::Unsupported { what, context: t.name.clone() });
    }
    if !map.is_empty() {
        k.replace(&map);
    }
    Ok(())
}

/// The loop in whose iterations the arrays are filled, if copies can run ahead of it: a single reduction loop of known
/// length, and only asynchronous unrolled copies.
fn pipelined_loop(g: &Graph, fills: &[Fill]) -> Option<UOp> {
    let around = loops_of(g, fills[0].stage);
    let &[r] = around.as_slice() else { return None };
    let counted = g.kind(r) == AxisKind::Reduce && g.const_int(g.src_at(r, 0)).is_some_and(|n| n >= 2);
    (counted && fills.iter().all(|f| f.async_bytes.is_some() && f.nest.is_none())).then_some(r)
}

/// The number of buffers in rotation for blocks of `bytes` bytes; `None` if there would be only one.
fn blocks(g: &Graph, copies: Copies, fills: &[Fill], bytes: usize, r: UOp) -> Option<usize> {
    let room = |all: usize| copies.blocks.min(all / bytes.max(1)).min(g.range_len(r));
    // without matrix tiles: one buffer less, where this leaves memory for a second workgroup on the processor
    let plain = fills.iter().all(|f| g.dtype(f.stage).size() == ELEMENT_COPY_BYTES);
    let (all, half) = (room(copies.bytes), room((copies.bytes / 2).saturating_sub(RESERVED)));
    Some(if plain && half + 1 == all && half >= 3 { half } else { all }).filter(|&n| n >= 2)
}

/// How many iterations must have passed since an array was read before copies may overwrite it. Products of matrices in
/// panels still read their factors while the next iteration begins.
fn reuse_distance(g: &Graph, fills: &[Fill]) -> usize {
    if fills.iter().any(|f| panel_rows(g, f.stage).is_some()) { 2 } else { 1 }
}

/// Issues copies some iterations ahead (a software pipeline): those of the first blocks before the loop, and in each
/// iteration those of a later block, into a buffer that was read [`reuse_distance`] iterations ago.
fn fill_pipelined(k: &mut Kernel, fills: &[Fill], r: UOp, blocks: usize, map: &mut FxHashMap<UOp, UOp>) {
    let number = |n: usize| Arg::Number(n as u32);
    let dt = k.g.dtype(r);
    // if there is a buffer for every block, all copies are issued before the loop
    let all_early = blocks == k.g.range_len(r);
    let early = if all_early { blocks } else { blocks - reuse_distance(&k.g, fills) } as i64;
    let sizes: Vec<i64> = fills.iter().map(|f| elems(&k.g, f.stage) as i64).collect();
    let arrays: Vec<UOp> = fills.iter().map(|f| with_buffers(&mut k.g, f.scratch, blocks)).collect();
    let mut first: SmallVec<[UOp; 4]> = SmallVec::new();
    for iteration in 0..early {
        let at = k.g.int(iteration, dt);
        for ((f, &size), &array) in fills.iter().zip(&sizes).zip(&arrays) {
            let slot = k.g.idx(iteration * size);
            copy(k, f, array, slot, [r, at], None, &mut first);
        }
    }
    let before = k.g.node(Op::Barrier, DType::Void, &first, number(0));
    let ready = match all_early {
        true => before,
        false => k.g.node(Op::Barrier, DType::Void, &[r, before], number(early as usize - 1)),
    };
    let g = &mut k.g;
    let (all, ahead) = (g.int(blocks as i64, dt), g.int(early, dt));
    let next = g.binary(Op::Add, r, ahead);
    let last = g.int(g.range_len(r) as i64 - early, dt);
    let gate = g.binary(Op::CmpLt, r, last);
    let slot_of = |g: &mut Graph, iteration: UOp, size: i64| {
        let slot = g.binary(Op::FloorMod, iteration, all);
        let (slot, size) = (g.cast(slot, DType::I32), g.idx(size));
        g.binary(Op::Mul, slot, size)
    };
    let mut deps: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[ready, r]);
    let mut slots = Vec::with_capacity(fills.len());
    for ((f, &size), &array) in fills.iter().zip(&sizes).zip(&arrays) {
        if !all_early {
            let slot = slot_of(&mut k.g, next, size);
            let to = k.g.after(array, &[ready, r]);
            copy(k, f, to, slot, [r, next], Some(gate), &mut deps);
        }
        slots.push(slot_of(&mut k.g, r, size));
    }
    let indices: Vec<UOp> = k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Index).collect();
    for ((f, slot), &array) in fills.iter().zip(slots).zip(&arrays) {
        let filled = k.g.after(array, &deps);
        let reads: Vec<UOp> = indices.iter().copied().filter(|&u| k.g.src_at(u, 0) == f.stage).collect();
        for u in reads {
            let at = k.g.src_at(u, 1);
            let at = k.g.binary(Op::Add, at, slot);
            let at = simplify_with(&mut k.g, at, &mut k.memo);
            map.insert(u, k.g.index(filled, at));
        }
    }
}

/// Asynchronous copies outside all loops, and a barrier that waits for them.
fn fill_once(k: &mut Kernel, fills: &[Fill], map: &mut FxHashMap<UOp, UOp>) {
    let (zero, mut stores) = (k.g.idx(0), SmallVec::<[UOp; 4]>::new());
    for f in fills {
        copy(k, f, f.scratch, zero, [zero; 2], None, &mut stores);
    }
    let filled = k.g.node(Op::Barrier, DType::Void, &stores, Arg::Number(0));
    for f in fills {
        map.insert(f.stage, k.g.after(f.scratch, &[filled]));
    }
}

/// The array enlarged to this number of buffers.
fn with_buffers(g: &mut Graph, scratch: UOp, blocks: usize) -> UOp {
    let (dt, Arg::Scratch { id, len, space }) = (g.dtype(scratch), g.arg(scratch).clone()) else { return scratch };
    g.node(Op::Scratch, dt, &[], Arg::Scratch { id, len: len * blocks, space })
}

/// The copies of one thread for one `iteration` of the loop `r`, to offset `slot` of an array. Where the gate is
/// false, they write zeros.
fn copy(
    k: &mut Kernel,
    f: &Fill,
    array: UOp,
    slot: UOp,
    [r, iteration]: [UOp; 2],
    gate: Option<UOp>,
    stores: &mut SmallVec<[UOp; 4]>,
) {
    let bytes = f.async_bytes.unwrap_or(COPY_BYTES) as u32;
    for &(at, value) in &f.parts {
        let at = k.g.binary(Op::Add, at, slot);
        let at = simplify_with(&mut k.g, at, &mut k.memo);
        let value = substitute1(&mut k.g, value, &[(r, iteration)].into_iter().collect());
        let mut value = simplify_with(&mut k.g, value, &mut k.memo);
        // a value that simplified to a constant zero in this iteration is stored, not copied
        let load = k.g.op(value) == Op::Load;
        if let Some(gate) = gate.filter(|_| load) {
            let src = k.g.srcs(value);
            let (zero, both) = match src.as_slice() {
                [_, zero, own] => (*zero, k.g.binary(Op::And, gate, *own)),
                _ => (k.g.float(0.0, k.g.dtype(value)), gate),
            };
            value = k.g.with_src(value, &[src[0], zero, both]);
        }
        let index = k.g.index(array, at);
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[index, value]);
        src.extend(f.gate);
        let arg = if load { Arg::Number(bytes) } else { Arg::None };
        stores.push(k.g.node(Op::Store, DType::Void, &src, arg));
    }
}

/// The loops on which a value depends.
fn loops_of(g: &Graph, u: UOp) -> Vec<UOp> {
    let open = g.ranges(u);
    let is_loop = |u: &UOp| g.op(*u) == Op::Range && open >> g.range_arg(*u).id & 1 == 1 && g.kind(*u).is_loop();
    g.reachable(&[u]).into_iter().filter(is_loop).collect()
}

/// Fills arrays that share barriers by ordinary stores, and maps each Stage to its filled array.
fn fill_with_barriers(
    k: &mut Kernel,
    fills: &[Fill],
    loops: &mut FxHashMap<u8, LoopInfo>,
    map: &mut FxHashMap<UOp, UOp>,
) {
    let g = &mut k.g;
    let around = loops_of(g, fills[0].stage);
    let mut ready: Option<UOp> = None;
    if !around.is_empty() {
        // the loads need not wait for the barrier, only the stores do
        let early = fills.iter().filter(|f| f.nest.is_none()).flat_map(|f| f.parts.iter().map(|p| p.1));
        let src: SmallVec<[UOp; 4]> = around.iter().copied().chain(early).collect();
        ready = Some(g.node(Op::Barrier, DType::Void, &src, Arg::None));
    }
    let mut done: SmallVec<[UOp; 4]> = SmallVec::new();
    for f in fills {
        let to = match ready {
            Some(b) => {
                let deps: SmallVec<[UOp; 4]> = [b].into_iter().chain(around.iter().copied()).collect();
                g.after(f.scratch, &deps)
            }
            None => f.scratch,
        };
        for &(at, value) in &f.parts {
            let index = g.index(to, at);
            let mut store = g.store(index, value);
            if let Some(gate) = f.gate {
                store = g.with_src(store, &[index, value, gate]);
            }
            if let Some(r) = f.nest {
                let around = around.iter().fold(0, |m, &x| m | 1 << g.range_arg(x).id);
                loops.insert(g.range_arg(r).id, LoopInfo { parent: None, around });
                store = g.node(Op::End, DType::Void, &[r, store], Arg::None);
            }
            done.push(store);
        }
    }
    let filled = g.node(Op::Barrier, DType::Void, &done, Arg::None);
    let deps: SmallVec<[UOp; 4]> = [filled].into_iter().chain(around.iter().copied()).collect();
    for f in fills {
        map.insert(f.stage, g.after(f.scratch, &deps));
    }
}

/// Distributes the copies that fill an array over the threads of the workgroup.
fn fill(k: &mut Kernel, t: &Target, stage: UOp, copying: bool) -> Result<Fill> {
    let (dt, size) = (k.g.dtype(stage), elems(&k.g, stage));
    let axes: Vec<UOp> = k.g.src(stage)[1..].to_vec();
    let value = k.g.src_at(stage, 0);
    let id = next_scratch(&k.g);
    let scratch = k.g.node(Op::Scratch, dt, &[], Arg::Scratch { id, len: size, space: Space::Workgroup });
    let async_copy = if MATRIX_TILES_ENABLED && copying { async_copy_of(k, value, &axes) } else { None };
    let (along, width) = match async_copy {
        Some(AsyncCopy::Rows(r)) => (Some(r), COPY_BYTES / dt.size()),
        Some(AsyncCopy::Single) => (None, 1),
        None => match vectors_along(k, value, &axes, t.caps.lanes) {
            Some(r) => (Some(r), t.caps.lanes),
            None => (None, 1),
        },
    };
    let len = axes.iter().map(|&r| k.g.range_len(r)).product::<usize>();
    let lane = match along {
        Some(_) => Some(lane_axis(k, width)?),
        None => None,
    };
    // neighbouring threads copy neighbouring elements
    let mut order: Vec<(i64, UOp, usize)> = Vec::new();
    for &r in axes.iter().rev() {
        let n = k.g.range_len(r);
        let n = if Some(r) == along { n / width } else { n };
        order.push((stride(&k.g, value, r).map_or(i64::MAX, i64::abs), r, n));
    }
    if async_copy.is_none() {
        order.reverse();
        sort::by_key(&mut order, |x| x.0);
    }
    let (units, threads) = (len / width, k.local.iter().map(|&n| n as usize).product::<usize>());
    let each = units.div_ceil(threads);
    let most = if async_copy.is_some() { UNROLLED_ASYNC } else { UNROLLED };
    let (mut nest, mut gate, mut n_parts) = (None, None, 1);
    let thread = thread_number(k);
    // the largest product of leading axes that divides the number of threads is spread over threads; the rest of the
    // axes is left to each thread
    let first = order.iter().map_while(|x| Some(x.2)).scan(1, |n, x| Some(*n * x).inspect(|&m| *n = m));
    let spread = first.take_while(|&n| threads.is_multiple_of(n)).last().unwrap_or(1);
    let mut numbers: SmallVec<[UOp; 2]> = SmallVec::new();
    if matches!(async_copy, Some(AsyncCopy::Single)) && units.is_multiple_of(threads) && (2..=most).contains(&each) {
        let (round, n) = (k.g.idx(spread as i64), k.g.idx(each as i64));
        let (low, high) = (k.g.binary(Op::FloorMod, thread, round), k.g.binary(Op::FloorDiv, thread, round));
        let high = k.g.binary(Op::Mul, high, n);
        numbers.extend([low, high]);
        n_parts = each;
    } else {
        let mut q = thread;
        if each > 1 {
            let kind = if each <= most { AxisKind::Upcast } else { AxisKind::Fill };
            let s = k.new_range(each, kind, false)?;
            nest = Some(s).filter(|_| kind == AxisKind::Fill);
            let n = k.g.idx(threads as i64);
            let first = k.g.binary(Op::Mul, s, n);
            q = k.g.binary(Op::Add, first, q);
        }
        if units % threads != 0 {
            let n = k.g.idx(units as i64);
            gate = Some(k.g.binary(Op::CmpLt, q, n));
            let last = k.g.idx(units as i64 - 1);
            q = k.g.binary(Op::Min, q, last);
        }
        numbers.push(q);
    }
    let places: SmallVec<[(UOp, usize); 4]> = axes.iter().map(|&r| (r, k.g.range_len(r))).collect();
    let at = place_in(&mut k.g, stage, &places);
    let mut parts = SmallVec::new();
    for part in 0..n_parts {
        let mut map = FxHashMap::default();
        let (mut rest, mut left) = (numbers[0], if numbers.len() > 1 { spread } else { usize::MAX });
        for (i, &(_, r, n)) in order.iter().enumerate() {
            if left == 1 {
                // the part that each thread copies itself
                let c = k.g.idx(part as i64);
                (rest, left) = (k.g.binary(Op::Add, numbers[1], c), usize::MAX);
            }
            left /= n;
            let n_op = k.g.idx(n as i64);
            let mut digit = rest;
            if i + 1 < order.len() && left != 1 {
                digit = k.g.binary(Op::FloorMod, rest, n_op);
                rest = k.g.binary(Op::FloorDiv, rest, n_op);
            }
            if let Some(lane) = lane.filter(|_| Some(r) == along) {
                let w = k.g.idx(width as i64);
                digit = k.g.binary(Op::Mul, digit, w);
                digit = k.g.binary(Op::Add, digit, lane);
            }
            map.insert(r, digit);
        }
        let tidy = |k: &mut Kernel, u: UOp| {
            let u = substitute1(&mut k.g, u, &map);
            simplify_with(&mut k.g, u, &mut k.memo)
        };
        parts.push((tidy(k, at), tidy(k, value)));
    }
    let async_bytes = async_copy.map(|w| if matches!(w, AsyncCopy::Single) { ELEMENT_COPY_BYTES } else { COPY_BYTES });
    Ok(Fill { stage, async_bytes, scratch, parts, gate, nest })
}

impl Fill {
    /// Bytes of the array. On targets without asynchronous copies an element takes at least a word of 4 bytes, since it
    /// does in some languages.
    fn bytes(&self, g: &Graph, t: &Target) -> usize {
        let least = if t.caps.copies.is_some() { 1 } else { 4 };
        elems(g, self.stage).saturating_mul(g.dtype(self.stage).size().max(least))
    }
}

/// How an array is filled by asynchronous copies.
#[derive(Clone, Copy)]
enum AsyncCopy {
    /// By contiguous pieces of 16 bytes along this axis.
    Rows(UOp),
    /// By single elements, which may be gated to zero.
    Single,
}

/// Does the kernel have exactly `n` arrays, and can all of them be filled by asynchronous copies?
pub(super) fn copies_all(k: &Kernel, n: usize) -> bool {
    let stages: Vec<UOp> = k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Stage).collect();
    stages.len() == n && all_copied(k, &stages)
}

/// Can all of these arrays be filled by asynchronous copies? Their elements have to be of one size, because a kernel
/// has one vector length.
fn all_copied(k: &Kernel, stages: &[UOp]) -> bool {
    let size = |u: UOp| k.g.dtype(u).size();
    let one = |&u: &UOp| {
        let src = k.g.srcs(u);
        size(u) == size(stages[0]) && async_copy_of(k, src[0], &src[1..]).is_some()
    };
    stages.iter().all(one)
}

fn async_copy_of(k: &Kernel, value: UOp, axes: &[UOp]) -> Option<AsyncCopy> {
    let g = &k.g;
    let zero = || g.src(value).get(1).is_none_or(|&alt| g.const_val(alt).is_some_and(|c| c.as_f64() == 0.0));
    match copied_along(k, value, axes) {
        Some(r) => Some(AsyncCopy::Rows(r)),
        None => (g.op(value) == Op::Load && g.dtype(value).size() == ELEMENT_COPY_BYTES && zero())
            .then_some(AsyncCopy::Single),
    }
}

/// The array's last axis, if along it the staged elements are aligned pieces of 16 contiguous bytes in memory.
fn copied_along(k: &Kernel, value: UOp, axes: &[UOp]) -> Option<UOp> {
    let (g, &last) = (&k.g, axes.last()?);
    let size = g.dtype(value).size();
    if g.op(value) != Op::Load || !matches!(size, 2 | 4) {
        return None;
    }
    let n = (COPY_BYTES / size) as i64;
    let a = affine(g, g.src_at(g.src_at(value, 0), 1));
    let whole = a.stride(g, last) == Some(1) && a.non_affine_ranges == 0 && a.others.is_empty() && a.constant % n == 0;
    let aligned = a.terms.iter().all(|&(x, c)| x == last || c % n == 0) && g.range_len(last) as i64 % n == 0;
    let gated = match g.src(value) {
        [_, alt, gate] => g.depends(*gate, last) || g.const_val(*alt).is_none_or(|c| c.as_f64() != 0.0),
        _ => false,
    };
    let lanes = k.ranges().into_iter().any(|r| k.g.range_arg(r).lane && k.g.range_len(r) as i64 != n);
    (whole && aligned && !gated && !lanes).then_some(last)
}

/// The linear index of a thread in its workgroup.
fn thread_number(k: &mut Kernel) -> UOp {
    let mut at = k.g.idx(0);
    let mut times = 1i64;
    for d in 0..3u8 {
        let n = k.local[d as usize];
        if let Some(&l) = k.ranges_of(AxisKind::Local(d)).first() {
            let f = k.g.idx(times);
            let x = k.g.binary(Op::Mul, l, f);
            at = k.g.binary(Op::Add, at, x);
        }
        times *= n as i64;
    }
    simplify_with(&mut k.g, at, &mut k.memo)
}

/// The kernel's lane axis, or a new one.
fn lane_axis(k: &mut Kernel, width: usize) -> Result<UOp> {
    match k.ranges().into_iter().find(|&r| k.g.range_arg(r).lane) {
        Some(r) => Ok(r),
        None => k.new_range(width, AxisKind::Upcast, true),
    }
}

/// Stride in memory, in elements, of a loaded value along an axis; `None` if it has none or is no load.
fn stride(g: &Graph, value: UOp, r: UOp) -> Option<i64> {
    match g.op(value) {
        Op::Load => affine(g, g.src_at(g.src_at(value, 0), 1)).stride(g, r),
        _ => None,
    }
}

/// The axis along which a thread copies vectors: the array's last axis, so that the array can be read in vectors too,
/// or else one along which memory can be read in whole aligned vectors.
fn vectors_along(k: &mut Kernel, value: UOp, axes: &[UOp], lanes: usize) -> Option<UOp> {
    if k.g.op(value) != Op::Load || !matches!(k.g.dtype(value).size(), 2 | 4) || lanes < 2 {
        return None;
    }
    if k.ranges().into_iter().any(|r| k.g.range_arg(r).lane && k.g.range_len(r) != lanes) {
        return None;
    }
    if let Some(&last) = axes.last()
        && k.g.range_len(last).is_multiple_of(lanes)
    {
        return Some(last);
    }
    let at = k.g.src_at(k.g.src_at(value, 0), 1);
    let a = affine(&k.g, at);
    let r = axes.iter().copied().find(|&r| a.stride(&k.g, r) == Some(1))?;
    let n = lanes as i64;
    let others = a.non_affine_ranges == 0 && a.terms.iter().all(|&(x, c)| x == r || c % n == 0);
    let gate = k.g.src(value).get(2).is_some_and(|&c| k.g.depends(c, r));
    if !k.g.range_len(r).is_multiple_of(lanes) || !others || gate {
        return None;
    }
    let mut zeros = FxHashMap::default();
    for x in k.g.reachable(&[at]) {
        if k.g.op(x) != Op::Range {
            continue;
        }
        let zero = k.g.int(0, k.g.dtype(x));
        zeros.insert(x, zero);
    }
    let start = substitute1(&mut k.g, at, &zeros);
    let start = simplify_with(&mut k.g, start, &mut k.memo);
    k.g.const_int(start).filter(|c| c % n == 0).map(|_| r)
}
