//! Compiled plans and kernels on disk, shared by all processes of a user, and threads to compile on: the [`Host`] of
//! native engines.
//!
//! One file an entry, written under another name and renamed, so that readers see all of it or nothing; the core checks
//! what it reads. Failing to read or write is never an error: the entry is made again. Files unused for longest go first
//! when the folder outgrows its limit.

use gradloom_core::engine::Host;
use gradloom_core::engine::cache::Kind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// Environment: where the cache is; `off` for none.
pub const FOLDER_VARIABLE: &str = "GRADLOOM_CACHE";
/// Bytes of all entries, unless told otherwise.
pub const LIMIT: u64 = 256 << 20;

/// Entries read are marked as used at most this often.
const TOUCH: Duration = Duration::from_secs(6 * 3600);
/// Unfinished files older than this are left over from a crash.
const ABANDONED: Duration = Duration::from_secs(3600);
/// Kernels worth starting a thread for.
const JOBS_PER_THREAD: usize = 3;
/// Compiling walks deep expressions.
const STACK: usize = 8 << 20;

/// Threads and a cache for an engine.
pub struct NativeHost {
    threads: usize,
    store: Option<Store>,
}

impl NativeHost {
    /// As the environment says: the user's cache folder, unless it is switched off, and a thread per core.
    pub fn new() -> NativeHost {
        NativeHost { threads: cores(), store: default_folder().and_then(|f| Store::open(&f, LIMIT)) }
    }

    /// Without a cache.
    pub fn without_cache() -> NativeHost {
        NativeHost { threads: cores(), store: None }
    }

    /// With a cache in this folder, of so many bytes.
    pub fn with_cache(folder: &Path, limit: u64) -> NativeHost {
        NativeHost { threads: cores(), store: Store::open(folder, limit) }
    }

    /// Compiles on so many threads.
    pub fn threads(mut self, threads: usize) -> NativeHost {
        self.threads = threads.max(1);
        self
    }

    /// Where the cache is, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.store.as_ref().map(|s| s.folder.as_path())
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
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    return;
                }
                job(i);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // no thread, no harm: the others take its share
                let _ = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            }
            work();
        });
    }

    fn load(&mut self, _kind: Kind, key: u128) -> Option<Vec<u8>> {
        self.store.as_ref()?.load(key)
    }

    fn save(&mut self, _kind: Kind, key: u128, bytes: Vec<u8>) {
        if let Some(store) = &mut self.store {
            store.save(key, bytes);
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get()).min(32)
}

/// The user's folder for it: what [`FOLDER_VARIABLE`] says, else the platform's.
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

/// A folder of entries.
pub(crate) struct Store {
    folder: PathBuf,
    limit: u64,
    writer: Option<(Sender<(PathBuf, Vec<u8>)>, JoinHandle<()>)>,
}

impl Store {
    /// `None` if the folder cannot be made, or if somebody else could have put code into it.
    pub(crate) fn open(folder: &Path, limit: u64) -> Option<Store> {
        let mut make = std::fs::DirBuilder::new();
        make.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700);
        make.create(folder).ok()?;
        let folder = folder.canonicalize().ok()?;
        let info = std::fs::metadata(&folder).ok()?;
        (info.is_dir() && is_ours(&info)).then_some(Store { folder, limit, writer: None })
    }

    fn path(&self, key: u128) -> PathBuf {
        self.folder.join(format!("{key:032x}"))
    }

    pub(crate) fn load(&self, key: u128) -> Option<Vec<u8>> {
        use std::io::Read;
        let mut file = std::fs::File::open(self.path(key)).ok()?;
        let info = file.metadata().ok()?;
        let mut bytes = Vec::with_capacity(info.len() as usize);
        file.read_to_end(&mut bytes).ok()?;
        let now = SystemTime::now();
        let age = info.modified().ok().and_then(|at| now.duration_since(at).ok());
        if age.is_none_or(|age| age > TOUCH) {
            let _ = file.set_modified(now);
        }
        Some(bytes)
    }

    /// Hands the entry to the writing thread.
    pub(crate) fn save(&mut self, key: u128, bytes: Vec<u8>) {
        let path = self.path(key);
        if self.writer.is_none() {
            let (send, receive) = channel::<(PathBuf, Vec<u8>)>();
            let (folder, limit) = (self.folder.clone(), self.limit);
            let work = move || {
                for (path, bytes) in receive {
                    write(&folder, &path, &bytes);
                }
                sweep(&folder, limit);
            };
            let Ok(thread) = std::thread::Builder::new().name("gradloom-cache".into()).spawn(work) else { return };
            self.writer = Some((send, thread));
        }
        if let Some((send, _)) = &self.writer {
            let _ = send.send((path, bytes));
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some((send, thread)) = self.writer.take() {
            drop(send);
            let _ = thread.join();
        }
    }
}

/// Machine code is loaded from there: nobody else may be able to write it.
#[cfg(unix)]
fn is_ours(info: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    // SAFETY: the call has no arguments and cannot fail
    let me = unsafe { libc::geteuid() };
    info.uid() == me && info.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn is_ours(_info: &std::fs::Metadata) -> bool {
    true
}

fn write(folder: &Path, path: &Path, bytes: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let unfinished = folder.join(format!("tmp-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    if std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, path)).is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
}

/// Removes what was not used for longest until three quarters of the limit are left, and what crashes left behind.
fn sweep(folder: &Path, limit: u64) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let now = SystemTime::now();
    let (mut files, mut total) = (Vec::new(), 0);
    for entry in entries.flatten() {
        let Ok(info) = entry.metadata() else { continue };
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|_| info.is_file()) else { continue };
        let used = info.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if name.starts_with("tmp-") {
            if now.duration_since(used).is_ok_and(|age| age > ABANDONED) {
                let _ = std::fs::remove_file(entry.path());
            }
        } else if name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit()) {
            total += info.len();
            files.push((used, info.len(), entry.path()));
        }
    }
    if total <= limit {
        return;
    }
    files.sort();
    for (_, len, path) in files {
        if total <= limit / 4 * 3 {
            return;
        }
        if std::fs::remove_file(path).is_ok() {
            total -= len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("gradloom-test-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn entries_survive_the_store() {
        let dir = Scratch::new("survive");
        let mut s = Store::open(&dir.0, LIMIT).unwrap();
        s.save(1, vec![1, 2, 3]);
        s.save(1, vec![4]);
        drop(s);
        let s = Store::open(&dir.0, LIMIT).unwrap();
        assert_eq!((s.load(1), s.load(2)), (Some(vec![4]), None));
        let names: Vec<_> = std::fs::read_dir(&dir.0).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn the_limit_drops_what_was_used_longest_ago() {
        let dir = Scratch::new("limit");
        let mut s = Store::open(&dir.0, 1000).unwrap();
        (0..8).for_each(|i| s.save(i, vec![0; 100]));
        drop(s);
        for i in 0..8u128 {
            let file = std::fs::File::options().write(true).open(dir.0.join(format!("{i:032x}"))).unwrap();
            let age = if i < 4 { 90_000 } else { 80_000 };
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        let mut s = Store::open(&dir.0, 1000).unwrap();
        assert!(s.load(0).is_some(), "read, so used now");
        (8..11).for_each(|i| s.save(i, vec![0; 100]));
        drop(s);
        let s = Store::open(&dir.0, 1000).unwrap();
        let left: Vec<u128> = (0..11).filter(|&i| s.load(i).is_some()).collect();
        assert_eq!(left, [0, 5, 6, 7, 8, 9, 10]);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Scratch::new("shared");
        std::fs::create_dir_all(&dir.0).unwrap();
        std::fs::set_permissions(&dir.0, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Store::open(&dir.0, LIMIT).is_none());
    }

    #[test]
    fn every_job_runs_once() {
        let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        let host = NativeHost::without_cache().threads(4);
        host.each(100, &|i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
    }
}
