//! Files and folders that somebody else may have named or made: opened one component at a time from a handle of the folder
//! before, so that no link is followed and nobody can exchange a folder meanwhile. Opening never waits, whatever the file is.
//! Never here: what the files mean.
//!
//! This is `openat` of POSIX.1-2008. Other systems have no such handles: there a path is resolved first and opened then.

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

/// A regular file at a path that the user named, through whatever links; a pipe or a device is an error rather than a wait.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused("it is no regular file")) }
}

/// The components of a path that only leads down, and to nothing hidden.
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

/// A regular file below a folder, named by somebody who is not trusted: no links of either kind, nothing hidden.
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

/// A regular file below a folder, named by somebody who is not trusted: no links out of it, nothing hidden.
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

/// A folder's own name for what it holds: regular files, and no other kind.
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

    /// Enough to look files up in a folder, which needs no right to list it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const LOOK_UP: libc::c_int = libc::O_PATH;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const LOOK_UP: libc::c_int = libc::O_RDONLY;
    const FOLDER: libc::c_int = LOOK_UP | libc::O_DIRECTORY | libc::O_CLOEXEC;
    const OPEN: libc::c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    /// Components of a path and of the links in it: more are a circle.
    const MOST_STEPS: usize = 1 << 10;
    /// In a folder with this bit, others may not rename or remove what is not theirs.
    const STICKY: u32 = 0o1000;

    /// A folder that stays the same one whatever happens to its path.
    pub(crate) struct Dir(File);

    impl Dir {
        /// The folder at a path, through whatever links; an empty path is the current folder.
        pub(crate) fn open(path: &Path) -> io::Result<Dir> {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            File::options().read(true).custom_flags(FOLDER).open(path).map(Dir)
        }

        /// The folder at a path that no other user but root can have made, or exchange, or write to, and the one that it is
        /// in. What is missing of the path is made. A link on the way must be our own or root's.
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

        /// Errors if another user could exchange what is in this folder.
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

        /// What the system says of the folder.
        pub(crate) fn info(&self) -> io::Result<Metadata> {
            self.0.metadata()
        }

        /// The folder of this name in it. A link is an error.
        pub(crate) fn folder(&self, name: &OsStr) -> io::Result<Dir> {
            self.at(name, FOLDER | libc::O_NOFOLLOW, 0).map(Dir)
        }

        /// The file of this name in it, for reading. A link is an error; whether it is a regular file is the caller's to ask.
        pub(crate) fn file(&self, name: &OsStr) -> io::Result<File> {
            self.at(name, libc::O_RDONLY | OPEN, 0)
        }

        /// A new file for writing, which nobody else may open.
        pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
            self.at(name, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | OPEN, 0o600)
        }

        /// The file of this name for reading and writing; made as by [`Dir::create`] where there is none.
        pub(crate) fn file_or_create(&self, name: &OsStr) -> io::Result<File> {
            self.at(name, libc::O_RDWR | libc::O_CREAT | OPEN, 0o600)
        }

        /// The regular files in it. The path is only asked for names.
        pub(crate) fn entries(&self, path: &Path) -> Vec<Entry> {
            let names = std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.file_name());
            let entry = |name: OsString| {
                let info = self.file(&name).ok()?.metadata().ok().filter(Metadata::is_file)?;
                let modified = info.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                Some(Entry { name: name.into_string().ok()?, bytes: info.len(), modified })
            };
            names.filter_map(entry).collect()
        }

        /// Gives a file in it another name in it, in place of whatever had that.
        pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
            let (from, to, fd) = (c_string(from)?, c_string(to)?, self.0.as_raw_fd());
            // SAFETY: the descriptor is open, the names end with a zero and outlive the call
            done(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) })
        }

        /// Removes a file in it.
        pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
            let name = c_string(name)?;
            // SAFETY: the descriptor is open, the name ends with a zero and outlives the call
            done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) })
        }

        /// Makes a folder in it that is ours alone; no error if another process was faster.
        fn make_folder(&self, name: &OsStr) -> io::Result<()> {
            let name = c_string(name)?;
            // SAFETY: the descriptor is open, the name ends with a zero and outlives the call
            match done(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), 0o700) }) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
                _ => Ok(()),
            }
        }

        /// Where a link of this name leads; `None` if it is something else, an error if it is another user's.
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

    /// Is it a regular file of ours with one name, without any of these bits of permission?
    pub(crate) fn is_ours(info: &Metadata, forbidden: u32) -> bool {
        info.is_file() && info.uid() == me().0 && info.nlink() == 1 && info.mode() & forbidden == 0
    }

    /// The user and group that this process acts as.
    fn me() -> (u32, u32) {
        // SAFETY: the calls have no arguments and cannot fail
        unsafe { (libc::geteuid(), libc::getegid()) }
    }

    /// The bits by which others may write. Not the group's, where that is the user's own (it then has the user's number).
    fn writers(info: &Metadata) -> u32 {
        let (user, group) = me();
        if group == user && info.gid() == group { 0o002 } else { 0o022 }
    }

    /// Puts the components of a path onto the stack of those still to be walked.
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

/// The same by paths, for systems whose folders of users are closed to others by other means.
#[cfg(not(unix))]
mod plain {
    use super::Entry;
    use std::ffi::OsStr;
    use std::fs::{File, Metadata};
    use std::io;
    use std::path::{Path, PathBuf};
    use std::time::SystemTime;

    pub(crate) struct Dir(PathBuf);

    impl Dir {
        pub(crate) fn open_ours(path: &Path) -> io::Result<(Dir, Option<Dir>)> {
            std::fs::create_dir_all(path)?;
            let path = path.canonicalize()?;
            let parent = path.parent().map(|p| Dir(p.to_path_buf()));
            Ok((Dir(path), parent))
        }

        pub(crate) fn info(&self) -> io::Result<Metadata> {
            std::fs::metadata(&self.0)
        }

        pub(crate) fn file(&self, name: &OsStr) -> io::Result<File> {
            super::open_regular(&self.0.join(name))
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
