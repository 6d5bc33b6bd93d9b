//! Compiles LLVM IR to an object file, and links that into this process.

use super::api::{Api, Ref};
use gradloom_core::{Error, Result};
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::Arc;

/// `LLVMAttributeFunctionIndex`: marks an attribute of the function itself.
const FUNCTION: u32 = u32::MAX;
/// Values of LLVM's enumerations.
const LEVEL_DEFAULT: i32 = 2;
const RELOC_PIC: i32 = 2;
const CODE_MODEL_DEFAULT: i32 = 0;
const OBJECT_FILE: i32 = 1;
const RETURN_STATUS: u32 = 2;

pub(super) fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "llvm".into(), what: what.into() }
}

/// A description of this processor for LLVM.
#[derive(Clone)]
pub(super) struct Host {
    triple: CString,
    cpu: CString,
    features: CString,
}

impl Host {
    pub(super) fn new(api: &Api) -> Host {
        let owned = |s: String| CString::new(s).unwrap_or_default();
        // SAFETY: each returns a string that is ours.
        unsafe {
            Host {
                triple: owned(api.message((api.triple)())),
                cpu: owned(api.message((api.host_cpu)())),
                features: owned(api.message((api.host_features)())),
            }
        }
    }
}

/// An LLVM object that is disposed of by this function on drop.
struct Owned(Ref, unsafe extern "C" fn(Ref));

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made with an object that this function disposes of, and that nothing else does.
        unsafe { (self.1)(self.0) }
    }
}

/// Compiles the text of a module to an object file; the function `name` is renamed to `symbol`.
pub(super) fn compile(api: &Api, host: &Host, text: &str, name: &str, symbol: &str) -> Result<Vec<u8>> {
    let bad = |what: &str, why: String| error(format!("{name}: {what}: {why}"));
    let c = |s: &str| CString::new(s).map_err(|_| error(format!("{name}: a zero byte in the text")));
    // SAFETY: the objects are used as LLVM's C interface says: the parser takes the buffer whatever happens, a module must go
    // before its context (locals are dropped in reverse order), and strings are terminated.
    unsafe {
        let context = Owned((api.new_context)(), api.dispose_context);
        let source = (api.new_buffer)(text.as_ptr().cast(), text.len(), c"kernel".as_ptr());
        let (mut module, mut message) = (null_mut(), null_mut());
        if (api.parse)(context.0, source, &mut module, &mut message) != 0 {
            return Err(bad("the IR does not parse", api.message(message)));
        }
        let module = Owned(module, api.dispose_module);
        if (api.verify)(module.0, RETURN_STATUS, &mut message) != 0 {
            return Err(bad("the IR is invalid", api.message(message)));
        }
        api.message(message);
        let f = (api.named_function)(module.0, c(name)?.as_ptr());
        if f.is_null() {
            return Err(bad("the IR", "has no function of this name".into()));
        }
        (api.set_name)(f, symbol.as_ptr().cast(), symbol.len());
        for (key, value) in [("target-cpu", &host.cpu), ("target-features", &host.features)] {
            let n = value.as_bytes().len() as u32;
            let a = (api.string_attribute)(context.0, key.as_ptr().cast(), key.len() as u32, value.as_ptr(), n);
            (api.add_attribute)(f, FUNCTION, a);
        }
        let machine = machine(api, host)?;
        let layout = Owned((api.layout_of)(machine.0), api.dispose_layout);
        (api.set_triple)(module.0, host.triple.as_ptr());
        (api.set_layout)(module.0, layout.0);
        let options = Owned((api.new_options)(), api.dispose_options);
        let passes = c"default<O2>".as_ptr();
        api.check((api.run_passes)(module.0, passes, machine.0, options.0)).map_err(|e| bad("the optimiser", e))?;
        let mut object = null_mut();
        let mut message = null_mut();
        if (api.emit)(machine.0, module.0, OBJECT_FILE, &mut message, &mut object) != 0 {
            return Err(bad("the code generator", api.message(message)));
        }
        let object = Owned(object, api.dispose_buffer);
        let start = (api.buffer_start)(object.0).cast::<u8>();
        Ok(std::slice::from_raw_parts(start, (api.buffer_size)(object.0)).to_vec())
    }
}

fn machine(api: &Api, host: &Host) -> Result<Owned> {
    // SAFETY: strings are terminated, out-parameters are ours.
    unsafe {
        let (mut target, mut message) = (null_mut(), null_mut());
        if (api.target_of)(host.triple.as_ptr(), &mut target, &mut message) != 0 {
            return Err(error(format!("no code generator for this machine: {}", api.message(message))));
        }
        let m = (api.new_machine)(
            target,
            host.triple.as_ptr(),
            host.cpu.as_ptr(),
            host.features.as_ptr(),
            LEVEL_DEFAULT,
            RELOC_PIC,
            CODE_MODEL_DEFAULT,
        );
        if m.is_null() { Err(error("LLVM does not know this machine")) } else { Ok(Owned(m, api.dispose_machine)) }
    }
}

/// LLVM's JIT linker, which loads objects into executable memory.
pub(super) struct Jit {
    api: &'static Api,
    jit: Ref,
}

// SAFETY: an LLJIT locks its session around all that is called here (linking, looking up, removing), from any thread.
unsafe impl Send for Jit {}
// SAFETY: as above.
unsafe impl Sync for Jit {}

impl Jit {
    pub(super) fn new(api: &'static Api) -> Result<Arc<Jit>> {
        // SAFETY: out-parameters are ours; the generator is taken over by the library.
        unsafe {
            let mut jit = null_mut();
            api.check((api.new_jit)(&mut jit, null_mut())).map_err(error)?;
            let made = Arc::new(Jit { api, jit });
            // For memset, memcpy and whatever else the code generator may call
            let mut generator = null_mut();
            let prefix = (api.prefix)(jit);
            api.check((api.process_symbols)(&mut generator, prefix, std::ptr::null(), null_mut())).map_err(error)?;
            (api.add_generator)((api.main_library)(jit), generator);
            Ok(made)
        }
    }

    /// Links objects. Gives the owner of the code, and the addresses of the objects' symbols.
    pub(super) fn link(self: &Arc<Jit>, objects: &[(String, Vec<u8>)]) -> Result<(Linked, Vec<*const u8>)> {
        let api = self.api;
        let mut at = Vec::with_capacity(objects.len());
        // SAFETY: the linker takes the buffers; the tracker belongs to this linker, which outlives it.
        unsafe {
            let linked = Linked { jit: self.clone(), tracker: (api.new_tracker)((api.main_library)(self.jit)) };
            for (symbol, bytes) in objects {
                let name = CString::new(symbol.as_str()).unwrap_or_default();
                let object = (api.new_buffer)(bytes.as_ptr().cast(), bytes.len(), name.as_ptr());
                api.check((api.add_object)(self.jit, linked.tracker, object)).map_err(error)?;
            }
            for (symbol, _) in objects {
                let name = CString::new(symbol.as_str()).unwrap_or_default();
                let mut address = 0;
                api.check((api.lookup)(self.jit, &mut address, name.as_ptr())).map_err(error)?;
                at.push(address as usize as *const u8);
            }
            Ok((linked, at))
        }
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        // SAFETY: every tracker holds this alive, so none is left.
        let e = unsafe { (self.api.dispose_jit)(self.jit) };
        // SAFETY: the call above has just returned it. There is no caller to report it to.
        let _ = unsafe { self.api.check(e) };
    }
}

/// Linked code, which is unlinked on drop.
pub(super) struct Linked {
    jit: Arc<Jit>,
    tracker: Ref,
}

// SAFETY: a tracker is a counted handle, which is removed and released once, under the session's lock.
unsafe impl Send for Linked {}
// SAFETY: as above; shared, it is only kept.
unsafe impl Sync for Linked {}

impl Drop for Linked {
    fn drop(&mut self) {
        let api = self.jit.api;
        // SAFETY: the tracker is ours and the linker still lives; nothing runs the code any more.
        unsafe {
            let _ = api.check((api.remove_tracker)(self.tracker));
            (api.release_tracker)(self.tracker);
        }
    }
}

/// Describes the library in use and the processor that it compiles for.
pub(super) fn describe(api: &Api, host: &Host) -> String {
    let text = |s: &CStr| s.to_string_lossy().into_owned();
    format!("{} for {} ({})", api.library, text(&host.cpu), text(&host.triple))
}
