//! A list of opts that grows: each opt is added only if it fits the kernel, and later ones are chosen for the kernel as
//! it is then.

use super::Opt;
use crate::codegen::axes::Kernel;
use crate::target::Target;
use crate::uop::{Op, UOp};
use rustc_hash::FxHashMap;

/// The opts so far, and the kernel after they are applied.
pub(super) struct Picked<'a> {
    pub(super) k: Kernel,
    pub(super) t: &'a Target,
    pub(super) opts: Vec<Opt>,
}

/// A load of a parameter.
pub(super) struct Loaded {
    pub(super) load: UOp,
    /// The parameter's slot, and the number of the load among those of the parameter: how an opt names it.
    pub(super) slot: u32,
    pub(super) number: u16,
}

impl<'a> Picked<'a> {
    /// No opts yet.
    pub(super) fn new(k: &Kernel, t: &'a Target) -> Picked<'a> {
        Picked { k: k.clone(), t, opts: Vec::new() }
    }

    /// The id of a range, by which opts name it.
    pub(super) fn id(&self, r: UOp) -> u8 {
        self.k.g.range_arg(r).id
    }

    /// Adds an opt if it fits.
    pub(super) fn push(&mut self, opt: Opt) {
        let mut k = self.k.clone();
        if k.apply(&opt, self.t).is_ok() {
            self.k = k;
            self.opts.push(opt);
        }
    }

    /// The loads of parameters, the last one first: a staged load no longer counts among the loads of its parameter, so
    /// later ones are staged first.
    pub(super) fn loads(&self) -> Vec<Loaded> {
        let k = &self.k;
        let mut numbers: FxHashMap<u32, u16> = FxHashMap::default();
        let mut found = Vec::new();
        for load in k.nodes().into_iter().filter(|&u| k.g.op(u) == Op::Load) {
            let Some(slot) = k.slot_below(k.g.src_at(load, 0)) else { continue };
            let next = numbers.entry(slot).or_default();
            found.push(Loaded { load, slot, number: *next });
            *next += 1;
        }
        found.reverse();
        found
    }
}
