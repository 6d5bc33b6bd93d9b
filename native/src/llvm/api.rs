//! The functions of LLVM's C interface that are used, looked up in a library that is found at run time.
//!
//! Only functions that have the same signature in LLVM 15 to 22 are used: no thread-safe contexts (they changed in 21).
//! The target machine emits objects, which are given to the linker as bytes.

use gradloom_core::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The environment variable with a library to use instead of [`NAMES`].
pub const VARIABLE: &str = "GRADLOOM_LLVM";

/// The names of libraries to try, the newest first.
pub const NAMES: &[&str] = &[
    "libLLVM.so.22.1",
    "libLLVM.so.21.1",
    "libLLVM.so.20.1",
    "libLLVM.so.19.1",
    "libLLVM.so.18.1",
    "libLLVM-18.so.1",
    "libLLVM-17.so.1",
    "libLLVM-16.so.1",
    "libLLVM-15.so.1",
    "libLLVM-17.so",
    "libLLVM-16.so",
    "libLLVM-15.so",
    #[cfg(target_vendor = "apple")]
    "/opt/homebrew/opt/llvm/lib/libLLVM.dylib",
    #[cfg(target_vendor = "apple")]
    "/usr/local/opt/llvm/lib/libLLVM.dylib",
    #[cfg(target_vendor = "apple")]
    "libLLVM.dylib",
];

/// A pointer to any of LLVM's objects.
pub(super) type Ref = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal ($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// LLVM's functions. The library stays loaded until the process ends.
        pub(super) struct Api {
            /// The name of the library.
            pub(super) library: String,
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Api {
            /// # Safety
            /// The library is LLVM.
            unsafe fn of(library: &Library, name: &str) -> std::result::Result<Api, String> {
                Ok(Api {
                    library: name.to_string(),
                    $($field: {
                        // SAFETY: LLVM declares this symbol with this type, in every version we take
                        let f = unsafe {
                            library.get::<unsafe extern "C" fn($($arg),*) $(-> $ret)?>(concat!($symbol, "\0").as_bytes())
                        };
                        *f.map_err(|_| format!("has no {}", $symbol))?
                    },)*
                })
            }
        }
    };
}

functions! {
    dispose_message = "LLVMDisposeMessage" (*mut c_char);
    error_message = "LLVMGetErrorMessage" (Ref) -> *mut c_char;
    dispose_error_message = "LLVMDisposeErrorMessage" (*mut c_char);
    // modules
    new_context = "LLVMContextCreate" () -> Ref;
    dispose_context = "LLVMContextDispose" (Ref);
    new_buffer = "LLVMCreateMemoryBufferWithMemoryRangeCopy" (*const c_char, usize, *const c_char) -> Ref;
    dispose_buffer = "LLVMDisposeMemoryBuffer" (Ref);
    buffer_start = "LLVMGetBufferStart" (Ref) -> *const c_char;
    buffer_size = "LLVMGetBufferSize" (Ref) -> usize;
    parse = "LLVMParseIRInContext" (Ref, Ref, *mut Ref, *mut *mut c_char) -> c_int;
    verify = "LLVMVerifyModule" (Ref, c_uint, *mut *mut c_char) -> c_int;
    dispose_module = "LLVMDisposeModule" (Ref);
    named_function = "LLVMGetNamedFunction" (Ref, *const c_char) -> Ref;
    set_name = "LLVMSetValueName2" (Ref, *const c_char, usize);
    string_attribute = "LLVMCreateStringAttribute" (Ref, *const c_char, c_uint, *const c_char, c_uint) -> Ref;
    add_attribute = "LLVMAddAttributeAtIndex" (Ref, c_uint, Ref);
    set_triple = "LLVMSetTarget" (Ref, *const c_char);
    set_layout = "LLVMSetModuleDataLayout" (Ref, Ref);
    // the machine
    triple = "LLVMGetDefaultTargetTriple" () -> *mut c_char;
    host_cpu = "LLVMGetHostCPUName" () -> *mut c_char;
    host_features = "LLVMGetHostCPUFeatures" () -> *mut c_char;
    target_of = "LLVMGetTargetFromTriple" (*const c_char, *mut Ref, *mut *mut c_char) -> c_int;
    new_machine = "LLVMCreateTargetMachine"
        (Ref, *const c_char, *const c_char, *const c_char, c_int, c_int, c_int) -> Ref;
    dispose_machine = "LLVMDisposeTargetMachine" (Ref);
    layout_of = "LLVMCreateTargetDataLayout" (Ref) -> Ref;
    dispose_layout = "LLVMDisposeTargetData" (Ref);
    emit = "LLVMTargetMachineEmitToMemoryBuffer" (Ref, Ref, c_int, *mut *mut c_char, *mut Ref) -> c_int;
    // passes
    new_options = "LLVMCreatePassBuilderOptions" () -> Ref;
    dispose_options = "LLVMDisposePassBuilderOptions" (Ref);
    run_passes = "LLVMRunPasses" (Ref, *const c_char, Ref, Ref) -> Ref;
    // linking in memory
    new_jit = "LLVMOrcCreateLLJIT" (*mut Ref, Ref) -> Ref;
    dispose_jit = "LLVMOrcDisposeLLJIT" (Ref) -> Ref;
    main_library = "LLVMOrcLLJITGetMainJITDylib" (Ref) -> Ref;
    prefix = "LLVMOrcLLJITGetGlobalPrefix" (Ref) -> c_char;
    process_symbols = "LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess"
        (*mut Ref, c_char, *const c_void, *mut c_void) -> Ref;
    add_generator = "LLVMOrcJITDylibAddGenerator" (Ref, Ref);
    new_tracker = "LLVMOrcJITDylibCreateResourceTracker" (Ref) -> Ref;
    remove_tracker = "LLVMOrcResourceTrackerRemove" (Ref) -> Ref;
    release_tracker = "LLVMOrcReleaseResourceTracker" (Ref);
    add_object = "LLVMOrcLLJITAddObjectFileWithRT" (Ref, Ref, Ref) -> Ref;
    lookup = "LLVMOrcLLJITLookup" (Ref, *mut u64, *const c_char) -> Ref;
}

impl Api {
    /// The functions of the first library that exists and is new enough.
    pub(super) fn get() -> Result<&'static Api> {
        static API: OnceLock<std::result::Result<Api, String>> = OnceLock::new();
        API.get_or_init(|| match std::env::var(VARIABLE) {
            Ok(name) => find(&[&name]),
            Err(_) => find(NAMES),
        })
        .as_ref()
        .map_err(|what| Error::Device { device: "llvm".into(), what: what.clone() })
    }

    /// Copies and disposes of a message that LLVM has returned.
    ///
    /// # Safety
    /// `text` is null, or a string that LLVM made for its caller to dispose of.
    pub(super) unsafe fn message(&self, text: *mut c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: by contract it is a C string and ours.
        unsafe {
            let s = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.dispose_message)(text);
            s
        }
    }

    /// Converts an LLVM error to a result.
    ///
    /// # Safety
    /// `e` is null or an error that LLVM just returned.
    pub(super) unsafe fn check(&self, e: Ref) -> std::result::Result<(), String> {
        if e.is_null() {
            return Ok(());
        }
        // SAFETY: by contract; taking the message consumes the error.
        unsafe {
            let text = (self.error_message)(e);
            let s = CStr::from_ptr(text).to_string_lossy().into_owned();
            (self.dispose_error_message)(text);
            Err(s)
        }
    }
}

/// Tries libraries in order. If none is usable, the error says what was tried and why it failed.
fn find(names: &[&str]) -> std::result::Result<Api, String> {
    let mut tried = Vec::new();
    for name in names {
        // SAFETY: the names are LLVM's, or what the user says is LLVM; its initialisers only register options
        let library = match unsafe { Library::new(name) } {
            Ok(library) => library,
            Err(_) if names.len() > 1 => {
                tried.push(name.to_string());
                continue;
            }
            Err(e) => {
                tried.push(format!("{name} ({e})"));
                continue;
            }
        };
        // SAFETY: as above.
        let made = unsafe { Api::of(&library, name) }.and_then(|api| {
            // SAFETY: as above.
            unsafe { initialise(&library) }?;
            Ok(api)
        });
        match made {
            Ok(api) => {
                // LLVM registers things with the process, so it must never be unloaded
                std::mem::forget(library);
                return Ok(api);
            }
            Err(why) => tried.push(format!("{name} ({why})")),
        }
    }
    Err(format!("no LLVM that will do; tried {}. {VARIABLE} may name the library (LLVM 15 or newer)", tried.join(", ")))
}

/// LLVM's name for this processor's architecture.
const ARCH: &str = match () {
    _ if cfg!(any(target_arch = "x86_64", target_arch = "x86")) => "X86",
    _ if cfg!(target_arch = "aarch64") => "AArch64",
    _ if cfg!(target_arch = "arm") => "ARM",
    _ if cfg!(target_arch = "powerpc64") => "PowerPC",
    _ if cfg!(target_arch = "s390x") => "SystemZ",
    _ if cfg!(target_arch = "loongarch64") => "LoongArch",
    _ => "RISCV",
};

/// Registers the code generator for this processor.
///
/// # Safety
/// The library is LLVM.
unsafe fn initialise(library: &Library) -> std::result::Result<(), String> {
    // SAFETY: only looked up.
    let opaque = unsafe { library.get::<unsafe extern "C" fn()>(b"LLVMPointerTypeInContext\0") };
    opaque.map_err(|_| "is older than LLVM 15, which brought opaque pointers")?;
    for part in ["TargetInfo", "Target", "TargetMC", "AsmPrinter", "AsmParser"] {
        let symbol = format!("LLVMInitialize{ARCH}{part}\0");
        // SAFETY: these take nothing and return nothing.
        let f = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        let f = f.map_err(|_| format!("has no {}", &symbol[..symbol.len() - 1]))?;
        // SAFETY: registering twice is allowed.
        unsafe { f() };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_missing_library_is_named() {
        let e = super::find(&["libLLVM-of-nowhere.so.1", "libc.so.6"]).map(|a| a.library).unwrap_err();
        assert!(e.contains("libLLVM-of-nowhere.so.1") && e.contains("libc.so.6 (has no LLVM"), "{e}");
    }
}
