//! Opens files and folders that somebody else may have named or made. A path is opened one component at a time, each
//! from the handle of the folder before, so that no link is followed and nobody can replace a folder in between.
//! Opening never blocks, whatever the file is. Never here: what the files mean.
//!
//! This relies on `openat` of POSIX.1-2008. Other systems have no such handles: there a path is resolved
//! first and then opened.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Component, Path};
use std::time::SystemTime;

#[cfg(not(unix))]
pub(crate) use plain::{Dir, is_ours};
#[cfg(unix)]
pub(crate) use unix::{Dir, is_ours};

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// Opens a regular file at a path that the user named, following links; a pipe or a device is an error,
/// rather than a wait.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused("it is no regular file")) }
}

/// The components of a path; an error if it leads upwards, is absolute, or has a hidden component.
fn plain_parts(location: &str) -> io::Result<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for part in Path::new(location).components() {
        match part {
            Component::Normal(name) if name.as_encoded_bytes().starts_with(b".") => {
                return Err(refused("its path has a hidden part (one that begins with a dot)"));
            }
            Component::Normal(name) => parts.push(name),
            Component::CurDir => {}
            _ => return Err(refused("its path leads out of the folder")),
        }
    }
    Ok(parts)
}

/// Opens a regular file below a folder, named by somebody who is not trusted: no symbolic or hard links,
/// nothing hidden.
#[cfg(unix)]
pub(crate) fn open_beneath(folder: &Path, location: &str) -> io::Result<File> {
    use std::os::unix::fs::MetadataExt;
    let parts = plain_parts(location)?;
    let Some((name, folders)) = parts.split_last() else { return Err(refused("it names no file")) };
    let mut dir = Dir::open(folder)?;
    for part in folders {
        dir = dir.folder(part)?;
    }
    let file = dir.file(name)?;
    match file.metadata()? {
        info if !info.is_file() => Err(refused("it is no regular file")),
        info if info.nlink() != 1 => Err(refused("it has another name too (a hard link), which may lie anywhere")),
        _ => Ok(file),
    }
}

/// Opens a regular file below a folder, named by somebody who is not trusted: no links out of the folder,
/// nothing hidden.
#[cfg(not(unix))]
pub(crate) fn open_beneath(folder: &Path, location: &str) -> io::Result<File> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let root = folder.canonicalize()?;
    let path = plain_parts(location)?.iter().fold(root.clone(), |path, part| path.join(part)).canonicalize()?;
    if !path.starts_with(&root) {
        return Err(refused("its path leads out of the folder"));
    }
    open_regular(&path)
}

/// A regular file in a folder.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
}

#[cfg(unix)]
mod unix {
    use super::{Entry, refused};
    use std::ffi::{CString, OsStr, OsString};
    use std::fs::{File, Metadata};
    use std::io::{self, ErrorKind};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::{Component, Path, PathBuf};
    use std::time::SystemTime;

    /// Flags that suffice to look up files in a folder, for which the right to list it is not needed.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const LOOK_UP: libc::c_int = libc::O_PATH;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const LOOK_UP: libc::c_int = libc::O_RDONLY;
    const FOLDER: libc::c_int = LOOK_UP | libc::O_DIRECTORY | libc::O_CLOEXEC;
    const OPEN: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    /// The most components of a path, including those of links in it; more are taken for a cycle.
    const MOST_STEPS: usize = 1 << 10;
    /// The sticky bit: in a folder with it, users may not rename or remove files of others.
    const STICKY: u32 = 0o1000;

    /// A handle of a folder; it stays the same folder whatever happens to its path.
    pub(crate) struct Dir(File);

    impl Dir {
        /// Opens the folder at a path, following links; an empty path is the current folder.
        pub(crate) fn open(path: &Path) -> io::Result<Dir> {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            File::options().read(true).custom_flags(FOLDER).open(path).map(Dir)
        }

        /// Opens the folder at a path that no other user but root can have made, replaced, or written to; also gives
        /// its parent. Missing folders are created. Links in the path must belong to this user or to root.
        pub(crate) fn open_ours(path: &Path) -> io::Result<(Dir, Option<Dir>)> {
            let path = std::path::absolute(path)?;
            let mut rest: Vec<OsString> = Vec::new();
            push_parts(&mut rest, &path);
            let root = Dir::open(Path::new("/"))?;
            root.check_safe(Path::new("/"))?;
            let mut way = vec![(root, PathBuf::from("/"))];
            for _ in 0..MOST_STEPS {
                let Some(name) = rest.pop() else { break };
                if name == ".." {
                    way.truncate(way.len().saturating_sub(1).max(1));
                    continue;
                }
                let Some((here, at)) = way.last() else { break };
                let at = at.join(&name);
                match here.folder(&name) {
                    Ok(next) => {
                        next.check_safe(&at)?;
                        way.push((next, at));
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => {
                        here.make_folder(&name)?;
                        rest.push(name);
                    }
                    Err(e) => {
                        let target = here.link(&name)?.ok_or(e)?;
                        if target.is_absolute() {
                            way.truncate(1);
                        }
                        push_parts(&mut rest, &target);
                    }
                }
            }
            let Some((dir, at)) = way.pop().filter(|_| rest.is_empty()) else {
                return Err(refused("its path is a circle"));
            };
            let info = dir.info()?;
            if info.uid() != me().0 || info.mode() & writers(&info) != 0 {
                return Err(refused(&format!("other users may write to {}", at.display())));
            }
            Ok((dir, way.pop().map(|(dir, _)| dir)))
        }

        /// An error if another user could replace what is in this folder.
        fn check_safe(&self, path: &Path) -> io::Result<()> {
            let info = self.info()?;
            if info.uid() != me().0 && info.uid() != 0 {
                return Err(refused(&format!("{} is another user's", path.display())));
            }
            if info.mode() & writers(&info) != 0 && info.mode() & STICKY == 0 {
                return Err(refused(&format!("other users may write to {}", path.display())));
            }
            Ok(())
        }

        /// The folder's metadata.
        pub(crate) fn info(&self) -> io::Result<Metadata> {
            self.0.metadata()
        }

        /// Opens a folder in this one. A link is an error.
        pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Dir> {
            self.at(name, FOLDER | libc::O_NOFOLLOW, 0).map(Dir)
        }

        /// Opens a file in this folder for reading. A link is an error; the caller has to check that it is
        /// a regular file.
        pub(crate) fn file(&self, name: &OsStr) -> io::Result<File> {
            self.at(name, libc::O_RDONLY | OPEN, 0)
        }

        /// Creates a file for writing, which other users may not open.
        pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
            self.at(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | OPEN, 0o600)
        }

        /// Opens a file for reading and writing; creates it as [`Dir::create`] does if it does not exist.
        pub(crate) fn file_or_create(&self, name: &OsStr) -> io::Result<File> {
            self.at(name, libc::O_RDWR | libc::O_CREAT | OPEN, 0o600)
        }

        /// The regular files in this folder. `path` is used for listing names only.
        pub(crate) fn entries(&self, path: &Path) -> Vec<Entry> {
            let names = std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.file_name());
            let entry = |name: OsString| {
                let info = self.file(&name).ok()?.metadata().ok().filter(Metadata::is_file)?;
                let modified = info.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                Some(Entry { name: name.into_string().ok()?, bytes: info.len(), modified })
            };
            names.filter_map(entry).collect()
        }

        /// Renames a file within this folder; replaces a file that has the new name.
        pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
            let (from, to, fd) = (c_string(from)?, c_string(to)?, self.0.as_raw_fd());
            // SAFETY: the descriptor is open, the names end with a zero and outlive the call
            done(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
        }

        /// Removes a file in this folder.
        pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
            let name = c_string(name)?;
            // SAFETY: the descriptor is open, the name ends with a zero and outlives the call
            done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) })
        }

        /// Creates a folder that other users may not access; it is no error if another process was faster.
        fn make_folder(&self, name: &OsStr) -> io::Result<()> {
            let name = c_string(name)?;
            // SAFETY: the descriptor is open, the name ends with a zero and outlives the call
            match done(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o700) }) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
                _ => Ok(()),
            }
        }

        /// The target of the link with this name; `None` if it is not a link, an error if it belongs to another user.
        fn link(&self, name: &OsStr) -> io::Result<Option<PathBuf>> {
            let name = c_string(name)?;
            let mut info = MaybeUninit::<libc::stat>::zeroed();
            let (fd, flags) = (self.0.as_raw_fd(), libc::AT_SYMLINK_NOFOLLOW);
            // SAFETY: the descriptor is open, the name ends with a zero, the system writes one `stat` to where it is told
            done(unsafe { libc::fstatat(fd, name.as_ptr(), info.as_mut_ptr(), flags) })?;
            // SAFETY: filled in by the call, which succeeded; zeros are valid too
            let info = unsafe { info.assume_init() };
            if info.st_mode & libc::S_IFMT != libc::S_IFLNK {
                return Ok(None);
            }
            if info.st_uid != me().0 && info.st_uid != 0 {
                return Err(refused("a link in its path is another user's"));
            }
            let mut target = vec![0u8; libc::PATH_MAX as usize];
            // SAFETY: the descriptor is open, the name ends with a zero, and the buffer has the bytes that it is said to have
            let n = unsafe { libc::readlinkat(fd, name.as_ptr(), target.as_mut_ptr().cast(), target.len()) };
            let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            target.truncate(n);
            Ok(Some(OsString::from_vec(target).into()))
        }

        fn at(&self, name: &OsStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<File> {
            let name = c_string(name)?;
            // SAFETY: the descriptor is open, the name ends with a zero and outlives the call
            let fd = unsafe { libc::openat(self.0.as_raw_fd(), name.as_ptr(), flags, mode) };
            done(fd)?;
            // SAFETY: the call above made the descriptor for us alone
            Ok(unsafe { File::from_raw_fd(fd) })
        }
    }

    /// Is it a regular file of this user with a single name, without any of these permission bits?
    pub(crate) fn is_ours(info: &Metadata, forbidden: u32) -> bool {
        info.is_file() && info.uid() == me().0 && info.nlink() == 1 && info.mode() & forbidden == 0
    }

    /// The effective user and group of this process.
    fn me() -> (u32, u32) {
        // SAFETY: the calls have no arguments and cannot fail
        unsafe { (libc::geteuid(), libc::getegid()) }
    }

    /// The permission bits by which others may write. The group's bit does not count if the group is the user's private
    /// one (it then has the user's id).
    fn writers(info: &Metadata) -> u32 {
        let (user, group) = me();
        if group == user && info.gid() == group { 0o002 } else { 0o022 }
    }

    /// Pushes the components of a path onto the stack of those still to be followed.
    fn push_parts(rest: &mut Vec<OsString>, path: &Path) {
        let parts = path.components().rev().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir));
        rest.extend(parts.map(|c| c.as_os_str().to_owned()));
    }

    fn done(status: libc::c_int) -> io::Result<()> {
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn c_string(name: &OsStr) -> io::Result<CString> {
        CString::new(name.as_bytes()).map_err(|_| io::Error::new(ErrorKind::InvalidInput, "a zero in a file's name"))
    }
}

/// The same interface by paths, for systems where users' folders are protected from each other by other means.
#[cfg(not(unix))]
mod plain {
    use super::Entry;
    use std::ffi::OsStr;
    use std::fs::{File, Metadata};
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;
    #[cfg(windows)]
    use windows_sys::Win32::{Foundation::GENERIC_READ, Storage::FileSystem::FILE_WRITE_ATTRIBUTES};

    pub(crate) struct Dir(PathBuf);

    impl Dir {
        pub(crate) fn open_ours(path: &Path) -> io::Result<(Dir, Option<Dir>)> {
            std::fs::create_dir_all(path)?;
            let path = path.canonicalize()?;
            let parent = path.parent().map(|p| Dir(p.to_path_buf()));
            Ok((Dir(path), parent))
        }

        /// The folder's path without links, the same however it was named.
        pub(crate) fn path(&self) -> &Path {
            &self.0
        }

        pub(crate) fn file(&self, name: &OsStr) -> io::Result<File> {
            let mut options = File::options();
            options.read(true);
            // The time of a file is set through a handle only if that has the right to
            #[cfg(windows)]
            std::os::windows::fs::OpenOptionsExt::access_mode(&mut options, GENERIC_READ | FILE_WRITE_ATTRIBUTES);
            let file = options.open(self.0.join(name))?;
            if file.metadata()?.is_file() { Ok(file) } else { Err(super::refused("it is no regular file")) }
        }

        pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
            File::options().write(true).create_new(true).open(self.0.join(name))
        }

        pub(crate) fn file_or_create(&self, name: &OsStr) -> io::Result<File> {
            File::options().read(true).write(true).create(true).truncate(false).open(self.0.join(name))
        }

        pub(crate) fn entries(&self, path: &Path) -> Vec<Entry> {
            let entry = |e: std::fs::DirEntry| {
                let info = e.metadata().ok().filter(Metadata::is_file)?;
                let modified = info.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                Some(Entry { name: e.file_name().into_string().ok()?, bytes: info.len(), modified })
            };
            std::fs::read_dir(path).into_iter().flatten().flatten().filter_map(entry).collect()
        }

        pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
            std::fs::rename(self.0.join(from), self.0.join(to))
        }

        pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
            std::fs::remove_file(self.0.join(name))
        }
    }

    pub(crate) fn is_ours(info: &Metadata, _forbidden: u32) -> bool {
        info.is_file()
    }
}
