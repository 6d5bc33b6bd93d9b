//! The state of a session: the long-lived graph, the table of roots (the live values that tensors refer to), and the
//! buffers.
//!
//! A tensor owns a [`RootId`], never a [`UOp`]. So the graph can be compacted by copying at any time when no other
//! handles are in use: [`State::compact`] keeps what live roots reach, updates the roots, and returns the buffers that
//! nothing reaches any more.
//! Never: the user's API (see `tensor`), planning, device memory.

use crate::rewrite::substitute;
use crate::uop::{Arg, Graph, Op, UOp};
use crate::util::sort::ascending;
use crate::{DType, Error, Result};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Bytes on the host that tensors share: in memory, in a mapped file, or generated on demand.
pub trait HostBytes: Send + Sync {
    /// Number of bytes.
    fn len(&self) -> usize;

    /// Is it empty?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes, in host memory.
    fn bytes(&self) -> &[u8];

    /// For bytes that are generated on demand: the size of the units in which they are generated. `None` if they lie in
    /// memory.
    fn step(&self) -> Option<usize> {
        None
    }

    /// Hint that the bytes of a range will not be read soon: the system may reuse memory that it can fill again, such
    /// as that of a mapped file.
    fn release_hint(&self, range: Range<usize>) {
        let _ = range;
    }

    /// Writes the bytes starting at `at` to `out`. Both `at` and the length of `out` are multiples of
    /// [`HostBytes::step`].
    fn write(&self, at: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes()[at..][..out.len()]);
    }
}

impl HostBytes for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A slice of shared bytes: a whole upload, or one tensor of a model file that is in memory once.
#[derive(Clone)]
pub struct Bytes {
    data: Arc<dyn HostBytes>,
    range: Range<usize>,
}

impl Bytes {
    /// A slice of all of `data`.
    pub fn new(data: Vec<u8>) -> Bytes {
        Bytes::of(Arc::new(data))
    }

    /// A slice of all of `data`, which may lie anywhere.
    pub fn of(data: Arc<dyn HostBytes>) -> Bytes {
        let range = 0..data.len();
        Bytes { data, range }
    }

    /// A part of this slice, without a copy; `None` if the range is not inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let range = self.range.start + range.start..self.range.start + range.end;
        Some(Bytes { data: self.data.clone(), range })
    }

    /// Number of bytes. Does not generate bytes that are generated on demand.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A copy of the bytes.
    pub fn in_memory(&self) -> Vec<u8> {
        let Some((made, _)) = self.made() else { return self.to_vec() };
        let mut all = vec![0; self.range.len()];
        made.write(0, &mut all);
        all
    }

    /// Does anything else hold the same bytes, or are they generated on demand? Then holding them too takes no memory.
    pub fn is_shared(&self) -> bool {
        self.made().is_some() || Arc::strong_count(&self.data) > 1
    }

    /// [`HostBytes::release_hint`] for this slice.
    pub fn release_hint(&self) {
        self.data.release_hint(self.range.clone());
    }

    /// If the bytes are generated on demand and this is all of them: their source and the size of a unit
    /// ([`HostBytes::step`]).
    pub fn made(&self) -> Option<(&dyn HostBytes, usize)> {
        let step = self.data.step().filter(|_| self.range.len() == self.data.len())?;
        Some((&*self.data, step))
    }
}

impl From<Arc<Vec<u8>>> for Bytes {
    fn from(data: Arc<Vec<u8>>) -> Bytes {
        Bytes::of(data)
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(data: Vec<u8>) -> Bytes {
        Bytes::new(data)
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data.bytes()[self.range.clone()]
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bytes({})", self.range.len())
    }
}

/// One device buffer as the session sees it.
#[derive(Clone, Debug)]
pub struct BufferInfo {
    /// Element type.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
    /// Little-endian contents given by the user, if the host holds them. The engine uploads them before the first use
    /// and may then take them out.
    pub host: Option<Bytes>,
    /// The contents are expected not to change, as those of a weight. Engines may keep copies in other layouts, and
    /// drop them if the contents change after all.
    pub constant: bool,
}

/// Handle of a live value: what a tensor holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RootId(pub u32);

#[derive(Clone, Copy)]
struct Root {
    node: UOp,
    count: u32,
}

/// Bytes of new buffers for each node of the graph at which a compaction pays: a fresh page costs a microsecond,
/// visiting a node some dozen nanoseconds.
const BYTES_PER_NODE: usize = 512;
/// Below this many bytes no compaction is made for memory: so little stays in a core's caches, and the system need not
/// map fresh pages for it in each run.
const CACHED_BYTES: usize = 1 << 20;
/// Each compaction in a row that frees little doubles the threshold for the next one, at most this many times.
const MAX_FUTILE_COMPACTIONS: u32 = 12;

/// The state of a session.
pub struct State {
    /// The long-lived graph. Nodes may be added freely; handles are only good until the next [`State::compact`].
    pub graph: Graph,
    /// Seed of the random stream.
    pub seed: u64,
    /// Random draws so far. Each draw has its own key, derived from this number.
    pub draws: u32,
    /// [`Machine::products_before_taps`](crate::target::Machine::products_before_taps) of the session's device.
    pub products_before_taps: bool,
    /// Identity by which an engine recognises the session: ids of buffers have a meaning in one session only.
    identity: Arc<()>,
    roots: Vec<Option<Root>>,
    free: Vec<u32>,
    buffers: FxHashMap<u32, BufferInfo>,
    next_buffer: u32,
    live_at_compact: usize,
    /// Bytes of the buffers made since the last compaction, and the number of compactions in a row that freed little.
    fresh_bytes: usize,
    futile_compactions: u32,
    /// Buffers that captured computations need. An entry counts as long as its token is alive.
    holds: Vec<(Weak<()>, Vec<u32>)>,
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    /// An empty session with seed 0.
    pub fn new() -> State {
        State {
            graph: Graph::new(),
            seed: 0,
            draws: 0,
            products_before_taps: false,
            identity: Arc::default(),
            roots: Vec::new(),
            free: Vec::new(),
            buffers: FxHashMap::default(),
            next_buffer: 0,
            live_at_compact: 0,
            fresh_bytes: 0,
            futile_compactions: 0,
            holds: Vec::new(),
        }
    }

    /// The identity of this session.
    pub(super) fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    // ---- roots

    /// Registers `node` as a live value with one owner.
    pub fn add_root(&mut self, node: UOp) -> RootId {
        let root = Some(Root { node, count: 1 });
        match self.free.pop() {
            Some(i) => {
                self.roots[i as usize] = root;
                RootId(i)
            }
            None => {
                self.roots.push(root);
                RootId(self.roots.len() as u32 - 1)
            }
        }
    }

    /// One more owner of `id`.
    pub fn retain(&mut self, id: RootId) {
        if let Some(Some(r)) = self.roots.get_mut(id.0 as usize) {
            r.count += 1;
        }
    }

    /// One owner less; the last one frees the slot.
    pub fn release(&mut self, id: RootId) {
        if let Some(slot) = self.roots.get_mut(id.0 as usize)
            && let Some(r) = slot
        {
            r.count -= 1;
            if r.count == 0 {
                *slot = None;
                self.free.push(id.0);
            }
        }
    }

    /// The node of a live root.
    pub fn node(&self, id: RootId) -> UOp {
        self.roots[id.0 as usize].expect("a tensor's root lives as long as the tensor").node
    }

    /// Sets the node of a live root, after a realize or an assign. The new node has the same shape and dtype.
    pub(crate) fn set_node(&mut self, id: RootId, node: UOp) {
        self.roots[id.0 as usize].as_mut().expect("a tensor's root lives as long as the tensor").node = node;
    }

    /// Every live root, in id order.
    pub fn live_roots(&self) -> impl Iterator<Item = (RootId, UOp)> + '_ {
        self.roots.iter().enumerate().filter_map(|(i, r)| r.map(|r| (RootId(i as u32), r.node)))
    }

    // ---- buffers

    /// A new buffer of `len` elements; returns its flat node of shape `[len]`.
    pub fn add_buffer(&mut self, dtype: DType, len: usize, host: Option<Bytes>) -> UOp {
        let id = self.next_buffer;
        self.next_buffer += 1;
        self.buffers.insert(id, BufferInfo { dtype, len, host, constant: false });
        self.fresh_bytes = self.fresh_bytes.saturating_add(len.saturating_mul(dtype.size()));
        self.graph.node(Op::Buffer, dtype, &[], Arg::Buffer { id, len })
    }

    /// What is known of a buffer; `None` once it was collected.
    pub fn buffer(&self, id: u32) -> Option<&BufferInfo> {
        self.buffers.get(&id)
    }

    /// What is known of a buffer, mutable: to set the host bytes or take them out.
    pub fn buffer_mut(&mut self, id: u32) -> Option<&mut BufferInfo> {
        self.buffers.get_mut(&id)
    }

    /// Declares all buffers constant that the nodes read, except those listed.
    pub fn freeze(&mut self, nodes: &[UOp], except: &[u32]) {
        for u in self.graph.value_nodes(nodes) {
            if let Some(id) = self.buffer_id(u).filter(|id| !except.contains(id))
                && let Some(b) = self.buffers.get_mut(&id)
            {
                b.constant = true;
            }
        }
    }

    /// Every buffer and its id, in no order.
    pub fn buffers(&self) -> impl Iterator<Item = (u32, &BufferInfo)> {
        self.buffers.iter().map(|(i, b)| (*i, b))
    }

    /// The id of a Buffer node.
    pub fn buffer_id(&self, node: UOp) -> Option<u32> {
        match self.graph.arg(node) {
            Arg::Buffer { id, .. } if self.graph.op(node) == Op::Buffer => Some(*id),
            _ => None,
        }
    }

    /// The flat Buffer or After node that holds `node`'s elements in row-major order, if nothing needs computing: looks
    /// through Reshape and Detach only.
    pub fn storage(&self, node: UOp) -> Option<UOp> {
        let mut u = node;
        while matches!(self.graph.op(u), Op::Reshape | Op::Detach) {
            u = self.graph.src_at(u, 0);
        }
        matches!(self.graph.op(u), Op::Buffer | Op::After).then_some(u)
    }

    /// The Buffer below any chain of After.
    pub fn buffer_below(&self, node: UOp) -> Option<UOp> {
        let mut u = node;
        while self.graph.op(u) == Op::After {
            u = self.graph.src_at(u, 0);
        }
        (self.graph.op(u) == Op::Buffer).then_some(u)
    }

    /// Shortens a buffer to its first `len` elements; its device memory stays as it is.
    pub fn shorten(&mut self, id: u32, len: usize) {
        if let Some(b) = self.buffers.get_mut(&id) {
            b.len = b.len.min(len);
        }
    }

    /// The flat node of a live buffer.
    pub fn buffer_node(&mut self, id: u32) -> UOp {
        let (dtype, len) = self.buffers.get(&id).map_or((DType::U8, 0), |b| (b.dtype, b.len));
        self.graph.node(Op::Buffer, dtype, &[], Arg::Buffer { id, len })
    }

    /// Replaces nodes in the values of all live roots.
    ///
    /// # Errors
    /// `E_VALUE` where a node is to be replaced by one of another shape or dtype.
    pub fn substitute(&mut self, map: &FxHashMap<UOp, UOp>) -> Result<()> {
        let g = &self.graph;
        let unlike = |a: UOp, b: UOp| g.shape(a) != g.shape(b) || g.dtype(a) != g.dtype(b);
        if map.iter().any(|(a, b)| unlike(*a, *b)) {
            return Err(Error::value("substitute", "a node of another shape or dtype"));
        }
        self.replace(map);
        Ok(())
    }

    /// Replaces nodes without the check of [`State::substitute`]: used after a realize, when values become buffers.
    pub(crate) fn replace(&mut self, map: &FxHashMap<UOp, UOp>) {
        if map.is_empty() {
            return;
        }
        let live: Vec<(RootId, UOp)> = self.live_roots().collect();
        let nodes: Vec<UOp> = live.iter().map(|&(_, u)| u).collect();
        let images = substitute(&mut self.graph, &nodes, map);
        for (&(id, old), new) in live.iter().zip(images) {
            if old != new {
                self.set_node(id, new);
            }
        }
    }

    // ---- order

    /// Live roots outside `roots` that still have to read a version of a buffer which running `roots` overwrites;
    /// assigns may be among them. They must be realized in the same run, before the store that overwrites, or else they
    /// would read the new contents. Buffers that they overwrite themselves count too.
    pub fn readers_of_overwritten(&self, roots: &[UOp]) -> Vec<RootId> {
        let mut all = roots.to_vec();
        let mut out = Vec::new();
        loop {
            let before = all.len();
            for id in self.stale_roots(&all) {
                let node = self.node(id);
                if !all.contains(&node) {
                    all.push(node);
                    out.push(id);
                }
            }
            if all.len() == before {
                return out;
            }
        }
    }

    /// Live roots that would read wrong contents after a run of `roots`.
    fn stale_roots(&self, roots: &[UOp]) -> Vec<RootId> {
        let g = &self.graph;
        let needed = g.value_nodes(roots);
        if needed.iter().all(|&u| g.op(u) != Op::Store) {
            return Vec::new();
        }
        let mut run = vec![false; g.len()];
        // superseded[s]: a store of this run overwrites version s of a buffer
        let mut superseded = vec![false; g.len()];
        for u in needed {
            run[u.0 as usize] = true;
            if g.op(u) == Op::Store {
                let mut t = g.src_at(u, 0);
                while g.op(t).is_movement() || g.op(t) == Op::Gather {
                    t = g.src_at(t, 0);
                }
                superseded[t.0 as usize] = true;
            }
        }
        // a value becomes stale if it reads a superseded version, except through the After that makes the next version;
        // an assign that is not part of the run becomes stale with the value that it stores
        let mut stale = superseded;
        for u in g.iter() {
            let i = u.0 as usize;
            let reads = |s: &UOp| stale[s.0 as usize];
            let src = g.src(u);
            stale[i] |= match g.op(u) {
                Op::Store => !run[i] && src[1..].iter().any(reads),
                Op::After => src[1..].iter().any(reads),
                _ => src.iter().any(reads),
            };
        }
        let waits = |u: UOp| self.storage(u).is_none_or(|s| g.op(s) == Op::After && !run[s.0 as usize]);
        self.live_roots().filter(|(_, u)| stale[u.0 as usize] && waits(*u)).map(|(id, _)| id).collect()
    }

    // ---- compaction

    /// True when the graph has grown past twice what the last compaction left alive.
    pub fn wants_compaction(&self) -> bool {
        self.graph.len() > 2 * self.live_at_compact.max(4096)
    }

    /// True when a compaction may free enough memory to be worth its walk over the graph: reusing buffers spares the
    /// system from mapping fresh pages. For hosts that keep no [`Replay`](super::Replay)s, since a compaction may also
    /// free the inputs of those.
    pub fn wants_memory(&self) -> bool {
        self.fresh_bytes > self.graph.len().saturating_mul(BYTES_PER_NODE << self.futile_compactions).max(CACHED_BYTES)
    }

    /// Keeps buffers until the returned token and its clones are dropped, whether or not a live root reaches them.
    pub(super) fn hold(&mut self, ids: &[u32]) -> Arc<()> {
        if self.holds.len() == self.holds.capacity() {
            self.holds.retain(|(by, _)| by.strong_count() > 0);
        }
        let token = Arc::new(());
        self.holds.push((Arc::downgrade(&token), ids.to_vec()));
        token
    }

    /// Drops every node that no live root reaches. All [`UOp`] handles outside of the root table become invalid.
    /// Returns the ids of the buffers that are no longer reachable, for the engine to free; buffers that a captured
    /// computation holds stay.
    pub fn compact(&mut self) -> Vec<u32> {
        let live: Vec<(RootId, UOp)> = self.live_roots().collect();
        let nodes: Vec<UOp> = live.iter().map(|&(_, u)| u).collect();
        let mut graph = Graph::new();
        let moved = graph.import(&self.graph, &nodes, |_, _| None);
        for (&(id, _), node) in live.iter().zip(moved) {
            self.set_node(id, node);
        }
        self.graph = graph;
        self.live_at_compact = self.graph.len();
        let mut kept: Vec<u32> = self.graph.iter().filter_map(|u| self.buffer_id(u)).collect();
        self.holds.retain(|(by, _)| by.strong_count() > 0);
        kept.extend(self.holds.iter().flat_map(|(_, ids)| ids));
        ascending(&mut kept);
        let mut dead: Vec<u32> = self.buffers.keys().copied().filter(|id| kept.binary_search(id).is_err()).collect();
        ascending(&mut dead);
        let gone = dead.iter().filter_map(|id| self.buffers.remove(id));
        let found = gone.fold(0usize, |n, b| n.saturating_add(b.len.saturating_mul(b.dtype.size())));
        self.futile_compactions =
            if found < self.fresh_bytes / 4 { (self.futile_compactions + 1).min(MAX_FUTILE_COMPACTIONS) } else { 0 };
        self.fresh_bytes = 0;
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;

    #[test]
    fn compaction_keeps_roots_and_frees_buffers() {
        let mut s = State::new();
        let a = s.add_buffer(F32, 4, None);
        let b = s.add_buffer(F32, 4, None);
        let sum = s.graph.binary(Op::Add, a, a);
        s.graph.binary(Op::Mul, b, b);
        let root = s.add_root(sum);
        assert_eq!(s.compact(), vec![1]);
        assert_eq!(s.graph.len(), 2);
        assert_eq!(s.graph.op(s.node(root)), Op::Add);
        s.release(root);
        assert_eq!(s.compact(), vec![0]);
        assert!(s.graph.is_empty());
    }

    #[test]
    fn memory_is_looked_for_when_much_was_made_and_less_often_in_vain() {
        let mut s = State::new();
        let mut held = Vec::new();
        let make = |s: &mut State| {
            let b = s.add_buffer(F32, 1 << 20, None);
            s.add_root(b)
        };
        let first = make(&mut s);
        assert!(s.wants_memory());
        s.release(first);
        assert_eq!(s.compact(), vec![0]);
        assert!(!s.wants_memory(), "nothing was made since");
        s.add_buffer(F32, 1 << 10, None);
        assert!(!s.wants_memory(), "little was made since");
        assert_eq!(s.compact().len(), 1);
        let mut compactions = 0;
        for _ in 0..256 {
            held.push(make(&mut s));
            if s.wants_memory() {
                compactions += 1;
                assert!(s.compact().is_empty());
            }
        }
        assert!((1..64).contains(&compactions), "{compactions} compactions of 256 buffers that live");
        held.into_iter().for_each(|r| s.release(r));
        assert_eq!(s.compact().len(), 256);
        assert!(make(&mut s).0 < 256 && s.wants_memory(), "memory was found: the next look comes early again");
    }

    #[test]
    fn a_reader_of_an_overwritten_buffer_is_found() {
        let mut s = State::new();
        let b = s.add_buffer(F32, 4, None);
        let one = s.graph.float(1.0, F32);
        let reader = s.graph.binary(Op::Mul, b, b);
        let reader = s.add_root(reader);
        let next = s.graph.binary(Op::Add, b, one);
        let store = s.graph.store(b, next);
        let after = s.graph.after(b, &[store]);
        let newer = s.graph.binary(Op::Sub, after, one);
        s.add_root(after);
        let newer = s.add_root(newer);
        assert_eq!(s.readers_of_overwritten(&[after]), vec![reader]);
        assert_eq!(s.readers_of_overwritten(&[s.node(newer)]), vec![reader]);
        assert_eq!(s.readers_of_overwritten(&[s.node(reader)]), vec![]);
    }

    #[test]
    fn an_assign_reads_too_and_has_readers_of_its_own() {
        let mut s = State::new();
        let (a, b) = (s.add_buffer(F32, 4, None), s.add_buffer(F32, 4, None));
        let assign = |s: &mut State, to: UOp, value: UOp| {
            let store = s.graph.store(to, value);
            s.graph.after(to, &[store])
        };
        let twice = s.graph.binary(Op::Add, a, a);
        let of_b = s.graph.binary(Op::Mul, b, b);
        let of_b = s.add_root(of_b);
        let b = assign(&mut s, b, twice);
        let pending = s.add_root(b);
        let square = s.graph.binary(Op::Mul, a, a);
        let a = assign(&mut s, a, square);
        s.add_root(a);
        // the assign to b reads what the one to a overwrites, and itself overwrites what the product reads
        assert_eq!(s.readers_of_overwritten(&[a]), vec![pending, of_b]);
        assert_eq!(s.readers_of_overwritten(&[b]), vec![of_b]);
    }
}
