//! Targets of hardware GPUs whose kernels are printed in a C-like language: Metal, CUDA C++ and HIP C++. These are the
//! limits that all GPUs of a kind have; drivers replace them by what the actual GPU reports.

use super::functions::{self, Function};
use super::{Caps, Lang, Limits, MatrixTile, Target};

impl Target {
    /// What these GPUs have in common.
    fn kernels(name: &str, lang: Lang, functions: &'static [Function]) -> Target {
        let opencl = Target::opencl(name);
        Target {
            lang,
            caps: Caps { functions, subgroup: 32, ..opencl.caps },
            limits: Limits {
                max_local: [1024, 1024, 64],
                max_local_total: 1024,
                workgroup_bytes: 32 << 10,
                max_buffer_bytes: 1 << 30,
                ..opencl.limits
            },
            ..opencl
        }
    }

    /// An Apple GPU of family 7 or later, the first with subgroups (Metal Feature Set Tables). Kernels have no f64.
    pub fn metal(name: &str) -> Target {
        let mut t = Target::kernels(name, Lang::Metal, functions::METAL);
        // a kernel may have 31 buffers, one of which holds the launch scalars
        t.limits.max_buffers = 30;
        t.caps.matrix_tiles = MatrixTile::simdgroup();
        t
    }

    /// An NVIDIA GPU through CUDA C++. `capability` is its compute capability times ten, such as 80 for 8.0 (CUDA C++
    /// Programming Guide, "Technical Specifications per Compute Capability").
    pub fn cuda_c(name: &str, capability: u32) -> Target {
        let mut t = Target::kernels(name, Lang::CudaC, functions::C).with_f64().with_words();
        t.caps.matrix_tiles = if capability >= 80 { MatrixTile::sm80() } else { Vec::new() };
        let (max_grid, workgroup_bytes) = ([i32::MAX as u32, 65535, 65535], 48 << 10);
        t.limits = Limits { max_grid, workgroup_bytes, max_buffers: 64, ..t.limits };
        t
    }

    /// An AMD GPU through HIP C++. `wave` is the number of threads in a subgroup, 32 on RDNA and 64 on CDNA;
    /// `matrix_tiles` are those of its generation.
    pub fn hip(name: &str, wave: u32, matrix_tiles: Vec<MatrixTile>) -> Target {
        let mut t = Target::kernels(name, Lang::Hip, functions::GNU_C).with_f64().with_words();
        t.caps = Caps { subgroup: wave, matrix_tiles, ..t.caps };
        t.limits = Limits { workgroup_bytes: 64 << 10, max_buffers: 64, ..t.limits };
        t
    }
}
