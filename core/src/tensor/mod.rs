//! The user's API: lazy tensors. A method adds nodes to its session's graph and returns at once; nothing is computed until
//! the engine realizes. Everything is checked here, so that a graph that exists can be compiled: methods return [`Result`]
//! with an error that names the op and the values.
//!
//! | file | what it has |
//! |---|---|
//! | `session` | [`Session`]: graph, buffers and random stream shared by tensors |
//! | `operand` | [`Operand`]: tensor or weak scalar; `+ - * /` for tensors, scalars and `Result<Tensor>` |
//! | `create` | from host data, full, zeros, ones, arange, linspace, eye, tril, triu, variables |
//! | `random` | threefry2x32: bits, rand, uniform, randn, normal, randint, xavier, kaiming, bernoulli, randperm |
//! | `distributions`, `sampling` | exponential, gamma, poisson, multinomial ..; a token from logits: top-k, top-p, min-p |
//! | `folded` | constants of a model that were computed, for all of its plans |
//! | `state` | detach, contiguous, assign |
//! | `custom` | gradients of your own, checkpoints |
//! | `movement` | reshape, permute, transpose, flatten, unflatten, squeeze, unsqueeze, expand, flip, shrink, slice, repeat |
//! | `join` | cat, stack, split, chunk, narrow, roll, select, repeat_interleave |
//! | `pad` | pad: constant, reflect, replicate, circular |
//! | `arrange` | axes by list, diagonals, grids, stacks, windows of one axis, combinations |
//! | `elementwise`, `arithmetic` | arithmetic, comparison, logic, bits, where, clamp, pow; atan2, gcd, frexp, igamma .. |
//! | `math`, `special` | unary mathematics; gamma, error and Bessel functions and their kin |
//! | `activation` | relu .. gelu, softmax-free activations |
//! | `reduce`, `stats` | sum .. argmax; norms of any kind, quantiles, median, searchsorted, histc, cov |
//! | `scan` | cumsum, cumprod, cummax |
//! | `index`, `select` | gather, embedding, scatter; index, index_put, nonzero, unique, masked_select, bincount |
//! | `sort` | sort, argsort, topk |
//! | `linalg`, `product` | matmul, dot, outer, linear; einsum, tensordot, kron, cdist |
//! | `decomp`, `spectral` | inverse, solve, det, lu, cholesky, qr, eigh, svd; fft, rfft, stft and inverses |
//! | `pool`, `conv`, `vision` | windows, pooling, convolution; fold, grid_sample, roi_align, nms, pixel_shuffle |
//! | `norm`, `attention`, `resize` | layer/batch/group/instance/rms norm, attention, interpolation |
//! | `loss`, `loss_more` | losses, their elementwise forms, ctc, triplet, margins |
//! | `call` | all of it by torch's names, in one table |
//! | `wire` | graphs as bytes, from a session to another |
//!
//! Axes are `i64`, negative from the end. Scalars are weak: they take the tensor's dtype, except that a float scalar makes
//! an integer tensor f32 and an integer scalar makes a bool tensor i32.

mod activation;
mod arithmetic;
mod arrange;
mod attention;
mod bins;
pub mod call;
mod conv;
mod create;
mod custom;
mod decomp;
mod distributions;
mod elementwise;
mod factor;
mod folded;
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
mod vision;
pub mod wire;
pub(crate) use vision::RoiGrid;

pub use attention::Attention;
pub use conv::{ConvOpts, ConvTransposeOpts};
pub use create::Element;
pub use folded::Folded;
pub use index::ScatterOp;
pub use kernel::CustomKernel;
pub use loops::IrKernel;
pub use movement::{Dim, Slice};
pub use operand::{IntoOperand, Operand};
pub use pad::PadMode;
pub use pool::PoolOpts;
pub use random::threefry2x32;
pub use resize::Interpolate;
pub use sampling::Sampling;
pub use session::Session;
pub use spectral::Norm;
pub use stats::Quantile;

use crate::engine::state::RootId;
use crate::uop::{Graph, Shape, UOp};
use crate::{DType, Error, Result};

/// A lazy n-dimensional array. Cheap to clone: it is a counted handle into its session.
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
    /// The session this tensor lives in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its entry in the session's root table, for the engine.
    pub fn root(&self) -> RootId {
        self.root
    }

    /// The graph node at this moment: only good while the state stays locked or uncompacted.
    pub fn node(&self) -> UOp {
        self.session.state().node(self.root)
    }

    /// The number of the session's buffer that it is all of, if it is one.
    pub fn buffer(&self) -> Option<u32> {
        let s = self.session.state();
        s.buffer_id(s.storage(s.node(self.root))?)
    }

    /// Is its value in memory already, as all of a buffer or as a box of one?
    pub fn is_readable(&self) -> bool {
        let s = self.session.state();
        s.is_readable(s.node(self.root))
    }

    /// Sizes per axis; empty for a scalar.
    pub fn shape(&self) -> Vec<usize> {
        self.read(|g, u| g.shape(u).to_vec())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.read(|g, u| g.dtype(u))
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.read(|g, u| g.shape(u).len())
    }

    /// Number of elements; of a view with more than the machine's words count, the most that they do.
    pub fn numel(&self) -> usize {
        usize::try_from(self.read(|g, u| g.numel(u))).unwrap_or(usize::MAX)
    }

    /// Size of one axis.
    pub fn dim(&self, axis: i64) -> Result<usize> {
        let shape = self.shape();
        Ok(shape[check_axis("dim", axis, shape.len())?])
    }

    /// A tensor for an existing node of the session's graph. The node must be a value (not void).
    pub fn from_node(session: &Session, node: UOp) -> Tensor {
        let root = session.state().add_root(node);
        Tensor { session: session.clone(), root }
    }

    pub(crate) fn make(session: &Session, f: impl FnOnce(&mut Graph) -> UOp) -> Tensor {
        let mut s = session.state();
        let node = f(&mut s.graph);
        let root = s.add_root(node);
        drop(s);
        Tensor { session: session.clone(), root }
    }

    pub(crate) fn map(&self, f: impl FnOnce(&mut Graph, UOp) -> UOp) -> Tensor {
        let mut s = self.session.state();
        let u = s.node(self.root);
        let node = f(&mut s.graph, u);
        let root = s.add_root(node);
        drop(s);
        Tensor { session: self.session.clone(), root }
    }

    pub(crate) fn read<R>(&self, f: impl FnOnce(&Graph, UOp) -> R) -> R {
        let s = self.session.state();
        f(&s.graph, s.node(self.root))
    }

    /// Errors unless all tensors share one session.
    pub(crate) fn same_session(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
        match a.session.is(&b.session) {
            true => Ok(()),
            false => Err(Error::value(op, "the tensors belong to different sessions")),
        }
    }

    /// Errors unless the dtype is a float.
    pub(crate) fn want_float(&self, op: &'static str) -> Result<DType> {
        match self.dtype() {
            dt if dt.is_float() => Ok(dt),
            dtype => Err(Error::DType { op, dtype, why: "a float dtype is needed".into() }),
        }
    }

    /// Errors unless the rank is `rank`.
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

/// A non-negative axis below `rank`; scalars take 0 and -1 nowhere.
pub(crate) fn check_axis(op: &'static str, axis: i64, rank: usize) -> Result<usize> {
    let r = rank as i64;
    match (-r..r).contains(&axis) {
        true => Ok(if axis < 0 { (axis + r) as usize } else { axis as usize }),
        false => Err(Error::Axis { op, axis, rank }),
    }
}

/// Distinct non-negative axes, sorted; an empty list means all of them.
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

/// Elements of a shape; an error if it has more axes or elements than can be addressed.
pub(crate) fn check_numel(op: &'static str, shape: &[usize]) -> Result<u64> {
    if shape.len() > 32 {
        return Err(Error::value(op, format!("rank {} is above 32", shape.len())));
    }
    // sizes of 0 do not excuse the others: strides are computed from all of them
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

/// Elements of a tensor that will be in memory; an error if they are more than this machine's words count.
pub(crate) fn check_len(op: &'static str, shape: &[usize]) -> Result<usize> {
    let n = check_numel(op, shape)?;
    let fits = usize::try_from(n).ok().filter(|&n| n <= isize::MAX as usize);
    fits.ok_or_else(|| Error::value(op, format!("shape {shape:?} has more elements than memory")))
}

/// The number of times that a method repeats its work, or of tensors that it gives, where a caller's argument says it: an error beyond
/// what is unrolled into one graph.
pub(crate) fn check_turns(op: &'static str, n: usize) -> Result<usize> {
    if n > MOST_TURNS {
        return Err(Error::value(op, format!("{n} repetitions are unrolled into one graph: {MOST_TURNS} at most")));
    }
    Ok(n)
}

/// More turns take longer to compile than anybody waits for.
const MOST_TURNS: usize = 1 << 16;

/// Values that a method writes on the host, as many as a caller's argument says: an error beyond the default budget.
pub(crate) fn check_host(elems: usize) -> Result<usize> {
    let budget = crate::Budget::default();
    budget.check(budget.host_bytes((elems as u64).saturating_mul(size_of::<f64>() as u64)))?;
    Ok(elems)
}

/// More elements than any device can hold: a mistake, not a plan.
const MAX_NUMEL: u64 = 1 << 40;

/// The shape both operands broadcast to.
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

/// `u` with the given broadcast shape. Scalar leaves stay scalars: they broadcast against anything in elementwise ops.
pub(crate) fn lift(g: &mut Graph, u: UOp, shape: &[usize]) -> UOp {
    use crate::uop::Op;
    if g.shape(u).as_slice() == shape || (g.shape(u).is_empty() && matches!(g.op(u), Op::Const | Op::Var)) {
        return u;
    }
    spread(g, u, shape)
}

/// `u` repeated to exactly `shape`, scalars too.
pub(crate) fn spread(g: &mut Graph, u: UOp, shape: &[usize]) -> UOp {
    let own = g.shape(u).clone();
    let mut full: Shape = std::iter::repeat_n(1, shape.len() - own.len()).collect();
    full.extend_from_slice(&own);
    let u = g.reshape(u, &full);
    g.expand(u, shape)
}
