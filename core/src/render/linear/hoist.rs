//! Loads the vector constants of an innermost loop into registers before the loop, as far as registers are free.
//! Otherwise each use is a load from the constant pool, and polynomial approximations use many constants.

use super::alloc::pressure;
use super::machine::Machine;
use super::mir::{Func, Item, Mem, Opnd, Size, VReg};
use super::share::{register_uses, rename};
use crate::util::sort;
use rustc_hash::FxHashMap;

/// Vector registers that hoisting and sharing leave free, for spill code and for later decisions.
pub(super) const SPARE_REGISTERS: usize = 2;

/// Hoists the most used constants of each innermost loop.
pub(in crate::render) fn constants<M: Machine>(f: &mut Func<M>, m: M) {
    let mut at = 0;
    while let Some((begin, end)) = next_loop(f, at) {
        at = end.saturating_add_signed(hoist(f, begin, end, m));
    }
}

/// The next innermost loop from item `at` on, as the items of its begin and end.
pub(super) fn next_loop<M: Machine>(f: &Func<M>, at: usize) -> Option<(usize, usize)> {
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

/// Hoists constants of one loop. Returns the number of items that were inserted before it, less those that were dropped
/// inside.
fn hoist<M: Machine>(f: &mut Func<M>, begin: usize, end: usize, m: M) -> isize {
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
    let mut free = (m.vectors().count_ones() as usize).saturating_sub(all + SPARE_REGISTERS);
    let mut free_low = (M::holding(Size::X).count_ones() as usize).saturating_sub(low + SPARE_REGISTERS);
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
            M::replace_memory_operand(inst, r, size);
        }
    }
    let n = chosen.len();
    let dropped = read_in_place(f, begin, end, &chosen);
    let tail = f.items.split_off(begin);
    for (m, size, r) in chosen {
        f.items.push(Item::Op(M::restore(size, r, m)));
    }
    f.items.extend(tail);
    n as isize - dropped as isize
}

/// Lets instructions read the hoisted registers directly: a copy of one whose destination has no other write is dropped
/// and renamed. Returns the number of dropped copies.
fn read_in_place<M: Machine>(f: &mut Func<M>, begin: usize, end: usize, chosen: &[(Mem, Size, VReg)]) -> usize {
    let copy = |item: &Item<M>| match item {
        Item::Op(i) if i.copy => match (i.ops[0], i.ops[1]) {
            (Opnd::R(to, _), Opnd::R(from, _)) => chosen.iter().any(|c| c.2 == from).then_some((to, from)),
            _ => None,
        },
        _ => None,
    };
    if !f.items[begin..end].iter().any(|item| copy(item).is_some()) {
        return 0;
    }
    let register_uses = register_uses(f);
    let mut names: FxHashMap<VReg, VReg> = FxHashMap::default();
    for (i, item) in f.items.iter().enumerate().take(end).skip(begin) {
        if let Some((to, from)) = copy(item) {
            let uses = register_uses[to.0 as usize];
            if uses.writes == 1 && uses.first > i && uses.last < end {
                names.insert(to, from);
            }
        }
    }
    let mut at = 0;
    let before = f.items.len();
    f.items.retain(|item| {
        at += 1;
        let inside = (begin..end).contains(&(at - 1));
        !(inside && copy(item).is_some_and(|c| names.contains_key(&c.0)))
    });
    let dropped = before - f.items.len();
    for item in &mut f.items[begin..end - dropped] {
        if let Item::Op(i) = item {
            rename(i, &names);
        }
    }
    dropped
}

fn constant<M: Machine>(f: &Func<M>, item: &Item<M>) -> Option<(Mem, Size)> {
    let Item::Op(inst) = item else { return None };
    M::constant(f, inst)
}
