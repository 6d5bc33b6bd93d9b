//! Trains a model: its weights, or low-rank adapters beside them, are tensors with gradients, and a forward pass is a
//! graph of lazy tensors.
//!
//! In: a model, a session, and what is trained ([`Train`]). Out: parameters for any optimiser, outputs to compute a
//! loss from, and the values to write back into the model's file. The loop over batches and reading from a device are
//! the caller's.
//!
//! Operators mean the same as in inference: batch normalisation uses the file's running means and variances, which do
//! not change, and dropout is active only where the file says that it is training. 16-bit weights are trained in f32
//! and rounded where they are used.
//!
//! Adapters: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models" (2021), with the names, the scale
//! `alpha / rank` and the initial values of Hugging Face's PEFT.

use super::build::{Feed, run_model};
use super::model::Model;
use super::ops::{Op, OpDef};
use super::proto::NodeProto;
use super::tensor::{TensorProto, dtype_of};
use super::value::{Constants, Cx, Value};
use super::weights::{AdapterForm, Role, constant_of};
use crate::dtype::DType;
use crate::engine::Bytes;
use crate::error::{Error, Result};
use crate::tensor::{ConvOpts, Session, Tensor};
use std::sync::Arc;

/// Which parameters of a model are trained. In patterns `*` stands for any characters.
#[derive(Clone, Debug, PartialEq)]
pub enum Train {
    /// All weights that [`Model::weights`] lists.
    All,
    /// The weights with these names or patterns. An exact name may also be that of any other float constant.
    Named(Vec<String>),
    /// Adapters beside weights; the weights do not change.
    Lora(Lora),
}

/// Low-rank adapters: each selected weight `W` acts as `W + alpha / rank * B A`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// The number of columns of `B` and rows of `A`.
    pub rank: usize,
    /// The scale of the term times the rank.
    pub alpha: f64,
    /// Names or patterns of weights; if empty, all weights that MatMul, Gemm and Conv multiply with.
    pub patterns: Vec<String>,
}

/// A model in a session with trainable values.
pub struct Network {
    model: Arc<Model>,
    session: Session,
    constants: Constants,
    /// Weights that are trained directly, with their parameters.
    plain: Vec<(TensorProto, Tensor)>,
    adapters: Vec<Adapter>,
}

/// A low-rank term beside a weight.
pub(super) struct Adapter {
    weight: TensorProto,
    form: AdapterForm,
    /// `[in, rank]` for [`AdapterForm::Columns`], else `[rank, in, ..]`.
    a: Tensor,
    /// `[rank, out]` for [`AdapterForm::Columns`], else `[out, rank, 1 ..]`.
    b: Tensor,
    scale: f64,
}

impl Network {
    /// A trainable model. Nothing is computed yet, and weights are copied only when a step changes them.
    ///
    /// # Errors
    /// `E_DTYPE` for weights that hold no floats, such as quantised ones, by name; `E_VALUE` for a pattern that selects
    /// none, a rank of 0, and for an adapter of a weight with less than two axes or of a grouped convolution.
    pub fn new(model: &Model, session: &Session, train: &Train) -> Result<Network> {
        let model = Arc::new(model.with_constants_of_nodes());
        let roles = model.roles();
        let chosen = match train {
            Train::All => (0..roles.len()).filter(|&i| is_weight(&roles[i].0, &roles[i].1)).collect(),
            Train::Named(patterns) => model.choose(patterns, &roles, &is_weight)?,
            Train::Lora(lora) => lora.choose(&model, &roles)?,
        };
        if chosen.is_empty() {
            return Err(model.nothing_to_train());
        }
        let constants = Constants::default();
        let (mut plain, mut adapters) = (Vec::new(), Vec::new());
        for (t, role) in chosen.into_iter().filter_map(|i| roles.get(i)) {
            let t = t.clone();
            match train {
                Train::Lora(lora) => adapters.push(Adapter::new(session, t, role.adapter_form(), lora)?),
                _ => plain.push((t.clone(), parameter(session, &model, &t)?)),
            }
        }
        Ok(Network { model, session: session.clone(), constants, plain, adapters })
    }

    /// The model, with the values from the file.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The trainable tensors by name: the weight's name, or that with `.lora_A` and `.lora_B` appended. They are f32,
    /// or f64 where the weight is.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut out: Vec<_> = self.plain.iter().map(|(t, p)| (t.name.clone(), p.clone())).collect();
        for a in &self.adapters {
            out.push((format!("{}.lora_A", a.weight.name), a.a.clone()));
            out.push((format!("{}.lora_B", a.weight.name), a.b.clone()));
        }
        out
    }

    /// The outputs for these inputs, in the model's order: lazy tensors that depend on the parameters' current values.
    ///
    /// # Errors
    /// Those of [`super::Bound::build`]; `E_MODEL` also where the graph depends on values that only a device can compute.
    pub fn forward(&self, inputs: &[(&str, Feed)]) -> Result<Vec<(String, Tensor)>> {
        let mut cx = Cx::new(&self.model, &self.constants, self.session.clone());
        cx.adapters = &self.adapters;
        for (t, p) in &self.plain {
            cx.trained.push((t.name.clone(), Value::lazy(p.cast(stored(t)?)?)));
        }
        for a in self.adapters.iter().filter(|a| a.form == AdapterForm::Sum) {
            cx.trained.push((a.weight.name.clone(), Value::lazy(self.merged(a)?.cast(stored(&a.weight)?)?)));
        }
        if self.model.is_random() {
            let words = self.session.next_key();
            let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            cx.key = Some(Tensor::from_bytes(&self.session, DType::U32, &[2], Bytes::new(bytes))?);
        }
        let out = run_model(&mut cx, inputs)?;
        out.into_iter().map(|(name, v)| Ok((name, cx.lazy(&v)?))).collect()
    }

    /// The current values of the weights that training changes, with adapters added: read them, and pass them to
    /// [`Model::file_with`].
    pub fn values(&self) -> Result<Vec<(String, Tensor)>> {
        let plain = self.plain.iter().map(|(t, p)| Ok((t.name.clone(), p.clone())));
        let merged = self.adapters.iter().map(|a| Ok((a.weight.name.clone(), self.merged(a)?)));
        plain.chain(merged).collect()
    }

    /// A weight with its adapter's product added, in the adapter's dtype.
    fn merged(&self, a: &Adapter) -> Result<Tensor> {
        let cx = Cx::new(&self.model, &self.constants, self.session.clone());
        let base = cx.lazy(&cx.constant(&a.weight)?)?.cast(a.a.dtype())?;
        let (rank, shape) = (a.rank(), base.shape());
        let product = match a.form {
            AdapterForm::Columns => a.a.matmul(&a.b)?,
            _ => a.b.reshape(&[shape[0], rank])?.matmul(&a.a.reshape(&[rank, base.numel() / shape[0].max(1)])?)?,
        };
        base.add(product.mul(a.scale)?.reshape(&shape)?)
    }
}

fn is_weight(t: &TensorProto, role: &Role) -> bool {
    role.is_weight(t)
}

fn stored(t: &TensorProto) -> Result<DType> {
    dtype_of(t.elem).ok_or_else(|| Error::Internal(format!("`{}` was chosen without a dtype", t.name)))
}

/// The dtype in which a weight is trained.
fn trained(t: &TensorProto) -> Result<DType> {
    Ok(if stored(t)? == DType::F64 { DType::F64 } else { DType::F32 })
}

/// A parameter that starts as a view of a weight's bytes; an optimiser step writes to storage of its own.
fn parameter(session: &Session, model: &Model, t: &TensorProto) -> Result<Tensor> {
    let (stored, dtype) = (stored(t)?, trained(t)?);
    let bytes = match stored == dtype {
        true => model.shared(t)?,
        false => Bytes::new(model.tensor(t)?.cast(dtype).data),
    };
    Tensor::from_bytes(session, dtype, &t.shape, bytes)
}

impl Lora {
    /// Indices of the weights that get an adapter.
    fn choose(&self, model: &Model, roles: &[(TensorProto, Role)]) -> Result<Vec<usize>> {
        if self.rank == 0 {
            return Err(Error::value("lora", "a rank of 0".to_owned()));
        }
        if self.patterns.is_empty() {
            let fits =
                |(t, role): &(TensorProto, Role)| role.is_weight(t) && role.multiplied && supports_adapter(t, role);
            return Ok((0..roles.len()).filter(|&i| fits(&roles[i])).collect());
        }
        let chosen = model.choose(&self.patterns, roles, &|t, role| role.is_weight(t) && supports_adapter(t, role))?;
        match chosen.iter().filter_map(|&i| roles.get(i)).find(|(t, role)| !supports_adapter(t, role)) {
            Some((t, _)) => {
                let what = format!(
                    "`{}` of shape {:?}: matrices and convolutions without groups have adapters",
                    t.name, t.shape
                );
                Err(Error::value("lora", what))
            }
            None => Ok(chosen),
        }
    }
}

/// True if an adapter can be applied: a matrix, or the weight of convolutions without groups.
fn supports_adapter(t: &TensorProto, role: &Role) -> bool {
    let is_matrix = t.shape.len() == 2 || t.shape.len() > 2 && role.adapter_form() == AdapterForm::Rows;
    is_matrix && !t.shape.contains(&0)
}

impl Adapter {
    /// A new adapter, which changes nothing yet: `A` is uniform in `±1 / sqrt(inputs)`, and `B` is 0.
    fn new(session: &Session, weight: TensorProto, form: AdapterForm, lora: &Lora) -> Result<Adapter> {
        let (r, dtype) = (lora.rank, trained(&weight)?);
        let &[first, ref rest @ ..] = &weight.shape[..] else {
            return Err(Error::Internal("an adapter of a number".to_owned()));
        };
        let (a, b) = match form {
            AdapterForm::Columns => (vec![first, r], [vec![r], rest.to_vec()].concat()),
            _ => ([vec![r], rest.to_vec()].concat(), [vec![first, r], vec![1; rest.len() - 1]].concat()),
        };
        let inputs = a.iter().fold(1usize, |n, &d| n.saturating_mul(d)) / r.max(1);
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let a = Tensor::uniform(session, -bound, bound, &a)?.cast(dtype)?.to_storage()?;
        let b = Tensor::zeros(session, dtype, &b)?.to_storage()?;
        Ok(Adapter { weight, form, a, b, scale: lora.alpha / r as f64 })
    }

    fn rank(&self) -> usize {
        let shape = self.a.shape();
        shape.get(usize::from(self.form == AdapterForm::Columns)).copied().unwrap_or(1)
    }

    /// The term to add to a node's product: the node built again with `A` in the weight's place and without bias, times
    /// `B`.
    fn adapter_term(&self, op: Op<'_, '_>, def: &OpDef) -> Result<Tensor> {
        let Op { cx, node, mut args, opset, scope, depth } = op;
        let stored = stored(&self.weight)?;
        args.truncate(2);
        let mut op = Op { cx, node, args, opset, scope, depth };
        op.set(1, Value::lazy(self.a.cast(stored)?));
        let low = (def.build)(&mut op)?;
        let low = op.cx.lazy(low.first().ok_or_else(|| Error::Internal("a product without a value".to_owned()))?)?;
        let low = low.cast(self.b.dtype())?;
        let y = match self.form {
            AdapterForm::Columns => low.matmul(&self.b)?,
            _ if self.b.rank() == 2 => low.matmul(&self.b.t()?)?,
            _ => low.conv(&self.b, None, &ConvOpts::new())?,
        };
        y.mul(self.scale)?.cast(stored)
    }
}

/// Adds the adapter's term to a node's first output.
pub(super) fn adapt(op: Op<'_, '_>, def: &OpDef, adapter: &Adapter, outputs: &mut [Value]) -> Result<()> {
    let Some(y) = outputs.first_mut() else { return Ok(()) };
    let plain = op.cx.lazy(y)?;
    *y = Value::lazy(plain.add(adapter.adapter_term(op, def)?)?);
    Ok(())
}

/// The adapter for a node's second input, if there is one that is not added to the weight itself.
pub(super) fn adapter_of<'c>(adapters: &'c [Adapter], node: &NodeProto, depth: usize) -> Option<&'c Adapter> {
    let name = node.inputs.get(1).filter(|_| depth == 0)?;
    adapters.iter().find(|a| a.form != AdapterForm::Sum && a.weight.name == *name)
}

impl Model {
    /// This model with its `Constant` nodes turned into initializers of the graph.
    fn with_constants_of_nodes(&self) -> Model {
        let mut proto = self.proto.clone();
        let constants: Vec<TensorProto> = proto.graph.nodes.iter().filter_map(constant_of).collect();
        proto.graph.nodes.retain(|n| constant_of(n).is_none());
        proto.graph.initializers.extend(constants);
        self.with_graph(proto, self.outputs().to_vec())
    }
}
