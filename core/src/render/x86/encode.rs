//! Encodes an allocated function: stack frame, prologue, constant pool, branches. The code is position independent with
//! its entry at offset 0. Its layout is a jump over the constants, the constants, the code.

use super::machine::physical;
use super::{Func, Inst, Item, Opnd};
use crate::render::linear::mir::{Base, Mem, Size};
use crate::{Error, Result};
use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, OpKind, Register};

/// Callee-saved general registers of the System V ABI.
const CALLEE_SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];
/// The largest stack frame in bytes. Larger ones are refused, since threads have bounded stacks.
const MAX_FRAME: u32 = 1 << 20;

/// Encodes an allocated function.
pub(super) fn encode(f: &Func, numbers: &[u8]) -> Result<Vec<u8>> {
    let list = instructions(f, numbers)?;
    let start = code_start(f);
    let block = InstructionBlock::new(&list, start as u64);
    let result = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)
        .map_err(|e| Error::Internal(format!("x86 encoding: {e}")))?;
    let mut out = Vec::with_capacity(start + result.code_buffer.len());
    if start > 0 {
        // jmp rel32
        out.push(0xe9);
        out.extend_from_slice(&(start as u32 - 5).to_le_bytes());
        out.resize(POOL_AT, 0xcc);
        out.extend_from_slice(&f.pool.bytes);
        out.resize(start, 0xcc);
    }
    out.extend_from_slice(&result.code_buffer);
    Ok(out)
}

/// Bytes of the smallest memory page of any supported system.
const PAGE: u32 = 4096;
/// Offset of the constant pool in the code, after the jump at the entry.
const POOL_AT: usize = 64;

fn code_start(f: &Func) -> usize {
    if f.pool.bytes.is_empty() { 0 } else { (POOL_AT + f.pool.bytes.len()).next_multiple_of(64) }
}

/// The instructions in their final form; the instruction pointer of a label is `LABEL_BASE + label`.
pub(super) fn instructions(f: &Func, numbers: &[u8]) -> Result<Vec<Instruction>> {
    let mut frame = Vec::with_capacity(f.slots.len());
    let mut bytes = 0u32;
    for &s in &f.slots {
        bytes = bytes.next_multiple_of(s.next_power_of_two().clamp(8, 64));
        frame.push(bytes as i32);
        bytes = bytes.saturating_add(s);
        if bytes > MAX_FRAME {
            return Err(Error::Unsupported { what: "kernel-local memory over 1 MiB".into(), context: "x86".into() });
        }
    }
    let saved = bytes.next_multiple_of(64);
    let mut e = Emit { numbers, frame, list: Vec::with_capacity(f.items.len() + 24), pending: None };
    let used: Vec<u8> =
        CALLEE_SAVED.into_iter().filter(|k| f.regs.iter().zip(numbers).any(|(s, n)| !s.is_vec() && n == k)).collect();
    for &k in &used {
        e.add(reg_inst(Code::Push_r64, &[Register::RAX + k as u32]));
    }
    if bytes > 0 {
        e.add(reg_inst(Code::Mov_r64_rm64, &[Register::RAX, Register::RSP]));
        // some systems map stack pages only if they are touched in order
        for page in 1..=(saved + 64) / PAGE {
            e.add(touch(page * PAGE));
        }
        e.add(imm_inst(Code::Sub_rm64_imm32, saved as i64 + 64));
        e.add(imm_inst(Code::And_rm64_imm32, -64));
        e.add(saved_rsp(Code::Mov_rm64_r64, saved, 0, 1, Register::RAX));
    }
    for item in &f.items {
        match item {
            Item::Op(i) => e.op(i)?,
            Item::Label(l) => e.label(*l),
            Item::Jump(code, l) => {
                let i = Instruction::with_branch(*code, LABEL_BASE + *l as u64)
                    .map_err(|e| Error::Internal(format!("x86 branch: {e}")))?;
                e.add(i);
            }
            Item::LoopBegin | Item::LoopEnd => {}
        }
    }
    e.add(Instruction::with(Code::VEX_Vzeroupper));
    if bytes > 0 {
        e.add(saved_rsp(Code::Mov_r64_rm64, saved, 1, 0, Register::RSP));
    }
    for &k in used.iter().rev() {
        e.add(reg_inst(Code::Pop_r64, &[Register::RAX + k as u32]));
    }
    e.add(Instruction::with(Code::Retnq));
    Ok(e.list)
}

/// The instruction pointer of label 0: beyond any address of the code.
const LABEL_BASE: u64 = 1 << 40;

struct Emit<'a> {
    numbers: &'a [u8],
    frame: Vec<i32>,
    list: Vec<Instruction>,
    pending: Option<u32>,
}

impl Emit<'_> {
    fn label(&mut self, l: u32) {
        if self.pending.is_some() {
            // a label names an instruction, so two labels at the same position need an instruction between them
            self.add(Instruction::with(Code::Nopd));
        }
        self.pending = Some(l);
    }

    fn add(&mut self, mut i: Instruction) {
        i.set_ip(self.pending.take().map_or(0, |l| LABEL_BASE + l as u64));
        self.list.push(i);
    }

    fn op(&mut self, i: &Inst) -> Result<()> {
        if i.copy
            && let (Opnd::R(a, _), Opnd::R(b, sb)) = (i.ops[0], i.ops[1])
            && self.numbers[a.0 as usize] == self.numbers[b.0 as usize]
            && sb != Size::D
        {
            return Ok(()); // a 32-bit copy clears the upper half, so it is never dropped
        }
        let mut out = Instruction::default();
        out.set_code(i.code);
        for (k, o) in i.ops.iter().enumerate() {
            let k = k as u32;
            match *o {
                Opnd::None => break,
                Opnd::R(r, size) => set_reg(&mut out, k, physical(self.numbers[r.0 as usize], size)),
                Opnd::P(r) => set_reg(&mut out, k, r),
                Opnd::M(m) => self.mem(&mut out, k, &m),
                Opnd::I8(v) => {
                    out.set_op_kind(k, OpKind::Immediate8);
                    out.set_immediate8(v);
                }
                Opnd::I32(v) => {
                    out.set_op_kind(k, OpKind::Immediate32);
                    out.set_immediate32(v as u32);
                }
                Opnd::Q32(v) => {
                    out.set_op_kind(k, OpKind::Immediate32to64);
                    out.set_immediate32to64(v as i64);
                }
                Opnd::I64(v) => {
                    out.set_op_kind(k, OpKind::Immediate64);
                    out.set_immediate64(v as u64);
                }
            }
        }
        if i.masked {
            out.set_op_mask(Register::K1);
            out.set_zeroing_masking(i.zeroing);
        }
        self.add(out);
        Ok(())
    }

    fn mem(&self, out: &mut Instruction, k: u32, m: &Mem) {
        out.set_op_kind(k, OpKind::Memory);
        let mut disp = m.disp as i64;
        let base = match m.base {
            Base::Reg(r) => physical(self.numbers[r.0 as usize], Size::Q),
            Base::Slot(s) => {
                disp += self.frame[s as usize] as i64;
                Register::RSP
            }
            Base::Pool => {
                disp += POOL_AT as i64;
                Register::RIP
            }
        };
        out.set_memory_base(base);
        if let Some(r) = m.index {
            out.set_memory_index(physical(self.numbers[r.0 as usize], m.vector.unwrap_or(Size::Q)));
            out.set_memory_index_scale(m.scale as u32);
        }
        out.set_memory_displacement64(disp as u64);
        out.set_memory_displ_size(if base == Register::RIP { 8 } else { (disp != 0) as u32 });
        out.set_is_broadcast(m.broadcast);
    }
}

fn set_reg(out: &mut Instruction, k: u32, r: Register) {
    out.set_op_kind(k, OpKind::Register);
    out.set_op_register(k, r);
}

fn reg_inst(code: Code, regs: &[Register]) -> Instruction {
    let mut i = Instruction::default();
    i.set_code(code);
    for (k, r) in regs.iter().enumerate() {
        set_reg(&mut i, k as u32, *r);
    }
    i
}

fn imm_inst(code: Code, v: i64) -> Instruction {
    let mut i = reg_inst(code, &[Register::RSP]);
    i.set_op_kind(1, OpKind::Immediate32to64);
    i.set_immediate32to64(v);
    i
}

/// An instruction that reads the word `below` bytes below the stack pointer.
fn touch(below: u32) -> Instruction {
    let mut i = saved_rsp(Code::Test_rm32_r32, 0, 0, 1, Register::EAX);
    i.set_memory_displacement64((below as i64).wrapping_neg() as u64);
    i
}

fn saved_rsp(code: Code, at: u32, mem: u32, reg: u32, r: Register) -> Instruction {
    let mut i = Instruction::default();
    i.set_code(code);
    set_reg(&mut i, reg, r);
    i.set_op_kind(mem, OpKind::Memory);
    i.set_memory_base(Register::RSP);
    i.set_memory_displacement64(at as u64);
    i.set_memory_displ_size(1);
    i
}
