//! The node arena. Nodes are hash-consed and never change; their shapes, bounds and open ranges are derived when they
//! are added and kept in side tables.

use super::arg::{Arg, AxisKind, RangeArg, Shape};
use super::mma::MATRIX_TILES_ENABLED;
use super::{Op, Trace, bounds, shape, spec};
use crate::dtype::Scalar;
use crate::{DType, Error, Result};
use hashbrown::{HashMap, HashTable};
use rustc_hash::{FxBuildHasher, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// A node handle: its index in a [`Graph`]. Meaningless in any other graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UOp(pub u32);

impl std::fmt::Debug for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The number of ranges that a kernel may have: a range's id is its bit in a [`RangeSet`].
pub const MAX_RANGES: usize = 128;

/// A set of range ids.
pub type RangeSet = u128;

#[derive(Clone, Copy)]
struct Node {
    op: Op,
    dtype: DType,
    n_src: u32,
    src: u32,
    arg: u32,
    shape: u32,
}

/// Hash-consed append-only arena of nodes.
#[derive(Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    srcs: Vec<UOp>,
    table: HashTable<u32>,
    args: Vec<Arg>,
    arg_ids: HashMap<Arg, u32, FxBuildHasher>,
    shapes: Vec<Shape>,
    shape_ids: HashMap<Shape, u32, FxBuildHasher>,
    bounds: Vec<(i64, i64)>,
    ranges: Vec<RangeSet>,
    /// Records which rules rewrite the graph; `None` if nothing is to be recorded.
    pub trace: Option<Box<Trace>>,
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        let mut g = Graph {
            nodes: Vec::new(),
            srcs: Vec::new(),
            table: HashTable::new(),
            args: Vec::new(),
            arg_ids: HashMap::default(),
            shapes: Vec::new(),
            shape_ids: HashMap::default(),
            bounds: Vec::new(),
            ranges: Vec::new(),
            trace: None,
        };
        g.intern_arg(Arg::None);
        g.intern_shape(Shape::new());
        g
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes, sources first.
    pub fn iter(&self) -> impl Iterator<Item = UOp> + use<> {
        (0..self.nodes.len() as u32).map(UOp)
    }

    /// The node's op.
    pub fn op(&self, u: UOp) -> Op {
        self.nodes[u.0 as usize].op
    }

    /// The node's element type.
    pub fn dtype(&self, u: UOp) -> DType {
        self.nodes[u.0 as usize].dtype
    }

    /// The node's sources.
    pub fn src(&self, u: UOp) -> &[UOp] {
        let n = &self.nodes[u.0 as usize];
        &self.srcs[n.src as usize..(n.src + n.n_src) as usize]
    }

    /// Source `i` of the node.
    pub fn src_at(&self, u: UOp, i: usize) -> UOp {
        self.src(u)[i]
    }

    /// The node's sources, copied so that the graph may grow meanwhile.
    pub fn srcs(&self, u: UOp) -> SmallVec<[UOp; 4]> {
        SmallVec::from_slice(self.src(u))
    }

    /// The node's argument.
    pub fn arg(&self, u: UOp) -> &Arg {
        &self.args[self.nodes[u.0 as usize].arg as usize]
    }

    /// The node's shape; `[]` for scalars and for everything in a kernel.
    pub fn shape(&self, u: UOp) -> &Shape {
        &self.shapes[self.nodes[u.0 as usize].shape as usize]
    }

    /// Numbers of the node's argument and of its shape: within a graph, equal ones have equal numbers.
    pub(crate) fn interned(&self, u: UOp) -> [u32; 2] {
        let node = &self.nodes[u.0 as usize];
        [node.arg, node.shape]
    }

    /// Number of elements of the node's shape. It may exceed any memory and a 32-bit `usize`, since views are not
    /// materialised: a matrix product is a reduction over a view of m * n * k elements.
    pub fn numel(&self, u: UOp) -> u64 {
        elements(self.shape(u))
    }

    /// Number of elements of a node that is known to fit into memory.
    pub fn memory_len(&self, u: UOp) -> usize {
        self.shape(u).iter().product()
    }

    /// Inclusive bounds that every integer or bool value of the node keeps; those of the dtype if nothing is known (of
    /// a u64 those of i64). Bounds narrower than the dtype's range prove that the computation did not overflow.
    /// Meaningless for floats.
    pub fn bounds(&self, u: UOp) -> (i64, i64) {
        self.bounds[u.0 as usize]
    }

    /// Ids of the ranges that the value depends on and that are not closed inside it.
    pub fn ranges(&self, u: UOp) -> RangeSet {
        self.ranges[u.0 as usize]
    }

    /// Does the value depend on a range that is not closed inside it?
    pub fn depends(&self, u: UOp, range: UOp) -> bool {
        self.ranges(u) >> self.range_arg(range).id & 1 == 1
    }

    /// The constant's value, if the node is one.
    pub fn const_val(&self, u: UOp) -> Option<Scalar> {
        match self.arg(u) {
            Arg::Const(c) if self.op(u) == Op::Const => Some(*c),
            _ => None,
        }
    }

    /// The constant's value as an integer, if the node is an integer or bool constant.
    pub fn const_int(&self, u: UOp) -> Option<i64> {
        match self.const_val(u)? {
            Scalar::Int(i) => Some(i),
            Scalar::Float(_) => None,
        }
    }

    /// The table of a `LookupBytes`, if it is constant.
    pub(crate) fn lookup_table(&self, u: UOp) -> Option<[u8; 16]> {
        let mut table = [0; 16];
        for (i, bytes) in table.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *bytes = (self.const_int(self.src_at(u, i + 1))? as u32).to_le_bytes();
        }
        Some(table)
    }

    /// The mask for the lower four bits of each byte of an index of a `LookupBytes`; `None` if its upper bits are zero
    /// already.
    pub(crate) fn lookup_mask(&self, index: UOp) -> Option<u32> {
        const LOW: u32 = 0x0F0F_0F0F;
        let (least, most) = self.bounds(index);
        let masked = self.op(index) == Op::And
            && self.src(index).iter().any(|&s| self.const_int(s).is_some_and(|c| c as u32 & !LOW == 0));
        (!masked && (least < 0 || most > 15)).then_some(LOW)
    }

    /// The range's argument. The node must be a Range.
    pub fn range_arg(&self, u: UOp) -> RangeArg {
        match self.arg(u) {
            Arg::Range(r) => *r,
            a => unreachable!("{u:?} is not a range: {a:?}"),
        }
    }

    /// A range node's kind. The node must be a Range.
    pub fn kind(&self, u: UOp) -> AxisKind {
        self.range_arg(u).kind
    }

    /// The extent of a range with a constant bound. The node must be a Range.
    pub fn range_len(&self, u: UOp) -> usize {
        self.const_int(self.src_at(u, 0)).expect("range bounds are constants") as usize
    }

    /// Adds a node built by code outside the compiler, or finds the equal one, if the spec allows it in some stage.
    /// Whether it is legal in the stage where it is used is checked later, before a device receives it.
    ///
    /// # Errors
    /// `E_VALUE` with the op, the dtype, and what does not fit.
    pub fn try_node(&mut self, op: Op, dtype: DType, src: &[UOp], arg: Arg) -> Result<UOp> {
        let fits = match src.iter().find(|s| s.0 as usize >= self.nodes.len()) {
            Some(s) => Err(format!("source {s:?} is not in this graph of {} nodes", self.nodes.len())),
            None => spec::check_node(self, op, dtype, src, &arg, None),
        };
        fits.map_err(|what| Error::value("graph", format!("{} {dtype} of {src:?} and {arg:?}: {what}", op.name())))?;
        Ok(self.node(op, dtype, src, arg))
    }

    /// Adds a node, or finds the equal one, without checking it. The shape is derived, which relies on sources that
    /// fit: the frontend has checked them, and the compiler builds only nodes whose sources fit. Other callers use
    /// [`Graph::try_node`].
    pub(crate) fn node(&mut self, op: Op, dtype: DType, src: &[UOp], arg: Arg) -> UOp {
        let arg_id = self.intern_arg(arg);
        let hash = node_hash(op, dtype, src, arg_id);
        let (nodes, srcs) = (&self.nodes, &self.srcs);
        let found = self.table.find(hash, |&i| {
            let n = &nodes[i as usize];
            n.op == op
                && n.dtype == dtype
                && n.arg == arg_id
                && &srcs[n.src as usize..(n.src + n.n_src) as usize] == src
        });
        if let Some(&i) = found {
            return UOp(i);
        }
        let index = self.nodes.len() as u32;
        debug_assert!(src.iter().all(|s| s.0 < index), "sources come first");
        let shape = shape::infer(self, op, src, arg_id);
        let like = src.first().map_or(0, |s| self.nodes[s.0 as usize].shape);
        let shape = if self.shapes[like as usize] == shape { like } else { self.intern_shape(shape) };
        let at = self.srcs.len() as u32;
        self.srcs.extend_from_slice(src);
        self.nodes.push(Node { op, dtype, n_src: src.len() as u32, src: at, arg: arg_id, shape });
        let (nodes, srcs) = (&self.nodes, &self.srcs);
        self.table.insert_unique(hash, index, |&i| {
            let n = &nodes[i as usize];
            node_hash(n.op, n.dtype, &srcs[n.src as usize..(n.src + n.n_src) as usize], n.arg)
        });
        let u = UOp(index);
        let bounds = bounds::infer(self, u);
        self.bounds.push(bounds);
        let ranges = self.infer_ranges(u);
        self.ranges.push(ranges);
        u
    }

    /// The same node with other sources.
    pub(crate) fn with_src(&mut self, u: UOp, src: &[UOp]) -> UOp {
        if self.src(u) == src {
            return u;
        }
        let (op, dtype, arg) = (self.op(u), self.dtype(u), self.arg(u).clone());
        self.node(op, dtype, src, arg)
    }

    /// Every node that `roots` need, in index (topological) order.
    pub fn reachable(&self, roots: &[UOp]) -> Vec<UOp> {
        self.reachable_through(roots, Graph::src)
    }

    fn reachable_through(&self, roots: &[UOp], src: fn(&Graph, UOp) -> &[UOp]) -> Vec<UOp> {
        let Some(top) = roots.iter().max() else { return Vec::new() };
        let mut seen = vec![false; top.0 as usize + 1];
        for r in roots {
            seen[r.0 as usize] = true;
        }
        for i in (0..seen.len()).rev() {
            if seen[i] {
                for s in src(self, UOp(i as u32)) {
                    seen[s.0 as usize] = true;
                }
            }
        }
        (0..seen.len() as u32).filter(|&i| seen[i as usize]).map(UOp).collect()
    }

    /// The sources that a node's value is computed from: all, except for a Detach with a user-defined gradient, where
    /// it is the first alone.
    pub fn value_src(&self, u: UOp) -> &[UOp] {
        let src = self.src(u);
        if self.op(u) == Op::Detach { &src[..1] } else { src }
    }

    /// The nodes that the values of `roots` are computed from, in index order: [`Graph::reachable`] without the nodes
    /// that only gradients need.
    pub fn value_nodes(&self, roots: &[UOp]) -> Vec<UOp> {
        self.reachable_through(roots, Graph::value_src)
    }

    /// The nodes of [`Graph::value_nodes`] in depth-first post-order from the roots (sources first). This order depends
    /// on structure alone, never on when a node was added.
    pub fn value_nodes_postorder(&self, roots: &[UOp]) -> Vec<UOp> {
        self.depth_first(roots, Graph::value_src)
    }

    /// All nodes below `roots` in depth-first post-order, following the sources that `src` gives for each node.
    pub(super) fn depth_first(&self, roots: &[UOp], src: fn(&Graph, UOp) -> &[UOp]) -> Vec<UOp> {
        let mut order = Vec::new();
        let mut seen = vec![false; roots.iter().max().map_or(0, |r| r.0 as usize + 1)];
        let mut stack: Vec<(UOp, bool)> = roots.iter().rev().map(|&r| (r, false)).collect();
        while let Some((u, ready)) = stack.pop() {
            if seen[u.0 as usize] {
                continue;
            }
            let src = src(self, u);
            if ready || src.is_empty() {
                seen[u.0 as usize] = true;
                order.push(u);
            } else {
                stack.push((u, true));
                stack.extend(src.iter().rev().map(|&s| (s, false)));
            }
        }
        order
    }

    /// Copies `roots` and everything they need from `other`, in index order. Each node is first offered to `leaf`,
    /// which returns `Some` of the node that replaces it, or `None` to have it copied. Returns the images of the roots.
    pub(crate) fn import(
        &mut self,
        other: &Graph,
        roots: &[UOp],
        mut leaf: impl FnMut(&mut Graph, UOp) -> Option<UOp>,
    ) -> Vec<UOp> {
        let mut map: Vec<UOp> = vec![UOp(u32::MAX); roots.iter().max().map_or(0, |r| r.0 as usize + 1)];
        for u in other.reachable(roots) {
            let image = match leaf(self, u) {
                Some(r) => r,
                None => {
                    let src: SmallVec<[UOp; 4]> = other.src(u).iter().map(|s| map[s.0 as usize]).collect();
                    self.node(other.op(u), other.dtype(u), &src, other.arg(u).clone())
                }
            };
            map[u.0 as usize] = image;
        }
        roots.iter().map(|r| map[r.0 as usize]).collect()
    }

    pub(crate) fn arg_by_id(&self, id: u32) -> &Arg {
        &self.args[id as usize]
    }

    fn intern_arg(&mut self, arg: Arg) -> u32 {
        if matches!(arg, Arg::None) && !self.args.is_empty() {
            return 0; // `Graph::new` interns it first
        }
        if let Some(&i) = self.arg_ids.get(&arg) {
            return i;
        }
        let i = self.args.len() as u32;
        self.args.push(arg.clone());
        self.arg_ids.insert(arg, i);
        i
    }

    fn intern_shape(&mut self, s: Shape) -> u32 {
        if let Some(&i) = self.shape_ids.get(&s) {
            return i;
        }
        let i = self.shapes.len() as u32;
        self.shapes.push(s.clone());
        self.shape_ids.insert(s, i);
        i
    }

    fn infer_ranges(&self, u: UOp) -> RangeSet {
        let src = self.src(u);
        let of = |s: &[UOp]| s.iter().fold(0, |m, s| m | self.ranges[s.0 as usize]);
        match self.op(u) {
            Op::Range => of(src) | 1 << self.range_arg(u).id,
            Op::Reduce | Op::Fold | Op::Stage if src.len() > 1 => of(src) & !of(&src[1..]),
            Op::Mma if MATRIX_TILES_ENABLED => match self.arg(u) {
                Arg::Mma(l) => {
                    let inputs = 3 + l.a.axes().len() + l.b.axes().len();
                    of(&src[..3]) & !of(&src[3..inputs]) | of(&src[inputs..])
                }
                _ => of(src),
            },
            Op::End => of(src) & !(1 << self.range_arg(src[0]).id),
            Op::AccRead | Op::After => {
                let ranges = src[1..].iter().filter(|s| self.op(**s) == Op::Range);
                ranges.fold(self.ranges[src[0].0 as usize], |m, s| m | self.ranges[s.0 as usize])
            }
            Op::Index => match self.arg(u) {
                Arg::Strides(s) => of(src) | s.iter().fold(0, |m, (id, _)| m | 1 << id),
                _ => of(src),
            },
            _ => of(src),
        }
    }
}

/// Number of elements of a shape. For views it may be more than any memory holds; it saturates at `u64::MAX`.
pub fn elements(shape: &[usize]) -> u64 {
    shape.iter().fold(1, |n, &d| n.saturating_mul(d as u64))
}

fn node_hash(op: Op, dtype: DType, src: &[UOp], arg: u32) -> u64 {
    let mut h = FxHasher::default();
    (op as u8, dtype as u8, arg).hash(&mut h);
    for s in src {
        h.write_u32(s.0);
    }
    // hashbrown takes its tag from the top bits, which FxHasher mixes badly for short inputs
    h.finish().wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26)
}
