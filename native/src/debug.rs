//! `DEBUG=N` in the environment: what engines compile and run, on stderr. Each level shows what those below it do, and as in tinygrad
//!
//! - 1: kernels as they are compiled, with their operations and bytes
//! - 2: every launch, waited for, with its time and rates
//! - 3: the opts and the parameters of kernels
//! - 4: their code, where that is text
//! - 5: their graphs as the scheduler made them
//! - 6: the graph after each pass that changed it
//! - 7: machine code
//!
//! From level 3 on kernels are compiled even if the cache on disk has them: what is in there has no graph.

use crate::disasm::disassemble;
use gradloom_core::codegen::{self, PASSES, ParamInfo};
use gradloom_core::device::Step;
use gradloom_core::engine::Watcher;
use gradloom_core::engine::plan::Compiled;
use gradloom_core::render::Code;
use gradloom_core::schedule::Ast;
use gradloom_core::target::Target;
use gradloom_core::uop::print::print;
use std::fmt::Write as _;
use std::time::Instant;

/// The environment's variable.
pub const VARIABLE: &str = "DEBUG";
/// From here on launches are timed.
const LAUNCHES: u8 = 2;
/// From here on graphs are wanted.
const GRAPHS: u8 = 3;

/// Prints what an engine does.
pub struct Debug {
    level: u8,
    out: Box<dyn FnMut(&str) + Send>,
    began: Instant,
    launches: usize,
    seconds: f64,
}

impl Debug {
    /// As the environment says: none for what is no number above 0, since other programs use the variable too.
    pub fn of_environment() -> Option<Debug> {
        let level: u8 = std::env::var(VARIABLE).ok()?.parse().ok()?;
        (level > 0).then(|| Debug::new(level, Box::new(|text| eprintln!("{text}"))))
    }

    /// Of a level, to a printer of lines.
    pub fn new(level: u8, out: Box<dyn FnMut(&str) + Send>) -> Debug {
        Debug { level, out, began: Instant::now(), launches: 0, seconds: 0.0 }
    }

    /// Are kernels to be compiled although a cache has them?
    pub(crate) fn wants_graphs(&self) -> bool {
        self.level >= GRAPHS
    }

    /// The graph after each pass that changed it, on the way to this kernel.
    fn passes(&self, ast: &Ast, kernel: &Compiled, target: &Target) -> String {
        let (mut text, mut last) = (String::new(), print(&ast.g, &[ast.sink]));
        let opts = kernel.program.as_ref().map(|p| p.opts.as_slice());
        let done = codegen::compile_watched(ast, target, opts, &mut |pass, lowering| {
            let now = lowering.text();
            if now != last {
                let number = PASSES.iter().position(|p| p.name == pass.name).map_or(0, |i| i + 1);
                let _ = write!(text, "// pass {number}, {}: {}\n{now}", pass.name, pass.what);
            }
            last = now;
        });
        if let Err(e) = done {
            let _ = writeln!(text, "// {e}");
        }
        text
    }
}

impl Watcher for Debug {
    fn compiled(&mut self, ast: &Ast, kernel: &Compiled, target: &Target) {
        let [x, y, z] = kernel.grid;
        let mut text = format!("kernel {}", kernel.source.name);
        let _ = write!(text, "  grid {x} {y} {z}  {} flops  {} bytes", kernel.flops, kernel.bytes);
        if self.level >= 3 {
            let opts: Vec<String> = kernel.program.iter().flat_map(|p| &p.opts).map(ToString::to_string).collect();
            let _ = write!(text, "\n  opts: {}", if opts.is_empty() { "none".into() } else { opts.join(", ") });
            let roles = |p: &ParamInfo| match (p.read, p.written) {
                (true, true) => "read and written",
                (false, true) => "written",
                _ => "read",
            };
            for (slot, p) in kernel.source.params.iter().enumerate() {
                let _ = write!(text, "\n  parameter {slot}: {} {} elements, {}", p.len, p.dtype, roles(p));
            }
        }
        if self.level >= 4
            && let Code::Text(code) = &kernel.source.code
        {
            let _ = write!(text, "\n{}", code.trim_end());
        }
        if self.level >= 5 {
            let _ = write!(text, "\n// as scheduled\n{}", print(&ast.g, &[ast.sink]).trim_end());
        }
        if self.level >= 6 {
            let _ = write!(text, "\n{}", self.passes(ast, kernel, target).trim_end());
        }
        if self.level >= 7
            && let Code::Bytes(code) = &kernel.source.code
        {
            let _ = write!(text, "\n{}", disassemble(code).trim_end());
        }
        (self.out)(&text);
    }

    fn sees_steps(&self) -> bool {
        self.level >= LAUNCHES
    }

    fn begins(&mut self) {
        self.began = Instant::now();
    }

    fn ended(&mut self, step: &Step, kernel: Option<&Compiled>) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.launches += 1;
        self.seconds += seconds;
        let (n, us, all) = (self.launches, seconds * 1e6, self.seconds * 1e3);
        let line = match (step, kernel) {
            (Step::Copy { src, .. }, _) => {
                format!(
                    "{n:6} {:40} {us:10.1} us  {all:9.2} ms in all  {:8.2} GB/s",
                    "copy",
                    src.bytes as f64 / seconds / 1e9
                )
            }
            (_, Some(k)) => {
                let (flops, bytes) = (k.flops as f64 / seconds / 1e9, k.bytes as f64 / seconds / 1e9);
                format!(
                    "{n:6} {:40} {us:10.1} us  {all:9.2} ms in all  {bytes:8.2} GB/s {flops:9.2} GFLOP/s",
                    k.source.name
                )
            }
            _ => format!("{n:6} {:40} {us:10.1} us  {all:9.2} ms in all", "kernel"),
        };
        (self.out)(&line);
    }
}
