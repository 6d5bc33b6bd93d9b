//! What engines compile and run, for people: `DEBUG=N` in the environment prints it on stderr, `VIZ=ADDRESS` sends it to the page that
//! `gradloom viz` serves there ([`crate::tell`]). The levels are [`gradloom_core::engine::watch`]'s.

use crate::disasm::disassemble;
use crate::tell::Teller;
use anstyle::Style;
use gradloom_core::Result;
use gradloom_core::device::{Device, Step};
use gradloom_core::engine::GraphPass;
use gradloom_core::engine::plan::Compiled;
use gradloom_core::engine::watch::{Launch, Printer, Watcher};
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::uop::{Graph, UOp};
use std::time::Instant;

/// The environment's variable of the level that is printed.
pub const VARIABLE: &str = "DEBUG";
/// Everything: what the page shows.
const ALL: u8 = 7;

/// On stderr; on a terminal that shows it the first line of what is told of a kernel or a graph is bold.
fn print(text: &str) {
    match text.split_once('\n') {
        Some((first, rest)) => anstream::eprintln!("{BOLD}{first}{BOLD:#}\n{rest}"),
        None => anstream::eprintln!("{text}"),
    }
}

const BOLD: Style = Style::new().bold();

/// Where lines go.
type Out = Box<dyn FnMut(&str) + Send>;

/// Prints what an engine does.
pub struct Debug {
    printers: Vec<(Printer, Out)>,
}

impl Debug {
    /// As the environment says: none if it asks for nothing. A level that is no number above 0 asks for nothing, since other programs use
    /// the variable too.
    pub fn of_environment() -> Option<Debug> {
        let level: u8 = std::env::var(VARIABLE).ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        let mut debug = Debug { printers: Vec::new() };
        if level > 0 {
            debug.add(level, Box::new(print));
        }
        match Teller::of_environment() {
            Some(Ok(mut teller)) => debug.add(ALL, Box::new(move |text| teller.tell(text))),
            Some(Err(why)) => eprintln!("{why}"),
            None => {}
        }
        (!debug.printers.is_empty()).then_some(debug)
    }

    /// Of a level, to a printer of lines.
    pub fn new(level: u8, out: Out) -> Debug {
        Debug { printers: vec![(Printer::new(level), out)] }
    }

    fn add(&mut self, level: u8, out: Out) {
        self.printers.push((Printer::new(level), out));
    }
}

impl Watcher for Debug {
    fn wants_graphs(&self) -> bool {
        self.printers.iter().any(|(p, _)| p.wants_graphs())
    }

    fn compiled(&mut self, ast: &Ast, kernel: &Compiled, target: &Target) {
        for (printer, out) in &mut self.printers {
            out(&printer.kernel(ast, kernel, target, disassemble));
        }
    }

    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, roots: &[UOp]) {
        for (printer, out) in &mut self.printers {
            if let Some(text) = printer.rewritten(pass, g, roots) {
                out(&text);
            }
        }
    }

    fn sees_steps(&self) -> bool {
        self.printers.iter().any(|(p, _)| p.sees_steps())
    }

    fn submit(&mut self, device: &mut dyn Device, step: &Step, kernel: Option<&Compiled>) -> Result<()> {
        let began = Instant::now();
        device.submit(std::slice::from_ref(step))?;
        device.sync()?;
        let nanos = began.elapsed().as_nanos() as u64;
        for (printer, out) in self.printers.iter_mut().filter(|(p, _)| p.sees_steps()) {
            out(&printer.launch(&Launch::new(step, kernel), nanos));
        }
        Ok(())
    }
}
