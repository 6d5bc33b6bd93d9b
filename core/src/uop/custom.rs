//! Kernels that users write. In the IR one is an op over whole buffers, with what a launch needs beside it: code in WGSL, that nothing here
//! reads, or loops in the IR itself, which are compiled like any others.

use super::{Arg, Graph, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A kernel as its user wrote it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Custom {
    /// What messages call it.
    pub name: Box<str>,
    /// A module in WGSL, whose entry point is `main` and whose bindings are those of group 0 in the order of the op's sources; or the text
    /// of the loops.
    pub code: Box<str>,
    /// Workgroups along x, y and z.
    pub grid: [u32; 3],
    /// How many of the sources it writes: the first ones.
    pub outputs: usize,
    /// What the code says, if it is no WGSL: a kernel over params in the order of the op's sources.
    pub loops: Option<Loops>,
}

/// A kernel as the scheduler makes it: its Sink has one Store, into param 0. It is what a text says, so that texts are compared in its place.
#[derive(Clone)]
pub struct Loops {
    /// The nodes.
    pub graph: Arc<Graph>,
    /// The Sink.
    pub sink: UOp,
    /// Puts the kernel into a graph, over these params, whose elements may be of wider dtypes; the Store. It is a pointer so that what never
    /// makes such kernels has no code for them.
    pub splice: fn(&Loops, &mut Graph, &[UOp]) -> UOp,
}

impl Loops {
    /// A kernel that was checked: see `crate::tensor::IrKernel`.
    pub fn new(graph: Graph, sink: UOp) -> Loops {
        Loops { graph: Arc::new(graph), sink, splice }
    }
}

fn splice(loops: &Loops, to: &mut Graph, params: &[UOp]) -> UOp {
    let body = &loops.graph;
    let mut image: FxHashMap<UOp, UOp> = FxHashMap::default();
    let store = body.src_at(loops.sink, 0);
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

impl PartialEq for Loops {
    fn eq(&self, _: &Loops) -> bool {
        true
    }
}

impl Eq for Loops {}

impl Hash for Loops {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("loops")
    }
}
