//! Reading a box (rectangular slice) of an array, such as the used part of a cache, without a kernel: the device reads
//! the contiguous range of memory that contains the box, and the host picks the box's elements from it. So no kernel
//! has to be compiled for each size of the box.

use super::exec::Engine;
use super::state::{RootId, State};
use crate::device::{Ticket, View};
use crate::uop::{Arg, Op, UOp};
use crate::util::rows;
use crate::{DType, Result};

/// A box is read this way if its range has at most this many times the elements of the box; otherwise a kernel copies
/// the box before it is read.
const MAX_READ_RATIO: usize = 4;
/// A range of at most this many bytes is read directly whatever the ratio.
const DIRECT_READ_BYTES: usize = 1 << 24;

/// A box of an array.
#[derive(Clone, Debug)]
pub struct ArrayBox {
    /// The session buffer that holds the array.
    pub id: u32,
    /// The array's sizes.
    pub array_shape: Vec<usize>,
    /// Start and end of the box along each axis.
    pub pairs: Vec<(usize, usize)>,
}

impl ArrayBox {
    /// The range of elements that contains the box: its first element, and its length.
    pub fn span(&self) -> (usize, usize) {
        let (mut first, mut last, mut stride) = (0, 0, 1);
        for (p, n) in self.pairs.iter().zip(&self.array_shape).rev() {
            first += p.0 * stride;
            last += p.1.saturating_sub(1) * stride;
            stride *= n;
        }
        (first, last + 1 - first)
    }

    /// Picks the elements of the box from the bytes of its range.
    pub fn cut(&self, bytes: &[u8], dtype: DType) -> Vec<u8> {
        let size = dtype.size();
        let mut shape: Vec<usize> = self.pairs.iter().map(|p| p.1 - p.0).collect();
        let mut array = self.array_shape.clone();
        // axes that are whole are parts of longer rows
        while let ([.., _, own], [.., _, all]) = (&shape[..], &array[..])
            && own == all
        {
            let n = *all;
            for s in [&mut shape, &mut array] {
                s.pop();
                s.last_mut().into_iter().for_each(|last| *last *= n);
            }
        }
        let row = shape.last().copied().unwrap_or(1) * size;
        let mut out = Vec::with_capacity(shape.iter().product::<usize>() * size);
        for at in rows(&shape, &array) {
            out.extend_from_slice(&bytes[at * size..][..row]);
        }
        out
    }
}

impl State {
    /// The box that a node denotes, if it is a box of a buffer.
    pub fn array_box(&self, node: UOp) -> Option<ArrayBox> {
        let g = &self.graph;
        let Arg::Pairs(pairs) = g.arg(node) else { return None };
        let whole = g.src(node).first().copied().filter(|_| g.op(node) == Op::Shrink)?;
        let id = self.buffer_id(self.storage(whole)?)?;
        Some(ArrayBox { id, array_shape: g.shape(whole).to_vec(), pairs: pairs.to_vec() })
    }

    /// Can a value be read without a kernel that computes or copies it?
    pub fn is_readable(&self, node: UOp) -> bool {
        if let Some(b) = self.array_box(node) {
            let (all, own) = (b.span().1, self.graph.memory_len(node));
            return all <= MAX_READ_RATIO.saturating_mul(own)
                || all * self.graph.dtype(node).size() <= DIRECT_READ_BYTES;
        }
        self.storage(node).is_some_and(|s| self.buffer_id(s).is_some())
    }
}

impl Engine {
    /// Starts reading a value that can be read ([`State::is_readable`]). For a box, the ticket gives the bytes of its
    /// range; apply [`ArrayBox::cut`] to them.
    pub fn read_box(&mut self, state: &mut State, root: RootId) -> Result<(Ticket, DType, Option<ArrayBox>)> {
        let u = state.node(root);
        let Some(boxed) = state.array_box(u) else {
            let (ticket, dtype, _) = self.read(state, root)?;
            return Ok((ticket, dtype, None));
        };
        self.belong_to(state)?;
        let dtype = state.graph.dtype(u);
        let size = self.device.target().stored_as(dtype)?.size();
        let (first, all) = boxed.span();
        let view = View { buf: self.buffer(state, boxed.id)?, offset: first * size, bytes: all * size };
        Ok((self.device.read(view)?, dtype, Some(boxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_cut_out_of_what_it_lies_in() {
        let b = ArrayBox { id: 0, array_shape: vec![2, 4, 3], pairs: vec![(0, 2), (1, 3), (0, 2)] };
        let (first, n) = b.span();
        assert_eq!((first, n), (3, 12 + 6 + 1 + 1 - 3));
        let all: Vec<u8> = (0..24).flat_map(|i| [i, 100 + i]).collect();
        let own = b.cut(&all[first * 2..][..n * 2], DType::U16);
        assert_eq!(own.iter().step_by(2).copied().collect::<Vec<_>>(), [3, 4, 6, 7, 15, 16, 18, 19]);
        assert!(own.chunks(2).all(|p| p[1] == p[0] + 100));
        // rows of whole axes
        let b = ArrayBox { id: 0, array_shape: vec![2, 4, 3], pairs: vec![(0, 2), (1, 3), (0, 3)] };
        assert_eq!(b.span(), (3, 18));
        let own = b.cut(&all[6..][..36], DType::U16);
        assert_eq!(own.iter().step_by(2).copied().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 15, 16, 17, 18, 19, 20]);
    }
}
