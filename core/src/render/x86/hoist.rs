//! Constants of innermost loops that fit in free registers are loaded once, before the loop: a vector constant in memory
//! costs a load at each use, and polynomials have many.

use super::alloc::pressure;
use super::mir::{Base, Func, Item, Mem, Opnd, Size, VReg};
use crate::util::sort;
use iced_x86::Code;

/// Registers left for what spill code and later choices may need.
const SPARE: usize = 2;

/// Hoists the most used constants of each innermost loop.
pub(super) fn constants(f: &mut Func, wide: bool) {
    let mut at = 0;
    while let Some((begin, end)) = next_loop(f, at) {
        at = end + hoist(f, begin, end, wide);
    }
}

/// The next loop without a loop in it, from item `at` on.
fn next_loop(f: &Func, at: usize) -> Option<(usize, usize)> {
    let mut begin = None;
    for (i, item) in f.items.iter().enumerate().skip(at) {
        match item {
            Item::LoopBegin => begin = Some(i),
            Item::LoopEnd if begin.is_some() => return begin.map(|b| (b, i)),
            _ => {}
        }
    }
    None
}

/// Returns the number of items inserted.
fn hoist(f: &mut Func, begin: usize, end: usize, wide: bool) -> usize {
    let mut uses: Vec<(Mem, Size, usize)> = Vec::new();
    for item in &f.items[begin..end] {
        let Some((m, size)) = constant(f, item) else { continue };
        match uses.iter_mut().find(|u| u.0 == m) {
            Some(u) => u.2 += 1,
            None => uses.push((m, size, 1)),
        }
    }
    if uses.is_empty() {
        return 0;
    }
    let (all, low) = pressure(f, begin, end);
    let mut free = if wide { 32usize } else { 16 }.saturating_sub(all + SPARE);
    let mut free_low = 16usize.saturating_sub(low + SPARE);
    sort::by_key(&mut uses, |u| (std::cmp::Reverse(u.2), u.0.disp));
    let mut chosen: Vec<(Mem, Size, VReg)> = Vec::new();
    for (m, size, _) in uses {
        let small = size != Size::Z;
        if free == 0 || small && free_low == 0 {
            continue;
        }
        free -= 1;
        free_low -= small as usize;
        let r = f.reg(size);
        chosen.push((m, size, r));
    }
    for i in begin..end {
        let Some((m, _)) = constant(f, &f.items[i]) else { continue };
        let Some(&(_, size, r)) = chosen.iter().find(|c| c.0 == m) else { continue };
        if let Item::Op(inst) = &mut f.items[i] {
            let k = inst.rm as usize;
            inst.ops[k] = Opnd::R(r, size);
            inst.copy = k == 1 && !inst.masked && inst.def == 1 && inst.uses & 1 == 0 && is_move(inst.code);
        }
    }
    let n = chosen.len();
    let tail = f.items.split_off(begin);
    for (m, size, r) in chosen {
        let code = match size {
            Size::X => Code::VEX_Vmovups_xmm_xmmm128,
            Size::Y => Code::VEX_Vmovups_ymm_ymmm256,
            _ => Code::EVEX_Vmovups_zmm_k1z_zmmm512,
        };
        f.def(code, &[Opnd::R(r, size), Opnd::M(m)]);
    }
    f.items.extend(tail);
    n
}

fn is_move(code: Code) -> bool {
    matches!(code, Code::VEX_Vmovups_xmm_xmmm128 | Code::VEX_Vmovups_ymm_ymmm256 | Code::EVEX_Vmovups_zmm_k1z_zmmm512)
}

/// The whole vector constant that an instruction takes from memory, where it could be a register.
fn constant(f: &Func, item: &Item) -> Option<(Mem, Size)> {
    let Item::Op(inst) = item else { return None };
    let Some(&Opnd::M(m)) = inst.ops.get(inst.rm as usize) else { return None };
    if m.base != Base::Pool || m.index.is_some() || m.bcst || inst.def >> inst.rm & 1 == 1 {
        return None;
    }
    let size = match f.pool.len_at(m.disp)? {
        16 => Size::X,
        32 => Size::Y,
        64 => Size::Z,
        _ => return None,
    };
    // operands that may be either are named xmmm, ymmm, zmmm
    format!("{:?}", inst.code).contains("mmm").then_some((m, size))
}
