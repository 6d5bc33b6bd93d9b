//! Kernels that users write as loops in the compiler's own IR: the text that `DEBUG=5` and the site's compiler views
//! print. Input: the text. Output: a checked kernel, [`IrKernel`], whose launch gives a tensor. It is optimised and
//! rendered for every device as the scheduler's own kernels are.
//!
//! The checks made here guarantee that running a kernel is safe and its result defined: every offset lies inside its
//! buffer, and every output element is stored exactly once.

use super::{Session, Tensor, check_len};
use crate::analysis::affine;
use crate::uop::custom::{Custom, KernelGraph};
use crate::uop::parse::kernel_graph;
use crate::uop::spec::{self, Stage};
use crate::uop::{Arg, AxisKind, Graph, Op, UOp};
use crate::{DType, Error, Result};

/// The operation named in errors.
const OP: &str = "irKernel";

/// A kernel written as loops, `Sink(Store(Index(Param 0, ..), value))`, over ranges of the kinds `loop` and `reduce`.
#[derive(Clone)]
pub struct IrKernel {
    name: Box<str>,
    text: Box<str>,
    ir: KernelGraph,
    params: Vec<(DType, usize)>,
}

impl IrKernel {
    /// Parses and checks a kernel. Its parameters are numbered from 0: it writes parameter 0 and reads the others.
    ///
    /// # Errors
    /// `E_FORMAT` where the text is not a graph. `E_VALUE`, naming the node, where the graph is not a valid kernel: an
    /// op that user kernels may not have, an offset whose bounds are not inside its buffer, or output elements that are
    /// not stored exactly once.
    pub fn parse(name: &str, text: &str) -> Result<IrKernel> {
        let ir = kernel_graph(text)?;
        let wrong = |what: String| Error::value(OP, format!("kernel `{name}`: {what}"));
        let params = checked(&ir.graph, ir.sink).map_err(wrong)?;
        spec::verify(&ir.graph, &[ir.sink], Stage::Kernel).map_err(|e| wrong(e.to_string()))?;
        Ok(IrKernel { name: name.into(), text: text.into(), ir, params })
    }

    /// Dtype and number of elements of each parameter, the output first.
    pub fn params(&self) -> &[(DType, usize)] {
        &self.params
    }

    /// The kernel's output, of shape `shape`, for these inputs. The kernel sees each tensor as a flat array of its
    /// elements. The result has no gradient; [`Tensor::custom_grad`] gives it one.
    ///
    /// # Errors
    /// `E_VALUE` for another number of tensors than the kernel reads, and for tensors of another session; `E_DTYPE` and
    /// `E_SHAPE` where a dtype or a number of elements is not that of the parameter.
    pub fn launch(&self, session: &Session, inputs: &[&Tensor], shape: &[usize]) -> Result<Tensor> {
        let wanted = &self.params[1..];
        if inputs.len() != wanted.len() {
            let what = format!("kernel `{}` reads {} tensors, not {}", self.name, wanted.len(), inputs.len());
            return Err(Error::value(OP, what));
        }
        for (x, &(dtype, len)) in inputs.iter().zip(wanted) {
            if !x.session().is(session) {
                return Err(Error::value(OP, "the tensors belong to different sessions"));
            }
            if x.dtype() != dtype {
                let why = format!("kernel `{}` reads {dtype} there", self.name);
                return Err(Error::DType { op: OP, dtype: x.dtype(), why });
            }
            if x.numel() != len {
                return Err(Error::Shape { op: OP, lhs: x.shape(), rhs: vec![len] });
            }
        }
        let (dtype, len) = self.params[0];
        if check_len(OP, shape)? != len {
            return Err(Error::Shape { op: OP, lhs: shape.to_vec(), rhs: vec![len] });
        }
        let out = Tensor::over_buffer(session, dtype, shape, None);
        let rows: Vec<Tensor> = inputs.iter().map(|x| x.in_memory()).collect();
        let mut s = session.state();
        let buffer =
            s.storage(s.node(out.root())).ok_or_else(|| Error::Internal("a new tensor is no buffer".into()))?;
        let src: Vec<UOp> = std::iter::once(buffer).chain(rows.iter().map(|t| s.node(t.root()))).collect();
        let ir = Some(self.ir.clone());
        let arg = Custom { name: self.name.clone(), code: self.text.clone(), grid: [1; 3], outputs: 1, ir };
        let op = s.graph.node(Op::Custom, DType::Void, &src, Arg::Custom(Box::new(arg)));
        let after = s.graph.after(buffer, &[op]);
        let node = s.graph.reshape(after, shape);
        s.set_node(out.root(), node);
        drop(s);
        Ok(out)
    }
}

type Checked<T> = std::result::Result<T, String>;

/// Dtype and number of elements of each parameter, once all checks are passed; otherwise what is wrong, with the node.
fn checked(g: &Graph, sink: UOp) -> Checked<Vec<(DType, usize)>> {
    let at = |u: UOp, what: &str| format!("{}: {what}", crate::uop::print::line(g, u));
    let &[store] = g.src(sink) else { return Err(at(sink, "a kernel ends in a sink with one store")) };
    if g.op(sink) != Op::Sink || g.op(store) != Op::Store || g.src(store).len() != 2 {
        return Err(at(store, "a kernel ends in a sink with one store, which has no condition"));
    }
    let index = g.src_at(store, 0);
    if g.op(index) != Op::Index || !matches!(g.arg(g.src_at(index, 0)), Arg::Param { slot: 0, .. }) {
        return Err(at(store, "what a kernel writes is parameter 0"));
    }
    let mut params: Vec<Option<(DType, usize)>> = Vec::new();
    for u in g.reachable(&[sink]) {
        match (g.op(u), g.arg(u)) {
            (Op::Param, &Arg::Param { slot, len }) => {
                let slot = slot as usize;
                if slot >= MAX_PARAMS {
                    return Err(at(u, &format!("there are {MAX_PARAMS} parameters at most")));
                }
                params.resize(params.len().max(slot + 1), None);
                if params[slot].replace((g.dtype(u), len)).is_some() {
                    return Err(at(u, "the parameter is another one too"));
                }
            }
            (Op::Range, Arg::Range(r)) => {
                if !matches!(r.kind, AxisKind::Loop | AxisKind::Reduce) {
                    return Err(at(u, "ranges are of kind `loop` or `reduce`"));
                }
                if g.const_int(g.src_at(u, 0)).is_none_or(|n| n < 1) {
                    return Err(at(u, "ranges end at a constant of 1 or more"));
                }
            }
            (Op::Index, Arg::None) => {
                let len = g.memory_len(g.src_at(u, 0)) as i64;
                let (least, most) = g.bounds(g.src_at(u, 1));
                if g.op(g.src_at(u, 0)) != Op::Param || least < 0 || most >= len {
                    let what =
                        format!("offsets are from {least} to {most}, of {len} elements: clamp them with min and max");
                    return Err(at(u, &what));
                }
            }
            (Op::Load, _) if g.src_at(g.src_at(u, 0), 0) == g.src_at(index, 0) => {
                return Err(at(u, "what a kernel writes it does not read"));
            }
            (Op::Const | Op::Load | Op::Reduce | Op::Cast | Op::Bitcast, _) => {}
            (Op::Store | Op::Sink, _) if u == store || u == sink => {}
            (op, _) if op.is_alu() && !matches!(op, Op::MulAdd | Op::DotBytes | Op::DotPairs | Op::LookupBytes) => {}
            _ => return Err(at(u, "kernels of users have no such op")),
        }
    }
    stores_each_once(g, index, g.src_at(store, 1)).map_err(|what| at(store, what))?;
    let missing =
        |(slot, p): (usize, Option<(DType, usize)>)| p.ok_or_else(|| format!("parameter {slot} is not there"));
    params.into_iter().enumerate().map(missing).collect()
}

/// The most parameters of a kernel: the number of buffers that all devices can bind.
const MAX_PARAMS: usize = 8;

/// Checks that the offset of a store is a mixed-radix number whose digits are the loops, so that it takes the value of
/// each element's position exactly once, and that the stored value depends on no other loop.
fn stores_each_once(g: &Graph, index: UOp, value: UOp) -> std::result::Result<(), &'static str> {
    let offset = affine(g, g.src_at(index, 1));
    if !offset.is_whole() || offset.constant != 0 {
        return Err("its offset is no sum of loops times constants");
    }
    let mut loops: Vec<UOp> = offset.terms.iter().map(|t| t.0).collect();
    loops.sort_unstable();
    loops.dedup();
    let mut digits: Vec<(i64, i64)> = loops.iter().map(|&r| (offset.factor(r), g.bounds(r).1 + 1)).collect();
    digits.sort_unstable();
    let mut elements = 1i64;
    for (times, len) in digits {
        // a loop of one iteration adds nothing, whatever its factor
        if len > 1 && times != elements {
            return Err("its offset leaves elements out, or has some twice");
        }
        elements = elements.saturating_mul(len);
    }
    if elements != g.memory_len(g.src_at(index, 0)) as i64 {
        return Err("its offset does not count all elements of parameter 0");
    }
    let open = g.ranges(value) & !g.ranges(index);
    if open != 0 { Err("its value depends on a loop that its offset does not depend on") } else { Ok(()) }
}
