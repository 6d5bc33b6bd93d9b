//! x86-64 as a machine of the linear program: registers, moves, spilling, loops. Instruction selection is in the other
//! files of this folder.

use super::table::{self, V2, W3};
use super::{Func, Inst, Lower, Opnd};
use crate::render::linear::dot::{Dot, Step};
use crate::render::linear::lower::{Argument, Point, Val, vec_size, wide, words};
use crate::render::linear::machine::Machine;
use crate::render::linear::mir::{Base, Mem, Size, VReg};
use crate::target::Isa;
use crate::uop::{Op, ReduceOp, UOp};
use crate::{DType, Result};
use iced_x86::{Code, Register};

/// An x86-64 processor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::render) struct X64 {
    pub(super) isa: Isa,
}

/// Numbers of the general registers in the order in which the allocator assigns them, caller-saved ones first. rsp, rax
/// and rdx are never assigned: division uses rax and rdx.
const GPRS: [u8; 13] = [1, 6, 7, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15];

fn d(r: VReg) -> Opnd {
    Opnd::R(r, Size::D)
}

fn q(r: VReg) -> Opnd {
    Opnd::R(r, Size::Q)
}

impl Machine for X64 {
    type Code = Code;
    type Reg = Register;
    const NAME: &'static str = "x86";
    const MEMORY_OPERANDS: bool = true;

    fn lanes(self) -> usize {
        if self.isa >= Isa::Avx512 { 16 } else { 8 }
    }

    fn wide_lanes(self) -> usize {
        self.lanes() / 2
    }

    fn is_lanewise(self, op: Op, from: DType, to: DType) -> bool {
        super::wide::is_lanewise(self.isa, op, from, to)
    }

    fn vectors(self) -> u32 {
        if self.isa >= Isa::Avx512 { u32::MAX } else { 0xffff }
    }

    fn holding(size: Size) -> u32 {
        match size {
            Size::Z => u32::MAX,
            s if s.is_vec() => 0xffff,
            _ => GPRS.iter().fold(0, |m, r| m | 1 << r),
        }
    }

    fn preferred(size: Size, set: u32) -> u8 {
        match size {
            Size::Z => 31 - set.leading_zeros() as u8,
            s if s.is_vec() => set.trailing_zeros() as u8,
            _ => *GPRS.iter().find(|&&r| set >> r & 1 == 1).expect("a candidate"),
        }
    }

    fn general_number(r: Register) -> Option<u8> {
        let first = if r.is_gpr64() { Register::RAX } else { Register::EAX };
        r.is_gpr().then(|| r as u8 - first as u8)
    }

    fn restore(size: Size, r: VReg, m: Mem) -> Inst {
        let (code, size) = match size {
            Size::X => (Code::VEX_Vmovups_xmm_xmmm128, size),
            Size::Y => (Code::VEX_Vmovups_ymm_ymmm256, size),
            Size::Z => (Code::EVEX_Vmovups_zmm_k1z_zmmm512, size),
            _ => (Code::Mov_r64_rm64, Size::Q),
        };
        plain(code, Opnd::R(r, size), Opnd::M(m), 1)
    }

    fn save(size: Size, m: Mem, r: VReg) -> Inst {
        let (code, size) = match size {
            Size::X => (Code::VEX_Vmovups_xmmm128_xmm, size),
            Size::Y => (Code::VEX_Vmovups_ymmm256_ymm, size),
            Size::Z => (Code::EVEX_Vmovups_zmmm512_k1z_zmm, size),
            _ => (Code::Mov_rm64_r64, Size::Q),
        };
        plain(code, Opnd::M(m), Opnd::R(r, size), 0)
    }

    fn update_in_memory(i: &mut Inst, size: Size, slot: Mem) -> bool {
        if i.code == Code::Mov_r32_imm32
            && let Opnd::I32(v) = i.ops[1]
            && v >= 0
        {
            (i.code, i.ops[1]) = (Code::Mov_rm64_imm32, Opnd::Q32(v));
        } else if !in_memory(i.code) || size == Size::B {
            return false;
        }
        (i.ops[0], i.def) = (Opnd::M(slot), 0);
        true
    }

    fn constant(f: &Func, i: &Inst) -> Option<(Mem, Size)> {
        let Some(&Opnd::M(m)) = i.ops.get(i.rm as usize) else { return None };
        if m.base != Base::Pool || m.index.is_some() || m.broadcast || i.def >> i.rm & 1 == 1 {
            return None;
        }
        let size = match f.pool.len_at(m.disp)? {
            16 => Size::X,
            32 => Size::Y,
            64 => Size::Z,
            _ => return None,
        };
        Self::vector_operand(i).map(|_| (m, size))
    }

    fn vector_operand(i: &Inst) -> Option<Size> {
        // iced-x86 names an operand that may be register or memory xmmm, ymmm or zmmm with its bits
        let name = format!("{:?}", i.code);
        let is = |what: &str| name.contains(what);
        match () {
            _ if is("zmmm512") => Some(Size::Z),
            _ if is("ymmm256") => Some(Size::Y),
            _ if is("xmmm128") => Some(Size::X),
            _ => None,
        }
    }

    fn is_mask(r: Register) -> bool {
        r == Register::K1
    }

    fn replace_memory_operand(i: &mut Inst, r: VReg, size: Size) {
        let k = i.rm as usize;
        i.ops[k] = Opnd::R(r, size);
        i.copy = k == 1 && !i.masked && i.def == 1 && i.uses & 1 == 0 && is_move(i.code);
    }

    fn argument(l: &mut Lower, a: Argument) -> VReg {
        let r = l.f.reg(Size::Q);
        let (from, size) = match a {
            Argument::Bufs => (Register::RDI, Size::Q),
            Argument::Vars => (Register::RSI, Size::Q),
            Argument::Lo => (Register::EDX, Size::D),
            Argument::Hi => (Register::ECX, Size::D),
            Argument::Scratch => (Register::R8, Size::Q),
        };
        let code = if size == Size::Q { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
        l.f.copy(code, Opnd::R(r, size), Opnd::P(from));
        r
    }

    fn skip_loop(l: &mut Lower, size: Size, counter: VReg, limit: VReg, to: u32) {
        let (compare, jump) = match size {
            Size::D => (Code::Cmp_r32_rm32, Code::Jae_rel32_64),
            _ => (Code::Cmp_r64_rm64, Code::Jge_rel32_64),
        };
        l.f.read(compare, &[Opnd::R(counter, size), Opnd::R(limit, size)]);
        l.f.jump(jump, to);
    }

    fn skip_unless(l: &mut Lower, condition: VReg, to: u32) {
        l.f.read(Code::Test_rm32_r32, &[Opnd::R(condition, Size::D), Opnd::R(condition, Size::D)]);
        l.f.jump(Code::Je_rel32_64, to);
    }

    fn loop_back(l: &mut Lower, counter: VReg, limit: std::result::Result<VReg, i32>, to: u32) {
        l.f.update(Code::Inc_rm64, &[q(counter)]);
        match limit {
            Ok(r) => l.f.read(Code::Cmp_r64_rm64, &[q(counter), q(r)]),
            Err(n) => l.f.read(Code::Cmp_rm64_imm32, &[q(counter), Opnd::Q32(n)]),
        }
        l.f.jump(Code::Jl_rel32_64, to);
    }

    fn finish(l: &mut Lower) {
        let non_temporal = |i: &super::Item| matches!(i, super::Item::Op(i) if table::is_non_temporal(i.code));
        if l.f.items.iter().any(non_temporal) {
            // non-temporal stores must be visible to other threads before these are told that the kernel is done
            l.f.read(Code::Sfence, &[]);
        }
    }

    fn move_to(l: &mut Lower, r: VReg, v: Val, dt: DType, w: usize) {
        let scalar_int = w == 1 && !dt.is_float();
        match v {
            Val::I(i) => match (u32::try_from(i), i32::try_from(i)) {
                (Ok(i), _) => l.f.def(Code::Mov_r32_imm32, &[Opnd::R(r, Size::D), Opnd::I32(i as i32)]),
                (_, Ok(i)) if !wide(dt) => l.f.def(Code::Mov_r32_imm32, &[Opnd::R(r, Size::D), Opnd::I32(i)]),
                _ => l.f.def(Code::Mov_r64_imm64, &[Opnd::R(r, Size::Q), Opnd::I64(i)]),
            },
            Val::R(s) if scalar_int => {
                l.f.copy(Code::Mov_r64_rm64, Opnd::R(r, Size::Q), Opnd::R(s, Size::Q));
            }
            Val::R(s) => {
                let words = if w == 1 { 1 } else { words(dt, w) };
                let size = vec_size(words);
                l.f.copy(table::copy(words), Opnd::R(r, size), Opnd::R(s, size));
            }
            Val::M(m) if scalar_int => l.f.def(
                if wide(dt) { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 },
                &[Opnd::R(r, if wide(dt) { Size::Q } else { Size::D }), Opnd::M(m)],
            ),
            Val::M(m) if w == 1 => {
                let code = if wide(dt) { Code::VEX_Vmovsd_xmm_m64 } else { Code::VEX_Vmovss_xmm_m32 };
                l.f.def(code, &[Opnd::R(r, Size::X), Opnd::M(m)]);
            }
            Val::M(m) if m.broadcast => {
                let m = Mem { broadcast: false, ..m };
                let code = Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32;
                l.f.def(code, &[Opnd::R(r, Size::Z), Opnd::M(m)]);
            }
            Val::M(m) if l.f.pool.is_zero(&m, vec_size(words(dt, w)).bytes()) => {
                let x = Opnd::R(r, Size::X);
                if vec_size(words(dt, w)) == Size::Z {
                    let z = Opnd::R(r, Size::Z);
                    l.f.emit(table::v3(table::V3::Xor, 16), &[z, z, z], 7, 0, 9);
                } else {
                    l.f.emit(Code::VEX_Vxorps_xmm_xmm_xmmm128, &[x, x, x], 7, 0, 9);
                }
            }
            Val::M(m) => {
                let words = words(dt, w);
                l.f.def(table::v2(V2::Load, words), &[Opnd::R(r, vec_size(words)), Opnd::M(m)]);
            }
        }
    }

    fn sign_extend(l: &mut Lower, s: VReg) -> VReg {
        let r = l.f.reg(Size::Q);
        l.f.def(Code::Movsxd_r64_rm32, &[q(r), d(s)]);
        r
    }

    fn add64(l: &mut Lower, r: VReg, x: VReg) {
        l.f.update(Code::Add_r64_rm64, &[q(r), q(x)]);
    }

    fn load_scalar(l: &mut Lower, dt: DType, m: Mem) -> Val {
        l.load_scalar(dt, m)
    }

    fn prefetch(l: &mut Lower, m: Mem) {
        l.f.read(Code::Prefetcht1_m8, &[Opnd::M(m)]);
    }

    fn splat(l: &mut Lower, s: VReg, dt: DType, w: usize) -> VReg {
        l.splat(s, dt, w)
    }

    fn extract(l: &mut Lower, u: UOp, pt: &Point, v: Val, part: (usize, usize), i: usize) -> Result<Val> {
        l.extract(u, pt, v, part, i)
    }

    fn pack(l: &mut Lower, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.pack(l.g.dtype(u), w, |l, i| l.demand(u, pt, off + i, 1))
    }

    fn subvector(l: &mut Lower, v: VReg, of: usize, at: usize, w: usize) -> Result<VReg> {
        Ok(l.subvector(v, of, at, w))
    }

    fn load(l: &mut Lower, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.load(u, pt, off, w)
    }

    fn load_broadcast(l: &mut Lower, u: UOp, pt: &Point, w: usize) -> Result<Option<Val>> {
        l.load_broadcast(u, pt, w)
    }

    fn store(l: &mut Lower, u: UOp) -> Result<()> {
        l.store(u)
    }

    fn store_scalar(l: &mut Lower, dt: DType, m: Mem, v: VReg) {
        l.store_scalar(dt, m, v);
    }

    fn store_vector(l: &mut Lower, dt: DType, w: usize, m: Mem, v: VReg) {
        l.store_vector(dt, w, m, v);
    }

    fn interleave(l: &mut Lower, a: VReg, b: VReg, w: usize) -> [VReg; 2] {
        l.interleave(a, b, w)
    }

    fn alu(l: &mut Lower, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.alu(u, pt, off, w)
    }

    fn operand_for(l: &mut Lower, u: UOp, by: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.demand_mem(u, by, pt, off, w)
    }

    fn binary(l: &mut Lower, op: Op, dt: DType, w: usize, a: Val, b: Val, into: Option<VReg>) -> Result<VReg> {
        match w {
            1 => l.binary_scalar(op, dt, a, b, into),
            _ if wide(dt) => l.binary_wide(op, dt, w, a, b, into),
            _ => l.binary_vector(op, dt, w, a, b, into),
        }
    }

    fn fma(l: &mut Lower, dt: DType, w: usize, acc: VReg, a: Val, b: Val) -> Result<()> {
        if w == 1 {
            return l.fma_scalar(dt, acc, a, b);
        }
        let (a, b) = if matches!(a, Val::M(_)) { (b, a) } else { (a, b) };
        let a = l.reg(a, dt, w)?;
        match wide(dt) {
            true => l.w3(W3::Fma231, w, acc, a, b),
            false => l.fma_vector(w, acc, a, b),
        }
        Ok(())
    }

    fn reduce_lanes(l: &mut Lower, op: ReduceOp, dt: DType, w: usize, v: VReg) -> Result<Val> {
        l.reduce_lanes(op, dt, w, v)
    }

    fn select_address(l: &mut Lower, gate: UOp, pt: &Point, off: usize, m: Mem) -> Result<Mem> {
        l.select_address(gate, pt, off, m)
    }

    fn dot_group(self, dt: DType) -> Option<u16> {
        let (group, least) = match dt {
            DType::F32 => (2, Isa::Avx512Bf16),
            DType::I32 => (4, Isa::Avx512Vnni),
            _ => return None,
        };
        (self.isa >= least).then_some(group)
    }

    fn load_groups(l: &mut Lower, lanes: bool, m: Mem) -> VReg {
        let r = l.f.reg(Size::Z);
        let code = if lanes { table::v2(V2::Load, 16) } else { Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32 };
        l.f.def(code, &[Opnd::R(r, Size::Z), Opnd::M(m)]);
        r
    }

    fn dot_step(l: &mut Lower, d: &Dot, s: Step) -> Result<()> {
        l.dot_step(d, s)
    }
}

fn is_move(code: Code) -> bool {
    matches!(code, Code::VEX_Vmovups_xmm_xmmm128 | Code::VEX_Vmovups_ymm_ymmm256 | Code::EVEX_Vmovups_zmm_k1z_zmmm512)
}

/// Instructions with an immediate or without a second operand whose first operand may be memory.
fn in_memory(code: Code) -> bool {
    use Code::*;
    let words = matches!(
        code,
        Add_rm32_imm32 | And_rm32_imm32 | Or_rm32_imm32 | Xor_rm32_imm32 | Sub_rm32_imm32 | Cmp_rm32_imm32
    );
    let full = matches!(
        code,
        Add_rm64_imm32 | And_rm64_imm32 | Or_rm64_imm32 | Xor_rm64_imm32 | Sub_rm64_imm32 | Cmp_rm64_imm32
    );
    let shifts =
        matches!(code, Shl_rm32_imm8 | Shr_rm32_imm8 | Sar_rm32_imm8 | Shl_rm64_imm8 | Shr_rm64_imm8 | Sar_rm64_imm8);
    words || full || shifts || matches!(code, Inc_rm64 | Neg_rm32 | Neg_rm64)
}

fn plain(code: Code, a: Opnd, b: Opnd, def: u8) -> Inst {
    let ops = [a, b, Opnd::None, Opnd::None];
    Inst { code, ops, def, uses: !def, rm: 9, masked: false, zeroing: false, copy: false }
}

/// The iced-x86 register of a physical register number, at a size.
pub(super) fn physical(number: u8, size: Size) -> Register {
    let base = match size {
        Size::B => {
            const BYTE: [Register; 16] = {
                use Register::*;
                [AL, CL, DL, BL, SPL, BPL, SIL, DIL, R8L, R9L, R10L, R11L, R12L, R13L, R14L, R15L]
            };
            return BYTE[number as usize];
        }
        Size::W => Register::AX,
        Size::D => Register::EAX,
        Size::Q => Register::RAX,
        Size::X => Register::XMM0,
        Size::Y => Register::YMM0,
        Size::Z => Register::ZMM0,
    };
    base + number as u32
}
