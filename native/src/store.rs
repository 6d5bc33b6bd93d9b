//! A folder of compiled code. What is read from it is run by this process, so only files that this user's
//! processes wrote are read.
//!
//! The folder is opened through a handle, after a walk that refuses any folder which other users could replace. Entries
//! must be regular files of this user with a single name. Each begins with a digest of its name and bytes under a key
//! that lies beside the folder, not in it, so that entries of a folder which was copied or unpacked are not accepted
//! either. Where any of this does not hold there is no cache, or no entry, and kernels are compiled as on a first
//! start. Processes share the folder: an entry is written under another name and then renamed, so that readers see
//! either all of it or nothing.
//! Never here: what entries mean. The core checks their contents again.

use crate::handles::{Dir, Entry, is_ours};
use crate::siphash::{Key, siphash};
use std::ffi::OsStr;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// When an entry is read, its time of modification is updated if it is older than this.
const TOUCH: Duration = Duration::from_secs(6 * 3600);
/// Unfinished files older than this are leftovers of a crash.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The largest size of an entry in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// The file with the number of bytes that were written since old entries were last removed. No entry has this name.
const WRITTEN_BYTES_FILE: &str = "written";
/// The length in bytes of the digest at the beginning of an entry.
const DIGEST: usize = 16;
/// How often to wait (2 ms each) for another process that holds the lock of the key file.
const KEY_TRIES: u32 = 500;

/// A folder of entries, with a thread that writes them.
pub(crate) struct Store {
    folder: Arc<Folder>,
    limit: u64,
    writer: Mutex<Option<(Sender<(u128, Vec<u8>)>, JoinHandle<()>)>>,
}

/// What readers and the writing thread share.
struct Folder {
    path: PathBuf,
    dir: Dir,
    key: Key,
}

impl Store {
    /// Opens the store of a folder; a process has one store per folder. The error says what is not safe, or
    /// what failed.
    pub(crate) fn open(folder: &Path, limit: u64) -> Result<Arc<Store>, String> {
        static OPEN: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());
        let failed = |e: io::Error| format!("no cache of compiled code in {}: {e}", folder.display());
        let (dir, parent) = Dir::open_ours(folder).map_err(failed)?;
        let mut open = lock(&OPEN);
        open.retain(|s| s.strong_count() > 0);
        let same = |s: &Arc<Store>| s.limit == limit && s.folder.is(&dir);
        if let Some(store) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(store);
        }
        let key = key(&dir, parent.as_ref()).map_err(failed)?;
        let folder = Arc::new(Folder { path: folder.to_path_buf(), dir, key });
        let store = Arc::new(Store { folder, limit, writer: Mutex::new(None) });
        open.push(Arc::downgrade(&store));
        Ok(store)
    }

    /// The path of the folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// The entry with this key, if this user has written one.
    pub(crate) fn load(&self, key: u128) -> Option<Vec<u8>> {
        self.folder.load(key)
    }

    /// Passes an entry to the writing thread.
    pub(crate) fn save(&self, key: u128, bytes: Vec<u8>) {
        if bytes.len() as u64 > MOST_BYTES.min(self.limit).saturating_sub(DIGEST as u64) {
            return;
        }
        let mut writer = lock(&self.writer);
        if writer.is_none() {
            let (send, receive) = channel();
            let (folder, limit) = (self.folder.clone(), self.limit);
            let work = move || folder.write_all(receive, limit);
            let Ok(thread) = std::thread::Builder::new().name("gradloom-cache".into()).spawn(work) else { return };
            *writer = Some((send, thread));
        }
        if let Some((send, _)) = &*writer {
            let _ = send.send((key, bytes));
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some((send, thread)) = lock(&self.writer).take() {
            drop(send);
            let _ = thread.join();
        }
    }
}

impl Folder {
    #[cfg(unix)]
    fn is(&self, dir: &Dir) -> bool {
        use std::os::unix::fs::MetadataExt;
        let number = |d: &Dir| d.info().ok().map(|i| (i.dev(), i.ino()));
        number(&self.dir).is_some_and(|n| number(dir) == Some(n))
    }

    #[cfg(not(unix))]
    fn is(&self, dir: &Dir) -> bool {
        self.dir.path() == dir.path()
    }

    fn digest(&self, key: u128, bytes: &[u8]) -> [u8; DIGEST] {
        // Each name has a key of its own, so that a renamed entry is not valid
        siphash(&siphash(&self.key, &key.to_le_bytes()), bytes)
    }

    fn load(&self, key: u128) -> Option<Vec<u8>> {
        let file = self.dir.file(OsStr::new(&name(key))).ok()?;
        let info = file.metadata().ok()?;
        if !is_ours(&info, 0o022) || !(DIGEST as u64..=MOST_BYTES).contains(&info.len()) {
            return None;
        }
        let mut digest = [0; DIGEST];
        (&file).read_exact(&mut digest).ok()?;
        let mut bytes = Vec::with_capacity(info.len() as usize - DIGEST);
        (&file).take(info.len() - DIGEST as u64).read_to_end(&mut bytes).ok()?;
        if self.digest(key, &bytes) != digest {
            return None;
        }
        let now = SystemTime::now();
        let age = info.modified().ok().and_then(|at| now.duration_since(at).ok());
        if age.is_none_or(|age| age > TOUCH) {
            let _ = file.set_modified(now);
        }
        Some(bytes)
    }

    /// Writes entries as they come. Removes old ones whenever 1/8 of the limit has been written, by this process and
    /// earlier ones; not more often, because that lists the folder, which may have many thousands of entries.
    fn write_all(&self, entries: Receiver<(u128, Vec<u8>)>, limit: u64) {
        let much = limit / 8;
        let mut written = self.written_bytes().unwrap_or(u64::MAX);
        for (key, bytes) in entries {
            written = written.saturating_add(bytes.len() as u64);
            self.write(key, &bytes);
            if written > much {
                self.sweep(limit);
                written = 0;
            }
        }
        // If two processes end at the same time, the bytes of one are lost from this count, and old entries
        // are removed a little later
        self.put(WRITTEN_BYTES_FILE, &[&written.to_le_bytes()]);
    }

    /// The number of bytes written since old entries were last removed, if known.
    fn written_bytes(&self) -> Option<u64> {
        let file = self.dir.file(OsStr::new(WRITTEN_BYTES_FILE)).ok()?;
        let mut bytes = Vec::new();
        file.metadata().ok().filter(Metadata::is_file)?;
        file.take(9).read_to_end(&mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn write(&self, key: u128, bytes: &[u8]) {
        self.put(&name(key), &[&self.digest(key, bytes), bytes]);
    }

    /// Writes a whole file so that readers see either all of it or nothing.
    fn put(&self, name: &str, parts: &[&[u8]]) {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let unfinished = format!("tmp-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let unfinished = OsStr::new(&unfinished);
        let write = |mut file: File| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            self.dir.rename(unfinished, OsStr::new(name))
        };
        if self.dir.create(unfinished).and_then(write).is_err() {
            let _ = self.dir.remove(unfinished);
        }
    }

    /// Removes leftovers of crashes, and if the limit is exceeded the least recently used entries, until
    /// three quarters of it are left.
    fn sweep(&self, limit: u64) {
        let now = SystemTime::now();
        let (mut files, mut total) = (Vec::new(), 0);
        for Entry { name, bytes, modified } in self.dir.entries(&self.path) {
            if name.starts_with("tmp-") {
                if now.duration_since(modified).is_ok_and(|age| age > ABANDONED) {
                    let _ = self.dir.remove(OsStr::new(&name));
                }
            } else if name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit()) {
                total += bytes;
                files.push((modified, bytes, name));
            }
        }
        if total <= limit {
            return;
        }
        files.sort();
        for (_, bytes, name) in files {
            if total <= limit / 4 * 3 {
                return;
            }
            if self.dir.remove(OsStr::new(&name)).is_ok() {
                total -= bytes;
            }
        }
    }
}

fn name(key: u128) -> String {
    format!("{key:032x}")
}

/// The user's key: in a file beside the folder or, where this user may not write there, in the folder.
fn key(dir: &Dir, parent: Option<&Dir>) -> io::Result<Key> {
    let beside = parent.map(|p| p.file_or_create(OsStr::new(KEY_NAME)));
    match beside {
        Some(Ok(file)) => read_key(file),
        Some(Err(e)) if !matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => Err(e),
        _ => read_key(dir.file_or_create(OsStr::new(KEY_NAME))?),
    }
}

/// The name of the file with the key.
pub(crate) const KEY_NAME: &str = ".gradloom-key";

/// Reads the key; writes a new one if the file is new or damaged. A lock serialises processes that start at
/// the same time.
fn read_key(mut file: File) -> io::Result<Key> {
    if !is_ours(&file.metadata()?, 0o077) {
        return Err(io::Error::other(format!("the file {KEY_NAME} may be another user's")));
    }
    for tries in 0.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if tries < KEY_TRIES => std::thread::sleep(Duration::from_millis(2)),
            Err(TryLockError::WouldBlock) => return Err(io::Error::other(format!("the file {KEY_NAME} stays locked"))),
            // A file system without locks
            Err(TryLockError::Error(_)) => break,
        }
    }
    let mut bytes = Vec::new();
    (&file).take(DIGEST as u64 + 1).read_to_end(&mut bytes)?;
    if let Ok(key) = bytes.try_into() {
        return Ok(key);
    }
    let key = random()?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&key)?;
    Ok(key)
}

#[cfg(unix)]
fn random() -> io::Result<Key> {
    let mut key = Key::default();
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

#[cfg(not(unix))]
fn random() -> io::Result<Key> {
    use std::hash::{BuildHasher, RandomState};
    let seed = RandomState::new();
    let mut key = Key::default();
    key.chunks_exact_mut(8).enumerate().for_each(|(i, half)| half.copy_from_slice(&seed.hash_one(i).to_le_bytes()));
    Ok(key)
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1 << 20;

    /// a folder of this user for the cache and its key
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("gradloom-test-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            #[cfg(unix)]
            unix::mode(&path, 0o700);
            Scratch(path)
        }

        fn cache(&self) -> PathBuf {
            self.0.join("cache")
        }

        fn entry(&self, key: u128) -> PathBuf {
            self.cache().join(name(key))
        }

        /// a store with entry 1 on disk
        fn filled(name: &str) -> Scratch {
            let dir = Scratch::new(name);
            Store::open(&dir.cache(), LIMIT).unwrap().save(1, vec![4, 5, 6]);
            assert_eq!(dir.load(), Some(vec![4, 5, 6]));
            dir
        }

        fn load(&self) -> Option<Vec<u8>> {
            Store::open(&self.cache(), LIMIT).unwrap().load(1)
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
        let s = Store::open(&dir.cache(), LIMIT).unwrap();
        s.save(1, vec![1, 2, 3]);
        s.save(1, vec![4]);
        drop(s);
        let s = Store::open(&dir.cache(), LIMIT).unwrap();
        assert_eq!((s.load(1), s.load(2)), (Some(vec![4]), None));
        let mut names: Vec<_> = std::fs::read_dir(dir.cache()).unwrap().flatten().map(|e| e.file_name()).collect();
        names.sort();
        assert_eq!(names, [name(1).as_str(), WRITTEN_BYTES_FILE], "nothing unfinished is left");
        let key = std::fs::metadata(dir.0.join(KEY_NAME)).unwrap();
        assert_eq!(key.len(), 16);
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&key) & 0o777, 0o600);
    }

    #[test]
    fn a_process_has_one_store_of_a_folder() {
        let dir = Scratch::new("one");
        let s = Store::open(&dir.cache(), LIMIT).unwrap();
        assert!(Arc::ptr_eq(&s, &Store::open(&dir.cache().join("../cache"), LIMIT).unwrap()));
        assert!(!Arc::ptr_eq(&s, &Store::open(&dir.0.join("other"), LIMIT).unwrap()));
    }

    #[test]
    fn the_limit_drops_what_was_used_longest_ago() {
        let dir = Scratch::new("limit");
        let s = Store::open(&dir.cache(), 1000).unwrap();
        (0..8).for_each(|i| s.save(i, vec![0; 100]));
        drop(s);
        for i in 0..8u128 {
            let file = File::options().write(true).open(dir.entry(i)).unwrap();
            let age = if i < 4 { 90_000 } else { 80_000 };
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        let s = Store::open(&dir.cache(), 1000).unwrap();
        assert!(s.load(0).is_some(), "read, so used now");
        (8..11).for_each(|i| s.save(i, vec![0; 100]));
        drop(s);
        let s = Store::open(&dir.cache(), 1000).unwrap();
        let left: Vec<u128> = (0..11).filter(|&i| s.load(i).is_some()).collect();
        assert_eq!(
            left,
            [0, 4, 5, 6, 7, 8, 9, 10],
            "three were used longest ago, and room is made as soon as entry 8 is written"
        );
    }

    #[test]
    fn what_a_crash_left_goes_in_time() {
        let dir = Scratch::filled("crash");
        for (name, age) in [("tmp-1-1", 4000), ("tmp-1-2", 10)] {
            let file = File::create(dir.cache().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        let left = || ["tmp-1-1", "tmp-1-2"].map(|name| dir.cache().join(name).exists());
        let save = |key, bytes| Store::open(&dir.cache(), LIMIT).unwrap().save(key, vec![1; bytes]);
        save(2, 1);
        assert_eq!(left(), [true, true], "the folder is gone through for a single byte");
        // a single process does not write much, all of them together do
        (3..6).for_each(|key| save(key, LIMIT as usize / 16));
        assert_eq!(left(), [false, true]);
    }

    #[test]
    fn a_spoilt_tally_makes_room_at_once() {
        for spoilt in [&b""[..], &[0; 9], &u64::MAX.to_le_bytes()] {
            let dir = Scratch::filled(&format!("tally-{}", spoilt.len()));
            let (tally, unfinished) = (dir.cache().join(WRITTEN_BYTES_FILE), dir.cache().join("tmp-1-1"));
            assert_eq!(std::fs::read(&tally).unwrap(), 0u64.to_le_bytes());
            std::fs::write(&tally, spoilt).unwrap();
            let file = File::create(&unfinished).unwrap();
            file.set_modified(SystemTime::now() - 2 * ABANDONED).unwrap();
            drop(file);
            Store::open(&dir.cache(), LIMIT).unwrap().save(2, vec![1]);
            assert!(!unfinished.exists(), "{spoilt:?}");
            assert_eq!(std::fs::read(&tally).unwrap(), 0u64.to_le_bytes(), "{spoilt:?}");
        }
    }

    #[test]
    fn entries_without_our_key_are_none() {
        // written under another key, as in a folder that was copied from another machine
        let (ours, theirs) = (Scratch::filled("ours"), Scratch::filled("theirs"));
        std::fs::copy(theirs.entry(1), ours.entry(1)).unwrap();
        assert_eq!(ours.load(), None);
        // every byte counts
        let dir = Scratch::filled("bytes");
        let bytes = std::fs::read(dir.entry(1)).unwrap();
        for i in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[i] ^= 1;
            std::fs::write(dir.entry(1), changed).unwrap();
            assert_eq!(dir.load(), None, "byte {i}");
        }
        std::fs::write(dir.entry(1), bytes).unwrap();
        assert!(dir.load().is_some());
    }

    /// What depends on owners, permissions and links.
    #[cfg(unix)]
    mod unix {
        use super::*;
        use std::fs::{Permissions, hard_link, metadata, set_permissions};
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

        /// the id of another user
        const OTHER: u32 = 12_345;

        pub(super) fn mode(path: &Path, mode: u32) {
            set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }

        /// gives a file to another user; false, after printing the reason, where that is not allowed
        fn give_away(path: &Path) -> bool {
            let given = chown(path, Some(OTHER), Some(OTHER));
            if let Err(e) = &given {
                eprintln!("not tried: {} cannot be given to another user ({e}); root can", path.display());
            }
            given.is_ok()
        }

        fn refusal(folder: &Path) -> String {
            Store::open(folder, LIMIT).map(|_| ()).expect_err("a folder that is not safe")
        }

        #[test]
        fn folders_that_others_could_exchange_are_refused() {
            let dir = Scratch::new("folders");
            let (parent, cache) = (dir.0.join("parent"), dir.0.join("parent/deep/cache"));
            assert!(Store::open(&cache, LIMIT).is_ok());
            for (changed, bits, safe) in [
                (&cache, 0o777, false),
                (&cache, 0o720, false),
                (&cache, 0o1777, false),
                (&cache, 0o755, true),
                (&parent, 0o777, false),
                (&parent, 0o702, false),
                (&parent, 0o1777, true),
            ] {
                let group_is_ours = metadata(changed).unwrap().gid() == metadata(changed).unwrap().uid();
                mode(changed, bits);
                let safe = safe || bits == 0o720 && group_is_ours;
                assert_eq!(Store::open(&cache, LIMIT).is_ok(), safe, "{} with {bits:o}", changed.display());
                mode(changed, 0o700);
            }
            assert!(refusal_says(&parent, &cache, "other users may write"));
            for path in [&cache, &parent] {
                if give_away(path) {
                    assert!(refusal(&cache).contains("other user"), "{}", refusal(&cache));
                    chown(path, Some(metadata(&dir.0).unwrap().uid()), None).unwrap();
                    assert!(Store::open(&cache, LIMIT).is_ok());
                }
            }
        }

        fn refusal_says(open: &Path, folder: &Path, what: &str) -> bool {
            mode(open, 0o777);
            let says = refusal(folder).contains(what);
            mode(open, 0o700);
            says
        }

        #[test]
        fn links_on_the_way_must_be_ours() {
            let dir = Scratch::filled("links");
            let (link, circle) = (dir.0.join("link"), dir.0.join("circle"));
            symlink(dir.cache(), &link).unwrap();
            assert_eq!(Store::open(&link, LIMIT).unwrap().load(1), Some(vec![4, 5, 6]));
            symlink("circle", &circle).unwrap();
            assert!(refusal(&circle.join("x")).contains("circle"));
            let owned = std::os::unix::fs::lchown(&link, Some(OTHER), None);
            match owned {
                Ok(()) => assert!(refusal(&link).contains("link")),
                Err(e) => eprintln!("not tried: a link of another user ({e}); root can make one"),
            }
        }

        #[test]
        fn a_folder_that_is_exchanged_is_not_read() {
            let dir = Scratch::filled("exchanged");
            let s = Store::open(&dir.cache(), LIMIT).unwrap();
            std::fs::rename(dir.cache(), dir.0.join("old")).unwrap();
            std::fs::create_dir(dir.cache()).unwrap();
            std::fs::copy(dir.0.join("old").join(name(1)), dir.entry(2)).unwrap();
            assert_eq!((s.load(1), s.load(2)), (Some(vec![4, 5, 6]), None));
            s.save(3, vec![7]);
            drop(s);
            assert!(dir.0.join("old").join(name(3)).exists() && !dir.entry(3).exists());
        }

        #[test]
        fn entries_that_are_not_ours_are_none() {
            let attacks: [(&str, fn(&Scratch)); 8] = [
                ("writable by others", |d| mode(&d.entry(1), 0o602)),
                ("hard link", |d| hard_link(d.entry(1), d.0.join("twin")).unwrap()),
                ("symbolic link", |d| {
                    std::fs::rename(d.entry(1), d.0.join("real")).unwrap();
                    symlink(d.0.join("real"), d.entry(1)).unwrap();
                }),
                ("pipe", |d| {
                    std::fs::remove_file(d.entry(1)).unwrap();
                    assert!(std::process::Command::new("mkfifo").arg(d.entry(1)).status().unwrap().success());
                }),
                ("folder", |d| {
                    std::fs::remove_file(d.entry(1)).unwrap();
                    std::fs::create_dir(d.entry(1)).unwrap();
                }),
                ("truncated", |d| File::options().write(true).open(d.entry(1)).unwrap().set_len(18).unwrap()),
                ("longer than any", |d| {
                    File::options().write(true).open(d.entry(1)).unwrap().set_len(MOST_BYTES + 1).unwrap()
                }),
                ("under another name", |d| {
                    Store::open(&d.cache(), LIMIT).unwrap().save(2, vec![9]);
                    std::fs::rename(d.entry(2), d.entry(1)).unwrap();
                }),
            ];
            for (i, (what, attack)) in attacks.iter().enumerate() {
                let dir = Scratch::filled(&format!("entry-{i}"));
                attack(&dir);
                assert_eq!(dir.load(), None, "{what}");
            }
            let dir = Scratch::filled("entry-owner");
            if give_away(&dir.entry(1)) {
                assert_eq!(dir.load(), None, "another user's");
            }
        }

        #[test]
        fn a_key_that_is_not_ours_is_not_used() {
            for (i, bytes) in [&[7; 16][..], b"", b"short", &[7; 64]].iter().enumerate() {
                let dir = Scratch::filled(&format!("key-{i}"));
                std::fs::write(dir.0.join(KEY_NAME), bytes).unwrap();
                assert_eq!(dir.load(), None, "a key of {} bytes", bytes.len());
                // afterwards there is a cache again
                Store::open(&dir.cache(), LIMIT).unwrap().save(1, vec![8]);
                assert_eq!(dir.load(), Some(vec![8]));
                assert_eq!(metadata(dir.0.join(KEY_NAME)).unwrap().len(), 16);
            }
            let dir = Scratch::filled("key-mode");
            let key = dir.0.join(KEY_NAME);
            mode(&key, 0o604);
            assert!(refusal(&dir.cache()).contains(KEY_NAME));
            mode(&key, 0o600);
            if give_away(&key) {
                assert!(refusal(&dir.cache()).contains(KEY_NAME));
            }
            std::fs::remove_file(&key).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&key).status().unwrap().success());
            assert!(refusal(&dir.cache()).contains(KEY_NAME));
        }
    }
}
