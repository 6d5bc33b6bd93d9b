//! The interface of a processor for the linear program: its registers, the instructions that move data between them and
//! memory, and how it computes values.

use super::dot::{Dot, Step};
use super::lower::{Argument, Lower, Point, Val};
use super::mir::{Func, Inst, Mem, Size, VReg};
use crate::uop::{Op, ReduceOp, UOp};
use crate::{DType, Result};
use std::fmt::Debug;

/// A machine-code back end.
///
/// Where values live: those of 32 bits or less in 32-bit lanes of vector registers, or, as scalars, in general
/// registers with the upper half clear. Narrow integers are extended to 32 bits, f16 and bf16 are held as f32, and a
/// bool is an all-ones or all-zeros mask in a vector but 0 or 1 in a general register. 64-bit values live in 64-bit
/// lanes on a machine that computes them ([`Machine::wide_lanes`]), otherwise they are scalars.
pub(in crate::render) trait Machine: Copy + PartialEq + Debug + 'static {
    /// The opcode of an instruction, without its operands.
    type Code: Copy + PartialEq + Debug;
    /// A physical register.
    type Reg: Copy + PartialEq + Debug;
    /// Name of the machine in error messages.
    const NAME: &'static str;
    /// May the last register operand of an instruction be replaced by memory?
    const MEMORY_OPERANDS: bool;

    /// Number of 32-bit lanes of the widest vector register.
    fn lanes(self) -> usize;
    /// Number of 64-bit lanes that the machine computes at once; 1 if 64-bit values are always scalars.
    fn wide_lanes(self) -> usize {
        1
    }
    /// Are the lanes of this operation, whose result or operands are 64 bits wide, computed one by one?
    fn is_lanewise(self, _op: Op, _from: DType, _to: DType) -> bool {
        true
    }
    /// The vector registers of this machine, as a bit set of numbers.
    fn vectors(self) -> u32;
    /// The registers that can hold a value of this size, as a bit set of numbers.
    fn holding(size: Size) -> u32;
    /// The register of a non-empty bit set that the allocator should assign first.
    fn preferred(size: Size, set: u32) -> u8;
    /// The number of a physical register if it is a general one.
    fn general_number(r: Self::Reg) -> Option<u8>;
    /// The instruction that loads a spilled register (or a constant) from memory.
    fn restore(size: Size, r: VReg, m: Mem) -> Inst<Self>;
    /// The instruction that stores a register to its spill slot.
    fn save(size: Size, m: Mem, r: VReg) -> Inst<Self>;
    /// Rewrites an instruction to update a stack slot in place of its first operand; false if it has no such form.
    fn update_in_memory(i: &mut Inst<Self>, size: Size, slot: Mem) -> bool;
    /// Is this the mask register that masked instructions read?
    fn is_mask(r: Self::Reg) -> bool;
    /// The pool operand of an instruction, if it reads a whole vector constant that could come from a register instead.
    fn constant(f: &Func<Self>, i: &Inst<Self>) -> Option<(Mem, Size)>;
    /// The size of an instruction's vector operand, if it could be either memory or a register.
    fn vector_operand(i: &Inst<Self>) -> Option<Size>;
    /// Replaces the memory operand that `constant` or `vector_operand` found by a register.
    fn replace_memory_operand(i: &mut Inst<Self>, r: VReg, size: Size);

    /// Copies an argument of the kernel to a fresh register.
    fn argument(l: &mut Lower<Self>, a: Argument) -> VReg;
    /// Jumps to `to` unless the counter is below the limit, both compared at this size.
    fn skip_loop(l: &mut Lower<Self>, size: Size, counter: VReg, limit: VReg, to: u32);
    /// Jumps to `to` if the condition in a general register is 0.
    fn skip_unless(l: &mut Lower<Self>, condition: VReg, to: u32);
    /// Increments a loop's counter and jumps to `to` while it is below the limit, a register or a constant.
    fn loop_back(l: &mut Lower<Self>, counter: VReg, limit: std::result::Result<VReg, i32>, to: u32);
    /// Emits what must be executed before the kernel returns.
    fn finish(l: &mut Lower<Self>);

    /// Copies a value into a register.
    fn move_to(l: &mut Lower<Self>, r: VReg, v: Val, dt: DType, w: usize);
    /// Sign-extends a 32-bit general register to 64 bits.
    fn sign_extend(l: &mut Lower<Self>, r: VReg) -> VReg;
    /// `r += x`, 64 bits.
    fn add64(l: &mut Lower<Self>, r: VReg, x: VReg);
    /// One element from memory.
    fn load_scalar(l: &mut Lower<Self>, dt: DType, m: Mem) -> Val;
    /// Prefetches the cache line at this address.
    fn prefetch(l: &mut Lower<Self>, m: Mem);
    /// Broadcasts a scalar to all lanes.
    fn splat(l: &mut Lower<Self>, s: VReg, dt: DType, w: usize) -> VReg;
    /// Extracts lane `i` of a part `(offset, width)` of the lane axis as a scalar.
    fn extract(l: &mut Lower<Self>, u: UOp, pt: &Point, v: Val, part: (usize, usize), i: usize) -> Result<Val>;
    /// A vector of lanes `off..off + w` of a value that is computed lane by lane. Needed with [`Machine::wide_lanes`].
    fn pack(l: &mut Lower<Self>, u: UOp, _pt: &Point, _off: usize, _w: usize) -> Result<Val> {
        Err(l.unsupported(format!("vectors of {}", l.g.dtype(u))))
    }
    /// Lanes `at..at + w` of a vector of `of` lanes of at most 32 bits. Needed with [`Machine::wide_lanes`].
    fn subvector(l: &mut Lower<Self>, _v: VReg, of: usize, _at: usize, w: usize) -> Result<VReg> {
        Err(l.unsupported(format!("{w} of {of} lanes")))
    }
    /// Loads `w` lanes (1: a scalar) of the load `u`.
    fn load(l: &mut Lower<Self>, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val>;
    /// Loads one element into all lanes with a single instruction; `None` if that is not possible.
    fn load_broadcast(l: &mut Lower<Self>, u: UOp, pt: &Point, w: usize) -> Result<Option<Val>>;
    /// Emits the store node `u`.
    fn store(l: &mut Lower<Self>, u: UOp) -> Result<()>;
    /// Stores one element.
    fn store_scalar(l: &mut Lower<Self>, dt: DType, m: Mem, v: VReg);
    /// Stores `w` contiguous lanes.
    fn store_vector(l: &mut Lower<Self>, dt: DType, w: usize, m: Mem, v: VReg);
    /// Interleaves the lanes of two vectors (a0 b0 a1 b1 …) into two vectors. There are at least four lanes of at most
    /// 32 bits.
    fn interleave(l: &mut Lower<Self>, a: VReg, b: VReg, w: usize) -> [VReg; 2];
    /// An elementwise operation.
    fn alu(l: &mut Lower<Self>, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val>;
    /// The value of `u` as an operand of its user `by`: a memory operand where that saves a register at no cost.
    fn operand_for(l: &mut Lower<Self>, u: UOp, by: UOp, pt: &Point, off: usize, w: usize) -> Result<Val>;
    /// A binary operation on operands of `dt`, into `into` if given (which may be `a`).
    fn binary(l: &mut Lower<Self>, op: Op, dt: DType, w: usize, a: Val, b: Val, into: Option<VReg>) -> Result<VReg>;
    /// `acc += a * b`, f32 or f64.
    fn fma(l: &mut Lower<Self>, dt: DType, w: usize, acc: VReg, a: Val, b: Val) -> Result<()>;
    /// Reduces all lanes of a register to a scalar.
    fn reduce_lanes(l: &mut Lower<Self>, op: ReduceOp, dt: DType, w: usize, v: VReg) -> Result<Val>;
    /// The address of a load if a scalar condition holds, otherwise an address within a block of zeros. This needs no
    /// branch.
    fn select_address(l: &mut Lower<Self>, gate: UOp, pt: &Point, off: usize, m: Mem) -> Result<Mem>;
    /// How many products of narrow factors the dot-product instruction adds up in each lane of this dtype; `None` if
    /// there is none.
    fn dot_group(self, dt: DType) -> Option<u16>;
    /// Loads 32 bits for each lane: consecutive words if `lanes`, otherwise the same word in all lanes.
    fn load_groups(l: &mut Lower<Self>, lanes: bool, m: Mem) -> VReg;
    /// Emits one dot-product instruction, with the corrections that it needs for the signs of its factors.
    fn dot_step(l: &mut Lower<Self>, d: &Dot, s: Step) -> Result<()>;
}
