//! A function being written: instruction bytes, locals that are reused when their scope closes, and a prologue for values
//! that are computed once per call. Knows WebAssembly, knows nothing of programs.

use crate::DType;
use wasm_encoder::{Function, InstructionSink, MemArg, ValType};

/// The kernel's own parameters: `(bufs, vars, lo, hi)`.
pub(super) const BUFS: u32 = 0;
/// Address of the launch scalars.
pub(super) const VARS: u32 = 1;
/// First grid index.
pub(super) const LO: u32 = 2;
/// Grid index after the last.
pub(super) const HI: u32 = 3;
const PARAMS: u32 = 4;

/// A WebAssembly function under construction.
pub(super) struct Func {
    prologue: Vec<u8>,
    code: Vec<u8>,
    types: Vec<ValType>,
    free: Vec<u32>,
}

impl Func {
    pub(super) fn new() -> Func {
        Func { prologue: Vec::new(), code: Vec::new(), types: Vec::new(), free: Vec::new() }
    }

    /// Appends instructions.
    pub(super) fn w(&mut self) -> InstructionSink<'_> {
        InstructionSink::new(&mut self.code)
    }

    /// Bytes of instructions so far.
    pub(super) fn len(&self) -> usize {
        self.code.len()
    }

    /// Puts instructions before those that begin at byte `at`; returns how many bytes they take.
    pub(super) fn insert(&mut self, at: usize, write: impl FnOnce(&mut InstructionSink<'_>)) -> usize {
        let mut new = Vec::new();
        write(&mut InstructionSink::new(&mut new));
        let n = new.len();
        self.code.splice(at..at, new);
        n
    }

    /// Appends instructions to what runs before everything else.
    pub(super) fn prologue(&mut self) -> InstructionSink<'_> {
        InstructionSink::new(&mut self.prologue)
    }

    /// A local of type `t`, possibly one that was given back.
    pub(super) fn local(&mut self, t: ValType) -> u32 {
        if let Some(i) = self.free.iter().rposition(|&l| self.types[(l - PARAMS) as usize] == t) {
            return self.free.swap_remove(i);
        }
        self.types.push(t);
        self.types.len() as u32 - 1 + PARAMS
    }

    /// A local that no code written before uses, so that its value may be set in front of that: in the prologue, or before a loop.
    pub(super) fn pinned(&mut self, t: ValType) -> u32 {
        self.types.push(t);
        self.types.len() as u32 - 1 + PARAMS
    }

    /// Gives a local back.
    pub(super) fn release(&mut self, local: u32) {
        self.free.push(local);
    }

    /// The encoded function body, without its length.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.w().end();
        let mut f = Function::new_with_locals_types(self.types);
        f.raw(self.prologue).raw(self.code);
        f.into_raw_body()
    }
}

/// The type of a scalar of `dt` on the stack. Narrow integers are i32, kept in their range; f16 and bf16 are their bits.
pub(super) fn val_type(dt: DType) -> ValType {
    match dt {
        DType::I64 | DType::U64 => ValType::I64,
        DType::F32 => ValType::F32,
        DType::F64 => ValType::F64,
        _ => ValType::I32,
    }
}

/// Is a lane of `dt` one of four 32-bit lanes of a v128?
pub(super) fn fits_lane(dt: DType) -> bool {
    dt.size() <= 4
}

/// An immediate for an access of `bytes` at a constant offset.
pub(super) fn at(offset: u64, bytes: usize) -> MemArg {
    MemArg { offset, align: bytes.trailing_zeros(), target: Default::default(), ordering: None }
}
