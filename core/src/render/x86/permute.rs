//! Loads of lanes that are not contiguous but lie at compile-time distances within one or two vectors' length. Instead
//! of a gather, one or two contiguous vectors are loaded and their elements permuted into the lanes. Examples are the
//! repeated elements of an upsampled row (`x[i / 2]`) and reversed rows. Nothing outside the buffer is read: elements
//! that may lie after its end are masked.

use super::Lower;
use super::Opnd;
use super::table::V3;
use crate::Result;
use crate::render::linear::lower::{Point, Val, vec_size};
use crate::render::linear::mir::VReg;
use crate::render::linear::stream::gcd;
use crate::uop::{Arg, Op, UOp};
use iced_x86::Code;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// What is known of an integer in each lane: it is `k + lanes[i]`, where k is an unknown multiple of `unit` that all
/// lanes share; k is 0 if `unit` is 0.
#[derive(Clone)]
struct LaneValues {
    lanes: SmallVec<[i64; 16]>,
    unit: i64,
}

impl LaneValues {
    fn scalar(unit: i64, w: usize) -> LaneValues {
        LaneValues { lanes: SmallVec::from_elem(0, w), unit }
    }

    fn constant(&self) -> Option<i64> {
        let first = *self.lanes.first()?;
        (self.unit == 0 && self.lanes.iter().all(|&v| v == first)).then_some(first)
    }

    /// If all lanes have the same value, a number that it is a multiple of.
    fn multiple(&self) -> Option<i64> {
        let first = *self.lanes.first()?;
        self.lanes.iter().all(|&v| v == first).then(|| gcd(self.unit, first))
    }

    /// The products with a constant, unless one overflows.
    fn times(&self, c: i64) -> Option<LaneValues> {
        let lanes = self.lanes.iter().map(|&v| v.checked_mul(c)).collect::<Option<_>>()?;
        Some(LaneValues { lanes, unit: self.unit.checked_mul(c)? })
    }

    fn map(&self, unit: i64, f: impl Fn(i64) -> i64) -> LaneValues {
        LaneValues { lanes: self.lanes.iter().map(|&v| f(v)).collect(), unit }
    }
}

impl Lower<'_> {
    /// The load as a permutation of one or two contiguous vectors, if its lanes lie within them.
    pub(super) fn load_permuted(&mut self, u: UOp, pt: &Point, off: usize, w: usize) -> Result<Option<Val>> {
        let (g, size) = (self.g, vec_size(w));
        let index = g.src_at(u, 0);
        let (offset, stride) = (g.src_at(index, 1), self.p.lane_stride(index, !0));
        let Arg::Param { len, .. } = *g.arg(g.src_at(index, 0)) else { return Ok(None) };
        let wanted = match *g.src(u) {
            [_] => Some(SmallVec::from_elem(true, w)),
            [_, alt, gate] if g.const_val(alt).is_some_and(|v| v.is(0)) => self.known_gate(gate, off, w),
            _ => None,
        };
        let (Some(wanted), Some(at)) = (wanted.filter(|_| w >= 8), self.distances(offset, off, w)) else {
            return Ok(None);
        };
        let at: SmallVec<[i64; 16]> = at.lanes.iter().enumerate().map(|(i, v)| v + stride * i as i64).collect();
        let wanted_lanes = || at.iter().enumerate().filter(|x| wanted[x.0]);
        let Some((first, &least)) = wanted_lanes().min_by_key(|x| x.1) else { return Ok(None) };
        let span = wanted_lanes().map(|x| x.1 - least).max().unwrap_or(0);
        let vectors = if span < w as i64 { 1 } else { 2 };
        if span >= 2 * w as i64 || vectors == 2 && w != 16 {
            return Ok(None);
        }
        // the last vector may extend past the last lane's element: is it still inside the buffer?
        let last = self.elements(index).1.saturating_sub(span).saturating_add((vectors * w) as i64);
        let inside = last <= len as i64;
        let mut m = self.address(index, pt, off + first)?;
        let lane_index = |(i, v): (usize, &i64)| if wanted[i] { (v - least) as u32 } else { 0 };
        let order: Vec<u8> = at.iter().enumerate().flat_map(|x| lane_index(x).to_le_bytes()).collect();
        let order = self.pool(&order);
        let first_vector = (vectors == 2).then(|| {
            let a = self.f.reg(size);
            self.v2(super::table::V2::Load, w, a, Val::M(m));
            m.disp += 64;
            a
        });
        let last_vector = if inside {
            Opnd::M(m)
        } else {
            let kept = span - ((vectors - 1) * w) as i64;
            let mask: Vec<u8> = (0..w as i64).flat_map(|i| ((i <= kept) as u32).wrapping_neg().to_le_bytes()).collect();
            let mask = self.pool(&mask);
            let mask = self.move_to_fresh(mask, w);
            Opnd::R(self.load_masked(w, m, mask), size)
        };
        if let Some(a) = first_vector {
            // this instruction overwrites the first vector and not the indices, so these may stay in a register
            let order = Opnd::R(self.move_to_fresh(order, w), size);
            self.f.update(Code::EVEX_Vpermt2ps_zmm_k1z_zmm_zmmm512b32, &[Opnd::R(a, size), order, last_vector]);
            return Ok(Some(self.zero_unwanted(a, &wanted)));
        }
        let (lanes, r) = (self.move_to_fresh(order, w), self.f.reg(size));
        let code = if w == 16 { Code::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32 } else { Code::VEX_Vpermps_ymm_ymm_ymmm256 };
        self.f.def(code, &[Opnd::R(r, size), Opnd::R(lanes, size), last_vector]);
        Ok(Some(self.zero_unwanted(r, &wanted)))
    }

    /// A load with lane stride -1 under a mask: a masked load of contiguous elements, reversed.
    pub(super) fn load_reversed(
        &mut self,
        u: UOp,
        gate: Option<UOp>,
        pt: &Point,
        off: usize,
        w: usize,
    ) -> Result<Option<Val>> {
        let (size, index) = (vec_size(w), self.g.src_at(u, 0));
        let Some(gate) = gate.filter(|_| w >= 8 && self.lane_stride(index) == Some(-1)) else { return Ok(None) };
        let alt = self.g.src_at(u, 1);
        let zero = self.g.const_val(alt).is_some_and(|c| c.is(0));
        let alt = if zero { None } else { Some(self.demand_reg(alt, pt, off, w)?) };
        let mask = self.demand_reg(gate, pt, off, w)?;
        let m = self.address(index, pt, off + w - 1)?;
        let m = self.address_if_any_lane(index, m, mask, w);
        let order: Vec<u8> = (0..w as u32).rev().flat_map(u32::to_le_bytes).collect();
        let order = self.pool(&order);
        let order = self.move_to_fresh(order, w);
        let code = if w == 16 { Code::EVEX_Vpermps_zmm_k1z_zmm_zmmm512b32 } else { Code::VEX_Vpermps_ymm_ymm_ymmm256 };
        let reverse = |l: &mut Self, v: VReg| {
            let d = l.f.reg(size);
            l.f.def(code, &[Opnd::R(d, size), Opnd::R(order, size), Opnd::R(v, size)]);
            d
        };
        let reversed_mask = reverse(self, mask);
        let r = self.load_masked(w, m, reversed_mask);
        let r = reverse(self, r);
        Ok(Some(Val::R(match alt {
            Some(alt) => self.blend(mask, Val::R(r), alt, w),
            None => r,
        })))
    }

    /// Zeroes the lanes that are not wanted.
    fn zero_unwanted(&mut self, r: VReg, wanted: &[bool]) -> Val {
        if wanted.iter().all(|&x| x) {
            return Val::R(r);
        }
        let w = wanted.len();
        let mask: Vec<u8> = wanted.iter().flat_map(|&x| u32::from(x).wrapping_neg().to_le_bytes()).collect();
        let mask = self.pool(&mask);
        let kept = self.f.reg(vec_size(w));
        self.v3(V3::And, w, kept, r, mask);
        Val::R(kept)
    }

    /// The lanes of `off..off+w` for which a gate holds, if that is known at compile time for each.
    fn known_gate(&self, gate: UOp, off: usize, w: usize) -> Option<SmallVec<[bool; 16]>> {
        let [a, b] = *self.g.src(gate) else { return None };
        match self.g.op(gate) {
            Op::And => {
                let (a, b) = (self.known_gate(a, off, w)?, self.known_gate(b, off, w)?);
                Some(a.iter().zip(&b).map(|(x, y)| *x && *y).collect())
            }
            Op::CmpLt => {
                let of = |x: UOp| self.distances(x, off, w).filter(|k| k.unit == 0);
                let (a, b) = (of(a)?, of(b)?);
                Some(a.lanes.iter().zip(&b.lanes).map(|(x, y)| x < y).collect())
            }
            _ => None,
        }
    }

    /// The first and the last element that an access may touch, in any lane and element of its tile.
    pub(super) fn elements(&self, index: UOp) -> (i64, i64) {
        let (mut first, mut last) = self.g.bounds(self.g.src_at(index, 1));
        if let Arg::Strides(list) = self.g.arg(index) {
            for &(id, stride) in list {
                let len = self.p.tiles.iter().find(|t| t.id == id).map_or(1, |t| t.len as i64);
                first = first.saturating_add((stride * (len - 1)).min(0));
                last = last.saturating_add((stride * (len - 1)).max(0));
            }
        }
        (first, last)
    }

    /// The values of `x` in lanes `off..off+w`, relative to a part that all of them share.
    fn distances(&self, x: UOp, off: usize, w: usize) -> Option<LaneValues> {
        let g = self.g;
        let mut known: FxHashMap<UOp, LaneValues> = FxHashMap::default();
        for u in g.reachable(&[x]) {
            let of = |i: usize| known.get(&g.src_at(u, i));
            let divisor = |i: usize| of(i).and_then(LaneValues::constant).filter(|&d| d > 0);
            let power =
                |i: usize| of(i).and_then(LaneValues::constant).filter(|c| (0..31).contains(c)).map(|c| 1i64 << c);
            let scalar = self.tiles.get(u.0 as usize).is_some_and(|t| t.lane == 0);
            let divide = |d: i64| of(0).filter(|k| k.unit % d == 0).map(|k| k.map(k.unit / d, |v| v.div_euclid(d)));
            let positive = || g.bounds(g.src_at(u, 0)).0 >= 0;
            let found = match g.op(u) {
                Op::Const => g.const_int(u).map(|c| LaneValues { lanes: SmallVec::from_elem(c, w), unit: 0 }),
                Op::Range if g.range_arg(u).lane => {
                    Some(LaneValues { lanes: (off..off + w).map(|i| i as i64).collect(), unit: 0 })
                }
                Op::Add => of(0).zip(of(1)).map(|(a, b)| LaneValues {
                    lanes: a.lanes.iter().zip(&b.lanes).map(|(x, y)| x + y).collect(),
                    unit: gcd(a.unit, b.unit),
                }),
                Op::Mul => of(0).zip(of(1).and_then(LaneValues::constant)).and_then(|(a, c)| a.times(c)),
                Op::Shl => of(0).zip(power(1)).and_then(|(a, c)| a.times(c)),
                Op::Shr => power(1).and_then(divide),
                Op::FloorDiv => divisor(1).and_then(divide),
                Op::Idiv if positive() => divisor(1).and_then(divide),
                Op::FloorMod => {
                    divisor(1).and_then(|d| of(0).filter(|k| k.unit % d == 0).map(|k| k.map(0, |v| v.rem_euclid(d))))
                }
                Op::Min | Op::Max if of(0).zip(of(1)).is_some_and(|(a, b)| a.unit == 0 && b.unit == 0) => {
                    let pick = if g.op(u) == Op::Min { i64::min } else { i64::max };
                    of(0).zip(of(1)).map(|(a, b)| LaneValues {
                        lanes: a.lanes.iter().zip(&b.lanes).map(|(&x, &y)| pick(x, y)).collect(),
                        unit: 0,
                    })
                }
                Op::Min | Op::Max if scalar => of(0)
                    .and_then(LaneValues::multiple)
                    .zip(of(1).and_then(LaneValues::multiple))
                    .map(|(a, b)| LaneValues::scalar(gcd(a, b), w)),
                Op::Cast if g.dtype(g.src_at(u, 0)).is_int() && g.bounds(u) == g.bounds(g.src_at(u, 0)) => {
                    of(0).cloned()
                }
                _ => None,
            };
            match found.or_else(|| scalar.then(|| LaneValues::scalar(1, w))) {
                Some(k) => drop(known.insert(u, k)),
                None if u == x => return None,
                None => {}
            }
        }
        known.remove(&x)
    }
}
