//! The op set. Each op says in which stage it is legal and what its sources are; `spec` checks exactly that.
//!
//! Stages: T = tensor graph (values have shapes), K = kernel graph (scalars over ranges), P = program (linear order,
//! tiles). A value in K and P is scalar per point of its *open ranges*. Ranges of a tile kind (see
//! [`super::AxisKind`]) are never loops: a value that depends on them is a tile, one element per point, of which the
//! `lane` axis is a vector register.

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Op {
    // ---- sources
    /// TKP `Const()[Const]`: a scalar of the node's dtype, shape `[]`; broadcasts against anything.
    Const,
    /// T `Buffer()[Buffer]`: device storage with identity, shape `[len]`.
    Buffer,
    /// KP (and T inside a cached schedule) `Param()[Param]`: the storage given for a slot; in K and P a pointer.
    Param,
    /// TKP `Var()[Var]`: a 4-byte scalar given at launch, i32 or f32, with bounds if i32.
    Var,
    /// T `Iota()[Shape([n])]`: `0, 1, .., n-1` as i32.
    Iota,
    // ---- movement, T only
    /// `Reshape(x)[Shape]`: same elements, row-major.
    Reshape,
    /// `Permute(x)[Axes]`: out axis `i` is in axis `axes[i]`.
    Permute,
    /// `Expand(x)[Shape]`: same rank, axes of size 1 repeat.
    Expand,
    /// `Pad(x)[Pairs]`: zeros, `(before, after)` per axis, both >= 0.
    Pad,
    /// `Shrink(x)[Pairs]`: keeps `begin..end` per axis.
    Shrink,
    /// `Flip(x)[Axes]`: reverses the listed axes.
    Flip,
    /// `Gather(x, idx)[Axes([axis])]`: `out[i..] = x[i.. with i[axis] = idx[i..]]`; idx is an integer tensor whose
    /// shape equals x's on every other axis; out of range gives 0.
    Gather,
    /// T `Scatter(x, idx, src)[Scatter(how, axis)]`: x, into which the elements of src are written one after the other
    /// along the axis, each at `out[i.. with i[axis] = idx[i..]]`; idx and src have one shape, at most x's on every other
    /// axis; an index out of range does nothing.
    Scatter,
    /// T `Scan(x)[Reduce(op, [axis])]`: `out[i] = out[i - 1] op x[i]` along the axis. `Scan(x, a)[Reduce(Add, [axis])]`:
    /// `out[i] = a[i] * out[i - 1] + x[i]`.
    Scan,
    // ---- reduce
    /// T `Reduce(x)[Reduce(op, axes)]`: axes become size 1. K `Reduce(x, ranges..)[Reduce(op, [])]`: closes the ranges.
    Reduce,
    // ---- unary, elementwise (TKP)
    /// To the node's dtype; see [`crate::dtype`] for the rules.
    Cast,
    /// Same bits, another dtype of the same size.
    Bitcast,
    /// `-x`; wraps for ints.
    Neg,
    /// `Exp2(x)[None or Number]`: `2^x`. With the number 16 (P) no more exact than a float of 16 bits needs it: what the hardware does in one instruction.
    Exp2,
    /// Base-2 logarithm.
    Log2,
    /// Sine of radians.
    Sin,
    /// Cosine of radians.
    Cos,
    /// Tangent of radians.
    Tan,
    /// Square root.
    Sqrt,
    /// `1/x`.
    Recip,
    /// Rounds to integer toward zero, stays float.
    Trunc,
    // ---- binary, elementwise (TKP); both sources and the result have one dtype unless said
    /// Sum; for bool `or`.
    Add,
    /// Difference.
    Sub,
    /// Product; for bool `and`.
    Mul,
    /// Float quotient.
    Div,
    /// `x^y` of floats, with the special values of C's `pow`.
    Pow,
    /// Integer quotient toward zero; `x/0 = x`, `MIN/-1` wraps.
    Idiv,
    /// Remainder of `Idiv`, sign of the dividend; `x%0 = 0`. Of floats C's `fmod`, exactly; `x%0 = NaN`.
    Imod,
    /// Integer quotient toward minus infinity; `x/0 = x`.
    FloorDiv,
    /// Remainder of `FloorDiv`, sign of the divisor; `x%0 = 0`.
    FloorMod,
    /// Larger; NaN if either is NaN.
    Max,
    /// Smaller; NaN if either is NaN.
    Min,
    /// Bitwise and (ints, bool).
    And,
    /// Bitwise or (ints, bool).
    Or,
    /// Bitwise exclusive or (ints, bool).
    Xor,
    /// Left shift by `y mod bits`.
    Shl,
    /// Right shift by `y mod bits`; arithmetic if signed.
    Shr,
    /// `x < y` as bool.
    CmpLt,
    /// `x == y` as bool.
    CmpEq,
    /// `x != y` as bool (true for NaN).
    CmpNe,
    // ---- ternary, elementwise
    /// TKP `Where(cond: bool, x, y)`.
    Where,
    /// P `MulAdd(a, b, c)` = a*b+c, fused or not.
    MulAdd,
    /// TKP `DotBytes(a, b, c)`: c plus the products of the four bytes of a, which are unsigned, and those of b, which are signed; all
    /// are i32, and the sum wraps.
    DotBytes,
    // ---- state and order
    /// T `Contiguous(x, deps..)`: x, materialised, once the values deps are there. `Contiguous(x, ends..)[Axes]`: x, materialised, of which
    /// only what lies below an end, an i32 scalar, is wanted along each of these axes; the rest may be anything.
    Contiguous,
    /// T `Detach(x)`: x, without gradient. `Detach(x, seed, y1, dy1, ..)`: x, whose gradient for each value y is dy with the
    /// buffer `seed` replaced by the gradient of x (whose elements it has).
    Detach,
    /// T `Store(target, value)`: target is a Buffer under movement ops and Gathers: each element goes where the target would
    /// read it, and nowhere where an index is out of range. KP `Store(index, value[, gate])[None or Number]`. Void. With a number (P) it is
    /// a copy of so many bytes at a time, from memory to workgroup memory, which goes on while the program does, until a Barrier waits for it.
    Store,
    /// TK `Custom(outs.., xs..)[Custom]`: a kernel that the user wrote, over whole storage. T: each of its outputs is a Buffer, and
    /// `After(out, Custom)` its value; the xs are rows that lie in memory. K: all are Params. Void. No gradient: its code is opaque.
    Custom,
    /// TKP `After(x, deps..)`: x, once deps have happened. `After(buf, Store(view of buf, v))` is an assign. In K and P the
    /// ranges among deps are open in it.
    After,
    /// TK `Sink(roots..)`. Void.
    Sink,
    // ---- kernel
    /// KP `Range(bound)[Range]`: an index `0..bound`, i32 (i64 only if the bound needs it).
    Range,
    /// KP `Index(param, scratch or stage, offset)[None or Strides]`: an address, in elements. With `Strides` (P) the tile axes
    /// listed add `stride * axis` to the offset.
    Index,
    /// KP `Load(index)` or `Load(index, alt, gate)`: where gate is false memory is not touched and the value is alt.
    Load,
    /// P `Acc(init, ranges..)[Acc id]`: declares a register tile over the tile ranges among these and sets every
    /// element to init; loops and launch ranges say within which it starts afresh.
    Acc,
    /// P `AccUpdate(acc, x)[Reduce(op, [n..])]`: `acc = acc op x`; axes of x that acc lacks are folded in order. Void.
    /// The numbers mean nothing; they keep equal updates of one accumulator from being one node.
    AccUpdate,
    /// P `AccMulAdd(acc, a, b)[None or Acc n]`: `acc += a*b`, fused or not, folding as AccUpdate; n as there. Void.
    AccMulAdd,
    /// P `AccRead(acc, deps..)`: the tile's value once deps (an `End`, updates) have happened. The ranges among deps are open in it: with a loop
    /// it is what earlier turns have left.
    AccRead,
    /// P `Fold(x, tile ranges..)[Reduce(op, [])]`: reduces tile axes of a value, pairwise.
    Fold,
    /// P `Mma(a, b, thread, ranges..)[Mma]`: the product of two matrix tiles. The threads of a subgroup, whose numbers there are `thread`, hold
    /// the elements of a and b as the layout says, along the tile ranges for the digits of their registers: first those of a, then of b.
    /// The ranges after these are for the product. All threads get here together. Added to an accumulator (AccUpdate) it is one instruction.
    /// Where the layout says that a factor lies in workgroup memory (b, or both), it is an Index, where the matrix begins in an array of panels
    /// ([`mma::PANEL`](super::mma::PANEL)); such a product may read it until the second Barrier with a number after it, or another.
    Mma,
    /// P `LoadMatrix(index, thread, ranges..)[Number]`: elements of two bytes for one factor of an Mma, read from workgroup memory by a subgroup
    /// together, along the tile ranges for the digits of their registers, of which the first has two values. Each pair of registers is a matrix
    /// of 8 by 8: thread `8 i + j` addresses row `j` of matrix `i`, and thread `t` gets two neighbours of row `t / 4`, those from `2 (t mod 4)`
    /// on; with the number 1 the matrix is turned, so that it gets element `t / 4` of these two rows. All threads get here together.
    LoadMatrix,
    /// KP `End(range, body..)`: closes a loop. Void.
    End,
    /// KP `Scratch()[Scratch]`: kernel-local storage (workgroup or private), a pointer.
    Scratch,
    /// KP `Barrier(deps..)[None or Number]`: workgroup barrier. Void. With a number n (P) each thread first waits for its copies (Store) from
    /// before the last n such barriers.
    Barrier,
    /// K `Stage(value, indices..)[None or Number]`: a local array with an axis per listed index, whose element there is the value; a pointer,
    /// row-major. With a number n, rows along its last n axes have 8 elements after them that nobody uses; with 256 + n they lie in panels
    /// ([`mma::PANEL`](super::mma::PANEL)). It closes the ranges of its indices; the loops of its open ranges are where it is filled.
    Stage,
}

use Op::*;

/// What a Scatter's elements do that go to one place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Meet {
    /// There are no two: they replace what was there, in any order. Of two after all any one wins.
    Apart,
    /// The last one wins.
    Last,
    /// Each is combined with what is there.
    With(ReduceOp),
}

/// How a reduction combines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ReduceOp {
    /// Sum, identity 0.
    Add,
    /// Product, identity 1.
    Mul,
    /// Maximum, identity -inf or the smallest int.
    Max,
    /// Minimum, identity +inf or the largest int.
    Min,
}

impl ReduceOp {
    /// The elementwise op that combines two partial results.
    pub const fn op(self) -> Op {
        match self {
            ReduceOp::Add => Add,
            ReduceOp::Mul => Mul,
            ReduceOp::Max => Max,
            ReduceOp::Min => Min,
        }
    }

    /// The neutral element for `dt`.
    pub fn identity(self, dt: crate::DType) -> crate::dtype::Scalar {
        use crate::dtype::Scalar;
        let inf = |sign: f64| match dt.int_range() {
            Some((lo, hi)) => Scalar::Int(if sign < 0.0 { lo as i64 } else { hi as i64 }),
            None => Scalar::float(sign * f64::INFINITY),
        };
        match self {
            ReduceOp::Add => Scalar::from_i64(0, dt),
            ReduceOp::Mul => Scalar::from_i64(1, dt),
            ReduceOp::Max => inf(-1.0),
            ReduceOp::Min => inf(1.0),
        }
    }
}

impl Op {
    /// Every op, in declaration order.
    #[rustfmt::skip]
    pub const ALL: &[Op] = &[
        Const, Buffer, Param, Var, Iota, Reshape, Permute, Expand, Pad, Shrink, Flip, Gather, Scatter, Scan, Reduce,
        Cast, Bitcast, Neg, Exp2, Log2, Sin, Cos, Tan, Sqrt, Recip, Trunc, Add, Sub, Mul, Div, Pow, Idiv, Imod, FloorDiv, FloorMod,
        Max, Min, And, Or, Xor, Shl, Shr, CmpLt, CmpEq, CmpNe, Where, MulAdd, DotBytes, Contiguous, Detach, Store, Custom, After,
        Sink, Range, Index, Load, Acc, AccUpdate, AccMulAdd, AccRead, Fold, Mma, LoadMatrix, End, Scratch, Barrier, Stage,
    ];

    /// The first and the last elementwise op of one source, in declaration order.
    pub const UNARY: (Op, Op) = (Cast, Trunc);
    /// Those of two sources.
    pub const BINARY: (Op, Op) = (Add, CmpNe);
    /// Those of any number.
    pub const ALU: (Op, Op) = (Cast, DotBytes);

    const fn is_in(self, (first, last): (Op, Op)) -> bool {
        self as u8 >= first as u8 && self as u8 <= last as u8
    }

    /// One source, elementwise.
    pub const fn is_unary(self) -> bool {
        self.is_in(Op::UNARY)
    }

    /// Two sources, elementwise.
    pub const fn is_binary(self) -> bool {
        self.is_in(Op::BINARY)
    }

    /// Unary, binary, Where, MulAdd or DotBytes.
    pub const fn is_alu(self) -> bool {
        self.is_in(Op::ALU)
    }

    /// Yields bool whatever its sources are.
    pub const fn is_compare(self) -> bool {
        matches!(self, CmpLt | CmpEq | CmpNe)
    }

    /// `x op y == y op x`.
    pub const fn is_commutative(self) -> bool {
        matches!(self, Add | Mul | Max | Min | And | Or | Xor | CmpEq | CmpNe)
    }

    /// Moves elements without computing (excluding Gather).
    pub const fn is_movement(self) -> bool {
        (self as u8) >= Reshape as u8 && (self as u8) <= Flip as u8
    }

    /// The op's name in printed IR: `cmp_lt`, `mul_add` ...
    pub fn name(self) -> String {
        let mut out = String::new();
        for (i, c) in format!("{self:?}").chars().enumerate() {
            if c.is_ascii_uppercase() && i > 0 {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }
}
