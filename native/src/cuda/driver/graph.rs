//! Graphs of the CUDA driver: many launches and copies that one call starts. The parameters of a node may change from
//! run to run; the set of nodes and their dependencies may not.

use super::module::parameters;
use super::{Function, Stream};
use cudarc::driver::sys;
use gradloom_core::Result;
use std::ptr;

/// The work of a node.
pub(in crate::cuda) enum Work<'a> {
    Launch { function: Function, grid: [u32; 3], block: [u32; 3], pointers: &'a [u64], scalars: &'a [u32] },
    Copy { from: u64, to: u64, bytes: usize },
}

/// A graph that can be launched.
pub(in crate::cuda) struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
}
// SAFETY: see `Stream`
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: both handles have no other owner, and a run in flight continues until it is done
        unsafe {
            if !self.exec.is_null() {
                let _ = sys::cuGraphExecDestroy(self.exec);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}

impl Stream {
    /// Makes a graph of nodes in groups: a node begins a new group where `begins` is true, and each group waits for the
    /// whole group before it.
    pub(in crate::cuda) fn graph(&self, works: &[Work], begins: &[bool]) -> Result<Graph> {
        self.enter()?;
        let mut g = Graph { graph: ptr::null_mut(), exec: ptr::null_mut(), nodes: Vec::with_capacity(works.len()) };
        // SAFETY: the pointer is to a handle
        self.done("a graph", unsafe { sys::cuGraphCreate(&mut g.graph, 0) })?;
        let (mut before, mut group) = (0..0, 0..0);
        for (i, work) in works.iter().enumerate() {
            if begins.get(i).copied().unwrap_or(true) {
                (before, group) = (group, i..i);
            }
            let after = g.nodes.get(before.clone()).unwrap_or_default();
            let node = self.add(g.graph, after, work)?;
            g.nodes.push(node);
            group.end = i + 1;
        }
        // SAFETY: the graph lives
        self.done("a graph", unsafe { sys::cuGraphInstantiateWithFlags(&mut g.exec, g.graph, 0) })?;
        Ok(g)
    }

    fn add(&self, graph: sys::CUgraph, after: &[sys::CUgraphNode], work: &Work) -> Result<sys::CUgraphNode> {
        let mut node = ptr::null_mut();
        let (from, n) = (after.as_ptr(), after.len());
        let made = match *work {
            Work::Launch { function, grid, block, pointers, scalars } => {
                let mut all = parameters(pointers, scalars);
                let what = kernel(function, grid, block, &mut all);
                // SAFETY: graph and nodes live, and the driver copies the parameters
                unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph, from, n, &what) }
            }
            Work::Copy { from: source, to, bytes } => {
                let what = copy(source, to, bytes);
                // SAFETY: graph and nodes live
                unsafe { sys::cuGraphAddMemcpyNode(&mut node, graph, from, n, &what, self.context) }
            }
        };
        self.done("a node of a graph", made).map(|()| node)
    }

    /// Changes the parameters of a node, from the next run on. Kind and kernel of the node must stay the same.
    pub(in crate::cuda) fn change(&self, g: &Graph, i: usize, work: &Work) -> Result<()> {
        self.enter()?;
        let node = g.nodes[i];
        let made = match *work {
            Work::Launch { function, grid, block, pointers, scalars } => {
                let mut all = parameters(pointers, scalars);
                let what = kernel(function, grid, block, &mut all);
                // SAFETY: the node is the graph's, and the driver copies the parameters
                unsafe { sys::cuGraphExecKernelNodeSetParams_v2(g.exec, node, &what) }
            }
            Work::Copy { from, to, bytes } => {
                let what = copy(from, to, bytes);
                // SAFETY: the node is the graph's
                unsafe { sys::cuGraphExecMemcpyNodeSetParams(g.exec, node, &what, self.context) }
            }
        };
        self.done("a node of a graph", made)
    }

    /// Launches the graph.
    ///
    /// # Safety
    /// The conditions of [`Stream::launch`] hold for each node as it was last changed, and ranges of copies are inside
    /// allocations.
    pub(in crate::cuda) unsafe fn run(&self, g: &Graph) -> Result<()> {
        self.enter()?;
        // SAFETY: both live, and the caller says the rest
        self.done("a graph", unsafe { sys::cuGraphLaunch(g.exec, self.stream) })
    }
}

fn kernel(
    f: Function,
    grid: [u32; 3],
    block: [u32; 3],
    all: &mut [*mut std::ffi::c_void],
) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: f.handle,
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: f.shared,
        kernelParams: all.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// A copy of one row within the GPU's memory.
fn copy(from: u64, to: u64, bytes: usize) -> sys::CUDA_MEMCPY3D {
    let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: device,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: bytes,
        srcHeight: 1,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: device,
        dstHost: ptr::null_mut(),
        dstDevice: to,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: bytes,
        dstHeight: 1,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    }
}
