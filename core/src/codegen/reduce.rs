//! Lowers reductions to accumulators and loops. In: a kernel in which `Reduce(x, ranges)` is one node. Out: a register
//! tile that is initialised outside the loops over `ranges`, updated inside and read after them; tile axes of the
//! reduction, which have separate accumulators, are folded after the loops. [`LoopInfo`] tells the pass that orders the
//! nodes what each loop is nested in.

use super::axes::Kernel;
use super::shared::next_scratch;
use super::stage::row_major;
use crate::analysis::affine;
use crate::rewrite::{Memo, substitute1};
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::{Arg, Axes, AxisKind, Graph, Op, RangeSet, ReduceOp, Space, UOp};
use crate::util::sort;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

type Ranges = SmallVec<[UOp; 4]>;

/// The nesting of one reduction loop: its parent in the same reduction, and the ranges open around the reduction.
#[derive(Clone, Copy, Debug)]
pub struct LoopInfo {
    /// Range id of the next outer loop of the same reduction, if any.
    pub parent: Option<u8>,
    /// The ranges on which the result of the reduction depends.
    pub around: RangeSet,
}

/// Lowers every Reduce of the kernel. The nesting of its loops is added to `loops`, by range id.
pub fn lower(k: &mut Kernel, t: &Target, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<()> {
    let threads = shared_ranges(k);
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    let mut n_accs = k.nodes().iter().filter(|&&u| k.g.op(u) == Op::Acc).count() as u32;
    for u in k.nodes() {
        let src: SmallVec<[UOp; 4]> = k.g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
        let v = match (k.g.op(u), k.g.arg(u)) {
            (Op::Reduce, Arg::Reduce(op, _)) => {
                let op = *op;
                lower_reduce(k, op, src[0], &src[1..], t, &mut n_accs, loops)?
            }
            _ => k.g.with_src(u, &src),
        };
        image.insert(u, v);
    }
    k.sink = image[&k.sink];
    store_once(k, &threads);
    Ok(())
}

/// The launch ranges whose threads share a reduction.
fn shared_ranges(k: &Kernel) -> Ranges {
    let mut out = Ranges::new();
    for u in k.reduces() {
        for &r in &k.g.src(u)[1..] {
            if k.g.kind(r).is_launch() && !out.contains(&r) {
                out.push(r);
            }
        }
    }
    out
}

/// Gates the Stores: all threads that share a reduction have its result, and only the first of them stores it.
fn store_once(k: &mut Kernel, threads: &[UOp]) {
    let g = &mut k.g;
    let stores = g.srcs(k.sink);
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    for &st in &stores {
        if g.op(st) != Op::Store {
            continue;
        }
        let mut src: SmallVec<[UOp; 4]> = g.srcs(st);
        for &r in threads {
            if g.depends(src[0], r) {
                continue;
            }
            let one = g.int(1, g.dtype(r));
            let first = g.binary(Op::CmpLt, r, one);
            let gate = if src.len() == 3 { g.binary(Op::And, first, src[2]) } else { first };
            src.truncate(2);
            src.push(gate);
        }
        let gated = g.with_src(st, &src);
        image.insert(st, gated);
    }
    let stores: SmallVec<[UOp; 4]> = stores.iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
    k.sink = k.g.sink(&stores);
}

/// Combines the partial results of the threads that share a reduction, so that each of them has the result: by shuffles
/// within a subgroup where the target has them, and through workgroup memory behind a barrier.
fn share(
    k: &mut Kernel,
    op: ReduceOp,
    part: UOp,
    threads: UOp,
    t: &Target,
    n_accs: &mut u32,
    loops: &mut FxHashMap<u8, LoopInfo>,
) -> Result<UOp> {
    let n = k.g.range_len(threads);
    // in two rounds: each thread combines the parts of a group of neighbouring threads, and then the results of all
    // groups
    let mut group = if n >= 32 && n.is_power_of_two() { 1 << (n.ilog2() / 2) } else { n };
    let whole = n.is_power_of_two() && k.g.kind(threads) == AxisKind::Local(0) && k.g.dtype(part) != DType::Bool;
    let mut part = part;
    if whole && t.caps.subgroup > 1 {
        // threads of one subgroup exchange values without memory
        group = n.min(t.caps.subgroup as usize);
        for bit in (0..group.ilog2()).map(|i| 1u8 << i) {
            let b = k.g.int(i64::from(bit), k.g.dtype(threads));
            let other = k.g.binary(Op::Xor, threads, b);
            let other = exchange(k, part, threads, other, Space::Subgroup(bit), t)?;
            part = k.g.binary(op.op(), part, other);
        }
    } else {
        let (at, all) = (k.new_range(group, AxisKind::Reduce, false)?, k.g.idx(group as i64));
        let first = k.g.binary(Op::FloorDiv, threads, all);
        let first = k.g.binary(Op::Mul, first, all);
        let first = if group < n { k.g.binary(Op::Add, first, at) } else { at };
        part = exchange(k, part, threads, first, Space::Workgroup, t)?;
        part = lower_reduce(k, op, part, &[at], t, n_accs, loops)?;
    }
    if group == n {
        return Ok(part);
    }
    let (at, all) = (k.new_range(n / group, AxisKind::Reduce, false)?, k.g.idx(group as i64));
    let first = k.g.binary(Op::Mul, at, all);
    let part = exchange(k, part, threads, first, Space::Workgroup, t)?;
    lower_reduce(k, op, part, &[at], t, n_accs, loops)
}

/// The value of `part` in the thread `from` among those along `threads`, exchanged through storage of this kind.
pub(super) fn exchange(k: &mut Kernel, part: UOp, threads: UOp, from: UOp, space: Space, t: &Target) -> Result<UOp> {
    let g = &mut k.g;
    let is_local = |u: &UOp| g.op(*u) == Op::Range && matches!(g.kind(*u), AxisKind::Local(_));
    let mut locals: Ranges = g.reachable(&[k.sink, part]).into_iter().filter(is_local).collect();
    sort::by_key(&mut locals, |&r| g.range_arg(r).id);
    let dt = g.dtype(part);
    let is_tile = |u: &UOp| g.op(*u) == Op::Range && g.kind(*u).is_tile() && g.depends(part, *u);
    let tiles: Ranges = g.reachable(&[part]).into_iter().filter(is_tile).collect();
    let axes: Ranges = locals.iter().chain(&tiles).copied().collect();
    let len = axes.iter().map(|&r| g.range_len(r)).product::<usize>();
    if space == Space::Workgroup && len * dt.size().max(4) > t.limits.workgroup_bytes {
        let what = format!("{len} partial results of a workgroup");
        return Err(Error::Unsupported { what, context: t.name.clone() });
    }
    let scratch = g.node(Op::Scratch, dt, &[], Arg::Scratch { id: next_scratch(g), len, space });
    let own = row_major(g, &axes);
    let own = simplify_with(g, own, &mut k.memo);
    let other = substitute1(g, own, &[(threads, from)].into_iter().collect());
    let to = g.index(scratch, own);
    let store = g.store(to, part);
    let barrier = g.node(Op::Barrier, DType::Void, &[store], Arg::None);
    // the exchange stays inside the loops on which the part depends
    let is_loop = |u: &UOp| g.op(*u) == Op::Range && g.kind(*u).is_loop() && g.depends(part, *u);
    let loops: Ranges = g.reachable(&[part]).into_iter().filter(is_loop).collect();
    let deps: Ranges = [barrier].into_iter().chain(loops).collect();
    let filled = g.after(scratch, &deps);
    let index = g.index(filled, other);
    Ok(g.load(index))
}

fn lower_reduce(
    k: &mut Kernel,
    op: ReduceOp,
    x: UOp,
    ranges: &[UOp],
    t: &Target,
    n_accs: &mut u32,
    loops: &mut FxHashMap<u8, LoopInfo>,
) -> Result<UOp> {
    let Kernel { g, memo, loop_limits, .. } = k;
    let dt = g.dtype(x);
    let acc_dt = accumulator(dt, t);
    let x = g.cast(x, acc_dt);
    let depends = |g: &Graph, r: UOp| g.depends(x, r);
    let (threads, ranges): (Ranges, Ranges) =
        ranges.iter().copied().partition(|&r| g.kind(r).is_launch() && depends(g, r));
    let (ranges, unused): (Ranges, Ranges) = ranges.iter().copied().partition(|&r| depends(g, r));
    let of_kind = |g: &Graph, kind: AxisKind| -> SmallVec<[UOp; 4]> {
        ranges.iter().copied().filter(|&r| g.kind(r) == kind).collect()
    };
    let (around_loops, unrolled, accums) =
        (of_kind(g, AxisKind::Reduce), of_kind(g, AxisKind::Unroll), of_kind(g, AxisKind::Accum));
    // iterations that differ only in addresses become a tile axis, so that contiguous elements can be loaded together
    let (mut steps, unrolled): (Ranges, Ranges) =
        unrolled.into_iter().partition(|&r| t.caps.has_local && addresses_alone(g, x, r));
    let dots = of_kind(g, AxisKind::Dot);
    steps.extend_from_slice(&dots);
    let mut bodies: Vec<UOp> = vec![x];
    for &r in &unrolled {
        let n = g.range_len(r) as i64;
        let mut next = Vec::with_capacity(bodies.len() * n as usize);
        for &b in &bodies {
            for i in 0..n {
                let c = g.int(i, g.dtype(r));
                let map = [(r, c)].into_iter().collect();
                let body = substitute1(g, b, &map);
                next.push(simplify_with(g, body, memo));
            }
        }
        bodies = next;
    }
    let peeled = match around_loops.as_slice() {
        // not where the loop has an early end: its last iteration may not run at all
        [r] if !t.caps.has_local && loop_limits.iter().all(|x| x.0 != g.range_arg(*r).id) => peel(g, memo, &bodies, *r),
        _ => None,
    };
    let mut around_loops: Ranges = around_loops;
    let mut tail = Vec::new();
    if let Some(p) = peeled {
        around_loops = p.rest.into_iter().collect();
        (bodies, tail) = (p.bodies, p.last);
    }
    // A body that depended on a loop only through a mask may be the same in every iteration once the mask is gone: it
    // is then computed once for all iterations, before that loop. An outer loop that it no longer depends on still
    // surrounds it if it depends on a loop inside that one.
    let needs = |g: &Graph, b: UOp, r: UOp| g.depends(b, r);
    let (around_loops, idle): (Ranges, Ranges) =
        around_loops.into_iter().partition(|&r| bodies.iter().any(|&b| needs(g, b, r)));
    for b in &mut bodies {
        let inside = around_loops.iter().rposition(|&r| needs(g, *b, r)).map_or(0, |last| last + 1);
        let tiles = steps.iter().filter(|&&r| !needs(g, *b, r)).copied().collect::<Ranges>();
        for &r in idle.iter().chain(&around_loops[inside..]).chain(&tiles) {
            *b = reduce_invariant(g, op, *b, r);
        }
    }
    let folded = if around_loops.is_empty() && bodies.len() == 1 && steps.is_empty() && tail.is_empty() {
        bodies[0]
    } else {
        let closed =
            ranges.iter().filter(|r| !accums.contains(r)).fold(0, |m: RangeSet, &r| m | 1 << g.range_arg(r).id);
        let open = g.ranges(x) & !closed;
        let init = g.constant(op.identity(acc_dt), acc_dt);
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[init]);
        // the open ranges are sources: tile axes determine the registers, and loops determine where the accumulator is
        // initialised
        let is_open = |u: &UOp| g.op(*u) == Op::Range && open >> g.range_arg(*u).id & 1 == 1;
        src.extend(g.reachable(&[x]).into_iter().filter(is_open));
        for &a in &accums {
            if !src.contains(&a) {
                src.push(a);
            }
        }
        let acc = g.node(Op::Acc, acc_dt, &src, Arg::Acc(*n_accs));
        *n_accs += 1;
        let mut deps: SmallVec<[UOp; 4]> =
            bodies.iter().enumerate().map(|(i, &b)| update(g, op, acc, b, i, t)).collect();
        let around = open & !accums.iter().fold(0, |m: RangeSet, &r| m | 1 << g.range_arg(r).id);
        for (i, &r) in around_loops.iter().enumerate() {
            let parent = i.checked_sub(1).map(|p| g.range_arg(around_loops[p]).id);
            loops.insert(g.range_arg(r).id, LoopInfo { parent, around });
        }
        for &r in around_loops.iter().rev() {
            let mut end: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[r]);
            end.extend_from_slice(&deps);
            deps = SmallVec::from_elem(g.node(Op::End, DType::Void, &end, Arg::None), 1);
        }
        let first = bodies.len();
        deps.extend(tail.iter().enumerate().map(|(i, &b)| update(g, op, acc, b, first + i, t)));
        let mut read: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[acc]);
        read.extend_from_slice(&deps);
        g.node(Op::AccRead, acc_dt, &read, Arg::None)
    };
    let mut out = folded;
    if !accums.is_empty() {
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[folded]);
        src.extend_from_slice(&accums);
        out = g.node(Op::Fold, acc_dt, &src, Arg::Reduce(op, Axes::new()));
    }
    for &r in &threads {
        out = share(k, op, out, r, t, n_accs, loops)?;
    }
    for r in unused {
        out = reduce_invariant(&mut k.g, op, out, r);
    }
    Ok(k.g.cast(out, dt))
}

/// A loop whose last iteration has been peeled off.
struct Peeled {
    /// The loop over the other iterations; `None` if there is just one.
    rest: Option<UOp>,
    bodies: Vec<UOp>,
    /// The bodies of the last iteration.
    last: Vec<UOp>,
}

/// Peels the last iteration off if the others then have fewer masks: an axis that was rounded up costs masks only in
/// its last iteration.
fn peel(g: &mut Graph, memo: &mut Memo, bodies: &[UOp], r: UOp) -> Option<Peeled> {
    let n = g.const_int(g.src_at(r, 0)).filter(|&n| n >= 2)?;
    let id = g.range_arg(r).id;
    let masks = |g: &Graph, list: &[UOp]| {
        let is = |u: &UOp| g.op(*u) == Op::CmpLt && g.ranges(*u) >> id & 1 == 1;
        g.reachable(list).iter().filter(|u| is(u)).count()
    };
    let before = masks(g, bodies);
    if before == 0 {
        return None;
    }
    let arg = g.range_arg(r);
    let rest = (n > 2).then(|| g.range_with(n as usize - 1, arg));
    let (zero, end) = (g.int(0, g.dtype(r)), g.int(n - 1, g.dtype(r)));
    let mut at = |g: &mut Graph, to: UOp| -> Vec<UOp> {
        let map = [(r, to)].into_iter().collect();
        let mut one = |b: &UOp| {
            let b = substitute1(g, *b, &map);
            simplify_with(g, b, memo)
        };
        bodies.iter().map(&mut one).collect()
    };
    let most = at(g, rest.unwrap_or(zero));
    if masks(g, &most) >= before {
        return None;
    }
    Some(Peeled { rest, bodies: most, last: at(g, end) })
}

/// Does `x` depend on `r` only through addresses that have a stride along it?
fn addresses_alone(g: &Graph, x: UOp, r: UOp) -> bool {
    let id = g.range_arg(r).id;
    let depends = |u: UOp| g.ranges(u) >> id & 1 == 1;
    let mut stack = vec![x];
    let mut seen = rustc_hash::FxHashSet::default();
    while let Some(u) = stack.pop() {
        if !seen.insert(u) || !depends(u) {
            continue;
        }
        if g.op(u) == Op::Load {
            let at = g.src_at(g.src_at(u, 0), 1);
            if affine(g, at).stride(g, r).is_none() || g.src(u)[1..].iter().any(|&s| depends(s)) {
                return false;
            }
        } else if matches!(g.op(u), Op::Shl | Op::Shr) && is_place(g, g.src_at(u, 1)) {
            // each iteration takes another part of a word: in a tile the shift amounts are constants
            stack.push(g.src_at(u, 0));
        } else if u == r || !g.op(u).is_alu() {
            return false;
        } else {
            stack.extend_from_slice(g.src(u));
        }
    }
    true
}

/// Is the value computed only from loop indices and constants?
fn is_place(g: &Graph, u: UOp) -> bool {
    g.reachable(&[u]).into_iter().all(|x| matches!(g.op(x), Op::Range | Op::Const) || g.op(x).is_alu())
}

/// The dtype of the accumulator: f32 for 16-bit floats, and 32 bits for narrow integers that the target has no
/// arithmetic for, whose result is wrapped by the final cast.
fn accumulator(dt: DType, t: &Target) -> DType {
    match dt {
        DType::F16 | DType::BF16 => DType::F32,
        _ if t.caps.arithmetic.has(dt) => dt,
        DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        _ => dt,
    }
}

/// Update number `i` of an accumulator in one iteration. The number makes the nodes different: two bodies that simplify
/// to the same value must both count.
pub(super) fn update(g: &mut Graph, op: ReduceOp, acc: UOp, x: UOp, i: usize, t: &Target) -> UOp {
    let dot = |u: &UOp| g.op(*u) == Op::Range && g.kind(*u) == AxisKind::Dot;
    let product = op == ReduceOp::Add
        && g.op(x) == Op::Mul
        && (t.caps.fma && g.dtype(x).is_float() || g.dtype(x) == DType::I32 && g.reachable(&[x]).iter().any(dot));
    if product {
        let (a, b) = (g.src_at(x, 0), g.src_at(x, 1));
        let arg = if i == 0 { Arg::None } else { Arg::Acc(i as u32) };
        return g.node(Op::AccMulAdd, DType::Void, &[acc, a, b], arg);
    }
    let digits: Axes = (i as u32).to_le_bytes().into_iter().collect();
    let arg = Arg::Reduce(op, if i == 0 { Axes::new() } else { digits });
    g.node(Op::AccUpdate, DType::Void, &[acc, x], arg)
}

/// `x` reduced over `r` without a loop, for an `x` that does not depend on `r`.
fn reduce_invariant(g: &mut Graph, op: ReduceOp, x: UOp, r: UOp) -> UOp {
    let (dt, n) = (g.dtype(x), g.src_at(r, 0));
    if g.const_int(n) == Some(0) {
        return g.constant(op.identity(dt), dt);
    }
    match op {
        ReduceOp::Max | ReduceOp::Min => x,
        _ if dt == DType::Bool => x,
        ReduceOp::Add => {
            let n = g.cast(n, dt);
            g.binary(Op::Mul, x, n)
        }
        ReduceOp::Mul => {
            // power by repeated squaring
            let mut n = g.range_len(r);
            let (mut power, mut out) = (x, None);
            while n > 0 {
                if n & 1 == 1 {
                    out = Some(out.map_or(power, |o| g.binary(Op::Mul, o, power)));
                }
                power = g.binary(Op::Mul, power, power);
                n >>= 1;
            }
            out.unwrap_or(x)
        }
    }
}
