//! Constructors of nodes, for the compiler's own use. They neither fold nor check: folding is left to `rules`, and
//! checking to the frontend.

use super::{Arg, Axes, AxisKind, Graph, Op, Pairs, RangeArg, ReduceOp, Shape, UOp};
use crate::DType;
use crate::dtype::Scalar;
use smallvec::SmallVec;

impl Graph {
    /// A constant of `dt`; the value is converted to it.
    pub(crate) fn constant(&mut self, v: Scalar, dt: DType) -> UOp {
        let from = if matches!(v, Scalar::Int(_)) { DType::I64 } else { DType::F64 };
        self.node(Op::Const, dt, &[], Arg::Const(v.cast(from, dt)))
    }

    /// An integer (or bool) constant of `dt`; for a float dtype the rounded value.
    pub(crate) fn int(&mut self, v: i64, dt: DType) -> UOp {
        self.constant(Scalar::Int(v), dt)
    }

    /// An index constant: i32, or i64 where it does not fit.
    pub(crate) fn idx(&mut self, v: i64) -> UOp {
        self.int(v, if i32::try_from(v).is_ok() { DType::I32 } else { DType::I64 })
    }

    /// A float constant of `dt`.
    pub(crate) fn float(&mut self, v: f64, dt: DType) -> UOp {
        self.constant(Scalar::float(v), dt)
    }

    /// The constant `true` or `false`.
    pub(crate) fn bool(&mut self, v: bool) -> UOp {
        self.int(v as i64, DType::Bool)
    }

    /// An elementwise unary op that keeps the dtype.
    pub(crate) fn unary(&mut self, op: Op, x: UOp) -> UOp {
        let dt = self.dtype(x);
        self.node(op, dt, &[x], Arg::None)
    }

    /// An elementwise binary op; comparisons give bool.
    pub(crate) fn binary(&mut self, op: Op, x: UOp, y: UOp) -> UOp {
        let dt = if op.is_compare() { DType::Bool } else { self.dtype(x) };
        self.node(op, dt, &[x, y], Arg::None)
    }

    /// Conversion to `dt`; `x` itself if it already has that dtype.
    pub(crate) fn cast(&mut self, x: UOp, dt: DType) -> UOp {
        if self.dtype(x) == dt { x } else { self.node(Op::Cast, dt, &[x], Arg::None) }
    }

    /// Reinterpretation of the bits as `dt`, which has the same size; `x` itself if it already has that dtype.
    pub(crate) fn bitcast(&mut self, x: UOp, dt: DType) -> UOp {
        if self.dtype(x) == dt { x } else { self.node(Op::Bitcast, dt, &[x], Arg::None) }
    }

    /// `cond ? x : y`.
    pub(crate) fn select(&mut self, cond: UOp, x: UOp, y: UOp) -> UOp {
        let dt = self.dtype(x);
        self.node(Op::Where, dt, &[cond, x, y], Arg::None)
    }

    /// Row-major reinterpretation; `x` itself if it already has that shape.
    pub(crate) fn reshape(&mut self, x: UOp, shape: &[usize]) -> UOp {
        if self.shape(x).as_slice() == shape {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Reshape, dt, &[x], Arg::Shape(Shape::from_slice(shape)))
    }

    /// Repeats axes of size 1.
    pub(crate) fn expand(&mut self, x: UOp, shape: &[usize]) -> UOp {
        if self.shape(x).as_slice() == shape {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Expand, dt, &[x], Arg::Shape(Shape::from_slice(shape)))
    }

    /// Reorders axes.
    pub(crate) fn permute(&mut self, x: UOp, axes: &[u8]) -> UOp {
        if axes.iter().enumerate().all(|(i, &a)| i == a as usize) {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Permute, dt, &[x], Arg::Axes(Axes::from_slice(axes)))
    }

    /// Zero padding.
    pub(crate) fn pad(&mut self, x: UOp, pairs: &[(usize, usize)]) -> UOp {
        if pairs.iter().all(|&p| p == (0, 0)) {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Pad, dt, &[x], Arg::Pairs(Pairs::from_slice(pairs)))
    }

    /// Keeps `begin..end` per axis.
    pub(crate) fn shrink(&mut self, x: UOp, pairs: &[(usize, usize)]) -> UOp {
        if self.shape(x).iter().zip(pairs).all(|(&n, &p)| p == (0, n)) {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Shrink, dt, &[x], Arg::Pairs(Pairs::from_slice(pairs)))
    }

    /// Reverses the listed axes.
    pub(crate) fn flip(&mut self, x: UOp, axes: &[u8]) -> UOp {
        if axes.is_empty() {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Flip, dt, &[x], Arg::Axes(Axes::from_slice(axes)))
    }

    /// Tensor reduction; the axes become 1.
    pub(crate) fn reduce(&mut self, x: UOp, op: ReduceOp, axes: &[u8]) -> UOp {
        if axes.is_empty() {
            return x;
        }
        let dt = self.dtype(x);
        self.node(Op::Reduce, dt, &[x], Arg::Reduce(op, Axes::from_slice(axes)))
    }

    /// Kernel reduction over ranges.
    pub(crate) fn reduce_over(&mut self, x: UOp, op: ReduceOp, ranges: &[UOp]) -> UOp {
        if ranges.is_empty() {
            return x;
        }
        let dt = self.dtype(x);
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[x]);
        src.extend_from_slice(ranges);
        self.node(Op::Reduce, dt, &src, Arg::Reduce(op, Axes::new()))
    }

    /// A range `0..len`.
    pub(crate) fn range(&mut self, len: usize, id: u8, kind: AxisKind) -> UOp {
        self.range_with(len, RangeArg { id, kind, lane: false })
    }

    /// A range with all of its argument given.
    pub(crate) fn range_with(&mut self, len: usize, arg: RangeArg) -> UOp {
        let bound = self.idx(len as i64);
        let dt = self.dtype(bound);
        self.node(Op::Range, dt, &[bound], Arg::Range(arg))
    }

    /// A parameter pointer.
    pub(crate) fn param(&mut self, slot: u32, dt: DType, len: usize) -> UOp {
        self.node(Op::Param, dt, &[], Arg::Param { slot, len })
    }

    /// An address.
    pub(crate) fn index(&mut self, ptr: UOp, offset: UOp) -> UOp {
        let dt = self.dtype(ptr);
        self.node(Op::Index, dt, &[ptr, offset], Arg::None)
    }

    /// An ungated load.
    pub(crate) fn load(&mut self, index: UOp) -> UOp {
        let dt = self.dtype(index);
        self.node(Op::Load, dt, &[index], Arg::None)
    }

    /// A load that gives `alt` where `gate` is false.
    pub(crate) fn load_gated(&mut self, index: UOp, alt: UOp, gate: UOp) -> UOp {
        let dt = self.dtype(index);
        self.node(Op::Load, dt, &[index, alt, gate], Arg::None)
    }

    /// A store; tensor form if `target` is a tensor, kernel form if it is an Index.
    pub(crate) fn store(&mut self, target: UOp, value: UOp) -> UOp {
        self.node(Op::Store, DType::Void, &[target, value], Arg::None)
    }

    /// `x`, ordered after the execution of `deps`.
    pub(crate) fn after(&mut self, x: UOp, deps: &[UOp]) -> UOp {
        let dt = self.dtype(x);
        let mut src: SmallVec<[UOp; 4]> = SmallVec::from_slice(&[x]);
        src.extend_from_slice(deps);
        self.node(Op::After, dt, &src, Arg::None)
    }

    /// A Sink, the single root of a graph, over these roots.
    pub(crate) fn sink(&mut self, roots: &[UOp]) -> UOp {
        self.node(Op::Sink, DType::Void, roots, Arg::None)
    }
}
