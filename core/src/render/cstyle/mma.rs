//! Prints products of matrix tiles ([`Op::Mma`]), loads of matrices, and asynchronous copies to workgroup memory. A
//! thread holds a part of each of the three matrices, as a list of registers in the order of their numbers.

use super::value::{Point, Val, coordinate, points, with};
use super::walk::Walk;
use super::{At, Copy, Dialect, Factors, Ptr};
use crate::codegen::TileAxis;
use crate::dtype::Scalar;
use crate::target::MatrixTile;
use crate::uop::{Arg, Op, ReduceOp, UOp};
use crate::{Error, Result};
use smallvec::SmallVec;

/// A matrix product: its tile, its factors, and for each matrix the tile axes that number a thread's registers, the
/// fastest last.
struct Product {
    tile: MatrixTile,
    factors: [UOp; 2],
    axes: [SmallVec<[TileAxis; 4]>; 3],
}

impl<D: Dialect> Walk<'_, D> {
    /// The product that an update adds to its accumulator.
    pub(super) fn multiplied(&self, update: UOp) -> Option<UOp> {
        let g = &self.p.g;
        let adds = g.op(update) == Op::AccUpdate && matches!(g.arg(update), Arg::Reduce(ReduceOp::Add, _));
        let src = g.src(update);
        (adds && g.op(src[1]) == Op::Mma && g.dtype(src[0]) == g.dtype(src[1])).then(|| src[1])
    }

    fn product(&self, u: UOp) -> Result<Product> {
        let g = &self.p.g;
        let Arg::Mma(layout) = g.arg(u) else { return Err(Error::Internal(format!("{u:?} has no layout"))) };
        let src = g.src(u);
        let mut ranges = src[3..].iter();
        let mut axes = |n: usize| {
            let ids: Vec<u8> = ranges.by_ref().take(n).map(|&r| g.range_arg(r).id).collect();
            let axis = |id: &u8| self.p.tiles.iter().copied().find(|t| t.id == *id);
            ids.iter().rev().filter_map(axis).collect::<SmallVec<[TileAxis; 4]>>()
        };
        let axes = [&layout.a, &layout.b, &layout.c].map(|s| axes(s.axes().len()));
        let tile = MatrixTile { layout: (**layout).clone(), factors: g.dtype(src[0]), sums: g.dtype(u) };
        Ok(Product { tile, factors: [src[0], src[1]], axes })
    }

    /// A product with a use other than being added to an accumulator: it is added to zeros.
    pub(super) fn mma(&mut self, u: UOp) -> Result<()> {
        let uses = |&user: &UOp| self.p.g.src(user).contains(&u) && self.multiplied(user) != Some(u);
        if !self.p.order.iter().any(uses) {
            return Ok(());
        }
        let (axes, dt) = (self.p.tile(u), self.p.g.dtype(u));
        let zero = self.d.literal(Scalar::float(0.0), dt);
        let in_memory = matches!(self.p.g.arg(u), Arg::Mma(l) if l.in_memory());
        let names: Vec<String> = (0..points(&Point::new(), &axes).len()).map(|i| format!("v{}_{i}", u.0)).collect();
        for name in &names {
            let s = if in_memory { self.d.unset(name, dt) } else { self.d.variable(name, dt, 1, &zero) };
            self.line(&s);
        }
        let sums = Val { axes, vector: false, names };
        self.multiply(u, &sums, true)?;
        self.vals.insert(u, sums);
        Ok(())
    }

    /// An update that adds a product to its accumulator: one instruction for each matrix tile.
    pub(super) fn update_mma(&mut self, update: UOp, product: UOp) -> Result<()> {
        let sums = self.val(self.p.g.src_at(update, 0))?;
        self.multiply(product, &sums, false)
    }

    /// Adds a product to sums. Where `fresh`, the sums have no earlier value and are set to the product.
    fn multiply(&mut self, u: UOp, sums: &Val, fresh: bool) -> Result<()> {
        let m = self.product(u)?;
        if sums.axes.iter().any(|a| a.lane) || self.p.tile(u).iter().any(|a| !sums.axes.iter().any(|s| s.id == a.id)) {
            return Err(Error::Internal(format!("a matrix tile in {} is folded or has lanes", self.p.name)));
        }
        let outer: Vec<TileAxis> =
            sums.axes.iter().copied().filter(|a| !m.axes[2].iter().any(|c| c.id == a.id)).collect();
        for point in points(&Point::new(), &outer) {
            let c: Vec<String> = points(&point, &m.axes[2]).iter().map(|p| sums.at(p).to_string()).collect();
            let layout = &m.tile.layout;
            let mut registers = [Vec::new(), Vec::new()];
            let mut begin = [None, None];
            for (i, spread) in [&layout.a, &layout.b].into_iter().enumerate() {
                if spread.in_memory() {
                    begin[i] = Some(self.address(m.factors[i], &point, None)?);
                    continue;
                }
                for p in points(&point, &m.axes[i]) {
                    registers[i].push(self.scalar(m.factors[i], &p)?);
                }
            }
            let s = match &begin {
                [a, Some((p, at))] => {
                    let a = a.as_ref().map(|(p, at)| (p, at));
                    let factors = Factors { a, a_registers: &registers[0], b: (p, at), fresh };
                    self.d.mma_in_memory(&m.tile, &c, factors)?
                }
                _ => self.d.mma(&m.tile, &c, &registers[0], &registers[1])?,
            };
            self.line(&s);
        }
        Ok(())
    }

    /// Matrices that a subgroup loads from workgroup memory: one instruction for each point of the other axes.
    pub(super) fn load_matrices(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let (index, transposed) = (g.src_at(u, 0), *g.arg(u) == Arg::Number(1));
        let ids: SmallVec<[u8; 4]> = g.src(u)[2..].iter().map(|&r| g.range_arg(r).id).collect();
        let axes = self.p.tile(u);
        let register = |p: &Point| ids.iter().rev().fold(0, |n, &id| 2 * n + coordinate(p, id));
        let mut loaded: Vec<(Point, Vec<String>)> = Vec::new();
        let mut names = Vec::new();
        for point in points(&Point::new(), &axes) {
            let mut outer = point.clone();
            outer.retain(|c| !ids.contains(&c.0));
            if !loaded.iter().any(|x| x.0 == outer) {
                let (p, at) = self.address(index, &outer, None)?;
                let all = self.d.load_matrices(&p, &at, 1 << (ids.len() - 1), transposed)?;
                loaded.push((outer.clone(), all));
            }
            let all = loaded.iter().find(|x| x.0 == outer).and_then(|x| x.1.get(register(&point)));
            names.push(
                all.cloned().ok_or_else(|| Error::Internal(format!("a matrix in {} lacks elements", self.p.name)))?,
            );
        }
        self.vals.insert(u, Val { axes, vector: false, names });
        Ok(())
    }

    /// The address at which a copy begins. Copies whose offsets differ by a constant share an address.
    fn copy_address(&mut self, index: UOp, point: &Point) -> Result<(Ptr, At)> {
        let g = &self.p.g;
        let (p, at) = self.address(index, point, None)?;
        let offset = g.src_at(index, 1);
        match (g.op(offset), g.src(offset)) {
            (Op::Add, &[x, c]) if g.const_int(c).is_some() => {
                let (base, c) = (self.scalar(x, point)?, g.const_int(c).unwrap_or(0));
                Ok((p, At { base, plus: at.plus + c, ..at }))
            }
            _ => Ok((p, at)),
        }
    }

    /// Asynchronous copies to workgroup memory: one for each point of the axes other than the lanes.
    pub(super) fn copy(&mut self, u: UOp) -> Result<()> {
        let g = &self.p.g;
        let Arg::Number(bytes) = *g.arg(u) else { return Err(Error::Internal(format!("{u:?} copies no bytes"))) };
        let (src, load) = (g.srcs(u), g.src_at(u, 1));
        let from = g.src_at(load, 0);
        let inside = g.src(load).get(2).copied();
        let axes = self.p.tile(u);
        let (lanes, outer): (Vec<TileAxis>, Vec<TileAxis>) = axes.into_iter().partition(|a| a.lane);
        let whole = lanes.iter().map(|a| a.len).product::<usize>() * g.dtype(load).size();
        if whole != bytes as usize {
            return Err(Error::Internal(format!("a copy of {whole} bytes in {}, not {bytes}", self.p.name)));
        }
        for point in points(&Point::new(), &outer) {
            let first = lanes.iter().fold(point.clone(), |p, a| with(&p, a.id, 0));
            let (to, to_at) = self.copy_address(src[0], &first)?;
            let (from, from_at) = self.copy_address(from, &first)?;
            let inside = inside.map(|c| self.scalar(c, &first)).transpose()?;
            let gate = src.get(2).map(|&c| self.scalar(c, &first)).transpose()?;
            let copy = Copy { to: (&to, &to_at), from: (&from, &from_at), bytes };
            let s = self.d.copy(&copy, inside.as_deref(), gate.as_deref())?;
            self.line(&s);
        }
        Ok(())
    }
}
