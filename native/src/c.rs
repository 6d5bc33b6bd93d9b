//! The system's C compiler as a device: programs as C, compiled to a shared library that is loaded into the process.
//!
//! The compiler is found on PATH and started without a shell, with fixed arguments; the source goes to its standard input.
//! Output lands in a folder that only this user can read, and is removed as soon as it is loaded.

use crate::memory::{Block, Guard};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::{Code, Source};
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use libloading::Library;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

type Kernel = unsafe extern "C" fn(*const *mut u8, *const u32, u32, u32, *mut u8);

/// A CPU whose kernels a C compiler makes.
pub struct CDevice {
    target: Target,
    compiler: PathBuf,
    bufs: BTreeMap<BufId, Block>,
    kernels: BTreeMap<KernelId, Loaded>,
    reads: BTreeMap<Ticket, Vec<u8>>,
    scratch: Option<Block>,
    guard: Guard,
    next: u32,
}

/// A kernel in the process; the library is unloaded with the last of its kernels.
struct Loaded {
    function: Kernel,
    /// Bytes that each buffer must have.
    needs: Vec<usize>,
    vars: usize,
    scratch: usize,
    _library: Arc<Library>,
}

impl CDevice {
    /// Finds a compiler: `cc`, `gcc` or `clang`.
    pub fn new() -> Result<CDevice> {
        let compiler = ["cc", "gcc", "clang"]
            .iter()
            .find_map(|name| find_on_path(name))
            .ok_or_else(|| error("no C compiler on PATH (cc, gcc or clang): install one, or use another device"))?;
        Ok(CDevice {
            target: Target::c(1),
            compiler,
            bufs: BTreeMap::new(),
            kernels: BTreeMap::new(),
            reads: BTreeMap::new(),
            scratch: None,
            guard: Guard::None,
            next: 0,
        })
    }

    /// The same, with buffers that are made in another way.
    pub fn with_guard(self, guard: Guard) -> CDevice {
        CDevice { guard, ..self }
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn buffer(&self, view: &View) -> Result<&Block> {
        let m = self.bufs.get(&view.buf).ok_or_else(|| error(format!("{:?} is not allocated", view.buf)))?;
        match view.offset.checked_add(view.bytes) {
            Some(end) if end <= m.len() => Ok(m),
            _ => Err(error(format!("{view:?} is outside its {} bytes", m.len()))),
        }
    }

    fn launch(&mut self, kernel: KernelId, args: &[View], grid: u32, vars: &[u32]) -> Result<()> {
        let k = self.kernels.get(&kernel).ok_or_else(|| error(format!("{kernel:?} is not compiled")))?;
        let fits = k.needs.len() == args.len() && k.needs.iter().zip(args).all(|(&n, v)| n <= v.bytes);
        if !fits || k.vars != vars.len() {
            return Err(error(format!("{kernel:?} wants buffers of {:?} bytes, {} scalars", k.needs, k.vars)));
        }
        let (function, scratch) = (k.function, k.scratch);
        if self.scratch.as_ref().is_none_or(|b| b.len() < scratch) {
            let refused = || Error::OutOfMemory { device: "c".into(), bytes: scratch as u64 };
            self.scratch = Some(Block::new(scratch, self.guard).ok_or_else(refused)?);
        }
        let mut pointers: Vec<*mut u8> = Vec::with_capacity(args.len());
        for v in args {
            pointers.push(self.buffer(v)?.at(v.offset));
        }
        let scratch = self.scratch.as_ref().map_or(std::ptr::null_mut(), |b| b.at(0));
        // SAFETY: the code was rendered from a checked program whose accesses stay inside its parameters, each view holds as
        // many bytes as the engine planned for its parameter and is inside its allocation, the scratch memory is as large as the
        // kernel asked for, and nothing else runs meanwhile
        unsafe { function(pointers.as_ptr(), vars.as_ptr(), 0, grid, scratch) };
        Ok(())
    }
}

impl Device for CDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let refused = || Error::OutOfMemory { device: "c".into(), bytes: bytes as u64 };
        let m = Block::new(bytes, self.guard).ok_or_else(refused)?;
        let id = BufId(self.id());
        self.bufs.insert(id, m);
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        self.bufs.remove(&buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        self.buffer(&View { buf, offset, bytes: data.len() })?;
        let m = self.bufs.get_mut(&buf).ok_or_else(|| error("buffer is gone"))?;
        m.bytes_mut()[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let mut unit = String::new();
        for (i, s) in sources.iter().enumerate() {
            let Code::Text(text) = &s.code else { return Err(error(format!("{} is not C", s.name))) };
            // kernels of one batch may have the same name
            let _ = writeln!(unit, "#define {0} gl_kernel_{i}\n{text}#undef {0}", s.name);
        }
        let library = Arc::new(build(&self.compiler, &unit)?);
        let mut out = Vec::new();
        for (i, s) in sources.iter().enumerate() {
            // SAFETY: the unit defines this function with exactly this signature
            let symbol = unsafe { library.get::<Kernel>(format!("gl_kernel_{i}\0").as_bytes()) };
            let function = *symbol.map_err(|e| error(format!("{}: {e}", s.name)))?;
            let id = KernelId(self.id());
            let needs = s.params.iter().map(|p| p.len * p.dtype.size()).collect();
            let k = Loaded { function, needs, vars: s.vars.len(), scratch: s.scratch, _library: library.clone() };
            self.kernels.insert(id, k);
            out.push(id);
        }
        Ok(out)
    }

    fn release(&mut self, kernel: KernelId) {
        self.kernels.remove(&kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, grid[0], vars)?,
                Step::Copy { src, dst } => {
                    let data = self.buffer(src)?.bytes()[src.offset..src.offset + src.bytes].to_vec();
                    self.upload(dst.buf, dst.offset, &data)?;
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let data = self.buffer(&view)?.bytes()[view.offset..view.offset + view.bytes].to_vec();
        let t = Ticket(self.id());
        self.reads.insert(t, data);
        Ok(t)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        self.reads.remove(&ticket).map(Some).ok_or_else(|| error(format!("{ticket:?} is spent")))
    }
}

fn error(what: impl Into<String>) -> Error {
    Error::Device { device: "c".into(), what: what.into() }
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // relative entries would let the current folder choose the compiler
    std::env::split_paths(&path).filter(|p| p.is_absolute()).map(|p| p.join(name)).find(|p| p.is_file())
}

/// A folder of this process alone, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        for _ in 0..64 {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let clock =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
            let path = std::env::temp_dir().join(format!("gradloom-{}-{n}-{clock:x}", std::process::id()));
            let mut make = std::fs::DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut make, 0o700);
            match make.create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build(compiler: &Path, unit: &str) -> Result<Library> {
    let io = |e: std::io::Error| error(format!("{}: {e}", compiler.display()));
    let folder = Folder::new().map_err(io)?;
    let out = folder.0.join("kernels.so");
    let mut child = Command::new(compiler)
        .args(["-x", "c", "-std=gnu11", "-O2", "-march=native", "-shared", "-fPIC", "-w"])
        .args(["-fwrapv", "-fno-math-errno", "-ffp-contract=fast", "-o"])
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
