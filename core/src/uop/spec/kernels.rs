//! The checks of ops that occur only in kernels and programs: loops, addresses, tiles.

use super::{Check, Node};
use crate::DType;
use crate::uop::graph::MAX_RANGES;
use crate::uop::mma::MATRIX_TILES_ENABLED;
use crate::uop::{Arg, AxisKind, Op, UOp};

impl Node<'_> {
    pub(super) fn range(&self) -> Check<'_> {
        let Arg::Range(r) = self.arg else { return self.bad_arg() };
        self.want((r.id as usize) < MAX_RANGES, "range id too large")?;
        self.want(matches!(self.dt, DType::I32 | DType::I64), "ranges are i32 or i64")?.values()?;
        self.want(!r.lane || r.kind.is_tile(), "only a tile axis can be the lane axis")?;
        self.want(!r.kind.is_tile() || self.g.const_int(self.src[0]).is_some(), "tile axes have constant extents")?;
        let launch = matches!(r.kind, AxisKind::Grid(d) | AxisKind::Local(d) if d > 2);
        self.want(!launch, "launch dimensions are 0, 1, 2")
    }

    pub(super) fn pointer(&self, mut p: UOp) -> Check<'_> {
        while self.g.op(p) == Op::After {
            p = self.g.src_at(p, 0);
        }
        self.want(matches!(self.g.op(p), Op::Param | Op::Scratch | Op::Stage), "source 0 is no parameter or scratch")
    }

    pub(super) fn index(&self) -> Check<'_> {
        self.pointer(self.src[0])?.value(self.src[1])?;
        self.want(matches!(self.g.dtype(self.src[1]), DType::I32 | DType::I64), "offsets are i32 or i64")?;
        match self.arg {
            Arg::None => Ok(self),
            Arg::Strides(s) => {
                self.in_p()?;
                let ok = s.windows(2).all(|w| w[0].0 < w[1].0) && s.iter().all(|x| (x.0 as usize) < MAX_RANGES);
                self.want(ok, "strides are sorted by range id")
            }
            _ => self.bad_arg(),
        }
    }

    pub(super) fn address(&self) -> Check<'_> {
        self.want(self.g.op(self.src[0]) == Op::Index, "source 0 is no Index")
    }

    pub(super) fn load(&self) -> Check<'_> {
        if self.src.len() == 1 {
            return Ok(self);
        }
        self.count(3)?.source(1, self.dt)?.source(2, DType::Bool)?.value(self.src[1])?.value(self.src[2])
    }

    pub(super) fn scratch(&self) -> Check<'_> {
        let Arg::Scratch { len, .. } = self.arg else { return self.bad_arg() };
        self.fits_memory(&[*len])
    }

    pub(super) fn ends_loop(&self) -> Check<'_> {
        let first = self.src.first().copied().filter(|&r| self.g.op(r) == Op::Range);
        self.want(first.is_some_and(|r| self.g.kind(r).is_loop()), "source 0 is no loop")
    }

    // ---- tiles

    pub(super) fn ranges(&self) -> Check<'_> {
        self.want(self.src[1..].iter().all(|&r| self.g.op(r) == Op::Range), "sources after the first are ranges")
    }

    pub(super) fn stage_indices(&self) -> Check<'_> {
        let index = |&r: &UOp| matches!(self.g.dtype(r), DType::I32 | DType::I64) && self.value(r).is_ok();
        self.want(self.src[1..].iter().all(index), "sources after the first are indices")
    }

    pub(super) fn tile_ranges(&self) -> Check<'_> {
        let ok = self.src[1..].iter().all(|&r| self.g.op(r) == Op::Range && self.g.kind(r).is_tile());
        self.want(ok, "sources after the first are tile ranges")
    }

    pub(super) fn acc(&self) -> Check<'_> {
        if matches!(self.arg, Arg::Acc(_)) { Ok(self) } else { self.bad_arg() }
    }

    pub(super) fn reads_acc(&self) -> Check<'_> {
        self.want(self.g.op(self.src[0]) == Op::Acc, "source 0 is no Acc")
    }

    pub(super) fn accumulates(&self) -> Check<'_> {
        let dt = self.g.dtype(self.src[0]);
        self.reads_acc()?;
        self.src[1..].iter().enumerate().try_fold(self, |c, (i, &s)| c.source(i + 1, dt)?.value(s))
    }

    pub(super) fn update(&self) -> Check<'_> {
        match (self.op, self.arg) {
            (Op::AccUpdate, Arg::Reduce(..)) | (Op::AccMulAdd, Arg::None | Arg::Acc(_)) => Ok(self),
            _ => self.bad_arg(),
        }
    }

    pub(super) fn multiplies_tiles(&self) -> Check<'_> {
        let Arg::Mma(l) = self.arg else { return self.bad_arg() };
        if !MATRIX_TILES_ENABLED {
            return Err("this build has no matrix tiles".into());
        }
        self.want(l.is_consistent(), "a layout in which an element has no place, or two")?;
        let digits = || l.a.axes().iter().chain(l.b.axes()).chain(l.c.axes());
        self.count(3 + digits().count())?.value(self.src[2])?;
        for (distribution, &s) in [&l.a, &l.b].into_iter().zip(&self.src[..2]) {
            if distribution.in_memory() {
                let index = self.g.op(s) == Op::Index && self.g.dtype(s).size() == 2;
                self.want(index, "a factor in memory is where a matrix of two bytes begins")?;
            } else {
                self.value(s)?;
            }
        }
        self.source(1, self.g.dtype(self.src[0]))?;
        self.want(self.g.dtype(self.src[2]).is_int(), "the thread's number is an integer")?;
        let axis = |r: UOp, len: u8| {
            let tile = self.g.op(r) == Op::Range && self.g.kind(r).is_tile();
            tile && self.g.const_int(self.g.src_at(r, 0)) == Some(i64::from(len))
        };
        let fit = self.src[3..].iter().zip(digits()).all(|(&r, d)| axis(r, d.len));
        self.want(fit, "sources after the third are tile ranges as long as the digits")
    }

    pub(super) fn loads_matrices(&self) -> Check<'_> {
        let transposes = matches!(self.arg, Arg::Number(0 | 1));
        let (ranges, halves) = (self.src.get(2..).unwrap_or_default(), self.dt.size() == 2);
        self.want(
            MATRIX_TILES_ENABLED && transposes && halves && (1..=3).contains(&ranges.len()),
            "matrices of two bytes, or their ranges",
        )?;
        self.want(self.g.dtype(self.src[1]).is_int(), "the thread's number is an integer")?;
        let pair = |&r: &UOp| {
            let tile = self.g.op(r) == Op::Range && self.g.kind(r).is_tile();
            tile && self.g.const_int(self.g.src_at(r, 0)) == Some(2)
        };
        self.want(ranges.iter().all(pair), "sources after the second are tile ranges of two")
    }

    pub(super) fn reduces_tiles(&self) -> Check<'_> {
        match self.arg {
            Arg::Reduce(_, axes) if axes.is_empty() => Ok(self),
            _ => self.bad_arg(),
        }
    }
}
