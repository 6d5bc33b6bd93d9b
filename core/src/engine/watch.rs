//! Observing an engine: the [`Watcher`], which is told what the engine does, and the [`Printer`], which makes text of
//! that. What is printed depends on a level. Each level includes those below it, and the numbers are those of
//! tinygrad's `DEBUG`:
//!
//! - 1: kernels as they are compiled, with their operations and bytes
//! - 2: every launch, waited for, with its time and rates
//! - 3: the opts and the parameters of kernels, their estimated times and what bounds those, and the memory of each launch
//! - 4: their code: WGSL, C, LLVM IR or WebAssembly
//! - 5: their graphs as the scheduler made them
//! - 6: the graph after each pass that changed it, of models ([`super::passes`]), of the scheduler and of kernels
//! - 7: machine code
//!
//! From level 3 on kernels are compiled even if a cache has them, because cached kernels have no graph. There is no
//! clock here: the caller has one. The engine never refers to the printer, so pages that do not debug do not load it.
//! For the same reason the printer formats no floats: code that it shared with another part of the module would be
//! loaded by all pages.

use super::passes::GraphPass;
use super::plan::Compiled;
use crate::Result;
use crate::codegen::cost::cost;
use crate::codegen::{self, PASSES, ParamInfo};
use crate::device::{Device, MaySend, Step, View};
use crate::render::Code;
use crate::render::wasm::instructions;
use crate::schedule::{Ast, SchedulePass, Scheduling};
use crate::target::{Lang, Target};
use crate::uop::print::print;
use crate::uop::{Graph, UOp};
use std::fmt::Write as _;

/// The lowest level at which launches are timed.
const LAUNCHES: u8 = 2;
/// The lowest level at which kernels are compiled even if a cache has them.
const GRAPHS: u8 = 3;

/// What a model's graph is called before its passes, and what it is.
pub const LOADED: (&str, &str) = ("loaded", "The graph of the model's file.");

/// Is told what an engine does.
pub trait Watcher: MaySend {
    /// Does it want kernels to be compiled even if a cache has them?
    fn wants_graphs(&self) -> bool;

    /// A kernel was compiled for a target from this graph.
    fn compiled(&mut self, ast: &Ast, kernel: &Compiled, target: &Target);

    /// A pass over the graph of a model rewrote its roots from `before` to these, or found these constants.
    fn rewrote(&mut self, pass: &GraphPass, g: &Graph, before: &[UOp], roots: &[UOp]);

    /// A pass of the scheduler is done.
    fn scheduled(&mut self, pass: &SchedulePass, s: &Scheduling);

    /// Does it want to see steps? Then each step is submitted by its own call of [`Watcher::submit`].
    fn sees_steps(&self) -> bool;

    /// Submits a step. A copy has no kernel.
    ///
    /// # Errors
    /// Those of the device.
    fn submit(&mut self, device: &mut dyn Device, step: &Step, kernel: Option<&Compiled>) -> Result<()>;
}

/// What is printed about a step once it is done.
pub struct Launch {
    name: String,
    bytes: Option<u64>,
    flops: Option<u64>,
    views: Vec<View>,
}

impl Launch {
    /// The description of a step; a copy has no kernel.
    pub fn new(step: &Step, kernel: Option<&Compiled>) -> Launch {
        let (name, bytes) = match step {
            Step::Copy { src, .. } => ("copy", Some(src.bytes as u64)),
            Step::Launch { .. } => (kernel.map_or("kernel", |k| &k.source.name), kernel.map(|k| k.bytes)),
        };
        let views = match step {
            Step::Copy { src, dst } => vec![*dst, *src],
            Step::Launch { args, .. } => args.clone(),
        };
        Launch { name: name.into(), bytes, flops: kernel.map(|k| k.flops), views }
    }
}

/// Makes the text that is printed at a level.
pub struct Printer {
    level: u8,
    launches: usize,
    nanos: u64,
    /// The text of a model's graph after the last pass.
    graph: String,
    /// The text of the schedule after the last pass.
    schedule: String,
}

impl Printer {
    /// A printer for a level that has counted no launches yet.
    pub fn new(level: u8) -> Printer {
        Printer { level, launches: 0, nanos: 0, graph: String::new(), schedule: String::new() }
    }

    /// As [`Watcher::wants_graphs`].
    pub fn wants_graphs(&self) -> bool {
        self.level >= GRAPHS
    }

    /// As [`Watcher::sees_steps`].
    pub fn sees_steps(&self) -> bool {
        self.level >= LAUNCHES
    }

    /// The text for a kernel that was compiled. `disassemble` turns machine code into text.
    pub fn kernel(&self, ast: &Ast, kernel: &Compiled, target: &Target, disassemble: fn(&[u8]) -> String) -> String {
        let [x, y, z] = kernel.grid;
        let mut text = format!("kernel {}", kernel.source.name);
        let _ = write!(text, "  grid {x} {y} {z}  {} flops  {} bytes", kernel.flops, kernel.bytes);
        if self.level >= 3 {
            let opts: Vec<String> = kernel.program.iter().flat_map(|p| &p.opts).map(ToString::to_string).collect();
            let _ = write!(text, "\n  opts: {}", if opts.is_empty() { "none".into() } else { opts.join(", ") });
            if let Some(p) = &kernel.program {
                let c = cost(p, target);
                let _ =
                    write!(text, "\n  estimate: {} us, bound by {}", decimal(c.ns.round() as u64, 1000, 1), c.bound);
            }
            let roles = |p: &ParamInfo| match (p.read, p.written) {
                (true, true) => "read and written",
                (false, true) => "written",
                _ => "read",
            };
            for (slot, p) in kernel.source.params.iter().enumerate() {
                let _ = write!(text, "\n  parameter {slot}: {} {} elements, {}", p.len, p.dtype, roles(p));
            }
        }
        let is_wasm = target.lang == Lang::Wasm;
        let mut add = |code: String| {
            text.push('\n');
            text.push_str(code.trim_end());
        };
        match &kernel.source.code {
            Code::Text(code) if self.level >= 4 => add(code.clone()),
            Code::Bytes(code) if self.level >= 4 && is_wasm => add(instructions(code)),
            _ => {}
        }
        if self.level >= 5 {
            add(format!("// as scheduled\n{}", print(&ast.g, &ast.roots())));
        }
        if self.level >= 6 {
            add(passes(ast, kernel, target));
        }
        match &kernel.source.code {
            Code::Bytes(code) if self.level >= 7 && !is_wasm => add(format!("// machine code\n{}", disassemble(code))),
            _ => {}
        }
        text
    }

    /// The texts for the graph of a model after a pass that changed it, or for the graphs of the constants that the pass
    /// found; first the graph as it was loaded, if no pass has changed it before. None below level 6.
    pub fn rewritten(&mut self, pass: &GraphPass, g: &Graph, before: &[UOp], roots: &[UOp]) -> Vec<String> {
        if self.level < 6 {
            return Vec::new();
        }
        let told = |name: &str, what: &str, text: &str| format!("// graph pass {name}: {what}\n{}", text.trim_end());
        let (old, new) = (print(g, before), print(g, roots));
        let loaded = (old != self.graph).then(|| told(LOADED.0, LOADED.1, &old));
        let texts = loaded.into_iter().chain([told(pass.name, pass.what, &new)]).collect();
        self.graph = new;
        texts
    }

    /// The text of a schedule after a pass that changed it. `None` below level 6.
    pub fn scheduled(&mut self, pass: &SchedulePass, s: &Scheduling) -> Option<String> {
        if self.level < 6 {
            return None;
        }
        let now = s.text();
        let text = (now != self.schedule)
            .then(|| format!("// schedule pass {}: {}\n{}", pass.name, pass.what, now.trim_end()));
        self.schedule = now;
        text
    }

    /// The line for a launch that is done and took `nanos` nanoseconds.
    pub fn launch(&mut self, launch: &Launch, nanos: u64) -> String {
        self.launches += 1;
        self.nanos += nanos;
        let (n, us, all) = (self.launches, decimal(nanos, 1000, 1), decimal(self.nanos, 1_000_000, 2));
        let mut line = format!("{n:6} {:40} {us:>10} us  {all:>9} ms in all", launch.name);
        // a byte in a nanosecond is a gigabyte in a second
        if let Some(bytes) = launch.bytes {
            let _ = write!(line, "  {:>8} GB/s", decimal(bytes, nanos.max(1), 2));
        }
        if let Some(flops) = launch.flops {
            let _ = write!(line, " {:>9} GFLOP/s", decimal(flops, nanos.max(1), 2));
        }
        // for each parameter in order: the number of its allocation, its offset there, and its bytes
        if self.level >= GRAPHS {
            line.push_str("\n  memory:");
            for View { buf, offset, bytes } in &launch.views {
                let _ = write!(line, " {}@{offset}+{bytes}", buf.0);
            }
        }
        line
    }
}

/// `n / of` in decimal with `digits` digits after the point.
fn decimal(n: u64, of: u64, digits: u32) -> String {
    let one = 10u128.pow(digits);
    let all = (u128::from(n) * one + u128::from(of) / 2) / u128::from(of);
    format!("{}.{:02$}", (all / one) as u64, (all % one) as u64, digits as usize)
}

/// The kernel's graph after each pass that changed it, from the scheduler's graph to the program.
fn passes(ast: &Ast, kernel: &Compiled, target: &Target) -> String {
    let (mut text, mut last) = (String::new(), print(&ast.g, &ast.roots()));
    let opts = kernel.program.as_ref().map(|p| p.opts.as_slice());
    let done = codegen::compile_watched(ast, target, opts, &mut |pass, lowering| {
        let now = lowering.text();
        if now != last {
            let number = PASSES.iter().position(|p| p.name == pass.name).map_or(0, |i| i + 1);
            let _ = write!(text, "// pass {number}, {}: {}\n{}{now}", pass.name, pass.what, lowering.rules());
        }
        last = now;
    });
    if let Err(e) = done {
        let _ = writeln!(text, "// {e}");
    }
    text
}
