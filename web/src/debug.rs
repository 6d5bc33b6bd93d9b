//! `init({ debug })`: prints what a runtime's device compiles and runs, as lines of text for a JavaScript function. The
//! levels are defined in the core (`engine::watch`). This file belongs to the module part that also holds tuning, whose
//! cost estimates it prints, and nothing else refers to it.
//!
//! A launch counts as finished once a few bytes of its first buffer can be read, which works on every device. If that
//! requires the event loop to run, the next launch waits for it ([`crate::scheduler`]).

use crate::js::now;
use crate::runtime::{Inner, Runtime};
use crate::scheduler::StepTracker;
use gradloom_core::Result;
use gradloom_core::device::{Device, Step, View};
use gradloom_core::engine::watch::{Launch, Printer, Watcher};
use gradloom_core::engine::{Compiled, GraphPass};
use gradloom_core::schedule::{Ast, SchedulePass, Scheduling};
use gradloom_core::target::Target;
use gradloom_core::uop::{Graph, UOp};
use js_sys::Function;
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen_futures::spawn_local;

struct Debug {
    inner: Weak<Inner>,
    step_tracker: Rc<StepTracker>,
    lines: Rc<Lines>,
}

/// The printer of lines and the JavaScript function that receives them.
struct Lines {
    printer: RefCell<Printer>,
    log: Function,
}

impl Lines {
    fn log(&self, text: &str) {
        // exceptions of the caller's function are ignored
        let _ = self.log.call1(&JsValue::NULL, &text.into());
    }

    fn launch(&self, launch: &Launch, began: f64) {
        // browsers limit the resolution of the clock
        let nanos = ((now() - began) * 1e6).max(1e3) as u64;
        let line = self.printer.borrow_mut().launch(launch, nanos);
        self.log(&line);
    }
}

impl Watcher for Debug {
    fn wants_graphs(&self) -> bool {
        self.lines.printer.borrow().wants_graphs()
    }

    fn compiled(&mut self, ast: &Ast, kernel: &Compiled, target: &Target) {
        let text = self.lines.printer.borrow().kernel(ast, kernel, target, |_| String::new());
        self.lines.log(&text);
    }

    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, before: &[UOp], roots: &[UOp]) {
        let texts = self.lines.printer.borrow_mut().rewritten(pass, g, before, roots);
        for text in texts {
            self.lines.log(&text);
        }
    }

    fn scheduled(&mut self, pass: &SchedulePass, s: &Scheduling) {
        let text = self.lines.printer.borrow_mut().scheduled(pass, s);
        if let Some(text) = text {
            self.lines.log(&text);
        }
    }

    fn sees_steps(&self) -> bool {
        self.lines.printer.borrow().sees_steps()
    }

    fn submit(&mut self, device: &mut dyn Device, step: &Step, kernel: Option<&Compiled>) -> Result<()> {
        let view = match step {
            Step::Launch { args, .. } => args.first().copied(),
            Step::Copy { dst, .. } => Some(*dst),
        };
        let began = now();
        device.submit(std::slice::from_ref(step))?;
        let Some(view) = view else { return Ok(()) };
        let ticket = device.read(View { bytes: view.bytes.min(4), ..view })?;
        let launch = Launch::new(step, kernel);
        if device.poll(ticket)?.is_some() {
            self.lines.launch(&launch, began);
            return Ok(());
        }
        let Some(inner) = self.inner.upgrade() else { return Ok(()) };
        let (step_tracker, lines) = (self.step_tracker.clone(), self.lines.clone());
        step_tracker.begin();
        spawn_local(async move {
            loop {
                let arrived = inner.engine.borrow_mut().device().poll(ticket);
                match arrived {
                    Ok(None) => inner.signal.wait().await,
                    Ok(Some(_)) => {
                        lines.launch(&launch, began);
                        break;
                    }
                    // the loss of the device is reported to whatever runs on it
                    Err(_) => break,
                }
            }
            step_tracker.end();
        });
        Ok(())
    }
}

#[wasm_bindgen]
impl Runtime {
    /// Reports what is compiled and run from now on to a function, in the detail of `level`; level 0 turns reporting
    /// off.
    pub fn debug(&self, level: u8, log: Function) {
        let inner = &self.inner;
        let printer = Printer::new(level);
        let step_tracker = inner.scheduler.step_tracker();
        step_tracker.set_enabled(printer.sees_steps());
        let lines = Rc::new(Lines { printer: RefCell::new(printer), log });
        let watcher = Debug { inner: Rc::downgrade(inner), step_tracker, lines };
        inner.engine.borrow_mut().watch((level > 0).then(|| Box::new(watcher) as Box<dyn Watcher>));
    }
}
