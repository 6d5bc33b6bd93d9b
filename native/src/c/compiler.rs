//! Runs the system's compilers: source text in, a library loaded into this process out.
//!
//! A compiler is found on PATH and started without a shell, with fixed arguments; the text goes to its standard input.
//! The output is written to a folder that only this user can read, and is removed as soon as it is loaded.

use super::error;
use gradloom_core::Result;
use libloading::Library;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The versions of clang that are looked for as `clang-N`; older ones have no 16-bit floats in C++.
const CLANGS: RangeInclusive<u32> = 15..=22;

/// A compiler and its arguments.
pub(super) struct Compiler {
    path: PathBuf,
    options: &'static [&'static str],
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Relative entries would let the current folder choose the compiler
    std::env::split_paths(&path).filter(|p| p.is_absolute()).map(|p| p.join(name)).find(|p| p.is_file())
}

/// A temporary folder of this process, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..64 {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let clock =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
            let path = std::env::temp_dir().join(format!("gradloom-{}-{n}-{clock:x}", std::process::id()));
            match private_folder(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }
}

/// Creates a folder that only this user can read.
#[cfg(unix)]
fn private_folder(path: &std::path::Path) -> std::io::Result<()> {
    let mut make = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700).create(path)
}

/// Creates a folder that only this user can read, as all are in the user's own folder for temporary files.
#[cfg(not(unix))]
fn private_folder(path: &std::path::Path) -> std::io::Result<()> {
    std::fs::create_dir(path)
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Compiler {
    /// Finds a C compiler, with options for kernels of the processor.
    pub(super) fn c() -> Result<Compiler> {
        let path = ["cc", "gcc", "clang"].iter().find_map(|name| find_on_path(name));
        let missing = || error("no C compiler on PATH (cc, gcc or clang): install one, or use another device");
        Ok(Compiler { path: path.ok_or_else(missing)?, options: &["-x", "c", "-std=gnu11", "-O2", "-fwrapv"] })
    }

    /// Finds clang, with options for kernels of GPUs that compile quickly, since these kernels only run in tests.
    /// `-fwrapv` is not set: these kernels never overflow signed integers, which is checked.
    pub(super) fn cpp() -> Result<Compiler> {
        let named = (CLANGS).map(|n| find_on_path(&format!("clang-{n}")));
        let path = find_on_path("clang").or_else(|| named.rev().flatten().next());
        let missing = || error("no clang on PATH, which compiles kernels of GPUs as C++: install clang 15 or later");
        Ok(Compiler { path: path.ok_or_else(missing)?, options: &["-x", "c++", "-std=gnu++17", "-O1"] })
    }

    /// Compiles a text to a library and loads it.
    pub(super) fn build(&self, unit: &str) -> Result<Library> {
        let io = |e: std::io::Error| error(format!("{}: {e}", self.path.display()));
        let folder = Folder::new().map_err(io)?;
        let out = folder.0.join("kernels.so");
        let mut child = Command::new(&self.path)
            .args(self.options)
            .args(["-march=native", "-shared", "-fPIC", "-w"])
            .args(["-fno-math-errno", "-ffp-contract=fast", "-o"])
            .arg(&out)
            .args(["-", "-lm"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let mut stdin = child.stdin.take();
        let sent = stdin.as_mut().map_or(Ok(()), |s| s.write_all(unit.as_bytes()));
        drop(stdin);
        let done = child.wait_with_output().map_err(io)?;
        if !done.status.success() {
            let text = String::from_utf8_lossy(&done.stderr);
            return Err(error(format!("C compiler failed: {}", text.lines().take(20).collect::<Vec<_>>().join("\n"))));
        }
        sent.map_err(io)?;
        // SAFETY: the library was just made from our own source; it has no initialisers
        unsafe { Library::new(&out) }.map_err(|e| error(e.to_string()))
    }
}
