//! Matrix tiles: replaces a sum of products whose rows, columns and terms were cut by opts to the dimensions of a tile
//! of the target by [`Op::Mma`].
//!
//! Before this pass each element of the product is a sum of its own. After it, the threads of a subgroup hold the
//! elements of both factors and of the product as the tile's layout says: the row and column of an element are computed
//! from digits of the thread's and the register's number, in the addresses from which the factors are loaded and in
//! everything that uses the product. The op includes the sum over the terms of a tile; the sum over tiles remains a
//! reduction, which `reduce` lowers to an accumulator and a loop as usual.

use super::axes::Kernel;
use super::stage::panel_rows;
use crate::analysis::affine;
use crate::analysis::product::{Terms, is_half, terms_of};
use crate::rewrite::substitute1;
use crate::rules::simplify_with;
use crate::target::{MatrixTile, Target};
use crate::uop::mma::{Digit, Distribution, MATRIX_TILES_ENABLED, PANEL_ROW_ELEMS, Side};
use crate::uop::{Arg, AxisKind, Graph, Op, ReduceOp, UOp};
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Lowers the product that has tile axes, if the kernel has one. It is an error if the target has no tile for axes that
/// opts have cut.
pub(super) fn lower(k: &mut Kernel, t: &Target) -> Result<()> {
    let sides = k.ranges_of(AxisKind::Tile);
    if !t.has_tiles() || sides.is_empty() {
        return Ok(());
    }
    let found = k.reduces().into_iter().find_map(|sum| Some((sum, find(k, t, sum, &sides)?)));
    let Some((sum, product)) = found else {
        return Err(Error::value("opt", format!("tile: {} has no matrix tile for these axes", t.name)));
    };
    if product.tile.layout.in_memory() {
        return product.lower_in_memory(k, sum);
    }
    let layout = &product.tile.layout;
    let thread = match layout.threads() {
        1 => k.g.idx(0),
        n => k.new_range(n, AxisKind::Local(0), false)?,
    };
    let a = Fragment::new(k, &layout.a, thread)?;
    let b = Fragment::new(k, &layout.b, thread)?;
    let c = Fragment::new(k, &layout.c, thread)?;
    let [m, n, terms] = product.axes;
    let left = product.factor(k, 0, &a, [(m, Side::M), (terms, Side::K)]);
    let right = product.factor(k, 1, &b, [(n, Side::N), (terms, Side::K)]);
    let mut src: SmallVec<[UOp; 16]> = SmallVec::from_slice(&[left, right, thread]);
    for f in [&a, &b, &c] {
        src.extend_from_slice(&f.registers);
    }
    let mma = k.g.node(Op::Mma, product.tile.sums, &src, Arg::Mma(Box::new(layout.clone())));
    product.put(k, sum, mma, &c);
    Ok(())
}

/// A sum of products, and the matrix tile that computes it.
struct Product<'a> {
    tile: &'a MatrixTile,
    /// The left factor and the right one, in the dtype that the tile takes.
    factors: [UOp; 2],
    /// The axes of the tile: rows, columns, and the summed axis.
    axes: [UOp; 3],
    /// A condition: terms for which it is false are zero.
    gate: Option<UOp>,
    /// A constant by which the sum is multiplied.
    scale: f64,
    /// The target has an instruction by which a subgroup loads matrices from workgroup memory.
    loads: bool,
}

/// Does the tile take factors of these dtypes, for a sum of this dtype? Sums of 16-bit floats are accumulated in f32 in
/// any case.
pub(super) fn takes(tile: &MatrixTile, g: &Graph, factors: [UOp; 2], sum: UOp) -> bool {
    let sums = if is_half(g.dtype(sum)) { DType::F32 } else { g.dtype(sum) };
    factors.iter().all(|&x| g.dtype(x) == tile.factors) && sums == tile.sums
}

fn find<'a>(k: &Kernel, t: &'a Target, sum: UOp, sides: &[UOp]) -> Option<Product<'a>> {
    let g = &k.g;
    let Terms { pair, gate, scale } = terms_of(g, sum)?;
    let &[p, q] = sides else { return None };
    let mut terms = g.src(sum)[1..].iter().copied().filter(|&r| g.kind(r) == AxisKind::Dot);
    let (Some(terms), None) = (terms.next(), terms.next()) else { return None };
    let has = |u: UOp, r: UOp| g.depends(u, r);
    if gate.is_some_and(|u| has(u, p) || has(u, q)) {
        return None;
    }
    // either factor may be the left one, and either axis may be rows
    let ways = [(pair, [p, q]), ([pair[1], pair[0]], [p, q]), (pair, [q, p]), ([pair[1], pair[0]], [q, p])];
    let fits =
        |tile: &&MatrixTile, axes: [UOp; 3]| takes(tile, g, pair, sum) && tile.sides() == axes.map(|r| g.range_len(r));
    ways.into_iter().find_map(|(factors, [m, n])| {
        let axes = [m, n, terms];
        let tile = t.caps.matrix_tiles.iter().find(|tile| fits(tile, axes))?;
        (!has(factors[0], n) && !has(factors[1], m)).then_some(Product {
            tile,
            factors,
            axes,
            gate,
            scale,
            loads: t.caps.copies.is_some(),
        })
    })
}

/// Have the axes been cut for a tile that reads its factors from workgroup memory? Staged arrays are made before the
/// product is recognised, so only the lengths of the axes can tell.
pub(super) fn in_memory(k: &Kernel, t: &Target) -> bool {
    let sides = [AxisKind::Tile, AxisKind::Dot].map(|kind| k.ranges_of(kind));
    let [[p, q], [terms]] = [sides[0].as_slice(), sides[1].as_slice()] else { return false };
    let [p, q, terms] = [*p, *q, *terms].map(|r| k.g.range_len(r));
    let fits = |tile: &MatrixTile| [[p, q, terms], [q, p, terms]].contains(&tile.sides());
    MATRIX_TILES_ENABLED && t.caps.matrix_tiles.iter().any(|tile| tile.layout.in_memory() && fits(tile))
}

impl Product<'_> {
    /// Replaces the sum by the product of tiles, and the axes of rows and columns by the row and column of the element
    /// that a thread's register holds.
    fn put(&self, k: &mut Kernel, sum: UOp, mma: UOp, c: &Fragment<'_>) {
        let [m, n, terms] = self.axes;
        let rest: SmallVec<[UOp; 4]> = k.g.src(sum)[1..].iter().copied().filter(|&r| r != terms).collect();
        let mut all = k.g.reduce_over(mma, ReduceOp::Add, &rest);
        if self.scale != 1.0 {
            let by = k.g.float(self.scale, k.g.dtype(all));
            all = k.g.binary(Op::Mul, all, by);
        }
        let all = k.g.cast(all, k.g.dtype(sum));
        let mut map = FxHashMap::default();
        map.insert(sum, all);
        for (r, side) in [(m, Side::M), (n, Side::N)] {
            map.insert(r, c.place(&mut k.g, side));
        }
        k.replace(&map);
    }

    /// Lowers a product whose factors are read from workgroup memory, where they are stored in panels
    /// ([`mma::PANEL_ROW_ELEMS`](crate::uop::mma::PANEL_ROW_ELEMS)).
    fn lower_in_memory(&self, k: &mut Kernel, sum: UOp) -> Result<()> {
        let refuse = |why: &str| Error::value("opt", format!("tile: a factor {why}"));
        if self.gate.is_some() {
            return Err(refuse("has terms that do not count"));
        }
        let mut layout = self.tile.layout.clone();
        let [m, n, terms] = self.axes;
        let mut at = [terms; 2];
        for (i, (across, side)) in [(m, Side::M), (n, Side::N)].into_iter().enumerate() {
            let x = self.factors[i];
            let index = k.g.src_at(x, 0);
            let staged = k.g.op(x) == Op::Load && k.g.src(x).len() == 1 && k.g.op(k.g.src_at(index, 0)) == Op::Stage;
            let panels = Some(k.g.src_at(index, 0)).filter(|_| staged).and_then(|s| panel_rows(&k.g, s));
            let Some(panel) = panels else { return Err(refuse("does not lie in panels")) };
            let place = k.g.src_at(index, 1);
            let place = simplify_with(&mut k.g, place, &mut k.memo);
            let a = affine(&k.g, place);
            // the dimension of the factor along which elements are contiguous
            let contiguous_side = match a.stride(&k.g, terms) {
                Some(1) => Side::K,
                _ => side,
            };
            let distribution = if i == 0 { &mut layout.a } else { &mut layout.b };
            *distribution = in_panels(side, contiguous_side, k.g.range_len(across), k.g.range_len(terms), panel)
                .ok_or_else(|| refuse("has sides that make no panels"))?;
            let zero = k.g.idx(0);
            let map = [(across, zero), (terms, zero)].into_iter().collect();
            let index = substitute1(&mut k.g, index, &map);
            at[i] = simplify_with(&mut k.g, index, &mut k.memo);
        }
        let thread = k.new_range(layout.threads(), AxisKind::Local(0), false)?;
        let c = Fragment::new(k, &layout.c, thread)?;
        let mut src: SmallVec<[UOp; 16]> = SmallVec::from_slice(&[at[0], at[1], thread]);
        src.extend_from_slice(&c.registers);
        let mma = k.g.node(Op::Mma, self.tile.sums, &src, Arg::Mma(Box::new(layout.clone())));
        self.put(k, sum, mma, &c);
        Ok(())
    }

    /// The elements of a factor that each thread holds, with zeros for terms outside the gate.
    fn factor(&self, k: &mut Kernel, which: usize, f: &Fragment<'_>, axes: [(UOp, Side); 2]) -> UOp {
        let mut x = self.factors[which];
        if let Some(gate) = self.gate {
            let zero = k.g.float(0.0, k.g.dtype(x));
            x = k.g.select(gate, x, zero);
        }
        if self.loads
            && let Some(loaded) = f.load(k, x, axes)
        {
            return loaded;
        }
        let map = axes.into_iter().map(|(r, side)| (r, f.place(&mut k.g, side))).collect();
        let x = substitute1(&mut k.g, x, &map);
        simplify_with(&mut k.g, x, &mut k.memo)
    }
}

/// The layout of a factor that is stored in panels of `panel` rows, contiguous along `contiguous_side`; `None` if its
/// lengths do not fit the layout's numbers.
fn in_panels(side: Side, contiguous_side: Side, across: usize, terms: usize, panel: usize) -> Option<Distribution> {
    let digit = |side: Side, step: usize, len: usize| {
        Some(Digit { side, step: u8::try_from(step).ok()?, len: u8::try_from(len).ok()? })
    };
    let mut registers: SmallVec<[Digit; 4]> = SmallVec::new();
    if contiguous_side == Side::K {
        registers.push(digit(Side::K, 1, terms)?);
    }
    registers.push(digit(side, 1, across.min(PANEL_ROW_ELEMS))?);
    if contiguous_side != Side::K {
        registers.push(digit(Side::K, 1, terms)?);
    }
    if across > PANEL_ROW_ELEMS {
        registers.push(digit(side, PANEL_ROW_ELEMS, across / PANEL_ROW_ELEMS)?);
    }
    Some(Distribution { threads: SmallVec::new(), registers, panel: u16::try_from(panel).ok()? })
}

/// One of the three matrices of a tile: its layout, the thread number, and the range of each register digit.
pub(super) struct Fragment<'a> {
    pub(super) distribution: &'a Distribution,
    pub(super) thread: UOp,
    pub(super) registers: SmallVec<[UOp; 4]>,
}

impl<'a> Fragment<'a> {
    pub(super) fn new(k: &mut Kernel, distribution: &'a Distribution, thread: UOp) -> Result<Fragment<'a>> {
        let axis = |d: &Digit| k.new_range(d.len as usize, AxisKind::Upcast, false);
        let registers = distribution.axes().iter().map(axis).collect::<Result<_>>()?;
        Ok(Fragment { distribution, thread, registers })
    }

    /// Loads the fragment of a factor in workgroup memory as matrices of 8 by 8 elements that the subgroup loads
    /// together ([`Op::LoadMatrix`]), one for each pair of registers of a thread. `None` if the factor is not stored
    /// there as whole rows.
    pub(super) fn load(&self, k: &mut Kernel, x: UOp, axes: [(UOp, Side); 2]) -> Option<UOp> {
        let g = &k.g;
        let [pair, rest @ ..] = self.distribution.registers.as_slice() else { return None };
        let index = g.src_at(x, 0);
        let staged = g.op(x) == Op::Load && g.src(x).len() == 1 && g.op(g.src_at(index, 0)) == Op::Stage;
        // each thread holds two adjacent elements along k of one of eight rows or columns
        let side = axes[0].1;
        let quads = [Digit { side: Side::K, step: 2, len: 4 }, Digit { side, step: 1, len: 8 }];
        let eights = rest.len() <= 2 && rest.iter().all(|d| d.step == 8 && d.len == 2);
        let in_pairs = *pair == (Digit { side: Side::K, step: 1, len: 2 }) && self.distribution.threads[..] == quads;
        if !staged || g.dtype(x).size() != 2 || !in_pairs || !eights {
            return None;
        }
        let a = affine(g, g.src_at(index, 1));
        let stride = |r: UOp| a.stride(g, r);
        let [across, terms] = axes.map(|x| x.0);
        let (transposed, contiguous) = match (stride(across), stride(terms)) {
            (Some(_), Some(1)) => (false, terms),
            (Some(1), Some(_)) => (true, across),
            _ => return None,
        };
        let aligned = a.terms.iter().all(|&(r, c)| r == contiguous || c % 8 == 0);
        if !aligned || a.non_affine_ranges != 0 || !a.others.is_empty() || a.constant % 8 != 0 {
            return None;
        }
        // thread `8 * i + j` provides the address of row `j` of matrix `i`
        let rows = if transposed { Side::K } else { side };
        let g = &mut k.g;
        let eight = g.idx(8);
        let (row, matrices) = (g.binary(Op::FloorMod, self.thread, eight), g.binary(Op::FloorDiv, self.thread, eight));
        let at = |g: &mut Graph, of: Side| {
            let mut place = if of == rows { row } else { g.idx(0) };
            let (two, mut matrix) = (g.idx(2), matrices);
            for d in rest {
                let digit = g.binary(Op::FloorMod, matrix, two);
                matrix = g.binary(Op::FloorDiv, matrix, two);
                if d.side == of {
                    let offset = g.binary(Op::Mul, digit, eight);
                    place = g.binary(Op::Add, place, offset);
                }
            }
            place
        };
        let map = axes.into_iter().map(|(r, of)| (r, at(g, of))).collect();
        let index = substitute1(g, index, &map);
        let index = simplify_with(g, index, &mut k.memo);
        let mut src: SmallVec<[UOp; 8]> = SmallVec::from_slice(&[index, self.thread]);
        src.extend_from_slice(&self.registers);
        let dt = k.g.dtype(x);
        Some(k.g.node(Op::LoadMatrix, dt, &src, Arg::Number(u32::from(transposed))))
    }

    /// The index of an element along a dimension of the tile, computed from the thread and the register that hold it.
    pub(super) fn place(&self, g: &mut Graph, side: Side) -> UOp {
        let mut at = g.idx(0);
        let mut add = |g: &mut Graph, d: &Digit, value: UOp| {
            let step = g.idx(i64::from(d.step));
            let offset = g.binary(Op::Mul, value, step);
            at = g.binary(Op::Add, at, offset);
        };
        let mut rest = self.thread;
        for d in &self.distribution.threads {
            let len = g.idx(i64::from(d.len));
            if d.side == side {
                let value = g.binary(Op::FloorMod, rest, len);
                add(g, d, value);
            }
            rest = g.binary(Op::FloorDiv, rest, len);
        }
        for (d, &r) in self.distribution.registers.iter().zip(&self.registers) {
            if d.side == side {
                add(g, d, r);
            }
        }
        at
    }
}
