//! Decides how arrays are declared (as elements, vectors or words), from how a program accesses them.

use super::super::cstyle::{Dots, Memory, accesses, is_whole, vector_width};
use super::dialect;
use super::memory::per_word;
use crate::DType;
use crate::codegen::Program;
use crate::target::Target;
use crate::uop::{Op, UOp};

/// The byte dot products of the program that become `dot4I8Packed`; none if the target lacks it.
pub(super) fn dots(p: &Program, t: &Target) -> Dots {
    if t.caps.dots.is_none() {
        return Dots::default();
    }
    // factors are read as words of four bytes: buffers that the shader also writes are excluded, since it writes single
    // bytes, and local arrays are included only if every access to them is a whole word
    let whole = |base: UOp| accesses(p, base).all(|u| p.g.op(u) == Op::Load || is_whole(p, u, 4));
    let written = |base: UOp| accesses(p, base).any(|u| p.g.op(u) == Op::Store);
    let first = Dots::find(p, &|base| match p.g.op(base) {
        Op::Param => !written(base),
        _ => whole(base),
    });
    let only = |base: UOp| accesses(p, base).all(|u| p.g.op(u) == Op::Store || first.has(u));
    Dots::find(p, &|base| if p.g.op(base) == Op::Param { !written(base) } else { whole(base) && only(base) })
}

/// How an array is declared: the number of values per array element, and the kind of array element. `base` is the
/// array's Param or Scratch node; `None` for a buffer that the program does not access.
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
    let narrow = matches!(dt.size(), 1 | 2) && dt != DType::Bool && !(dt == DType::F16 && t.caps.f16_arrays);
    let width = vector_width(p, base, dt, len, &dialect::vector);
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
    (if dots.quads(p, base, len) { 16 } else { 1 }, Memory::Words)
}
