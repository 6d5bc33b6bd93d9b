//! Submissions that are repeated become graphs of the CUDA driver: one call starts all kernels, and kernels without
//! dependencies on each other may run concurrently.
//!
//! A submission is recognised by its kernels, grids and sizes. The second time it becomes a graph; from then on only
//! the nodes with different pointers or scalars are updated. The graph is made anew if different buffers change which
//! steps have to wait for others. A submission that cannot be a graph, or of which the driver does not make one, is
//! launched step by step.

use super::driver::{Function, Graph, Stream, Work};
use crate::hazards::{Hazards, Region};
use gradloom_core::Result;
use gradloom_core::device::KernelId;
use std::collections::HashMap;

/// The least number of steps for which making a graph pays.
const MIN_GRAPH_STEPS: usize = 2;
/// The most steps of all remembered submissions together.
const MAX_STEPS: usize = 32_768;

/// A step with addresses in place of buffers.
#[derive(PartialEq)]
pub(super) enum Node {
    Launch {
        kernel: KernelId,
        grid: [u32; 3],
        block: [u32; 3],
        function: Function,
        /// For each buffer, its address, its length in bytes, and whether it is written.
        buffers: Vec<(u64, u64, bool)>,
        pointers: Vec<u64>,
        scalars: Vec<u32>,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
}

impl Node {
    fn work(&self) -> Work<'_> {
        match self {
            Node::Launch { grid, block, function, pointers, scalars, .. } => {
                Work::Launch { function: *function, grid: *grid, block: *block, pointers, scalars }
            }
            Node::Copy { from, to, bytes } => Work::Copy { from: *from, to: *to, bytes: *bytes },
        }
    }

    fn uses(&self) -> Vec<(Region, bool)> {
        let region = |offset, bytes| Region { space: 0, offset, bytes };
        match self {
            Node::Launch { buffers, .. } => buffers.iter().map(|&(at, n, w)| (region(at, n), w)).collect(),
            Node::Copy { from, to, bytes } => {
                vec![(region(*from, *bytes as u64), false), (region(*to, *bytes as u64), true)]
            }
        }
    }

    /// Appends what a graph cannot change about the node.
    fn key(&self, key: &mut Vec<u64>) {
        match self {
            Node::Launch { kernel, grid, pointers, scalars, .. } => {
                key.extend([u64::from(kernel.0), pointers.len() as u64, scalars.len() as u64]);
                key.extend(grid.map(u64::from));
            }
            Node::Copy { bytes, .. } => key.extend([u64::MAX, *bytes as u64]),
        }
    }

    fn kernel(&self) -> Option<KernelId> {
        match self {
            Node::Launch { kernel, .. } => Some(*kernel),
            Node::Copy { .. } => None,
        }
    }
}

/// For each node, whether it waits for all nodes before it since the last one that did.
fn barriers(nodes: &[Node]) -> Vec<bool> {
    let mut hazards = Hazards::default();
    nodes.iter().map(|n| hazards.wait_before(&n.uses())).collect()
}

/// A submission that occurred before.
struct Recorded {
    /// The nodes of its last run.
    nodes: Vec<Node>,
    barriers: Vec<bool>,
    graph: Option<Graph>,
    /// Whether the driver refused to make a graph of it.
    refused: bool,
    used: u64,
}

/// Counts of what was given to the driver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Launches {
    /// Kernels and copies that were launched step by step.
    pub steps: u64,
    /// Graphs that were launched.
    pub graphs: u64,
    /// Graphs that were made.
    pub made: u64,
    /// Nodes of graphs that were updated.
    pub changed: u64,
}

/// The submissions of a device.
#[derive(Default)]
pub(super) struct Graphs {
    recorded: HashMap<Vec<u64>, Recorded>,
    steps: usize,
    clock: u64,
    pub(super) launches: Launches,
}

impl Graphs {
    /// Runs steps as a graph if possible; returns false if they have to be launched one by one.
    ///
    /// # Safety
    /// The conditions of [`Stream::launch`] hold for each step, and ranges of copies are inside allocations and disjoint.
    pub(super) unsafe fn run(&mut self, stream: &Stream, nodes: Vec<Node>) -> Result<bool> {
        if nodes.len() < MIN_GRAPH_STEPS {
            return Ok(false);
        }
        self.clock += 1;
        let mut key = Vec::with_capacity(6 * nodes.len());
        nodes.iter().for_each(|n| n.key(&mut key));
        let Some(recorded) = self.recorded.get_mut(&key) else {
            self.steps += nodes.len();
            let recorded = Recorded { nodes, barriers: Vec::new(), graph: None, refused: false, used: self.clock };
            self.recorded.insert(key, recorded);
            self.bound();
            return Ok(false);
        };
        recorded.used = self.clock;
        if recorded.refused {
            return Ok(false);
        }
        if !recorded.prepare(stream, nodes, &mut self.launches) {
            (recorded.graph, recorded.refused) = (None, true);
            return Ok(false);
        }
        let Some(graph) = &recorded.graph else { return Ok(false) };
        // SAFETY: the graph's nodes are the steps that the caller gave, as they are now
        unsafe { stream.run(graph) }?;
        self.launches.graphs += 1;
        Ok(true)
    }

    /// Forgets the least recently used submissions while there are too many steps.
    fn bound(&mut self) {
        while self.steps > MAX_STEPS {
            let oldest = self.recorded.iter().min_by_key(|s| s.1.used).filter(|s| s.1.used < self.clock);
            let Some(used) = oldest.map(|s| s.1.used) else { return };
            self.forget(|s| s.used == used);
        }
    }

    /// Forgets the submissions that use a kernel.
    pub(super) fn forget_kernel(&mut self, kernel: KernelId) {
        self.forget(|s| s.nodes.iter().any(|n| n.kernel() == Some(kernel)));
    }

    fn forget(&mut self, which: impl Fn(&Recorded) -> bool) {
        self.recorded.retain(|_, s| !which(s));
        self.steps = self.recorded.values().map(|s| s.nodes.len()).sum();
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.recorded.clear();
        self.steps = 0;
    }
}

impl Recorded {
    /// Brings the graph into agreement with these nodes; returns false if the driver cannot.
    fn prepare(&mut self, stream: &Stream, nodes: Vec<Node>, count: &mut Launches) -> bool {
        let moved = self.nodes.iter().zip(&nodes).any(|(a, b)| a.uses() != b.uses());
        let barriers = if moved || self.barriers.is_empty() { barriers(&nodes) } else { self.barriers.clone() };
        let done = match &self.graph {
            Some(graph) if barriers == self.barriers => {
                let mut changes = self.nodes.iter().zip(&nodes).enumerate().filter(|(_, (old, new))| old != new);
                changes.try_for_each(|(i, (_, new))| {
                    count.changed += 1;
                    stream.change(graph, i, &new.work())
                })
            }
            _ => {
                let works: Vec<Work> = nodes.iter().map(Node::work).collect();
                stream.graph(&works, &barriers).map(|made| {
                    count.made += 1;
                    self.graph = Some(made);
                })
            }
        };
        (self.nodes, self.barriers) = (nodes, barriers);
        done.is_ok()
    }
}
