//! The op set. The comment of each op gives the stages in which it is legal, its sources and its argument, written
//! `STAGES Op(sources)[argument]`; `spec` checks exactly that.
//!
//! Stages: T = tensor graph (values have shapes), K = kernel graph (scalars over ranges), P = program (linear order,
//! tiles). In K and P a value is one scalar for each point of its *open ranges*: the ranges that it depends on and that
//! no node below it has closed. Ranges of a tile kind (see [`super::AxisKind`]) never become loops: a value that
//! depends on them is a register tile with one element per point, and its `lane` axis, if it has one, is held in vector
//! registers.

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Op {
    // ---- sources
    /// TKP `Const()[Const]`: a scalar of the node's dtype, shape `[]`; broadcasts against anything.
    Const,
    /// T `Buffer()[Buffer]`: device storage with identity, shape `[len]`.
    Buffer,
    /// KP (and T inside a cached schedule) `Param()[Param]`: the storage that the caller binds to a slot; in K and P a
    /// pointer to it.
    Param,
    /// TKP `Var()[Var]`: a 4-byte scalar, i32 or f32, whose value is given at each launch; an i32 has bounds.
    Var,
    /// T `Iota()[Shape([n])]`: `0, 1, .., n-1` as i32.
    Iota,
    // ---- movement, T only
    /// `Reshape(x)[Shape]`: same elements, row-major.
    Reshape,
    /// `Permute(x)[Axes]`: axis `i` of the result is axis `axes[i]` of x.
    Permute,
    /// `Expand(x)[Shape]`: same rank, axes of size 1 repeat.
    Expand,
    /// `Pad(x)[Pairs]`: adds zeros, `(before, after)` of them per axis, both >= 0.
    Pad,
    /// `Shrink(x)[Pairs]`: keeps `begin..end` per axis.
    Shrink,
    /// `Flip(x)[Axes]`: reverses the listed axes.
    Flip,
    /// `Gather(x, idx)[Axes([axis])]`: `out[i..] = x[i.. with i[axis] = idx[i..]]`; idx is an integer tensor whose
    /// shape equals x's on every other axis; an index out of range gives 0.
    Gather,
    /// T `Scatter(x, idx, src)[Scatter(how, axis)]`: a copy of x into which the elements of src are written in order
    /// along the axis, element `i` at `out[i.. with i[axis] = idx[i..]]`; `how` says what happens to the element that
    /// is there. idx and src have the same shape, which does not exceed x's on any other axis; an index out of range
    /// has no effect.
    Scatter,
    /// T `Scan(x)[Reduce(op, [axis])]`: `out[i] = out[i - 1] op x[i]` along the axis. `Scan(x, a)[Reduce(Add, [axis])]`:
    /// `out[i] = a[i] * out[i - 1] + x[i]`.
    Scan,
    /// T `Recurrence(states.., sequences.., constants..)[Recurrence]`: computes the next states from the present ones, n
    /// times. The states have one shape; the result, of shape `[number of states, n + 1, shape of a state..]`, holds
    /// them before the first step and after each. A sequence has n elements along axis 0, of which each step reads one.
    /// Sequences and constants are materialised.
    Recurrence,
    // ---- reduce
    /// T `Reduce(x)[Reduce(op, axes)]`: reduces x over the axes, which keep size 1. K
    /// `Reduce(x, ranges..)[Reduce(op, [])]`: reduces x over the ranges and closes them.
    Reduce,
    // ---- unary, elementwise (TKP)
    /// Converts to the node's dtype by the rules of [`crate::dtype`].
    Cast,
    /// Same bits, another dtype of the same size.
    Bitcast,
    /// `-x`; wraps for ints.
    Neg,
    /// `Exp2(x)[None or Number]`: `2^x`. With the number 16 (P only) it needs to be exact to 16-bit float precision
    /// only, so that one approximate hardware instruction will do. With the number 0 (K only) x is at most zero or NaN,
    /// or the result is not used.
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
    // ---- binary, elementwise (TKP); both sources and the result have the same dtype unless the op says otherwise
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
    /// TKP `DotBytes(a, b, c)`: the dot product of the four bytes of a (unsigned) and the four bytes of b (signed),
    /// plus c; a, b, c and the result are i32, and the sum wraps.
    DotBytes,
    /// TKP `DotPairs(a, b, c)`: the dot product of the two signed halves of a and those of b, plus c; all are i32, and the
    /// sum wraps.
    DotPairs,
    /// TKP `LookupBytes(a, t0, t1, t2, t3)`: each byte of a is replaced by one of the 16 bytes of t0 to t3 (the lowest
    /// byte of t0 is the first), chosen by its lower four bits; all are i32.
    LookupBytes,
    // ---- state and order
    /// T `Contiguous(x, deps..)`: x, materialised after the values `deps` have been computed.
    /// `Contiguous(x, ends..)[Axes]`: x, materialised, with an i32 scalar `end` for each listed axis: only elements
    /// whose index along that axis is below its end are needed, and the others may have any value.
    Contiguous,
    /// T `Detach(x)`: x, through which no gradient flows. `Detach(x, seed, y1, dy1, ..)`: x with a gradient that its
    /// user defines: the gradient with respect to each value y is the expression dy, in which the buffer `seed`, as
    /// large as x, stands for the gradient of x.
    Detach,
    /// T `Store(target, value)`: target is a Buffer under movement ops and Gathers; each element is written to the
    /// address from which the target would read it, and dropped where a Gather's index is out of range. KP
    /// `Store(index, value[, gate])[None or Number]`. Void. With a number (P) it is an asynchronous copy of that many
    /// bytes from memory to workgroup memory, which overlaps with the rest of the program until a Barrier waits for it.
    Store,
    /// TK `Custom(outs.., xs..)[Custom]`: a kernel written by the user, over whole buffers. T: each output is a Buffer,
    /// and `After(out, Custom)` is its value; the xs are materialised in row-major order. K: all sources are Params.
    /// Void. It has no gradient, since its code is opaque.
    Custom,
    /// TKP `After(x, deps..)`: x, ordered after the execution of deps. `After(buf, Store(view of buf, v))` is an
    /// assignment. In K and P the ranges among deps are open in it.
    After,
    /// TK `Sink(roots..)`. Void.
    Sink,
    // ---- kernel
    /// KP `Range(bound)[Range]`: an index `0..bound`, i32 (i64 only if the bound needs it).
    Range,
    /// KP `Index(param, scratch or stage, offset)[None or Strides]`: an address, in elements. With `Strides` (P) each
    /// listed tile axis adds `stride * axis` to the offset.
    Index,
    /// KP `Load(index)` or `Load(index, alt, gate)`: where gate is false, memory is not accessed and the value is alt.
    Load,
    /// P `Acc(init, ranges..)[Acc id]`: an accumulator: a register tile over the tile ranges among `ranges`, every
    /// element of which starts as init. The loops and launch ranges among them are those in each iteration of which it
    /// starts anew.
    Acc,
    /// P `AccUpdate(acc, x)[Reduce(op, [n..])]`: `acc = acc op x`; axes of x that acc lacks are folded in order. Void.
    /// The numbers n only make several equal updates of one accumulator distinct nodes, which hash-consing would merge.
    AccUpdate,
    /// P `AccMulAdd(acc, a, b)[None or Acc n]`: `acc += a*b`, fused or not; it folds as AccUpdate does, and n has the
    /// same purpose as there. Void.
    AccMulAdd,
    /// P `AccRead(acc, deps..)`: the accumulator's value after deps (an `End`, updates). The ranges among deps are open
    /// in it: with a loop among them it is the value that the earlier iterations of that loop have left.
    AccRead,
    /// P `Fold(x, tile ranges..)[Reduce(op, [])]`: reduces tile axes of a value, pairwise.
    Fold,
    /// P `Mma(a, b, thread, ranges..)[Mma]`: the product of two matrix tiles, computed by a subgroup. `thread` is a
    /// thread's number in it. The layout says which thread holds which element in which register; a register's number
    /// is split into digits, and `ranges` has a tile range for each: first those of a, then those of b, then those of
    /// the product. All threads of the subgroup execute it together. A product that an AccUpdate adds to an accumulator
    /// is one instruction with it. A factor that the layout places in workgroup memory (b, or both) is an Index, the
    /// address where the matrix begins in an array of panels ([`PANEL_ROW_ELEMS`](super::mma::PANEL_ROW_ELEMS)); the
    /// hardware may still read it up to the second Barrier with a number after the Mma, or the first Barrier without
    /// one.
    Mma,
    /// P `LoadMatrix(index, thread, ranges..)[Number]`: a subgroup loads elements of two bytes, for one factor of an
    /// Mma, from workgroup memory. `ranges` has a tile range for each digit of a register's number, the first with two
    /// values. Each pair of registers is a matrix of 8 by 8: thread `8 i + j` gives the address of row `j` of matrix
    /// `i`, and thread `t` receives elements `2 (t mod 4)` and `2 (t mod 4) + 1` of row `t / 4`. With the number 1 the
    /// matrix is transposed: the thread receives element `t / 4` of rows `2 (t mod 4)` and `2 (t mod 4) + 1`. All
    /// threads execute it together.
    LoadMatrix,
    /// KP `End(range, body..)`: closes a loop. Void.
    End,
    /// KP `Scratch()[Scratch]`: kernel-local storage (workgroup or private), a pointer.
    Scratch,
    /// KP `Barrier(deps..)[None or Number]`: workgroup barrier. Void. With a number n (P) each thread first waits for
    /// its asynchronous copies (Store with a number): for all if n is 0, else for those from before the n-th last such
    /// barrier.
    Barrier,
    /// K `Stage(value, indices..)[None or Number]`: a local array with one axis per listed index, in row-major order,
    /// whose element at those indices is the value; a pointer. With a number n, its last n axes form a row, and each
    /// row is padded with 16 unused bytes; with 256 + n the rows lie in panels
    /// ([`PANEL_ROW_ELEMS`](super::mma::PANEL_ROW_ELEMS)). It closes the ranges of its indices; the array is filled
    /// inside the loops of the ranges that remain open.
    Stage,
}

use Op::*;

/// What a Scatter does with several elements that have the same destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ScatterMode {
    /// All destinations are known to differ, so elements overwrite what is there in any order. If two are equal after
    /// all, either element may win.
    Unique,
    /// The last element overwrites the others.
    Overwrite,
    /// Each element is combined with what is there.
    Combine(ReduceOp),
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
        Const, Buffer, Param, Var, Iota, Reshape, Permute, Expand, Pad, Shrink, Flip, Gather, Scatter, Scan, Recurrence, Reduce,
        Cast, Bitcast, Neg, Exp2, Log2, Sin, Cos, Tan, Sqrt, Recip, Trunc, Add, Sub, Mul, Div, Pow, Idiv, Imod, FloorDiv, FloorMod,
        Max, Min, And, Or, Xor, Shl, Shr, CmpLt, CmpEq, CmpNe, Where, MulAdd, DotBytes, DotPairs, LookupBytes, Contiguous, Detach, Store, Custom,
        After, Sink, Range, Index, Load, Acc, AccUpdate, AccMulAdd, AccRead, Fold, Mma, LoadMatrix, End, Scratch, Barrier, Stage,
    ];

    /// The first and the last elementwise op with one source, in declaration order.
    pub const UNARY: (Op, Op) = (Cast, Trunc);
    /// The first and the last elementwise op with two sources.
    pub const BINARY: (Op, Op) = (Add, CmpNe);
    /// The first and the last elementwise op with any number of sources.
    pub const ALU: (Op, Op) = (Cast, LookupBytes);

    const fn is_in(self, (first, last): (Op, Op)) -> bool {
        self as u8 >= first as u8 && self as u8 <= last as u8
    }

    /// Is it elementwise with one source?
    pub const fn is_unary(self) -> bool {
        self.is_in(Op::UNARY)
    }

    /// Is it elementwise with two sources?
    pub const fn is_binary(self) -> bool {
        self.is_in(Op::BINARY)
    }

    /// Is it elementwise: unary, binary, Where, MulAdd, a dot product or LookupBytes?
    pub const fn is_alu(self) -> bool {
        self.is_in(Op::ALU)
    }

    /// Is it a dot product of the parts of words, plus a third operand?
    pub const fn is_dot(self) -> bool {
        matches!(self, DotBytes | DotPairs)
    }

    /// Does it give bool whatever the dtype of its sources?
    pub const fn is_compare(self) -> bool {
        matches!(self, CmpLt | CmpEq | CmpNe)
    }

    /// Does `x op y == y op x` hold for all operands?
    pub const fn is_commutative(self) -> bool {
        matches!(self, Add | Mul | Max | Min | And | Or | Xor | CmpEq | CmpNe)
    }

    /// Does it only rearrange, repeat, drop or zero-pad elements, by its argument alone? Gather, whose indices are
    /// data, is excluded.
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
