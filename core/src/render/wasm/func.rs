//! A WebAssembly function under construction: its instruction bytes, its locals, which are reused after they are
//! released, and a prologue for values that are computed once per call. It knows nothing of the compiler's programs.

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

    /// Number of instruction bytes so far, without the prologue.
    pub(super) fn len(&self) -> usize {
        self.code.len()
    }

    /// Inserts instructions at byte position `at`; returns how many bytes they take.
    pub(super) fn insert(&mut self, at: usize, write: impl FnOnce(&mut InstructionSink<'_>)) -> usize {
        let mut new = Vec::new();
        write(&mut InstructionSink::new(&mut new));
        let n = new.len();
        self.code.splice(at..at, new);
        n
    }

    /// Appends instructions to the prologue, which runs before everything else.
    pub(super) fn prologue(&mut self) -> InstructionSink<'_> {
        InstructionSink::new(&mut self.prologue)
    }

    /// A local of type `t`, possibly a released one.
    pub(super) fn local(&mut self, t: ValType) -> u32 {
        if let Some(i) = self.free.iter().rposition(|&l| self.types[(l - PARAMS) as usize] == t) {
            return self.free.swap_remove(i);
        }
        self.types.push(t);
        self.types.len() as u32 - 1 + PARAMS
    }

    /// A new local that no code emitted so far uses, so that its value may also be set before that code: in the
    /// prologue, or before a loop.
    pub(super) fn pinned(&mut self, t: ValType) -> u32 {
        self.types.push(t);
        self.types.len() as u32 - 1 + PARAMS
    }

    /// Releases a local for reuse.
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

/// The WebAssembly type of a scalar of `dt`. Narrow integers are i32 within the range of their dtype; f16 are
/// their bits as an i16 would be, and bf16 as a u16.
pub(super) fn val_type(dt: DType) -> ValType {
    match dt {
        DType::I64 | DType::U64 => ValType::I64,
        DType::F32 => ValType::F32,
        DType::F64 => ValType::F64,
        _ => ValType::I32,
    }
}

/// Does a value of `dt` fit one of the four 32-bit lanes of a v128?
pub(super) fn fits_lane(dt: DType) -> bool {
    dt.size() <= 4
}

/// The memory operand of an access of `bytes` at a constant offset, with natural alignment.
pub(super) fn at(offset: u64, bytes: usize) -> MemArg {
    MemArg { offset, align: bytes.trailing_zeros(), target: Default::default(), ordering: None }
}
