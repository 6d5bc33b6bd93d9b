//! A value of the ONNX graph during a build: known on the host, a lazy tensor, or both.
//!
//! Shapes are concrete integers in a build, so everything that a model computes from shapes and small constants is
//! folded on the host; everything else becomes lazy tensors. A constant becomes a lazy tensor at most once, which all
//! uses share.

use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::ops::{Bound, RangeBounds};
use std::slice::SliceIndex;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::model::Model;
use super::network::Adapter;
use super::prim::operand;
use super::stage::{Frame, Stop};
use super::tensor::{TensorProto, is_code_type};
use crate::budget::{Budget, room};
use crate::dtype::{DType, Scalar};
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::io::{HostTensor, element_count};
use crate::tensor::{Session, Tensor};

/// The most elements of an operand that is folded on the host during a build. The engine folds larger constants, once,
/// on a device.
pub(super) const FOLD_LIMIT: usize = 1 << 14;
/// The same limit for builds that one graph for all lengths is derived from. Only values that describe shapes are
/// folded there, so that builds for different lengths have the same structure.
pub(super) const FOLD_SHAPES: usize = 8;

/// What a node of the model produced, recorded in builds for several lengths.
pub(super) struct NodeTrace {
    /// Number of nodes in the session's graph after it.
    pub(super) nodes: usize,
    /// Name and operator of the node.
    pub(super) node: String,
    /// Shapes of its outputs.
    pub(super) shapes: Vec<Vec<i64>>,
    /// Values of its outputs, where they are known and at most [`FOLD_SHAPES`] elements.
    pub(super) values: Vec<Option<Vec<f64>>>,
}

/// A tensor of known dtype and shape.
#[derive(Clone)]
pub(super) struct Value(Arc<Inner>);

struct Inner {
    dtype: DType,
    shape: Vec<usize>,
    /// ONNX's number of the element type if the elements are codes of a type that no device supports, else 0.
    code_type: i32,
    host: Host,
    lazy: OnceLock<Tensor>,
}

#[derive(Clone)]
enum Host {
    /// Not known on the host: a device computes it.
    No,
    /// Known.
    Data(HostTensor),
    /// A constant in the model's files, read on demand.
    File(TensorProto),
    /// A sequence of values rather than a tensor; the dtype is that of its elements.
    Seq(Vec<Value>),
    /// An optional without a value.
    Absent,
}

impl Value {
    fn make(dtype: DType, shape: Vec<usize>, host: Host) -> Value {
        Value(Arc::new(Inner { dtype, shape, code_type: 0, host, lazy: OnceLock::new() }))
    }

    /// A value that is known on the host.
    pub(super) fn known(t: HostTensor) -> Value {
        Value::make(t.dtype, t.shape.clone(), Host::Data(t))
    }

    /// A sequence of values of this dtype.
    pub(super) fn sequence(dtype: DType, items: Vec<Value>) -> Value {
        Value::make(dtype, vec![], Host::Seq(items))
    }

    /// An optional without a value.
    pub(super) fn absent() -> Value {
        Value::make(DType::U8, vec![], Host::Absent)
    }

    /// The elements of a sequence.
    pub(super) fn items(&self) -> Option<&[Value]> {
        if let Host::Seq(items) = &self.0.host { Some(items) } else { None }
    }

    /// True for an optional without a value.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.0.host, Host::Absent)
    }

    /// True unless it is a sequence or an optional without a value.
    pub(super) fn is_tensor(&self) -> bool {
        !matches!(self.0.host, Host::Seq(_) | Host::Absent)
    }

    /// A value that a device computes.
    pub(super) fn lazy(t: Tensor) -> Value {
        let v = Value::make(t.dtype(), t.shape(), Host::No);
        let _ = v.0.lazy.set(t);
        v
    }

    /// A number that identifies this value while it is alive.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The value that `now` has in place of this one, or, for a sequence, with its elements replaced in the same way.
    pub(super) fn replaced(&self, now: &FxHashMap<usize, Value>) -> Value {
        match (now.get(&self.id()), self.items()) {
            (Some(v), _) => v.clone(),
            (None, Some(items)) => Value::sequence(self.dtype(), items.iter().map(|v| v.replaced(now)).collect()),
            (None, None) => self.clone(),
        }
    }

    /// A constant of the model.
    pub(super) fn constant(t: &TensorProto) -> Result<Value> {
        let v = Value::make(t.dtype()?, t.shape.clone(), Host::File(t.clone()));
        Ok(if is_code_type(t.elem) { v.with_code_type(t.elem) } else { v })
    }

    /// The same elements, marked as codes of this ONNX element type, or as plain numbers (0).
    pub(super) fn with_code_type(&self, code_type: i32) -> Value {
        if self.code_type() == code_type {
            return self.clone();
        }
        let Inner { dtype, shape, host, lazy, .. } = &*self.0;
        let (shape, host, lazy) = (shape.clone(), host.clone(), lazy.clone());
        Value(Arc::new(Inner { dtype: *dtype, shape, code_type, host, lazy }))
    }

    /// ONNX's number of the element type if the elements are codes of a type that no device supports, else 0.
    pub(super) fn code_type(&self) -> i32 {
        self.0.code_type
    }

    pub(super) fn dtype(&self) -> DType {
        self.0.dtype
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    pub(super) fn rank(&self) -> usize {
        self.0.shape.len()
    }

    /// The length of an axis; an error where there is no such axis. A model chooses the ranks of its values, so
    /// operators use this instead of indexing shapes.
    pub(super) fn dim(&self, axis: usize) -> Result<usize> {
        self.0.shape.get(axis).copied().ok_or_else(|| self.no_axis(axis))
    }

    /// The length of an axis, or 1 where there is no such axis, as in broadcasting.
    pub(super) fn extent(&self, axis: usize) -> usize {
        self.0.shape.get(axis).copied().unwrap_or(1)
    }

    /// The index of the `k`th axis from the end, 1 for the last; an error where the rank is less than `k`.
    pub(super) fn nth_last(&self, k: usize) -> Result<usize> {
        let lack = || Error::Model {
            what: format!("a tensor of rank {k} or more is wanted, not {:?}", self.0.shape),
            node: None,
        };
        self.rank().checked_sub(k).ok_or_else(lack)
    }

    /// The lengths of a range of axes.
    pub(super) fn shape_in(
        &self,
        axes: impl SliceIndex<[usize], Output = [usize]> + RangeBounds<usize>,
    ) -> Result<&[usize]> {
        let last = match (axes.end_bound(), axes.start_bound()) {
            (Bound::Excluded(&n), _) => n.saturating_sub(1),
            (Bound::Included(&n), _) | (_, Bound::Included(&n)) => n,
            _ => 0,
        };
        self.0.shape.get(axes).ok_or_else(|| self.no_axis(last))
    }

    /// The error for an axis that this value does not have.
    pub(super) fn no_axis(&self, axis: usize) -> Error {
        Error::Model { what: format!("a tensor of shape {:?} has no axis {axis}", self.0.shape), node: None }
    }

    pub(super) fn len(&self) -> usize {
        element_count(&self.0.shape).unwrap_or(usize::MAX)
    }

    /// The elements, if they are in memory (not in a file that must be read first).
    pub(super) fn data(&self) -> Option<&HostTensor> {
        if let Host::Data(t) = &self.0.host { Some(t) } else { None }
    }

    /// True for a tensor that is not known on the host.
    pub(super) fn is_lazy(&self) -> bool {
        matches!(self.0.host, Host::No)
    }

    pub(super) fn is_known(&self) -> bool {
        matches!(self.0.host, Host::Data(_) | Host::File(_))
    }
}

/// The model's constants that builds have used, by offset in the file and shape.
#[derive(Default)]
pub(super) struct Constants(Mutex<FxHashMap<(usize, Vec<usize>), Value>>);

impl Constants {
    pub(super) fn get(&self, at: &(usize, Vec<usize>)) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
    }

    pub(super) fn insert(&self, at: (usize, Vec<usize>), v: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(at, v);
    }
}

/// The context of a build: the model, the session, limits, and the state of a build that pauses and resumes.
pub(super) struct Cx<'m> {
    pub(super) model: &'m Model,
    pub(super) constants: &'m Constants,
    pub(super) session: Session,
    /// The most elements of an operand that is folded: [`FOLD_LIMIT`], [`FOLD_SHAPES`], or `usize::MAX` in a build that
    /// computes everything on the host.
    pub(super) fold_limit: usize,
    /// Saved frames of a build that resumes, the innermost first.
    pub(super) frames: Vec<Frame>,
    /// Values that were computed for the node that runs next, besides its inputs, by the name under which it asked.
    pub(super) computed_for_node: Vec<(&'static str, HostTensor)>,
    /// Nesting depth of branches that are built on trial only (a stop there is an ordinary failure).
    pub(super) trials: usize,
    /// Asked whether the build should pause; `made_progress` is true once a node was built since the build resumed.
    pub(super) interrupt: Interrupt,
    pub(super) made_progress: bool,
    /// True if the build has stopped before; then values are no longer connected in the graph to what they were
    /// computed from.
    pub(super) resumed: bool,
    /// The key of random numbers, two u32.
    pub(super) key: Option<Tensor>,
    draws: u32,
    steps: usize,
    pub(super) budget: Budget,
    /// Bytes allocated on the host so far, charged to the budget.
    made_bytes: Cell<u64>,
    stop: RefCell<Option<Stop>>,
    /// What each node produced, if that is recorded (builds for several lengths).
    pub(super) traces: Option<Vec<NodeTrace>>,
    /// For a network in training: values that replace tensors of the main graph, and adapters that are added to
    /// products.
    pub(super) trained: Vec<(String, Value)>,
    pub(super) adapters: &'m [Adapter],
}

impl<'m> Cx<'m> {
    pub(super) fn new(model: &'m Model, constants: &'m Constants, session: Session) -> Cx<'m> {
        let (frames, computed_for_node) = (Vec::new(), Vec::new());
        let (stop, draws, steps) = (RefCell::new(None), 0, 0);
        Cx {
            model,
            constants,
            session,
            fold_limit: FOLD_LIMIT,
            frames,
            computed_for_node,
            trials: 0,
            interrupt: Interrupt::default(),
            made_progress: false,
            resumed: false,
            key: None,
            draws,
            steps,
            budget: *model.budget(),
            made_bytes: Cell::new(0),
            stop,
            traces: None,
            trained: Vec::new(),
            adapters: &[],
        }
    }

    /// Restores the counters of a build that stopped.
    pub(super) fn resume(&mut self, (steps, draws, made_bytes): (usize, u32, u64), has_stopped: bool) {
        (self.steps, self.draws, self.resumed) = (steps, draws, has_stopped);
        self.made_bytes.set(made_bytes);
    }

    /// The counters: nodes run, random draws and host bytes so far.
    pub(super) fn progress(&self) -> (usize, u32, u64) {
        (self.steps, self.draws, self.made_bytes.get())
    }

    /// A new number for a random draw.
    pub(super) fn draw(&mut self) -> u32 {
        self.draws = self.draws.wrapping_add(1);
        self.draws
    }

    pub(super) fn set_stop(&self, stop: Stop) {
        self.stop.replace(Some(stop));
    }

    pub(super) fn take_stop(&self) -> Option<Stop> {
        self.stop.take()
    }

    /// True if the build is unwinding because values must be computed first, or because it pauses.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Counts one node against the budget.
    pub(super) fn step(&mut self) -> Result<()> {
        self.work(1)
    }

    /// Counts work that costs as much as `nodes` nodes.
    pub(super) fn work(&mut self, nodes: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(nodes);
        self.budget.nodes(self.steps as u64).grant().map(drop)
    }

    /// An empty list with capacity for `n` elements, whose bytes are charged to the build's budget.
    pub(super) fn vec_with_capacity<T>(&self, n: usize) -> Result<Vec<T>> {
        self.charge((n as u64).saturating_mul(size_of::<T>() as u64))?;
        room(n)
    }

    /// A list of `n` copies of one value, charged to the build's budget.
    pub(super) fn filled<T: Clone>(&self, n: usize, value: T) -> Result<Vec<T>> {
        let mut list = self.vec_with_capacity(n)?;
        list.resize(n, value);
        Ok(list)
    }

    /// Charges bytes that the build allocates on the host to the budget. A build that computes everything on the host
    /// is limited per value, not by the sum.
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        let before = if self.fold_limit == usize::MAX { 0 } else { self.made_bytes.get() };
        let sum = before.saturating_add(bytes);
        self.budget.host_bytes(sum).grant()?;
        self.made_bytes.set(sum);
        Ok(())
    }

    /// A value computed on the host; its bytes are charged.
    pub(super) fn known(&self, t: HostTensor) -> Result<Value> {
        self.charge(t.data.len() as u64)?;
        Ok(Value::known(t))
    }

    /// The elements on the host, if they are known at build time.
    pub(super) fn host(&self, v: &Value) -> Result<Option<HostTensor>> {
        match &v.0.host {
            Host::No | Host::Seq(_) | Host::Absent => Ok(None),
            Host::Data(t) => Ok(Some(t.clone())),
            Host::File(t) => self.model.tensor(t).map(Some),
        }
    }

    /// The value as a lazy tensor; a constant becomes one at most once.
    pub(super) fn lazy(&self, v: &Value) -> Result<Tensor> {
        if let Some(t) = v.0.lazy.get() {
            return Ok(t.clone());
        }
        let t = match &v.0.host {
            Host::Data(t) => self.lift(t.dtype, &t.shape, Bytes::new(t.data.clone()))?,
            Host::File(t) => self.lift(t.dtype()?, &t.shape, self.model.shared(t)?)?,
            Host::No | Host::Seq(_) | Host::Absent => {
                let what = "a sequence or an optional without a value stands where a tensor is wanted".to_owned();
                return Err(Error::Model { what, node: None });
            }
        };
        Ok(v.0.lazy.get_or_init(|| t).clone())
    }

    fn lift(&self, dtype: DType, shape: &[usize], bytes: Bytes) -> Result<Tensor> {
        let size = dtype.size();
        match bytes.get(..size) {
            // A constant with equal elements needs no buffer.
            Some(first) if bytes.chunks_exact(size).all(|c| c == first) => {
                Tensor::full(&self.session, operand(dtype, Scalar::read(dtype, first)), dtype, shape)
            }
            None => Tensor::zeros(&self.session, dtype, shape),
            _ => Tensor::from_bytes(&self.session, dtype, shape, bytes),
        }
    }

    /// True in a build that one graph for all lengths is derived from.
    pub(super) fn is_of_lengths(&self) -> bool {
        self.fold_limit == FOLD_SHAPES
    }

    /// True if all operands are known and neither they nor the result, of `result` elements, are too large to fold.
    pub(super) fn folds(&self, operands: &[&Value], result: usize) -> bool {
        if self.is_of_lengths() {
            // Shapes are integers. Floats derived from a length stay in the graph, which computes them from it.
            let of_shapes = |v: &Value| v.is_known() && v.len() <= FOLD_SHAPES && !v.dtype().is_float();
            return result <= FOLD_SHAPES && operands.iter().all(|v| of_shapes(v));
        }
        let small = operands.iter().all(|v| v.data().is_some() || v.is_known() && v.len() <= self.fold_limit);
        let total = operands.iter().fold(result, |n, v| n.saturating_add(v.len()));
        small && total <= self.fold_limit.saturating_mul(2)
    }

    /// The operands on the host, if all are known and neither they nor the result are too large to fold.
    pub(super) fn fold(&self, operands: &[&Value], result: usize) -> Option<Vec<HostTensor>> {
        if !self.folds(operands, result) {
            return None;
        }
        // An element has at most 8 bytes. If the budget is exhausted, the device computes the value instead.
        self.charge((result as u64).saturating_mul(8)).ok()?;
        operands.iter().map(|v| self.host(v).ok().flatten()).collect()
    }

    /// Checks that a tensor may have this shape; returns its number of elements.
    pub(super) fn check_shape(&self, shape: &[usize]) -> Result<usize> {
        if shape.len() > crate::io::MAX_RANK {
            return Err(Error::value("onnx", format!("a tensor of {} axes", shape.len())));
        }
        self.budget.tensor_elems(element_count(shape).map_or(u64::MAX, |n| n as u64)).grant()
    }

    /// A tensor of one repeated value.
    pub(super) fn full(&self, dtype: DType, shape: &[usize], v: Scalar) -> Result<Value> {
        if self.check_shape(shape)? <= self.fold_limit {
            self.charge((element_count(shape).unwrap_or(0) as u64).saturating_mul(dtype.size() as u64))?;
            return Ok(Value::known(full(dtype, shape, v)));
        }
        Ok(Value::lazy(Tensor::full(&self.session, operand(dtype, v), dtype, shape)?))
    }

    /// A scalar of `like`'s dtype.
    pub(super) fn scalar_like(&self, like: &Value, v: f64) -> Value {
        self.scalar(like.dtype(), v)
    }

    /// A scalar.
    pub(super) fn scalar(&self, dtype: DType, v: f64) -> Value {
        Value::known(full(dtype, &[], Scalar::from_f64(v, dtype)))
    }

    /// A vector of i64.
    pub(super) fn ints(&self, v: &[i64]) -> Result<Value> {
        self.known(HostTensor::from_i64(vec![v.len()], v)?)
    }

    /// A constant whose element `i` is `at(i)`.
    pub(super) fn table(&self, dtype: DType, shape: &[usize], mut at: impl FnMut(usize) -> Scalar) -> Result<Value> {
        let n = self.check_shape(shape)?;
        let mut data: Vec<u8> = self.vec_with_capacity(n.saturating_mul(dtype.size()))?;
        let mut one = [0; 8];
        for i in 0..n {
            at(i).write(dtype, &mut one);
            data.extend(one.iter().take(dtype.size()));
        }
        HostTensor::new(dtype, shape.to_vec(), data).map(Value::known)
    }

    /// The numbers 0 .. n, i64; a long list is an index expression instead of stored data.
    pub(super) fn count_up(&self, n: usize) -> Result<Value> {
        self.check_shape(&[n])?;
        if n <= self.fold_limit.min(FOLD_LIMIT) || self.fold_limit == usize::MAX {
            let mut v = self.vec_with_capacity(n)?;
            v.extend(0..n as i64);
            return self.ints(&v);
        }
        Tensor::iota(&self.session, n)?.cast(DType::I64).map(Value::lazy)
    }

    /// The numbers 0 .. n, i32, along one axis of a tensor of that rank, as an index expression; the other axes have
    /// length 1.
    pub(super) fn indices_along(&self, n: usize, axis: usize, rank: usize) -> Result<Value> {
        self.check_shape(&[n])?;
        let mut shape = vec![1; rank];
        shape[axis] = n;
        Tensor::iota(&self.session, n)?.reshape(&shape).map(Value::lazy)
    }
}

/// A host tensor of one repeated value. The caller limits its size.
fn full(dtype: DType, shape: &[usize], v: Scalar) -> HostTensor {
    let mut one = vec![0; dtype.size()];
    v.write(dtype, &mut one);
    HostTensor { dtype, shape: shape.to_vec(), data: one.repeat(element_count(shape).unwrap_or(0)) }
}

/// The strides of a contiguous tensor in elements, C order.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    (1..=shape.len()).map(|i| shape.iter().skip(i).product()).collect()
}
