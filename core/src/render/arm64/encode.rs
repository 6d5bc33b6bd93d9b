//! Encodes an allocated function: stack frame, prologue, constant pool, branches. The code is position independent with
//! its entry at offset 0. Its layout is a branch over the constants, the constants, the code.

use super::table::{self, Code};
use super::{Func, Inst, Opnd};
use crate::render::linear::mir::{Base, Item, Mem};
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// Callee-saved general registers of the procedure call standard.
const CALLEE_SAVED: std::ops::RangeInclusive<u8> = 19..=28;
/// Vector registers whose lower half is callee-saved.
const CALLEE_SAVED_VECTORS: std::ops::RangeInclusive<u8> = 8..=15;
/// The largest stack frame in bytes. Larger ones are refused, since threads have bounded stacks.
const MAX_FRAME: u32 = 1 << 20;
/// Offset of the constant pool in the code, after the branch at the entry.
const POOL_AT: usize = 64;
/// The stack pointer.
const SP: u32 = 31;
/// The zero register, which has the number of the stack pointer: an instruction's operand means one or the other.
const ZERO: u32 = 31;
/// The register that holds offsets which do not fit into an instruction; the allocator never assigns it.
const SCRATCH: u32 = 16;

/// Encodes an allocated function.
pub(super) fn encode(f: &Func, numbers: &[u8]) -> Result<Vec<u8>> {
    let mut frame = Vec::with_capacity(f.slots.len());
    let used = |vector: bool, k: u8| f.regs.iter().zip(numbers).any(|(s, &n)| s.is_vec() == vector && n == k);
    let kept: Vec<u8> = CALLEE_SAVED.filter(|&k| used(false, k)).collect();
    let kept_vectors: Vec<u8> = CALLEE_SAVED_VECTORS.filter(|&k| used(true, k)).collect();
    let mut bytes = 8 * (kept.len() + kept_vectors.len()) as u32;
    for &s in &f.slots {
        bytes = bytes.next_multiple_of(s.next_power_of_two().clamp(8, 16));
        frame.push(bytes);
        bytes = bytes.saturating_add(s);
        if bytes > MAX_FRAME {
            return Err(Error::Unsupported { what: "kernel-local memory over 1 MiB".into(), context: "arm64".into() });
        }
    }
    let bytes = bytes.next_multiple_of(16);
    let start = if f.pool.bytes.is_empty() { 0 } else { (POOL_AT + f.pool.bytes.len()).next_multiple_of(64) };
    let mut e = Emit { numbers, frame, start, words: Vec::new(), labels: FxHashMap::default(), jumps: Vec::new() };
    let saved = |e: &mut Emit, general: Code, vector: Code| {
        let regs = kept.iter().map(|&k| (general, k)).chain(kept_vectors.iter().map(|&k| (vector, k)));
        for (i, (code, k)) in regs.enumerate() {
            // the offset counts units of eight bytes
            e.words.push(code.word | (i as u32) << 10 | SP << 5 | k as u32);
        }
    };
    // some systems map stack pages only if they are touched in order
    for _ in 0..bytes >> 12 {
        e.move_stack(table::SUB_IMM12, 1);
        e.words.push(table::STR_X.word | SP << 5 | ZERO);
    }
    e.move_stack(table::SUB_IMM, bytes & 0xfff);
    saved(&mut e, table::STR_X, table::STR_D);
    for item in &f.items {
        match item {
            Item::Op(i) => e.op(i)?,
            Item::Label(l) => drop(e.labels.insert(*l, e.words.len())),
            Item::Jump(code, l) => {
                e.jumps.push((e.words.len(), *l));
                e.words.push(code.word);
            }
            Item::LoopBegin | Item::LoopEnd => {}
        }
    }
    saved(&mut e, table::LDR_X, table::LDR_D);
    e.move_stack(table::ADD_IMM12, bytes >> 12);
    e.move_stack(table::ADD_IMM, bytes & 0xfff);
    e.words.push(table::RET.word);
    e.link()?;
    let mut out = Vec::with_capacity(start + 4 * e.words.len());
    if start > 0 {
        out.extend_from_slice(&(table::B.word | start as u32 / 4).to_le_bytes());
        out.resize(POOL_AT, 0);
        out.extend_from_slice(&f.pool.bytes);
        out.resize(start, 0);
    }
    e.words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
    Ok(out)
}

struct Emit<'a> {
    numbers: &'a [u8],
    frame: Vec<u32>,
    /// Offset of the first instruction after the constant pool, in bytes.
    start: usize,
    words: Vec<u32>,
    labels: FxHashMap<u32, usize>,
    jumps: Vec<(usize, u32)>,
}

/// A signed number as a field of `bits` bits; `None` if it does not fit.
fn signed(v: i64, bits: u32) -> Option<u32> {
    let half = 1i64 << (bits - 1);
    (-half..half).contains(&v).then_some((v as u32) & (u32::MAX >> (32 - bits)))
}

fn too_far() -> Error {
    Error::Unsupported { what: "a kernel of more than 1 MiB of code".into(), context: "arm64".into() }
}

impl Emit<'_> {
    /// Adds `units` (of the instruction's immediate) to the stack pointer, or subtracts them.
    fn move_stack(&mut self, code: Code, units: u32) {
        if units > 0 {
            self.words.push(table::full(code, true).word | units << 10 | SP << 5 | SP);
        }
    }

    fn link(&mut self) -> Result<()> {
        for (at, l) in std::mem::take(&mut self.jumps) {
            let to = *self.labels.get(&l).ok_or_else(|| Error::Internal("a jump to nowhere".into()))?;
            let by = to as i64 - at as i64;
            self.words[at] |= match self.words[at] == table::B.word {
                true => signed(by, 26).ok_or_else(too_far)?,
                false => signed(by, 19).ok_or_else(too_far)? << 5,
            };
        }
        Ok(())
    }

    fn number(&self, r: crate::render::linear::mir::VReg) -> u32 {
        self.numbers[r.0 as usize] as u32
    }

    fn op(&mut self, i: &Inst) -> Result<()> {
        // a 32-bit copy clears the upper half, so it is never dropped
        if i.copy
            && let (Opnd::R(a, _), Opnd::R(b, _)) = (i.ops[0], i.ops[1])
            && self.number(a) == self.number(b)
            && i.code != table::MOV
        {
            return Ok(());
        }
        let mut word = i.code.word;
        let mut memory = None;
        for (k, o) in i.ops.iter().enumerate() {
            word |= match *o {
                Opnd::None => break,
                Opnd::R(r, _) => self.number(r) << i.code.at[k],
                Opnd::P(r) => (r as u32) << i.code.at[k],
                Opnd::I32(v) => (v as u32) << i.code.at[k],
                Opnd::M(m) => {
                    memory = Some(m);
                    0
                }
                o => return Err(Error::Internal(format!("{o:?} in an instruction of arm64"))),
            };
        }
        match memory {
            Some(m) => self.mem(i.code, word, &m),
            None => {
                self.words.push(word);
                Ok(())
            }
        }
    }

    fn mem(&mut self, code: Code, word: u32, m: &Mem) -> Result<()> {
        let log = code.memory as u32;
        let base = match m.base {
            Base::Pool => return self.literal(code, word, m.disp),
            Base::Reg(r) => self.number(r),
            Base::Slot(s) => {
                let at = m.disp as i64 + self.frame[s as usize] as i64;
                if at % (1 << log) == 0 && at >> log < 4096 {
                    self.words.push(word | ((at >> log) as u32) << 10 | SP << 5);
                } else {
                    let mov = |c: Code, v: i64, half: u32| {
                        table::full(c, true).word | half << 21 | (v as u32 & 0xffff) << 5 | SCRATCH
                    };
                    self.words.extend([mov(table::MOVZ, at, 0), mov(table::MOVK, at >> 16, 1)]);
                    self.words.push(with_register(word, SP, SCRATCH, false));
                }
                return Ok(());
            }
        };
        let Some(index) = m.index else {
            let disp = m.disp as i64;
            self.words.push(if disp >= 0 && disp % (1 << log) == 0 && disp >> log < 4096 {
                word | ((disp >> log) as u32) << 10 | base << 5
            } else {
                let disp = signed(disp, 9).ok_or_else(|| Error::Internal(format!("an address {m:?} on arm64")))?;
                word & !(1 << 24) | disp << 12 | base << 5
            });
            return Ok(());
        };
        if m.disp != 0 || m.scale != 1 && m.scale != 1 << log {
            return Err(Error::Internal(format!("an address {m:?} on arm64")));
        }
        self.words.push(with_register(word, base, self.number(index), m.scale != 1));
        Ok(())
    }

    /// A load from the constant pool, or the address of a constant, relative to the instruction.
    fn literal(&mut self, code: Code, word: u32, at: i32) -> Result<()> {
        let by = POOL_AT as i64 + at as i64 - (self.start + 4 * self.words.len()) as i64;
        if code == table::ADR {
            let by = signed(by, 21).ok_or_else(too_far)?;
            self.words.push(word | (by & 3) << 29 | by >> 2 << 5);
            return Ok(());
        }
        let literal = match code {
            table::LDR_S => 0x1c00_0000,
            table::LDR_D => 0x5c00_0000,
            table::LDR_Q => 0x9c00_0000,
            _ => return Err(Error::Internal("no literal form on arm64".into())),
        };
        let by = if by % 4 == 0 { signed(by / 4, 19) } else { None };
        self.words.push(literal | by.ok_or_else(too_far)? << 5 | word & 31);
        Ok(())
    }
}

/// The form of a load or store whose offset is in a register, which may be scaled by the element's size.
fn with_register(word: u32, base: u32, index: u32, scaled: bool) -> u32 {
    word & !(1 << 24) | 1 << 21 | index << 16 | 0b011 << 13 | (scaled as u32) << 12 | 0b10 << 10 | base << 5
}
