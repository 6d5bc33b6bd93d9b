//! `init({ debug })`: what the device of a runtime compiles and runs, as lines for a function of JavaScript. The levels are the core's
//! (`engine::watch`). In the part of the module that tunes, whose estimates it shows: nothing else refers to it.
//!
//! A launch is over when a few bytes that it was given can be read, which holds for every device. Where that takes a turn of the page, the
//! next launch waits for it ([`crate::pace`]).

use crate::face::{Inner, Runtime};
use crate::js::now;
use crate::pace::Seen;
use gradloom_core::Result;
use gradloom_core::device::{Device, Step, View};
use gradloom_core::engine::watch::{Launch, Printer, Watcher};
use gradloom_core::engine::{Compiled, GraphPass};
use gradloom_core::schedule::Ast;
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
    seen: Rc<Seen>,
    lines: Rc<Lines>,
}

/// Where lines go.
struct Lines {
    printer: RefCell<Printer>,
    log: Function,
}

impl Lines {
    fn log(&self, text: &str) {
        // what it throws is its own affair
        let _ = self.log.call1(&JsValue::NULL, &text.into());
    }

    fn launch(&self, launch: &Launch, began: f64) {
        // clocks of pages are coarse
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

    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, roots: &[UOp]) {
        if let Some(text) = self.lines.printer.borrow().rewritten(pass, g, roots) {
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
        let (seen, lines) = (self.seen.clone(), self.lines.clone());
        seen.begin();
        spawn_local(async move {
            loop {
                let arrived = inner.engine.borrow_mut().device().poll(ticket);
                match arrived {
                    Ok(None) => inner.signal.wait().await,
                    Ok(Some(_)) => {
                        lines.launch(&launch, began);
                        break;
                    }
                    // a lost device says so to whoever runs something on it
                    Err(_) => break,
                }
            }
            seen.end();
        });
        Ok(())
    }
}

#[wasm_bindgen]
impl Runtime {
    /// Has a function be told what is compiled and run from now on, as far as a level says; nothing at 0.
    pub fn debug(&self, level: u8, log: Function) {
        let inner = &self.inner;
        let printer = Printer::new(level);
        let seen = inner.pace.seen();
        seen.set(printer.sees_steps());
        let lines = Rc::new(Lines { printer: RefCell::new(printer), log });
        let watcher = Debug { inner: Rc::downgrade(inner), seen, lines };
        inner.engine.borrow_mut().watch((level > 0).then(|| Box::new(watcher) as Box<dyn Watcher>));
    }
}
