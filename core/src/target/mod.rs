//! What a device can do, as plain data: no handle, no probe. A [`Target`] decides decompositions, kernel optimisation and
//! launch limits; it is part of every cache key. Devices in `native` and `web` fill it from what they find.

mod caches;
pub mod functions;
mod kernels;
mod machine;
mod prices;
mod sm;
mod tiles;
mod workgroups;

pub use caches::Caches;
pub use functions::Function;
pub use machine::Machine;
pub use prices::Prices;
pub use sm::Sm;
pub use tiles::MatrixTile;
pub use workgroups::Workgroups;

use crate::uop::Op;
use crate::{DType, Error, Result};

/// The language a renderer prints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lang {
    /// WebGPU shading language.
    Wgsl,
    /// A WebAssembly function.
    Wasm,
    /// x86-64 machine code.
    X86,
    /// AArch64 machine code.
    Arm64,
    /// C99 with GCC vector extensions.
    C,
    /// LLVM IR.
    Llvm,
    /// OpenCL C 1.2.
    OpenCl,
    /// Metal's shading language.
    Metal,
    /// CUDA C++.
    CudaC,
    /// HIP C++ for AMD's GPUs.
    Hip,
    /// NVIDIA's PTX.
    Ptx,
    /// The program itself, interpreted.
    Eval,
}

/// How far x86-64 code may go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Isa {
    /// AVX2 + FMA + F16C: 16 registers of 8 f32.
    Avx2,
    /// AVX-512 F/BW/DQ/VL: 32 registers of 16 f32.
    Avx512,
    /// The same with dot products of bytes (VNNI).
    Avx512Vnni,
    /// The same with dot products of bf16.
    Avx512Bf16,
}

/// Plain description of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Device name as users write it: `cpu`, `wgpu`, `webgpu`, `opencl`, `cuda`, `metal`, `wasm`, `c`, `llvm`, `eval`, `null`.
    pub name: String,
    /// What its renderer prints.
    pub lang: Lang,
    /// f32 lanes of a vector register; 4 for WGSL's vec4; 1 if the target has no vectors.
    pub lanes: usize,
    /// Vector registers that a tile may occupy.
    pub vector_registers: usize,
    /// Instruction set of an x86-64 target.
    pub isa: Option<Isa>,
    /// Compute capability of an NVIDIA GPU.
    pub sm: Option<Sm>,
    /// dtypes that can be stored in a buffer and loaded as they are.
    pub storage: DTypeSet,
    /// Shaders may declare arrays of f16; without, as for all narrow dtypes, they see words that hold several elements.
    pub f16_arrays: bool,
    /// dtypes that arithmetic can be done in; others are decomposed.
    pub arithmetic: DTypeSet,
    /// Fused (or fusible) multiply-add on floats.
    pub fma: bool,
    /// What it computes itself of the ops that targets may lack; others are decomposed.
    pub functions: &'static [Function],
    /// True for GPUs: kernels have Grid(0..3) and Local axes. False: Grid(0) is a loop `lo..hi` inside the kernel.
    pub has_local: bool,
    /// Threads that run a kernel's grid on CPU and WASM.
    pub threads: usize,
    /// Largest launch grid per dimension.
    pub max_grid: [u32; 3],
    /// Largest workgroup per dimension.
    pub max_local: [u32; 3],
    /// Largest workgroup in all.
    pub max_local_total: u32,
    /// So many threads in a row are in one subgroup and may exchange values there (a power of two); 0 if they may not.
    pub subgroup: u32,
    /// Processors of a GPU, among which a kernel's workgroups are shared out; 0 if nobody knows how many there are.
    pub processors: usize,
    /// Workgroup memory.
    pub workgroup_bytes: usize,
    /// Storage buffers per kernel.
    pub max_buffers: usize,
    /// Largest single binding or allocation.
    pub max_buffer_bytes: usize,
    /// Bindings may start at multiples of this.
    pub offset_alignment: usize,
    /// A GPU emulated in software (SwiftShader, llvmpipe, pocl).
    pub software: bool,
    /// Turns of loops that one thread makes at most, those of all loops of a kernel together: a driver may end loops after
    /// so many without a word. `u32::MAX` where nothing counts them.
    pub max_turns: u32,
    /// Kernels may use WebAssembly relaxed SIMD.
    pub relaxed_simd: bool,
    /// Instructions that add up several products of bytes at once.
    pub dots: Option<Dots>,
    /// Products of small matrices that are one instruction, the preferred first; none on a target whose renderer does not print them.
    pub matrix_tiles: Vec<MatrixTile>,
    /// How kernels copy to workgroup memory while they compute, and load what is there as matrices.
    pub copies: Option<Copies>,
    /// Vectors of neighbours can be loaded and then put in any order.
    pub permutes: bool,
    /// Stores of every other element, with another one between them, are woven from two vectors ([`crate::codegen::Program::woven`]).
    pub weaves: bool,
    /// A register can be used as one of half its lanes.
    pub half_vectors: bool,
    /// A multiply-add takes one operand from memory.
    pub memory_operands: bool,
    /// What a load under a gate gives instead may be a constant of a narrow dtype, in vectors too.
    pub narrow_gates: bool,
    /// The compiler below takes `x * 0`, `(a + b) - a` and their like for what they are in real numbers.
    pub reassociates: bool,
    /// A kernel may read one part of an allocation and write another.
    pub shared_allocations: bool,
    /// Does it run kernels that users wrote, in its own language?
    pub custom_kernels: bool,
    /// Numbers of the machine below.
    pub machine: Machine,
}

/// How sums of products of bytes are made quick: one operand is of signed bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dots {
    /// Products, in i32, that one instruction adds up in each lane.
    pub group: usize,
    /// What the other operand's bytes are stored as.
    pub stored: DType,
}

/// Copies to workgroup memory that go on while a kernel computes, of 16 bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Copies {
    /// Blocks of a loop that are in workgroup memory or on their way there, at most.
    pub blocks: usize,
    /// Workgroup memory that they may take.
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

    /// Is `dt` in the set?
    pub const fn has(self, dt: DType) -> bool {
        self.0 & 1 << dt as u32 != 0
    }
}

impl Target {
    /// The native CPU through the x86-64 emitter.
    pub fn x86(isa: Isa, threads: usize) -> Target {
        Target {
            name: "cpu".into(),
            lang: Lang::X86,
            functions: functions::X86,
            lanes: if isa >= Isa::Avx512 { 16 } else { 8 },
            vector_registers: if isa >= Isa::Avx512 { 32 } else { 16 },
            isa: Some(isa),
            dots: (cfg!(feature = "x86") && isa >= Isa::Avx512Vnni).then_some(Dots { group: 4, stored: DType::U8 }),
            permutes: true,
            weaves: true,
            half_vectors: isa >= Isa::Avx512,
            memory_operands: true,
            narrow_gates: true,
            machine: if isa >= Isa::Avx512 { Machine::zen4(16, 32) } else { Machine::zen4(8, 16) },
            ..Target::processor(threads)
        }
    }

    /// The native CPU through the AArch64 emitter.
    pub fn arm64(threads: usize) -> Target {
        Target {
            name: "cpu".into(),
            lang: Lang::Arm64,
            lanes: 4,
            vector_registers: 32,
            weaves: true,
            narrow_gates: true,
            machine: Machine::arm64(),
            ..Target::processor(threads)
        }
    }

    /// What all processors have.
    fn processor(threads: usize) -> Target {
        use DType::*;
        Target {
            arithmetic: DTypeSet::of(&[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64]),
            fma: true,
            functions: functions::PROCESSOR,
            threads,
            ..Target::eval()
        }
    }

    /// C through the system compiler.
    pub fn c(threads: usize) -> Target {
        Target {
            name: "c".into(),
            lang: Lang::C,
            functions: functions::GNU_C,
            lanes: 8,
            vector_registers: 16,
            machine: Machine::generic(8, 16),
            ..Target::processor(threads)
        }
    }

    /// A processor through LLVM, with `registers` vector registers of `lanes` f32.
    pub fn llvm(lanes: usize, registers: usize, threads: usize) -> Target {
        Target {
            name: "llvm".into(),
            lang: Lang::Llvm,
            functions: functions::LLVM,
            lanes,
            vector_registers: registers,
            machine: Machine::generic(lanes, registers),
            ..Target::processor(threads)
        }
    }

    /// WebAssembly SIMD128, run by `threads` workers.
    pub fn wasm(relaxed_simd: bool, threads: usize) -> Target {
        Target {
            name: "wasm".into(),
            lang: Lang::Wasm,
            lanes: 4,
            // of the engine's sixteen one is its own and one holds a product or a broadcast
            vector_registers: 14,
            fma: relaxed_simd,
            relaxed_simd,
            weaves: true,
            max_buffer_bytes: u32::MAX as usize - 0xffff,
            machine: Machine::wasm_engine(relaxed_simd),
            ..Target::processor(threads)
        }
    }

    /// The same where the processor below has one instruction for `i32x4.dot_i16x8_s`: x86 does.
    pub fn with_pairs(mut self) -> Target {
        self.dots = Some(Dots { group: 2, stored: DType::I16 });
        self
    }

    /// WGSL with WebGPU's guaranteed limits; drivers raise them to the adapter's.
    pub fn wgsl(name: &str) -> Target {
        use DType::*;
        Target {
            name: name.into(),
            lang: Lang::Wgsl,
            lanes: 4,
            vector_registers: 32,
            storage: DTypeSet::of(&[I8, U8, I16, U16, F16, BF16, I32, U32, F32, I64, U64]),
            arithmetic: DTypeSet::of(&[Bool, I32, U32, F32, I64, U64]),
            f16_arrays: false,
            fma: true,
            functions: functions::WGSL,
            has_local: true,
            max_grid: [65535; 3],
            max_local: [256, 256, 64],
            max_local_total: 256,
            workgroup_bytes: 16384,
            max_buffers: 8,
            max_buffer_bytes: 128 << 20,
            offset_alignment: 256,
            reassociates: true,
            shared_allocations: false,
            machine: Machine::gpu(),
            ..Target::eval()
        }
    }

    /// OpenCL C with the least that a device has; drivers put in what theirs says.
    pub fn opencl(name: &str) -> Target {
        use DType::*;
        Target {
            name: name.into(),
            lang: Lang::OpenCl,
            lanes: 4,
            vector_registers: 32,
            storage: DTypeSet::of(&[Bool, I8, U8, I16, U16, F16, BF16, I32, U32, F32, I64, U64]),
            arithmetic: DTypeSet::of(&[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32]),
            fma: true,
            functions: functions::OPENCL,
            has_local: true,
            max_grid: [i32::MAX as u32; 3],
            max_local: [256, 256, 64],
            max_local_total: 256,
            workgroup_bytes: 32 << 10,
            max_buffers: 32,
            max_buffer_bytes: 128 << 20,
            // the largest vector, of four f64, begins at a multiple of its size
            offset_alignment: 128,
            machine: Machine::gpu(),
            ..Target::eval()
        }
    }

    /// The same where kernels may compute in f64.
    pub fn with_f64(mut self) -> Target {
        self.storage = DTypeSet::ALL;
        self.arithmetic = DTypeSet(self.arithmetic.0 | DTypeSet::of(&[DType::F64]).0);
        self
    }

    /// The same where kernels have products of words of four signed bytes: `dot4I8Packed` in WGSL, `dp4a` on NVIDIA's GPUs, `sdot` on Arm.
    pub fn with_words(mut self) -> Target {
        self.dots = Some(Dots { group: 4, stored: DType::I8 });
        self
    }

    /// The same on a device that runs code of users, checked by what compiles it.
    pub fn with_custom_kernels(mut self) -> Target {
        self.custom_kernels = true;
        self
    }

    /// The same emulated by a processor.
    pub fn emulated(self) -> Target {
        self.by_processor().of_few_turns()
    }

    /// The same run by a processor whose loops go on as long as they should.
    pub fn by_processor(mut self) -> Target {
        self.software = true;
        self.machine = Machine::emulated_gpu();
        self
    }

    /// The same with kernels as for a GPU of hardware. Where loops end stays the driver's.
    pub fn as_hardware(mut self) -> Target {
        self.software = false;
        self.machine = Machine::gpu();
        self
    }

    /// The same with loops as short as llvmpipe, Mesa's emulator, wants them: it counts the turns of all loops of a shader in
    /// one counter and ends every loop when it has counted this far (`LP_MAX_TGSI_LOOP_ITERATIONS`).
    pub fn of_few_turns(mut self) -> Target {
        self.max_turns = 65_535;
        self
    }

    /// The same where shaders may declare arrays of f16.
    pub fn with_f16(mut self) -> Target {
        self.f16_arrays = true;
        self
    }

    /// The reference interpreter: everything is native.
    pub fn eval() -> Target {
        Target {
            name: "eval".into(),
            lang: Lang::Eval,
            lanes: 1,
            vector_registers: 16,
            isa: None,
            sm: None,
            storage: DTypeSet::ALL,
            f16_arrays: true,
            arithmetic: DTypeSet::ALL,
            fma: false,
            functions: functions::EVAL,
            has_local: false,
            threads: 1,
            max_grid: [u32::MAX >> 1; 3],
            max_local: [1; 3],
            max_local_total: 1,
            subgroup: 0,
            processors: 0,
            workgroup_bytes: 0,
            max_buffers: 64,
            max_buffer_bytes: usize::MAX >> 1,
            offset_alignment: 64,
            software: false,
            max_turns: u32::MAX,
            relaxed_simd: false,
            dots: None,
            matrix_tiles: Vec::new(),
            copies: None,
            permutes: false,
            weaves: false,
            half_vectors: false,
            memory_operands: false,
            narrow_gates: false,
            reassociates: false,
            shared_allocations: true,
            custom_kernels: false,
            machine: Machine::generic(1, 16),
        }
    }

    /// The dtype that elements of logical type `dt` have in this target's memory: itself where it can be stored, else the
    /// next wider type of its kind (the engine converts at upload and readback).
    pub fn stored_as(&self, dt: DType) -> Result<DType> {
        use DType::*;
        let wider: &[DType] = match dt {
            Bool | I8 | I16 => &[I32],
            U8 | U16 => &[U32],
            F16 | BF16 => &[F32],
            _ => &[],
        };
        let found = std::iter::once(&dt).chain(wider).copied().find(|&d| self.storage.has(d));
        found
            .ok_or_else(|| Error::Unsupported { what: format!("dtype {dt}"), context: format!("device {}", self.name) })
    }

    /// Has it an instruction for powers of two that are exact enough for floats of 16 bits ([`Op::Exp2`] with a number)?
    pub fn has_rough_powers(&self) -> bool {
        self.sm.is_some()
    }

    /// Does the target multiply matrix tiles? Never in a build without them.
    pub fn has_tiles(&self) -> bool {
        crate::uop::mma::BUILT && !self.matrix_tiles.is_empty()
    }

    /// Does the target compute `op` on `dt` itself?
    pub fn has_op(&self, op: Op, dt: DType) -> bool {
        let (optional, own) = (functions::find(functions::EVAL, op, dt), functions::find(self.functions, op, dt));
        self.arithmetic.has(dt) && (optional.is_none() || own.is_some())
    }
}
