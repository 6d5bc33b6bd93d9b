//! The system's C compiler as a device: programs are printed as C, compiled to a shared library, and loaded into the
//! process. If the compiler is clang, it can also compile kernels that are printed for GPUs ([`host`]).

mod compiler;
mod host;

use crate::memory::{Block, Guard};
use crate::steps::{self, KernelSignature};
use compiler::Compiler;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::{Code, Source};
use gradloom_core::target::Target;
use gradloom_core::{Error, Result};
use libloading::Library;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

type Kernel = unsafe extern "C" fn(*const *mut u8, *const u32, u32, u32, *mut u8);

/// A CPU device whose kernels are compiled by a C compiler.
pub struct CDevice {
    target: Target,
    compiler: Compiler,
    bufs: BTreeMap<BufId, Block>,
    kernels: BTreeMap<KernelId, Loaded>,
    reads: BTreeMap<Ticket, Vec<u8>>,
    scratch: Option<Block>,
    guard: Guard,
    next: u32,
}

/// A loaded kernel; its library is unloaded with the last of its kernels.
struct Loaded {
    signature: KernelSignature,
    function: Function,
    scratch: usize,
    _library: Arc<Library>,
}

#[derive(Clone, Copy)]
enum Function {
    /// Runs a part of a one-dimensional grid.
    Part(Kernel),
    /// Runs the workgroups of a grid.
    Groups(host::Groups),
}

impl CDevice {
    /// A device with the first compiler found of `cc`, `gcc` and `clang`.
    ///
    /// # Errors
    /// [`Error::Device`] if there is none.
    pub fn new() -> Result<CDevice> {
        Ok(CDevice::with(Target::c(crate::vectors::lanes_in_c(), 16, 1), Compiler::c()?))
    }

    /// A device for kernels in a GPU language: `metal`, `cuda` or `hip`.
    ///
    /// # Errors
    /// [`Error::Device`] if there is no clang, or for another language.
    pub fn host(language: &str) -> Result<CDevice> {
        let found = host::LANGUAGES.iter().find(|l| l.name == language);
        let language = found.ok_or_else(|| error(format!("no kernels in {language} are compiled here")))?;
        Ok(CDevice::with((language.target)(&format!("c:{}", language.name)), Compiler::cpp()?))
    }

    fn with(target: Target, compiler: Compiler) -> CDevice {
        CDevice {
            target,
            compiler,
            bufs: BTreeMap::new(),
            kernels: BTreeMap::new(),
            reads: BTreeMap::new(),
            scratch: None,
            guard: Guard::None,
            next: 0,
        }
    }

    /// The same device with another way to allocate buffers.
    pub fn with_guard(self, guard: Guard) -> CDevice {
        CDevice { guard, ..self }
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn buffer(&self, view: &View) -> Result<&Block> {
        let m = self.bufs.get(&view.buf).ok_or_else(|| error(format!("{:?} is not allocated", view.buf)))?;
        steps::inside("c", view, m.len()).map(|()| m)
    }

    fn launch(&mut self, kernel: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        let k = self.kernels.get(&kernel).ok_or_else(|| error(format!("{kernel:?} is not compiled")))?;
        k.signature.check("c", args, vars)?;
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
        match function {
            // SAFETY: the code was rendered from a checked program whose accesses stay inside its parameters, each view holds as
            // many bytes as the engine planned for its parameter and is inside its allocation, the scratch memory is as large as the
            // kernel asked for, and nothing else runs meanwhile
            Function::Part(run) => unsafe { run(pointers.as_ptr(), vars.as_ptr(), 0, grid[0], scratch) },
            // SAFETY: the same; the grid has three numbers
            Function::Groups(run) => {
                let wrong = unsafe { run(pointers.as_ptr(), vars.as_ptr(), grid.as_ptr()) };
                host::check(&self.kernels[&kernel].signature.name, wrong)?;
            }
        }
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
        let language = host::language(self.target.lang);
        let unit = match language {
            Some(language) => language.unit(sources)?,
            None => unit(sources)?,
        };
        let library = Arc::new(self.compiler.build(&unit)?);
        let mut out = Vec::new();
        for (i, s) in sources.iter().enumerate() {
            let absent = |e: libloading::Error| error(format!("{}: {e}", s.name));
            let function = match language {
                // SAFETY: the unit defines this function with exactly this signature
                Some(_) => unsafe { library.get::<host::Groups>(format!("gl_run_{i}\0").as_bytes()) }
                    .map(|f| Function::Groups(*f))
                    .map_err(absent)?,
                // SAFETY: the same
                None => unsafe { library.get::<Kernel>(format!("gl_kernel_{i}\0").as_bytes()) }
                    .map(|f| Function::Part(*f))
                    .map_err(absent)?,
            };
            let id = KernelId(self.id());
            let library = library.clone();
            let k = Loaded { signature: KernelSignature::of(s), function, scratch: s.scratch, _library: library };
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
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
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

/// All kernels of a batch as one text.
fn unit(sources: &[Source]) -> Result<String> {
    let mut unit = String::new();
    for (i, s) in sources.iter().enumerate() {
        let Code::Text(text) = &s.code else { return Err(error(format!("{} is not C", s.name))) };
        // Kernels of one batch may have the same name
        let _ = writeln!(unit, "#define {0} gl_kernel_{i}\n{text}#undef {0}", s.name);
    }
    Ok(unit)
}
