//! Loads that innermost loops repeat become one, which all that read it share: the rows of a window that slides over a tile are read by
//! several taps, and a vector that is a memory operand of each of their multiply-adds costs a load each time, or two where it lies across
//! cache lines. Only as many are shared as there are free registers.

use super::alloc::pressure;
use super::hoist::{SPARE, next_loop};
use super::machine::Machine;
use super::mir::{Base, Func, Item, Mem, Opnd, Size, VReg, each_reg};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// A vector in memory and the instructions that take it from there, with nothing between them that could change it.
struct Read {
    mem: Mem,
    /// Of the code since the last store or jump, and of the registers in the address.
    version: [u32; 3],
    uses: SmallVec<[usize; 4]>,
}

/// Shares the loads of each innermost loop.
pub(in crate::render) fn loads<M: Machine>(f: &mut Func<M>, m: M) {
    let mut at = 0;
    while M::MEMORY_OPERANDS
        && let Some((begin, end)) = next_loop(f, at)
    {
        at = end + share(f, begin, end, m);
    }
}

/// Returns the number of items inserted.
fn share<M: Machine>(f: &mut Func<M>, begin: usize, end: usize, m: M) -> usize {
    let mut repeated = repeats(f, begin, end);
    repeated.retain(|r| r.uses.iter().all(|&i| size_of(f, i).is_some()));
    if repeated.is_empty() {
        return 0;
    }
    let (all, low) = pressure(f, begin, end);
    let free = (m.vectors().count_ones() as usize).saturating_sub(all + SPARE);
    let free_low = (M::holding(Size::X).count_ones() as usize).saturating_sub(low + SPARE);
    // in the order of their first uses: what is held at once has its last use after that
    let mut held: Vec<(usize, bool)> = Vec::new();
    let mut first: FxHashMap<usize, (Mem, Size, VReg)> = FxHashMap::default();
    for r in repeated {
        let Some(size) = size_of(f, r.uses[0]) else { continue };
        held.retain(|h| h.0 > r.uses[0]);
        let small = size != Size::Z;
        if held.len() >= free || small && held.iter().filter(|h| h.1).count() >= free_low {
            continue;
        }
        held.push((r.uses[r.uses.len() - 1], small));
        let reg = f.reg(size);
        for &i in &r.uses {
            if let Item::Op(inst) = &mut f.items[i] {
                M::take_constant(inst, reg, size);
            }
        }
        first.insert(r.uses[0], (r.mem, size, reg));
    }
    let tail = f.items.split_off(begin);
    for (i, item) in tail.into_iter().enumerate() {
        if let Some(&(mem, size, reg)) = first.get(&(begin + i)) {
            f.items.push(Item::Op(M::restore(size, reg, mem)));
        }
        f.items.push(item);
    }
    first.len()
}

/// The vectors that several instructions of a loop read, in the order of their first uses.
fn repeats<M: Machine>(f: &Func<M>, begin: usize, end: usize) -> Vec<Read> {
    let mut reads: Vec<Read> = Vec::new();
    let mut known: FxHashMap<(i32, Option<VReg>), SmallVec<[usize; 2]>> = FxHashMap::default();
    let mut changes: FxHashMap<VReg, u32> = FxHashMap::default();
    let mut code = 0;
    for (i, item) in f.items.iter().enumerate().take(end).skip(begin) {
        let Item::Op(inst) = item else {
            code += 1;
            continue;
        };
        let rm = inst.rm as usize;
        if let Some(&Opnd::M(mem)) = inst.ops.get(rm)
            && let Base::Reg(base) = mem.base
            && !inst.masked
            && !mem.bcst
            && mem.vector.is_none()
        {
            let of = |r: Option<VReg>| r.and_then(|r| changes.get(&r).copied()).unwrap_or(0);
            let version = [code, of(Some(base)), of(mem.index)];
            let places = known.entry((mem.disp, mem.index)).or_default();
            match places.iter().find(|&&p| (reads[p].mem, reads[p].version) == (mem, version)) {
                Some(&p) => reads[p].uses.push(i),
                None => {
                    places.push(reads.len());
                    reads.push(Read { mem, version, uses: SmallVec::from_elem(i, 1) });
                }
            }
        }
        // memory at any other place of an instruction may be written
        if inst.ops.iter().enumerate().any(|(k, o)| k != rm && matches!(o, Opnd::M(_))) {
            code += 1;
        }
        each_reg(inst, |r, _, written| {
            if written {
                *changes.entry(r).or_default() += 1;
            }
        });
    }
    reads.retain(|r| r.uses.len() > 1);
    reads
}

/// The size of the whole vector that an instruction takes from memory, where it could be a register.
fn size_of<M: Machine>(f: &Func<M>, item: usize) -> Option<Size> {
    let Item::Op(inst) = &f.items[item] else { return None };
    M::vector_operand(inst)
}
