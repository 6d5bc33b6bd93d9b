//! Tensors and storage: detach, contiguous, assign.

use super::{IntoOperand, Operand, Tensor};
use crate::uop::{Arg, Op};
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
}
