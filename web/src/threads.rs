//! Worker threads of the WASM device. A worker runs the driver's `serve` loop on the shared memory and leaves it only to take
//! messages: a module to instantiate, another scratch address. See the core's `render::wasm` for the words they share.

use crate::js::{self, text};
use gradloom_core::render::wasm::{LEAVE, Sync};
use gradloom_core::{Error, Result};
use js_sys::WebAssembly::{Memory, Module};
use js_sys::{Array, Atomics, Function, Int32Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::{JsCast, JsValue};

/// The workers of a device and the words they share with it.
pub(crate) struct Threads(Handle);

/// The same, held by a compilation that is not done yet.
#[derive(Clone)]
pub(crate) struct Handle(Rc<RefCell<Inner>>);

struct Inner {
    workers: Vec<JsValue>,
    memory: Memory,
    /// The driver's `post`.
    give: Function,
    sync: usize,
    serving: bool,
}

fn failed(what: impl Into<String>) -> Error {
    Error::Device { device: "wasm".into(), what: what.into() }
}

impl Threads {
    /// Gives every worker the driver and lets it serve.
    pub(crate) fn start(
        workers: &Array,
        driver: &Module,
        give: Function,
        memory: &Memory,
        sync: usize,
    ) -> Result<Threads> {
        let list: Vec<JsValue> = workers.iter().collect();
        let inner = Inner { workers: list, memory: memory.clone(), give, sync, serving: false };
        // the worker may read this after the next job is posted, so it is told which was the last
        let last = Atomics::load(&inner.words(), (Sync::JOB / 4) as u32).unwrap_or(0);
        for (i, w) in inner.workers.iter().enumerate() {
            let message = js::object(&[
                ("kind", "start".into()),
                ("driver", driver.clone().into()),
                ("memory", memory.clone().into()),
                ("sync", (sync as u32).into()),
                ("thread", (i as u32 + 1).into()),
                ("last", last.into()),
            ]);
            post(w, &message)?;
        }
        Ok(Threads(Handle(Rc::new(RefCell::new(inner)))))
    }

    /// Threads in all, with the caller's.
    pub(crate) fn count(&self) -> usize {
        self.0.0.borrow().workers.len() + 1
    }

    /// For work that outlives the borrow of the device.
    pub(crate) fn handle(&self) -> Handle {
        self.0.clone()
    }

    /// Instantiates a module in every worker; its functions are in the table's first `entries`.
    pub(crate) fn load(&mut self, module: &Module, entries: u32) -> Result<()> {
        self.0.load(module, entries)
    }

    /// Tells every worker where its scratch memory is: worker `t` has the `t`-th piece.
    pub(crate) fn set_scratch(&mut self, at: usize, bytes: usize) -> Result<()> {
        let mut inner = self.0.0.borrow_mut();
        inner.leave()?;
        for (i, w) in inner.workers.iter().enumerate() {
            let address = (at + (i + 1) * bytes) as u32;
            post(w, &js::object(&[("kind", "scratch".into()), ("scratch", address.into())]))?;
        }
        Ok(())
    }

    /// Posts a job to all workers. The caller then runs its own share; how many threads there are comes back.
    pub(crate) fn post(&mut self, steps: usize, n: usize) -> Result<usize> {
        let mut inner = self.0.0.borrow_mut();
        inner.enter()?;
        let threads = inner.workers.len() + 1;
        inner.job(steps as u32, n as u32, threads as u32)?;
        Ok(threads)
    }
}

impl Handle {
    pub(crate) fn load(&self, module: &Module, entries: u32) -> Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.leave()?;
        for w in &inner.workers {
            let m = [("kind", "load".into()), ("module", module.clone().into()), ("entries", entries.into())];
            post(w, &js::object(&m))?;
        }
        Ok(())
    }
}

impl Inner {
    fn words(&self) -> Int32Array {
        Int32Array::new_with_byte_offset_and_length(&self.memory.buffer(), self.sync as u32, 16)
    }

    fn job(&self, steps: u32, n: u32, threads: u32) -> Result<()> {
        let args: Array = [steps, n, threads, self.sync as u32].map(JsValue::from).iter().collect();
        self.give.apply(&JsValue::NULL, &args).map(|_| ()).map_err(|e| failed(text(&e)))
    }

    /// Lets workers that are out serve again.
    fn enter(&mut self) -> Result<()> {
        if !self.serving {
            for w in &self.workers {
                post(w, &js::object(&[("kind", "serve".into())]))?;
            }
            self.serving = true;
        }
        Ok(())
    }

    /// Brings workers back to where they take messages. They all are in `serve`: it is entered for a job, and that job's
    /// last barrier waited for every worker.
    fn leave(&mut self) -> Result<()> {
        if self.serving {
            self.job(0, LEAVE, 0)?;
            self.serving = false;
            let words = self.words();
            let serving = || Atomics::load(&words, (Sync::SERVING / 4) as u32).unwrap_or(0);
            while serving() > 0 {
                core::hint::spin_loop();
            }
        }
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let mut inner = self.0.0.borrow_mut();
        let _ = inner.leave();
        for w in &inner.workers {
            let _ = post(w, &js::object(&[("kind", "stop".into())]));
        }
    }
}

fn post(worker: &JsValue, message: &JsValue) -> Result<()> {
    let f: Function = js::get(worker, "postMessage").unchecked_into();
    f.call1(worker, message).map(|_| ()).map_err(|e| failed(text(&e)))
}
