//! From a closed graph (buffers replaced by numbered params) to a [`Plan`]: schedules the graph, lists each distinct
//! kernel once, and places temporaries in arenas. Compiling a kernel is a pure function of its [`Job`], so a host that
//! has threads may do it on them.

use super::memory::{self, LiveRange};
use crate::codegen::live::{self, LaunchDim};
use crate::codegen::pack::Pack;
use crate::codegen::{self, Opt, Program, VarInfo};
use crate::render::{Renderer, Source};
use crate::schedule::{Ast, BufferInfo, Kernel, Origin, Schedule, schedule};
use crate::target::Target;
use crate::uop::spec::{self, Stage};
use crate::uop::{Arg, Graph, Op, UOp, hash, label};
use crate::util::sort;
use crate::{DType, Error, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The fewest elements that a constant must have to be worth packing: in general, and if its elements are bytes.
const LEAST_CONSTANT: usize = 1024;
const LEAST_BYTES: usize = 64;

/// Where an argument of a kernel call lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A buffer given by the caller, by slot.
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
    /// A buffer that is made for the caller, by number of the output.
    Output(u32),
}

/// One kernel call of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Structural key of the program, by which the engine's cache has it.
    pub program: u128,
    /// Label of the kernel, by which lines of tuned opts name it.
    pub label: u128,
    /// The argument of each slot.
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

/// A computation that is ready to run on any buffers of the right sizes. Plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Kernel calls in order.
    pub calls: Vec<Call>,
    /// Bytes of each arena.
    pub arenas: Vec<usize>,
    /// Lower bound on the bytes of the arenas: the largest sum of temporaries that are live at the same time.
    pub arena_bound: usize,
    /// Buffers to make for the caller.
    pub outputs: Vec<OutputInfo>,
    /// Where each root is: an output, or an external buffer (assigns).
    pub roots: Vec<Place>,
    /// The variables of the computation, including those that no kernel reads any more: each run checks the values of
    /// all.
    pub vars: Vec<VarInfo>,
}

/// A compiled program, before a device has it.
#[derive(Clone)]
pub struct Compiled {
    /// Code and interface.
    pub source: Source,
    /// Launch grid.
    pub grid: [u32; 3],
    /// For each dimension of the grid: its length as a function of launch scalars, where that may be less than in
    /// `grid`.
    pub extents: [LaunchDim; 3],
    /// Launch scalars, in order.
    pub vars: Vec<VarInfo>,
    /// Float operations per launch.
    pub flops: u64,
    /// The fewest bytes that a launch moves.
    pub bytes: u64,
    /// Parameters that it reads from packed copies.
    pub packs: Vec<Packed>,
    /// The program that was rendered; `None` if the code came out of a cache.
    pub program: Option<Arc<Program>>,
}

/// A parameter that a kernel reads from a packed copy.
#[derive(Clone)]
pub struct Packed {
    /// Its slot.
    pub slot: u32,
    /// Structural key of the kernel that makes the copy.
    pub key: u128,
    /// That kernel: parameter 0 is the copy, parameter 1 the original.
    pub compiled: Box<Compiled>,
}

impl Compiled {
    /// Estimated work of a launch: the larger of its float operations and its bytes.
    pub(super) fn work(&self) -> u64 {
        self.flops.max(self.bytes)
    }

    /// The launch grid for given values of the launch scalars.
    ///
    /// # Errors
    /// Those of `value`, for a scalar that it does not know.
    pub fn grid_at(&self, value: &dyn Fn(&str) -> Result<i64>) -> Result<[u32; 3]> {
        live::grid(self.grid, &self.extents, value)
    }

    /// Renders a program for a target, and compiles the kernels that make its packed copies.
    pub fn new(program: Program, t: &Target, renderer: &dyn Renderer) -> Result<Compiled> {
        let program = Arc::new(program);
        let code = renderer.render(&program, t)?;
        let pack = |p: &Pack| {
            let compiled = Box::new(compile(&p.ast, t, renderer, None)?);
            Ok(Packed { slot: p.slot, key: kernel_key(&p.ast), compiled })
        };
        Ok(Compiled {
            source: Source::new(&program, code),
            grid: program.grid,
            extents: program.extents.clone(),
            vars: program.vars.clone(),
            flops: program.flops,
            bytes: program.bytes,
            packs: program.packs.iter().map(pack).collect::<Result<_>>()?,
            program: Some(program),
        })
    }
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
    let key = hash::key(&ast.g, &ast.roots());
    if ast.constants.is_empty() { key } else { with_numbers(key, ast.constants.iter().copied()) }
}

/// The label of a kernel on a target, by which lines of tuned opts name it.
fn kernel_label(ast: &Ast) -> u128 {
    let of = label::of(&ast.g, &[ast.sink]);
    if ast.constants.is_empty() {
        return of;
    }
    let mut bytes = of.to_le_bytes().to_vec();
    ast.constants.iter().for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
    label::of_bytes(&bytes)
}

/// Combines a key with numbers.
pub fn with_numbers(key: u128, numbers: impl Iterator<Item = u32>) -> u128 {
    let mut bytes = key.to_le_bytes().to_vec();
    numbers.for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
    hash::key_bytes(&bytes)
}

/// A partly compiled kernel.
pub enum PartialKernel {
    /// Some passes have not run yet.
    Passing(Box<codegen::SteppedCompilation>),
    /// The program, which is to be rendered.
    Program(Box<Program>),
    /// Finished: the code was written by a user.
    Whole(Box<Compiled>),
}

/// The result of one step of compiling a kernel.
pub enum Progress {
    /// More steps are needed.
    Partial(PartialKernel),
    /// The kernel is compiled.
    Whole(Box<Compiled>),
}

impl PartialKernel {
    /// A kernel with no step done.
    pub fn of(ast: &Ast, t: &Target, renderer: &dyn Renderer, opts: Option<&[Opt]>) -> Result<PartialKernel> {
        match ast.custom() {
            None => Ok(PartialKernel::Passing(Box::new(codegen::SteppedCompilation::new(ast, opts)?))),
            Some(u) => PartialKernel::custom(u, ast, t, renderer),
        }
    }

    fn custom(u: UOp, ast: &Ast, t: &Target, renderer: &dyn Renderer) -> Result<PartialKernel> {
        let Arg::Custom(c) = ast.g.arg(u) else { return Err(Error::Internal("a custom kernel without code".into())) };
        let Some((source, grid)) = renderer.custom(c, &ast.g, ast.g.src(u), t)? else {
            let what = format!("custom kernel `{}`, which is code in WGSL", c.name);
            return Err(Error::Unsupported { what, context: format!("device {}", t.name) });
        };
        let bytes = source.params.iter().map(|p| (p.len * p.dtype.size()) as u64).fold(0, u64::saturating_add);
        let (extents, vars, packs) = Default::default();
        Ok(PartialKernel::Whole(Box::new(Compiled {
            source,
            grid,
            extents,
            vars,
            flops: 0,
            bytes,
            packs,
            program: None,
        })))
    }

    /// Does the next step: one pass, or rendering. After an error, [`compile`] may still succeed, since it tries again
    /// with fewer opts.
    pub fn step(self, ast: &Ast, t: &Target, renderer: &dyn Renderer) -> Result<Progress> {
        Ok(match self {
            PartialKernel::Passing(mut passing) => Progress::Partial(match passing.step(ast, t)? {
                Some(program) => PartialKernel::Program(Box::new(program)),
                None => PartialKernel::Passing(passing),
            }),
            PartialKernel::Program(program) => Progress::Whole(Box::new(Compiled::new(*program, t, renderer)?)),
            PartialKernel::Whole(compiled) => Progress::Whole(compiled),
        })
    }
}

/// Compiles and renders one kernel.
pub fn compile(ast: &Ast, t: &Target, renderer: &dyn Renderer, opts: Option<&[Opt]>) -> Result<Compiled> {
    match ast.custom() {
        None => Compiled::new(codegen::compile(ast, t, opts)?, t, renderer),
        Some(u) => match PartialKernel::custom(u, ast, t, renderer)?.step(ast, t, renderer)? {
            Progress::Whole(compiled) => Ok(*compiled),
            Progress::Partial(_) => Err(Error::Internal("a custom kernel has passes".into())),
        },
    }
}

/// All pairs of buffers where one kernel reads one and writes the other. In WebGPU such buffers must not be parts of
/// the same allocation, unless the shader declares the one that it reads as written too.
fn read_and_written(kernels: &[Kernel]) -> FxHashSet<(usize, usize)> {
    let mut pairs = FxHashSet::default();
    for k in kernels {
        let (written, read) = k.split_args();
        pairs.extend(written.iter().flat_map(|&w| read.iter().map(move |&r| (w, r))));
    }
    pairs
}

/// Where several kernels read a buffer, it is constant for the one whose calls outnumber those of all others by more than
/// this factor. In an unrolled recurrence all steps are one kernel, except perhaps the first or the last one.
const CALLS_OF_ONE: usize = 8;

/// Tells each kernel which of its operands are constant: large external buffers that no kernel of the plan writes. A
/// buffer that several kernels use in different ways does not count as constant, because each would make a packed copy
/// of its own, unless nearly all calls are of one kernel: then it does for that one.
fn mark_constants(s: &mut Schedule, constant: &[bool]) {
    let large = |b: &BufferInfo| b.len >= if b.dtype.size() == 1 { LEAST_BYTES } else { LEAST_CONSTANT };
    // for each such buffer one way in which calls read it (of which kernel, as which argument), the number of calls that
    // do, and of those that read it in other ways
    let mut uses: FxHashMap<usize, ((u128, usize), usize, usize)> = FxHashMap::default();
    for (i, b) in s.buffers.iter().enumerate() {
        if matches!(b.origin, Origin::External(slot) if constant.get(slot as usize) == Some(&true)) && large(b) {
            uses.insert(i, Default::default());
        }
    }
    if uses.is_empty() {
        return;
    }
    let keys: Vec<u128> = s.kernels.iter().map(|k| kernel_key(&k.ast)).collect();
    for (k, &key) in s.kernels.iter().zip(&keys) {
        let written = k.split_args().0.len();
        for (slot, b) in k.args.iter().enumerate() {
            if slot < written {
                uses.remove(b);
            } else if let Some((way, same, other)) = uses.get_mut(b) {
                // a way that one call alone has used is replaced, as the first step of a recurrence may differ from all others
                if *way != (key, slot) && *same < 2 {
                    (*way, *same, *other) = ((key, slot), 0, *other + *same);
                }
                *(if *way == (key, slot) { same } else { other }) += 1;
            }
        }
    }
    for (k, &key) in s.kernels.iter_mut().zip(&keys) {
        let is_constant = |&(slot, b): &(u32, &usize)| {
            uses.get(b).is_some_and(|u| u.0 == (key, slot as usize) && u.1 > CALLS_OF_ONE * u.2)
        };
        k.ast.constants = (0u32..).zip(&k.args).filter(is_constant).map(|(slot, _)| slot).collect();
    }
}

/// The variables among `nodes`, sorted by name. Where one name has several bounds, a value must satisfy all of them.
fn variables(g: &Graph, nodes: &[UOp]) -> Result<Vec<VarInfo>> {
    let mut vars: Vec<VarInfo> = Vec::new();
    for v in nodes.iter().filter_map(|&u| VarInfo::of(g, u)) {
        match vars.iter_mut().find(|known| known.name == v.name) {
            Some(known) if known.dtype != v.dtype => {
                let what = format!("the computation has variables of this name of {} and of {}", known.dtype, v.dtype);
                return Err(Error::Input { name: v.name.to_string(), what });
            }
            Some(known) => (known.min, known.max) = (known.min.max(v.min), known.max.min(v.max)),
            None => vars.push(v),
        }
    }
    sort::by(&mut vars, |a, b| a.name.cmp(&b.name));
    Ok(vars)
}

/// Checks that each parameter has one of the `n_params` slots, for which a run gives buffers, and that each slot has
/// one type and length.
fn check_params(g: &Graph, nodes: &[UOp], n_params: usize) -> Result<()> {
    let mut of = vec![None; n_params];
    for &u in nodes {
        if let Arg::Param { slot, .. } = g.arg(u) {
            let known = of.get_mut(*slot as usize).is_some_and(|of| of.replace(u).is_none());
            if !known || g.op(u) != Op::Param {
                return Err(Error::Internal(format!("parameter {slot} of {n_params} is there twice or unknown")));
            }
        }
    }
    Ok(())
}

/// Plans the computation of `roots`. Also returns each distinct kernel of the plan once, in order of first use.
/// `constant` says for each parameter whether its contents stay the same from run to run.
pub fn plan(g: &Graph, roots: &[UOp], constant: &[bool], t: &Target) -> Result<(Plan, Vec<Job>)> {
    let vars = checked(g, roots, constant)?;
    scheduled(schedule(g, roots, constant.len(), t)?, vars, constant, t)
}

/// Checks a graph against the spec of its ops and returns its variables. Kernels of a graph that violates the spec
/// could access memory outside of their buffers.
pub(super) fn checked(g: &Graph, roots: &[UOp], constant: &[bool]) -> Result<Vec<VarInfo>> {
    spec::verify(g, roots, Stage::Tensor)?;
    let nodes = g.reachable(roots);
    let vars = variables(g, &nodes)?;
    check_params(g, &nodes, constant.len())?;
    Ok(vars)
}

/// The plan of a schedule.
pub(super) fn scheduled(
    mut s: Schedule,
    vars: Vec<VarInfo>,
    constant: &[bool],
    t: &Target,
) -> Result<(Plan, Vec<Job>)> {
    mark_constants(&mut s, constant);
    let mut first_last: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
    for (i, k) in s.kernels.iter().enumerate() {
        for &b in &k.args {
            first_last.entry(b).or_insert((i, i)).1 = i;
        }
    }
    let mut places: Vec<Option<Place>> = vec![None; s.buffers.len()];
    let mut outputs = Vec::new();
    let mut temps: Vec<(usize, LiveRange)> = Vec::new();
    for (i, b) in s.buffers.iter().enumerate() {
        match b.origin {
            Origin::External(slot) => places[i] = Some(Place::External(slot)),
            Origin::Output => {
                places[i] = Some(Place::Output(outputs.len() as u32));
                outputs.push(OutputInfo { dtype: b.dtype, len: b.len });
            }
            Origin::Temp => {
                let Some(&(first, last)) = first_last.get(&i) else { continue };
                let size = t.stored_as(b.dtype)?.size();
                let wanted = (b.len as u64).saturating_mul(size as u64);
                let bytes = b
                    .len
                    .checked_mul(size)
                    .filter(|&n| n <= t.limits.max_buffer_bytes)
                    .ok_or_else(|| Error::OutOfMemory { device: t.name.clone(), bytes: wanted })?;
                temps.push((i, LiveRange { bytes, first, last }));
            }
        }
    }
    let lives: Vec<LiveRange> = temps.iter().map(|t| t.1).collect();
    let arena_bound = memory::lower_bound(&lives, t.limits.offset_alignment);
    let conflicts = if !t.caps.shared_allocations { read_and_written(&s.kernels) } else { FxHashSet::default() };
    let at: FxHashMap<usize, usize> = temps.iter().enumerate().map(|(i, t)| (t.0, i)).collect();
    let mut others = vec![Vec::new(); if conflicts.is_empty() { 0 } else { temps.len() }];
    for (a, b) in conflicts {
        if let (Some(&i), Some(&j)) = (at.get(&a), at.get(&b)) {
            others[i].push(j);
            others[j].push(i);
        }
    }
    let layout = memory::plan(&lives, t.limits.offset_alignment, t.limits.max_buffer_bytes, &others);
    for ((i, life), (arena, offset)) in temps.iter().zip(&layout.places) {
        places[*i] = Some(Place::Arena { arena: *arena, offset: *offset, bytes: life.bytes });
    }
    let place = |b: usize| places[b].ok_or_else(|| Error::Internal(format!("buffer {b} of a schedule has no place")));
    let roots = s.roots.iter().map(|&b| place(b)).collect::<Result<_>>()?;
    let mut calls = Vec::with_capacity(s.kernels.len());
    let mut jobs = Vec::new();
    let mut labels: FxHashMap<u128, u128> = FxHashMap::default();
    for k in s.kernels {
        let key = kernel_key(&k.ast);
        let args = k.args.iter().map(|&b| place(b)).collect::<Result<_>>()?;
        let known = labels.get(&key).copied();
        let label = *labels.entry(key).or_insert_with(|| kernel_label(&k.ast));
        calls.push(Call { program: key, label, args, scalars: k.scalars });
        if known.is_none() {
            jobs.push(Job { key, ast: k.ast });
        }
    }
    Ok((Plan { calls, arenas: layout.arenas, arena_bound, outputs, roots, vars }, jobs))
}
