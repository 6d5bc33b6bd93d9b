//! Kernels that users write: the argument of [`Op::Custom`], an op over whole buffers. It holds the launch grid and
//! either WGSL source, which the compiler passes on without reading it, or a kernel in the IR itself ([`KernelGraph`]),
//! which is compiled like the kernels of the scheduler.

use super::{Arg, Graph, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A kernel as its user wrote it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Custom {
    /// Its name in error messages.
    pub name: Box<str>,
    /// A WGSL module with the entry point `main`, in which binding i of group 0 is source i of the op; or the text of
    /// `ir`.
    pub code: Box<str>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// Number of sources that it writes; these come first.
    pub outputs: usize,
    /// The kernel that `code` describes, if that is IR text rather than WGSL: param i is source i of the op.
    pub ir: Option<KernelGraph>,
}

/// A kernel graph like those of the scheduler: its Sink has one Store, into param 0. All values of this type compare
/// equal, because [`Custom`] also holds the text that it was parsed from, and compares that.
#[derive(Clone)]
pub struct KernelGraph {
    /// The nodes.
    pub graph: Arc<Graph>,
    /// The Sink.
    pub sink: UOp,
    /// Copies the kernel into a graph, over these params, and returns its Store. Params may be stored in wider dtypes:
    /// loads and stores then convert. It is a function pointer so that builds which never make such kernels contain no
    /// code for them.
    pub copy_into: fn(&KernelGraph, &mut Graph, &[UOp]) -> UOp,
}

impl KernelGraph {
    /// A kernel graph that the caller has checked, as `crate::tensor::IrKernel` does.
    pub fn new(graph: Graph, sink: UOp) -> KernelGraph {
        KernelGraph { graph: Arc::new(graph), sink, copy_into }
    }
}

fn copy_into(kernel: &KernelGraph, to: &mut Graph, params: &[UOp]) -> UOp {
    let body = &kernel.graph;
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    let store = body.src_at(kernel.sink, 0);
    for n in body.reachable(&[store]) {
        let mut src: SmallVec<[UOp; 4]> = body.src(n).iter().map(|s| image[s]).collect();
        let dt = body.dtype(n);
        let made = match (body.op(n), body.arg(n)) {
            (Op::Param, Arg::Param { slot, .. }) => params[*slot as usize],
            (Op::Index, _) => to.index(src[0], src[1]),
            (Op::Load, _) => {
                let stored = to.dtype(src[0]);
                if let Some(other) = src.get_mut(1) {
                    *other = to.cast(*other, stored);
                }
                let load = to.node(Op::Load, stored, &src, Arg::None);
                to.cast(load, dt)
            }
            (Op::Store, _) => {
                src[1] = to.cast(src[1], to.dtype(src[0]));
                to.node(Op::Store, dt, &src, Arg::None)
            }
            (op, arg) => to.node(op, dt, &src, arg.clone()),
        };
        image.insert(n, made);
    }
    image[&store]
}

impl PartialEq for KernelGraph {
    fn eq(&self, _: &KernelGraph) -> bool {
        true
    }
}

impl Eq for KernelGraph {}

impl Hash for KernelGraph {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl std::fmt::Debug for KernelGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("loops")
    }
}
