//! Local value numbering in innermost loops: a vector value that straight-line code computes more than once is computed
//! once and kept in a register. Most of these are loads. The rows of a window that slides over a tile are read by
//! several filter positions, and a vector that is a memory operand of each of their multiply-adds costs a load each
//! time, or two where it crosses a cache line; rows under a mask cost the mask as well.
//!
//! In: the linear program before register allocation. Out: the same with fewer instructions. Two computations are equal
//! if their opcode, their operands and the number of earlier writes to these operands are equal. Only as many values
//! are kept as there are free registers, and none is kept across a label.

use super::alloc::pressure;
use super::hoist::{SPARE_REGISTERS, next_loop};
use super::machine::Machine;
use super::mir::{Base, Func, Inst, Item, Mem, Opnd, Size, VReg, each_reg};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The key of value numbering: what an instruction computes, or a vector that it reads as a memory operand, in which
/// case `code` is `None`.
#[derive(Clone, PartialEq)]
struct Value<M: Machine> {
    code: Option<M::Code>,
    size: Size,
    ops: [Opnd<M>; 3],
    /// The number of the mask in effect, and whether the lanes that it excludes are zeroed; `None` for an unmasked
    /// instruction.
    masked: Option<(u32, bool)>,
    /// How often memory, and then each register that is read, had been written before. Memory counts 0 if no operand is
    /// memory.
    versions: SmallVec<[u32; 4]>,
}

/// A value and the items that compute it, each with the register that it writes; `None` where the value is a memory
/// operand of the item.
struct Repeat<M: Machine> {
    value: Value<M>,
    computations: SmallVec<[(usize, Option<VReg>); 4]>,
}

/// How often a register is written, and the first and last item that read it.
#[derive(Clone, Copy)]
pub(super) struct RegisterUses {
    pub(super) writes: u32,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// The changes to make: items to drop, registers to rename, and vectors to load into a register before an item.
#[derive(Default)]
struct Change {
    dropped: FxHashSet<usize>,
    renamed: FxHashMap<VReg, VReg>,
    loaded: FxHashMap<usize, (Mem, Size, VReg)>,
}

/// Shares the values of each innermost loop.
pub(in crate::render) fn values<M: Machine>(f: &mut Func<M>, m: M) {
    if !M::MEMORY_OPERANDS {
        return;
    }
    let register_uses = register_uses(f);
    let mut change = Change::default();
    let mut at = 0;
    while let Some((begin, end)) = next_loop(f, at) {
        share(f, begin, end, m, &register_uses, &mut change);
        at = end + 1;
    }
    if change.dropped.is_empty() && change.loaded.is_empty() {
        return;
    }
    let items = std::mem::take(&mut f.items);
    for (i, mut item) in items.into_iter().enumerate() {
        if let Some(&(mem, size, reg)) = change.loaded.get(&i) {
            let mut load = M::restore(size, reg, mem);
            rename(&mut load, &change.renamed);
            f.items.push(Item::Op(load));
        }
        if change.dropped.contains(&i) {
            continue;
        }
        if let Item::Op(inst) = &mut item {
            rename(inst, &change.renamed);
        }
        f.items.push(item);
    }
}

pub(super) fn register_uses<M: Machine>(f: &Func<M>) -> Vec<RegisterUses> {
    let mut register_uses = vec![RegisterUses { writes: 0, first: usize::MAX, last: 0 }; f.regs.len()];
    for (i, item) in f.items.iter().enumerate() {
        let Item::Op(inst) = item else { continue };
        each_reg(inst, |r, read, written| {
            let uses = &mut register_uses[r.0 as usize];
            uses.writes += written as u32;
            if read {
                uses.first = uses.first.min(i);
                uses.last = i;
            }
        });
    }
    register_uses
}

fn share<M: Machine>(
    f: &mut Func<M>,
    begin: usize,
    end: usize,
    m: M,
    register_uses: &[RegisterUses],
    change: &mut Change,
) {
    let repeats = repeats(f, begin, end, register_uses, change);
    if repeats.is_empty() {
        return;
    }
    let (all, low) = pressure(f, begin, end);
    let free = (m.vectors().count_ones() as usize).saturating_sub(all + SPARE_REGISTERS);
    let free_low = (M::holding(Size::X).count_ones() as usize).saturating_sub(low + SPARE_REGISTERS);
    // repeats are in the order of their first computation, so the values held at once are those whose last use is still
    // to come
    let mut held: Vec<(usize, bool)> = Vec::new();
    for Repeat { value, computations } in repeats {
        let last =
            computations.iter().map(|&(i, d)| d.map_or(i, |d| register_uses[d.0 as usize].last)).max().unwrap_or(0);
        let (first, small) = (computations[0], value.size != Size::Z);
        held.retain(|h| h.0 > first.0);
        if held.len() >= free || small && held.iter().filter(|h| h.1).count() >= free_low {
            continue;
        }
        held.push((last, small));
        if let Some(kept) = first.1 {
            change.dropped.extend(computations[1..].iter().map(|p| p.0));
            change.renamed.extend(computations[1..].iter().filter_map(|p| Some((p.1?, kept))));
            continue;
        }
        let (Opnd::M(mem), reg) = (value.ops[0], f.reg(value.size)) else { continue };
        change.loaded.insert(first.0, (mem, value.size, reg));
        for (i, _) in computations {
            if let Item::Op(inst) = &mut f.items[i] {
                M::replace_memory_operand(inst, reg, value.size);
            }
        }
    }
}

/// The values that a loop computes more than once, in the order of their first computation. An instruction that sets
/// the mask register to the mask that it already holds is dropped right here.
fn repeats<M: Machine>(
    f: &Func<M>,
    begin: usize,
    end: usize,
    register_uses: &[RegisterUses],
    change: &mut Change,
) -> Vec<Repeat<M>> {
    let mut all: Vec<Repeat<M>> = Vec::new();
    // values since the last label, hashed by a few operand fields
    let mut known: FxHashMap<[i64; 2], SmallVec<[usize; 2]>> = FxHashMap::default();
    let mut same: FxHashMap<VReg, VReg> = FxHashMap::default();
    let mut writes: FxHashMap<VReg, u32> = FxHashMap::default();
    let mut masks: Vec<Value<M>> = Vec::new();
    let (mut memory, mut mask) = (0, None);
    for i in begin..end {
        let inst = match &f.items[i] {
            Item::Op(inst) => inst,
            Item::Jump(..) => continue,
            _ => {
                known.clear();
                mask = None;
                continue;
            }
        };
        let mut own = *inst;
        rename(&mut own, &same);
        let value = |code: Option<M::Code>, size: Size, ops: [Opnd<M>; 3], masked: Option<(u32, bool)>| {
            let mut versions = SmallVec::from_elem(memory, 1);
            let mut add = |r: VReg| versions.push(writes.get(&r).copied().unwrap_or(0));
            for o in &ops {
                match o {
                    Opnd::R(r, _) => add(*r),
                    Opnd::M(m) => {
                        let base = if let Base::Reg(r) = m.base { Some(r) } else { None };
                        base.into_iter().chain(m.index).for_each(&mut add);
                    }
                    _ => {}
                }
            }
            if !ops.iter().any(|o| matches!(o, Opnd::M(_))) {
                versions[0] = 0;
            }
            Value { code, size, ops, masked, versions }
        };
        let rest = [own.ops[1], own.ops[2], own.ops[3]];
        let gathers = own.ops.iter().any(|o| matches!(o, Opnd::M(m) if m.vector.is_some()));
        if let Opnd::P(r) = own.ops[0]
            && M::is_mask(r)
            && own.def == 1
        {
            let v = value(Some(own.code), Size::Z, rest, None);
            let number = masks.iter().position(|x| *x == v).unwrap_or(masks.len());
            if mask == Some(number as u32) {
                change.dropped.insert(i);
            }
            if number == masks.len() {
                masks.push(v);
            }
            // physical registers have no version count, so a mask read from one is unknown
            mask = (!rest.iter().any(|o| matches!(o, Opnd::P(_)))).then_some(number as u32);
        } else if gathers {
            // a gather clears its mask register
            mask = None;
        } else {
            let reg = result(&own).filter(|&(d, _)| {
                let uses = register_uses[d.0 as usize];
                uses.writes == 1 && uses.first > i && uses.last < end && (!own.masked || mask.is_some())
            });
            let operand = || {
                let &Opnd::M(mem) = own.ops.get(own.rm as usize)? else { return None };
                let whole = matches!(mem.base, Base::Reg(_)) && !own.masked && !mem.broadcast;
                let size = M::vector_operand(&own).filter(|_| whole && own.def >> own.rm & 1 == 0)?;
                Some(value(None, size, [Opnd::M(mem), Opnd::None, Opnd::None], None))
            };
            let masked = mask.filter(|_| own.masked).map(|k| (k, own.zeroing));
            // a plain load shares its value with memory operands of other instructions
            let operand = operand();
            let d = reg.filter(|_| operand.is_none()).map(|r| r.0);
            if let Some(v) = operand.or_else(|| reg.map(|(_, size)| value(Some(own.code), size, rest, masked))) {
                let candidates = known.entry(digest(&v)).or_default();
                match candidates.iter().find(|&&p| all[p].value == v) {
                    Some(&p) => {
                        if let (Some(d), Some(kept)) = (d, all[p].computations[0].1) {
                            same.insert(d, kept);
                        }
                        all[p].computations.push((i, d));
                    }
                    None => {
                        candidates.push(all.len());
                        all.push(Repeat { value: v, computations: SmallVec::from_elem((i, d), 1) });
                    }
                }
            }
        }
        memory += writes_memory(&own) as u32;
        each_reg(inst, |r, _, written| {
            if written {
                *writes.entry(r).or_default() += 1;
            }
        });
    }
    all.retain(|r| r.computations.len() > 1);
    all
}

/// The vector register that an instruction writes without reading it, if the result depends on the instruction's
/// operands alone.
fn result<M: Machine>(i: &Inst<M>) -> Option<(VReg, Size)> {
    let Opnd::R(d, size) = i.ops[0] else { return None };
    let alone = i.def == 1 && i.uses & 1 == 0 && !i.copy && !i.ops.iter().any(|o| matches!(o, Opnd::P(_)));
    (alone && size.is_vec() && i.ops[1] != Opnd::None).then_some((d, size))
}

/// Does the instruction write memory? An instruction whose only operand is an address is a prefetch and does not.
fn writes_memory<M: Machine>(i: &Inst<M>) -> bool {
    i.ops.iter().enumerate().any(|(k, o)| {
        let stored = i.def == 0 && k != i.rm as usize && i.ops[1] != Opnd::None;
        matches!(o, Opnd::M(_)) && (stored || i.def >> k & 1 == 1)
    })
}

/// A hash of a value: equal values have equal digests.
fn digest<M: Machine>(v: &Value<M>) -> [i64; 2] {
    let of = |o: &Opnd<M>| match o {
        Opnd::R(r, _) => i64::from(r.0),
        Opnd::M(m) => i64::from(m.disp) << 24 ^ m.index.map_or(0, |r| i64::from(r.0)),
        _ => 0,
    };
    [of(&v.ops[0]), of(&v.ops[1])]
}

pub(super) fn rename<M: Machine>(i: &mut Inst<M>, names: &FxHashMap<VReg, VReg>) {
    let of = |r: &mut VReg| *r = names.get(r).copied().unwrap_or(*r);
    for o in &mut i.ops {
        match o {
            Opnd::R(r, _) => of(r),
            Opnd::M(m) => {
                if let Base::Reg(r) = &mut m.base {
                    of(r);
                }
                m.index.iter_mut().for_each(of);
            }
            _ => {}
        }
    }
}
