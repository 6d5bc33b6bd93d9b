//! The user's API: lazy tensors. A method appends nodes to the graph of the tensor's session and returns at once;
//! nothing is computed until the engine realizes a tensor. Every argument is checked when the method is called, so that
//! any graph that exists can be compiled.
//!
//! Input: host data, constants and other tensors. Output: a new [`Tensor`], or an [`Error`] that names the operation
//! and the offending values. For example `x.matmul(&w)?.relu()?` appends a multiply, a sum and a maximum, which later
//! become one kernel.
//!
//! | file | what it has |
//! |---|---|
//! | `session` | [`Session`]: graph, buffers and random stream shared by tensors |
//! | `operand` | [`Operand`]: tensor or weak scalar; `+ - * /` for tensors, scalars and `Result<Tensor>` |
//! | `create` | from host data, full, zeros, ones, arange, linspace, eye, tril, triu, variables |
//! | `random` | threefry2x32: bits, rand, uniform, randn, normal, randint, xavier, kaiming, bernoulli, randperm |
//! | `distributions`, `sampling` | exponential, gamma, poisson, multinomial ..; a token from logits: top-k, top-p, min-p |
//! | `constant_cache` | constants of a model that were computed once and are shared by all plans of the model |
//! | `kernel`, `loops` | kernels that users write: in WGSL, or as loops in the compiler's IR |
//! | `state` | detach, contiguous, assign; gradients |
//! | `custom` | gradients that the caller defines, checkpoints |
//! | `movement` | reshape, permute, transpose, flatten, unflatten, squeeze, unsqueeze, expand, flip, shrink, slice, repeat |
//! | `rearrange` | reshape and permute by axis names, as einops |
//! | `join` | cat, stack, split, chunk, roll |
//! | `pad` | pad: constant, reflect, replicate, circular |
//! | `arrange` | axes by list, diagonals, grids, windows of one axis, combinations |
//! | `elementwise`, `arithmetic` | arithmetic, comparison, logic, bits, select, clamp, pow; atan2, gcd, frexp, igamma .. |
//! | `math`, `special` | unary mathematics; gamma, error and Bessel functions and related ones |
//! | `activation` | relu .. gelu: elementwise activations |
//! | `reduce`, `stats` | sum .. argmax; norms of any kind, quantiles, median, searchsorted, histc, cov |
//! | `bins` | histograms with given edges, reductions of segments |
//! | `scan` | cumsum, cumprod, cummax, cummin |
//! | `index`, `select` | gather, embedding, scatter; index, index_put, nonzero, unique, masked_select, bincount |
//! | `sort` | sort, argsort, topk |
//! | `linalg`, `product` | matmul, dot, outer, linear; einsum, tensordot, kron, cdist |
//! | `decomp`, `spectral` | inverse, solve, det, lu, cholesky, qr, eigh, svd; fft, rfft, stft and inverses |
//! | `factor`, `pseudo` | packed LU factors, ranks, polar factors; pseudo-inverse, square roots, least squares |
//! | `pool`, `conv`, `vision` | windows, pooling, convolution; fold, grid_sample, roi_align, nms, pixel_shuffle |
//! | `norm`, `attention`, `resize` | layer/batch/group/instance/rms norm, attention, interpolation |
//! | `loss`, `loss_more` | losses, their elementwise forms, ctc, triplet, margins |
//! | `call` | all of these methods by torch's names, in one table |
//! | `wire` | graphs as bytes, to be sent to another session |
//!
//! Conventions, which hold wherever a method does not say otherwise:
//!
//! - Axes are `i64`; a negative axis counts from the end.
//! - Binary operations broadcast as numpy does and promote by [`DType::promote`]. A scalar operand is weak: it takes
//!   the tensor's dtype, except that a float scalar turns an integer or bool tensor into f32 and an integer scalar
//!   turns a bool tensor into i32.
//! - Functions that need floats convert integers and bools to f32. Most functions of f16 and bf16 that have more than
//!   one step are computed in f32 and rounded once.
//! - Errors: [`Error::Axis`] (`E_AXIS`) for an axis outside the rank; [`Error::Shape`] (`E_SHAPE`) for shapes that do
//!   not broadcast or fit each other; [`Error::DType`] (`E_DTYPE`) for a dtype that the operation does not take;
//!   [`Error::Value`] (`E_VALUE`) for any other bad argument, for a tensor of the wrong rank, and for tensors of
//!   different sessions.

mod activation;
mod arithmetic;
mod arrange;
mod attention;
mod bins;
pub mod call;
mod constant_cache;
mod conv;
mod conv_transpose;
mod create;
mod custom;
mod decomp;
mod distributions;
mod elementwise;
mod factor;
mod index;
mod join;
mod kernel;
mod linalg;
mod loops;
mod loss;
mod loss_more;
mod math;
mod movement;
mod norm;
mod operand;
mod pad;
mod pool;
mod product;
mod pseudo;
mod random;
mod rearrange;
mod recurrence;
mod reduce;
mod resize;
mod sampling;
mod scan;
mod select;
mod session;
mod sort;
mod special;
mod spectral;
mod state;
mod stats;
mod take;
mod vision;
pub mod wire;
pub(crate) use vision::RoiGrid;

pub use attention::Attention;
pub use constant_cache::ConstantCache;
pub use conv::ConvOpts;
pub use conv_transpose::ConvTransposeOpts;
pub use create::Element;
pub use index::ScatterOp;
pub use kernel::CustomKernel;
pub use loops::IrKernel;
pub use movement::{Dim, Slice};
pub use operand::{IntoOperand, Operand};
pub use pad::PadMode;
pub use pool::PoolOpts;
pub use random::threefry2x32;
pub use recurrence::States;
pub use resize::Interpolate;
pub use sampling::Sampling;
pub use session::Session;
pub use spectral::Norm;
pub use stats::Quantile;

use crate::engine::state::RootId;
use crate::uop::{Graph, Shape, UOp};
use crate::{DType, Error, Result};

/// A lazy n-dimensional array: a reference-counted handle to a root of its session's graph. Cloning it copies no data,
/// and every clone sees what is later assigned to the tensor.
pub struct Tensor {
    session: Session,
    root: RootId,
}

impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        self.session.state().retain(self.root);
        Tensor { session: self.session.clone(), root: self.root }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.session.state().release(self.root);
    }
}

impl Tensor {
    /// The session whose graph and buffers this tensor belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The tensor's index in the session's table of roots, by which the engine finds its node.
    pub fn root(&self) -> RootId {
        self.root
    }

    /// The graph node that the tensor denotes at present. The handle becomes stale when the session's graph is
    /// compacted or the tensor is assigned to, so use it only while the state is locked or neither can happen.
    pub fn node(&self) -> UOp {
        self.session.state().node(self.root)
    }

    /// The session's id of the buffer whose elements this tensor is, in order and in full; `None` if the value has no
    /// buffer of its own.
    pub fn buffer(&self) -> Option<u32> {
        let s = self.session.state();
        s.buffer_id(s.storage(s.node(self.root))?)
    }

    /// Whether the value is in memory already, as a whole buffer or as a rectangular part of one, so that it can be
    /// read without computing anything.
    pub fn is_readable(&self) -> bool {
        let s = self.session.state();
        s.is_readable(s.node(self.root))
    }

    /// The size of each axis, outermost first; empty for a scalar.
    pub fn shape(&self) -> Vec<usize> {
        self.read(|g, u| g.shape(u).to_vec())
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.read(|g, u| g.dtype(u))
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.read(|g, u| g.shape(u).len())
    }

    /// Number of elements. A view (an expanded tensor) may have more elements than `usize` can count; the result is
    /// then `usize::MAX`.
    pub fn numel(&self) -> usize {
        usize::try_from(self.read(|g, u| g.numel(u))).unwrap_or(usize::MAX)
    }

    /// Size of one axis.
    pub fn dim(&self, axis: i64) -> Result<usize> {
        let shape = self.shape();
        Ok(shape[check_axis("dim", axis, shape.len())?])
    }

    /// A tensor that denotes an existing node of the session's graph. The node must have a value (its dtype is not
    /// void).
    pub fn from_node(session: &Session, node: UOp) -> Tensor {
        let root = session.state().add_root(node);
        Tensor { session: session.clone(), root }
    }

    /// A tensor for the node that `f` appends to the session's graph.
    pub(crate) fn make(session: &Session, f: impl FnOnce(&mut Graph) -> UOp) -> Tensor {
        let mut s = session.state();
        let node = f(&mut s.graph);
        let root = s.add_root(node);
        drop(s);
        Tensor { session: session.clone(), root }
    }

    /// A tensor for the node that `f` makes of this tensor's node.
    pub(crate) fn map(&self, f: impl FnOnce(&mut Graph, UOp) -> UOp) -> Tensor {
        let mut s = self.session.state();
        let u = s.node(self.root);
        let node = f(&mut s.graph, u);
        let root = s.add_root(node);
        drop(s);
        Tensor { session: self.session.clone(), root }
    }

    /// What `f` reads from the graph about this tensor's node.
    pub(crate) fn read<R>(&self, f: impl FnOnce(&Graph, UOp) -> R) -> R {
        let s = self.session.state();
        f(&s.graph, s.node(self.root))
    }

    /// `Error::Value` unless both tensors belong to one session.
    pub(crate) fn same_session(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
        match a.session.is(&b.session) {
            true => Ok(()),
            false => Err(Error::value(op, "the tensors belong to different sessions")),
        }
    }

    /// The dtype if it is a float, else `Error::DType`.
    pub(crate) fn want_float(&self, op: &'static str) -> Result<DType> {
        match self.dtype() {
            dt if dt.is_float() => Ok(dt),
            dtype => Err(Error::DType { op, dtype, why: "a float dtype is needed".into() }),
        }
    }

    /// The shape if the tensor has this rank, else `Error::Value`.
    pub(crate) fn want_rank(&self, op: &'static str, rank: usize) -> Result<Vec<usize>> {
        let shape = self.shape();
        match shape.len() == rank {
            true => Ok(shape),
            false => Err(Error::value(op, format!("a tensor of rank {rank} is needed, not shape {shape:?}"))),
        }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({} {:?})", self.dtype(), self.shape())
    }
}

/// The axis as an index below `rank`, where a negative `axis` counts from the end. `Error::Axis` outside `-rank..rank`;
/// a scalar has no axes, so even 0 and -1 are errors there.
pub(crate) fn check_axis(op: &'static str, axis: i64, rank: usize) -> Result<usize> {
    let r = rank as i64;
    match (-r..r).contains(&axis) {
        true => Ok(if axis < 0 { (axis + r) as usize } else { axis as usize }),
        false => Err(Error::Axis { op, axis, rank }),
    }
}

/// The axes as ascending indices below `rank`; an empty list stands for all axes. For a scalar 0 and -1 are accepted
/// and name no axis. Errors: `Error::Axis` for an axis outside the rank, `Error::Value` for an axis that is named
/// twice.
pub(crate) fn check_axes(op: &'static str, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
    if axes.is_empty() {
        return Ok((0..rank).collect());
    }
    if rank == 0 {
        // a scalar reduces over its only element
        axes.iter().try_for_each(|&a| check_axis(op, a, 1).map(|_| ()))?;
        return Ok(Vec::new());
    }
    let mut out = axes.iter().map(|&a| check_axis(op, a, rank)).collect::<Result<Vec<_>>>()?;
    crate::util::sort::ascending(&mut out);
    match out.windows(2).any(|w| w[0] == w[1]) {
        true => Err(Error::value(op, format!("axes {axes:?} name one axis twice"))),
        false => Ok(out),
    }
}

/// The number of elements of a shape. `Error::Value` for more than 32 axes or more than [`MAX_NUMEL`] elements.
pub(crate) fn check_numel(op: &'static str, shape: &[usize]) -> Result<u64> {
    if shape.len() > 32 {
        return Err(Error::value(op, format!("rank {} is above 32", shape.len())));
    }
    // an axis of size 0 makes the product 0, but strides are products of the other sizes: those must not overflow
    // either
    let product = |skip_zero: bool| {
        shape
            .iter()
            .filter(|&&n| !(skip_zero && n == 0))
            .try_fold(1u64, |p, &n| p.checked_mul(n as u64).filter(|&p| p <= MAX_NUMEL))
    };
    match (product(true), product(false)) {
        (Some(_), Some(n)) => Ok(n),
        _ => Err(Error::value(op, format!("shape {shape:?} has too many elements"))),
    }
}

/// The number of elements of a tensor that will be stored in memory. `Error::Value` if it exceeds `isize::MAX`.
pub(crate) fn check_len(op: &'static str, shape: &[usize]) -> Result<usize> {
    let n = check_numel(op, shape)?;
    let fits = usize::try_from(n).ok().filter(|&n| n <= isize::MAX as usize);
    fits.ok_or_else(|| Error::value(op, format!("shape {shape:?} has more elements than memory")))
}

/// Checks a repetition count that comes from a caller's argument (loop iterations that are unrolled into the graph, or
/// tensors that a method returns): `Error::Value` beyond [`MAX_REPETITIONS`].
pub(crate) fn check_repetitions(op: &'static str, n: usize) -> Result<usize> {
    if n > MAX_REPETITIONS {
        return Err(Error::value(
            op,
            format!("{n} repetitions are unrolled into one graph: {MAX_REPETITIONS} at most"),
        ));
    }
    Ok(n)
}

/// The most repetitions that one method unrolls into a graph: beyond that, compiling takes longer than any user waits.
const MAX_REPETITIONS: usize = 1 << 16;

/// Checks the number of elements that a method computes on the host, where a caller's argument determines it:
/// `Error::Budget` where as many f64 exceed the default budget's host bytes.
pub(crate) fn check_host(elems: usize) -> Result<usize> {
    let budget = crate::Budget::default();
    budget.check(budget.host_bytes((elems as u64).saturating_mul(size_of::<f64>() as u64)))?;
    Ok(elems)
}

/// The most elements of a shape, views included. It is more than any device can hold, so a larger shape is a mistake of
/// the caller.
const MAX_NUMEL: u64 = 1 << 40;

/// The shape that two operands broadcast to by numpy's rules; `Error::Shape` if they do not.
pub(crate) fn broadcast_shape(op: &'static str, a: &[usize], b: &[usize]) -> Result<Shape> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| if i + s.len() < rank { 1 } else { s[i + s.len() - rank] };
    let mut out = Shape::new();
    for i in 0..rank {
        out.push(match (at(a, i), at(b, i)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => return Err(Error::Shape { op, lhs: a.to_vec(), rhs: b.to_vec() }),
        });
    }
    check_numel(op, &out)?;
    Ok(out)
}

/// Broadcasts `u` to `shape` for an elementwise operation. Constants and launch variables without axes stay as they
/// are, since elementwise nodes accept scalars beside any shape.
pub(crate) fn lift(g: &mut Graph, u: UOp, shape: &[usize]) -> UOp {
    use crate::uop::Op;
    if g.shape(u).as_slice() == shape || (g.shape(u).is_empty() && matches!(g.op(u), Op::Const | Op::Var)) {
        return u;
    }
    spread(g, u, shape)
}

/// Broadcasts `u` to exactly `shape` by a reshape and an expand; scalars too.
pub(crate) fn spread(g: &mut Graph, u: UOp, shape: &[usize]) -> UOp {
    let own = g.shape(u).clone();
    let mut full: Shape = std::iter::repeat_n(1, shape.len() - own.len()).collect();
    full.extend_from_slice(&own);
    let u = g.reshape(u, &full);
    g.expand(u, shape)
}
