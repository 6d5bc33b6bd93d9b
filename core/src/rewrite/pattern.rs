//! What patterns and right-hand sides of [`crate::rules!`] are made of: op sets, literals, operands, results.

use crate::DType;
use crate::dtype::Scalar;
use crate::uop::{Graph, Op, UOp};

/// A set of ops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpSet(u128);

impl OpSet {
    /// Every op.
    pub const ALL: OpSet = OpSet(u128::MAX);
    /// One-source elementwise ops.
    pub const UNARY: OpSet = OpSet::range(Op::UNARY);
    /// Two-source elementwise ops.
    pub const BINARY: OpSet = OpSet::range(Op::BINARY);
    /// All elementwise ops.
    pub const ALU: OpSet = OpSet::range(Op::ALU);
    /// Comparisons.
    pub const COMPARE: OpSet = OpSet::range((Op::CmpLt, Op::CmpNe));
    /// Floor and truncating division and remainder.
    pub const DIVMOD: OpSet = OpSet::range((Op::Idiv, Op::FloorMod));

    /// Stores.
    pub const STORE: OpSet = OpSet::of(Op::Store);

    /// The set of one op.
    pub const fn of(op: Op) -> OpSet {
        OpSet(1 << op as u8)
    }

    const fn range((first, last): (Op, Op)) -> OpSet {
        OpSet((u128::MAX >> (127 - last as u8)) & (u128::MAX << first as u8))
    }

    /// Union.
    pub const fn or(self, other: OpSet) -> OpSet {
        OpSet(self.0 | other.0)
    }

    /// Is `op` in it?
    pub const fn has(self, op: Op) -> bool {
        self.0 >> op as u8 & 1 != 0
    }
}

/// A literal in a pattern: an integer matches an int constant, a float a float constant (bitwise), a bool a bool one.
pub trait Literal {
    /// Is `u` the constant that the literal denotes?
    fn matches(self, g: &Graph, u: UOp) -> bool;
}

impl Literal for i32 {
    fn matches(self, g: &Graph, u: UOp) -> bool {
        g.const_int(u) == Some(self as i64) && g.dtype(u) != DType::Bool
    }
}

impl Literal for f64 {
    fn matches(self, g: &Graph, u: UOp) -> bool {
        g.const_val(u) == Some(Scalar::float(self))
    }
}

impl Literal for bool {
    fn matches(self, g: &Graph, u: UOp) -> bool {
        g.const_int(u) == Some(self as i64) && g.dtype(u) == DType::Bool
    }
}

/// An operand in the right-hand side of a rule: a node, or a number, which becomes a constant of its sibling's dtype.
pub trait Operand: Copy {
    /// The node's dtype; `None` for numbers.
    fn dtype(self, g: &Graph) -> Option<DType>;
    /// The operand as a node; a number becomes a constant of dtype `dt`.
    fn build(self, g: &mut Graph, dt: DType) -> UOp;
}

impl Operand for UOp {
    fn dtype(self, g: &Graph) -> Option<DType> {
        Some(g.dtype(self))
    }
    fn build(self, _: &mut Graph, _: DType) -> UOp {
        self
    }
}

macro_rules! number_operand {
    ($($t:ty => |$g:ident, $v:ident, $dt:ident| $e:expr;)*) => { $(
        impl Operand for $t {
            fn dtype(self, _: &Graph) -> Option<DType> {
                None
            }
            fn build(self, $g: &mut Graph, $dt: DType) -> UOp {
                let $v = self;
                $e
            }
        }
        impl Outcome for $t {
            fn outcome(self, g: &mut Graph, u: UOp) -> Option<UOp> {
                let dt = g.dtype(u);
                Some(self.build(g, dt))
            }
        }
    )* };
}
number_operand! {
    i64 => |g, v, dt| g.int(v, dt);
    i32 => |g, v, dt| g.int(v as i64, dt);
    f64 => |g, v, dt| g.float(v, dt);
    bool => |g, v, dt| g.int(v as i64, dt);
    Scalar => |g, v, dt| g.node(Op::Const, dt, &[], crate::uop::Arg::Const(v));
}

/// The value of a rule's right-hand side: a node, an optional node, or a number (of the matched node's dtype).
pub trait Outcome {
    /// The replacement, if there is one.
    fn outcome(self, g: &mut Graph, u: UOp) -> Option<UOp>;
}

impl Outcome for UOp {
    fn outcome(self, _: &mut Graph, _: UOp) -> Option<UOp> {
        Some(self)
    }
}

impl Outcome for Option<UOp> {
    fn outcome(self, _: &mut Graph, _: UOp) -> Option<UOp> {
        self
    }
}

/// Builds `op(x)` in a right-hand side.
#[inline(never)]
pub(crate) fn build1(g: &mut Graph, op: Op, root: UOp, x: impl Operand) -> UOp {
    let dt = x.dtype(g).unwrap_or(g.dtype(root));
    let x = x.build(g, dt);
    g.unary(op, x)
}

/// Builds `x op y` in a right-hand side: a number takes its sibling's dtype, two numbers the matched node's.
#[inline(never)]
pub(crate) fn build2(g: &mut Graph, op: Op, root: UOp, x: impl Operand, y: impl Operand) -> UOp {
    let dt = x.dtype(g).or(y.dtype(g)).unwrap_or(g.dtype(root));
    let (x, y) = (x.build(g, dt), y.build(g, dt));
    g.binary(op, x, y)
}

/// Builds `Where(c, x, y)` (or `MulAdd`) in a right-hand side.
#[inline(never)]
pub(crate) fn build3(g: &mut Graph, op: Op, root: UOp, c: impl Operand, x: impl Operand, y: impl Operand) -> UOp {
    let dt = x.dtype(g).or(y.dtype(g)).unwrap_or(g.dtype(root));
    let cond_dt = if op == Op::Where { DType::Bool } else { dt };
    let src = [c.build(g, cond_dt), x.build(g, dt), y.build(g, dt)];
    g.node(op, dt, &src, crate::uop::Arg::None)
}
