//! What a processor is to the linear program: its registers, the instructions that move them, and how it computes values.

use super::dot::{Dot, Step};
use super::lower::{Argument, Lower, Point, Val};
use super::mir::{Func, Inst, Mem, Size, VReg};
use crate::uop::{Op, ReduceOp, UOp};
use crate::{DType, Result};
use std::fmt::Debug;

/// A machine-code back end.
///
/// Values of 32 bits or less are in 32-bit lanes of vectors, and in general registers with the upper half clear; narrow
/// integers are extended, f16 and bf16 are f32, bool is a mask in a vector and 0 or 1 in a general register. 64-bit values are
/// scalars.
pub(in crate::render) trait Machine: Copy + PartialEq + Debug + 'static {
    /// An instruction without its operands.
    type Code: Copy + PartialEq + Debug;
    /// A register by its own name.
    type Reg: Copy + PartialEq + Debug;
    /// In messages.
    const NAME: &'static str;
    /// Can the last register of an instruction be memory instead?
    const MEMORY_OPERANDS: bool;

    /// 32-bit lanes of the largest register.
    fn lanes(self) -> usize;
    /// Vector registers that there are, as a set of numbers.
    fn vectors(self) -> u32;
    /// Registers that can hold a size, as a set of numbers.
    fn holding(size: Size) -> u32;
    /// The one of a set, which is not empty, to give out first.
    fn first(size: Size, set: u32) -> u8;
    /// The number of a general register.
    fn general_number(r: Self::Reg) -> Option<u8>;
    /// From memory to a register.
    fn restore(size: Size, r: VReg, m: Mem) -> Inst<Self>;
    /// From a register to memory.
    fn save(size: Size, m: Mem, r: VReg) -> Inst<Self>;
    /// Lets an instruction work on a slot instead of its first operand, if it can.
    fn update_in_memory(i: &mut Inst<Self>, size: Size, slot: Mem) -> bool;
    /// The whole vector constant that an instruction takes from memory, where it could be a register.
    fn constant(f: &Func<Self>, i: &Inst<Self>) -> Option<(Mem, Size)>;
    /// The size of the whole vector that an instruction takes from memory, where it could be a register.
    fn vector_operand(i: &Inst<Self>) -> Option<Size>;
    /// Is this the register of masks, by which masked instructions go?
    fn is_mask(r: Self::Reg) -> bool;
    /// Makes it take that register.
    fn take_constant(i: &mut Inst<Self>, r: VReg, size: Size);

    /// Copies an argument to a fresh register.
    fn argument(l: &mut Lower<Self>, a: Argument) -> VReg;
    /// Jumps unless the counter, of this size, is below the limit.
    fn skip_loop(l: &mut Lower<Self>, size: Size, counter: VReg, limit: VReg, to: u32);
    /// Jumps where a condition, in a general register, does not hold.
    fn skip_unless(l: &mut Lower<Self>, condition: VReg, to: u32);
    /// Counts one up, and jumps if that is below the limit: a register or a constant.
    fn next_turn(l: &mut Lower<Self>, counter: VReg, limit: std::result::Result<VReg, i32>, to: u32);
    /// What comes before the return.
    fn finish(l: &mut Lower<Self>);

    /// Copies a value into a register.
    fn put(l: &mut Lower<Self>, r: VReg, v: Val, dt: DType, w: usize);
    /// A 32-bit general register extended by its sign.
    fn sign_extend(l: &mut Lower<Self>, r: VReg) -> VReg;
    /// `r += x`, 64 bits.
    fn add64(l: &mut Lower<Self>, r: VReg, x: VReg);
    /// One element from memory.
    fn load_scalar(l: &mut Lower<Self>, dt: DType, m: Mem) -> Val;
    /// Fetches what is read soon.
    fn prefetch(l: &mut Lower<Self>, m: Mem);
    /// One scalar in all lanes.
    fn splat(l: &mut Lower<Self>, s: VReg, dt: DType, w: usize) -> VReg;
    /// Lane `i` of a part, as a scalar.
    fn extract(l: &mut Lower<Self>, u: UOp, pt: &Point, v: Val, part: (usize, usize), i: usize) -> Result<Val>;
    /// A load of `w` lanes, or of one.
    fn load(l: &mut Lower<Self>, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val>;
    /// One element in all lanes, straight from memory; `None` if it needs more than that.
    fn load_broadcast(l: &mut Lower<Self>, u: UOp, pt: &Point, w: usize) -> Result<Option<Val>>;
    /// A store.
    fn store(l: &mut Lower<Self>, u: UOp) -> Result<()>;
    /// A store of one element.
    fn store_scalar(l: &mut Lower<Self>, dt: DType, m: Mem, v: VReg);
    /// A store of `w` lanes, one after the other.
    fn store_vector(l: &mut Lower<Self>, dt: DType, w: usize, m: Mem, v: VReg);
    /// The lanes of two vectors by turns, as two vectors; at least four lanes of at most 32 bits.
    fn weave(l: &mut Lower<Self>, a: VReg, b: VReg, w: usize) -> [VReg; 2];
    /// An elementwise operation.
    fn alu(l: &mut Lower<Self>, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Val>;
    /// What `by` takes of `u`: memory, where that is good for it.
    fn operand(l: &mut Lower<Self>, u: UOp, by: UOp, pt: &Point, off: usize, w: usize) -> Result<Val>;
    /// A binary operation on operands of `dt`, into `into` if given (which may be `a`).
    fn binary(l: &mut Lower<Self>, op: Op, dt: DType, w: usize, a: Val, b: Val, into: Option<VReg>) -> Result<VReg>;
    /// `acc += a * b`, f32 or f64.
    fn fma(l: &mut Lower<Self>, dt: DType, w: usize, acc: VReg, a: Val, b: Val) -> Result<()>;
    /// All lanes of a register, as a scalar.
    fn across(l: &mut Lower<Self>, op: ReduceOp, dt: DType, w: usize, v: VReg) -> Result<Val>;
    /// The address of a load, or one amid zeros where a scalar condition does not hold.
    fn choose(l: &mut Lower<Self>, gate: UOp, pt: &Point, off: usize, m: Mem) -> Result<Mem>;
    /// How many products of two small factors an instruction adds up in each lane of this dtype, if there is one.
    fn dot_group(self, dt: DType) -> Option<u16>;
    /// 32 bits for each lane, from memory: one after the other, or the same for all.
    fn load_groups(l: &mut Lower<Self>, lanes: bool, m: Mem) -> VReg;
    /// Such an instruction, and what else it takes.
    fn dot_step(l: &mut Lower<Self>, d: &Dot, s: Step) -> Result<()>;
}
