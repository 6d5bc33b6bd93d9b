//! Shows people what engines compile and run: `DEBUG=N` in the environment prints it on stderr, `VIZ=ADDRESS` sends it
//! to the page that `gradloom viz` serves at this address ([`crate::tell`]). The levels N are explained in
//! [`gradloom_core::engine::watch`].

use crate::disasm::disassemble;
use crate::tell::VizClient;
use anstyle::Style;
use gradloom_core::Result;
use gradloom_core::device::{Device, Step};
use gradloom_core::engine::GraphPass;
use gradloom_core::engine::plan::Compiled;
use gradloom_core::engine::watch::{Launch, Printer, Watcher};
use gradloom_core::schedule::{Ast, SchedulePass, Scheduling};
use gradloom_core::target::Target;
use gradloom_core::uop::{Graph, UOp};
use std::time::Instant;

/// The environment variable with the level to print.
pub const VARIABLE: &str = "DEBUG";
/// The level with everything, which the page shows.
const ALL: u8 = 7;

/// Prints on stderr. On a terminal that can show it, the first line about a kernel or a graph is bold.
fn print(text: &str) {
    match text.split_once('\n') {
        Some((first, rest)) => anstream::eprintln!("{BOLD}{first}{BOLD:#}\n{rest}"),
        None => anstream::eprintln!("{text}"),
    }
}

const BOLD: Style = Style::new().bold();

/// Takes the printed text.
type Out = Box<dyn FnMut(&str) + Send>;

/// A watcher that prints what an engine does.
pub struct Debug {
    printers: Vec<(Printer, Out)>,
}

impl Debug {
    /// The watcher that the environment asks for, if any. A value that is not a number above 0 is ignored, since other
    /// programs use the variable, too.
    pub fn of_environment() -> Option<Debug> {
        let level: u8 = std::env::var(VARIABLE).ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        let mut debug = Debug { printers: Vec::new() };
        if level > 0 {
            debug.add(level, Box::new(print));
        }
        match VizClient::of_environment() {
            Some(Ok(mut client)) => debug.add(ALL, Box::new(move |text| client.tell(text))),
            Some(Err(why)) => eprintln!("{why}"),
            None => {}
        }
        (!debug.printers.is_empty()).then_some(debug)
    }

    /// A watcher that passes text of this level to `out`.
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

    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, before: &[UOp], roots: &[UOp]) {
        for (printer, out) in &mut self.printers {
            for text in printer.rewritten(pass, g, before, roots) {
                out(&text);
            }
        }
    }

    fn scheduled(&mut self, pass: &SchedulePass, s: &Scheduling) {
        for (printer, out) in &mut self.printers {
            if let Some(text) = printer.scheduled(pass, s) {
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
