//! A value of the graph while it is built: known on the host, lazy on a device, or both.
//!
//! Shapes are static integers in a build, so everything that a graph computes from shapes and small constants folds on
//! the host; everything else becomes lazy tensors. A constant is lifted to a lazy tensor once and then shared.

use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::ops::{Bound, RangeBounds};
use std::slice::SliceIndex;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::model::Model;
use super::network::Adapter;
use super::prim::operand;
use super::stage::{Frame, Stop};
use super::tensor::{TensorProto, is_narrow};
use crate::budget::{Budget, room};
use crate::dtype::{DType, Scalar};
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::io::{HostTensor, element_count};
use crate::tensor::{Session, Tensor};

/// Folding stops at this many elements: larger constants are the compiler's to fold, once, on a device.
pub(super) const FOLD_LIMIT: usize = 1 << 14;
/// The same where a graph is built for several lengths at once: only what describes shapes is folded then, so that all builds are alike.
pub(super) const FOLD_SHAPES: usize = 8;

/// What a node of the model made, where a graph is built for several lengths at once.
pub(super) struct Mark {
    /// How many nodes the session's graph had then.
    pub(super) nodes: usize,
    /// Its name and operator.
    pub(super) node: String,
    /// Shapes of its outputs.
    pub(super) shapes: Vec<Vec<i64>>,
    /// Their values, where these are few and known.
    pub(super) values: Vec<Option<Vec<f64>>>,
}

/// A tensor of known dtype and shape.
#[derive(Clone)]
pub(super) struct Value(Arc<Inner>);

struct Inner {
    dtype: DType,
    shape: Vec<usize>,
    /// ONNX's number of an element type that is kept as codes, or 0.
    narrow: i32,
    host: Host,
    lazy: OnceLock<Tensor>,
}

#[derive(Clone)]
enum Host {
    /// Only a device knows it.
    No,
    /// Here.
    Data(HostTensor),
    /// A tensor of the model's files: read when it is asked for.
    File(TensorProto),
    /// No tensor but a sequence of values; the dtype is that of its elements.
    Seq(Vec<Value>),
    /// An optional without a value.
    Absent,
}

impl Value {
    fn make(dtype: DType, shape: Vec<usize>, host: Host) -> Value {
        Value(Arc::new(Inner { dtype, shape, narrow: 0, host, lazy: OnceLock::new() }))
    }

    /// A value known now.
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

    /// Is it an optional without a value?
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.0.host, Host::Absent)
    }

    /// Is it neither a sequence nor an optional without a value?
    pub(super) fn is_tensor(&self) -> bool {
        !matches!(self.0.host, Host::Seq(_) | Host::Absent)
    }

    /// A value that a device computes.
    pub(super) fn lazy(t: Tensor) -> Value {
        let v = Value::make(t.dtype(), t.shape(), Host::No);
        let _ = v.0.lazy.set(t);
        v
    }

    /// A number that this value has as long as it lives.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Another value where `now` has one for it or for an element of it.
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
        Ok(if is_narrow(t.elem) { v.with_narrow(t.elem) } else { v })
    }

    /// The same elements as codes of a narrow type, or (0) as plain numbers.
    pub(super) fn with_narrow(&self, narrow: i32) -> Value {
        if self.narrow() == narrow {
            return self.clone();
        }
        let Inner { dtype, shape, host, lazy, .. } = &*self.0;
        let (shape, host, lazy) = (shape.clone(), host.clone(), lazy.clone());
        Value(Arc::new(Inner { dtype: *dtype, shape, narrow, host, lazy }))
    }

    /// ONNX's number of the element type if the elements are codes of one that no device has, else 0.
    pub(super) fn narrow(&self) -> i32 {
        self.0.narrow
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

    /// The length of an axis: an error where there is no such axis. Models choose the ranks of their values, so nobody indexes a shape.
    pub(super) fn dim(&self, axis: usize) -> Result<usize> {
        self.0.shape.get(axis).copied().ok_or_else(|| self.no_axis(axis))
    }

    /// The length of an axis, and 1 where there is no such axis, as in broadcasting.
    pub(super) fn extent(&self, axis: usize) -> usize {
        self.0.shape.get(axis).copied().unwrap_or(1)
    }

    /// The last axis, or with 2 the one before it: an error where the rank is less.
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

    /// The error for an axis that this value has not got.
    pub(super) fn no_axis(&self, axis: usize) -> Error {
        Error::Model { what: format!("a tensor of shape {:?} has no axis {axis}", self.0.shape), node: None }
    }

    pub(super) fn len(&self) -> usize {
        element_count(&self.0.shape).unwrap_or(usize::MAX)
    }

    /// The elements, if they are at hand without reading the file.
    pub(super) fn data(&self) -> Option<&HostTensor> {
        if let Host::Data(t) = &self.0.host { Some(t) } else { None }
    }

    /// Does only a device know it?
    pub(super) fn is_lazy(&self) -> bool {
        matches!(self.0.host, Host::No)
    }

    pub(super) fn is_known(&self) -> bool {
        matches!(self.0.host, Host::Data(_) | Host::File(_))
    }
}

/// Constants that have been met, by place in the file and shape.
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

/// What a build needs besides the graph: the model's bytes, the session, and its limits.
pub(super) struct Cx<'m> {
    pub(super) model: &'m Model,
    pub(super) constants: &'m Constants,
    pub(super) session: Session,
    pub(super) fold_limit: usize,
    /// Where a build that goes on was, the innermost first.
    pub(super) frames: Vec<Frame>,
    /// What was computed for the node that runs next, beyond its inputs.
    pub(super) found: Vec<(&'static str, HostTensor)>,
    /// Depth of branches that are only tried.
    pub(super) trials: usize,
    /// Whether the build goes on, and whether a node was built since it did.
    pub(super) interrupt: Interrupt,
    pub(super) moved: bool,
    /// Has the build stopped before? Then values do not reach back to what they were computed from.
    pub(super) resumed: bool,
    /// The key of random numbers, two u32.
    pub(super) key: Option<Tensor>,
    draws: u32,
    steps: usize,
    pub(super) budget: Budget,
    /// Bytes made on the host so far.
    made_bytes: Cell<u64>,
    stop: RefCell<Option<Stop>>,
    /// What each node of the model made, if somebody wants to know.
    pub(super) marks: Option<Vec<Mark>>,
    /// Values in place of tensors of the main graph, and what is added to products: those of a network that learns.
    pub(super) trained: Vec<(String, Value)>,
    pub(super) adapters: &'m [Adapter],
}

impl<'m> Cx<'m> {
    pub(super) fn new(model: &'m Model, constants: &'m Constants, session: Session) -> Cx<'m> {
        let (frames, found) = (Vec::new(), Vec::new());
        let (stop, draws, steps) = (RefCell::new(None), 0, 0);
        Cx {
            model,
            constants,
            session,
            fold_limit: FOLD_LIMIT,
            frames,
            found,
            trials: 0,
            interrupt: Interrupt::default(),
            moved: false,
            resumed: false,
            key: None,
            draws,
            steps,
            budget: *model.budget(),
            made_bytes: Cell::new(0),
            stop,
            marks: None,
            trained: Vec::new(),
            adapters: &[],
        }
    }

    /// Goes on counting where a build stopped.
    pub(super) fn resume(&mut self, (steps, draws, made_bytes): (usize, u32, u64), has_stopped: bool) {
        (self.steps, self.draws, self.resumed) = (steps, draws, has_stopped);
        self.made_bytes.set(made_bytes);
    }

    /// Nodes, random draws and bytes made on the host so far.
    pub(super) fn progress(&self) -> (usize, u32, u64) {
        (self.steps, self.draws, self.made_bytes.get())
    }

    /// The number of the next random draw.
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

    /// Is the build on its way out, to have values computed?
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Counts one node.
    pub(super) fn step(&mut self) -> Result<()> {
        self.work(1)
    }

    /// Counts what costs as much as so many nodes.
    pub(super) fn work(&mut self, nodes: usize) -> Result<()> {
        self.steps = self.steps.saturating_add(nodes);
        self.budget.nodes(self.steps as u64).grant().map(drop)
    }

    /// An empty list with room for `n` elements, whose bytes count against the budget of this build.
    pub(super) fn room<T>(&self, n: usize) -> Result<Vec<T>> {
        self.charge((n as u64).saturating_mul(size_of::<T>() as u64))?;
        room(n)
    }

    /// The same, filled with one value.
    pub(super) fn filled<T: Clone>(&self, n: usize, value: T) -> Result<Vec<T>> {
        let mut list = self.room(n)?;
        list.resize(n, value);
        Ok(list)
    }

    /// Counts bytes that a build makes on the host. One that runs wholly there is held to the limit by value, not by sum.
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        let before = if self.fold_limit == usize::MAX { 0 } else { self.made_bytes.get() };
        let sum = before.saturating_add(bytes);
        self.budget.host_bytes(sum).grant()?;
        self.made_bytes.set(sum);
        Ok(())
    }

    /// A value computed here: its bytes count.
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

    /// The lazy tensor; constants are lifted once.
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
            // one repeated value needs no buffer
            Some(first) if bytes.chunks_exact(size).all(|c| c == first) => {
                Tensor::full(&self.session, operand(dtype, Scalar::read(dtype, first)), dtype, shape)
            }
            None => Tensor::zeros(&self.session, dtype, shape),
            _ => Tensor::from_bytes(&self.session, dtype, shape, bytes),
        }
    }

    /// Is the graph built for several lengths at once?
    pub(super) fn is_of_lengths(&self) -> bool {
        self.fold_limit == FOLD_SHAPES
    }

    /// Are all operands known, and neither they nor the result too large to fold?
    pub(super) fn folds(&self, operands: &[&Value], result: usize) -> bool {
        if self.is_of_lengths() {
            // shapes are integers; floats that depend on a length are computed from it
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
        // what is computed here is not wider than 8 bytes an element; where it is too much, the device computes it
        self.charge((result as u64).saturating_mul(8)).ok()?;
        operands.iter().map(|v| self.host(v).ok().flatten()).collect()
    }

    /// Checks that a shape is one a tensor may have.
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

    /// A constant made element by element.
    pub(super) fn table(&self, dtype: DType, shape: &[usize], mut at: impl FnMut(usize) -> Scalar) -> Result<Value> {
        let n = self.check_shape(shape)?;
        let mut data: Vec<u8> = self.room(n.saturating_mul(dtype.size()))?;
        let mut one = [0; 8];
        for i in 0..n {
            at(i).write(dtype, &mut one);
            data.extend(one.iter().take(dtype.size()));
        }
        HostTensor::new(dtype, shape.to_vec(), data).map(Value::known)
    }

    /// The numbers 0 .. n, i64: a long list of them is never written down.
    pub(super) fn count_up(&self, n: usize) -> Result<Value> {
        self.check_shape(&[n])?;
        if n <= self.fold_limit.min(FOLD_LIMIT) || self.fold_limit == usize::MAX {
            let mut v = self.room(n)?;
            v.extend(0..n as i64);
            return self.ints(&v);
        }
        Tensor::iota(&self.session, n)?.cast(DType::I64).map(Value::lazy)
    }
}

/// A tensor of one value. Its size is the caller's to limit.
fn full(dtype: DType, shape: &[usize], v: Scalar) -> HostTensor {
    let mut one = vec![0; dtype.size()];
    v.write(dtype, &mut one);
    HostTensor { dtype, shape: shape.to_vec(), data: one.repeat(element_count(shape).unwrap_or(0)) }
}

/// How many elements lie between neighbours along each axis, in C order.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    (1..=shape.len()).map(|i| shape.iter().skip(i).product()).collect()
}
