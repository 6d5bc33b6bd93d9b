//! Skips the computation of masks in iterations that do not need them, as in causal attention, where only the last
//! blocks of keys are masked.
//!
//! In: a Where over a tile, of which one choice is a constant and whose condition is a disjunction or conjunction with
//! one part that is the same for the whole workgroup. Out, in a language with jumps: the value is set to the other
//! choice, and if the uniform part decides for it, a jump skips the rest of the condition and the Where itself. For
//! `where(part | c, x, -inf)` it is `m = x; if (!part) m = where(part | c, x, -inf)`.

use super::Dialect;
use super::value::{Point, Val, points};
use super::walk::Walk;
use crate::Result;
use crate::uop::{AxisKind, Op, UOp};
use rustc_hash::FxHashMap;

/// The fewest elements of a tile for which a jump is worth its cost.
const MIN_ELEMENTS: usize = 16;

/// A Where that can be skipped.
struct Mask {
    /// The uniform part of the condition; if it equals `when`, the Where gives `x`.
    uniform_part: UOp,
    when: bool,
    /// The choice that is no constant.
    x: UOp,
}

impl<D: Dialect> Walk<'_, D> {
    /// Finds the nodes that are computed for such masks alone; the walk prints them inside the skipped code.
    pub(in crate::render) fn find_masks(&mut self) {
        let g = &self.p.g;
        let mut users: FxHashMap<UOp, Vec<UOp>> = FxHashMap::default();
        for &u in &self.p.order {
            g.src(u).iter().for_each(|&s| users.entry(s).or_default().push(u));
        }
        let masks: Vec<UOp> = self.p.order.iter().copied().filter(|&u| self.mask(u).is_some()).collect();
        for u in masks {
            let (c, decides) = (g.src_at(u, 0), self.mask(u).map_or(Vec::new(), |m| g.reachable(&[m.uniform_part])));
            let mut own: Vec<UOp> = Vec::new();
            // users come after their sources in the order, so this visits users first
            for &x in self.p.order.iter().rev().filter(|&&x| x <= c && g.op(x).is_alu()) {
                let only = users.get(&x).is_some_and(|of| of.iter().all(|v| *v == u || own.contains(v)));
                if only && decides.binary_search(&x).is_err() {
                    own.push(x);
                }
            }
            self.mask_only.extend(own);
        }
    }

    /// Matches such a Where.
    fn mask(&self, u: UOp) -> Option<Mask> {
        let g = &self.p.g;
        let (Op::Where, &[c, x, y]) = (g.op(u), g.src(u)) else { return None };
        // if either part of a disjunction is true, the result is x; if either part of a conjunction is false, it is y
        let (when, x) = match (g.op(c), g.op(x), g.op(y)) {
            (Op::Or, _, Op::Const) => (true, x),
            (Op::And, Op::Const, _) => (false, y),
            _ => return None,
        };
        let varies = |&r: &UOp| {
            let kind = g.kind(r);
            kind.is_tile() || matches!(kind, AxisKind::Local(_))
        };
        let same = |part: &UOp| {
            let ranges = g.reachable(&[*part]).into_iter().filter(|&r| g.op(r) == Op::Range);
            !ranges.into_iter().any(|r| varies(&r) && g.depends(*part, r))
        };
        let uniform_part = g.src(c).iter().copied().find(same)?;
        let tile = self.p.tile(u);
        let worth = tile.iter().map(|a| a.len).product::<usize>() >= MIN_ELEMENTS && !tile.iter().any(|a| a.lane);
        worth.then_some(Mask { uniform_part, when, x })
    }

    /// Prints a Where that [`Walk::find_masks`] found; false if `u` is not one.
    pub(super) fn masked(&mut self, u: UOp) -> Result<bool> {
        let c = match self.p.g.src(u) {
            [c, _, _] if self.mask_only.contains(c) => *c,
            _ => return Ok(false),
        };
        let Some(Mask { uniform_part, when, x }) = self.mask(u) else { return Ok(false) };
        let (axes, dt, op) = (self.p.tile(u), self.p.g.dtype(u), self.alu_of(u));
        let all = points(&Point::new(), &axes);
        let mut names = Vec::new();
        for (i, point) in all.iter().enumerate() {
            let name = format!("m{}_{i}", u.0);
            let first = self.scalar(x, point)?;
            let s = self.d.variable(&name, dt, 1, &first);
            self.line(&s);
            names.push(name);
        }
        let decides = self.scalar(uniform_part, &Point::new())?;
        let begun = self.d.begin_skip_if(&decides, when);
        let inside = self.p.g.reachable(&[c]);
        let own: Vec<UOp> = self.p.order.iter().copied().filter(|v| self.mask_only.contains(v)).collect();
        for v in own.into_iter().filter(|v| inside.binary_search(v).is_ok()) {
            self.mask_only.remove(&v);
            self.node(v)?;
        }
        let src = self.p.g.srcs(u);
        for (name, point) in names.iter().zip(&all) {
            let operands = src.iter().map(|&s| self.scalar(s, point)).collect::<Result<Vec<_>>>()?;
            let value = self.scalar_op(op, &operands)?;
            let s = self.d.set(name, dt, 1, &value);
            self.line(&s);
        }
        if let Some(begun) = begun {
            self.d.end_skip(begun);
        }
        let names = names.iter().map(|name| self.d.get(name, dt, 1)).collect();
        self.vals.insert(u, Val { axes, vector: false, names });
        Ok(true)
    }
}
