//! The passes from a kernel graph to a program, in order. In: a kernel of the scheduler, a target, and opts if the
//! caller has chosen them. Out: a [`Kernel`] whose nodes are in execution order, whose loops are launch dimensions,
//! loops or tiles, and which has only operations of the target. [`super::compile`] runs the table.

use super::axes::{Kernel, Stats};
use super::opt::{Opt, heuristic, others, proposal};
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
    t.has_local
}

// The threads of a workgroup run loops together (barriers), so a loop that ends early or is private to a thread needs a
// target without them.
fn has_own_loops(t: &Target) -> bool {
    !t.has_local
}

fn has_tiles(t: &Target) -> bool {
    t.has_tiles()
}

/// All passes, in the order in which they run.
pub static PASSES: [Pass; 21] = [
    Pass {
        name: "merge-axes",
        what: "Neighbouring loops become one where no address gets harder.",
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
        what: "A loop whose index addresses divide becomes one loop for each digit.",
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
        name: "choose",
        what: "Opts are chosen, unless they are given.",
        when: always,
        leaves: Stage::Kernel,
        run: |l, t| {
            if l.opts.is_none() && attention::is_one(&l.kernel, t) {
                l.opts = Some(Vec::new());
            } else if l.opts.is_none() {
                let chosen = heuristic::choose(&l.kernel, t);
                if l.refused == 0 {
                    l.others = others::reordered(&l.kernel, t, &chosen);
                }
                l.opts = Some(proposal(chosen, l.refused));
            }
            Ok(())
        },
    },
    Pass {
        name: "find-masks",
        what: "Finds the loops of which a mask leaves only the first turns.",
        when: has_own_loops,
        leaves: Stage::Kernel,
        run: |l, _| {
            l.masked = reach::find(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "opts",
        what: "Loops are split, become vectors, registers and threads, and operands are staged, as the opts say.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| l.kernel.apply_all(l.opts.as_deref().unwrap_or_default(), t),
    },
    Pass {
        name: "needed-turns",
        what: "Counts the turns of loops whose results somebody needs, where launch scalars decide that.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, _| {
            live::turns(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "matrix-tiles",
        what: "Products of matrix tiles become one op; their elements are spread over threads and registers.",
        when: has_tiles,
        leaves: Stage::Lowering,
        run: |l, t| matrix::lower(&mut l.kernel, t),
    },
    Pass {
        name: "attention",
        what: "Scores, softmax and the sum of values become one loop over blocks of keys, with tiles of matrices or of registers.",
        when: has_threads,
        leaves: Stage::Lowering,
        run: |l, t| attention::lower(&mut l.kernel, t, &mut l.loops, &mut l.stats),
    },
    Pass {
        name: "launch",
        what: "What is left of the output loops becomes the launch grid.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| l.kernel.map_launch(t),
    },
    Pass {
        name: "mask-ends",
        what: "Computes where masked loops may end, from the loops around them, and where those of results end that nobody needs.",
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
        what: "The first and last turn of the innermost loop get code of their own, where masks matter in these alone.",
        when: has_own_loops,
        leaves: Stage::Lowering,
        run: |l, _| {
            reach::borders(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "exp-below-max",
        what: "`exp(x - max)` cannot overflow, so that it is written out without a guard against that.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| {
            exp_below_max::lower(&mut l.kernel, t);
            Ok(())
        },
    },
    Pass {
        name: "decompose",
        what: "What the target cannot compute becomes what it can.",
        when: always,
        leaves: Stage::Lowering,
        run: decompose,
    },
    Pass {
        name: "workgroup-memory",
        what: "Staged operands become arrays of the workgroup, with barriers.",
        when: has_threads,
        leaves: Stage::Lowering,
        run: |l, t| shared::lower(&mut l.kernel, t, &mut l.loops),
    },
    Pass {
        name: "local-arrays",
        what: "Staged operands become private arrays and the loops that fill them.",
        when: has_own_loops,
        leaves: Stage::Lowering,
        run: |l, _| stage::lower(&mut l.kernel, &mut l.loops),
    },
    Pass {
        name: "reductions",
        what: "Reductions become accumulators and loops.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| reduce::lower(&mut l.kernel, t, &mut l.loops),
    },
    Pass {
        name: "mask-bounds",
        what: "Masked loops get the ends that were computed.",
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
        what: "The loop bodies that the passes before made and simplified are decomposed too.",
        when: always,
        leaves: Stage::Lowering,
        run: decompose,
    },
    Pass {
        name: "addresses",
        what: "An address becomes an offset and a stride for each axis of its tile.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, _| {
            late::split_addresses(&mut l.kernel);
            Ok(())
        },
    },
    Pass {
        name: "finish",
        what: "Last identities: shifts for divisions of indices, fused multiply-add, subtraction.",
        when: always,
        leaves: Stage::Lowering,
        run: |l, t| {
            late::finish(&mut l.kernel, t);
            Ok(())
        },
    },
    Pass {
        name: "linearize",
        what: "Nodes get their places in loops, in the order of execution.",
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
        for (i, (id, _)) in k.reach.iter().enumerate() {
            out += &format!("// range {id}: root {}\n", i + 1);
        }
        for (i, t) in k.turns.iter().enumerate() {
            out += &format!("// loop {}: no more turns than root {}\n", t.id, k.reach.len() + i + 1);
        }
        for (i, (id, _)) in k.ends.iter().enumerate() {
            out += &format!("// loop {id}: ends at root {}\n", i + 1 + k.reach.len() + k.turns.len());
        }
        let known = k.reach.iter().map(|r| r.1).chain(k.turns.iter().map(|t| t.node)).chain(k.ends.iter().map(|e| e.1));
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
        let ends: Vec<UOp> = k.reach.iter().chain(&k.ends).map(|r| r.1).collect();
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
