//! Worker threads of the WASM device. A worker runs the driver's `serve` loop on the shared memory and leaves it only
//! to receive messages: a module to instantiate, a new scratch address. The core's `render::wasm` defines the shared
//! words that synchronise them.

use crate::js::{self, text};
use crate::signal::Signal;
use gradloom_core::{Error, Result};
use js_sys::WebAssembly::{Memory, Module};
use js_sys::{Array, Function};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

#[wasm_bindgen]
extern "C" {
    /// The exports of the driver module; all but `begin` and `go` exist only with shared memory.
    #[derive(Clone)]
    pub(crate) type Driver;

    #[wasm_bindgen(method)]
    pub(crate) fn begin(this: &Driver, steps: u32, n: u32);
    #[wasm_bindgen(method, catch)]
    pub(crate) fn go(this: &Driver, scratch: u32, end: f64) -> std::result::Result<i32, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn post(
        this: &Driver,
        steps: u32,
        n: u32,
        threads: u32,
        scratch: u32,
        sync: u32,
    ) -> std::result::Result<(), JsValue>;
    #[wasm_bindgen(method, catch)]
    fn help(
        this: &Driver,
        thread: u32,
        service: u32,
        scratch: u32,
        sync: u32,
        end: f64,
    ) -> std::result::Result<i32, JsValue>;
    #[wasm_bindgen(method)]
    fn left(this: &Driver, sync: u32) -> i32;
    #[wasm_bindgen(method)]
    fn stop(this: &Driver, sync: u32);
    #[wasm_bindgen(method)]
    fn dismiss(this: &Driver, sync: u32);
    #[wasm_bindgen(method)]
    fn fail(this: &Driver, sync: u32);
    #[wasm_bindgen(method)]
    fn failed(this: &Driver, sync: u32) -> i32;
    #[wasm_bindgen(method)]
    fn state(this: &Driver, sync: u32) -> i32;
}

/// A thread that makes no progress on its slice of a kernel for this many milliseconds is considered dead.
const STALL_TIMEOUT_MS: f64 = 60_000.0;
/// The same limit once a worker is known to have ended, since it may be the one that is missing.
const STALL_TIMEOUT_AFTER_EXIT_MS: f64 = 1000.0;

/// The workers of a device and the synchronisation words that they share with it.
pub(crate) struct Threads(Handle);

/// A shared reference to [`Threads`], held by compilations in progress.
#[derive(Clone)]
pub(crate) struct Handle(Rc<RefCell<Inner>>);

struct Inner {
    workers: Vec<JsValue>,
    driver: Driver,
    sync: u32,
    /// Address of this thread's scratch memory.
    scratch: u32,
    /// Number of the current `serve` loop of the workers, or of the next one.
    service: u32,
    serving: bool,
    /// Whether a job was posted that may not be done.
    job_pending: bool,
    /// Table entries of released kernels that the workers have not cleared yet.
    released_entries: Vec<u32>,
    /// How long a job may make no progress, in milliseconds.
    stall_timeout_ms: f64,
    /// The last observed progress of the job, and when this thread observed it.
    last_progress: Option<([i32; 3], f64)>,
    /// Why the device no longer works: a kernel or a thread failed.
    failure: Option<String>,
    /// Reports that failure.
    signal: Signal,
}

fn failed(what: impl Into<String>) -> Error {
    Error::Device { device: "wasm".into(), what: what.into() }
}

fn lost(what: impl Into<String>) -> Error {
    Error::Lost { device: "wasm".into(), what: what.into() }
}

impl Threads {
    /// Sends the driver module to every worker; `driver` is this thread's instance.
    pub(crate) fn start(
        workers: &Array,
        module: &Module,
        driver: &Driver,
        memory: &Memory,
        sync: usize,
        signal: Signal,
    ) -> Result<Threads> {
        let sync = sync as u32;
        for (i, w) in workers.iter().enumerate() {
            let message = js::object(&[
                ("kind", "start".into()),
                ("driver", module.clone().into()),
                ("memory", memory.clone().into()),
                ("sync", sync.into()),
                ("thread", (i as u32 + 1).into()),
            ]);
            send(&w, &message)?;
        }
        Ok(Threads(Handle(Rc::new(RefCell::new(Inner {
            workers: workers.iter().collect(),
            driver: driver.clone(),
            sync,
            scratch: 0,
            service: 0,
            serving: false,
            job_pending: false,
            released_entries: Vec::new(),
            stall_timeout_ms: STALL_TIMEOUT_MS,
            last_progress: None,
            failure: None,
            signal,
        })))))
    }

    /// Number of threads, including the calling one.
    pub(crate) fn count(&self) -> usize {
        self.0.0.borrow().workers.len() + 1
    }

    /// A reference for asynchronous work that outlives a borrow of the device.
    pub(crate) fn handle(&self) -> Handle {
        self.0.clone()
    }

    /// Instantiates a module in every worker; its first kernel gets the table entry `base`.
    pub(crate) fn load(&mut self, module: &Module, base: u32) -> Result<()> {
        self.0.load(module, base)
    }

    /// Releases a kernel that no job calls any more; workers clear its entry before they load the next module.
    pub(crate) fn release(&mut self, entry: u32) {
        self.0.0.borrow_mut().released_entries.push(entry);
    }

    /// Sets the scratch memory of all threads: thread `t` uses the `t`-th piece of `bytes` bytes.
    pub(crate) fn set_scratch(&mut self, at: usize, bytes: usize) -> Result<()> {
        let mut inner = self.0.0.borrow_mut();
        inner.stop_serving()?;
        inner.scratch = at as u32;
        for (i, w) in inner.workers.iter().enumerate() {
            let address = (at + (i + 1) * bytes) as u32;
            send(w, &js::object(&[("kind", "scratch".into()), ("scratch", address.into())]))?;
        }
        Ok(())
    }

    /// Starts a job; the previous one must be settled. It runs in the workers while the caller does other work, and the
    /// memory that it uses must stay until it is done.
    pub(crate) fn post(&mut self, steps: usize, n: usize) -> Result<()> {
        let mut inner = self.0.0.borrow_mut();
        inner.start_serving()?;
        let threads = inner.workers.len() as u32 + 1;
        (inner.job_pending, inner.stall_timeout_ms, inner.last_progress) = (true, STALL_TIMEOUT_MS, None);
        let done = inner.driver.post(steps as u32, n as u32, threads, inner.scratch, inner.sync);
        inner.check(done);
        Ok(())
    }

    /// Takes part in the job until it is done, or until the time `end` in milliseconds; returns whether it is done.
    pub(crate) fn work_until(&mut self, end: f64) -> Result<bool> {
        self.0.0.borrow_mut().work_until(end)
    }

    /// Whether no job is running.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.0.0.borrow();
        !inner.job_pending || inner.driver.state(inner.sync) == 0
    }

    /// Cancels the job. Threads may still finish their current slices.
    pub(crate) fn stop(&mut self) {
        let inner = self.0.0.borrow();
        if inner.job_pending {
            inner.driver.stop(inner.sync);
        }
    }
}

impl Handle {
    pub(crate) fn load(&self, module: &Module, base: u32) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.stop_serving()?;
        let free: Array = inner.released_entries.drain(..).map(JsValue::from).collect();
        for w in &inner.workers {
            let module = module.clone().into();
            let m = [("kind", "load".into()), ("module", module), ("base", base.into()), ("free", free.clone().into())];
            send(w, &js::object(&m))?;
        }
        Ok(())
    }

    /// Removes a worker that has ended. The others continue without it, also with the current job, unless that waits
    /// for the worker's slice.
    pub(crate) fn remove_worker(&self, worker: &JsValue) {
        let mut inner = self.0.borrow_mut();
        inner.workers.retain(|w| w != worker);
        inner.stall_timeout_ms = STALL_TIMEOUT_AFTER_EXIT_MS;
    }
}

impl Inner {
    /// Fails the job if this thread's part of it threw an exception.
    fn check<T>(&mut self, done: std::result::Result<T, JsValue>) {
        if let Err(e) = done {
            self.driver.fail(self.sync);
            self.lose(format!("a kernel failed: {}", text(&e)));
        }
    }

    fn lose(&mut self, why: String) {
        self.signal.lose(self.failure.get_or_insert(why));
    }

    fn work_until(&mut self, end: f64) -> Result<bool> {
        while self.job_pending {
            let done = self.driver.help(0, self.service, self.scratch, self.sync, end);
            let (state, left) = (self.driver.state(self.sync), self.driver.left(self.sync));
            let progress = [done.as_ref().copied().unwrap_or_default(), state, left];
            self.job_pending = done.is_err() || state != 0;
            self.check(done);
            if !self.job_pending {
                break;
            }
            // the others are still inside their slices of a step; none takes another slice because none is left
            match self.last_progress {
                Some((at, since)) if at == progress => {
                    if js::now() - since > self.stall_timeout_ms {
                        self.job_pending = false;
                        self.lose("a worker thread did not come back from its part of a kernel".into());
                    }
                }
                _ => self.last_progress = Some((progress, js::now())),
            }
            if js::now() >= end {
                break;
            }
        }
        if self.failure.is_none() && self.driver.failed(self.sync) != 0 {
            self.lose("a kernel failed: in a worker, which printed why".into());
        }
        self.failure.as_ref().map_or(Ok(!self.job_pending), |why| Err(lost(why)))
    }

    /// Makes workers enter the `serve` loop.
    fn start_serving(&mut self) -> Result<()> {
        if !self.serving {
            for w in &self.workers {
                send(w, &js::object(&[("kind", "serve".into()), ("service", self.service.into())]))?;
            }
            self.serving = true;
        }
        Ok(())
    }

    /// Makes workers leave the `serve` loop to receive messages. A worker that has not entered it yet will not do so.
    fn stop_serving(&mut self) -> Result<()> {
        let settled = self.work_until(f64::INFINITY);
        if self.serving {
            self.driver.dismiss(self.sync);
            self.service = self.service.wrapping_add(1);
            self.serving = false;
        }
        settled.map(|_| ())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut inner = self.0.0.borrow_mut();
        let _ = inner.stop_serving();
        for w in &inner.workers {
            let _ = send(w, &js::object(&[("kind", "stop".into())]));
        }
    }
}

fn send(worker: &JsValue, message: &JsValue) -> Result<()> {
    let f: Function = js::get(worker, "postMessage").unchecked_into();
    f.call1(worker, message).map(|_| ()).map_err(|e| failed(text(&e)))
}
