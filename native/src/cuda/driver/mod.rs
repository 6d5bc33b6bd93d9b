//! The functions of the CUDA driver that are used, each behind a safe interface: handles that free themselves, and
//! errors with names. The library is loaded when it is first needed; nothing is called before it is known to be
//! present, because the bindings panic without it. This file has devices, memory and events; modules and graphs have
//! files of their own.

mod graph;
mod module;

pub(super) use graph::{Graph, Work};
pub(super) use module::{Function, Module};

use cudarc::driver::sys::{
    self, CUdevice_attribute_enum as Attribute, CUmemPool_attribute_enum as PoolAttribute, CUresult,
};
use gradloom_core::{Error, Result};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable with the path of a library to use in place of the system's driver: an emulator, for tests.
pub const LIBRARY: &str = "GRADLOOM_CUDA_LIBRARY";

pub(super) fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "cuda".into(), what: what.into() }
}

fn lost(what: impl Into<String>) -> Error {
    Error::Lost { device: "cuda".into(), what: what.into() }
}

/// Puts the name of a kernel before what an error says; its kind stays.
pub(super) fn of_kernel(name: &str, e: Error) -> Error {
    match e {
        Error::Device { what, .. } => error(format!("{name}: {what}")),
        Error::Lost { what, .. } => lost(format!("{name}: {what}")),
        e => e,
    }
}

/// Does a context stay unusable after this error? Every later call in it gives the same error, and in most cases the
/// driver starts no work of this process any more (NVIDIA, CUDA Driver API, `CUresult`).
fn is_sticky(code: CUresult) -> bool {
    use CUresult::*;
    matches!(
        code,
        CUDA_ERROR_DEINITIALIZED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
    )
}

/// Converts the result of a call; `what` names what was made or done. Calls in a context use [`Stream::done`].
fn done(what: &str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code if is_sticky(code) => Err(lost(format!("{what}: {code:?}; another process can use the GPU"))),
        code => Err(error(format!("{what}: {code:?}"))),
    }
}

/// Whether `use_library` named a library.
static NAMED: AtomicBool = AtomicBool::new(false);

/// Is the library in use one that was named, rather than the system's driver?
pub(super) fn is_named() -> bool {
    NAMED.load(Ordering::Relaxed) || std::env::var_os(LIBRARY).is_some()
}

/// Uses this library from now on, unless one is loaded already.
pub fn use_library(path: &std::path::Path) -> Result<()> {
    load(path).map_err(error)
}

fn load(path: &std::path::Path) -> std::result::Result<(), String> {
    NAMED.store(true, Ordering::Relaxed);
    // SAFETY: the library is one of a driver or of its emulator, whose initialisation has no conditions; it is never unloaded
    let library = unsafe { libloading::Library::new(path) };
    // The bindings open the library by the driver's name, and find the one that is loaded already
    library.map(std::mem::forget).map_err(|e| format!("{} cannot be loaded: {e}", path.display()))
}

/// Initialises the driver once, or gives the reason why there is none.
fn driver() -> Result<()> {
    static READY: OnceLock<std::result::Result<(), String>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        if let Some(path) = std::env::var_os(LIBRARY) {
            load(path.as_ref()).map_err(|e| format!("{LIBRARY}: {e}"))?;
        }
        // SAFETY: it opens libraries by the driver's names
        if !unsafe { sys::is_culib_present() } {
            return Err("no NVIDIA driver on this machine (there is no libcuda)".into());
        }
        // SAFETY: the library is there, and the call has no conditions
        match unsafe { sys::cuInit(0) } {
            CUresult::CUDA_SUCCESS => Ok(()),
            CUresult::CUDA_ERROR_NO_DEVICE => Err("an NVIDIA driver without a GPU".into()),
            code => Err(format!("the NVIDIA driver does not start: {code:?}")),
        }
    });
    ready.clone().map_err(error)
}

/// A GPU that the driver offers.
#[derive(Clone)]
pub(super) struct Gpu {
    device: sys::CUdevice,
    pub(super) name: String,
    pub(super) capability: (u32, u32),
    pub(super) memory: usize,
    pub(super) multiprocessors: u32,
    /// The most bytes of workgroup memory that a kernel may request.
    pub(super) shared: usize,
    /// Whether memory can be allocated in stream order.
    pub(super) pools: bool,
    pub(super) version: (u32, u32),
}

impl Gpu {
    pub(super) fn all() -> Result<Vec<Gpu>> {
        driver()?;
        let mut n = 0;
        // SAFETY: the driver is initialised, and the pointer is to a number
        done("the number of GPUs", unsafe { sys::cuDeviceGetCount(&mut n) })?;
        (0..n).map(Gpu::describe).collect()
    }

    fn describe(index: i32) -> Result<Gpu> {
        let (mut device, mut memory, mut version) = (0, 0, 0);
        let mut name = [0u8; 256];
        // SAFETY: the pointers are to values of these types, and the name's length is given
        unsafe {
            done("a GPU", sys::cuDeviceGet(&mut device, index))?;
            done("a GPU's name", sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32 - 1, device))?;
            done("a GPU's memory", sys::cuDeviceTotalMem_v2(&mut memory, device))?;
            done("the driver's version", sys::cuDriverGetVersion(&mut version))?;
        }
        let number = |attribute| {
            let mut n = 0;
            // SAFETY: the pointer is to a number
            done("an attribute", unsafe { sys::cuDeviceGetAttribute(&mut n, attribute, device) })?;
            Ok(n.unsigned_abs())
        };
        let name =
            CStr::from_bytes_until_nul(&name).map_or_else(|_| "GPU".into(), |s| s.to_string_lossy().into_owned());
        Ok(Gpu {
            device,
            name,
            capability: (
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            memory,
            shared: number(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
            multiprocessors: number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            pools: number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 1,
            version: (version.unsigned_abs() / 1000, version.unsigned_abs() % 1000 / 10),
        })
    }
}

/// The GPU's primary context, and a stream in it. The context must be current in each thread that uses the stream.
pub(super) struct Stream {
    gpu: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// The pool that memory is allocated from in stream order; null without pools.
    pool: sys::CUmemoryPool,
    /// The error that made the context unusable.
    lost: OnceLock<String>,
}

// SAFETY: the driver's handles may be used from any thread that makes the context current, which every method does
unsafe impl Send for Stream {}
// SAFETY: the same, and from several at once: the driver has its own locks
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(gpu: &Gpu) -> Result<Stream> {
        let mut s = Stream {
            gpu: gpu.device,
            context: ptr::null_mut(),
            stream: ptr::null_mut(),
            pool: ptr::null_mut(),
            lost: OnceLock::new(),
        };
        // SAFETY: the driver is initialised, which `Gpu::all` did
        done("a context", unsafe { sys::cuDevicePrimaryCtxRetain(&mut s.context, gpu.device) })?;
        s.enter()?;
        // SAFETY: the context is current; 1 is a stream that waits for no other
        done("a stream", unsafe { sys::cuStreamCreate(&mut s.stream, 1) })?;
        if gpu.pools {
            s.open_pool()?;
        }
        Ok(s)
    }

    /// Takes the GPU's default pool, and lets it keep what is freed. As the driver makes it, each synchronisation may
    /// return all unused memory to the system, which runs whose temporaries come and go would then request again every
    /// time. [`Stream::allocate`] and the end of the stream return it instead.
    fn open_pool(&mut self) -> Result<()> {
        // SAFETY: the driver is initialised, and the pointer is to a handle
        done("the memory pool", unsafe { sys::cuDeviceGetDefaultMemPool(&mut self.pool, self.gpu) })?;
        let mut most = u64::MAX;
        let (what, value) = (PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ptr::from_mut(&mut most).cast());
        // A driver that refuses allocates more slowly, and as correctly
        // SAFETY: the pool is the GPU's, and the attribute a number of 64 bits, which is read
        let _ = unsafe { sys::cuMemPoolSetAttribute(self.pool, what, value) };
        Ok(())
    }

    /// An error if the context is lost; it stays lost for good.
    pub(super) fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |what| Err(lost(what.clone())))
    }

    /// Converts the result of a call in the context; `what` names what was made or done. After a loss every later call
    /// is an error.
    fn done(&self, what: &str, code: CUresult) -> Result<()> {
        let made = done(what, code);
        if let Err(Error::Lost { what, .. }) = &made {
            let _ = self.lost.set(what.clone());
        }
        made
    }

    fn enter(&self) -> Result<()> {
        self.alive()?;
        // SAFETY: the context is retained as long as `self` is
        self.done("the context", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    pub(super) fn wait(&self) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`
        self.done("the stream", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    // ---- memory

    /// Allocates zeroed memory on the GPU.
    pub(super) fn allocate(&self, bytes: usize) -> Result<u64> {
        self.enter()?;
        let mut at = 0;
        let mut made = self.take(&mut at, bytes);
        if made == CUresult::CUDA_ERROR_OUT_OF_MEMORY && !self.pool.is_null() {
            // What is freed is the pool's once the stream gets there, and may be in pieces that are too small
            self.wait()?;
            self.trim_pool();
            made = self.take(&mut at, bytes);
        }
        if made == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(Error::OutOfMemory { device: "cuda".into(), bytes: bytes as u64 });
        }
        self.done("an allocation", made)?;
        // SAFETY: the memory is of these bytes
        self.done("zeros", unsafe { sys::cuMemsetD8Async(at, 0, bytes, self.stream) })?;
        Ok(at)
    }

    /// Asks the driver for memory.
    fn take(&self, at: &mut u64, bytes: usize) -> CUresult {
        match self.pool.is_null() {
            // SAFETY: the pointer is to an address; memory of a stream is used in that stream alone
            false => unsafe { sys::cuMemAllocAsync(at, bytes, self.stream) },
            // SAFETY: the pointer is to an address
            true => unsafe { sys::cuMemAlloc_v2(at, bytes) },
        }
    }

    /// Returns to the system what the pool has and nobody uses. A failure changes nothing.
    fn trim_pool(&self) {
        // SAFETY: the pool is the GPU's
        let _ = unsafe { sys::cuMemPoolTrimTo(self.pool, 0) };
    }

    /// The bytes of the GPU's memory that the pool has, in use or not; 0 without a pool.
    pub(super) fn pool_bytes(&self) -> Result<u64> {
        self.enter()?;
        let mut bytes = 0u64;
        if !self.pool.is_null() {
            let (what, value) = (PoolAttribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, ptr::from_mut(&mut bytes).cast());
            // SAFETY: the pool is the GPU's, and the attribute a number of 64 bits
            self.done("the memory pool", unsafe { sys::cuMemPoolGetAttribute(self.pool, what, value) })?;
        }
        Ok(bytes)
    }

    /// Frees memory when the work that uses it is done.
    pub(super) fn free(&self, at: u64) {
        if self.enter().is_err() {
            return;
        }
        // SAFETY: the address is one of `allocate`, which its owner gives back once; the second call waits for all work
        let _ = match self.pool.is_null() {
            false => unsafe { sys::cuMemFreeAsync(at, self.stream) },
            true => unsafe { sys::cuMemFree_v2(at) },
        };
    }

    /// Copies bytes to the GPU. `data` has been read when this returns.
    pub(super) fn upload(&self, at: u64, data: &[u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's region is inside an allocation, and pageable memory is copied before the call returns
        self.done("an upload", unsafe { sys::cuMemcpyHtoDAsync_v2(at, data.as_ptr().cast(), data.len(), self.stream) })
    }

    /// Starts a copy of `data` to the GPU through pinned memory at `offset`, which must not be written until the stream
    /// has executed the copy.
    pub(super) fn upload_by(&self, at: u64, way: &mut Pinned, offset: usize, data: &[u8]) -> Result<()> {
        self.enter()?;
        let room = way.bytes.checked_sub(offset).filter(|&n| n >= data.len());
        room.ok_or_else(|| error("an upload is longer than what it goes through"))?;
        // SAFETY: the region is inside the memory, and nothing reads it now: its owner waited for what did
        let from = unsafe {
            let from = way.at.cast::<u8>().add(offset);
            from.copy_from_nonoverlapping(data.as_ptr(), data.len());
            from
        };
        // SAFETY: the caller's region is inside an allocation, and the owner keeps the memory as it is until the copy is done
        self.done("an upload", unsafe { sys::cuMemcpyHtoDAsync_v2(at, from.cast(), data.len(), self.stream) })
    }

    /// Copies bytes within the GPU. The ranges must not overlap.
    pub(super) fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: both ranges are inside allocations, which the caller checked, and do not overlap
        self.done("a copy", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) })
    }

    /// Starts a copy to the beginning of `to`.
    pub(super) fn download(&self, from: u64, to: &mut Pinned, bytes: usize) -> Result<()> {
        self.enter()?;
        let bytes = bytes.min(to.bytes);
        // SAFETY: the region is inside an allocation, which the caller checked, and `to` has these bytes and lives until the copy is done
        self.done("a readback", unsafe { sys::cuMemcpyDtoHAsync_v2(to.at, from, bytes, self.stream) })
    }

    /// Allocates pinned host memory, which the GPU reads and writes asynchronously.
    pub(super) fn pinned(&self, bytes: usize) -> Result<Pinned> {
        self.enter()?;
        let mut at = ptr::null_mut();
        // SAFETY: the pointer is to a pointer
        self.done("memory of the host", unsafe { sys::cuMemAllocHost_v2(&mut at, bytes.max(1)) })?;
        Ok(Pinned { at, bytes })
    }

    // ---- events

    /// Records an event in the stream.
    pub(super) fn event(&self) -> Result<Event> {
        self.enter()?;
        let mut event = Event(ptr::null_mut());
        // SAFETY: the pointer is to a handle; the flags are those of an event with a time
        self.done("an event", unsafe { sys::cuEventCreate(&mut event.0, 0) })?;
        // SAFETY: both are of this context
        self.done("an event", unsafe { sys::cuEventRecord(event.0, self.stream) })?;
        Ok(event)
    }

    pub(super) fn reach(&self, event: &Event) -> Result<()> {
        self.enter()?;
        // SAFETY: the event lives
        self.done("an event", unsafe { sys::cuEventSynchronize(event.0) })
    }

    /// Nanoseconds between two events that were reached.
    pub(super) fn between(&self, begin: &Event, end: &Event) -> Result<u64> {
        self.enter()?;
        let mut ms = 0f32;
        // SAFETY: both events live, and the pointer is to a float
        self.done("a time", unsafe { sys::cuEventElapsedTime(&mut ms, begin.0, end.0) })?;
        Ok((f64::from(ms) * 1e6).max(0.0) as u64)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.is_null() {
            return;
        }
        // What is lost is released as well, so results do not matter
        // SAFETY: nothing uses the stream after this, the context was retained once, and a pool keeps what is in use
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            if !self.stream.is_null() {
                let _ = sys::cuStreamSynchronize(self.stream);
                let _ = sys::cuStreamDestroy_v2(self.stream);
            }
            if !self.pool.is_null() {
                let _ = sys::cuMemPoolTrimTo(self.pool, 0);
            }
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.gpu);
        }
    }
}

/// A recorded position in a stream.
pub(super) struct Event(sys::CUevent);
// SAFETY: see `Stream`
unsafe impl Send for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event has no other owner
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Pinned host memory. Whoever drops it must have waited for the copies that use it.
pub(super) struct Pinned {
    at: *mut c_void,
    bytes: usize,
}
// SAFETY: it is plain memory
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first `bytes` bytes, after the copy that filled them.
    pub(super) fn to_vec(&self, bytes: usize) -> Vec<u8> {
        // SAFETY: the memory is of these bytes, which were zeros or were written by the copy
        unsafe { std::slice::from_raw_parts(self.at.cast::<u8>(), bytes.min(self.bytes)) }.to_vec()
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it is memory of `pinned`
        let _ = unsafe { sys::cuMemFreeHost(self.at) };
    }
}
