//! AArch64 as a machine of the linear program: registers, moves, constants, addresses, loops. Instruction selection is
//! in the other files of this folder.

use super::table::{self, Code, cond};
use super::{Func, Inst, Lower, Opnd};
use crate::render::linear::dot::{Dot, Step};
use crate::render::linear::lower::{Argument, Point, Val, wide};
use crate::render::linear::machine::Machine;
use crate::render::linear::mir::{Base, Mem, Size, VReg};
use crate::uop::{Op, ReduceOp, UOp};
use crate::{DType, Result};

/// An AArch64 processor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::render) struct A64 {
    /// The processor has the byte dot products `sdot` and `udot`.
    pub(super) dots: bool,
}

/// Numbers of the general registers in the order in which the allocator assigns them, caller-saved ones first. 16 is
/// the encoder's scratch register, 17 is unused, 18 is reserved for the platform, 29 and 30 are the frame pointer and
/// the link register.
const GENERAL: [u8; 26] =
    [9, 10, 11, 12, 13, 14, 15, 5, 6, 7, 4, 3, 2, 1, 0, 8, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28];
/// Vector registers whose lower half is callee-saved, as a bit set; they are assigned last.
const CALLEE_SAVED_VECTORS: u32 = 0xff00;

impl Machine for A64 {
    type Code = Code;
    type Reg = u8;
    const NAME: &'static str = "arm64";
    const MEMORY_OPERANDS: bool = false;

    fn lanes(self) -> usize {
        4
    }

    fn vectors(self) -> u32 {
        u32::MAX
    }

    fn holding(size: Size) -> u32 {
        if size.is_vec() { u32::MAX } else { GENERAL.iter().fold(0, |m, r| m | 1 << r) }
    }

    fn preferred(size: Size, set: u32) -> u8 {
        if size.is_vec() {
            let free = if set & !CALLEE_SAVED_VECTORS != 0 { set & !CALLEE_SAVED_VECTORS } else { set };
            return free.trailing_zeros() as u8;
        }
        *GENERAL.iter().find(|&&r| set >> r & 1 == 1).expect("a candidate")
    }

    fn general_number(r: u8) -> Option<u8> {
        Some(r)
    }

    fn restore(size: Size, r: VReg, m: Mem) -> Inst {
        let code = if size.is_vec() { table::LDR_Q } else { table::LDR_X };
        plain(code, [Opnd::R(r, size), Opnd::M(m), Opnd::None, Opnd::None], 1)
    }

    fn save(size: Size, m: Mem, r: VReg) -> Inst {
        let code = if size.is_vec() { table::STR_Q } else { table::STR_X };
        plain(code, [Opnd::R(r, size), Opnd::M(m), Opnd::None, Opnd::None], 0)
    }

    fn update_in_memory(_i: &mut Inst, _size: Size, _slot: Mem) -> bool {
        false
    }

    fn constant(_f: &Func, i: &Inst) -> Option<(Mem, Size)> {
        match i.ops[1] {
            Opnd::M(m) if i.code == table::LDR_Q && m.base == Base::Pool => Some((m, Size::X)),
            _ => None,
        }
    }

    fn vector_operand(_i: &Inst) -> Option<Size> {
        None
    }

    fn is_mask(_r: u8) -> bool {
        false
    }

    fn replace_memory_operand(i: &mut Inst, r: VReg, size: Size) {
        let r = Opnd::R(r, size);
        *i = Inst { copy: true, ..plain(table::ORR_V, [i.ops[0], r, r, Opnd::None], 1) };
    }

    fn argument(l: &mut Lower, a: Argument) -> VReg {
        let r = l.general();
        let (from, whole) = match a {
            Argument::Bufs => (0, true),
            Argument::Vars => (1, true),
            Argument::Lo => (2, false),
            Argument::Hi => (3, false),
            Argument::Scratch => (4, true),
        };
        let to = l.opnd(r);
        l.f.copy(table::full(table::MOV, whole), to, Opnd::P(from));
        r
    }

    fn skip_loop(l: &mut Lower, size: Size, counter: VReg, limit: VReg, to: u32) {
        let whole = size == Size::Q;
        l.compare(whole, counter, limit);
        l.f.jump(table::b_if(if whole { cond::GE } else { cond::HS }), to);
    }

    fn skip_unless(l: &mut Lower, condition: VReg, to: u32) {
        l.compare_constant(false, condition, 0);
        l.f.jump(table::b_if(cond::EQ), to);
    }

    fn loop_back(l: &mut Lower, counter: VReg, limit: std::result::Result<VReg, i32>, to: u32) {
        let c = l.opnd(counter);
        l.f.update(table::full(table::ADD_IMM, true), &[c, c, Opnd::I32(1)]);
        match limit {
            Ok(r) => l.compare(true, counter, r),
            Err(n) => l.compare_constant(true, counter, n as i64),
        }
        l.f.jump(table::b_if(cond::LT), to);
    }

    fn finish(_l: &mut Lower) {}

    fn move_to(l: &mut Lower, r: VReg, v: Val, dt: DType, w: usize) {
        let general = w == 1 && !dt.is_float();
        match v {
            Val::I(i) => l.set(r, if wide(dt) { i } else { i as u32 as i64 }),
            Val::R(s) if general => {
                let (r, s) = (l.opnd(r), l.opnd(s));
                l.f.copy(table::full(table::MOV, true), r, s);
            }
            Val::R(s) => {
                let (r, s) = (l.opnd(r), l.opnd(s));
                l.f.emit(table::ORR_V, &[r, s, s], 1, !1, 9).copy = true;
            }
            Val::M(m) if m.base == Base::Pool && w > 1 && l.f.pool.is_zero(&m, 16) => l.zero(r),
            Val::M(m) => {
                let (code, log) = match (general, w, wide(dt)) {
                    (true, _, true) => (table::LDR_X, 3),
                    (true, _, false) => (table::LDR_W, 2),
                    (_, 1, true) => (table::LDR_D, 3),
                    (_, 1, false) => (table::LDR_S, 2),
                    _ => (table::LDR_Q, 4),
                };
                debug_assert_eq!(code.memory, log);
                l.access_into(code, r, m);
            }
        }
    }

    fn sign_extend(l: &mut Lower, s: VReg) -> VReg {
        l.field(table::full_field(table::SBFM, true), s, 0, 31)
    }

    fn add64(l: &mut Lower, r: VReg, x: VReg) {
        let (r, x) = (l.opnd(r), l.opnd(x));
        l.f.update(table::full(table::ADD, true), &[r, r, x]);
    }

    fn load_scalar(l: &mut Lower, dt: DType, m: Mem) -> Val {
        l.load_scalar(dt, m)
    }

    fn prefetch(l: &mut Lower, m: Mem) {
        let m = l.reachable(m, table::PRFM);
        // the field of the first operand holds the kind of prefetch, which is part of the opcode
        l.f.read(table::PRFM, &[Opnd::M(m)]);
    }

    fn splat(l: &mut Lower, s: VReg, dt: DType, _w: usize) -> VReg {
        match dt {
            _ if dt.is_float() => l.emit_vector2(table::DUP_S, s),
            DType::Bool => {
                let n = l.emit_general2(table::NEG, s);
                l.emit_vector2(table::DUP_W, n)
            }
            _ => l.emit_vector2(table::DUP_W, s),
        }
    }

    fn extract(l: &mut Lower, u: UOp, _pt: &Point, v: Val, (_, w): (usize, usize), i: usize) -> Result<Val> {
        let dt = l.g.dtype(u);
        let v = l.reg(v, dt, w)?;
        Ok(Val::R(l.lane_of(v, dt, i)))
    }

    fn load(l: &mut Lower, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.load(u, pt, off, w)
    }

    fn load_broadcast(l: &mut Lower, u: UOp, pt: &Point, _w: usize) -> Result<Option<Val>> {
        l.load_broadcast(u, pt)
    }

    fn store(l: &mut Lower, u: UOp) -> Result<()> {
        l.store(u)
    }

    fn store_scalar(l: &mut Lower, dt: DType, m: Mem, v: VReg) {
        l.store_scalar(dt, m, v);
    }

    fn store_vector(l: &mut Lower, dt: DType, _w: usize, m: Mem, v: VReg) {
        l.store_vector(dt, m, v);
    }

    fn interleave(l: &mut Lower, a: VReg, b: VReg, _w: usize) -> [VReg; 2] {
        [table::ZIP1, table::ZIP2].map(|code| l.emit_vector3(code, a, b))
    }

    fn alu(l: &mut Lower, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.alu(u, pt, off, w)
    }

    fn operand_for(l: &mut Lower, u: UOp, _by: UOp, pt: &Point, off: usize, w: usize) -> Result<Val> {
        l.demand(u, pt, off, w)
    }

    fn binary(l: &mut Lower, op: Op, dt: DType, w: usize, a: Val, b: Val, into: Option<VReg>) -> Result<VReg> {
        let r = if w == 1 { l.binary_scalar(op, dt, a, b)? } else { l.binary_vector(op, dt, a, b, into)? };
        match into {
            Some(t) if t != r => {
                l.move_to(t, Val::R(r), dt, w);
                Ok(t)
            }
            _ => Ok(r),
        }
    }

    fn fma(l: &mut Lower, dt: DType, w: usize, acc: VReg, a: Val, b: Val) -> Result<()> {
        let (a, b) = (l.reg(a, dt, w)?, l.reg(b, dt, w)?);
        let [acc, a, b] = [acc, a, b].map(|r| l.opnd(r));
        match w {
            1 => l.f.update(table::double(table::FMADD, wide(dt)), &[acc, a, b, acc]),
            _ => l.f.update(table::FMLA_V, &[acc, a, b]),
        }
        Ok(())
    }

    fn reduce_lanes(l: &mut Lower, op: ReduceOp, dt: DType, w: usize, mut v: VReg) -> Result<Val> {
        if w == 1 {
            return Ok(Val::R(v));
        }
        let halves = l.emit_vector3(table::EXT_HALF, v, v);
        v = l.binary_vector(op.op(), dt, Val::R(v), Val::R(halves), None)?;
        let swapped = l.emit_vector2(table::REV64, v);
        v = l.binary_vector(op.op(), dt, Val::R(v), Val::R(swapped), None)?;
        Ok(Val::R(l.lane_of(v, dt, 0)))
    }

    fn select_address(l: &mut Lower, gate: UOp, pt: &Point, off: usize, m: Mem) -> Result<Mem> {
        l.select_address(gate, pt, off, m)
    }

    fn dot_group(self, dt: DType) -> Option<u16> {
        (self.dots && dt == DType::I32).then_some(4)
    }

    fn load_groups(l: &mut Lower, lanes: bool, m: Mem) -> VReg {
        let r = l.vector();
        if lanes {
            l.access_into(table::LDR_Q, r, m);
            return r;
        }
        l.access_into(table::LDR_S, r, m);
        l.emit_vector2(table::DUP_S, r)
    }

    fn dot_step(l: &mut Lower, d: &Dot, s: Step) -> Result<()> {
        l.dot_step(d, s)
    }
}

fn plain(code: Code, ops: [Opnd; 4], def: u8) -> Inst {
    Inst { code, ops, def, uses: !def, rm: 9, masked: false, zeroing: false, copy: false }
}

/// The high bits of a displacement. If a displacement does not fit an access, an instruction of its own adds them to
/// the base, and the access has the low bits.
const HIGH_DISPLACEMENT: i32 = !0x3fff;

impl Lower<'_> {
    pub(super) fn general(&mut self) -> VReg {
        self.f.reg(Size::Q)
    }

    pub(super) fn vector(&mut self) -> VReg {
        self.f.reg(Size::X)
    }

    /// A register as an operand.
    pub(super) fn opnd(&self, r: VReg) -> Opnd {
        Opnd::R(r, self.f.regs[r.0 as usize])
    }

    /// Emits an instruction with one operand into a fresh general register.
    pub(super) fn emit_general2(&mut self, code: Code, a: VReg) -> VReg {
        let r = self.general();
        self.f.def(code, &[self.opnd(r), self.opnd(a)]);
        r
    }

    pub(super) fn emit_general3(&mut self, code: Code, a: VReg, b: VReg) -> VReg {
        let r = self.general();
        self.f.def(code, &[self.opnd(r), self.opnd(a), self.opnd(b)]);
        r
    }

    /// Emits an instruction with a register and an immediate into a fresh general register.
    pub(super) fn emit_general_imm(&mut self, code: Code, a: VReg, n: i32) -> VReg {
        let r = self.general();
        self.f.def(code, &[self.opnd(r), self.opnd(a), Opnd::I32(n)]);
        r
    }

    /// Extracts the bits `from..=to` of a register with a bit field instruction.
    pub(super) fn field(&mut self, code: Code, a: VReg, from: i32, to: i32) -> VReg {
        let r = self.general();
        self.f.def(code, &[self.opnd(r), self.opnd(a), Opnd::I32(from), Opnd::I32(to)]);
        r
    }

    /// Emits an instruction with one operand into a fresh vector register.
    pub(super) fn emit_vector2(&mut self, code: Code, a: VReg) -> VReg {
        let r = self.vector();
        self.f.def(code, &[self.opnd(r), self.opnd(a)]);
        r
    }

    pub(super) fn emit_vector3(&mut self, code: Code, a: VReg, b: VReg) -> VReg {
        let r = self.vector();
        self.f.def(code, &[self.opnd(r), self.opnd(a), self.opnd(b)]);
        r
    }

    pub(super) fn emit_vector_imm(&mut self, code: Code, a: VReg, n: i32) -> VReg {
        let r = self.vector();
        self.f.def(code, &[self.opnd(r), self.opnd(a), Opnd::I32(n)]);
        r
    }

    /// Sets all lanes to zero.
    pub(super) fn zero(&mut self, r: VReg) {
        self.f.def(table::ZERO_V, &[self.opnd(r)]);
    }

    /// Sets a general register to a constant, in at most four instructions.
    pub(super) fn set(&mut self, r: VReg, v: i64) {
        let part = |i: u32| (v >> (16 * i)) as u16;
        let (ones, zeros) = [0, 1, 2, 3].iter().fold((0, 0), |(o, z), &i| match part(i) {
            0xffff => (o + 1, z),
            0 => (o, z + 1),
            _ => (o, z),
        });
        let (first, skip, flip) = if ones > zeros { (table::MOVN, 0xffff, 0xffff) } else { (table::MOVZ, 0, 0) };
        let to = self.opnd(r);
        let mut begun = false;
        for i in (0..4).filter(|&i| part(i) != skip) {
            let ops = |n: u16| [to, Opnd::I32(n as i32), Opnd::I32(i as i32)];
            match begun {
                false => self.f.def(table::full(first, true), &ops(part(i) ^ flip)),
                true => self.f.update(table::full(table::MOVK, true), &ops(part(i))),
            }
            begun = true;
        }
        if !begun {
            self.f.def(table::full(first, true), &[to, Opnd::I32(0), Opnd::I32(0)]);
        }
    }

    /// Compares two registers, which sets the flags.
    pub(super) fn compare(&mut self, whole: bool, a: VReg, b: VReg) {
        self.f.read(table::full(table::CMP, whole), &[self.opnd(a), self.opnd(b)]);
    }

    /// Compares a register with a constant, which sets the flags.
    pub(super) fn compare_constant(&mut self, whole: bool, a: VReg, n: i64) {
        let n = if whole { n } else { n as i32 as i64 };
        match n {
            0..4096 => self.f.read(table::full(table::CMP_IMM, whole), &[self.opnd(a), Opnd::I32(n as i32)]),
            -4095..0 => self.f.read(table::full(table::CMN_IMM, whole), &[self.opnd(a), Opnd::I32(-n as i32)]),
            _ => {
                let c = self.general();
                self.set(c, if whole { n } else { n as u32 as i64 });
                self.compare(whole, a, c);
            }
        }
    }

    /// A general register that is 1 if the condition holds for the flags, else 0.
    pub(super) fn flag(&mut self, c: u8) -> VReg {
        let r = self.general();
        self.f.def(table::CSET_UNLESS, &[self.opnd(r), Opnd::I32(cond::not(c) as i32)]);
        r
    }

    /// Selects `a` if the condition holds for the flags, else `b`.
    pub(super) fn conditional_select(&mut self, code: Code, a: VReg, b: VReg, c: u8) -> VReg {
        let r = self.f.reg(self.f.regs[a.0 as usize]);
        self.f.def(code, &[self.opnd(r), self.opnd(a), self.opnd(b), Opnd::I32(c as i32)]);
        r
    }

    /// A memory operand that this load or store can encode. The part that it cannot encode is added to the base first;
    /// accesses nearby reuse that sum.
    pub(super) fn reachable(&mut self, mut m: Mem, code: Code) -> Mem {
        let log = code.memory as u32;
        if m.base == Base::Pool {
            return m;
        }
        if let Some(index) = m.index {
            let key = Mem { disp: 0, ..m };
            let known = self.f.address_sums.iter().find(|s| s.0 == key).map(|s| s.1);
            if known.is_none() && m.disp == 0 && (m.scale == 1 || m.scale as u32 == 1 << log) {
                return m;
            }
            let sum = match (known, m.base) {
                (Some(r), _) => r,
                (None, Base::Reg(base)) => {
                    let shift = Opnd::I32(m.scale.trailing_zeros() as i32);
                    let r = self.general();
                    let ops = [self.opnd(r), self.opnd(base), self.opnd(index), shift];
                    self.f.def(table::full(table::ADD_SHIFTED, true), &ops);
                    self.f.address_sums.push((key, r));
                    r
                }
                _ => return m,
            };
            m = Mem::at(Base::Reg(sum), m.disp);
        }
        let direct = |d: i32| d >= 0 && d % (1 << log) == 0 && d >> log < 4096 || (-256..256).contains(&d);
        let Base::Reg(base) = m.base else { return m };
        if direct(m.disp) {
            return m;
        }
        let high = if direct(m.disp & !HIGH_DISPLACEMENT) { m.disp & HIGH_DISPLACEMENT } else { m.disp };
        let key = Mem { disp: high, ..m };
        let known = self.f.address_sums.iter().find(|s| s.0 == key).map(|s| s.1);
        let sum = match known {
            Some(r) => r,
            None => {
                let units = high >> 12;
                let r = match high & 0xfff {
                    0 if (0..4096).contains(&units) => {
                        self.emit_general_imm(table::full(table::ADD_IMM12, true), base, units)
                    }
                    0 if (-4095..0).contains(&units) => {
                        self.emit_general_imm(table::full(table::SUB_IMM12, true), base, -units)
                    }
                    _ => {
                        let c = self.general();
                        self.set(c, high as i64);
                        self.emit_general3(table::full(table::ADD, true), base, c)
                    }
                };
                self.f.address_sums.push((key, r));
                r
            }
        };
        Mem::at(Base::Reg(sum), m.disp - high)
    }

    /// Emits a load into a register.
    pub(super) fn access_into(&mut self, code: Code, r: VReg, m: Mem) {
        let m = self.reachable(m, code);
        self.f.def(code, &[self.opnd(r), Opnd::M(m)]);
    }

    /// Emits a store of a register.
    pub(super) fn store_from(&mut self, code: Code, r: VReg, m: Mem) {
        let m = self.reachable(m, code);
        self.f.read(code, &[self.opnd(r), Opnd::M(m)]);
    }
}
