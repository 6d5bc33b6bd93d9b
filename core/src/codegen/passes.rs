//! The passes from a kernel graph to a program, in order. In: a kernel of the scheduler, a target, and opts if the
//! caller has chosen them. Out: a [`Kernel`] whose nodes are in execution order, whose loops are launch dimensions,
//! loops or tiles, and which has only operations of the target. [`super::compile`] runs the table.

use super::axes::{Kernel, Stats};
use super::opt::{Opt, heuristic, proposal, reorder};
use super::reduce::LoopInfo;
use super::{attention, digits, exp_below_max, late, live, matrix, reach, reduce, shared, stage};
use crate::schedule::Ast;
use crate::target::Target;
use crate::uop::print::{print, print_program};
use crate::uop::spec::{self, Stage};
use crate::uop::{Trace, UOp};
use crate::{Error, Result};
use rustc_hash::FxHashMap;

/// The state of one compilation between passes.
pub struct Lowering {
    kernel: Kernel,
    /// The opts to apply: given by the caller, or set by the pass `choose`.
    opts: Option<Vec<Opt>>,
    /// How many earlier attempts with opts of the heuristic have failed; each attempt uses fewer of them
    /// ([`proposal`]).
    refused: usize,
    /// Alternative lists of opts, for kernels where only the cost of the finished program tells which list is best.
    pub(super) others: Vec<Vec<Opt>>,
    /// The kernel's work, counted before any opt is applied.
    stats: Stats,
    /// Groups of range ids: the ranges of a group run over the same elements under the same mask, so their loops end
    /// together.
    masked: Vec<Vec<u8>>,
    /// The parent and the surrounding ranges of each loop that was made for an accumulator or for filling a local
    /// array, by range id.
    loops: FxHashMap<u8, LoopInfo>,
    /// Nodes in the order in which they are executed, once there is one.
    order: Option<Vec<UOp>>,
}

/// One pass of the table.
pub struct Pass {
    /// Its name, as `gradloom kernels --passes` and the tests use it.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    /// Decides for which targets it runs.
    pub when: fn(&Target) -> bool,
    /// The rules of the spec that hold after it; tests check them ([`Lowering::verify`]).
    pub leaves: Stage,
    run: fn(&mut Lowering, &Target) -> Result<()>,
}

fn always(_: &Target) -> bool {
    true
}

fn has_threads(t: &Target) -> bool {
    t.caps.has_local
}

// The threads of a workgroup run loops together (barriers), so a loop that ends early or is private to a thread needs a
// target without them.
fn has_private_loops(t: &Target) -> bool {
    !t.caps.has_local
}

fn has_tiles(t: &Target) -> bool {
    t.has_tiles()
}

/// All passes, in the order in which they run.
pub static PASSES: [Pass; 22] = [
    Pass {
        name: "merge-axes",
        what: "Fuses neighbouring loops where no address needs more divisions for it.",
        when: always,
        leaves: Stage::Kernel,
        run: |l, t| {
            if !attention::is_one(&l.kernel, t) {
                l.kernel.merge_axes();
            }
            Ok(())
        },
    },
    Pass {
        name: "split-axes",
        what: "Splits a loop into quotient and remainder loops where an address divides its index by a constant.",
        when: always,
        leaves: Stage::Kernel,
        run: |l, t| {
            if !attention::is_one(&l.kernel, t) {
                digits::split(&mut l.kernel);
            }
            l.stats = l.kernel.stats();
            Ok(())
        },
    },
    Pass {
        name: "find-exp-below-max",
        what: "Marks exponentials `exp(x - max)`, which cannot overflow.",
        when: always,
        leaves: Stage::Kernel,
        run: |l, t| {
            exp_below_max::mark(&mut l.kernel, t);
            Ok(())
        },
    },
    Pass {
        name: "choose",
        what: "Chooses the opts, unless the caller gave them.",
        when: always,
        leaves: Stage::Kernel,
        run: |l, t| {
            if l.opts.is_none() && attention::is_one(&l.kernel, t) {
                l.opts = Some(Vec::new());
            } else if l.opts.is_none() {
                let chosen = heuristic::choose(&l.kernel, t);
                if l.refused == 0 {
                    l.others = reorder::reordered(&l.kernel, t, &chosen);
                }
                l.opts = Some(proposal(chosen, l.refused));
            }
            Ok(())
        },
    },
    Pass {
        name: "find-masks",
        what: "Finds the loops whose last iterations are all masked, so that they can end early.",
        when: has_private_loops,
        leaves: Stage::Kernel,
        run: |l, _| {
            l.masked = reach::find(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "opts",
        what: "Applies the opts: loops are split, become lanes, registers or threads, and operands are staged.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| l.kernel.apply_all(l.opts.as_deref().unwrap_or_default(), t),
    },
    Pass {
        name: "needed-turns",
        what: "Computes how many iterations of a loop are needed, if launch scalars (lengths) decide that.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, _| {
            live::count_iterations(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "matrix-tiles",
        what: "Turns products of matrix tiles into one op, with their elements spread over threads and registers.",
        when: has_tiles,
        leaves: Stage::Lowering,
        run: |l, t| matrix::lower(&mut l.kernel, t),
    },
    Pass {
        name: "attention",
        what: "Turns scores, softmax and weighted sum into one loop over blocks of keys, on matrix or register tiles.",
        when: has_threads,
        leaves: Stage::Lowering,
        run: |l, t| attention::lower(&mut l.kernel, t, &mut l.loops, &mut l.stats),
    },
    Pass {
        name: "launch",
        what: "Maps the remaining output loops to the launch grid.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| l.kernel.map_launch(t),
    },
    Pass {
        name: "mask-ends",
        what: "Computes loop bounds from outer loops: where masks end a loop, and where later results are not read.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, _| {
            reach::ends(&mut l.kernel, &l.masked);
            live::loops(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "borders",
        what: "Peels the first and last iterations off the innermost loop, if masks matter only there.",
        when: has_private_loops,
        leaves: Stage::Lowering,
        run: |l, _| {
            reach::peel_loops(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "exp-below-max",
        what: "Expands the exponentials that cannot overflow without a guard against overflow.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| {
            exp_below_max::lower(&mut l.kernel, t);
            Ok(())
        },
    },
    Pass {
        name: "decompose",
        what: "Expresses operations that the target lacks by operations that it has.",
        when: always,
        leaves: Stage::Lowering,
        run: decompose,
    },
    Pass {
        name: "workgroup-memory",
        what: "Turns staged operands into arrays in workgroup memory, with barriers.",
        when: has_threads,
        leaves: Stage::Lowering,
        run: |l, t| shared::lower(&mut l.kernel, t, &mut l.loops),
    },
    Pass {
        name: "local-arrays",
        what: "Turns staged operands into private arrays and the loops that fill them.",
        when: has_private_loops,
        leaves: Stage::Lowering,
        run: |l, _| stage::lower(&mut l.kernel, &mut l.loops),
    },
    Pass {
        name: "reductions",
        what: "Turns reductions into accumulators and loops.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| reduce::lower(&mut l.kernel, t, &mut l.loops),
    },
    Pass {
        name: "mask-bounds",
        what: "Puts the computed bounds into the loops.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, _| {
            reach::apply(&mut l.kernel);
            Ok(())
        },
    },
    // simplifying loop bodies can bring back comparisons in narrow dtypes
    Pass {
        name: "decompose-again",
        what: "Decomposes the loop bodies that the passes since `decompose` made or simplified.",
        when: always,
        leaves: Stage::Lowering,
        run: decompose,
    },
    Pass {
        name: "addresses",
        what: "Splits each address into an offset and a stride for each axis of its tile.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, _| {
            late::split_addresses(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "finish",
        what: "Applies the last rewrites: shifts for index divisions, fused multiply-add, subtraction.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| {
            late::finish(&mut l.kernel, t);
            Ok(())
        },
    },
    Pass {
        name: "linearize",
        what: "Puts the nodes into execution order, each in the loop in which it is computed.",
        when: always,
        leaves: Stage::Program,
        run: |l, _| {
            l.order = Some(late::linearize(&mut l.kernel, &l.loops)?);
            Ok(())
        },
    },
];

fn decompose(l: &mut Lowering, t: &Target) -> Result<()> {
    late::decompose(&mut l.kernel, t)
}

impl Lowering {
    pub(super) fn new(ast: &Ast, opts: Option<&[Opt]>, refused: usize) -> Lowering {
        Lowering {
            kernel: Kernel::new(ast),
            opts: opts.map(<[Opt]>::to_vec),
            refused,
            others: Vec::new(),
            stats: Stats::default(),
            masked: Vec::new(),
            loops: FxHashMap::default(),
            order: None,
        }
    }

    /// The opts, once they are chosen.
    pub fn opts(&self) -> Option<&[Opt]> {
        self.opts.as_deref()
    }

    /// The graph as text, in execution order if the pass `linearize` has run. Comments before it list the opts; for
    /// each masked loop the root of the printed graph that is its mask or, later, its end; and for other loops the
    /// roots that bound how many iterations are needed.
    pub fn text(&self) -> String {
        let k = &self.kernel;
        if let Some(order) = &self.order {
            return print_program(&k.g, order);
        }
        let mut out = String::new();
        if let Some(opts) = self.opts.as_ref().filter(|o| !o.is_empty()) {
            let opts: Vec<String> = opts.iter().map(ToString::to_string).collect();
            out += &format!("// {}\n", opts.join(", "));
        }
        for (i, (id, _)) in k.loop_limits.iter().enumerate() {
            out += &format!("// range {id}: root {}\n", i + 1);
        }
        for (i, t) in k.needed_iterations.iter().enumerate() {
            out += &format!("// loop {}: no more turns than root {}\n", t.id, k.loop_limits.len() + i + 1);
        }
        for (i, (id, _)) in k.ends.iter().enumerate() {
            out += &format!("// loop {id}: ends at root {}\n", i + 1 + k.loop_limits.len() + k.needed_iterations.len());
        }
        let known = k
            .loop_limits
            .iter()
            .map(|r| r.1)
            .chain(k.needed_iterations.iter().map(|t| t.node))
            .chain(k.ends.iter().map(|e| e.1));
        let roots: Vec<UOp> = std::iter::once(k.sink).chain(known).collect();
        out + &print(&k.g, &roots)
    }

    /// Starts to record which rewrite rules fire.
    pub(super) fn record(&mut self) {
        self.kernel.g.trace = Some(Box::new(Trace::counting()));
    }

    /// The rules that fired in the last pass and how often, as a comment; empty if none did or if nothing is recorded.
    pub fn rules(&self) -> String {
        let fired = self.kernel.g.trace.as_ref().map(|t| t.rules()).unwrap_or_default();
        let fired: Vec<String> = fired.into_iter().map(|(rule, n)| format!("{rule} {n}")).collect();
        if fired.is_empty() { String::new() } else { format!("// rules: {}\n", fired.join(", ")) }
    }

    /// Runs a pass if it applies to the target, and says whether it did.
    pub(super) fn run(&mut self, pass: &Pass, t: &Target) -> Result<bool> {
        let runs = (pass.when)(t);
        if runs {
            (pass.run)(self, t)?;
        }
        Ok(runs)
    }

    /// Checks the graph after a pass against the spec: a violation is an internal error that names the pass and the
    /// node. A normal compilation checks only the input of the first pass (in debug builds) and the program after the
    /// last one.
    pub fn verify(&self, pass: &Pass) -> Result<()> {
        let k = &self.kernel;
        let ends: Vec<UOp> = k.loop_limits.iter().chain(&k.ends).map(|r| r.1).collect();
        match &self.order {
            Some(order) => spec::verify(&k.g, order, pass.leaves),
            None => {
                spec::verify(&k.g, &[k.sink], pass.leaves).and_then(|()| spec::verify(&k.g, &ends, Stage::Lowering))
            }
        }
        .map_err(|e| Error::Internal(format!("after the pass {}: {e}", pass.name)))
    }

    /// The program, once all passes have run.
    pub(super) fn program(self) -> Result<super::Program> {
        let none = || Error::Internal("a kernel has no order of execution".into());
        let mut p = late::package(self.kernel, self.order.ok_or_else(none)?, self.stats);
        (p.opts, p.refused) = (self.opts.unwrap_or_default(), self.refused);
        Ok(p)
    }
}
