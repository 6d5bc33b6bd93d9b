//! What the driver knows: memory, modules, events, graphs, and the work that streams have to do. One lock guards all of it.

use crate::graph::{Exec, Graph};
use crate::memory::Memory;
use crate::parse::Entry;
use crate::stream::{Event, Stream};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_uint;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

/// What a function of the driver returns.
pub(crate) type Code = c_uint;
pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_IMAGE: Code = 200;
pub(crate) const INVALID_PTX: Code = 218;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const ILLEGAL_ADDRESS: Code = 700;
pub(crate) const LAUNCH_FAILED: Code = 719;

/// All of it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) memory: Memory,
    pub(crate) modules: HashMap<usize, HashMap<String, Arc<Entry>>>,
    pub(crate) functions: HashMap<usize, Arc<Entry>>,
    /// Bytes of shared memory that a launch may give a function, where somebody has said so.
    pub(crate) allowed: HashMap<usize, usize>,
    pub(crate) events: HashMap<usize, Event>,
    pub(crate) graphs: HashMap<usize, Graph>,
    pub(crate) execs: HashMap<usize, Exec>,
    /// Machine code that is being made.
    pub(crate) links: HashMap<usize, crate::module::Link>,
    /// Lengths of the host's memory that the GPU may use, by address.
    pub(crate) pinned: BTreeMap<usize, usize>,
    pub(crate) streams: HashMap<usize, Stream>,
    handles: usize,
}

impl State {
    /// A number that nothing else has.
    pub(crate) fn handle(&mut self) -> usize {
        self.handles += 16;
        self.handles
    }
}

static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);

/// The driver's state, for one call.
pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Writes a result to where a caller wants it.
///
/// # Safety
/// `to` is null or may be written to.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> Code {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: it is not null, and the caller says the rest
    unsafe { to.write(value) };
    SUCCESS
}

/// Functions that a library exports under the driver's names.
macro_rules! driver {
    ($($name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {$(
        #[doc = "The driver's function of this name."]
        ///
        /// # Safety
        /// As the driver's documents say.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_unsafe, unused_variables, reason = "the driver's names; not all arguments matter here")]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::state::Code {
            // SAFETY: the caller's pointers are what the driver's documents say
            unsafe { $body }
        }
    )*};
}
pub(crate) use driver;
