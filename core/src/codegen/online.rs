//! Online softmax: rows of any length in one loop over blocks (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao
//! et al., "FlashAttention", 2022). In: a kernel whose kept rows are cut to blocks by opts, each array and each reduction over it with a
//! loop of its own over the same blocks. Out: one loop over the blocks, arrays that hold one block, and accumulators: the maximum is that of
//! the blocks so far, and sums of exponentials below it are scaled down whenever it grows. Rows that are not cut are left as they are.

use super::axes::Kernel;
use super::reduce::LoopInfo;
use crate::analysis::affine;
use crate::dtype::Scalar;
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::uop::{Arg, Axes, AxisKind, Graph, Op, ReduceOp, UOp};
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

type Sources = SmallVec<[UOp; 4]>;

/// The blocks of a kernel's rows.
struct Blocks {
    /// Elements of a row and of a block.
    row: i64,
    block: i64,
    /// The loops over blocks, of arrays and of reductions.
    loops: FxHashSet<UOp>,
}

/// What a value is multiplied with as the maximum changes from m to n: `exp2((m - n) * c)`, where there is a c.
#[derive(Clone, Copy, PartialEq)]
enum Scale {
    /// It does not depend on the maximum.
    None,
    /// It does in another way: a part of an exponent.
    Exponent,
    /// The c.
    By(UOp),
}

/// Joins the loops over blocks.
pub(super) fn lower(k: &mut Kernel, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<()> {
    let Some(blocks) = find(k) else { return Ok(()) };
    let all = k.new_range((blocks.row / blocks.block) as usize, AxisKind::Reduce, false)?;
    let mut join = Join { all, max: None, scales: FxHashMap::default(), updates: Sources::new(), accs: Vec::new() };
    let mut image: FxHashMap<UOp, UOp> = blocks.loops.iter().map(|&r| (r, all)).collect();
    for u in k.nodes() {
        if image.contains_key(&u) {
            continue;
        }
        let src: Sources = k.g.srcs(u).iter().map(|s| image.get(s).copied().unwrap_or(*s)).collect();
        join.note(&k.g, u)?;
        let v = match k.g.op(u) {
            Op::Stage if is_cut(&k.g, u, &blocks) => one_block(k, u, &src, &blocks),
            Op::Index if is_cut(&k.g, k.g.src_at(u, 0), &blocks) => {
                let at = in_block(k, k.g.src_at(u, 1), &blocks).ok_or_else(|| bad("an array is read across blocks"))?;
                k.g.index(src[0], at)
            }
            Op::Reduce if k.g.src(u)[1..].iter().any(|r| blocks.loops.contains(r)) => {
                join.reduction(k, u, &src, &blocks)?
            }
            _ => k.g.with_src(u, &src),
        };
        image.insert(u, v);
    }
    let mut sink = image[&k.sink];
    let end: Sources = [all].into_iter().chain(join.updates.iter().copied()).collect();
    let end = k.g.node(Op::End, DType::Void, &end, Arg::None);
    // a total that the loop itself needs is not there yet
    let inside = k.g.reachable(&[end]);
    if join.accs.iter().any(|&(_, total)| inside.contains(&total)) || k.g.depends(sink, all) {
        return Err(bad("a row is read again after its reductions"));
    }
    let mut map = FxHashMap::default();
    let mut around = 0;
    for &(acc, total) in &join.accs {
        around |= k.g.ranges(acc);
        map.insert(total, k.g.node(Op::AccRead, k.g.dtype(acc), &[acc, end], Arg::None));
    }
    loops.insert(k.g.range_arg(all).id, LoopInfo { parent: None, around });
    sink = substitute1(&mut k.g, sink, &map);
    k.sink = simplify_with(&mut k.g, sink, &mut k.memo);
    Ok(())
}

fn bad(what: &str) -> Error {
    Error::value("opts", what)
}

fn len(g: &Graph, place: UOp) -> i64 {
    g.bounds(place).1 + 1
}

/// The loop over blocks that is a part of an array's last place, and the length of a block.
fn cut_of(g: &Graph, stage: UOp) -> Option<(UOp, i64)> {
    let place = *g.src(stage).get(1..)?.last()?;
    let terms = affine(g, place).terms;
    let (r, block) = terms.into_iter().find(|&(r, _)| g.kind(r) == AxisKind::Fill)?;
    (block > 1).then_some((r, block))
}

fn is_cut(g: &Graph, u: UOp, blocks: &Blocks) -> bool {
    g.op(u) == Op::Stage && cut_of(g, u).is_some_and(|c| blocks.loops.contains(&c.0))
}

fn find(k: &Kernel) -> Option<Blocks> {
    let g = &k.g;
    let nodes = k.nodes();
    let cut = |u: UOp| (g.op(u) == Op::Stage).then(|| cut_of(g, u)).flatten();
    let first = nodes.iter().copied().find(|&u| cut(u).is_some())?;
    let row = len(g, *g.src(first).last()?);
    let block = cut(first)?.1;
    let mut loops: FxHashSet<UOp> = nodes.iter().filter_map(|&u| cut(u)).map(|c| c.0).collect();
    for &u in nodes.iter().filter(|&&u| g.op(u) == Op::Index && cut(g.src_at(u, 0)).is_some()) {
        let terms = affine(g, g.src_at(u, 1)).terms;
        loops.extend(terms.iter().filter(|&&(r, c)| c == block && g.kind(r).is_loop()).map(|t| t.0));
    }
    let same = |&r: &UOp| g.range_len(r) as i64 * block == row;
    loops.iter().all(same).then_some(Blocks { row, block, loops })
}

/// An array of one block.
fn one_block(k: &mut Kernel, stage: UOp, src: &[UOp], blocks: &Blocks) -> UOp {
    let mut src: Sources = src.iter().copied().collect();
    if let (Some(last), Some((r, _))) = (src.last_mut(), cut_of(&k.g, stage)) {
        let zero = k.g.int(0, k.g.dtype(r));
        let place = *k.g.src(stage).last().unwrap_or(&stage);
        let place = substitute1(&mut k.g, place, &[(r, zero)].into_iter().collect());
        *last = simplify_with(&mut k.g, place, &mut k.memo);
        debug_assert_eq!(len(&k.g, *last), blocks.block);
    }
    k.g.with_src(stage, &src)
}

/// An address in an array of rows -> the one in an array of blocks.
fn in_block(k: &mut Kernel, at: UOp, blocks: &Blocks) -> Option<UOp> {
    let a = affine(&k.g, at);
    if !a.is_whole() || a.constant != 0 {
        return None;
    }
    let mut out = k.g.idx(0);
    let mut most = 0;
    for (r, c) in a.terms {
        if c == blocks.block && blocks.loops.contains(&r) {
            continue;
        }
        let c = match c % blocks.row {
            0 => c / blocks.row * blocks.block,
            _ => {
                most += c * (k.g.range_len(r) as i64 - 1);
                c
            }
        };
        let (r, c) = (k.g.cast(r, DType::I32), k.g.idx(c));
        let x = k.g.binary(Op::Mul, r, c);
        out = k.g.binary(Op::Add, out, x);
    }
    (most < blocks.block).then(|| simplify_with(&mut k.g, out, &mut k.memo))
}

/// The loop over all blocks as it is made.
struct Join {
    all: UOp,
    /// The maximum, as it was: before this turn, and with this turn.
    max: Option<(UOp, UOp, UOp)>,
    /// Of old nodes.
    scales: FxHashMap<UOp, Scale>,
    updates: Sources,
    /// Accumulators, and what stands for their value after the loop.
    accs: Vec<(UOp, UOp)>,
}

impl Join {
    /// How an old node depends on the maximum.
    fn note(&mut self, g: &Graph, u: UOp) -> Result<()> {
        let Some((max, ..)) = self.max else { return Ok(()) };
        if matches!(g.op(u), Op::Store | Op::Sink) || g.op(u) == Op::Reduce {
            return Ok(()); // see `reduction`; what is left of the maximum outside of the loop, `lower` notices
        }
        let of = |s: UOp| self.scales.get(&s).copied().unwrap_or(Scale::None);
        let src = g.src(u);
        let sources: Vec<Scale> = src.iter().map(|&s| of(s)).collect();
        let one = || {
            let mut scaled = sources.iter().copied().filter(|s| *s != Scale::None);
            scaled.next().filter(|_| scaled.next().is_none())
        };
        let scale = match g.op(u) {
            Op::Exp2 => exponent(g, src[0], max),
            Op::Mul => one(),
            Op::Where if g.const_val(src[2]).is_some_and(|c| c.as_f64() == 0.0) => one().filter(|s| *s == sources[1]),
            Op::Load if src.len() == 1 || g.const_val(src[1]).is_some_and(|c| c.as_f64() == 0.0) => one(),
            Op::Cast if g.dtype(u).is_float() => one(),
            Op::Index | Op::Stage => one(),
            _ => None,
        };
        let exponent = |s: UOp| s == max || of(s) == Scale::Exponent;
        let scale = match scale.filter(|s| *s != Scale::Exponent) {
            None if matches!(g.op(u), Op::Sub | Op::Mul) && src.iter().any(|&s| exponent(s)) => Scale::Exponent,
            None if !src.iter().any(|&s| exponent(s) || of(s) != Scale::None) => return Ok(()),
            None => return Err(bad("a row's maximum is used for more than exponentials below it")),
            Some(s) => s,
        };
        self.scales.insert(u, scale);
        Ok(())
    }

    /// One of the reductions over blocks.
    fn reduction(&mut self, k: &mut Kernel, u: UOp, src: &[UOp], blocks: &Blocks) -> Result<UOp> {
        let &Arg::Reduce(op, _) = k.g.arg(u) else { return Err(bad("a reduction of nothing")) };
        let old = k.g.srcs(u);
        let inner: Sources = old[1..].iter().copied().filter(|r| !blocks.loops.contains(r)).collect();
        let dt = k.g.dtype(u);
        let scale = self.scales.get(&old[0]).copied().unwrap_or(Scale::None);
        let part = if inner.is_empty() { src[0] } else { k.g.reduce_over(src[0], op, &inner) };
        if dt != DType::F32 || inner.len() + 2 != old.len() {
            return Err(bad("a reduction over blocks of another kind"));
        }
        let init = match op {
            // below all that is finite, so that a difference from it is no NaN where a block is masked whole
            ReduceOp::Max => k.g.constant(Scalar::float(f64::from(f32::MIN)), dt),
            _ => k.g.constant(op.identity(dt), dt),
        };
        let open = k.g.ranges(part) & !(1 << k.g.range_arg(self.all).id);
        let is_open = |g: &Graph, u: UOp| g.op(u) == Op::Range && open >> g.range_arg(u).id & 1 == 1;
        let ranges = k.g.reachable(&[part]).into_iter().filter(|&r| is_open(&k.g, r));
        let acc: Sources = [init].into_iter().chain(ranges).collect();
        let acc = k.g.node(Op::Acc, dt, &acc, Arg::Acc(self.accs.len() as u32));
        let total = k.g.node(Op::AccRead, dt, &[acc], Arg::None);
        self.accs.push((acc, total));
        let update = |g: &mut Graph, op, x| g.node(Op::AccUpdate, DType::Void, &[acc, x], Arg::Reduce(op, Axes::new()));
        match (op, scale, self.max) {
            (ReduceOp::Max, Scale::None, None) => {
                let before = k.g.node(Op::AccRead, dt, &[acc, self.all], Arg::None);
                let now = k.g.binary(Op::Max, before, part);
                self.updates.push(update(&mut k.g, op, now));
                self.max = Some((u, before, now));
                Ok(now)
            }
            (ReduceOp::Add, Scale::By(c), Some((_, before, now))) => {
                let less = k.g.binary(Op::Sub, before, now);
                let less = k.g.binary(Op::Mul, less, c);
                let factor = k.g.unary(Op::Exp2, less);
                self.updates.push(update(&mut k.g, ReduceOp::Mul, factor));
                self.updates.push(update(&mut k.g, op, part));
                Ok(total)
            }
            (ReduceOp::Add, Scale::None, _) => {
                self.updates.push(update(&mut k.g, op, part));
                Ok(total)
            }
            _ => Err(bad("a second maximum of a row")),
        }
    }
}

/// The c of `(x - max) * c`.
fn exponent(g: &Graph, x: UOp, max: UOp) -> Option<Scale> {
    let (difference, c) = match (g.op(x), g.src(x)) {
        (Op::Mul, &[y, c]) if g.const_val(c).is_some() => (y, c),
        _ => return None,
    };
    let is = g.op(difference) == Op::Sub && g.src_at(difference, 1) == max && g.src_at(difference, 0) != max;
    (is && !g.reachable(&[g.src_at(difference, 0)]).contains(&max)).then_some(Scale::By(c))
}
