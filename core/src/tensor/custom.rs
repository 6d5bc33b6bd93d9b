//! Gradients defined by the user, and checkpoints: segments whose forward values are recomputed for the gradient rather
//! than kept. Both are written into the graph immediately, with a placeholder buffer that stands for the gradient to
//! come; backward replaces it. No closure is stored, so gradients of gradients, captured steps and realized inputs work
//! as for any other operation.

use super::Tensor;
use crate::rewrite::substitute;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::{Error, Result};
use rustc_hash::FxHashMap;

impl Tensor {
    /// This value with a gradient that `backward` defines. It is given the gradient of this value (in its shape and
    /// dtype) and returns those of `inputs`, in order, each in its input's shape. No gradient flows to anything else
    /// that the value was computed from. As torch's `autograd.Function`; `backward` may use this tensor and the inputs,
    /// and higher derivatives go through its own operations.
    ///
    /// # Errors
    /// `E_DTYPE` unless this value and the inputs are floats, `E_VALUE` where the numbers of gradients and inputs
    /// differ, `E_SHAPE` for a gradient that has not its input's shape; and the errors of `backward`.
    pub fn custom_grad(
        &self,
        inputs: &[&Tensor],
        backward: impl FnOnce(&Tensor) -> Result<Vec<Tensor>>,
    ) -> Result<Tensor> {
        let seed = self.gradient_place()?;
        let grads = backward(&seed)?;
        self.with_gradients(&seed, inputs, &grads)
    }

    /// A placeholder for the gradient of this value, of the same shape and dtype, for [`Tensor::with_gradients`].
    ///
    /// # Errors
    /// `E_DTYPE` unless this value is a float.
    pub fn gradient_place(&self) -> Result<Tensor> {
        let dtype = self.want_float("custom_grad")?;
        Ok(Tensor::over_buffer(self.session(), dtype, &self.shape(), None))
    }

    /// [`Tensor::custom_grad`] in two steps, for callers that cannot pass a function: `grads` are the gradients of
    /// `inputs`, computed from the placeholder `place` that [`Tensor::gradient_place`] returned.
    ///
    /// # Errors
    /// Those of [`Tensor::custom_grad`].
    pub fn with_gradients(&self, place: &Tensor, inputs: &[&Tensor], grads: &[Tensor]) -> Result<Tensor> {
        let op = "custom_grad";
        self.want_float(op)?;
        Tensor::same_session(op, self, place)?;
        if grads.len() != inputs.len() {
            let what = format!("{} gradients for {} inputs", grads.len(), inputs.len());
            return Err(Error::value(op, what));
        }
        let mut pairs = Vec::new();
        for (x, dx) in inputs.iter().zip(grads) {
            Tensor::same_session(op, self, x)?;
            Tensor::same_session(op, self, dx)?;
            x.want_float(op)?;
            if x.shape() != dx.shape() {
                return Err(Error::Shape { op, lhs: dx.shape(), rhs: x.shape() });
            }
            pairs.push(((*x).clone(), dx.cast(x.dtype())?));
        }
        let mut s = self.session().state();
        let pairs: Vec<(UOp, UOp)> = pairs.iter().map(|(x, dx)| (s.node(x.root()), s.node(dx.root()))).collect();
        let (y, place) = (s.node(self.root()), s.node(place.root()));
        let g = &mut s.graph;
        let Some(seed) = placeholder_buffer(g, place, y) else {
            return Err(Error::value(op, "no place for a gradient"));
        };
        let pairs = pairs.into_iter().map(|(x, dx)| (x, crate::grad::spread(g, dx, &g.shape(x).clone()))).collect();
        let node = with_gradient(g, y, seed, pairs);
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: self.session().clone(), root })
    }

    /// `f(inputs)` as a checkpoint: only the inputs are kept for the gradient, and everything between them and the
    /// result is computed again when the gradient reaches it (Chen and others, "Training Deep Nets with Sublinear
    /// Memory Cost"; torch's `utils.checkpoint`). Values and gradients are those of `f`, also for parameters that `f`
    /// uses without being given them, and random numbers are the same both times.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` if the result depends on an assign inside `f`, `E_DTYPE` unless the result is a float; and the
    /// errors of `f`.
    pub fn checkpoint(inputs: &[&Tensor], f: impl FnOnce(&[Tensor]) -> Result<Tensor>) -> Result<Tensor> {
        let own: Vec<Tensor> = inputs.iter().map(|&t| t.clone()).collect();
        f(&own)?.checkpointed(inputs)
    }

    /// [`Tensor::checkpoint`] for a value whose graph exists already: what lies between `inputs` and this value is
    /// computed again when the gradient reaches it.
    pub fn checkpointed(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let y = self;
        for t in inputs {
            Tensor::same_session("checkpoint", y, t)?;
        }
        y.want_float("checkpoint")?;
        let seed = y.gradient_place()?;
        let mut s = y.session().state();
        let xs: Vec<UOp> = inputs.iter().map(|t| s.node(t.root())).filter(|&x| s.graph.dtype(x).is_float()).collect();
        let (out, seed) = (s.node(y.root()), s.node(seed.root()));
        let g = &mut s.graph;
        let others = boundary_operands(g, out, &xs)?;
        // copies of the inputs: distinct nodes keep the recomputation apart from the first one, and the dependence on
        // the placeholder orders it after the incoming gradient
        let mut copies = FxHashMap::default();
        for &x in &xs {
            let dt = g.dtype(x);
            copies.insert(x, g.node(Op::Contiguous, dt, &[x, seed], Arg::None));
        }
        let again = substitute(g, &[out], &copies)[0];
        let targets: Vec<UOp> = xs.iter().map(|x| copies[x]).chain(others.iter().copied()).collect();
        let grads = crate::grad::gradient(g, again, seed, &targets)?;
        let mut pairs = Vec::new();
        for (&x, dx) in xs.iter().chain(&others).zip(grads) {
            if let Some(dx) = dx {
                pairs.push((x, crate::grad::spread(g, dx, &g.shape(x).clone())));
            }
        }
        let Some(seed) = placeholder_buffer(g, seed, out) else {
            return Err(Error::Internal("a place without a buffer".into()));
        };
        let node = with_gradient(g, out, seed, pairs);
        let root = s.add_root(node);
        drop(s);
        Ok(Tensor { session: y.session().clone(), root })
    }
}

/// The buffer node below the reshapes of a placeholder, if it fits the shape and dtype of `y`.
fn placeholder_buffer(g: &Graph, mut place: UOp, y: UOp) -> Option<UOp> {
    while g.op(place) == Op::Reshape {
        place = g.src_at(place, 0);
    }
    let fits = g.dtype(place) == g.dtype(y) && g.numel(place) == g.numel(y);
    (g.op(place) == Op::Buffer && fits).then_some(place)
}

/// The node with the value of `y` that passes no gradient on except by `pairs`: for each `(x, dx)` the gradient of `x`
/// is `dx`, computed from the placeholder buffer `seed`.
fn with_gradient(g: &mut Graph, y: UOp, seed: UOp, pairs: Vec<(UOp, UOp)>) -> UOp {
    let dt = g.dtype(y);
    let mut src = vec![y, seed];
    pairs.into_iter().for_each(|(x, dx)| src.extend([x, dx]));
    g.node(Op::Detach, dt, &src, Arg::None)
}

/// The float nodes that do not depend on `inputs` but are operands of a node that does, such as the parameters used
/// inside the segment: they receive gradients too.
fn boundary_operands(g: &Graph, out: UOp, inputs: &[UOp]) -> Result<Vec<UOp>> {
    let order = g.value_nodes(&[out]);
    let mut inside = vec![false; g.len()];
    let mut found = Vec::new();
    for &u in &order {
        inside[u.0 as usize] = inputs.contains(&u) || g.value_src(u).iter().any(|s| inside[s.0 as usize]);
        if !inside[u.0 as usize] || inputs.contains(&u) {
            continue;
        }
        if matches!(g.op(u), Op::Store | Op::After) {
            let context = "an assign inside of a checkpoint".into();
            return Err(Error::Unsupported { what: "gradient".into(), context });
        }
        for &s in g.value_src(u) {
            let leaf = matches!(g.op(s), Op::Const | Op::Var | Op::Iota);
            if !inside[s.0 as usize] && !leaf && g.dtype(s).is_float() && !found.contains(&s) {
                found.push(s);
            }
        }
    }
    // a result that depends on no input passes its gradient to itself
    if !inside[out.0 as usize] && g.dtype(out).is_float() {
        found.push(out);
    }
    Ok(found)
}
