//! The [`Host`] of native engines: compiled plans and kernels on disk, shared by all processes of a user,
//! and threads to compile on.
//!
//! Each entry is a file; `store` makes sure that what is read was written by this user, and the core checks it again.
//! Failing to read or write is never an error: the entry is then made again. The least recently used files are removed
//! when the folder exceeds its limit.

use crate::debug::Debug;
use crate::store::Store;
use gradloom_core::engine::cache::Kind;
use gradloom_core::engine::{Host, Watcher};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The environment variable with the cache folder; `off` disables the cache.
pub const FOLDER_VARIABLE: &str = "GRADLOOM_CACHE";
/// The default limit of all entries together, in bytes.
pub const LIMIT: u64 = 256 << 20;

/// The number of kernels that is worth starting a thread.
const JOBS_PER_THREAD: usize = 3;
/// The stack size in bytes of compiling threads, whose recursion over expressions can be deep.
const STACK: usize = 8 << 20;

/// Threads and a cache for an engine.
pub struct NativeHost {
    threads: usize,
    store: Option<Arc<Store>>,
    refused: Option<String>,
    debug: Option<Debug>,
}

/// The number of helper threads of all hosts that are compiling, besides the threads that asked for it: in total at
/// most the number of cores.
static HELPERS: AtomicUsize = AtomicUsize::new(0);

/// Counts one of [`HELPERS`] as long as it lives.
struct Helper;

impl Helper {
    fn new() -> Option<Helper> {
        let one_more = |n: usize| (n < cores()).then_some(n + 1);
        HELPERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Helper)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NativeHost {
    /// The host that the environment describes: the user's cache folder, unless that is switched off, and a
    /// thread per core.
    pub fn new() -> NativeHost {
        default_folder().map_or_else(NativeHost::without_cache, |folder| NativeHost::with_cache(&folder, LIMIT))
    }

    /// A host without a cache.
    pub fn without_cache() -> NativeHost {
        NativeHost { threads: cores(), store: None, refused: None, debug: Debug::of_environment() }
    }

    /// A host with a cache of at most `limit` bytes in this folder. It has no cache if the folder cannot be made, or if
    /// another user could have put code into it ([`NativeHost::refused`]).
    pub fn with_cache(folder: &Path, limit: u64) -> NativeHost {
        match Store::open(folder, limit) {
            Ok(store) => NativeHost { store: Some(store), ..NativeHost::without_cache() },
            Err(why) => NativeHost { refused: Some(why), ..NativeHost::without_cache() },
        }
    }

    /// Why there is no cache although one was wanted, in one sentence.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Compiles on this many threads.
    pub fn threads(mut self, threads: usize) -> NativeHost {
        self.threads = threads.max(1);
        self
    }

    /// Shows what the engine does in this way instead of the way that the environment asks for ([`crate::debug`]).
    pub fn debug(mut self, debug: Debug) -> NativeHost {
        self.debug = Some(debug);
        self
    }

    /// The cache folder, if there is a cache.
    pub fn folder(&self) -> Option<&Path> {
        self.store.as_ref().map(|s| s.folder())
    }
}

impl Default for NativeHost {
    fn default() -> Self {
        NativeHost::new()
    }
}

impl Host for NativeHost {
    fn each(&self, n: usize, job: &(dyn Fn(usize) + Sync)) {
        let threads = self.threads.min(n.div_ceil(JOBS_PER_THREAD));
        let next = AtomicUsize::new(0);
        let panicked: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return;
                }
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(i))) {
                    // No thread starts another job
                    next.store(n, Ordering::Relaxed);
                    panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                }
            }
        };
        std::thread::scope(|scope| {
            for helper in (1..threads).map_while(|_| Helper::new()) {
                let help = move || {
                    let _helper = helper;
                    work();
                };
                // If no thread can be started, the others take its share
                let _ = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, help);
            }
            work();
        });
        if let Some(panic) = panicked.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }

    fn at_once(&self) -> usize {
        usize::MAX
    }

    fn load(&mut self, _kind: Kind, key: u128) -> Option<Vec<u8>> {
        self.store.as_ref()?.load(key)
    }

    fn save(&mut self, _kind: Kind, key: u128, bytes: Vec<u8>) {
        if let Some(store) = &self.store {
            store.save(key, bytes);
        }
    }

    fn watcher(&mut self) -> Option<Box<dyn Watcher>> {
        self.debug.take().map(|d| Box::new(d) as Box<dyn Watcher>)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).min(32)
}

/// The user's cache folder: the one that [`FOLDER_VARIABLE`] names, else the platform's.
pub fn default_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    if let Some(given) = variable(FOLDER_VARIABLE) {
        return (given != "off" && given != "0").then(|| PathBuf::from(given));
    }
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if cfg!(windows) {
        return Some(absolute("LOCALAPPDATA")?.join("gradloom").join("cache"));
    }
    if cfg!(target_vendor = "apple") {
        return Some(absolute("HOME")?.join("Library").join("Caches").join("gradloom"));
    }
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|h| h.join(".cache")))?;
    Some(base.join("gradloom"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_once() {
        let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        let host = NativeHost::without_cache().threads(4);
        host.each(100, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_panic_of_a_job_is_the_callers() {
        let host = NativeHost::without_cache().threads(4);
        let jobs = |i: usize| assert!(i != 57, "job {i} is wrong");
        let panic = catch_unwind(AssertUnwindSafe(|| host.each(100, &jobs))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("job 57 is wrong"));
    }
}
