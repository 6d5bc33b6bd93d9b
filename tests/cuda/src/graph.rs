//! Graphs: nodes with what they come after, made once and run often. A run takes of the nodes that are ready the one that was added last, so
//! that a dependency that is missing gives wrong numbers.

use crate::state::{Code, INVALID_HANDLE, INVALID_VALUE, SUCCESS, driver, give, state};
use crate::stream::{Launch, Work};
use std::collections::HashMap;
use std::ffi::{c_uint, c_ulonglong, c_void};

/// What a node does.
#[derive(Clone)]
pub(crate) enum Node {
    Kernel(Launch),
    Copy { from: u64, to: u64, bytes: usize },
}

/// Nodes by their handles, in the order they were added, each with those that it comes after.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    nodes: Vec<(usize, Node, Vec<usize>)>,
}

/// A graph that can be run, and the places of its nodes by their handles.
pub(crate) struct Exec {
    nodes: Vec<Node>,
    place: HashMap<usize, usize>,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
pub struct KernelNode {
    function: usize,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    parameters: *const *const c_void,
    extra: *const *const c_void,
    kernel: usize,
    context: usize,
}

/// One side of a copy of `CUDA_MEMCPY3D`.
#[repr(C)]
struct Side {
    begin: [usize; 4],
    kind: c_uint,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
pub struct CopyNode {
    from: Side,
    to: Side,
    size: [usize; 3],
}

/// The kind of memory that is the GPU's.
const DEVICE: c_uint = 2;

impl CopyNode {
    /// A copy of one row from a device to itself.
    fn read(&self) -> Option<Node> {
        let plain = |s: &Side| s.kind == DEVICE && s.begin[1..] == [0; 3] && s.array == 0 && s.reserved == 0;
        let [bytes, 1, 1] = self.size else { return None };
        let (from, to) = (self.from.device + self.from.begin[0] as u64, self.to.device + self.to.begin[0] as u64);
        (plain(&self.from) && plain(&self.to)).then_some(Node::Copy { from, to, bytes })
    }
}

impl Graph {
    /// Handles in an order that dependencies allow, the latest first; `None` where they are in a circle.
    fn order(&self) -> Option<Vec<usize>> {
        let mut done: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        while !left.is_empty() {
            let ready = left.iter().rposition(|&i| self.nodes[i].2.iter().all(|d| done.contains(d)))?;
            done.push(self.nodes[left.remove(ready)].0);
        }
        Some(done)
    }
}

/// Adds a node.
///
/// # Safety
/// There are `n` of `after`.
unsafe fn add(to: *mut usize, graph: usize, after: *const usize, n: usize, node: Node) -> Code {
    let mut state = state();
    let handle = state.handle();
    let Some(graph) = state.graphs.get_mut(&graph) else { return INVALID_HANDLE };
    // SAFETY: the caller says so
    let after: Vec<usize> = (0..n).map(|i| unsafe { *after.add(i) }).collect();
    if !after.iter().all(|d| graph.nodes.iter().any(|n| n.0 == *d)) {
        return INVALID_VALUE;
    }
    graph.nodes.push((handle, node, after));
    // SAFETY: the caller's pointer
    unsafe { give(to, handle) }
}

/// What a node of a kernel does.
///
/// # Safety
/// As for a launch.
unsafe fn kernel(what: *const KernelNode) -> Result<Node, Code> {
    // SAFETY: it is null or a description
    let what = unsafe { what.as_ref() }.ok_or(INVALID_VALUE)?;
    // SAFETY: the caller's parameters are the function's
    let launch = unsafe { state().launch_of(what.function, what.grid, what.block, what.shared, what.parameters) };
    launch.map(Node::Kernel).ok_or(INVALID_HANDLE)
}

/// Changes what a node of a graph that can be run does.
fn change(exec: usize, node: usize, to: Node) -> Code {
    let mut state = state();
    let Some(exec) = state.execs.get_mut(&exec) else { return INVALID_HANDLE };
    let Some(old) = exec.place.get(&node).map(|&i| &mut exec.nodes[i]) else { return INVALID_HANDLE };
    if std::mem::discriminant(old) != std::mem::discriminant(&to) {
        return INVALID_VALUE;
    }
    *old = to;
    SUCCESS
}

driver! {
    cuGraphCreate(graph: *mut usize, flags: c_uint) {
        let mut state = state();
        let handle = state.handle();
        state.graphs.insert(handle, Graph::default());
        give(graph, handle)
    }
    cuGraphAddKernelNode_v2(node: *mut usize, graph: usize, after: *const usize, n: usize, what: *const KernelNode) {
        match kernel(what) {
            Ok(made) => add(node, graph, after, n, made),
            Err(code) => code,
        }
    }
    cuGraphAddMemcpyNode(node: *mut usize, graph: usize, after: *const usize, n: usize, what: *const CopyNode, context: usize) {
        match what.as_ref().and_then(CopyNode::read) {
            Some(made) => add(node, graph, after, n, made),
            None => INVALID_VALUE,
        }
    }
    cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, flags: c_ulonglong) {
        let mut state = state();
        let handle = state.handle();
        let Some(graph) = state.graphs.get(&graph) else { return INVALID_HANDLE };
        let Some(order) = graph.order() else { return INVALID_VALUE };
        let node = |h: &usize| graph.nodes.iter().find(|n| n.0 == *h).map(|n| n.1.clone());
        let nodes = order.iter().filter_map(node).collect();
        let place = order.iter().enumerate().map(|(i, &h)| (h, i)).collect();
        state.execs.insert(handle, Exec { nodes, place });
        give(exec, handle)
    }
    cuGraphExecKernelNodeSetParams_v2(exec: usize, node: usize, what: *const KernelNode) {
        match kernel(what) {
            Ok(made) => change(exec, node, made),
            Err(code) => code,
        }
    }
    cuGraphExecMemcpyNodeSetParams(exec: usize, node: usize, what: *const CopyNode, context: usize) {
        match what.as_ref().and_then(CopyNode::read) {
            Some(made) => change(exec, node, made),
            None => INVALID_VALUE,
        }
    }
    cuGraphLaunch(exec: usize, stream: usize) {
        let mut state = state();
        // what changes later does not change this run
        let Some(nodes) = state.execs.get(&exec).map(|e| e.nodes.clone()) else { return INVALID_HANDLE };
        state.enqueue(stream, Work::Graph(nodes))
    }
    cuGraphExecDestroy(exec: usize) {
        if state().execs.remove(&exec).is_some() { SUCCESS } else { INVALID_HANDLE }
    }
    cuGraphDestroy(graph: usize) {
        if state().graphs.remove(&graph).is_some() { SUCCESS } else { INVALID_HANDLE }
    }
}
