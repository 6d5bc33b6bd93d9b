//! The products of attention with register tiles, for targets without matrix instructions and for f32. In: the loop
//! over blocks of keys, and the tile sizes that [`crate::analysis::attention`] has chosen. Out: both products. For the
//! first one, threads read queries and keys from arrays whose rows are terms, so that vectors run along neighbouring
//! keys. Weights are then exchanged through workgroup memory, because a thread sums over all keys for its rows, and the
//! vectors of the second product run along neighbouring columns.

use super::super::reduce::{exchange, update};
use super::super::shared::next_scratch;
use super::super::stage::place_in;
use super::{Arrays, Loop, times};
use crate::analysis::attention::Registers;
use crate::codegen::axes::Kernel;
use crate::codegen::reduce::LoopInfo;
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::target::Target;
use crate::uop::mma::Side;
use crate::uop::{Arg, AxisKind, Op, ReduceOp, Space, UOp};
use crate::{DType, Result};
use rustc_hash::FxHashMap;

/// Terms per iteration of a product's loop (its unroll factor).
const TERMS: usize = 4;

impl Loop<'_> {
    /// The arrays that the workgroup stages.
    pub(super) fn arrays(&self, k: &mut Kernel, r: &Registers) -> Result<Arrays> {
        let [queries, values] = r.staged;
        Ok(Arrays {
            keys: self.turned(k, 1, r.keys())?,
            queries: if queries { Some(self.turned(k, 0, r.group())?) } else { None },
            values: if values { Some(self.straight(k)?) } else { None },
        })
    }

    /// The staged array of queries or keys, transposed: one row for each term.
    fn turned(&self, k: &mut Kernel, which: usize, n: usize) -> Result<UOp> {
        let term = k.new_range(k.g.range_len(self.a.axes[2]), AxisKind::Fill, false)?;
        let i = k.new_range(n, AxisKind::Fill, false)?;
        let at = if which == 0 { k.g.binary(Op::Add, self.first, i) } else { self.key_of(k, i) };
        let value = self.element(k, which, at, term);
        Ok(k.g.node(Op::Stage, k.g.dtype(value), &[value, term, i], Arg::None))
    }

    /// The staged array of values: one row for each key.
    fn straight(&self, k: &mut Kernel) -> Result<UOp> {
        let i = k.new_range(self.keys, AxisKind::Fill, false)?;
        let column = k.new_range(k.g.range_len(self.a.axes[3]), AxisKind::Fill, false)?;
        let at = self.key_of(k, i);
        let value = self.element(k, 2, at, column);
        Ok(k.g.node(Op::Stage, k.g.dtype(value), &[value, i, column], Arg::None))
    }

    /// The element of a staged array at these indices, as f32.
    fn read(&self, k: &mut Kernel, stage: UOp, [row, column]: [UOp; 2]) -> UOp {
        let [rows, columns] = [1, 2].map(|i| k.g.range_len(k.g.src_at(stage, i)));
        let at = place_in(&mut k.g, stage, &[(row, rows), (column, columns)]);
        let at = simplify_with(&mut k.g, at, &mut k.memo);
        let index = k.g.index(stage, at);
        let x = k.g.load(index);
        k.g.cast(x, DType::F32)
    }

    /// A loop over `n` elements, unrolled by [`TERMS`] if that divides `n`: the index, and the ranges that it is made
    /// of.
    fn steps(&self, k: &mut Kernel, n: usize) -> Result<(UOp, Vec<UOp>)> {
        let each = if n.is_multiple_of(TERMS) { TERMS } else { 1 };
        let around = k.new_range(n / each, AxisKind::Reduce, false)?;
        let inside = k.new_range(each, AxisKind::Unroll, false)?;
        let at = times(&mut k.g, around, each);
        Ok((k.g.binary(Op::Add, at, inside), vec![around, inside]))
    }

    /// Products of queries and keys, for keys of the block from offset `first` on.
    pub(super) fn terms(&self, k: &mut Kernel, arrays: &Arrays, first: UOp) -> Result<UOp> {
        let (term, over) = self.steps(k, k.g.range_len(self.a.axes[2]))?;
        let place = self.key.place(&mut k.g, Side::N);
        let key = k.g.binary(Op::Add, first, place);
        let right = self.read(k, arrays.keys, [term, key]);
        let [row, inside] = self.rows_of(k, &self.query);
        let left = match arrays.queries {
            Some(stage) => self.read(k, stage, [term, inside]),
            None => {
                let x = self.element(k, 0, row, term);
                k.g.cast(x, DType::F32)
            }
        };
        let product = k.g.binary(Op::Mul, left, right);
        Ok(k.g.reduce_over(product, ReduceOp::Add, &over))
    }

    /// The reduction over all threads that hold elements of the row, through workgroup memory.
    pub(super) fn joined(&self, k: &mut Kernel, part: UOp, op: ReduceOp, t: &Target) -> Result<UOp> {
        let n = self.layout.threads();
        if n == 1 {
            return Ok(part);
        }
        let other = k.new_range(n, AxisKind::Unroll, false)?;
        let parts = exchange(k, part, self.thread, other, Space::Workgroup, t)?;
        let mut all = part;
        for i in 0..n {
            let i = k.g.int(i as i64, k.g.dtype(other));
            let x = substitute1(&mut k.g, parts, &[(other, i)].into_iter().collect());
            let x = simplify_with(&mut k.g, x, &mut k.memo);
            all = if all == part { x } else { k.g.binary(op.op(), all, x) };
        }
        Ok(all)
    }

    /// Adds weights times values to an accumulator.
    pub(super) fn summed(
        &self,
        k: &mut Kernel,
        r: &Registers,
        [acc, weights]: [UOp; 2],
        values: Option<UOp>,
        t: &Target,
        loops: &mut FxHashMap<u8, LoopInfo>,
    ) -> Result<UOp> {
        let weights = self.shared(k, r, weights);
        let (key, over) = self.steps(k, r.keys())?;
        let [_, inside] = self.rows_of(k, &self.sum);
        let at = self.weight_at(k, r, key, inside);
        let index = k.g.index(weights, at);
        let left = k.g.load(index);
        let from = times(&mut k.g, self.column, self.sides[1]);
        let place = self.value.place(&mut k.g, Side::N);
        let column = k.g.binary(Op::Add, from, place);
        let right = match values {
            Some(stage) => self.read(k, stage, [key, column]),
            None => {
                let at = self.key_of(k, key);
                let x = self.element(k, 2, at, column);
                k.g.cast(x, DType::F32)
            }
        };
        let product = k.g.binary(Op::Mul, left, right);
        let add = update(&mut k.g, ReduceOp::Add, acc, product, 0, t);
        let bits = over.iter().fold(0, |m, &r| m | k.g.ranges(r));
        loops.insert(k.g.range_arg(over[0]).id, LoopInfo { parent: None, around: k.g.ranges(add) & !bits });
        Ok(k.g.node(Op::End, DType::Void, &[over[0], add], Arg::None))
    }

    /// The array of all weights of the block, ordered after the barrier behind which all threads have stored theirs.
    fn shared(&self, k: &mut Kernel, r: &Registers, weights: UOp) -> UOp {
        let (id, len) = (next_scratch(&k.g), r.pitch() * r.keys());
        let scratch = k.g.node(Op::Scratch, DType::F32, &[], Arg::Scratch { id, len, space: Space::Workgroup });
        let (zero, place) = (self.adjacent_tile_offset(k, 0, self.sides[1]), self.score.place(&mut k.g, Side::N));
        let key = k.g.binary(Op::Add, zero, place);
        let [_, inside] = self.rows_of(k, &self.score);
        let at = self.weight_at(k, r, key, inside);
        let index = k.g.index(scratch, at);
        let store = k.g.store(index, weights);
        let barrier = k.g.node(Op::Barrier, DType::Void, &[store], Arg::None);
        k.g.after(scratch, &[barrier, self.block_range])
    }

    fn weight_at(&self, k: &mut Kernel, r: &Registers, key: UOp, row: UOp) -> UOp {
        let key = times(&mut k.g, key, r.pitch());
        let at = k.g.binary(Op::Add, key, row);
        simplify_with(&mut k.g, at, &mut k.memo)
    }
}
