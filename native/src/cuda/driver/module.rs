//! Kernels in the CUDA driver: PTX to machine code, machine code to modules, and launches.

use super::{Stream, error, is_sticky};
use cudarc::driver::sys::{self, CUjit_option_enum as Jit, CUresult};
use gradloom_core::Result;
use std::ffi::{CStr, CString, c_void};
use std::ptr;

/// The most bytes of the compiler's error log.
const LOG: usize = 8192;

/// A compilation in progress.
struct Link(sys::CUlinkState);

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the link has no other owner, and its result was copied
        let _ = unsafe { sys::cuLinkDestroy(self.0) };
    }
}

impl Stream {
    /// Compiles a PTX module to machine code. The error contains the compiler's messages.
    pub(in crate::cuda) fn assemble(&self, ptx: &str) -> Result<Vec<u8>> {
        self.enter()?;
        let text = CString::new(ptx).map_err(|_| error("a kernel has a zero in its text"))?;
        let mut log = vec![0u8; LOG];
        let mut names = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), (LOG - 1) as *mut c_void];
        let mut link = Link(ptr::null_mut());
        // SAFETY: there are as many values as names, and the log is as long as it says and lives as long as the link
        let made = unsafe { sys::cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &mut link.0) };
        self.done("machine code", made)?;
        let (data, len) = (text.as_ptr().cast_mut().cast(), text.as_bytes_with_nul().len());
        let (mut code, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the text ends with a zero, which its length counts, is not written to, and has no name and no options of its own
        let mut made = unsafe {
            let ptx = sys::CUjitInputType_enum::CU_JIT_INPUT_PTX;
            sys::cuLinkAddData_v2(link.0, ptx, data, len, ptr::null(), 0, ptr::null_mut(), ptr::null_mut())
        };
        if made == CUresult::CUDA_SUCCESS {
            // SAFETY: the pointers are to an address and a length
            made = unsafe { sys::cuLinkComplete(link.0, &mut code, &mut bytes) };
        }
        if made == CUresult::CUDA_SUCCESS {
            // SAFETY: what was made is the link's, which lives
            return Ok(unsafe { std::slice::from_raw_parts(code.cast::<u8>(), bytes) }.to_vec());
        }
        // The driver writes the log until the link is destroyed
        drop(link);
        if is_sticky(made) {
            self.done("machine code", made)?;
        }
        let said =
            CStr::from_bytes_until_nul(&log).map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned());
        Err(error(format!("the driver's compiler refuses a module: {made:?}\n{}", said.trim())))
    }

    /// Loads machine code that [`Stream::assemble`] made with this driver for this GPU.
    pub(in crate::cuda) fn module(&self, code: &[u8]) -> Result<Module> {
        self.enter()?;
        // The call takes no length: the code itself states its length, and a zero after it marks the end as well
        let code = [code, &[0]].concat();
        let mut module = Module(ptr::null_mut());
        let (names, values) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the code is what the driver made, and there are no options
        self.done("a module", unsafe {
            sys::cuModuleLoadDataEx(&mut module.0, code.as_ptr().cast(), 0, names, values)
        })?;
        Ok(module)
    }

    /// A kernel of a module. Its launches have `shared` bytes of workgroup memory.
    pub(in crate::cuda) fn function(&self, module: &Module, name: &str, shared: usize) -> Result<Function> {
        self.enter()?;
        let text = CString::new(name).map_err(|_| error("a kernel has a zero in its name"))?;
        let mut function = Function { handle: ptr::null_mut(), shared: shared as u32 };
        // SAFETY: the module lives, and the name ends with a zero
        self.done(name, unsafe { sys::cuModuleGetFunction(&mut function.handle, module.0, text.as_ptr()) })?;
        if shared > 0 {
            let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is the module's
            self.done(name, unsafe { sys::cuFuncSetAttribute(function.handle, most, shared as i32) })?;
        }
        Ok(function)
    }

    /// Starts a kernel with these pointers, followed by these scalars of four bytes each.
    ///
    /// # Safety
    /// The function takes exactly these, its module lives, and it stays inside the memory that the pointers are to.
    pub(in crate::cuda) unsafe fn launch(
        &self,
        f: &Function,
        [gx, gy, gz]: [u32; 3],
        [bx, by, bz]: [u32; 3],
        pointers: &[u64],
        scalars: &[u32],
    ) -> Result<()> {
        self.enter()?;
        let mut all = parameters(pointers, scalars);
        // SAFETY: the caller says that they are the parameters, which the driver copies
        let made = unsafe {
            let (all, none) = (all.as_mut_ptr(), ptr::null_mut());
            sys::cuLaunchKernel(f.handle, gx, gy, gz, bx, by, bz, f.shared, self.stream, all, none)
        };
        self.done("a launch", made)
    }
}

/// Pointers to a kernel's parameters; the driver only reads them.
pub(super) fn parameters(pointers: &[u64], scalars: &[u32]) -> Vec<*mut c_void> {
    let pointers = pointers.iter().map(|p| ptr::from_ref(p).cast_mut().cast());
    pointers.chain(scalars.iter().map(|s| ptr::from_ref(s).cast_mut().cast())).collect()
}

/// A loaded module of kernels.
pub(in crate::cuda) struct Module(sys::CUmodule);
// SAFETY: see `Stream`
unsafe impl Send for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: whoever had its functions has given them up, and the context is retained: devices drop kernels before their stream
        let _ = unsafe { sys::cuModuleUnload(self.0) };
    }
}

/// A kernel of a module.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::cuda) struct Function {
    pub(super) handle: sys::CUfunction,
    /// Bytes of workgroup memory of a launch.
    pub(super) shared: u32,
}
// SAFETY: see `Stream`
unsafe impl Send for Function {}
