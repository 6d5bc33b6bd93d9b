//! The linear program: a list of machine instructions over virtual registers, which records for every operand whether
//! it is read or written. `lower` and the machine's instruction selection build it, `alloc` assigns registers, and the
//! machine encodes it. Nothing here knows the IR.

use super::machine::Machine;
use rustc_hash::FxHashMap;

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::render) struct VReg(pub(in crate::render) u32);

/// How many bits of a register an operand refers to. A virtual register is created with a size; an operand may refer to
/// a smaller part of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::render) enum Size {
    /// 8 bits of a general register.
    B,
    /// 16 bits of a general register.
    W,
    /// 32 bits of a general register.
    D,
    /// All 64 bits of a general register.
    Q,
    /// 128 bits of a vector register (xmm); also scalar floats.
    X,
    /// 256 bits of a vector register (ymm).
    Y,
    /// 512 bits of a vector register (zmm).
    Z,
}

impl Size {
    pub(in crate::render) fn is_vec(self) -> bool {
        self >= Size::X
    }

    /// Bytes of the stack slot that holds a spilled register of this size.
    pub(in crate::render) fn bytes(self) -> u32 {
        match self {
            Size::B | Size::W | Size::D | Size::Q => 8,
            Size::X => 16,
            Size::Y => 32,
            Size::Z => 64,
        }
    }
}

/// The base of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::render) enum Base {
    Reg(VReg),
    /// A stack slot, by number.
    Slot(u32),
    /// The constant pool; `Mem::disp` is the offset in it.
    Pool,
}

/// A memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::render) struct Mem {
    pub(in crate::render) base: Base,
    pub(in crate::render) index: Option<VReg>,
    /// If set, the index is a vector register of this size and the operand is that of a gather.
    pub(in crate::render) vector: Option<Size>,
    pub(in crate::render) scale: u8,
    pub(in crate::render) disp: i32,
    /// AVX-512 embedded broadcast of one 32-bit element.
    pub(in crate::render) broadcast: bool,
}

impl Mem {
    pub(in crate::render) fn at(base: Base, disp: i32) -> Mem {
        Mem { base, index: None, vector: None, scale: 1, disp, broadcast: false }
    }
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::render) enum Opnd<M: Machine> {
    None,
    R(VReg, Size),
    /// A physical register.
    P(M::Reg),
    M(Mem),
    I8(u8),
    I32(i32),
    /// A 32-bit immediate sign-extended to 64 bits.
    Q32(i32),
    I64(i64),
}

/// One instruction. `def` and `uses` are bit sets of operand positions; registers in memory operands are always read.
#[derive(Clone, Copy, Debug)]
pub(in crate::render) struct Inst<M: Machine> {
    pub(in crate::render) code: M::Code,
    pub(in crate::render) ops: [Opnd<M>; 4],
    pub(in crate::render) def: u8,
    pub(in crate::render) uses: u8,
    /// The operand that may be memory instead of a register, 9 for none.
    pub(in crate::render) rm: u8,
    /// Masked by the mask register k1.
    pub(in crate::render) masked: bool,
    /// With `masked`: lanes that the mask excludes become zero instead of keeping the destination's old value.
    pub(in crate::render) zeroing: bool,
    /// A plain copy of operand 1 to operand 0.
    pub(in crate::render) copy: bool,
}

/// An item of the linear program.
#[derive(Clone, Copy, Debug)]
pub(in crate::render) enum Item<M: Machine> {
    Op(Inst<M>),
    Label(u32),
    /// Jump (conditional or not) to a label.
    Jump(M::Code, u32),
    /// Start of a loop's body: a value that is live here and used inside stays live until the loop's end.
    LoopBegin,
    LoopEnd,
}

/// The constant pool: vector and scalar constants of the kernel, without duplicates.
#[derive(Default)]
pub(in crate::render) struct Pool {
    pub(in crate::render) bytes: Vec<u8>,
    known: FxHashMap<Vec<u8>, i32>,
    lens: FxHashMap<i32, usize>,
}

impl Pool {
    /// Adds `data`, unless the pool has it, and returns its offset, which is aligned to the size of `data`.
    pub(in crate::render) fn intern(&mut self, data: &[u8]) -> i32 {
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
    /// Length in bytes of the constant that begins at an offset.
    pub(in crate::render) fn len_at(&self, at: i32) -> Option<usize> {
        self.lens.get(&at).copied()
    }

    /// Does this operand read `bytes` bytes of the pool that are all zero?
    pub(in crate::render) fn is_zero(&self, m: &Mem, bytes: u32) -> bool {
        let at = m.disp as usize;
        m.base == Base::Pool && self.bytes.get(at..at + bytes as usize).is_some_and(|b| b.iter().all(|x| *x == 0))
    }
}

/// A function under construction.
pub(in crate::render) struct Func<M: Machine> {
    pub(in crate::render) items: Vec<Item<M>>,
    /// Size per virtual register.
    pub(in crate::render) regs: Vec<Size>,
    /// Bytes per stack slot.
    pub(in crate::render) slots: Vec<u32>,
    pub(in crate::render) pool: Pool,
    labels: u32,
    /// Pointers that were selected by a scalar condition (`Machine::select_address`) since the last label; a later
    /// access under the same condition reuses one instead of selecting again.
    pub(in crate::render) selected_pointers: Vec<SelectedPointer>,
    /// Registers that hold a base plus a scaled index or a displacement, computed since the last label, for reuse by
    /// later accesses.
    pub(in crate::render) address_sums: Vec<(Mem, VReg)>,
}

/// A pointer that a scalar condition has selected: the address of `mem` if the register `condition` is not 0, otherwise
/// an address within a block of zeros.
#[derive(Clone, Copy, Debug)]
pub(in crate::render) struct SelectedPointer {
    pub(in crate::render) condition: VReg,
    pub(in crate::render) mem: Mem,
    pub(in crate::render) pointer: VReg,
}

impl<M: Machine> Func<M> {
    pub(in crate::render) fn new() -> Func<M> {
        Func {
            items: Vec::new(),
            regs: Vec::new(),
            slots: Vec::new(),
            pool: Pool::default(),
            labels: 0,
            selected_pointers: Vec::new(),
            address_sums: Vec::new(),
        }
    }

    pub(in crate::render) fn reg(&mut self, size: Size) -> VReg {
        self.regs.push(size);
        VReg(self.regs.len() as u32 - 1)
    }

    pub(in crate::render) fn slot(&mut self, bytes: u32) -> u32 {
        self.slots.push(bytes);
        self.slots.len() as u32 - 1
    }

    pub(in crate::render) fn new_label(&mut self) -> u32 {
        self.labels += 1;
        self.labels - 1
    }

    pub(in crate::render) fn label(&mut self, l: u32) {
        self.selected_pointers.clear();
        self.address_sums.clear();
        self.items.push(Item::Label(l));
    }

    pub(in crate::render) fn jump(&mut self, code: M::Code, l: u32) {
        self.items.push(Item::Jump(code, l));
    }

    /// Operand 0 is written, the others are read; the last register may be replaced by memory.
    pub(in crate::render) fn def(&mut self, code: M::Code, ops: &[Opnd<M>]) {
        self.emit(code, ops, 1, !1, memory_operand(ops));
    }

    /// Operand 0 is read and written, the others are read; the last register may be replaced by memory.
    pub(in crate::render) fn update(&mut self, code: M::Code, ops: &[Opnd<M>]) {
        self.emit(code, ops, 1, !0, memory_operand(ops));
    }

    /// All operands are read: stores, compares.
    pub(in crate::render) fn read(&mut self, code: M::Code, ops: &[Opnd<M>]) {
        self.emit(code, ops, 0, !0, 9);
    }

    /// A register copy. The allocator tries to give both sides the same register, so that the copy can be dropped.
    pub(in crate::render) fn copy(&mut self, code: M::Code, dst: Opnd<M>, src: Opnd<M>) {
        self.def(code, &[dst, src]);
        if let Some(Item::Op(i)) = self.items.last_mut() {
            i.copy = matches!(src, Opnd::R(..));
        }
    }

    /// Compares two registers; the second may be replaced by memory on machines with memory operands.
    pub(in crate::render) fn compare(&mut self, code: M::Code, a: Opnd<M>, b: Opnd<M>) {
        self.emit(code, &[a, b], 0, !0, if M::MEMORY_OPERANDS { 1 } else { 9 });
    }

    /// Appends an instruction whose operand roles are given explicitly (see [`Inst`]).
    pub(in crate::render) fn emit(
        &mut self,
        code: M::Code,
        ops: &[Opnd<M>],
        def: u8,
        uses: u8,
        rm: u8,
    ) -> &mut Inst<M> {
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

/// The operand that spilling may replace by memory: the last register, on a machine with memory operands; 9 if there is
/// none.
fn memory_operand<M: Machine>(ops: &[Opnd<M>]) -> u8 {
    let last = ops.iter().rposition(|o| matches!(o, Opnd::R(..) | Opnd::M(_)));
    last.filter(|&i| i > 0 && M::MEMORY_OPERANDS).map_or(9, |i| i as u8)
}

/// Calls `f(register, is_read, is_written)` for each virtual register of an instruction; reads come first.
pub(in crate::render) fn each_reg<M: Machine>(i: &Inst<M>, mut f: impl FnMut(VReg, bool, bool)) {
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
