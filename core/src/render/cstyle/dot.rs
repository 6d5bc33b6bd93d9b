//! Finds and prints sums of products of bytes, four at a time: where an update `acc += a * b` reduces an axis of four
//! whose elements are adjacent in both factors, it is one byte dot product of 32-bit words, in a language that has it.
//! The loads of the factors become loads of words and must have no other use.

use super::access::{accesses, aligned, divisible};
use super::value::{Point, Val, points};
use super::walk::Walk;
use super::{Dialect, Gate};
use crate::codegen::{Program, TileAxis};
use crate::uop::{Arg, Op, UOp};
use crate::{DType, Result};

/// Bytes of a word.
const WORD: usize = 4;

/// The part that a node plays in such a sum, with the axis within words.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    None,
    Update(u8),
    Cast,
    Load(u8),
}

/// The part of each node of a program in such sums, by node number; empty if there are none.
#[derive(Default, PartialEq)]
pub(in crate::render) struct Dots(Vec<Part>);

impl Dots {
    /// Finds the sums; `readable` says whether an array (a Param or Scratch) can be read by words.
    pub(in crate::render) fn find(p: &Program, readable: &dyn Fn(UOp) -> bool) -> Dots {
        let g = &p.g;
        let factors = |u: UOp| g.src(u)[1..].iter().copied();
        let fits = |u: UOp, axis: u8| factors(u).all(|x| is_words(p, x, axis) && readable(p.base(g.src_at(x, 0))));
        let some = |u: UOp| folded(p, u).filter(|&axis| fits(u, axis)).map(|axis| (u, axis));
        let mut updates: Vec<(UOp, u8)> = p.order.iter().filter_map(|&u| some(u)).collect();
        let mut uses = vec![0u32; g.len()];
        p.order.iter().flat_map(|&u| g.src(u)).for_each(|s| uses[s.0 as usize] += 1);
        // a factor with another use is not read by words, so neither is the other factor of that product
        loop {
            let all = updates.len();
            let before = updates.clone();
            updates.retain(|&(u, axis)| {
                factors(u).all(|x| {
                    let own: usize =
                        before.iter().filter(|b| b.1 == axis).map(|b| factors(b.0).filter(|&y| y == x).count()).sum();
                    uses[x.0 as usize] as usize == own && uses[g.src_at(x, 0).0 as usize] == 1
                })
            });
            if updates.len() == all {
                break;
            }
        }
        let mut parts = Vec::new();
        for &(u, axis) in &updates {
            parts.resize(g.len(), Part::None);
            parts[u.0 as usize] = Part::Update(axis);
            for x in factors(u) {
                parts[x.0 as usize] = Part::Cast;
                parts[g.src_at(x, 0).0 as usize] = Part::Load(axis);
            }
        }
        Dots(parts)
    }

    /// Finds the sums whose buffers all loads read by words, so that these can be declared as arrays of words.
    #[cfg(feature = "gpu-c")]
    pub(in crate::render) fn of_word_buffers(p: &Program) -> Dots {
        let mut dots = Dots::find(p, &|base| p.g.op(base) == Op::Param);
        loop {
            let only = |base: UOp| p.g.op(base) == Op::Param && accesses(p, base).all(|u| dots.has(u));
            let fewer = Dots::find(p, &only);
            if fewer == dots {
                return dots;
            }
            dots = fewer;
        }
    }

    fn part(&self, u: UOp) -> Part {
        self.0.get(u.0 as usize).copied().unwrap_or(Part::None)
    }

    /// Is it a load of words?
    pub(in crate::render) fn has(&self, load: UOp) -> bool {
        matches!(self.part(load), Part::Load(_))
    }

    /// Is an array, given by its Param or Scratch, read by words?
    #[cfg(feature = "gpu-c")]
    pub(in crate::render) fn reads(&self, p: &Program, base: UOp) -> bool {
        accesses(p, base).any(|u| self.has(u))
    }

    /// Is an array of `len` elements, given by its Param or Scratch, only read by aligned vectors of four words?
    pub(in crate::render) fn quads(&self, p: &Program, base: UOp, len: usize) -> bool {
        len.is_multiple_of(4 * WORD) && accesses(p, base).all(|u| self.has(u) && is_quad(p, u))
    }
}

/// Does a load of words read an aligned vector of four words, one for each lane?
fn is_quad(p: &Program, u: UOp) -> bool {
    let index = p.g.src_at(u, 0);
    let open = p.g.ranges(index);
    let Some(lane) = p.tiles.iter().find(|t| t.lane && t.len == 4 && open >> t.id & 1 == 1) else { return false };
    let within = p.tiles.iter().find(|t| !t.lane && t.len == WORD && p.stride(index, t.id) == 1);
    let one_offset = p.g.ranges(p.g.src_at(index, 1)) >> lane.id & 1 == 0;
    within.is_some_and(|w| {
        p.stride(index, lane.id) == WORD as i64 && one_offset && aligned(p, index, &[lane.id, w.id], 4 * WORD)
    })
}

/// The reduced axis of four of an update that adds up products of bytes in i32.
fn folded(p: &Program, u: UOp) -> Option<u8> {
    let g = &p.g;
    if g.op(u) != Op::AccMulAdd || g.dtype(g.src_at(u, 0)) != DType::I32 {
        return None;
    }
    let own = p.tile(g.src_at(u, 0));
    let mut axes = p.tile(u).into_iter().filter(|a| a.len == WORD && !a.lane && !own.iter().any(|o| o.id == a.id));
    axes.find(|a| g.src(u)[1..].iter().all(|&x| is_words(p, x, a.id))).map(|a| a.id)
}

/// Is `x` a cast of loaded signed bytes that form whole aligned words along the axis?
fn is_words(p: &Program, x: UOp, axis: u8) -> bool {
    let g = &p.g;
    if g.op(x) != Op::Cast || g.op(g.src_at(x, 0)) != Op::Load {
        return false;
    }
    let load = g.src_at(x, 0);
    let index = g.src_at(load, 0);
    let offset = g.src_at(index, 1);
    let varies = |u: UOp| g.ranges(u) >> axis & 1 == 1;
    let gate = match *g.src(load) {
        [_, alt, gate] => !varies(gate) && g.const_int(alt).is_some(),
        _ => true,
    };
    let others = match g.arg(index) {
        Arg::Strides(s) => s.iter().all(|s| s.0 == axis || s.1 % WORD as i64 == 0),
        _ => true,
    };
    let whole = p.stride(index, axis) == 1 && others && !varies(offset) && divisible(g, offset, WORD as i64);
    g.dtype(load) == DType::I8 && gate && whole
}

impl<D: Dialect> Walk<'_, D> {
    /// Prints a node that takes part in such a sum; false if it does not.
    pub(super) fn dot_node(&mut self, u: UOp) -> Result<bool> {
        match self.dots.part(u) {
            Part::None => return Ok(false),
            Part::Load(axis) => self.load_words(u, axis)?,
            Part::Update(axis) => self.update_words(u, axis)?,
            Part::Cast => {}
        }
        Ok(true)
    }

    fn load_words(&mut self, u: UOp, axis: u8) -> Result<()> {
        let g = &self.p.g;
        let src = g.srcs(u);
        let (index, gate) = (src[0], src.get(2).copied());
        let alt = src.get(1).and_then(|&a| g.const_int(a)).unwrap_or(0) as u8;
        let mut axes = self.p.tile(u);
        axes.retain(|a| a.id != axis);
        let (regs, lane, vector) = self.layout(&axes, DType::U32);
        let mut names = Vec::new();
        for point in &regs {
            let each = match lane.filter(|_| !vector) {
                Some(a) => points(point, &[a]),
                None => vec![point.clone()],
            };
            for point in each {
                let lane = lane.filter(|_| vector);
                let (p, at) = self.address(index, &point, lane)?;
                let by_lane = |w: &Self, c: UOp, a: TileAxis| w.depends(c, a);
                let gate = match gate {
                    Some(c) if lane.is_some_and(|a| by_lane(self, c, a)) => {
                        lane.map(|a| self.vector(c, &point, a)).transpose()?.map(|c| (c, true))
                    }
                    Some(c) => Some((self.scalar(c, &point)?, false)),
                    None => None,
                };
                let gate = gate.as_ref().map(|(c, each)| if *each { Gate::Each(c) } else { Gate::One(c) });
                let lanes = lane.map_or(1, |a| a.len);
                // all lanes read the same word: one load is broadcast
                let spread = lane.is_some_and(|a| !self.depends(index, a));
                let e = match spread && !matches!(gate, Some(Gate::Each(_))) {
                    true => {
                        let x = self.d.load_words(&p, &at, 1, gate, alt)?;
                        self.d.splat(&x, DType::U32, lanes)
                    }
                    false => self.d.load_words(&p, &at, lanes, gate, alt)?,
                };
                let name = format!("v{}_{}", u.0, names.len());
                names.push(self.bind(name, DType::U32, lanes, &e));
            }
        }
        self.vals.insert(u, Val { axes, vector, names });
        Ok(())
    }

    fn update_words(&mut self, u: UOp, axis: u8) -> Result<()> {
        let g = &self.p.g;
        let acc = g.src_at(u, 0);
        let factors = [1, 2].map(|i| g.src_at(g.src_at(u, i), 0));
        let target = self.val(acc)?;
        let mut extra = self.p.tile(u);
        extra.retain(|t| t.id != axis && !target.axes.iter().any(|a| a.id == t.id));
        let (regs, lane, vector) = self.layout(&target.axes, DType::I32);
        for point in &regs {
            let each = match lane.filter(|_| !vector) {
                Some(a) => points(point, &[a]),
                None => vec![point.clone()],
            };
            for point in each {
                let name = target.at(&point).to_string();
                let lane = lane.filter(|_| vector);
                let lanes = lane.map_or(1, |a| a.len);
                for point in points(&point, &extra) {
                    let [a, b] = factors.map(|x| self.words_of(x, &point, lane));
                    let now = self.d.get(&name, DType::I32, lanes);
                    let sum = self.d.dot(&now, &a?, &b?, lanes)?;
                    let s = self.d.set(&name, DType::I32, lanes, &sum);
                    self.line(&s);
                }
            }
        }
        Ok(())
    }

    /// The words of a load at a point, as a vector if there is a lane axis.
    fn words_of(&mut self, load: UOp, point: &Point, lane: Option<TileAxis>) -> Result<String> {
        let v = self.val(load)?;
        let name = v.at(point).to_string();
        Ok(match (lane, v.lane()) {
            (Some(a), None) => self.d.splat(&name, DType::U32, a.len),
            (Some(a), Some(_)) if !v.vector => {
                let xs: Vec<String> = points(point, &[a]).iter().map(|p| v.at(p).to_string()).collect();
                self.d.pack(&xs, DType::U32)
            }
            _ => name,
        })
    }
}
