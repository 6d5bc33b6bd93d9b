//! The WASM device: tensors lie in a `WebAssembly.Memory` of their own, kernels are modules generated at run time, and
//! a plan is one call of the driver. The core's `render::wasm` defines kernels and the driver; worker threads are in
//! `threads`.

use crate::js::{self, text};
use crate::signal::Signal;
use crate::threads::{Driver, Handle, Threads};
use gradloom_core::device::{BufId, Device, KernelId, Step, Ticket, View};
use gradloom_core::render::wasm::{
    DriverStep, Kernel, MAX_PAGES, MAX_THREADS, SLACK, STEP_WORDS, SYNC_BYTES, Wasm, driver, link, relaxed_simd_probe,
};
use gradloom_core::render::{Code, Renderer, Source};
use gradloom_core::target::Target;
use gradloom_core::util::heap::Heap;
use gradloom_core::{Error, Result};
use js_sys::WebAssembly::{Global, Instance, Memory, Module, Table};
use js_sys::{Array, Function, Object, Reflect, Uint8Array, Uint32Array};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::{JsFuture, spawn_local};

const PAGE: usize = 65536;
/// The lowest address in use: kernels may read slightly before a buffer, and a null pointer stays recognisable.
const BASE: usize = SLACK;
/// A module of more bytes than this is compiled asynchronously if compiling it would block a page's main thread.
const SYNC_BYTES_MAX: usize = 256 << 10;
/// A launch with less work than this (operations or bytes) takes a fraction of a millisecond on any processor, so one
/// thread runs it whole, without checking the time.
const SHORT_WORK: u32 = 1 << 18;
/// For a launch that moves fewer bytes than this, waking worker threads does not pay.
const SERIAL_BYTES: usize = 16 << 10;

/// A device whose kernels are WebAssembly.
pub struct WasmDevice {
    target: Target,
    memory: Memory,
    view: Uint8Array,
    max_pages: u32,
    shared: bool,
    heap: Heap,
    buffers: Vec<Option<(usize, usize)>>,
    /// Ids of freed buffers, to be reused.
    free_ids: Vec<u32>,
    table: Table,
    entries: Heap,
    kernels: Vec<Option<Entry>>,
    /// Table entries that were released while modules were being compiled, one of which may still fill them.
    released: Vec<u32>,
    imports: Object,
    driver: Driver,
    compiling: Rc<RefCell<Compiling>>,
    tickets: Vec<(u32, Vec<u8>)>,
    next_ticket: u32,
    /// Address and size of the memory to which plans are encoded.
    plan: (usize, usize),
    /// Address of scratch memory, and its size per thread.
    scratch: (usize, usize),
    sync: usize,
    threads: Option<Threads>,
    /// Whether a single-threaded job may not be done.
    job_pending: bool,
    /// The time ([`js::now`], milliseconds) until which [`Device::work`] may use the caller's thread.
    deadline: Rc<Cell<f64>>,
}

/// A kernel in the function table.
#[derive(Clone, Copy)]
struct Entry {
    index: u32,
    params: usize,
    /// Whether a launch is less work than [`SHORT_WORK`].
    short: bool,
}

/// Modules that are being compiled, and the error of one that failed.
#[derive(Default)]
struct Compiling {
    running: usize,
    failed: Option<String>,
    signal: Signal,
    /// Milliseconds spent on synchronous compilation.
    spent_ms: Rc<Cell<f64>>,
}

fn failed(what: impl Into<String>) -> Error {
    Error::Device { device: "wasm".into(), what: what.into() }
}

fn oom(bytes: usize) -> Error {
    Error::OutOfMemory { device: "wasm".into(), bytes: bytes as u64 }
}

/// Whether the processor is x86, where the NaN that an operation produces has its sign bit set.
fn is_x86() -> bool {
    let zero = std::hint::black_box(0f32);
    (zero / zero).to_bits() >> 31 == 1
}

fn target() -> Target {
    let t = Target::wasm(has_relaxed_simd(), 1);
    if is_x86() { t.with_pairs() } else { t }
}

/// Whether the engine supports relaxed SIMD.
pub fn has_relaxed_simd() -> bool {
    let probe = Uint8Array::from(relaxed_simd_probe().as_slice());
    js_sys::WebAssembly::validate(&probe).unwrap_or(false)
}

impl WasmDevice {
    /// A device with one thread, or on shared memory, to which `add_threads` can add threads.
    pub fn new(shared: bool) -> Result<WasmDevice> {
        gradloom_core::codegen::reach::enable();
        let (memory, max_pages) = memory(shared)?;
        let table = Table::new(&js::object(&[("element", "anyfunc".into()), ("initial", 64.into())]))
            .map_err(|e| failed(text(&e)))?;
        let descriptor = js::object(&[("value", "i32".into()), ("mutable", true.into())]);
        let global = Global::new(&descriptor, &0.into()).map_err(|e| failed(text(&e)))?;
        let env = js::object(&[
            ("m", memory.clone().into()),
            ("t", table.clone().into()),
            ("s", global.into()),
            ("n", js::clock()),
        ]);
        let imports = js::object(&[("e", env.into())]);
        let module = Module::new(&Uint8Array::from(driver(shared, max_pages).as_slice()))
            .map_err(|e| failed(format!("WebAssembly SIMD is missing: {}", text(&e))))?;
        let exports = Instance::new(&module, &imports).map_err(|e| failed(text(&e)))?.exports();
        let view = Uint8Array::new(&memory.buffer());
        let mut device = WasmDevice {
            target: target(),
            memory,
            view,
            max_pages,
            shared,
            heap: Heap::new(BASE, 64),
            buffers: Vec::new(),
            free_ids: Vec::new(),
            table,
            entries: Heap::new(0, 1),
            kernels: Vec::new(),
            released: Vec::new(),
            imports,
            driver: exports.unchecked_into(),
            compiling: Rc::default(),
            tickets: Vec::new(),
            next_ticket: 0,
            plan: (0, 0),
            scratch: (0, 0),
            sync: 0,
            threads: None,
            job_pending: false,
            deadline: Rc::new(Cell::new(f64::INFINITY)),
        };
        device.sync = device.alloc_zeroed(SYNC_BYTES)?;
        Ok(device)
    }

    /// Uses worker threads from now on. `workers` are objects with `postMessage` that run `web/ts/src/worker.ts` and
    /// have answered. Only with shared memory.
    pub fn add_threads(&mut self, workers: &Array) -> Result<()> {
        if !self.shared {
            return Err(failed("threads need shared memory, which needs a cross-origin isolated page"));
        }
        if workers.length() as usize >= MAX_THREADS {
            return Err(failed(format!("{} threads, but there may be {MAX_THREADS}", workers.length() + 1)));
        }
        let module =
            Module::new(&Uint8Array::from(driver(true, self.max_pages).as_slice())).map_err(|e| failed(text(&e)))?;
        let threads = Threads::start(workers, &module, &self.driver, &self.memory, self.sync, self.signal())?;
        self.target.limits.threads = threads.count();
        self.threads = Some(threads);
        let bytes = self.scratch.1;
        self.scratch = (0, 0);
        self.reserve_scratch(bytes)
    }

    /// Its threads, for code that is notified of their end.
    pub(crate) fn threads(&self) -> Option<Handle> {
        self.threads.as_ref().map(Threads::handle)
    }

    /// Fires when a module has been compiled, or the device is lost.
    pub fn signal(&self) -> Signal {
        self.compiling.borrow().signal.clone()
    }

    /// Milliseconds of synchronous compilation.
    pub fn compile_ms(&self) -> Rc<Cell<f64>> {
        self.compiling.borrow().spent_ms.clone()
    }

    /// The time until which the caller's thread works on submitted jobs; infinite for no limit.
    pub fn deadline(&self) -> Rc<Cell<f64>> {
        self.deadline.clone()
    }

    /// The memory that holds its buffers.
    pub(crate) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// Waits until submitted work is done. Workers run it while the page does other things; this is needed before
    /// anything that touches memory or workers.
    fn finish_jobs(&mut self) -> Result<()> {
        self.work_until(f64::INFINITY).map(|_| ())
    }

    /// Like `finish_jobs`, but only until the time `end`; returns whether the work is done.
    fn work_until(&mut self, end: f64) -> Result<bool> {
        if let Some(t) = &mut self.threads {
            return t.work_until(end);
        }
        if self.job_pending {
            let left = self.driver.go(self.scratch.0 as u32, end);
            self.job_pending = left.as_ref().is_ok_and(|&left| left != 0);
            left.map_err(|e| {
                let what = format!("a kernel failed: {}", text(&e));
                self.signal().lose(&what);
                Error::Lost { device: "wasm".into(), what }
            })?;
        }
        Ok(!self.job_pending)
    }

    /// Bytes allocated now, and the most there ever were.
    pub fn usage(&self) -> (usize, usize) {
        (self.heap.used(), self.heap.peak())
    }

    /// Allocates zeroed memory; grows the `WebAssembly.Memory` if necessary.
    fn alloc_zeroed(&mut self, bytes: usize) -> Result<usize> {
        let (at, dirty) = self.alloc_dirty(bytes)?;
        if dirty > 0 {
            self.finish_jobs()?;
            self.view.fill(0, at as u32, (at + dirty) as u32);
        }
        Ok(at)
    }

    /// Allocates memory without zeroing; the second result is the number of leading bytes that may have old contents.
    fn alloc_dirty(&mut self, bytes: usize) -> Result<(usize, usize)> {
        let reach = self.heap.reach(bytes).ok_or_else(|| oom(bytes))? + SLACK;
        let have = self.bytes().byte_length() as usize;
        if reach > have {
            // grow by at least a quarter, so that many small allocations take few calls
            let need = (reach - have).div_ceil(PAGE);
            let more = need.max(have / PAGE / 4);
            if !self.grow(more) && !self.grow(need) {
                return Err(oom(bytes));
            }
        }
        let block = self.heap.alloc(bytes).ok_or_else(|| oom(bytes))?;
        Ok((block.at, block.stale.min(bytes)))
    }

    /// Assigns an id to a buffer.
    fn add_buffer(&mut self, at: usize, bytes: usize) -> BufId {
        if let Some(slot) = self.free_ids.pop() {
            self.buffers[slot as usize] = Some((at, bytes));
            return BufId(slot);
        }
        self.buffers.push(Some((at, bytes)));
        BufId(self.buffers.len() as u32 - 1)
    }

    fn grow(&mut self, pages: usize) -> bool {
        let have = self.view.byte_length() as usize / PAGE;
        if have + pages > self.max_pages as usize {
            return false;
        }
        let grow = Reflect::get(&self.memory, &"grow".into()).map(|f| f.unchecked_into::<Function>());
        let grown = grow.and_then(|f| f.call1(&self.memory, &(pages as u32).into())).is_ok();
        self.view = Uint8Array::new(&self.memory.buffer());
        grown
    }

    /// The view of all memory; growing the memory invalidates the old view.
    fn bytes(&mut self) -> &Uint8Array {
        if self.view.byte_length() == 0 {
            self.view = Uint8Array::new(&self.memory.buffer());
        }
        &self.view
    }

    fn address(&self, buf: BufId, offset: usize, bytes: usize) -> Result<usize> {
        let Some(Some((at, len))) = self.buffers.get(buf.0 as usize) else {
            return Err(failed(format!("{buf:?} is not allocated")));
        };
        match offset.checked_add(bytes) {
            Some(end) if end <= *len => Ok(at + offset),
            _ => Err(failed(format!("{bytes} bytes at {offset} are outside of {buf:?}, which has {len}"))),
        }
    }

    fn view(&self, v: &View) -> Result<usize> {
        self.address(v.buf, v.offset, v.bytes)
    }

    fn reserve_scratch(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes.next_multiple_of(64);
        if bytes <= self.scratch.1 {
            return Ok(());
        }
        let threads = self.target.limits.threads.max(1);
        if self.scratch.1 > 0 {
            self.heap.free(self.scratch.0, self.scratch.1 * threads);
        }
        self.scratch = (0, 0);
        let at = self.alloc_zeroed(bytes * threads)?;
        self.scratch = (at, bytes);
        if let Some(t) = &mut self.threads {
            t.set_scratch(at, bytes)?;
        }
        Ok(())
    }

    /// Encodes a plan in the driver's format for the address `at`: steps, followed by buffer tables and launch scalars.
    fn encode(&self, steps: &[Step], at: usize, words: &mut [u32]) -> Result<()> {
        let (mut head, mut tail) = (0, steps.len() * STEP_WORDS);
        for step in steps {
            let s = match step {
                Step::Launch { kernel, args, grid, vars } => {
                    let Some(Some(e)) = self.kernels.get(kernel.0 as usize) else {
                        return Err(failed(format!("{kernel:?} is not compiled")));
                    };
                    if e.params != args.len() {
                        return Err(failed(format!("{kernel:?} has {} parameters, not {}", e.params, args.len())));
                    }
                    let (bufs, mut moved) = ((at + tail * 4) as u32, 0);
                    for a in args {
                        words[tail] = self.view(a)? as u32;
                        (tail, moved) = (tail + 1, moved + a.bytes);
                    }
                    let scalars = (at + tail * 4) as u32;
                    for &v in vars {
                        words[tail] = v;
                        tail += 1;
                    }
                    let short = e.short && self.threads.is_none();
                    let serial = short || grid[0] < 2 || moved < SERIAL_BYTES;
                    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
                    let kernel = e.index | flag(serial, DriverStep::SERIAL) | flag(short, DriverStep::SHORT);
                    DriverStep { kernel, bufs, vars: scalars, grid: grid[0], first: 0 }
                }
                Step::Copy { src, dst } => {
                    if src.bytes != dst.bytes {
                        return Err(failed(format!("copy of {} bytes to {}", src.bytes, dst.bytes)));
                    }
                    let (from, to) = (self.view(src)? as u32, self.view(dst)? as u32);
                    DriverStep { kernel: DriverStep::COPY, bufs: to, vars: from, grid: src.bytes as u32, first: 0 }
                }
            };
            words[head..head + STEP_WORDS].copy_from_slice(&s.words());
            head += STEP_WORDS;
        }
        Ok(())
    }
}

/// The number of words of encoded steps.
fn encoded_words(steps: &[Step]) -> usize {
    let own = |s: &Step| match s {
        Step::Launch { args, vars, .. } => STEP_WORDS + args.len() + vars.len(),
        Step::Copy { .. } => STEP_WORDS,
    };
    steps.iter().map(own).sum()
}

/// Stores the kernels of an instance in a table.
fn fill_table(table: &Table, instance: &Instance, base: u32, n: u32) -> std::result::Result<(), JsValue> {
    let kernels = instance.exports();
    (0..n).try_for_each(|i| table.set_raw(base + i, &Reflect::get_u32(&kernels, i)?))
}

/// Creates a memory of one page that may grow as far as the engine permits.
fn memory(shared: bool) -> Result<(Memory, u32)> {
    let mut last = JsValue::UNDEFINED;
    for pages in [MAX_PAGES, MAX_PAGES / 2, MAX_PAGES / 4, MAX_PAGES / 8] {
        let d = js::object(&[("initial", 1.into()), ("maximum", pages.into()), ("shared", shared.into())]);
        match Memory::new(&d) {
            Ok(m) => return Ok((m, pages)),
            Err(e) => last = e,
        }
    }
    Err(failed(format!("no memory: {}", text(&last))))
}

impl Device for WasmDevice {
    fn target(&self) -> &Target {
        &self.target
    }

    fn renderer(&self) -> &'static dyn Renderer {
        &Wasm
    }

    fn alloc(&mut self, bytes: usize) -> Result<BufId> {
        let at = self.alloc_zeroed(bytes)?;
        Ok(self.add_buffer(at, bytes))
    }

    fn alloc_to_fill(&mut self, bytes: usize) -> Result<BufId> {
        let (at, _) = self.alloc_dirty(bytes)?;
        Ok(self.add_buffer(at, bytes))
    }

    fn free(&mut self, buf: BufId) {
        if let Some((at, len)) = self.buffers.get_mut(buf.0 as usize).and_then(Option::take) {
            self.heap.free(at, len);
            self.free_ids.push(buf.0);
        }
    }

    fn upload(&mut self, buf: BufId, offset: usize, data: &[u8]) -> Result<()> {
        let at = self.address(buf, offset, data.len())?;
        self.finish_jobs()?;
        self.bytes().subarray(at as u32, (at + data.len()) as u32).copy_from(data);
        Ok(())
    }

    fn place(&mut self, buf: BufId, bytes: usize) -> Result<Option<usize>> {
        let at = self.address(buf, 0, bytes)?;
        self.finish_jobs()?;
        Ok(Some(at))
    }

    fn compile(&mut self, sources: &[Source]) -> Result<Vec<KernelId>> {
        let mut kernels = Vec::with_capacity(sources.len());
        for s in sources {
            let Code::Bytes(b) = &s.code else { return Err(failed(format!("{} is not a wasm kernel", s.name))) };
            kernels.push(Kernel::from_bytes(b).ok_or_else(|| failed(format!("{} is not a wasm kernel", s.name)))?);
        }
        if kernels.is_empty() {
            return Ok(Vec::new());
        }
        self.reserve_scratch(kernels.iter().map(|k| k.scratch as usize).max().unwrap_or(0))?;
        self.free_entries();
        let base = self.entries.alloc(kernels.len()).ok_or_else(|| oom(kernels.len()))?.at as u32;
        let have = self.table.length();
        let need = self.entries.end() as u32;
        if need > have {
            self.table.grow(need.max(have * 2) - have).map_err(|e| failed(text(&e)))?;
        }
        let module = link(&kernels, self.shared, self.max_pages);
        self.load(&module, base, kernels.len() as u32)?;
        let mut ids = Vec::with_capacity(sources.len());
        for (index, (s, kernel)) in (base..).zip(sources.iter().zip(&kernels)) {
            self.kernels.push(Some(Entry { index, params: s.params.len(), short: kernel.work < SHORT_WORK }));
            ids.push(KernelId(self.kernels.len() as u32 - 1));
        }
        Ok(ids)
    }

    fn compile_bytes(&self) -> usize {
        // in a page, large modules are compiled asynchronously
        if js::is_main_thread() { usize::MAX } else { SYNC_BYTES_MAX / 4 }
    }

    fn ready(&mut self) -> Result<bool> {
        let mut c = self.compiling.borrow_mut();
        match c.failed.take() {
            Some(what) => Err(failed(what)),
            None => Ok(c.running == 0),
        }
    }

    fn release(&mut self, kernel: KernelId) {
        if let Some(e) = self.kernels.get_mut(kernel.0 as usize).and_then(Option::take) {
            self.released.push(e.index);
            self.free_entries();
        }
    }

    fn submit(&mut self, steps: &[Step]) -> Result<()> {
        if steps.is_empty() { Ok(()) } else { self.run(steps) }
    }

    fn work(&mut self) -> Result<bool> {
        let end = self.deadline.get();
        // without a limit the caller does not wait for worker threads
        if end == f64::INFINITY && self.threads.is_some() { Ok(true) } else { self.work_until(end) }
    }

    fn stop(&mut self) {
        self.job_pending = false;
        if let Some(t) = &mut self.threads {
            t.stop();
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.finish_jobs()
    }

    fn read(&mut self, view: View) -> Result<Ticket> {
        let at = self.view(&view)?;
        self.finish_jobs()?;
        let mut out = vec![0; view.bytes];
        self.bytes().subarray(at as u32, (at + view.bytes) as u32).copy_to(&mut out);
        self.next_ticket += 1;
        self.tickets.push((self.next_ticket, out));
        Ok(Ticket(self.next_ticket))
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Vec<u8>>> {
        match self.tickets.iter().position(|t| t.0 == ticket.0) {
            Some(at) => Ok(Some(self.tickets.swap_remove(at).1)),
            None => Err(failed(format!("{ticket:?} is not a readback"))),
        }
    }
}

impl WasmDevice {
    /// Starts running steps.
    fn run(&mut self, steps: &[Step]) -> Result<()> {
        if !self.ready()? {
            return Err(failed("submitted before the kernels are compiled"));
        }
        self.finish_jobs()?;
        self.free_entries();
        let mut words = vec![0; encoded_words(steps)];
        let size = words.len() * 4;
        if size > self.plan.1 {
            if self.plan.1 > 0 {
                self.heap.free(self.plan.0, self.plan.1);
            }
            self.plan = (0, 0);
            let capacity = size.next_power_of_two().max(4096);
            self.plan = (self.alloc_zeroed(capacity)?, capacity);
        }
        let at = self.plan.0;
        self.encode(steps, at, &mut words)?;
        let encoded =
            Uint32Array::new_with_byte_offset_and_length(&self.memory.buffer(), at as u32, words.len() as u32);
        encoded.copy_from(&words);
        if let Some(t) = &mut self.threads {
            return t.post(at, steps.len());
        }
        self.driver.begin(at as u32, steps.len() as u32);
        self.job_pending = true;
        Ok(())
    }

    /// Clears the table entries of released kernels, so that an instance is collected once none of its functions is
    /// reachable. Postponed while a job runs, which may be about to call one.
    fn free_entries(&mut self) {
        let has_work = self.threads.as_ref().map_or(self.job_pending, |t| !t.is_idle());
        if has_work || self.compiling.borrow().running > 0 {
            return;
        }
        for at in self.released.drain(..) {
            let _ = self.table.set_raw(at, &JsValue::NULL);
            self.entries.free(at as usize, 1);
            if let Some(t) = &mut self.threads {
                t.release(at);
            }
        }
    }

    /// Instantiates a module and stores its `n` kernels in the table from `base` on: synchronously if it is small or no
    /// page would be blocked.
    fn load(&mut self, module: &[u8], base: u32, n: u32) -> Result<()> {
        let bytes = Uint8Array::from(module);
        if module.len() <= SYNC_BYTES_MAX || !js::is_main_thread() {
            let start = js::now();
            let module = Module::new(&bytes).map_err(|e| failed(text(&e)))?;
            let instance = Instance::new(&module, &self.imports).map_err(|e| failed(text(&e)))?;
            fill_table(&self.table, &instance, base, n).map_err(|e| failed(text(&e)))?;
            let spent = self.compile_ms();
            spent.set(spent.get() + js::now() - start);
            if let Some(t) = &mut self.threads {
                t.load(&module, base)?;
            }
            return Ok(());
        }
        let (imports, table, state) = (self.imports.clone(), self.table.clone(), self.compiling.clone());
        let threads = self.threads.as_ref().map(Threads::handle);
        state.borrow_mut().running += 1;
        spawn_local(async move {
            let done = async {
                let module: Module = JsFuture::from(js_sys::WebAssembly::compile(&bytes)).await?.unchecked_into();
                let instance = JsFuture::from(js_sys::WebAssembly::instantiate_module(&module, &imports)).await?;
                fill_table(&table, instance.unchecked_ref(), base, n)?;
                if let Some(t) = threads {
                    t.load(&module, base).map_err(|e| JsValue::from(e.to_string()))?;
                }
                Ok::<(), JsValue>(())
            };
            let result = done.await;
            let mut s = state.borrow_mut();
            s.running -= 1;
            if let Err(e) = result {
                s.failed = Some(text(&e));
            }
            s.signal.fire();
        });
        Ok(())
    }
}
