//! Tensors and their storage: detach, contiguous, assign, set; and gradients.

use super::{IntoOperand, Operand, Tensor};
use crate::engine::state::State;
use crate::uop::{Arg, Op, UOp};
use crate::{Error, Result};

impl Tensor {
    /// The same values, through which no gradient flows.
    pub fn detach(&self) -> Tensor {
        self.map(|g, u| {
            let dt = g.dtype(u);
            g.node(Op::Detach, dt, &[u], Arg::None)
        })
    }

    /// The same values in memory of their own. The scheduler stores them there, so nothing is fused across this point.
    pub fn contiguous(&self) -> Tensor {
        self.map(|g, u| {
            let dt = g.dtype(u);
            g.node(Op::Contiguous, dt, &[u], Arg::None)
        })
    }

    /// Overwrites this tensor's storage with `value` (cast and broadcast to fit), in place, when the tensor is next
    /// realized. Every clone of this tensor sees the new value; tensors that were computed from the old one keep it. A
    /// tensor without storage of its own gets a new buffer. `Error::Shape` if the value does not broadcast to this
    /// shape.
    pub fn assign(&self, value: impl IntoOperand) -> Result<()> {
        let (dtype, shape) = (self.dtype(), self.shape());
        super::check_len("assign", &shape)?;
        let value = value.into_operand()?;
        value.check("assign", self)?;
        let value = match value {
            Operand::Tensor(t) => t.cast(dtype)?.expand(&shape)?,
            v => self.full_like(v)?,
        };
        let mut s = self.session().state();
        let v = s.node(value.root());
        let len = s.graph.memory_len(v);
        let storage = match self.own_storage(&s) {
            Some(u) => u,
            None => s.add_buffer(dtype, len, None),
        };
        let flat = s.graph.reshape(v, &[len]);
        let store = s.graph.store(storage, flat);
        let after = s.graph.after(storage, &[store]);
        let node = s.graph.reshape(after, &shape);
        s.set_node(self.root(), node);
        drop(s);
        Ok(())
    }

    /// Overwrites slices of this tensor's storage when it is next realized: along `axis` those that `index`, a vector
    /// of integers `[n]`, names, by `value` (cast and broadcast to this shape with `n` in place of the axis' size).
    /// Nothing else is touched, and the index may be computed from launch variables, which is how a cache of keys and
    /// values grows. An index out of range writes nothing; where an index occurs twice, either slice may win. Otherwise
    /// as [`Tensor::assign`]. `Error::DType` unless the index is an integer tensor.
    pub fn assign_at(&self, axis: i64, index: &Tensor, value: impl IntoOperand) -> Result<()> {
        let (dtype, shape) = (self.dtype(), self.shape());
        let a = super::check_axis("assign_at", axis, shape.len())?;
        let value = value.into_operand()?;
        value.check("assign_at", self)?;
        Tensor::same_session("assign_at", self, index)?;
        let rows = index.want_rank("assign_at", 1)?[0];
        index.want_index("assign_at")?;
        let mut part = shape.clone();
        part[a] = rows;
        let value = match value {
            Operand::Tensor(t) => t.cast(dtype)?.expand(&part)?,
            v => Tensor::full(self.session(), v, dtype, &part)?,
        };
        if value.numel() == 0 || self.numel() == 0 {
            return Ok(());
        }
        let mut each = vec![1; shape.len()];
        each[a] = rows;
        let index = index.wrapped(shape[a])?.reshape(&each)?.expand(&part)?;
        if self.own_storage(&self.session().state()).is_none() {
            self.assign(&self.clone())?;
        }
        let mut s = self.session().state();
        let (node, i, v) = (s.node(self.root()), s.node(index.root()), s.node(value.root()));
        let storage = s.storage(node).ok_or_else(|| Error::Internal("an assigned tensor has no storage".into()))?;
        let g = &mut s.graph;
        let whole = g.reshape(storage, &shape);
        let target = g.node(Op::Gather, dtype, &[whole, i], Arg::Axes(crate::uop::Axes::from_slice(&[a as u8])));
        let store = g.store(target, v);
        let after = g.after(storage, &[store]);
        let node = g.reshape(after, &shape);
        s.set_node(self.root(), node);
        drop(s);
        Ok(())
    }

    /// The storage node whose elements are exactly this tensor, unless another live tensor shares it (a reshape, a
    /// detach): that one must keep the old value, so the storage must not be overwritten.
    fn own_storage(&self, s: &State) -> Option<UOp> {
        let node = s.node(self.root());
        let same = |u: &UOp| s.graph.numel(*u) == s.graph.numel(node) && s.graph.dtype(*u) == s.graph.dtype(node);
        let shared = |u| s.live_roots().any(|(id, n)| id != self.root() && s.storage(n) == Some(u));
        s.storage(node).filter(same).filter(|&u| s.buffer_below(u).is_some() && !shared(u))
    }

    /// A tensor with new storage of its own that holds this value; for parameters, since a later [`Tensor::assign`] to
    /// it leaves the storage of the source untouched.
    pub fn to_storage(&self) -> Result<Tensor> {
        let shape = self.shape();
        if shape.len() > 32 {
            return Err(Error::value("to_storage", "too many axes"));
        }
        let t = Tensor::over_buffer(self.session(), self.dtype(), &shape, None);
        t.assign(self)?;
        Ok(t)
    }

    /// Makes this tensor and every clone of it denote `value` from here on; nothing is copied. Tensors that were
    /// computed from it before keep their values. Weights are loaded this way: their initial values are then never
    /// computed. `Error::Shape` for another shape; another dtype is cast into new storage.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        Tensor::same_session("set", self, value)?;
        if value.shape() != self.shape() {
            return Err(Error::Shape { op: "set", lhs: self.shape(), rhs: value.shape() });
        }
        let value = match value.dtype() == self.dtype() {
            true => value.clone(),
            false => value.cast(self.dtype())?.to_storage()?,
        };
        let mut s = self.session().state();
        let node = s.node(value.root());
        s.set_node(self.root(), node);
        drop(s);
        Ok(())
    }

    // ---- gradients

    /// Gradients of this scalar (a tensor of one element) with respect to each of `targets`, each in the target's
    /// shape. A target is matched by its node, so it must be the very tensor that this one was computed from. A target
    /// that this tensor does not depend on gets zeros. `Error::Value` for more than one element, `Error::DType` for a
    /// target that is not a float.
    pub fn grad(&self, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        if self.numel() != 1 {
            let what = format!("shape {:?} is not a scalar: give the gradient to start from", self.shape());
            return Err(Error::value("grad", what));
        }
        self.grad_from(&self.full_like(1)?, targets)
    }

    /// For each of `others`, whether this tensor is computed from it, so that a gradient reaches it.
    pub fn computed_from(&self, others: &[Tensor]) -> Vec<bool> {
        let s = self.session().state();
        let below = s.graph.reachable(&[s.node(self.root())]);
        let custom = below.iter().filter(|&&u| s.graph.op(u) == Op::Custom);
        let read: Vec<UOp> = custom.flat_map(|&u| s.graph.srcs(u)).collect();
        let from = |n: UOp| below.contains(&n) || read.contains(&crate::grad::memory(&s.graph, n));
        others.iter().map(|t| from(s.node(t.root()))).collect()
    }

    /// Gradients of `sum(self * seed)` with respect to `targets`: a vector-Jacobian product. `seed` has this tensor's
    /// shape (`Error::Shape`); targets as for [`Tensor::grad`].
    pub fn grad_from(&self, seed: &Tensor, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        Tensor::same_session("grad", self, seed)?;
        if seed.shape() != self.shape() {
            return Err(Error::Shape { op: "grad", lhs: self.shape(), rhs: seed.shape() });
        }
        for t in targets {
            Tensor::same_session("grad", self, t)?;
            t.want_float("grad")?;
        }
        let seed = seed.cast(self.dtype())?;
        let mut s = self.session().state();
        let (loss, seed) = (s.node(self.root()), s.node(seed.root()));
        let nodes: Vec<UOp> = targets.iter().map(|t| s.node(t.root())).collect();
        let grads = crate::grad::gradient(&mut s.graph, loss, seed, &nodes)?;
        let mut out = Vec::with_capacity(grads.len());
        for (&node, grad) in nodes.iter().zip(grads) {
            let g = &mut s.graph;
            let dt = g.dtype(node);
            let grad = grad.unwrap_or_else(|| g.float(0.0, dt));
            let shape = g.shape(node).clone();
            let grad = super::spread(g, grad, &shape);
            let root = s.add_root(grad);
            out.push((self.session().clone(), root));
        }
        drop(s);
        Ok(out.into_iter().map(|(session, root)| Tensor { session, root }).collect())
    }
}
