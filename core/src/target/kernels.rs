//! GPUs of hardware whose kernels are printed in a language like C: what all of a kind have. Drivers put in what theirs says.

use super::functions::{self, Function};
use super::{Lang, Machine, MatrixTile, Target};

impl Target {
    /// What they have in common.
    fn kernels(name: &str, lang: Lang, functions: &'static [Function]) -> Target {
        Target {
            name: name.into(),
            lang,
            functions,
            max_local: [1024, 1024, 64],
            max_local_total: 1024,
            subgroup: 32,
            workgroup_bytes: 32 << 10,
            max_buffer_bytes: 1 << 30,
            machine: Machine::gpu(),
            ..Target::opencl(name)
        }
    }

    /// A GPU of Apple's, the first with subgroups being of family 7 (Metal Feature Set Tables). Threads have no f64.
    pub fn metal(name: &str) -> Target {
        Target {
            // a kernel has 31, of which one is for launch scalars
            max_buffers: 30,
            matrix_tiles: MatrixTile::simdgroup(),
            ..Target::kernels(name, Lang::Metal, functions::METAL)
        }
    }

    /// NVIDIA's GPU of a compute capability, such as 80 for 8.0, through CUDA C++ (CUDA C++ Programming Guide, "Technical
    /// Specifications per Compute Capability").
    pub fn cuda_c(name: &str, capability: u32) -> Target {
        Target {
            matrix_tiles: if capability >= 80 { MatrixTile::sm80() } else { Vec::new() },
            max_grid: [i32::MAX as u32, 65535, 65535],
            workgroup_bytes: 48 << 10,
            max_buffers: 64,
            ..Target::kernels(name, Lang::CudaC, functions::C).with_f64().with_words()
        }
    }

    /// AMD's GPU through HIP C++: `wave` threads in a subgroup, 32 on RDNA and 64 on CDNA, and the tiles of its generation.
    pub fn hip(name: &str, wave: u32, matrix_tiles: Vec<MatrixTile>) -> Target {
        Target {
            subgroup: wave,
            matrix_tiles,
            workgroup_bytes: 64 << 10,
            max_buffers: 64,
            ..Target::kernels(name, Lang::Hip, functions::GNU_C).with_f64().with_words()
        }
    }
}
