//! Code generation for one kernel: in goes a kernel graph of the scheduler ([`Ast`]), out comes a [`Program`] that
//! renderers print. [`compile`] runs the passes of the table [`PASSES`] in order.
//!
//! This module must not know tensors, plans or renderers. Everything it needs to know of a back end is in the
//! [`Target`].

pub mod attention;
pub mod axes;
pub mod cost;
pub mod count;
mod digits;
mod exp_below_max;
mod in_bounds;
mod kept;
pub mod late;
pub mod live;
mod matrix;
pub mod opt;
pub mod pack;
mod passes;
mod peel;
pub mod program;
pub mod reach;
pub mod reduce;
mod shared;
mod stage;

pub use opt::{Level, Opt, Part, Staging};
pub use passes::{Lowering, PASSES, Pass};
pub use program::{ParamInfo, Program, TileAxis, VarInfo};

use crate::schedule::{Ast, needed};
use crate::target::Target;
use crate::uop::spec::{self, Stage};
use crate::{Error, Result};

/// Compiles one kernel for a target, with the given opts or, without any, with those that the heuristic chooses. Given
/// opts that do not fit the kernel are an error. If opts of the heuristic do not fit, compilation is repeated with
/// fewer of them, and at last with none ([`Program::refused`] counts the failed attempts): the heuristic may be wrong
/// about speed, but it must not make a kernel fail that can be compiled.
pub fn compile(ast: &Ast, t: &Target, opts: Option<&[Opt]>) -> Result<Program> {
    compile_with_fallbacks(ast, t, opts, None)
}

/// Like [`compile`], and calls `watch` with the kernel after each pass that runs for this target. If a list of opts
/// turns out not to fit, the passes that ran with it are shown first, and then all passes of the next attempt.
pub fn compile_watched(ast: &Ast, t: &Target, opts: Option<&[Opt]>, watch: &mut Watch<'_>) -> Result<Program> {
    compile_with_fallbacks(ast, t, opts, Some(watch))
}

/// A compilation that is paused between two passes, so that a caller with other work (a browser's event loop) can run
/// one pass at a time.
pub struct SteppedCompilation {
    lowering: Lowering,
    next: usize,
}

impl SteppedCompilation {
    /// A compilation whose first pass has not run yet. It makes the first of the attempts that [`compile`] makes.
    pub fn new(ast: &Ast, opts: Option<&[Opt]>) -> Result<SteppedCompilation> {
        Ok(SteppedCompilation { lowering: start_lowering(ast, opts, 0)?, next: 0 })
    }

    /// Runs the next pass that applies to the target, and returns the program after the last one. On an error the
    /// caller can call [`compile`], which makes further attempts with fewer opts.
    pub fn step(&mut self, ast: &Ast, t: &Target) -> Result<Option<Program>> {
        while let Some(pass) = PASSES.get(self.next) {
            self.next += 1;
            if self.lowering.run(pass, t)? {
                return Ok(None);
            }
        }
        let done = std::mem::replace(&mut self.lowering, Lowering::new(ast, None, 0));
        let (p, others) = finish_lowering(done, t)?;
        Ok(Some(if COMPARES_ALTERNATIVES { cheapest(ast, t, p, others, &mut None) } else { p }))
    }
}

/// Whether the cost model compares the chosen opts with alternatives ([`opt::reorder`]). Browser builds leave this out,
/// because they would have to download the cost model for it.
const COMPARES_ALTERNATIVES: bool = cfg!(any(feature = "x86", test));

/// A callback that is called after each pass.
type Watch<'a> = dyn FnMut(&Pass, &Lowering) + 'a;

fn compile_with_fallbacks(
    ast: &Ast,
    t: &Target,
    opts: Option<&[Opt]>,
    mut watch: Option<&mut Watch<'_>>,
) -> Result<Program> {
    let first = match lower(ast, t, opts, 0, &mut watch) {
        Ok((p, others)) if COMPARES_ALTERNATIVES => return Ok(cheapest(ast, t, p, others, &mut watch)),
        Ok((p, _)) => return Ok(p),
        // a kernel whose loops have too many iterations is cut by the scheduler; fewer opts would not help
        Err(e) if opts.is_none() && !matches!(e, Error::Turns { .. }) => e,
        Err(e) => return Err(e),
    };
    for refused in 1..=opt::LAST_PROPOSAL {
        if let Ok((p, _)) = lower(ast, t, None, refused, &mut watch) {
            return Ok(p);
        }
    }
    Err(first)
}

/// Alternative opts replace the chosen ones only if their estimated time is below this fraction of the chosen ones': a
/// smaller difference would be within the model's error.
const COST_RATIO_TO_SWITCH: f64 = 0.7;

/// The cheapest program by the cost model, among the chosen one and those of the alternative lists of opts. If an
/// alternative wins, `watch` is shown its passes last.
fn cheapest(
    ast: &Ast,
    t: &Target,
    chosen: Program,
    others: Vec<Vec<Opt>>,
    watch: &mut Option<&mut Watch<'_>>,
) -> Program {
    let mut best = chosen;
    let mut shown = true;
    for opts in others {
        if let Ok((p, _)) = lower(ast, t, Some(&opts), 0, &mut None)
            && cost::cost(&p, t).ns < COST_RATIO_TO_SWITCH * cost::cost(&best, t).ns
        {
            (best, shown) = (p, false);
        }
    }
    if !shown
        && watch.is_some()
        && let Ok((p, _)) = lower(ast, t, Some(&best.opts), 0, watch)
    {
        return p;
    }
    best
}

fn lower(
    ast: &Ast,
    t: &Target,
    opts: Option<&[Opt]>,
    refused: usize,
    watch: &mut Option<&mut Watch<'_>>,
) -> Result<(Program, Vec<Vec<Opt>>)> {
    let mut l = start_lowering(ast, opts, refused)?;
    for pass in &PASSES {
        if watch.is_some() {
            l.record();
        }
        if l.run(pass, t)?
            && let Some(watch) = watch
        {
            watch(pass, &l);
        }
    }
    finish_lowering(l, t)
}

/// The state before the first pass; debug builds verify the kernel.
fn start_lowering(ast: &Ast, opts: Option<&[Opt]>, refused: usize) -> Result<Lowering> {
    if cfg!(debug_assertions) {
        spec::verify(&ast.g, &[ast.sink], Stage::Kernel)?;
        spec::verify(&ast.g, &ast.live, Stage::Lowering)?;
        needed::check(ast)?;
    }
    Ok(Lowering::new(ast, opts, refused))
}

/// The verified program after the last pass, and alternative lists of opts that may be cheaper than those it was made
/// with.
fn finish_lowering(mut l: Lowering, t: &Target) -> Result<(Program, Vec<Vec<Opt>>)> {
    let others = std::mem::take(&mut l.others);
    let p = l.program()?;
    spec::verify(&p.g, &p.order, Stage::Program)?;
    if t.limits.max_loop_iterations < u32::MAX {
        let turns = count::loop_iterations(&p);
        if turns > t.limits.max_loop_iterations as u64 {
            return Err(Error::Turns { kernel: p.name, turns, most: t.limits.max_loop_iterations });
        }
    }
    Ok((p, others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::schedule;
    use crate::target::Isa;
    use crate::tensor::{Session, Tensor};
    use crate::uop::print::print_program;
    use crate::{DType, engine};

    fn product() -> Ast {
        let s = Session::new();
        let x = |shape: &[usize]| Tensor::empty(&s, DType::F32, shape).unwrap();
        let node = x(&[96, 200]).matmul(&x(&[200, 96])).unwrap().node();
        let (g, roots) = engine::close(&s.state().graph, &[node]);
        schedule(&g, &roots, 2, &Target::eval()).unwrap().kernels.remove(0).ast
    }

    #[test]
    fn less_is_proposed_after_a_refusal_and_at_last_nothing() {
        let ast = product();
        for t in [Target::x86(Isa::Avx2, 1), Target::wasm(false, 1), Target::wgsl("webgpu")] {
            let mut opts = usize::MAX;
            for refused in 0..=opt::LAST_PROPOSAL {
                let (p, _) = lower(&ast, &t, None, refused, &mut None).unwrap();
                assert_eq!(p.refused, refused);
                assert!(p.opts.len() <= opts, "{:?}", p.opts);
                opts = p.opts.len();
            }
            assert_eq!(opts, 0);
        }
    }

    #[test]
    fn a_kernel_between_passes_becomes_the_same_program() {
        let ast = product();
        for t in [Target::x86(Isa::Avx2, 1), Target::wasm(false, 1), Target::wgsl("webgpu")] {
            let mut passing = SteppedCompilation::new(&ast, None).unwrap();
            let mut steps = 0;
            let made = loop {
                steps += 1;
                if let Some(p) = passing.step(&ast, &t).unwrap() {
                    break p;
                }
            };
            assert_eq!(steps, 1 + PASSES.iter().filter(|pass| (pass.when)(&t)).count());
            let whole = compile(&ast, &t, None).unwrap();
            assert_eq!(format!("{:?}", made.opts), format!("{:?}", whole.opts));
            assert_eq!(print_program(&made.g, &made.order), print_program(&whole.g, &whole.order));
        }
    }

    #[test]
    fn opts_that_are_given_are_not_replaced() {
        let opts = [Opt::lane(100, 8)];
        assert!(compile(&product(), &Target::wasm(false, 1), Some(&opts)).is_err());
    }
}
