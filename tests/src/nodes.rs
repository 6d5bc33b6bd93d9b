//! Building graphs by hand: the compiler's own constructors do not check what they are given and are not public, so these go
//! through the checked one. A node that the spec does not allow is a mistake of the test.

use gradloom_core::DType;
use gradloom_core::dtype::Scalar;
use gradloom_core::uop::{Arg, AxisKind, Graph, Op, Pairs, RangeArg, ReduceOp, Shape, UOp};

/// Constructors of nodes that are legal in some stage.
pub trait MakeNodes {
    /// The graph.
    fn graph(&mut self) -> &mut Graph;

    /// Any node.
    fn node(&mut self, op: Op, dtype: DType, src: &[UOp], arg: Arg) -> UOp {
        self.graph().try_node(op, dtype, src, arg).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A constant of `dt`; the value is converted to it.
    fn constant(&mut self, v: Scalar, dt: DType) -> UOp {
        let from = if matches!(v, Scalar::Int(_)) { DType::I64 } else { DType::F64 };
        self.node(Op::Const, dt, &[], Arg::Const(v.cast(from, dt)))
    }

    /// An integer (or bool) constant.
    fn int(&mut self, v: i64, dt: DType) -> UOp {
        self.constant(Scalar::Int(v), dt)
    }

    /// An index constant: i32, or i64 where it does not fit.
    fn idx(&mut self, v: i64) -> UOp {
        self.int(v, if i32::try_from(v).is_ok() { DType::I32 } else { DType::I64 })
    }

    /// A float constant.
    fn float(&mut self, v: f64, dt: DType) -> UOp {
        self.constant(Scalar::float(v), dt)
    }

    /// `true` or `false`.
    fn bool(&mut self, v: bool) -> UOp {
        self.int(v as i64, DType::Bool)
    }

    /// An elementwise unary op that keeps the dtype.
    fn unary(&mut self, op: Op, x: UOp) -> UOp {
        let dt = self.graph().dtype(x);
        self.node(op, dt, &[x], Arg::None)
    }

    /// An elementwise binary op; comparisons give bool.
    fn binary(&mut self, op: Op, x: UOp, y: UOp) -> UOp {
        let dt = if op.is_compare() { DType::Bool } else { self.graph().dtype(x) };
        self.node(op, dt, &[x, y], Arg::None)
    }

    /// Conversion to `dt`; nothing if it is that already.
    fn cast(&mut self, x: UOp, dt: DType) -> UOp {
        if self.graph().dtype(x) == dt { x } else { self.node(Op::Cast, dt, &[x], Arg::None) }
    }

    /// Reinterpretation as `dt` of the same size.
    fn bitcast(&mut self, x: UOp, dt: DType) -> UOp {
        if self.graph().dtype(x) == dt { x } else { self.node(Op::Bitcast, dt, &[x], Arg::None) }
    }

    /// `cond ? x : y`.
    fn select(&mut self, cond: UOp, x: UOp, y: UOp) -> UOp {
        let dt = self.graph().dtype(x);
        self.node(Op::Where, dt, &[cond, x, y], Arg::None)
    }

    /// Row-major reinterpretation; nothing if the shape is the same.
    fn reshape(&mut self, x: UOp, shape: &[usize]) -> UOp {
        if self.graph().shape(x).as_slice() == shape {
            return x;
        }
        let dt = self.graph().dtype(x);
        self.node(Op::Reshape, dt, &[x], Arg::Shape(Shape::from_slice(shape)))
    }

    /// Repeats axes of size 1.
    fn expand(&mut self, x: UOp, shape: &[usize]) -> UOp {
        if self.graph().shape(x).as_slice() == shape {
            return x;
        }
        let dt = self.graph().dtype(x);
        self.node(Op::Expand, dt, &[x], Arg::Shape(Shape::from_slice(shape)))
    }

    /// Zero padding.
    fn pad(&mut self, x: UOp, pairs: &[(usize, usize)]) -> UOp {
        if pairs.iter().all(|&p| p == (0, 0)) {
            return x;
        }
        let dt = self.graph().dtype(x);
        self.node(Op::Pad, dt, &[x], Arg::Pairs(Pairs::from_slice(pairs)))
    }

    /// Tensor reduction; the axes become 1.
    fn reduce(&mut self, x: UOp, op: ReduceOp, axes: &[u8]) -> UOp {
        if axes.is_empty() {
            return x;
        }
        let dt = self.graph().dtype(x);
        self.node(Op::Reduce, dt, &[x], Arg::Reduce(op, axes.iter().copied().collect()))
    }

    /// Kernel reduction over ranges.
    fn reduce_over(&mut self, x: UOp, op: ReduceOp, ranges: &[UOp]) -> UOp {
        if ranges.is_empty() {
            return x;
        }
        let dt = self.graph().dtype(x);
        self.node(Op::Reduce, dt, &[&[x], ranges].concat(), Arg::Reduce(op, Default::default()))
    }

    /// A range `0..len`.
    fn range(&mut self, len: usize, id: u8, kind: AxisKind) -> UOp {
        self.range_with(len, RangeArg { id, kind, lane: false })
    }

    /// A range with all of its argument given.
    fn range_with(&mut self, len: usize, arg: RangeArg) -> UOp {
        let bound = self.idx(len as i64);
        let dt = self.graph().dtype(bound);
        self.node(Op::Range, dt, &[bound], Arg::Range(arg))
    }

    /// A parameter.
    fn param(&mut self, slot: u32, dt: DType, len: usize) -> UOp {
        self.node(Op::Param, dt, &[], Arg::Param { slot, len })
    }

    /// An address.
    fn index(&mut self, ptr: UOp, offset: UOp) -> UOp {
        let dt = self.graph().dtype(ptr);
        self.node(Op::Index, dt, &[ptr, offset], Arg::None)
    }

    /// An ungated load.
    fn load(&mut self, index: UOp) -> UOp {
        let dt = self.graph().dtype(index);
        self.node(Op::Load, dt, &[index], Arg::None)
    }

    /// A load that gives `alt` where `gate` is false.
    fn load_gated(&mut self, index: UOp, alt: UOp, gate: UOp) -> UOp {
        let dt = self.graph().dtype(index);
        self.node(Op::Load, dt, &[index, alt, gate], Arg::None)
    }

    /// A store to a tensor or to an address.
    fn store(&mut self, target: UOp, value: UOp) -> UOp {
        self.node(Op::Store, DType::Void, &[target, value], Arg::None)
    }

    /// `x` after `deps`.
    fn after(&mut self, x: UOp, deps: &[UOp]) -> UOp {
        let dt = self.graph().dtype(x);
        self.node(Op::After, dt, &[&[x], deps].concat(), Arg::None)
    }

    /// The root of a graph.
    fn sink(&mut self, roots: &[UOp]) -> UOp {
        self.node(Op::Sink, DType::Void, roots, Arg::None)
    }

    /// Copies `roots` and all they need from `other`, with parameters in the place of buffers: `slot` numbers them by id.
    fn import_closed(&mut self, other: &Graph, roots: &[UOp], mut slot: impl FnMut(u32) -> u32) -> Vec<UOp>
    where
        Self: Sized,
    {
        let all = other.reachable(roots);
        let mut images: Vec<UOp> = Vec::with_capacity(all.len());
        let image = |images: &[UOp], u: &UOp| images[all.binary_search(u).expect("sources are reachable")];
        for &u in &all {
            let (op, dt) = (other.op(u), other.dtype(u));
            let new = match other.arg(u) {
                Arg::Buffer { id, len } => self.param(slot(*id), dt, *len),
                arg => {
                    let src: Vec<UOp> = other.src(u).iter().map(|s| image(&images, s)).collect();
                    self.node(op, dt, &src, arg.clone())
                }
            };
            images.push(new);
        }
        roots.iter().map(|r| image(&images, r)).collect()
    }
}

impl MakeNodes for Graph {
    fn graph(&mut self) -> &mut Graph {
        self
    }
}
