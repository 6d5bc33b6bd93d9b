//! Attention with matrix tiles that read their right factors from panels in workgroup memory
//! ([`crate::uop::mma::PANEL_ROW_ELEMS`]) and execute asynchronously. In: the loop over blocks of keys, and the tile
//! sizes that [`crate::analysis::attention`] has chosen. Out: in each iteration one product of queries and keys, the
//! softmax of its scores, and one product of weights and values, whose left factor is the weights in registers. The
//! second product runs on while the next iteration begins, and while one subgroup computes its softmax the other one
//! multiplies.

use super::{Loop, accumulator, times, update};
use crate::analysis::attention::{Attention, Panels, Strategy, find};
use crate::codegen::axes::Kernel;
use crate::codegen::reduce::LoopInfo;
use crate::codegen::stage::IN_PANELS;
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::mma::{Layout, PANEL_ROW_ELEMS};
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, UOp};
use crate::{DType, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The factor and summand of an exponent: `score * by + less`, where `less` is the row's maximum times `-by`.
struct ExponentTerms {
    by: UOp,
    less: UOp,
}

/// Bytes of keys and values that a cache can hold for all workgroups together.
const CACHED: usize = 32 << 20;

/// Builds the loop over keys.
pub(super) fn lower(
    k: &mut Kernel,
    t: &Target,
    mut a: Attention,
    strategy: &Strategy<'_>,
    p: &Panels,
    loops: &mut FxHashMap<u8, LoopInfo>,
) -> Result<()> {
    let mut first = None;
    if ends_early(&k.g, &a) && k.needed_iterations.is_empty() {
        // workgroups whose rows have the most unmasked keys start first, so that the last ones to run are short
        let ([rows, keys, terms, columns], group) = (a.lens(&k.g), p.group());
        let n = rows.div_ceil(group);
        let r = k.new_range(n, AxisKind::Loop, false)?;
        let last = k.g.idx(n as i64 - 1);
        let back = k.g.binary(Op::Sub, last, r);
        first = Some(times(&mut k.g, back, group));
        let mut others = k.ranges_of(AxisKind::Loop);
        others.retain(|x| ![a.axes[0], a.axes[3], r].contains(x));
        let heads: usize = others.iter().map(|&x| k.g.range_len(x)).product();
        if heads * keys * (terms + columns) * 2 <= CACHED {
            // for all heads: the loops over heads are made anew, because ranges with higher ids nest inside those with
            // lower ones
            let mut map = FxHashMap::default();
            for &x in &others {
                map.insert(x, k.new_range(k.g.range_len(x), AxisKind::Loop, false)?);
            }
            k.replace(&map);
            let Some(found) = find(&k.g, k.sink) else { return Ok(()) };
            a = found;
        }
    }
    Loop::new(k, t, a, strategy, [&p.layouts[0], &p.layouts[1]], first)?.lower_panels(k, t, p, loops)
}

/// Is the score masked by a comparison that depends on its row and its key, but not on the terms?
fn ends_early(g: &Graph, a: &Attention) -> bool {
    let [row, key, _, _] = a.axes;
    let inside = g.reachable(&[a.score]);
    inside.iter().any(|&u| g.op(u) == Op::CmpLt && g.depends(u, row) && g.depends(u, key) && !g.depends(u, a.axes[2]))
}

impl Loop<'_> {
    fn lower_panels(&self, k: &mut Kernel, t: &Target, p: &Panels, loops: &mut FxHashMap<u8, LoopInfo>) -> Result<()> {
        let dt = DType::F32;
        if let Some(end) = self.end(k) {
            k.ends.push((k.g.range_arg(self.block_range).id, end));
        }
        let rows = k.new_range(p.group(), AxisKind::Fill, false)?;
        let at = k.g.binary(Op::Add, self.first, rows);
        let queries = self.panel_of(k, 0, rows, at)?;
        let [keys, values] = [1, 2].map(|which| {
            let row = k.new_range(self.keys, AxisKind::Fill, false)?;
            let at = self.key_of(k, row);
            self.panel_of(k, which, row, at)
        });
        let (keys, values) = (keys?, values?);
        let scale = self.scale_apart(k);
        let zero = k.g.idx(0);
        let [left, right] = [(queries, self.row), (keys, zero)].map(|(stage, row)| self.begins(k, stage, row));
        let mut product = self.product(k, &p.layouts[0], [left, right], &[&self.score.registers]);
        if scale.is_none() && self.a.scales[0] != 1.0 {
            let by = k.g.float(self.a.scales[0], dt);
            product = k.g.binary(Op::Mul, product, by);
        }
        let score = self.score_where_free(k, product)?;
        let (none, nil) = (k.g.float(f64::NEG_INFINITY, dt), k.g.float(0.0, dt));
        let rows = self.rows();
        let m = accumulator(k, none, &rows);
        let l = accumulator(k, nil, &rows);
        let o = accumulator(k, nil, &self.sum.registers);
        let old = k.g.node(Op::AccRead, dt, &[m, self.block_range], Arg::None);
        let mut new = self.folded(k, &[score], ReduceOp::Max)?;
        new = self.across(k, new, ReduceOp::Max, t)?;
        new = k.g.binary(Op::Max, old, new);
        let nothing = k.g.binary(Op::CmpEq, new, none);
        let below = k.g.select(nothing, nil, new);
        let exponent = self.exponent_terms(k, below, scale);
        let weight = self.power(k, score, &exponent, t);
        let shrink = self.power(k, old, &exponent, t);
        let own = self.folded(k, &[weight], ReduceOp::Add)?;
        let left = k.g.cast(weight, k.g.dtype(self.a.elements[2]));
        let right = self.begins(k, values, zero);
        let sum = self.product(k, &p.layouts[1], [left, right], &[&self.score.registers, &self.sum.registers]);
        let mut body: SmallVec<[UOp; 8]> = SmallVec::from_slice(&[self.block_range]);
        body.push(update(k, l, shrink, ReduceOp::Mul, 0));
        body.push(update(k, l, own, ReduceOp::Add, 0));
        body.push(update(k, o, shrink, ReduceOp::Mul, 0));
        body.push(update(k, o, sum, ReduceOp::Add, 0));
        // the next iteration reads it
        body.push(update(k, m, new, ReduceOp::Max, 0));
        self.finish_loop(k, t, loops, &body, [l, o])
    }

    /// The kernel's score, where a select skips the index masks if all keys of the block count for all rows of the
    /// workgroup. Its condition is the same for the whole workgroup, so a renderer may branch on it.
    fn score_where_free(&self, k: &mut Kernel, product: UOp) -> Result<UOp> {
        let first = k.g.idx(0);
        let score = self.score_of(k, product, first)?;
        let [row, key, _, _] = self.a.axes;
        let conds = self.index_masks(k);
        let more = k.g.idx(self.keys as i64 - 1);
        let last = self.key_of(k, more);
        let (mut all, mut map) = (Vec::new(), FxHashMap::default());
        for (c, holds, margin) in conds {
            let margin = substitute1(&mut k.g, margin, &[(key, last), (row, self.first)].into_iter().collect());
            all.push(k.g.binary(Op::CmpLt, first, margin));
            map.insert(c, k.g.bool(holds));
        }
        if self.uneven[1] {
            let n = k.g.idx(k.g.range_len(key) as i64);
            all.push(k.g.binary(Op::CmpLt, last, n));
        }
        let Some(free) = all.into_iter().reduce(|a, b| k.g.binary(Op::And, a, b)) else { return Ok(score) };
        let free = simplify_with(&mut k.g, free, &mut k.memo);
        let plain = substitute1(&mut k.g, self.a.score, &map);
        let plain = simplify_with(&mut k.g, plain, &mut k.memo);
        let plain = self.score_expr(k, plain, product, first);
        let chosen = k.g.select(free, plain, score);
        Ok(simplify_with(&mut k.g, chosen, &mut k.memo))
    }

    /// The staged array of queries, keys or values in panels, one row for each of them.
    fn panel_of(&self, k: &mut Kernel, which: usize, row: UOp, at: UOp) -> Result<UOp> {
        let along = if which == 2 { self.a.axes[3] } else { self.a.axes[2] };
        let own = k.new_range(k.g.range_len(along), AxisKind::Fill, false)?;
        let value = self.element(k, which, at, own);
        Ok(k.g.node(Op::Stage, k.g.dtype(value), &[value, row, own], Arg::Number(1 + IN_PANELS)))
    }

    /// The address of the matrix whose first row is `row`, which must be a multiple of the 8 rows over which the order
    /// of pieces repeats.
    fn begins(&self, k: &mut Kernel, stage: UOp, row: UOp) -> UOp {
        let wide = k.g.idx(PANEL_ROW_ELEMS as i64);
        let at = k.g.binary(Op::Mul, row, wide);
        let at = simplify_with(&mut k.g, at, &mut k.memo);
        k.g.index(stage, at)
    }

    fn product(&self, k: &mut Kernel, layout: &Layout, factors: [UOp; 2], registers: &[&[UOp]]) -> UOp {
        let mut src: SmallVec<[UOp; 16]> = SmallVec::from_slice(&[factors[0], factors[1], self.thread]);
        registers.iter().for_each(|list| src.extend_from_slice(list));
        k.g.node(Op::Mma, DType::F32, &src, Arg::Mma(Box::new(layout.clone())))
    }

    /// The factor of products of queries and keys, if a score is nothing but a masked product: then the largest product
    /// is also the largest score, and the factor can be merged with that of exponents.
    fn scale_apart(&self, k: &Kernel) -> Option<f64> {
        let none = |u: UOp| k.g.const_val(u).is_some_and(|c| c.as_f64() == f64::NEG_INFINITY);
        let mut at = self.a.score;
        while at != self.a.product {
            at = match (k.g.op(at), k.g.src(at)) {
                (Op::Cast, &[x]) => x,
                (Op::Where, &[_, x, y]) if none(y) => x,
                (Op::Where, &[_, y, x]) if none(y) => x,
                _ => return None,
            };
        }
        Some(self.a.scales[0]).filter(|&s| s > 0.0)
    }

    fn exponent_terms(&self, k: &mut Kernel, max: UOp, scale: Option<f64>) -> ExponentTerms {
        let by = k.g.src_at(k.g.src_at(self.a.exp, 0), 1);
        let by = match (scale, k.g.const_val(by)) {
            (Some(scale), Some(c)) => k.g.float(c.as_f64() * scale, DType::F32),
            _ => by,
        };
        let less = k.g.binary(Op::Mul, max, by);
        ExponentTerms { by, less: k.g.unary(Op::Neg, less) }
    }

    /// Two to the power of `x * by + less`, by a fast approximate instruction if the target has one: weights are
    /// rounded to 16 bits anyway.
    fn power(&self, k: &mut Kernel, x: UOp, exponent: &ExponentTerms, t: &Target) -> UOp {
        let power = match t.caps.fma {
            true => k.g.node(Op::MulAdd, DType::F32, &[x, exponent.by, exponent.less], Arg::None),
            false => {
                let x = k.g.binary(Op::Mul, x, exponent.by);
                k.g.binary(Op::Add, x, exponent.less)
            }
        };
        match t.has_rough_powers() {
            true => k.g.node(Op::Exp2, DType::F32, &[power], Arg::Number(16)),
            false => k.g.unary(Op::Exp2, power),
        }
    }
}
