//! The passes of the scheduler, in order. In: a closed tensor graph and a target. Out: kernels in execution order. The
//! first passes rewrite the tensor graph, those after them choose where kernels end ([`Cuts`]), `lower` makes the
//! kernels, and the last ones merge and order these. [`super::Scheduling::step`] runs the table; the passes over one
//! kernel are another table, `codegen::PASSES`.

use super::lower::Lowering;
use super::{Cuts, Origin, Scheduling};
use super::{attention, early, fuse, horizontal, needed, order, recurrence, rows, share, small_assigns};
use crate::uop::print::print;
use crate::uop::spec::{self, Stage};
use crate::uop::{Graph, UOp};
use crate::{Error, Result};
use std::fmt::Write;

/// One pass of the table.
pub struct SchedulePass {
    /// Its name, as `gradloom kernels --passes` and the tests use it.
    pub name: &'static str,
    /// What it does, in a sentence; empty in pages.
    pub what: &'static str,
    /// The rules of the spec that hold after it: those of tensor graphs, or those of kernels once there are some.
    pub leaves: Stage,
    pub(super) run: fn(&mut Scheduling) -> Result<Then>,
}

/// What follows a pass.
pub(super) enum Then {
    /// The next pass of the table.
    Next,
    /// The same pass: it makes one kernel at a time.
    Again,
    /// The pass `cuts`, because what was found out about the kernels changes where they must end.
    Cuts,
}

/// A sentence that pages do not download: there the passes have names alone.
const fn sentence(what: &'static str) -> &'static str {
    if cfg!(target_arch = "wasm32") { "" } else { what }
}

/// The index of the pass `cuts`.
pub(super) const CUTS: usize = 2;

/// All passes, in the order in which they run.
pub static SCHEDULE_PASSES: [SchedulePass; 12] = [
    SchedulePass {
        name: "unroll",
        what: sentence("Unrolls the recurrences that are not kernels with a loop over their steps on this target."),
        leaves: Stage::Tensor,
        run: |s| {
            s.roots = recurrence::unroll(&mut s.g, &s.roots, &s.t);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "simplify",
        what: sentence(
            "Merges movement ops, splits long sums, and turns joins into memory that their parts are stored to.",
        ),
        leaves: Stage::Tensor,
        run: |s| {
            (s.g, s.roots) = early::simplify(&s.g, &s.roots, s.n_params, &s.t);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "cuts",
        what: sentence("Chooses the values that are stored in memory; all others are computed where they are used."),
        leaves: Stage::Tensor,
        run: |s| {
            s.cuts = fuse::choose_cuts(&s.g, &s.roots, &s.cyclic_assigns, &s.t);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "rows",
        what: sentence(
            "Fuses reductions into the kernel that reads their results over the rows they reduced (softmax, norms).",
        ),
        leaves: Stage::Tensor,
        run: |s| {
            rows::merge(&s.g, &s.roots, &s.g.reachable(&s.roots), &mut s.cuts, &s.t);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "chains",
        what: sentence("Fuses row kernels with the products before and after them, such as attention."),
        leaves: Stage::Tensor,
        run: |s| {
            fuse::fuse_across_cuts(&s.g, &s.roots, &s.not_attention, &mut s.cuts, &s.t);
            s.buffers = super::external_buffers(&s.g, &s.roots, s.n_params);
            s.lowering = Lowering::new(&s.g, &s.roots, &s.cuts);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "lower",
        what: sentence("Makes a kernel of each stored value: movement ops become index arithmetic inside loops."),
        leaves: Stage::Kernel,
        run: |s| Ok(if s.lowering.step(&s.g, &s.cuts, &mut s.buffers, &s.t)? { Then::Again } else { Then::Next }),
    },
    SchedulePass {
        name: "cycles",
        what: sentence(
            "Goes back to the cuts if assigns wait for each other, or if a kernel is not the attention it seemed.",
        ),
        leaves: Stage::Kernel,
        run: find_cycles,
    },
    SchedulePass {
        name: "horizontal",
        what: sentence("Fuses kernels over the same loops into kernels with several results."),
        leaves: Stage::Kernel,
        run: |s| {
            s.pending = horizontal::merge(std::mem::take(&mut s.pending), &s.t);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "small-assigns",
        what: sentence("Merges assigns to small buffers into one kernel, whatever their shapes."),
        leaves: Stage::Kernel,
        run: |s| {
            s.pending = small_assigns::merge(std::mem::take(&mut s.pending), &s.buffers.list, &s.t);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "order",
        what: sentence("Puts each kernel after those that make what it reads, and early if it frees memory."),
        leaves: Stage::Kernel,
        run: |s| {
            let list = &s.buffers.list;
            let temp_bytes = |b: usize| match list[b].origin {
                Origin::Temp => list[b].len.saturating_mul(list[b].dtype.size()),
                _ => 0,
            };
            s.kernels = order::order(std::mem::take(&mut s.pending), temp_bytes)?;
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "needed",
        what: sentence("Finds how far stored values are read, where lengths are launch scalars."),
        leaves: Stage::Kernel,
        run: |s| {
            let roots = s.root_buffers();
            needed::follow(&mut s.kernels, &s.buffers.list, &s.g, &s.roots, &roots);
            Ok(Then::Next)
        },
    },
    SchedulePass {
        name: "share",
        what: sentence(
            "Merges kernels that differ only in constant offsets of their addresses, which become launch scalars.",
        ),
        leaves: Stage::Kernel,
        run: |s| {
            share::share(&mut s.kernels);
            Ok(Then::Next)
        },
    },
];

fn find_cycles(s: &mut Scheduling) -> Result<Then> {
    let kernels = s.lowering.take_kernels();
    let found = order::cyclic_assigns(&s.g, &kernels);
    if found.iter().any(|k| s.cyclic_assigns.contains(k)) {
        return Err(Error::Internal("kernels wait for each other".into()));
    }
    let none = attention::not_found(&kernels, &s.cuts, &s.t);
    let again = !found.is_empty() || !none.is_empty();
    s.cyclic_assigns.extend(found);
    s.not_attention.extend(none);
    if again {
        return Ok(Then::Cuts);
    }
    s.pending = kernels;
    Ok(Then::Next)
}

impl Scheduling {
    /// What the passes have made so far, as text: the tensor graph, from the pass `cuts` on with comments that name the
    /// nodes which are stored, and from the pass `lower` on the kernels.
    pub fn text(&self) -> String {
        let pending = self.lowering.kernels().iter().chain(&self.pending).map(|p| &p.kernel);
        let mut out = String::new();
        for (i, k) in pending.chain(&self.kernels).enumerate() {
            let (written, read) = k.split_args();
            let _ = write!(out, "// kernel {i} writes buffers {written:?}, reads {read:?}");
            let _ = if k.scalars.is_empty() { writeln!(out) } else { writeln!(out, ", scalars {:?}", k.scalars) };
            out += &print(&k.ast.g, &k.ast.roots());
        }
        if out.is_empty() { self.cuts.text(&self.g, &self.roots) + &print(&self.g, &self.roots) } else { out }
    }

    /// Checks what a pass has made against the spec: a violation is an internal error that names the pass and the node.
    /// Debug builds do this after each pass.
    pub fn verify(&self, pass: &SchedulePass) -> Result<()> {
        let pending = self.lowering.kernels().iter().chain(&self.pending).map(|p| &p.kernel);
        let mut asts = pending.chain(&self.kernels).map(|k| &k.ast);
        match pass.leaves {
            Stage::Tensor => spec::verify(&self.g, &self.roots, Stage::Tensor),
            leaves => asts.try_for_each(|ast| {
                spec::verify(&ast.g, &[ast.sink], leaves)?;
                spec::verify(&ast.g, &ast.live, Stage::Lowering)
            }),
        }
        .map_err(|e| Error::Internal(format!("after the pass {}: {e}", pass.name)))
    }

    /// The buffer of each root.
    pub(super) fn root_buffers(&self) -> Vec<usize> {
        self.roots.iter().map(|&r| self.cuts.buffer_of(&self.g, r, &self.buffers)).collect()
    }
}

impl Cuts {
    /// Comments that name the stored nodes by their numbers in the printed graph, and the row kernels among them.
    fn text(&self, g: &Graph, roots: &[UOp]) -> String {
        let (mut stored, mut out) = (String::new(), String::new());
        for (i, &u) in g.reachable(roots).iter().enumerate().filter(|(_, u)| self.is_stored(**u)) {
            let _ = write!(stored, " %{i}");
            if let Some(rows) = self.rows.get(&u) {
                let loops: Vec<String> = rows.loops.iter().map(|part| part.len.to_string()).collect();
                let kind = if self.attention.contains(&u) { "attention" } else { "rows" };
                let _ = writeln!(out, "// {kind} %{i}: loops over {}, {} kept", loops.join(" x "), rows.kept.len());
            }
        }
        if stored.is_empty() { out } else { format!("// stored:{stored}\n{out}") }
    }
}
