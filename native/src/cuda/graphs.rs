//! Submissions that come again, as graphs of the driver's: one call starts all their kernels, and kernels that do not wait for each other
//! may run side by side.
//!
//! A submission is found by its kernels, grids and sizes. When it comes for the second time it becomes a graph; from then on only nodes whose
//! pointers or scalars are others are told so. A graph is made anew where other buffers make steps wait that did not, or the other way
//! round. What a graph cannot do, or the driver makes none of, is launched step by step.

use super::driver::{Function, Graph, Stream, Work};
use crate::hazards::{Hazards, Region};
use gradloom_core::Result;
use gradloom_core::device::KernelId;
use std::collections::HashMap;

/// Steps below which a graph is not worth its making.
const LEAST: usize = 2;
/// Steps of all submissions that are kept.
const MOST: usize = 32_768;

/// A step with addresses in place of buffers.
#[derive(PartialEq)]
pub(super) enum Node {
    Launch {
        kernel: KernelId,
        grid: [u32; 3],
        block: [u32; 3],
        function: Function,
        /// Addresses of buffers, their bytes, and whether they are written.
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

    /// What a graph fixes.
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

/// Which nodes wait for all before them since the last that did.
fn waits(nodes: &[Node]) -> Vec<bool> {
    let mut hazards = Hazards::default();
    nodes.iter().map(|n| hazards.wait_before(&n.uses())).collect()
}

/// A submission that was seen.
struct Seen {
    /// As it was last.
    nodes: Vec<Node>,
    waits: Vec<bool>,
    graph: Option<Graph>,
    /// The driver made no graph of it.
    refused: bool,
    used: u64,
}

/// What went to the driver.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Launches {
    /// Kernels and copies, step by step.
    pub steps: u64,
    /// Graphs.
    pub graphs: u64,
    /// Graphs that were made.
    pub made: u64,
    /// Nodes of graphs that were changed.
    pub changed: u64,
}

/// The submissions of a device.
#[derive(Default)]
pub(super) struct Graphs {
    seen: HashMap<Vec<u64>, Seen>,
    steps: usize,
    clock: u64,
    pub(super) launches: Launches,
}

impl Graphs {
    /// Runs steps as a graph, if they are one; false where they have to be launched one by one.
    ///
    /// # Safety
    /// As for a launch of each, and regions of copies are inside allocations and apart.
    pub(super) unsafe fn run(&mut self, stream: &Stream, nodes: Vec<Node>) -> Result<bool> {
        if nodes.len() < LEAST {
            return Ok(false);
        }
        self.clock += 1;
        let mut key = Vec::with_capacity(6 * nodes.len());
        nodes.iter().for_each(|n| n.key(&mut key));
        let Some(seen) = self.seen.get_mut(&key) else {
            self.steps += nodes.len();
            let seen = Seen { nodes, waits: Vec::new(), graph: None, refused: false, used: self.clock };
            self.seen.insert(key, seen);
            self.bound();
            return Ok(false);
        };
        seen.used = self.clock;
        if seen.refused {
            return Ok(false);
        }
        if !seen.prepare(stream, nodes, &mut self.launches) {
            (seen.graph, seen.refused) = (None, true);
            return Ok(false);
        }
        let Some(graph) = &seen.graph else { return Ok(false) };
        // SAFETY: the graph's nodes are the steps that the caller gave, as they are now
        unsafe { stream.run(graph) }?;
        self.launches.graphs += 1;
        Ok(true)
    }

    /// Forgets submissions that were not used for longest where there are too many.
    fn bound(&mut self) {
        while self.steps > MOST {
            let oldest = self.seen.iter().min_by_key(|s| s.1.used).filter(|s| s.1.used < self.clock);
            let Some(used) = oldest.map(|s| s.1.used) else { return };
            self.forget(|s| s.used == used);
        }
    }

    /// Forgets what names a kernel.
    pub(super) fn forget_kernel(&mut self, kernel: KernelId) {
        self.forget(|s| s.nodes.iter().any(|n| n.kernel() == Some(kernel)));
    }

    fn forget(&mut self, which: impl Fn(&Seen) -> bool) {
        self.seen.retain(|_, s| !which(s));
        self.steps = self.seen.values().map(|s| s.nodes.len()).sum();
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.steps = 0;
    }
}

impl Seen {
    /// Makes the graph one of these nodes; false where the driver does not.
    fn prepare(&mut self, stream: &Stream, nodes: Vec<Node>, count: &mut Launches) -> bool {
        let moved = self.nodes.iter().zip(&nodes).any(|(a, b)| a.uses() != b.uses());
        let waits = if moved || self.waits.is_empty() { waits(&nodes) } else { self.waits.clone() };
        let done = match &self.graph {
            Some(graph) if waits == self.waits => {
                let mut changes = self.nodes.iter().zip(&nodes).enumerate().filter(|(_, (old, new))| old != new);
                changes.try_for_each(|(i, (_, new))| {
                    count.changed += 1;
                    stream.change(graph, i, &new.work())
                })
            }
            _ => {
                let works: Vec<Work> = nodes.iter().map(Node::work).collect();
                stream.graph(&works, &waits).map(|made| {
                    count.made += 1;
                    self.graph = Some(made);
                })
            }
        };
        (self.nodes, self.waits) = (nodes, waits);
        done.is_ok()
    }
}
