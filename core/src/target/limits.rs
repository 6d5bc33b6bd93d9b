//! How large the launches, buffers and workgroups of a device may be.

/// The limits of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// Threads that share a kernel's grid on CPU and WASM.
    pub threads: usize,
    /// Largest launch grid per dimension.
    pub max_grid: [u32; 3],
    /// Largest workgroup per dimension.
    pub max_local: [u32; 3],
    /// Most threads of a workgroup in all.
    pub max_local_total: u32,
    /// Bytes of workgroup memory that a workgroup may use.
    pub workgroup_bytes: usize,
    /// Most storage buffers of a kernel.
    pub max_buffers: usize,
    /// Largest single binding or allocation, in bytes.
    pub max_buffer_bytes: usize,
    /// The offset of a binding in its allocation has to be a multiple of this, in bytes.
    pub offset_alignment: usize,
    /// The most iterations that one thread may execute in all loops of a kernel together, because some drivers silently
    /// stop loops after a number of iterations. `u32::MAX` if there is no such limit.
    pub max_loop_iterations: u32,
}

impl Limits {
    /// Those of the reference interpreter.
    pub fn eval() -> Limits {
        Limits {
            threads: 1,
            max_grid: [u32::MAX >> 1; 3],
            max_local: [1; 3],
            max_local_total: 1,
            workgroup_bytes: 0,
            max_buffers: 64,
            max_buffer_bytes: usize::MAX >> 1,
            offset_alignment: 64,
            max_loop_iterations: u32::MAX,
        }
    }

    /// Those that all NVIDIA GPUs have at least (CUDA C++ Programming Guide, "Technical Specifications per Compute
    /// Capability").
    pub fn nvidia() -> Limits {
        Limits {
            max_grid: [i32::MAX as u32, 65535, 65535],
            max_local: [1024, 1024, 64],
            max_local_total: 1024,
            workgroup_bytes: 48 << 10,
            offset_alignment: 256,
            ..Limits::eval()
        }
    }

    /// Those of a processor whose kernels are run by so many threads.
    pub fn processor(threads: usize) -> Limits {
        Limits { threads, ..Limits::eval() }
    }
}
