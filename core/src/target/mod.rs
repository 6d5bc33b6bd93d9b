//! What a device can do, as plain data without handles or queries. A [`Target`] decides which ops are decomposed, how
//! kernels are optimised and which limits launches have, and it is part of every cache key. Devices in `native` and
//! `web` fill it in from what they find. A new back end starts with a constructor here that sets what differs from
//! [`Target::eval`].

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

/// The instruction set extensions that x86-64 code may use, each including those before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Isa {
    /// AVX2 + FMA + F16C: 16 registers of 8 f32.
    Avx2,
    /// AVX-512 F/BW/DQ/VL: 32 registers of 16 f32.
    Avx512,
    /// AVX-512 with dot products of bytes (VNNI).
    Avx512Vnni,
    /// AVX-512 VNNI with dot products of bf16.
    Avx512Bf16,
}

/// Plain description of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    /// Device name as users write it, such as `cpu`, `wgpu`, `vulkan`, `webgpu`, `opencl`, `cuda`, `metal`, `wasm`,
    /// `c`, `llvm`, `eval`, `null`.
    pub name: String,
    /// The language that its renderer prints.
    pub lang: Lang,
    /// f32 lanes of a vector register: 4 for WGSL's vec4, 1 if the target has no vectors.
    pub lanes: usize,
    /// Vector registers that a tile may occupy, in units of a whole vector.
    pub vector_registers: usize,
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
    /// Threads that share a kernel's grid on CPU and WASM.
    pub threads: usize,
    /// Largest launch grid per dimension.
    pub max_grid: [u32; 3],
    /// Largest workgroup per dimension.
    pub max_local: [u32; 3],
    /// Most threads of a workgroup in all.
    pub max_local_total: u32,
    /// Threads of a subgroup, a power of two: so many threads of consecutive numbers can exchange values without
    /// workgroup memory. 0 if they cannot.
    pub subgroup: u32,
    /// Multiprocessors of a GPU, over which a kernel's workgroups are distributed; 0 if the number is unknown.
    pub processors: usize,
    /// Bytes of workgroup memory that a workgroup may use.
    pub workgroup_bytes: usize,
    /// Most storage buffers of a kernel.
    pub max_buffers: usize,
    /// Largest single binding or allocation, in bytes.
    pub max_buffer_bytes: usize,
    /// The offset of a binding in its allocation has to be a multiple of this, in bytes.
    pub offset_alignment: usize,
    /// True if a CPU emulates the GPU (SwiftShader, llvmpipe, pocl).
    pub software: bool,
    /// The most iterations that one thread may execute in all loops of a kernel together, because some drivers silently
    /// stop loops after a number of iterations. `u32::MAX` if there is no such limit.
    pub max_loop_iterations: u32,
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
    /// Performance numbers of the machine, for cost estimates.
    pub machine: Machine,
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
            interleaved_stores: true,
            half_vectors: isa >= Isa::Avx512,
            memory_operands: true,
            narrow_mask_constants: true,
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
            interleaved_stores: true,
            narrow_mask_constants: true,
            machine: Machine::arm64(),
            ..Target::processor(threads)
        }
    }

    /// What the targets of all CPUs have in common.
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
            // of the engine's sixteen registers, one is reserved by the engine and one holds a product or a broadcast
            vector_registers: 14,
            fma: relaxed_simd,
            relaxed_simd,
            interleaved_stores: true,
            max_buffer_bytes: u32::MAX as usize - 0xffff,
            machine: Machine::wasm_engine(relaxed_simd),
            ..Target::processor(threads)
        }
    }

    /// This target where the CPU has one instruction for `i32x4.dot_i16x8_s`, as x86 does.
    pub fn with_pairs(mut self) -> Target {
        self.dots = Some(Dots { group: 2, stored: DType::I16 });
        self
    }

    /// WGSL with the limits that WebGPU guarantees; drivers raise them to the adapter's.
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

    /// OpenCL C with the least limits that a device may have; drivers replace them by what the device reports.
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
            // the largest vector, of four f64, has to begin at a multiple of its size
            offset_alignment: 128,
            machine: Machine::gpu(),
            ..Target::eval()
        }
    }

    /// This target where kernels may compute in f64.
    pub fn with_f64(mut self) -> Target {
        self.storage = DTypeSet::ALL;
        self.arithmetic = DTypeSet(self.arithmetic.0 | DTypeSet::of(&[DType::F64]).0);
        self
    }

    /// This target where kernels have dot products of words of four signed bytes: `dot4I8Packed` in WGSL, `dp4a` on
    /// NVIDIA's GPUs, `sdot` on Arm.
    pub fn with_words(mut self) -> Target {
        self.dots = Some(Dots { group: 4, stored: DType::I8 });
        self
    }

    /// This target on a device that runs users' kernels, which the device's compiler checks.
    pub fn with_custom_kernels(mut self) -> Target {
        self.custom_kernels = true;
        self
    }

    /// This target emulated by a CPU, by a driver that limits loops ([`Target::with_loop_limit`]).
    pub fn emulated(self) -> Target {
        self.emulated_without_loop_limit().with_loop_limit()
    }

    /// This target emulated by a CPU, by a driver that does not limit loops.
    pub fn emulated_without_loop_limit(mut self) -> Target {
        self.software = true;
        self.machine = Machine::emulated_gpu();
        self
    }

    /// This target with kernels as for a hardware GPU, for tests on emulators. The driver's limit on loop iterations
    /// stays.
    pub fn as_hardware(mut self) -> Target {
        self.software = false;
        self.machine = Machine::gpu();
        self
    }

    /// This target with the limit of llvmpipe, Mesa's emulator, on loops: it counts the iterations of all loops of a
    /// shader in one counter and stops every loop once that reaches this value (`LP_MAX_TGSI_LOOP_ITERATIONS`).
    pub fn with_loop_limit(mut self) -> Target {
        self.max_loop_iterations = 65_535;
        self
    }

    /// This target where shaders may declare arrays of f16.
    pub fn with_f16(mut self) -> Target {
        self.f16_arrays = true;
        self
    }

    /// The reference interpreter, which supports every dtype and op itself. Other constructors start from it and set
    /// what differs.
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
            max_loop_iterations: u32::MAX,
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
            machine: Machine::generic(1, 16),
        }
    }

    /// The dtype with which elements of logical type `dt` are stored in this target's memory: `dt` itself where it can
    /// be stored, else the next wider dtype of its kind (the engine converts at upload and readback). `Unsupported` if
    /// there is neither.
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

    /// Does the target have an approximate instruction for powers of two whose error does not matter after rounding to
    /// 16-bit floats? [`Op::Exp2`] with a number as its argument asks for it.
    pub fn has_rough_powers(&self) -> bool {
        self.sm.is_some()
    }

    /// Does the target have instructions for matrix tiles? False for all targets in a build without support for them.
    pub fn has_tiles(&self) -> bool {
        crate::uop::mma::MATRIX_TILES_ENABLED && !self.matrix_tiles.is_empty()
    }

    /// Does the target compute `op` on `dt` itself, without a decomposition?
    pub fn has_op(&self, op: Op, dt: DType) -> bool {
        let (optional, own) = (functions::find(functions::EVAL, op, dt), functions::find(self.functions, op, dt));
        self.arithmetic.has(dt) && (optional.is_none() || own.is_some())
    }
}
