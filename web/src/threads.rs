//! Worker threads of the WASM device. A worker runs the driver's `serve` loop on the shared memory and leaves it only to take
//! messages: a module to instantiate, another scratch address. See the core's `render::wasm` for the words they share.

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
    /// What the driver exports; all but `begin` and `go` on shared memory only.
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

/// Milliseconds after which a thread that does not come back from its slice of a kernel is taken for dead.
const PATIENCE_MS: f64 = 60_000.0;
/// The same once a worker is known to have ended: it may be the one.
const PATIENCE_AFTER_DEATH_MS: f64 = 1000.0;

/// The workers of a device and the words they share with it.
pub(crate) struct Threads(Handle);

/// The same, held by a compilation that is not done yet.
#[derive(Clone)]
pub(crate) struct Handle(Rc<RefCell<Inner>>);

struct Inner {
    workers: Vec<JsValue>,
    driver: Driver,
    sync: u32,
    /// Where this thread's scratch memory is.
    scratch: u32,
    /// Number of the service that workers are in, or else of the next.
    service: u32,
    serving: bool,
    /// A job was given to them that may not be done.
    working: bool,
    /// Entries of their tables whose kernels are released, and that they do not know of yet.
    free: Vec<u32>,
    /// How long the job may stand still.
    patience_ms: f64,
    /// How far the job was when this thread last saw it get further, and when.
    seen: Option<([i32; 3], f64)>,
    /// Why what was computed is not there, and nothing more is: a kernel failed, or a thread.
    broken: Option<String>,
    /// Tells of that.
    signal: Signal,
}

fn failed(what: impl Into<String>) -> Error {
    Error::Device { device: "wasm".into(), what: what.into() }
}

fn lost(what: impl Into<String>) -> Error {
    Error::Lost { device: "wasm".into(), what: what.into() }
}

impl Threads {
    /// Gives every worker the driver, which `driver` is here.
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
            working: false,
            free: Vec::new(),
            patience_ms: PATIENCE_MS,
            seen: None,
            broken: None,
            signal,
        })))))
    }

    /// Threads in all, with the caller's.
    pub(crate) fn count(&self) -> usize {
        self.0.0.borrow().workers.len() + 1
    }

    /// For work that outlives the borrow of the device.
    pub(crate) fn handle(&self) -> Handle {
        self.0.clone()
    }

    /// Instantiates a module in every worker; its first kernel becomes entry `base` of the table.
    pub(crate) fn load(&mut self, module: &Module, base: u32) -> Result<()> {
        self.0.load(module, base)
    }

    /// Forgets a kernel, which no job calls any more: workers do so before they load the next module.
    pub(crate) fn release(&mut self, entry: u32) {
        self.0.0.borrow_mut().free.push(entry);
    }

    /// Tells every thread where its scratch memory is: thread `t` has the `t`-th piece.
    pub(crate) fn set_scratch(&mut self, at: usize, bytes: usize) -> Result<()> {
        let mut inner = self.0.0.borrow_mut();
        inner.leave()?;
        inner.scratch = at as u32;
        for (i, w) in inner.workers.iter().enumerate() {
            let address = (at + (i + 1) * bytes) as u32;
            send(w, &js::object(&[("kind", "scratch".into()), ("scratch", address.into())]))?;
        }
        Ok(())
    }

    /// Begins a job, the last one being settled. It goes on while the caller does something else, and what it needs must stay
    /// until it is done.
    pub(crate) fn post(&mut self, steps: usize, n: usize) -> Result<()> {
        let mut inner = self.0.0.borrow_mut();
        inner.enter()?;
        let threads = inner.workers.len() as u32 + 1;
        (inner.working, inner.patience_ms, inner.seen) = (true, PATIENCE_MS, None);
        let done = inner.driver.post(steps as u32, n as u32, threads, inner.scratch, inner.sync);
        inner.check(done);
        Ok(())
    }

    /// Takes part in the job until it is done, or until `end`, in milliseconds; whether it is done.
    pub(crate) fn settle(&mut self, end: f64) -> Result<bool> {
        self.0.0.borrow_mut().settle(end)
    }

    /// Is no job under way?
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.0.0.borrow();
        !inner.working || inner.driver.state(inner.sync) == 0
    }

    /// Ends the job where it is. Threads may be in their last slices of it for a while.
    pub(crate) fn stop(&mut self) {
        let inner = self.0.0.borrow();
        if inner.working {
            inner.driver.stop(inner.sync);
        }
    }
}

impl Handle {
    pub(crate) fn load(&self, module: &Module, base: u32) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.leave()?;
        let free: Array = inner.free.drain(..).map(JsValue::from).collect();
        for w in &inner.workers {
            let module = module.clone().into();
            let m = [("kind", "load".into()), ("module", module), ("base", base.into()), ("free", free.clone().into())];
            send(w, &js::object(&m))?;
        }
        Ok(())
    }

    /// A worker has ended. The others go on without it, also with the job under way, unless that was waiting for its part.
    pub(crate) fn gone(&self, worker: &JsValue) {
        let mut inner = self.0.borrow_mut();
        inner.workers.retain(|w| w != worker);
        inner.patience_ms = PATIENCE_AFTER_DEATH_MS;
    }
}

impl Inner {
    /// Ends the job where this thread's part of it threw an exception.
    fn check<T>(&mut self, done: std::result::Result<T, JsValue>) {
        if let Err(e) = done {
            self.driver.fail(self.sync);
            self.lose(format!("a kernel failed: {}", text(&e)));
        }
    }

    fn lose(&mut self, why: String) {
        self.signal.lose(self.broken.get_or_insert(why));
    }

    fn settle(&mut self, end: f64) -> Result<bool> {
        while self.working {
            let done = self.driver.help(0, self.service, self.scratch, self.sync, end);
            let (state, left) = (self.driver.state(self.sync), self.driver.left(self.sync));
            let now_at = [done.as_ref().copied().unwrap_or_default(), state, left];
            self.working = done.is_err() || state != 0;
            self.check(done);
            if !self.working {
                break;
            }
            // the others are inside of a step, and if nobody takes any more of it, then because nothing is left
            match self.seen {
                Some((at, since)) if at == now_at => {
                    if js::now() - since > self.patience_ms {
                        self.working = false;
                        self.lose("a worker thread did not come back from its part of a kernel".into());
                    }
                }
                _ => self.seen = Some((now_at, js::now())),
            }
            if js::now() >= end {
                break;
            }
        }
        if self.broken.is_none() && self.driver.failed(self.sync) != 0 {
            self.lose("a kernel failed: in a worker, which printed why".into());
        }
        self.broken.as_ref().map_or(Ok(!self.working), |why| Err(lost(why)))
    }

    /// Lets workers that are out serve again.
    fn enter(&mut self) -> Result<()> {
        if !self.serving {
            for w in &self.workers {
                send(w, &js::object(&[("kind", "serve".into()), ("service", self.service.into())]))?;
            }
            self.serving = true;
        }
        Ok(())
    }

    /// Brings workers back to where they take messages. One that has not begun to serve yet will not.
    fn leave(&mut self) -> Result<()> {
        let settled = self.settle(f64::INFINITY);
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
        let _ = inner.leave();
        for w in &inner.workers {
            let _ = send(w, &js::object(&[("kind", "stop".into())]));
        }
    }
}

fn send(worker: &JsValue, message: &JsValue) -> Result<()> {
    let f: Function = js::get(worker, "postMessage").unchecked_into();
    f.call1(worker, message).map(|_| ()).map_err(|e| failed(text(&e)))
}
