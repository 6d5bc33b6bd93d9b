//! What a device can do, as plain data without handles or queries, in three parts: what kernels may use ([`Caps`]), how
//! large launches and buffers may be ([`Limits`]), and how fast what is ([`Machine`]). A [`Target`] decides which ops are
//! decomposed and how kernels are optimised, and it is part of every cache key. Devices in `native` and
//! `web` fill it in from what they find. A new back end starts with a constructor here that sets what differs from
//! [`Target::eval`].

mod caches;
mod caps;
pub mod functions;
mod kernels;
mod limits;
mod machine;
mod prices;
mod sm;
mod tiles;
mod workgroups;

pub use caches::Caches;
pub use caps::{Caps, Copies, DTypeSet, Dots};
pub use functions::Function;
pub use limits::Limits;
pub use machine::Machine;
pub use prices::Prices;
pub use sm::Sm;
pub use tiles::MatrixTile;
pub use workgroups::Workgroups;

use crate::uop::Op;
use crate::{DType, Error, Result};

/// True if dot products of words are compiled in, those of pairs alone (`Op::DotPairs`) or those of bytes (`Op::DotBytes`)
/// too, with what devices without an instruction for them need. Only products with quantised matrices make them.
pub const HAS_DOTS: bool = cfg!(any(test, feature = "pairs"));
/// See [`HAS_DOTS`].
pub const HAS_DOT_BYTES: bool = cfg!(any(test, feature = "integers"));

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
    /// What kernels may use.
    pub caps: Caps,
    /// How large launches, buffers and the memory of a workgroup may be.
    pub limits: Limits,
    /// Performance numbers of the machine, for cost estimates.
    pub machine: Machine,
}

/// The most lanes of a vector value in LLVM's text: it splits those that are longer than a register, into halves.
const LLVM_LANES: usize = 64;

impl Target {
    /// The native CPU through the x86-64 emitter.
    pub fn x86(isa: Isa, threads: usize) -> Target {
        Target {
            name: "cpu".into(),
            lang: Lang::X86,
            caps: Caps {
                functions: functions::X86,
                lanes: if isa >= Isa::Avx512 { 16 } else { 8 },
                vector_registers: if isa >= Isa::Avx512 { 32 } else { 16 },
                wide_vectors: true,
                isa: Some(isa),
                dots: (cfg!(feature = "x86") && isa >= Isa::Avx512Vnni).then_some(Dots { group: 4, stored: DType::U8 }),
                permutes: true,
                interleaved_stores: true,
                half_vectors: isa >= Isa::Avx512,
                memory_operands: true,
                narrow_mask_constants: true,
                ..Caps::processor()
            },
            limits: Limits::processor(threads),
            machine: if isa >= Isa::Avx512 { Machine::zen4(16, 32) } else { Machine::zen4(8, 16) },
        }
    }

    /// The native CPU through the AArch64 emitter.
    pub fn arm64(threads: usize) -> Target {
        Target {
            name: "cpu".into(),
            lang: Lang::Arm64,
            caps: Caps {
                lanes: 4,
                vector_registers: 32,
                interleaved_stores: true,
                narrow_mask_constants: true,
                ..Caps::processor()
            },
            limits: Limits::processor(threads),
            machine: Machine::arm64(),
        }
    }

    /// C through the system compiler, for a processor with `registers` vector registers of `lanes` f32. GCC keeps a vector
    /// that is longer than a register in memory.
    pub fn c(lanes: usize, registers: usize, threads: usize) -> Target {
        Target {
            name: "c".into(),
            lang: Lang::C,
            caps: Caps {
                functions: functions::GNU_C,
                lanes,
                vector_registers: registers,
                wide_vectors: true,
                most_lanes: Some(lanes),
                ..Caps::processor()
            },
            limits: Limits::processor(threads),
            machine: Machine::generic(lanes, registers),
        }
    }

    /// This target for kernels of values wider than 32 bits: vectors have half as many lanes, and their lanes are not
    /// permuted.
    pub fn for_wide_values(&self) -> Target {
        let mut t = self.clone();
        t.caps.lanes /= 2;
        t.caps.most_lanes = t.caps.most_lanes.map(|n| n / 2);
        t.caps.permutes = false;
        t
    }

    /// A processor through LLVM, with `registers` vector registers of `lanes` f32.
    pub fn llvm(lanes: usize, registers: usize, threads: usize) -> Target {
        Target {
            name: "llvm".into(),
            lang: Lang::Llvm,
            caps: Caps {
                functions: functions::LLVM,
                lanes,
                vector_registers: registers,
                wide_vectors: true,
                most_lanes: Some(LLVM_LANES),
                ..Caps::processor()
            },
            limits: Limits::processor(threads),
            machine: Machine::generic(lanes, registers),
        }
    }

    /// WebAssembly SIMD128, run by `threads` workers.
    pub fn wasm(relaxed_simd: bool, threads: usize) -> Target {
        Target {
            name: "wasm".into(),
            lang: Lang::Wasm,
            caps: Caps {
                lanes: 4,
                // of the engine's sixteen registers, one is reserved by the engine and one holds a product or a broadcast
                vector_registers: 14,
                fma: relaxed_simd,
                functions: functions::WASM,
                relaxed_simd,
                interleaved_stores: true,
                ..Caps::processor()
            },
            limits: Limits { max_buffer_bytes: u32::MAX as usize - 0xffff, ..Limits::processor(threads) },
            machine: Machine::wasm_engine(relaxed_simd),
        }
    }

    /// This target where the CPU has one instruction for `i32x4.dot_i16x8_s`, as x86 does.
    pub fn with_pairs(mut self) -> Target {
        self.caps.dots = Some(Dots { group: 2, stored: DType::I16 });
        self
    }

    /// WGSL with the limits that WebGPU guarantees; drivers raise them to the adapter's.
    pub fn wgsl(name: &str) -> Target {
        use DType::*;
        Target {
            name: name.into(),
            lang: Lang::Wgsl,
            caps: Caps {
                lanes: 4,
                vector_registers: 32,
                storage: DTypeSet::of(&[I8, U8, I16, U16, F16, BF16, I32, U32, F32, I64, U64]),
                arithmetic: DTypeSet::of(&[Bool, I32, U32, F32, I64, U64]),
                f16_arrays: false,
                fma: true,
                functions: functions::WGSL,
                has_local: true,
                reassociates: true,
                shared_allocations: false,
                ..Caps::eval()
            },
            limits: Limits {
                max_grid: [65535; 3],
                max_local: [256, 256, 64],
                max_local_total: 256,
                workgroup_bytes: 16384,
                max_buffers: 8,
                max_buffer_bytes: 128 << 20,
                offset_alignment: 256,
                ..Limits::eval()
            },
            machine: Machine::gpu(),
        }
    }

    /// OpenCL C with the least limits that a device may have; drivers replace them by what the device reports.
    pub fn opencl(name: &str) -> Target {
        use DType::*;
        Target {
            name: name.into(),
            lang: Lang::OpenCl,
            caps: Caps {
                lanes: 4,
                vector_registers: 32,
                storage: DTypeSet::of(&[Bool, I8, U8, I16, U16, F16, BF16, I32, U32, F32, I64, U64]),
                arithmetic: DTypeSet::of(&[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32]),
                fma: true,
                functions: functions::OPENCL,
                has_local: true,
                ..Caps::eval()
            },
            limits: Limits {
                max_grid: [i32::MAX as u32; 3],
                max_local: [256, 256, 64],
                max_local_total: 256,
                workgroup_bytes: 32 << 10,
                max_buffers: 32,
                max_buffer_bytes: 128 << 20,
                // the largest vector, of four f64, has to begin at a multiple of its size
                offset_alignment: 128,
                ..Limits::eval()
            },
            machine: Machine::gpu(),
        }
    }

    /// This target where kernels may compute in f64.
    pub fn with_f64(mut self) -> Target {
        self.caps.storage = DTypeSet::ALL;
        self.caps.arithmetic = self.caps.arithmetic.with(DType::F64);
        self
    }

    /// This target where kernels have dot products of words of four signed bytes: `dot4I8Packed` in WGSL, `dp4a` on
    /// NVIDIA's GPUs, `sdot` on Arm.
    pub fn with_words(mut self) -> Target {
        self.caps.dots = Some(Dots { group: 4, stored: DType::I8 });
        self
    }

    /// This target on a device that runs users' kernels, which the device's compiler checks.
    pub fn with_custom_kernels(mut self) -> Target {
        self.caps.custom_kernels = true;
        self
    }

    /// This target emulated by a CPU, by a driver that limits loops ([`Target::with_loop_limit`]).
    pub fn emulated(self) -> Target {
        self.emulated_without_loop_limit().with_loop_limit()
    }

    /// This target emulated by a CPU, by a driver that does not limit loops.
    pub fn emulated_without_loop_limit(mut self) -> Target {
        self.machine = Machine::emulated_gpu();
        self
    }

    /// This target with kernels as for a hardware GPU, for tests on emulators. The driver's limit on loop iterations
    /// stays.
    pub fn as_hardware(mut self) -> Target {
        self.machine = Machine::gpu();
        self
    }

    /// This target with the limit of llvmpipe, Mesa's emulator, on loops: it counts the iterations of all loops of a
    /// shader in one counter and stops every loop once that reaches this value (`LP_MAX_TGSI_LOOP_ITERATIONS`).
    pub fn with_loop_limit(mut self) -> Target {
        self.limits.max_loop_iterations = 65_535;
        self
    }

    /// This target where subgroups of so many threads exchange values.
    pub fn with_subgroup(mut self, threads: u32) -> Target {
        self.caps.subgroup = threads;
        self
    }

    /// This target where shaders may declare arrays of f16.
    pub fn with_f16(mut self) -> Target {
        self.caps.f16_arrays = true;
        self
    }

    /// The reference interpreter, which supports every dtype and op itself. Other constructors start from it and set
    /// what differs.
    pub fn eval() -> Target {
        Target {
            name: "eval".into(),
            lang: Lang::Eval,
            caps: Caps::eval(),
            limits: Limits::eval(),
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
        let found = std::iter::once(&dt).chain(wider).copied().find(|&d| self.caps.storage.has(d));
        found
            .ok_or_else(|| Error::Unsupported { what: format!("dtype {dt}"), context: format!("device {}", self.name) })
    }

    /// Does the target have an approximate instruction for powers of two whose error does not matter after rounding to
    /// 16-bit floats? [`Op::Exp2`] with a number as its argument asks for it.
    pub fn has_rough_powers(&self) -> bool {
        self.caps.sm.is_some()
    }

    /// Does the target have instructions for matrix tiles? False for all targets in a build without support for them.
    pub fn has_tiles(&self) -> bool {
        crate::uop::mma::MATRIX_TILES_ENABLED && !self.caps.matrix_tiles.is_empty()
    }

    /// Does the target compute `op` on `dt` itself, without a decomposition?
    pub fn has_op(&self, op: Op, dt: DType) -> bool {
        let (optional, own) = (functions::find(functions::EVAL, op, dt), functions::find(self.caps.functions, op, dt));
        self.caps.arithmetic.has(dt) && (optional.is_none() || own.is_some())
    }
}
