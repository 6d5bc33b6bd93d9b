//! What the kernels of a device may use: dtypes, vectors, functions, and instructions that only some devices have.

use super::{Function, Isa, MatrixTile, Sm, functions};
use crate::DType;

/// What kernels may use.
#[derive(Clone, PartialEq, Debug)]
pub struct Caps {
    /// f32 lanes of a vector register: 4 for WGSL's vec4, 1 if the target has no vectors.
    pub lanes: usize,
    /// Vector registers that a tile may occupy, in units of a whole vector.
    pub vector_registers: usize,
    /// Are 64-bit values computed in vectors too, of half as many lanes? If not, their lanes are computed one by one.
    pub wide_vectors: bool,
    /// The largest vector that a value may be, in f32 lanes: a power of two. A longer lane axis, or one whose length is no
    /// power of two, is split: 24 lanes become an axis of three registers around one of 8 lanes. `None` if the renderer
    /// itself divides lane axes of any length.
    pub most_lanes: Option<usize>,
    /// Instruction set of an x86-64 target.
    pub isa: Option<Isa>,
    /// Compute capability of an NVIDIA GPU.
    pub sm: Option<Sm>,
    /// dtypes that can be stored in a buffer and loaded as they are.
    pub storage: DTypeSet,
    /// May shaders declare arrays of f16? If not, an f16 array is declared as an array of words that hold several
    /// elements each, as for all narrow dtypes.
    pub f16_arrays: bool,
    /// dtypes that the target computes in; ops on others are decomposed.
    pub arithmetic: DTypeSet,
    /// Fused (or fusible) multiply-add on floats.
    pub fma: bool,
    /// Of the ops that targets may lack, those that this one has; others are decomposed.
    pub functions: &'static [Function],
    /// True for GPUs: kernels have axes Grid(0..3) and Local. False for processors: Grid(0) is a loop `lo..hi` inside
    /// the kernel, and threads share that range.
    pub has_local: bool,
    /// Threads of a subgroup, a power of two: so many threads of consecutive numbers can exchange values without
    /// workgroup memory. 0 if they cannot.
    pub subgroup: u32,
    /// Kernels may use WebAssembly relaxed SIMD.
    pub relaxed_simd: bool,
    /// Instructions that add up several products of bytes at once, if the target has them.
    pub dots: Option<Dots>,
    /// Products of small matrices that one instruction computes, the preferred first; empty if the renderer does not
    /// print them.
    pub matrix_tiles: Vec<MatrixTile>,
    /// Asynchronous copies to workgroup memory, which run while the kernel computes, together with instructions that
    /// load matrices from there; `None` if the target has none.
    pub copies: Option<Copies>,
    /// Can a kernel load vectors of contiguous elements and then permute their lanes? Loads with a stride of 2, for
    /// example, are made so.
    pub permutes: bool,
    /// Can a tile of two vectors, one for the even elements of a row and one for the odd elements, be stored by
    /// interleaving them ([`crate::codegen::Program::woven`])?
    pub interleaved_stores: bool,
    /// Can a vector register be used as one of half its lanes?
    pub half_vectors: bool,
    /// Can a multiply-add take one operand directly from memory?
    pub memory_operands: bool,
    /// May a masked load of a narrow dtype have a constant as the value for lanes that are masked off, in vectors too?
    pub narrow_mask_constants: bool,
    /// Does the compiler that translates our code (a driver's shader compiler) simplify floats as if they were real
    /// numbers: `x * 0` to 0, `(a + b) - a` to `b`, and the like? Code that relies on exact rounding is then written in
    /// a form that such a compiler cannot change.
    pub reassociates: bool,
    /// May a kernel read one part of an allocation and write another part of it?
    pub shared_allocations: bool,
    /// Does it run kernels that users wrote in the device's own language?
    pub custom_kernels: bool,
}

/// How a target speeds up sums of products of bytes. One operand is of signed bytes; this says what the other one is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dots {
    /// Number of products that one instruction adds up in each i32 lane.
    pub group: usize,
    /// The dtype as which the other operand's bytes are stored.
    pub stored: DType,
}

/// Asynchronous copies to workgroup memory, of 16 bytes each, that run while a kernel computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Copies {
    /// The most blocks of a loop that are in workgroup memory, or being copied to it, at the same time.
    pub blocks: usize,
    /// Bytes of workgroup memory that these blocks may take.
    pub bytes: usize,
}

/// A set of dtypes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct DTypeSet(u32);

impl DTypeSet {
    /// All storage dtypes.
    pub const ALL: DTypeSet = DTypeSet::of(&DType::ALL);

    /// The set of the listed dtypes.
    pub const fn of(list: &[DType]) -> DTypeSet {
        let (mut bits, mut i) = (0, 0);
        while i < list.len() {
            bits |= 1 << list[i] as u32;
            i += 1;
        }
        DTypeSet(bits)
    }

    /// This set and `dt`.
    pub const fn with(self, dt: DType) -> DTypeSet {
        DTypeSet(self.0 | 1 << dt as u32)
    }

    /// Is `dt` in the set?
    pub const fn has(self, dt: DType) -> bool {
        self.0 & 1 << dt as u32 != 0
    }
}

impl Caps {
    /// Those of the reference interpreter, which supports every dtype and op itself. Other targets start from it.
    pub fn eval() -> Caps {
        Caps {
            lanes: 1,
            vector_registers: 16,
            wide_vectors: false,
            most_lanes: None,
            isa: None,
            sm: None,
            storage: DTypeSet::ALL,
            f16_arrays: true,
            arithmetic: DTypeSet::ALL,
            fma: false,
            functions: functions::EVAL,
            has_local: false,
            subgroup: 0,
            relaxed_simd: false,
            dots: None,
            matrix_tiles: Vec::new(),
            copies: None,
            permutes: false,
            interleaved_stores: false,
            half_vectors: false,
            memory_operands: false,
            narrow_mask_constants: false,
            reassociates: false,
            shared_allocations: true,
            custom_kernels: false,
        }
    }

    /// What all processors have in common.
    pub fn processor() -> Caps {
        use DType::*;
        Caps {
            arithmetic: DTypeSet::of(&[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64]),
            fma: true,
            functions: functions::PROCESSOR,
            ..Caps::eval()
        }
    }
}
