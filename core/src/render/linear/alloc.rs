//! Linear-scan register allocation. The live range of a virtual register is one interval of item indices, extended to
//! the end of every loop that uses the register and begins after the interval's start. A register that gets no physical
//! one lives in a stack slot for its whole life: each use becomes a memory operand where the instruction allows one,
//! otherwise a reload into a register that lives for that instruction only. Then the scan runs again. The machine says
//! which physical registers exist and how one is spilled and reloaded.

use super::machine::Machine;
use super::mir::{Base, Func, Inst, Item, Mem, Opnd, Size, VReg, each_reg};
use crate::util::sort;
use crate::{Error, Result};

/// The live range of a virtual register.
#[derive(Clone, Copy)]
struct Interval {
    reg: VReg,
    /// Twice the index of the first item that names the register, plus one if that item writes it; `end` likewise for
    /// the last item.
    start: u32,
    end: u32,
    /// Number of reads and writes, each weighted by 8 to the power of its loop depth, divided by the interval's length:
    /// the interval of the least weight is spilled.
    weight: f32,
    /// The register on the other side of a copy, whose physical register is preferred.
    hint: Option<VReg>,
}

/// Assigns a physical register number to every virtual register and adds spill code to `f`.
pub(in crate::render) fn allocate<M: Machine>(f: &mut Func<M>, m: M) -> Result<Vec<u8>> {
    // registers from this number on were made for spill code and must never be spilled themselves
    let mut first_spill_temp = u32::MAX;
    for _ in 0..12 {
        let intervals = intervals(f, first_spill_temp);
        match scan(f, &intervals, m)? {
            (numbers, spilled) if spilled.is_empty() => return Ok(numbers),
            (_, spilled) => {
                first_spill_temp = first_spill_temp.min(f.regs.len() as u32);
                rewrite(f, &spilled);
            }
        }
    }
    Err(Error::Internal("register allocation does not settle".into()))
}

fn intervals<M: Machine>(f: &Func<M>, first_spill_temp: u32) -> Vec<Interval> {
    let mut ends = vec![0u32; f.items.len()]; // the end of the loop that begins at this item
    let mut open = Vec::new();
    for (i, item) in f.items.iter().enumerate() {
        match item {
            Item::LoopBegin => open.push(i),
            Item::LoopEnd => ends[open.pop().expect("loops nest")] = i as u32,
            _ => {}
        }
    }
    let none = Interval { reg: VReg(0), start: u32::MAX, end: 0, weight: 0.0, hint: None };
    let mut table = vec![none; f.regs.len()];
    let mut loops: Vec<(u32, u32)> = Vec::new();
    let mut scale = 1.0f32;
    for (i, item) in f.items.iter().enumerate() {
        let at = i as u32;
        match item {
            Item::LoopBegin => {
                loops.push((at, ends[i]));
                scale *= 8.0;
            }
            Item::LoopEnd => {
                loops.pop();
                scale /= 8.0;
            }
            Item::Op(inst) => {
                each_reg(inst, |r, read, written| {
                    let t = &mut table[r.0 as usize];
                    if t.start == u32::MAX {
                        *t = Interval { reg: r, start: 2 * at + written as u32, ..none };
                    }
                    t.weight += scale * (read as u32 + written as u32) as f32;
                    t.end = t.end.max(2 * at + written as u32);
                    if let Some(l) = loops.iter().find(|l| 2 * l.0 > t.start) {
                        t.end = t.end.max(2 * l.1);
                    }
                });
                if let (true, Opnd::R(d, _), Opnd::R(s, _)) = (inst.copy, inst.ops[0], inst.ops[1]) {
                    table[d.0 as usize].hint.get_or_insert(s);
                    table[s.0 as usize].hint.get_or_insert(d);
                }
            }
            _ => {}
        }
    }
    let mut out: Vec<Interval> = table.into_iter().filter(|t| t.start != u32::MAX).collect();
    for t in &mut out {
        t.weight = if t.reg.0 >= first_spill_temp { f32::INFINITY } else { t.weight / (t.end - t.start + 8) as f32 };
    }
    sort::by_key(&mut out, |t| (t.start, t.reg.0));
    out
}

/// Register pressure between two items: the most vector registers that are live at once, of all sizes and of those
/// below zmm.
pub(in crate::render) fn pressure<M: Machine>(f: &Func<M>, begin: usize, end: usize) -> (usize, usize) {
    let mut events: Vec<(u32, i32, bool)> = Vec::new();
    for t in intervals(f, u32::MAX) {
        let size = f.regs[t.reg.0 as usize];
        if size.is_vec() && t.end >= 2 * begin as u32 && t.start <= 2 * end as u32 {
            events.push((t.start, 1, size != Size::Z));
            events.push((t.end + 1, -1, size != Size::Z));
        }
    }
    sort::ascending(&mut events);
    let (mut now, mut most) = ([0i32; 2], [0i32; 2]);
    for (at, by, small) in events {
        now[0] += by;
        now[1] += if small { by } else { 0 };
        if at >= 2 * begin as u32 {
            most = [most[0].max(now[0]), most[1].max(now[1])];
        } else {
            most = now;
        }
    }
    (most[0] as usize, most[1] as usize)
}

/// Physical registers that hold arguments, each with the position where it is read: it may not be assigned before that.
fn argument_limits<M: Machine>(f: &Func<M>) -> Vec<(u8, u32)> {
    let mut out = Vec::new();
    for (i, item) in f.items.iter().enumerate().take(16) {
        if let Item::Op(inst) = item {
            for (k, o) in inst.ops.iter().enumerate() {
                if let Opnd::P(r) = o
                    && inst.def >> k & 1 == 0
                    && let Some(n) = M::general_number(*r)
                {
                    out.push((n, 2 * i as u32));
                }
            }
        }
    }
    out
}

fn scan<M: Machine>(f: &Func<M>, intervals: &[Interval], m: M) -> Result<(Vec<u8>, Vec<VReg>)> {
    let limits = argument_limits(f);
    let mut numbers = vec![u8::MAX; f.regs.len()];
    let mut spilled = Vec::new();
    let mut free = [M::holding(Size::Q), m.vectors()];
    let mut active: [Vec<Interval>; 2] = [Vec::new(), Vec::new()];
    for cur in intervals {
        let size = f.regs[cur.reg.0 as usize];
        let class = size.is_vec() as usize;
        active[class].retain(|a| {
            let live = a.end >= cur.start;
            if !live {
                free[class] |= 1 << numbers[a.reg.0 as usize];
            }
            live
        });
        let mut allowed = M::holding(size);
        if class == 0 {
            for &(r, limit) in &limits {
                if cur.start < limit {
                    allowed &= !(1 << r);
                }
            }
        }
        let candidates = free[class] & allowed;
        let hinted = cur.hint.map(|h| numbers[h.0 as usize]).filter(|&n| n < 32 && candidates >> n & 1 == 1);
        let number = if candidates == 0 {
            let victim = active[class]
                .iter()
                .enumerate()
                .filter(|(_, a)| allowed >> numbers[a.reg.0 as usize] & 1 == 1)
                .min_by(|a, b| a.1.weight.total_cmp(&b.1.weight));
            match victim {
                Some((k, v)) if v.weight < cur.weight => {
                    let (n, reg) = (numbers[v.reg.0 as usize], v.reg);
                    active[class].remove(k);
                    spilled.push(reg);
                    n
                }
                _ if cur.weight.is_infinite() => {
                    return Err(Error::Internal("an instruction needs more registers than there are".into()));
                }
                _ => {
                    spilled.push(cur.reg);
                    continue;
                }
            }
        } else if let Some(n) = hinted {
            n
        } else {
            M::preferred(size, candidates)
        };
        numbers[cur.reg.0 as usize] = number;
        free[class] &= !(1 << number);
        active[class].push(*cur);
    }
    Ok((numbers, spilled))
}

/// Rewrites the program so that the spilled registers live in stack slots.
fn rewrite<M: Machine>(f: &mut Func<M>, spilled: &[VReg]) {
    let mut slot_of = vec![u32::MAX; f.regs.len()];
    for r in spilled {
        slot_of[r.0 as usize] = f.slot(f.regs[r.0 as usize].bytes());
    }
    let slot = |r: VReg| slot_of.get(r.0 as usize).copied().filter(|&s| s != u32::MAX);
    let items = std::mem::take(&mut f.items);
    let mut out = Vec::with_capacity(items.len() * 2);
    for item in items {
        let Item::Op(mut i) = item else {
            out.push(item);
            continue;
        };
        let mut touched = false;
        each_reg(&i, |r, _, _| touched |= slot(r).is_some());
        if touched {
            spill_inst(f, &mut i, slot, &mut out);
        } else {
            out.push(item);
        }
    }
    f.items = out;
}

fn spill_inst<M: Machine>(
    f: &mut Func<M>,
    i: &mut Inst<M>,
    slot: impl Fn(VReg) -> Option<u32>,
    out: &mut Vec<Item<M>>,
) {
    let in_slot = |s: u32| Mem::at(Base::Slot(s), 0);
    if i.copy
        && let (Opnd::R(d, _), Opnd::R(s, _)) = (i.ops[0], i.ops[1])
        && let (Some(sd), None) = (slot(d), slot(s))
    {
        out.push(Item::Op(M::save(f.regs[d.0 as usize], in_slot(sd), s)));
        return;
    }
    if let (Opnd::R(r, size), false) = (i.ops[0], i.ops.iter().any(|o| matches!(o, Opnd::M(_))))
        && let Some(s) = slot(r)
        && i.ops[1] != Opnd::R(r, size)
        && M::update_in_memory(i, size, in_slot(s))
    {
        out.push(Item::Op(*i));
        return;
    }
    let has_mem = i.ops.iter().any(|o| matches!(o, Opnd::M(_)));
    let twice = |r: VReg| {
        let mut n = 0;
        each_reg(i, |x, _, _| n += (x == r) as u32);
        n > 1
    };
    if i.rm < 4
        && !has_mem
        && let Opnd::R(r, size) = i.ops[i.rm as usize]
        && let Some(s) = slot(r)
        && size != Size::B
        && size != Size::W
        && !twice(r)
    {
        i.ops[i.rm as usize] = Opnd::M(in_slot(s));
    }
    let mut loaded: Vec<(VReg, VReg)> = Vec::new();
    let mut after = Vec::new();
    let mut reload = |f: &mut Func<M>, r: VReg, read: bool, written: bool, out: &mut Vec<Item<M>>| -> VReg {
        let Some(s) = slot(r) else { return r };
        let t = match loaded.iter().find(|l| l.0 == r) {
            Some(l) => l.1,
            None => {
                let size = f.regs[r.0 as usize];
                let t = f.reg(size);
                loaded.push((r, t));
                if read {
                    out.push(Item::Op(M::restore(size, t, in_slot(s))));
                }
                t
            }
        };
        if written {
            after.push(Item::Op(M::save(f.regs[r.0 as usize], in_slot(s), t)));
        }
        t
    };
    // operands that are read come first, so that a register that is both read and written is reloaded
    for pass in 0..2 {
        for k in 0..4 {
            let def = i.def >> k & 1 == 1;
            match i.ops[k] {
                Opnd::R(r, size) if def == (pass == 1) => {
                    let read = !def || i.uses >> k & 1 == 1;
                    i.ops[k] = Opnd::R(reload(f, r, read, def, out), size);
                }
                Opnd::M(mut m) if pass == 0 => {
                    if let Base::Reg(r) = m.base {
                        m.base = Base::Reg(reload(f, r, true, false, out));
                    }
                    m.index = m.index.map(|r| reload(f, r, true, false, out));
                    i.ops[k] = Opnd::M(m);
                }
                _ => {}
            }
        }
    }
    i.copy &= !matches!(i.ops[1], Opnd::M(_));
    out.push(Item::Op(*i));
    out.extend(after);
}
