//! How arrays are declared, from how a program accesses them.

use super::super::cstyle::{Dots, Memory, divisible};
use super::dialect;
use super::memory::per_word;
use crate::DType;
use crate::codegen::{Program, TileAxis};
use crate::target::Target;
use crate::uop::{Arg, Op, UOp};

/// Sums of products of bytes that the shader language has an operation for.
pub(super) fn dots(p: &Program, t: &Target) -> Dots {
    if t.dots.is_none() {
        return Dots::default();
    }
    // what a shader writes too it changes byte by byte, and local arrays hold words where every access is of words
    let whole = |base: UOp| accesses(p, base).all(|u| p.g.op(u) == Op::Load || is_whole(p, u, 4));
    let written = |base: UOp| accesses(p, base).any(|u| p.g.op(u) == Op::Store);
    let first = Dots::find(p, &|base| match p.g.op(base) {
        Op::Param => !written(base),
        _ => whole(base),
    });
    let only = |base: UOp| accesses(p, base).all(|u| p.g.op(u) == Op::Store || first.has(u));
    Dots::find(p, &|base| if p.g.op(base) == Op::Param { !written(base) } else { whole(base) && only(base) })
}

/// How an array is declared: elements of an array element, and what that is. `base` is its Param or Scratch.
pub(super) fn memory(
    p: &Program,
    base: Option<UOp>,
    dt: DType,
    len: usize,
    t: &Target,
    dots: &Dots,
) -> (usize, Memory) {
    let Some(base) = base else {
        return (per_word(dt), if per_word(dt) > 1 { Memory::Words } else { Memory::Elements });
    };
    let narrow = matches!(dt.size(), 1 | 2) && dt != DType::Bool && !(dt == DType::F16 && t.f16_arrays);
    let width = vector_width(p, base, dt, len);
    if p.g.op(base) != Op::Param {
        let words = narrow && len.is_multiple_of(4) && accesses(p, base).any(|u| dots.has(u));
        return if words { (4, Memory::Words) } else { (width, Memory::Elements) };
    }
    if !narrow {
        return (width, Memory::Elements);
    }
    if width > 1 && width.is_multiple_of(per_word(dt)) {
        return (width, Memory::Words);
    }
    if accesses(p, base).any(|u| p.g.op(u) == Op::Store) {
        return (1, Memory::Shared);
    }
    let vectors = len.is_multiple_of(16) && accesses(p, base).all(|u| dots.has(u) && is_vector_of_words(p, u));
    (if vectors { 16 } else { 1 }, Memory::Words)
}

fn accesses(p: &Program, base: UOp) -> impl Iterator<Item = UOp> {
    p.order.iter().copied().filter(move |&u| matches!(p.g.op(u), Op::Load | Op::Store) && p.base(u) == base)
}

/// How many elements one array element of a buffer or local array may hold: the lane count if every access is of whole
/// aligned vectors, along the lanes or (loads) along registers.
fn vector_width(p: &Program, base: UOp, dt: DType, len: usize) -> usize {
    let lanes = p.tiles.iter().filter(|t| t.lane).map(|t| t.len).next();
    let n = lanes.unwrap_or(4);
    if !dialect::vector(dt, n) || !len.is_multiple_of(n) {
        return 1;
    }
    let mut all = accesses(p, base).peekable();
    if all.peek().is_some() && all.all(|u| is_whole(p, u, n)) { n } else { 1 }
}

/// Are the strides of an Index along other axes multiples of `n`?
fn aligned(p: &Program, index: UOp, but: &[u8], n: usize) -> bool {
    let others = match p.g.arg(index) {
        Arg::Strides(s) => s.iter().filter(|s| !but.contains(&s.0)).all(|s| s.1 % n as i64 == 0),
        _ => true,
    };
    others && divisible(&p.g, p.g.src_at(index, 1), n as i64)
}

/// Is an access of whole aligned vectors of `n`?
fn is_whole(p: &Program, u: UOp, n: usize) -> bool {
    let index = p.g.src_at(u, 0);
    let gate_of = |id: u8| p.g.src(u).get(2).is_some_and(|&c| p.g.ranges(c) >> id & 1 == 1);
    let whole = |axis: &TileAxis| {
        // a load along lanes may have a gate for each
        let one_gate = axis.lane && p.g.op(u) == Op::Load || !gate_of(axis.id);
        let one_offset = p.g.ranges(p.g.src_at(index, 1)) >> axis.id & 1 == 0;
        p.stride(index, axis.id) == 1 && aligned(p, index, &[axis.id], n) && one_gate && one_offset
    };
    match p.tiles.iter().find(|t| t.lane && p.g.ranges(index) >> t.id & 1 == 1) {
        Some(lane) => lane.len == n && whole(lane),
        None => p.g.op(u) == Op::Load && p.quad_axis(u, n).is_some_and(|a| whole(&a)),
    }
}

/// Is a load of words one of four words, a lane each?
fn is_vector_of_words(p: &Program, u: UOp) -> bool {
    let index = p.g.src_at(u, 0);
    let open = p.g.ranges(index);
    let Some(lane) = p.tiles.iter().find(|t| t.lane && t.len == 4 && open >> t.id & 1 == 1) else { return false };
    let within = p.tiles.iter().find(|t| !t.lane && t.len == 4 && p.stride(index, t.id) == 1);
    let one_offset = p.g.ranges(p.g.src_at(index, 1)) >> lane.id & 1 == 0;
    within.is_some_and(|w| p.stride(index, lane.id) == 4 && one_offset && aligned(p, index, &[lane.id, w.id], 16))
}
