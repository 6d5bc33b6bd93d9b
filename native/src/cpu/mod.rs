//! The CPU device: machine code from the x86-64 renderer in executable pages, run by a thread pool over slices of the
//! grid. Buffers are host memory. Everything is synchronous.

mod code;
mod memory;
mod pool;

use code::Code;
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::{self, Source};
use gradloom_core::target::{Isa, Target};
use gradloom_core::{Error, Result};
use memory::Block;
use pool::{Job, Pool};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Work below this is not worth waking threads for.
const PARALLEL_NANOS: f32 = 20_000.0;
/// The same, before a kernel has been timed: bytes of its buffers.
const PARALLEL_BYTES: usize = 64 << 10;

/// The best instruction set of this machine, `None` if it has no AVX2 with FMA and F16C.
pub fn detect() -> Option<Isa> {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi2");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Some(Isa::Avx512),
        (true, false) => Some(Isa::Avx2),
        _ => None,
    }
}

struct Kernel {
    code: Arc<Code>,
    entry: usize,
    /// Bytes each buffer must have.
    params: Vec<usize>,
    vars: usize,
    /// Bytes of scratch memory per thread.
    scratch: usize,
    /// Nanoseconds of all threads together, from earlier launches.
    cost: Option<f32>,
}

/// The native CPU.
pub struct CpuDevice {
    target: Target,
    pool: Pool,
    buffers: HashMap<BufId, Block>,
    kernels: HashMap<KernelId, Kernel>,
    reads: HashMap<Ticket, Vec<u8>>,
    /// Of the calling thread.
    scratch: Option<Block>,
    next: u32,
}

impl CpuDevice {
    /// This machine with `threads` threads (0: one per core). Fails where the instruction set is too old.
    pub fn new(threads: usize) -> Result<CpuDevice> {
        let isa = detect().ok_or_else(|| Error::Unsupported {
            what: "CPU without AVX2, FMA, F16C and BMI2".into(),
            context: "device cpu".into(),
        })?;
        CpuDevice::with_isa(isa, threads)
    }

    /// The same, held to an instruction set that the machine must have.
    pub fn with_isa(isa: Isa, threads: usize) -> Result<CpuDevice> {
        if detect().is_none_or(|have| have < isa) {
            return Err(Error::Unsupported { what: format!("instruction set {isa:?}"), context: "device cpu".into() });
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            n => n,
        };
        Ok(CpuDevice {
            target: Target::x86(isa, threads),
            pool: Pool::new(threads)?,
            buffers: HashMap::new(),
            kernels: HashMap::new(),
            reads: HashMap::new(),
            scratch: None,
            next: 0,
        })
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn bad(&self, what: impl Into<String>) -> Error {
        Error::Device { device: self.target.name.clone(), what: what.into() }
    }

    /// The start of a view that was checked to lie inside its buffer.
    fn pointer(&self, v: &View) -> Result<*mut u8> {
        let block = self.buffers.get(&v.buf).ok_or_else(|| self.bad(format!("no buffer {}", v.buf.0)))?;
        match v.offset.checked_add(v.bytes) {
            Some(end) if end <= block.len() => Ok(block.at(v.offset)),
            _ => Err(self.bad(format!("{v:?} is outside of {} bytes", block.len()))),
        }
    }

    fn launch(&mut self, id: KernelId, args: &[View], grid: [u32; 3], vars: &[u32]) -> Result<()> {
        let k = self.kernels.get(&id).ok_or_else(|| self.bad(format!("no kernel {}", id.0)))?;
        if args.len() != k.params.len() || vars.len() != k.vars {
            return Err(self.bad(format!("kernel {} got {} buffers and {} scalars", id.0, args.len(), vars.len())));
        }
        let mut pointers = Vec::with_capacity(args.len());
        for (v, need) in args.iter().zip(&k.params) {
            if v.bytes < *need {
                return Err(self.bad(format!("a kernel needs {need} bytes, {v:?} is smaller")));
            }
            pointers.push(self.pointer(v)?);
        }
        if self.scratch.as_ref().is_none_or(|b| b.len() < k.scratch) {
            let refused = Error::OutOfMemory { device: self.target.name.clone(), bytes: k.scratch as u64 };
            self.scratch = Some(Block::zeroed(k.scratch).ok_or(refused)?);
        }
        let scratch = self.scratch.as_ref().map_or(std::ptr::null_mut(), |b| b.at(0));
        let parallel = match k.cost {
            Some(nanos) => nanos > PARALLEL_NANOS,
            None => k.params.iter().sum::<usize>() > PARALLEL_BYTES,
        };
        let threads = if parallel { self.pool.threads().min(grid[0] as usize) } else { 1 };
        let begin = Instant::now();
        // SAFETY: the code was made by the x86-64 renderer for these parameters and this instruction set; the pointers
        // are to live buffers of at least the sizes it was compiled for, so is `scratch`, and `code` outlives the call.
        unsafe {
            let job = Job::new(k.code.at(k.entry), &pointers, vars, grid[0], k.scratch);
            self.pool.run(&job, threads, scratch);
        }
        let nanos = begin.elapsed().as_nanos() as f32 * threads as f32;
        if let Some(k) = self.kernels.get_mut(&id) {
            k.cost = Some(k.cost.map_or(nanos, |c| c * 0.75 + nanos * 0.25));
        }
        Ok(())
    }
}

impl Device for CpuDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let block = Block::zeroed(bytes)
            .ok_or_else(|| Error::OutOfMemory { device: self.target.name.clone(), bytes: bytes as u64 })?;
        let id = BufId(self.id());
        self.buffers.insert(id, block);
        Ok(id)
    }

    fn free(&mut self, buf: BufId) {
        self.buffers.remove(&buf);
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let bad = self.bad(format!("upload of {} bytes at {offset} to buffer {}", data.len(), buf.0));
        let block = self.buffers.get_mut(&buf).ok_or(bad.clone())?;
        let end = offset.checked_add(data.len()).ok_or(bad.clone())?;
        block.bytes_mut().get_mut(offset..end).ok_or(bad)?.copy_from_slice(data);
        Ok(())
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut parts = Vec::with_capacity(sources.len());
        for s in sources {
            match &s.code {
                render::Code::Bytes(b) => parts.push(b.as_slice()),
                _ => return Err(self.bad(format!("kernel {} is not machine code", s.name))),
            }
        }
        let (code, entries) = Code::new(&parts).map_err(|e| self.bad(format!("executable memory: {e}")))?;
        let code = Arc::new(code);
        let mut ids = Vec::with_capacity(sources.len());
        for (s, entry) in sources.iter().zip(entries) {
            let id = KernelId(self.id());
            let params = s.params.iter().map(|p| p.len * p.dtype.size()).collect();
            let kernel =
                Kernel { code: code.clone(), entry, params, vars: s.vars.len(), scratch: s.scratch, cost: None };
            self.kernels.insert(id, kernel);
            ids.push(id);
        }
        Ok(ids)
    }

    fn release(&mut self, kernel: KernelId) {
        self.kernels.remove(&kernel);
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        for s in steps {
            match s {
                Step::Launch { kernel, args, grid, vars } => self.launch(*kernel, args, *grid, vars)?,
                Step::Copy { src, dst } => {
                    if src.bytes != dst.bytes {
                        return Err(self.bad(format!("copy of {src:?} to {dst:?}")));
                    }
                    let (from, to) = (self.pointer(src)?, self.pointer(dst)?);
                    // SAFETY: both ranges lie in live buffers; `copy` allows them to overlap.
                    unsafe { std::ptr::copy(from, to, src.bytes) };
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        self.pointer(&view)?;
        let data = self.buffers[&view.buf].bytes()[view.offset..view.offset + view.bytes].to_vec();
        let ticket = Ticket(self.id());
        self.reads.insert(ticket, data);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        match self.reads.remove(&ticket) {
            Some(data) => Ok(Some(data)),
            None => Err(self.bad(format!("no readback {}", ticket.0))),
        }
    }
}
