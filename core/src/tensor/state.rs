//! Tensors and storage: detach, contiguous, assign; and gradients.

use super::{IntoOperand, Operand, Tensor};
use crate::uop::{Arg, Op, UOp};
use crate::{Error, Result};

impl Tensor {
    /// The same values, cut off from the gradient.
    pub fn detach(&self) -> Tensor {
        self.map(|g, u| {
            let dt = g.dtype(u);
            g.node(Op::Detach, dt, &[u], Arg::None)
        })
    }

    /// The same values in storage of their own: a fusion boundary.
    pub fn contiguous(&self) -> Tensor {
        self.map(|g, u| {
            let dt = g.dtype(u);
            g.node(Op::Contiguous, dt, &[u], Arg::None)
        })
    }

    /// Overwrites this tensor's storage with `value` (broadcast and cast to fit) when next realized, in place. Every clone
    /// of this tensor sees the new value; tensors computed from the old one keep it. A tensor that has no storage yet gets
    /// some.
    pub fn assign(&self, value: impl IntoOperand) -> Result<()> {
        let (dtype, shape) = (self.dtype(), self.shape());
        let value = value.into_operand()?;
        value.check("assign", self)?;
        let value = match value {
            Operand::Tensor(t) => t.cast(dtype)?.expand(&shape)?,
            v => self.full_like(v)?,
        };
        let mut s = self.session().state();
        let v = s.node(value.root());
        let len = s.graph.numel(v);
        let old = s.node(self.root());
        // another tensor that is this very storage (a reshape, a detach) must keep the old value: then write elsewhere
        let own = s.storage(old).filter(|&u| s.graph.numel(u) == len && s.graph.dtype(u) == dtype);
        let shared = |u| s.live_roots().any(|(id, n)| id != self.root() && s.storage(n) == Some(u));
        let storage = match own.filter(|&u| s.buffer_below(u).is_some() && !shared(u)) {
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

    /// A tensor with storage of its own holding this value, for parameters: later [`Tensor::assign`]s to it do not touch
    /// the storage of the source.
    pub fn to_storage(&self) -> Result<Tensor> {
        let shape = self.shape();
        if shape.len() > 32 {
            return Err(Error::value("to_storage", "too many axes"));
        }
        let t = Tensor::over_buffer(self.session(), self.dtype(), &shape, None);
        t.assign(self)?;
        Ok(t)
    }

    /// Makes this tensor, and every clone of it, denote `value` from now on; nothing is copied. Values computed from it
    /// before stay as they were. Loading weights is this: what was there before is never computed.
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

    /// Gradients of this scalar with respect to each of `targets`: the very tensors it was computed from. A target it
    /// does not depend on gets zeros.
    pub fn grad(&self, targets: &[&Tensor]) -> Result<Vec<Tensor>> {
        if self.numel() != 1 {
            let what = format!("shape {:?} is not a scalar: give the gradient to start from", self.shape());
            return Err(Error::value("grad", what));
        }
        self.grad_from(&self.full_like(1)?, targets)
    }

    /// Gradients of `sum(self * seed)`: a vector-Jacobian product.
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
