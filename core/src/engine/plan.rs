//! Closed graph -> [`Plan`]: schedule, list each distinct kernel once, place temporaries. Compiling the kernels is a pure
//! function of each [`Job`], so that whoever has threads may do it on them.

use super::memory::{self, Life};
use crate::codegen::{self, Opt, Program};
use crate::render::{Code, Source};
use crate::schedule::{Ast, Kernel, Origin, schedule};
use crate::target::{Lang, Target};
use crate::uop::hash;
use crate::uop::{Graph, UOp};
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Where an argument of a kernel call lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Given by the caller.
    External(u32),
    /// In an arena of the plan.
    Arena {
        /// Which arena.
        arena: usize,
        /// Byte offset.
        offset: usize,
        /// Bytes.
        bytes: usize,
    },
    /// A buffer made for the caller.
    Output(u32),
}

/// One kernel call of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Structural key of the program: names it in the engine's cache.
    pub program: u128,
    /// Argument per slot.
    pub args: Vec<Place>,
    /// Values of the program's own launch scalars (see [`crate::schedule::share`]).
    pub scalars: Vec<i32>,
}

/// A buffer that a plan hands to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputInfo {
    /// Logical dtype.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
}

/// A computation ready to run on any buffers of the right sizes. Plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Kernel calls in order.
    pub calls: Vec<Call>,
    /// Bytes of each arena.
    pub arenas: Vec<usize>,
    /// Bytes that the temporaries need at least: the most that live at once.
    pub arena_bound: usize,
    /// Buffers to make for the caller.
    pub outputs: Vec<OutputInfo>,
    /// Where each root is: an output, or an external buffer (assigns).
    pub roots: Vec<Place>,
}

/// A compiled program, before a device has it.
#[derive(Clone)]
pub struct Compiled {
    /// Code and interface.
    pub source: Source,
    /// Launch grid.
    pub grid: [u32; 3],
    /// Names of launch scalars, in order.
    pub vars: Vec<Box<str>>,
    /// Float operations per launch.
    pub flops: u64,
    /// Bytes moved at least.
    pub bytes: u64,
    /// What was rendered, unless it came out of a cache.
    pub program: Option<Arc<Program>>,
}

/// A kernel of a plan that is to be compiled.
pub struct Job {
    /// Structural key.
    pub key: u128,
    /// What to compute.
    pub ast: Ast,
}

/// Structural key of a kernel on a target.
pub fn kernel_key(ast: &Ast) -> u128 {
    hash::key(&ast.g, &[ast.sink])
}

/// Compiles and renders one kernel.
pub fn compile(ast: &Ast, t: &Target, opts: Option<&[Opt]>) -> Result<Compiled> {
    let program = Arc::new(codegen::compile(ast, t, opts)?);
    let code = render(&program, t)?;
    Ok(Compiled {
        source: Source::new(&program, code),
        grid: program.grid,
        vars: program.vars.iter().map(|v| v.name.clone()).collect(),
        flops: program.flops,
        bytes: program.bytes,
        program: Some(program),
    })
}

/// Renders a program in the target's language.
pub fn render(p: &Arc<Program>, t: &Target) -> Result<Code> {
    match t.lang {
        Lang::Eval => Ok(Code::Program(p.clone())),
        _ => crate::render::render(p, t),
    }
}

/// Pairs of buffers of which one kernel reads one and writes the other. WebGPU forbids that both are parts of one
/// allocation, unless the shader declares the read one as written too.
fn read_and_written(kernels: &[Kernel]) -> FxHashSet<(usize, usize)> {
    let mut pairs = FxHashSet::default();
    for k in kernels {
        let (written, read) = k.split_args();
        pairs.extend(written.iter().flat_map(|&w| read.iter().map(move |&r| (w, r))));
    }
    pairs
}

/// Plans the computation of `roots`. Also returns each kernel of the plan once, in order of first use.
pub fn plan(g: &Graph, roots: &[UOp], n_params: usize, t: &Target) -> Result<(Plan, Vec<Job>)> {
    let s = schedule(g, roots, n_params, t)?;
    let mut first_last: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
    for (i, k) in s.kernels.iter().enumerate() {
        for &b in &k.args {
            first_last.entry(b).or_insert((i, i)).1 = i;
        }
    }
    let mut places: Vec<Option<Place>> = vec![None; s.buffers.len()];
    let mut outputs = Vec::new();
    let mut temps: Vec<(usize, Life)> = Vec::new();
    for (i, b) in s.buffers.iter().enumerate() {
        match b.origin {
            Origin::External(slot) => places[i] = Some(Place::External(slot)),
            Origin::Output => {
                places[i] = Some(Place::Output(outputs.len() as u32));
                outputs.push(OutputInfo { dtype: b.dtype, len: b.len });
            }
            Origin::Temp => {
                let Some(&(first, last)) = first_last.get(&i) else { continue };
                let bytes = b
                    .len
                    .checked_mul(t.stored_as(b.dtype)?.size())
                    .filter(|&n| n <= t.max_buffer_bytes)
                    .ok_or_else(|| Error::OutOfMemory { device: t.name.clone(), bytes: u64::MAX })?;
                temps.push((i, Life { bytes, first, last }));
            }
        }
    }
    let lives: Vec<Life> = temps.iter().map(|t| t.1).collect();
    let arena_bound = memory::lower_bound(&lives, t.offset_alignment);
    let apart = if t.lang == Lang::Wgsl { read_and_written(&s.kernels) } else { FxHashSet::default() };
    let at: FxHashMap<usize, usize> = temps.iter().enumerate().map(|(i, t)| (t.0, i)).collect();
    let mut others = vec![Vec::new(); if apart.is_empty() { 0 } else { temps.len() }];
    for (a, b) in apart {
        if let (Some(&i), Some(&j)) = (at.get(&a), at.get(&b)) {
            others[i].push(j);
            others[j].push(i);
        }
    }
    let layout = memory::plan(&lives, t.offset_alignment, t.max_buffer_bytes, &others);
    for ((i, life), (arena, offset)) in temps.iter().zip(&layout.places) {
        places[*i] = Some(Place::Arena { arena: *arena, offset: *offset, bytes: life.bytes });
    }
    let place = |b: usize| places[b].ok_or_else(|| Error::Internal(format!("buffer {b} of a schedule has no place")));
    let roots = s.roots.iter().map(|&b| place(b)).collect::<Result<_>>()?;
    let mut calls = Vec::with_capacity(s.kernels.len());
    let mut jobs = Vec::new();
    let mut seen = FxHashSet::default();
    for k in s.kernels {
        let key = kernel_key(&k.ast);
        let args = k.args.iter().map(|&b| place(b)).collect::<Result<_>>()?;
        calls.push(Call { program: key, args, scalars: k.scalars });
        if seen.insert(key) {
            jobs.push(Job { key, ast: k.ast });
        }
    }
    Ok((Plan { calls, arenas: layout.arenas, arena_bound, outputs, roots }, jobs))
}
