//! Targets of hardware GPUs whose kernels are printed in a C-like language: Metal, CUDA C++ and HIP C++. These are the
//! limits that all GPUs of a kind have; drivers replace them by what the actual GPU reports.

use super::functions::{self, Function};
use super::{Lang, Machine, MatrixTile, Target};

impl Target {
    /// What these GPUs have in common.
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

    /// An Apple GPU of family 7 or later, the first with subgroups (Metal Feature Set Tables). Kernels have no f64.
    pub fn metal(name: &str) -> Target {
        Target {
            // a kernel may have 31 buffers, one of which holds the launch scalars
            max_buffers: 30,
            matrix_tiles: MatrixTile::simdgroup(),
            ..Target::kernels(name, Lang::Metal, functions::METAL)
        }
    }

    /// An NVIDIA GPU through CUDA C++. `capability` is its compute capability times ten, such as 80 for 8.0 (CUDA C++
    /// Programming Guide, "Technical Specifications per Compute Capability").
    pub fn cuda_c(name: &str, capability: u32) -> Target {
        Target {
            matrix_tiles: if capability >= 80 { MatrixTile::sm80() } else { Vec::new() },
            max_grid: [i32::MAX as u32, 65535, 65535],
            workgroup_bytes: 48 << 10,
            max_buffers: 64,
            ..Target::kernels(name, Lang::CudaC, functions::C).with_f64().with_words()
        }
    }

    /// An AMD GPU through HIP C++. `wave` is the number of threads in a subgroup, 32 on RDNA and 64 on CDNA;
    /// `matrix_tiles` are those of its generation.
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
