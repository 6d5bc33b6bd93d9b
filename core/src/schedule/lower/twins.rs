//! Cuts that are computed alike, as those of a network's layers are, are lowered once. In: a cut. Out: its kernel, which
//! is that of an earlier cut with other buffers if both have the same *form*: the graph from the cut down to the buffers
//! that it reads, in which buffers are numbered in the order in which they are met.

use super::super::fuse::{self, Cuts};
use super::super::order::{Pending, State};
use super::super::{Buffers, Kernel};
use crate::Result;
use crate::uop::hash::key_bytes;
use crate::uop::{Graph, Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Stands for the op of a buffer in a form.
const BUFFER: u32 = u32::MAX;

/// The forms so far.
#[derive(Default)]
pub(super) struct Twins {
    /// By the key of a form its index in `first`.
    seen: FxHashMap<u128, usize>,
    /// Of each form the index of its first kernel, and the states of buffers that belong to its numbers.
    first: Vec<(usize, Vec<State>)>,
}

impl Twins {
    /// The kernel of a cut: a copy of one of `done`, all kernels so far, or what `lower` makes. What is copied computes the
    /// same function, whatever order of loops was planned for this cut, since forms have all that a result depends on.
    pub(super) fn kernel(
        &mut self,
        (g, cuts, buffers, versions): (&Graph, &Cuts, &Buffers, &FxHashMap<UOp, u32>),
        u: UOp,
        done: &[Pending],
        lower: impl FnOnce() -> Result<Pending>,
    ) -> Result<Pending> {
        let mut form = Form { buffers, words: Vec::new(), states: Vec::new() };
        let Some(()) = form.read(g, cuts, versions, u) else { return lower() };
        let (key, states) = (key_bytes(&form.words), form.states);
        if let Some(&i) = self.seen.get(&key) {
            let (first, known) = &self.first[i];
            let p = &done[*first];
            let args = p.kernel.args.iter().filter_map(|&b| known.iter().position(|s| s.0 == b)).map(|i| states[i].0);
            let reads = p.reads.iter().filter_map(|r| known.iter().position(|s| s == r)).map(|i| states[i]);
            let kernel = Kernel { ast: p.kernel.ast.clone(), args: args.collect(), scalars: Vec::new() };
            let writes = SmallVec::from_elem(states[0], 1);
            return Ok(Pending { node: u, kernel, reads: reads.collect(), writes });
        }
        let p = lower()?;
        let has_args = p.kernel.args.iter().all(|b| states.iter().any(|s| s.0 == *b));
        if has_args && p.reads.iter().all(|r| states.contains(r)) {
            self.seen.insert(key, self.first.len());
            self.first.push((done.len(), states));
        }
        Ok(p)
    }
}

/// A form while it is read.
struct Form<'a> {
    buffers: &'a Buffers,
    /// The form as 32-bit words.
    words: Vec<u8>,
    /// The states of its buffers; the first one is written.
    states: Vec<State>,
}

impl Form<'_> {
    fn put(&mut self, words: &[u32]) {
        words.iter().for_each(|w| self.words.extend_from_slice(&w.to_le_bytes()));
    }

    /// Adds a buffer. `None` if it is not known.
    fn buffer(&mut self, node: UOp, version: u32) -> Option<()> {
        let state = (*self.buffers.of.get(&node)?, version);
        let end = self.states.len();
        let number = self.states.iter().position(|s| *s == state).unwrap_or(end);
        let same = self.states.iter().position(|s| s.0 == state.0).unwrap_or(end);
        let (dtype, len) = (self.buffers.list[state.0].dtype, self.buffers.list[state.0].len as u64);
        self.put(&[number as u32, same as u32, dtype as u32, len as u32, (len >> 32) as u32]);
        if number == end {
            self.states.push(state);
        }
        Some(())
    }

    /// Reads the form of a cut. `None` if a buffer is not known.
    fn read(&mut self, g: &Graph, cuts: &Cuts, versions: &FxHashMap<UOp, u32>, u: UOp) -> Option<()> {
        let version = |u: UOp| versions.get(&u).copied().unwrap_or(0);
        match g.op(u) {
            Op::Store => self.buffer(fuse::buffer_node(g, fuse::stored_to(g, g.src_at(u, 0))), version(u))?,
            _ => self.buffer(u, 0)?,
        }
        let mut numbers: FxHashMap<UOp, u32> = FxHashMap::default();
        let mut stack = vec![(u, false)];
        while let Some((n, sources_done)) = stack.pop() {
            if numbers.contains_key(&n) {
                continue;
            }
            let is_read = n != u && (matches!(g.op(n), Op::Param | Op::After) || cuts.is_cut(n));
            if !is_read && !sources_done {
                stack.push((n, true));
                stack.extend(g.src(n).iter().rev().map(|&s| (s, false)));
                continue;
            }
            let ([arg, shape], dtype) = (g.interned(n), g.dtype(n) as u32);
            if is_read {
                self.put(&[BUFFER, dtype, shape]);
                self.buffer(fuse::buffer_node(g, n), version(n))?;
            } else {
                self.put(&[g.op(n) as u32, dtype, arg, shape, g.src(n).len() as u32]);
                g.src(n).iter().for_each(|s| self.put(&[numbers[s]]));
            }
            numbers.insert(n, numbers.len() as u32);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use crate::DType::F32;
    use crate::schedule::schedule;
    use crate::target::{Isa, Target};
    use crate::uop::{Arg, Graph, Op, ReduceOp, UOp, hash};

    /// For each kernel of the roots the key of its code, and its buffers: the parameters first.
    fn kernels(g: &Graph, roots: &[UOp], params: usize) -> Vec<(u128, Vec<usize>)> {
        let plan = schedule(g, roots, params, &Target::x86(Isa::Avx2, 1)).unwrap();
        plan.kernels.into_iter().map(|k| (hash::key(&k.ast.g, &k.ast.roots()), k.args)).collect()
    }

    /// The product of a matrix and a vector.
    fn layer(g: &mut Graph, w: UOp, x: UOp) -> UOp {
        let (w, x) = (g.reshape(w, &[64, 64]), g.reshape(x, &[1, 64]));
        let x = g.expand(x, &[64, 64]);
        let product = g.binary(Op::Mul, w, x);
        let sum = g.reduce(product, ReduceOp::Add, &[1]);
        let sum = g.reshape(sum, &[64]);
        g.node(Op::Contiguous, F32, &[sum], Arg::None)
    }

    #[test]
    fn layers_have_one_kernel_and_buffers_of_their_own() {
        let mut g = Graph::new();
        let (a, b, x) = (g.param(0, F32, 64 * 64), g.param(1, F32, 64 * 64), g.param(2, F32, 64));
        let first = layer(&mut g, a, x);
        let second = layer(&mut g, b, first);
        let all = kernels(&g, &[second], 3);
        let [(one, args), (two, others)] = &all[..] else { panic!("{all:?}") };
        assert_eq!(one, two);
        assert_eq!((&args[1..], &others[1..]), (&[0, 2][..], &[1, args[0]][..]));
    }

    #[test]
    fn what_reads_a_buffer_before_and_after_a_store_is_not_confused() {
        let mut g = Graph::new();
        let (a, x) = (g.param(0, F32, 64 * 64), g.param(1, F32, 64));
        let before = layer(&mut g, a, x);
        let twice = g.binary(Op::Add, x, x);
        let store = g.store(x, twice);
        let written = g.after(x, &[store]);
        let after = layer(&mut g, a, written);
        let all = kernels(&g, &[before, written, after], 2);
        let [first, second, third] = &all[..] else { panic!("{all:?}") };
        assert_eq!((first.0, second.1[0]), (third.0, 1), "the store comes between its readers");
        assert_eq!(first.1[1..], third.1[1..]);
    }
}
