//! Machine code before registers: iced-x86 opcodes over virtual registers, with what each operand does. Built by `lower`,
//! given registers by `alloc`, encoded by `encode`. No knowledge of the IR.

use iced_x86::{Code, Register};
use rustc_hash::FxHashMap;

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct VReg(pub(super) u32);

/// How much of a register an operand names. A virtual register has the size it was made with; operands may name less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Size {
    /// 8 bits of a general register.
    B,
    /// 16 bits of a general register.
    W,
    /// 32 bits of a general register.
    D,
    /// A general register.
    Q,
    /// xmm; also scalar floats.
    X,
    /// ymm.
    Y,
    /// zmm.
    Z,
}

impl Size {
    pub(super) fn is_vec(self) -> bool {
        self >= Size::X
    }

    /// Bytes of a stack slot.
    pub(super) fn bytes(self) -> u32 {
        match self {
            Size::B | Size::W | Size::D | Size::Q => 8,
            Size::X => 16,
            Size::Y => 32,
            Size::Z => 64,
        }
    }
}

/// What an address starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    Reg(VReg),
    /// A stack slot, by number.
    Slot(u32),
    /// The constant pool; `disp` is the offset in it.
    Pool,
}

/// A memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mem {
    pub(super) base: Base,
    pub(super) index: Option<VReg>,
    /// The index is a vector of this size: a gather.
    pub(super) vector: Option<Size>,
    pub(super) scale: u8,
    pub(super) disp: i32,
    /// AVX-512 embedded broadcast of one 32-bit element.
    pub(super) bcst: bool,
}

impl Mem {
    pub(super) fn at(base: Base, disp: i32) -> Mem {
        Mem { base, index: None, vector: None, scale: 1, disp, bcst: false }
    }
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Opnd {
    None,
    R(VReg, Size),
    P(Register),
    M(Mem),
    I8(u8),
    I32(i32),
    /// A 32-bit immediate sign-extended to 64 bits.
    Q32(i32),
    I64(i64),
}

/// One instruction. `def` and `uses` are bit sets of operand positions; registers in memory operands are always read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inst {
    pub(super) code: Code,
    pub(super) ops: [Opnd; 4],
    pub(super) def: u8,
    pub(super) uses: u8,
    /// The operand that may be memory instead of a register, 9 for none.
    pub(super) rm: u8,
    /// Masked by k1.
    pub(super) masked: bool,
    /// With `masked`: zero what the mask leaves out.
    pub(super) zeroing: bool,
    /// A plain copy of operand 1 to operand 0.
    pub(super) copy: bool,
}

/// A line of code.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Op(Inst),
    Label(u32),
    /// Jump (conditional or not) to a label.
    Jump(Code, u32),
    /// Start of a loop's body: what is live here and used inside stays live to the end.
    LoopBegin,
    LoopEnd,
}

/// Vector and scalar constants, one copy each.
#[derive(Default)]
pub(super) struct Pool {
    pub(super) bytes: Vec<u8>,
    known: FxHashMap<Vec<u8>, i32>,
    lens: FxHashMap<i32, usize>,
}

impl Pool {
    /// Offset of `data`, aligned to its size.
    pub(super) fn put(&mut self, data: &[u8]) -> i32 {
        if let Some(&at) = self.known.get(data) {
            return at;
        }
        let at = self.bytes.len().next_multiple_of(data.len().next_power_of_two());
        self.bytes.resize(at, 0);
        self.bytes.extend_from_slice(data);
        self.known.insert(data.to_vec(), at as i32);
        self.lens.insert(at as i32, data.len());
        at as i32
    }
}

impl Pool {
    /// Bytes of the constant at an offset.
    pub(super) fn len_at(&self, at: i32) -> Option<usize> {
        self.lens.get(&at).copied()
    }

    /// Does this operand name a constant of zeros?
    pub(super) fn is_zero(&self, m: &Mem, bytes: u32) -> bool {
        let at = m.disp as usize;
        m.base == Base::Pool && self.bytes.get(at..at + bytes as usize).is_some_and(|b| b.iter().all(|x| *x == 0))
    }
}

/// A function under construction.
#[derive(Default)]
pub(super) struct Func {
    pub(super) items: Vec<Item>,
    /// Size per virtual register.
    pub(super) regs: Vec<Size>,
    /// Bytes per stack slot.
    pub(super) slots: Vec<u32>,
    pub(super) pool: Pool,
    labels: u32,
    /// Addresses that depend on a scalar condition, of this stretch of straight code.
    pub(super) chosen: Vec<Chosen>,
}

/// `pointer` is where `mem` is if `holds`, else amid zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) holds: VReg,
    pub(super) mem: Mem,
    pub(super) pointer: VReg,
}

impl Func {
    pub(super) fn reg(&mut self, size: Size) -> VReg {
        self.regs.push(size);
        VReg(self.regs.len() as u32 - 1)
    }

    pub(super) fn slot(&mut self, bytes: u32) -> u32 {
        self.slots.push(bytes);
        self.slots.len() as u32 - 1
    }

    pub(super) fn new_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }

    pub(super) fn label(&mut self, l: u32) {
        self.chosen.clear();
        self.items.push(Item::Label(l));
    }

    pub(super) fn jump(&mut self, code: Code, l: u32) {
        self.items.push(Item::Jump(code, l));
    }

    /// Operand 0 is written, the others are read; the last register may be replaced by memory.
    pub(super) fn def(&mut self, code: Code, ops: &[Opnd]) {
        let rm = ops.iter().rposition(|o| matches!(o, Opnd::R(..) | Opnd::M(_))).filter(|&i| i > 0);
        self.emit(code, ops, 1, !1, rm.map_or(9, |r| r as u8));
    }

    /// Operand 0 is read and written, the others are read; the last register may be replaced by memory.
    pub(super) fn update(&mut self, code: Code, ops: &[Opnd]) {
        let rm = ops.iter().rposition(|o| matches!(o, Opnd::R(..) | Opnd::M(_))).filter(|&i| i > 0);
        self.emit(code, ops, 1, !0, rm.map_or(9, |r| r as u8));
    }

    /// All operands are read: stores, compares.
    pub(super) fn read(&mut self, code: Code, ops: &[Opnd]) {
        self.emit(code, ops, 0, !0, 9);
    }

    /// A copy that the allocator tries to make vanish.
    pub(super) fn copy(&mut self, code: Code, dst: Opnd, src: Opnd) {
        self.def(code, &[dst, src]);
        if let Some(Item::Op(i)) = self.items.last_mut() {
            i.copy = matches!(src, Opnd::R(..));
        }
    }

    /// Two registers are compared; the second may be memory.
    pub(super) fn compare(&mut self, code: Code, a: Opnd, b: Opnd) {
        self.emit(code, &[a, b], 0, !0, 1);
    }

    /// With all roles given.
    pub(super) fn emit(&mut self, code: Code, ops: &[Opnd], def: u8, uses: u8, rm: u8) -> &mut Inst {
        let mut all = [Opnd::None; 4];
        all[..ops.len()].copy_from_slice(ops);
        let inst = Inst { code, ops: all, def, uses, rm, masked: false, zeroing: false, copy: false };
        self.items.push(Item::Op(inst));
        match self.items.last_mut() {
            Some(Item::Op(i)) => i,
            _ => unreachable!("just pushed"),
        }
    }
}

/// Calls `f(register, is_read, is_written)` for each virtual register of an instruction; reads come first.
pub(super) fn each_reg(i: &Inst, mut f: impl FnMut(VReg, bool, bool)) {
    for (k, o) in i.ops.iter().enumerate() {
        match o {
            Opnd::M(m) => {
                if let Base::Reg(r) = m.base {
                    f(r, true, false);
                }
                if let Some(r) = m.index {
                    f(r, true, false);
                }
            }
            Opnd::R(r, _) if i.def >> k & 1 == 0 => f(*r, true, false),
            _ => {}
        }
    }
    for (k, o) in i.ops.iter().enumerate() {
        if let Opnd::R(r, _) = o
            && i.def >> k & 1 == 1
        {
            f(*r, i.uses >> k & 1 == 1, true);
        }
    }
}
