//! Packing: an operand that does not change from run to run (a weight) is copied outside the kernel. A kernel of its
//! own makes the copy once, in the order in which the loop nest reads the elements; the kernel itself then reads one
//! contiguous stream.
//!
//! The engine decides when the copy is made and how long it is kept.

use super::axes::Kernel;
use super::stage::row_major;
use crate::rewrite::Memo;
use crate::rules::simplify_with;
use crate::schedule::Ast;
use crate::target::Target;
use crate::uop::{Arg, AxisKind, Graph, Op, RangeSet, UOp};
use crate::{Error, Result};

/// The most elements of a packed operand.
pub const MAX_ELEMS: usize = 1 << 30;

/// A parameter that a program reads from a packed copy.
#[derive(Clone)]
pub struct Pack {
    /// Slot of the parameter.
    pub slot: u32,
    /// The kernel that makes the copy: its parameter 0 is the packed operand, its parameter 1 the original.
    pub ast: Ast,
}

impl Kernel {
    /// May a packed copy replace the only load from parameter `slot`, which reads at `index` under a gate that depends
    /// on the ranges `gated`? Not if each element is read many times in different orders: the copy has an element for
    /// every read, and may have at most twice as many as the operand.
    pub(super) fn packable(&self, slot: u32, index: UOp, gated: RangeSet, t: &Target) -> bool {
        let Arg::Param { len, .. } = self.g.arg(self.g.src_at(index, 0)) else { return false };
        let open = self.g.ranges(index) | gated;
        let own = self.ranges().into_iter().filter(|&r| open >> self.g.range_arg(r).id & 1 == 1);
        let elems = own.fold(1usize, |n, r| n.saturating_mul(self.g.range_len(r)));
        if elems > len.saturating_mul(2) {
            return false;
        }
        let bytes = len.saturating_mul(2).saturating_mul(self.g.dtype(index).size());
        let direct = !self.g.reachable(&[index]).into_iter().any(|u| matches!(self.g.op(u), Op::Load | Op::Var));
        self.constants.contains(&slot) && direct && bytes <= t.limits.max_buffer_bytes.min(MAX_ELEMS)
    }

    /// Makes `load`, the only load from parameter `slot`, read a packed copy. `axes` are all ranges that it depends on,
    /// in the order of the loop nest.
    pub(super) fn pack(&mut self, load: UOp, slot: u32, axes: &[UOp]) -> Result<()> {
        let bad = |what: &str| Error::value("opt", format!("packing of parameter {slot}: {what}"));
        if self.packs.iter().any(|p| p.slot == slot) {
            return Err(bad("it is packed already")); // the engine makes a copy of the operand itself, never of a copy
        }
        let inside = self.g.reachable(&[load]);
        if inside.iter().any(|&u| u != load && matches!(self.g.op(u), Op::Load | Op::Var)) {
            return Err(bad("where it is read depends on the run"));
        }
        let elems = axes.iter().try_fold(1usize, |n, &r| n.checked_mul(self.g.range_len(r)));
        let elems = elems.filter(|&n| n <= MAX_ELEMS).ok_or_else(|| bad("too large"))?;
        let at = row_major(&mut self.g, axes);
        let at = simplify_with(&mut self.g, at, &mut self.memo);
        if at == self.g.src_at(self.g.src_at(load, 0), 1) {
            return Ok(()); // the operand is in that order already
        }
        self.packs.push(Pack { slot, ast: copy(&self.g, load, axes) });
        let ptr = self.g.param(slot, self.g.dtype(load), elems);
        let index = self.g.index(ptr, at);
        let packed = self.g.load(index);
        self.replace(&[(load, packed)].into_iter().collect());
        Ok(())
    }
}

/// The kernel that stores the value of `load` for every point of `axes`, row-major.
fn copy(from: &Graph, load: UOp, axes: &[UOp]) -> Ast {
    let mut g = Graph::new();
    let own: Vec<UOp> = axes.iter().zip(0u8..).map(|(&r, id)| g.range(from.range_len(r), id, AxisKind::Loop)).collect();
    let value = g.import(from, &[load], |g, u| match from.arg(u) {
        Arg::Param { len, .. } => Some(g.param(1, from.dtype(u), *len)),
        _ => axes.iter().position(|&r| r == u).map(|i| own[i]),
    })[0];
    let elems = own.iter().map(|&r| g.range_len(r)).product();
    let (to, at) = (g.param(0, g.dtype(value), elems), row_major(&mut g, &own));
    let index = g.index(to, at);
    let store = g.store(index, value);
    let sink = g.sink(&[store]);
    let sink = simplify_with(&mut g, sink, &mut Memo::new());
    let mut clean = Graph::new();
    let sink = clean.import(&g, &[sink], |_, _| None)[0];
    Ast::new(clean, sink)
}

#[cfg(test)]
mod tests {
    use super::super::opt::{Level, Opt, heuristic};
    use super::super::{axes::Kernel, compile};
    use crate::DType::F32;
    use crate::schedule::schedule;
    use crate::target::{Isa, Target};
    use crate::uop::{Graph, Op, ReduceOp};

    #[test]
    fn operands_are_packed_once() {
        let t = Target::x86(Isa::Avx2, 1);
        let mut g = Graph::new();
        let (a, b) = (g.param(0, F32, 48 * 96), g.param(1, F32, 96 * 64));
        let (a, b) = (g.reshape(a, &[48, 96, 1]), g.reshape(b, &[1, 96, 64]));
        let (a, b) = (g.expand(a, &[48, 96, 64]), g.expand(b, &[48, 96, 64]));
        let product = g.binary(Op::Mul, a, b);
        let sum = g.reduce(product, ReduceOp::Add, &[1]);
        let mut ast = schedule(&g, &[sum], 2, &t).unwrap().kernels.remove(0).ast;
        ast.constants.push(2);
        let mut k = Kernel::new(&ast);
        k.settle_axes();
        let mut opts = heuristic::choose(&k, &t);
        assert_eq!(compile(&ast, &t, Some(&opts)).unwrap().packs.len(), 1, "{opts:?}");
        // packing the packed load again is refused: the engine would make the second copy from the original operand
        opts.extend([Opt::upcast(0, 2), Opt::stage(2, Level::Outside)]);
        assert!(compile(&ast, &t, Some(&opts)).is_err_and(|e| e.to_string().contains("packed already")));
    }

    /// A packed copy would have an element for every read: over a thousand million here, for an operand of 64 elements.
    #[test]
    fn what_is_read_in_many_orders_is_not_packed() {
        const ROWS: usize = 1 << 24;
        let t = Target::x86(Isa::Avx2, 1);
        let mut g = Graph::new();
        let (x, w) = (g.param(0, F32, 96), g.param(1, F32, 64));
        let (x, w) = (g.reshape(x, &[1, 96]), g.reshape(w, &[1, 64]));
        let (x, w) = (g.expand(x, &[ROWS, 96]), g.expand(w, &[ROWS / 64 * 96, 64]));
        let w = g.reshape(w, &[ROWS, 96]);
        let product = g.binary(Op::Mul, x, w);
        let sum = g.reduce(product, ReduceOp::Add, &[1]);
        let mut ast = schedule(&g, &[sum], 2, &t).unwrap().kernels.remove(0).ast;
        ast.constants.push(2);
        let p = compile(&ast, &t, None).unwrap();
        assert_eq!((p.packs.len(), p.refused), (0, 0), "{:?}", p.opts);
    }
}
