//! `DEBUG=N` in the environment: what engines compile and run, on stderr. The levels are [`gradloom_core::engine::watch`]'s.

use crate::disasm::disassemble;
use gradloom_core::Result;
use gradloom_core::device::{Device, Step};
use gradloom_core::engine::GraphPass;
use gradloom_core::engine::plan::Compiled;
use gradloom_core::engine::watch::{Launch, Printer, Watcher};
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::uop::{Graph, UOp};
use std::time::Instant;

/// The environment's variable.
pub const VARIABLE: &str = "DEBUG";

/// Prints what an engine does.
pub struct Debug {
    printer: Printer,
    out: Box<dyn FnMut(&str) + Send>,
}

impl Debug {
    /// As the environment says: none for what is no number above 0, since other programs use the variable too.
    pub fn of_environment() -> Option<Debug> {
        let level: u8 = std::env::var(VARIABLE).ok()?.parse().ok()?;
        (level > 0).then(|| Debug::new(level, Box::new(|text| eprintln!("{text}"))))
    }

    /// Of a level, to a printer of lines.
    pub fn new(level: u8, out: Box<dyn FnMut(&str) + Send>) -> Debug {
        Debug { printer: Printer::new(level), out }
    }
}

impl Watcher for Debug {
    fn wants_graphs(&self) -> bool {
        self.printer.wants_graphs()
    }

    fn compiled(&mut self, ast: &Ast, kernel: &Compiled, target: &Target) {
        (self.out)(&self.printer.kernel(ast, kernel, target, disassemble));
    }

    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, roots: &[UOp]) {
        if let Some(text) = self.printer.rewritten(pass, g, roots) {
            (self.out)(&text);
        }
    }

    fn sees_steps(&self) -> bool {
        self.printer.sees_steps()
    }

    fn submit(&mut self, device: &mut dyn Device, step: &Step, kernel: Option<&Compiled>) -> Result<()> {
        let began = Instant::now();
        device.submit(std::slice::from_ref(step))?;
        device.sync()?;
        let nanos = began.elapsed().as_nanos() as u64;
        (self.out)(&self.printer.launch(&Launch::new(step, kernel), nanos));
        Ok(())
    }
}
