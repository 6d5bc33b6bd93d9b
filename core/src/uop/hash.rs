//! Structural keys of graphs: 128 bits that depend only on what a graph computes, not on node numbers, host, word size
//! or the order of enum variants. They are the keys of every cache, those on disk included, and nothing else
//! distinguishes plans and kernels. So a key is a cryptographic digest of an encoding that differs between any two
//! graphs: to build a hostile model whose key equals that of another takes about 2^64 digests. A change of the encoding
//! must change [`VERSION`].

use super::label::{self, NAMES};
use super::print::{kind_name, reduce_name, scatter_name, space_name};
use super::{Arg, Graph, Op, UOp};
use crate::DType;
use crate::dtype::Scalar;
use crate::util::blake2b;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Version of the encoding, part of every key.
pub const VERSION: u64 = 2;

/// The key of the given roots of a graph; their order matters.
pub fn key(g: &Graph, roots: &[UOp]) -> u128 {
    digest(g, roots, &g.depth_first(roots, Graph::src), Graph::src, &mut None)
}

/// The key of the given roots with their buffers replaced by params, which are numbered in depth-first order from the
/// roots. It equals the [`key`] of the graph that `engine::close` makes. Also returns the buffer id of each param.
pub fn closed_key(g: &Graph, roots: &[UOp]) -> (u128, Vec<u32>) {
    let mut externals = Some(Vec::new());
    let key = digest(g, roots, &g.value_nodes_postorder(roots), Graph::value_src, &mut externals);
    (key, externals.unwrap_or_default())
}

/// The key of arbitrary bytes, for cached things that are not graphs.
pub fn key_bytes(bytes: &[u8]) -> u128 {
    blake2b::digest(bytes)
}

/// The digest of the nodes in `order`, which depends on structure alone. Each node is encoded as its op, its dtype, its
/// argument and the distances back to its sources in that order. Every part has a fixed length or is preceded by its
/// length, so the graph could be decoded again, and no two graphs have the same encoding.
fn digest(
    g: &Graph,
    roots: &[UOp],
    order: &[UOp],
    src: fn(&Graph, UOp) -> &[UOp],
    externals: &mut Option<Vec<u32>>,
) -> u128 {
    let mut at = vec![0u32; roots.iter().max().map_or(0, |u| u.0 as usize + 1)];
    let mut text = Vec::with_capacity(16 * order.len() + 16);
    let mut words = Vec::new();
    // where `src` leaves sources out, nodes that differ in those alone are encoded as one node
    let hidden = order.iter().any(|&u| src(g, u).len() != g.src(u).len());
    let mut seen: FxHashMap<(Op, DType, &Arg, SmallVec<[u32; 4]>), u32> = FxHashMap::default();
    let mut next = 0u32;
    put(&mut text, VERSION);
    for &u in order {
        if hidden {
            let src = src(g, u).iter().map(|s| at[s.0 as usize]).collect();
            let first = *seen.entry((g.op(u), g.dtype(u), g.arg(u), src)).or_insert(next);
            at[u.0 as usize] = first;
            if first != next {
                continue;
            }
        }
        let i = next;
        next += 1;
        at[u.0 as usize] = i;
        let (mut op, mut arg) = (g.op(u), g.arg(u));
        let param;
        if let (Op::Buffer, Arg::Buffer { id, len }, Some(list)) = (op, arg, externals.as_mut()) {
            list.push(*id);
            param = Arg::Param { slot: list.len() as u32 - 1, len: *len };
            (op, arg) = (Op::Param, &param);
        }
        text.extend_from_slice(&(NAMES.0[op as usize] as u32).to_le_bytes());
        text.extend_from_slice(&(NAMES.1[g.dtype(u) as usize] as u32).to_le_bytes());
        words.clear();
        arg_words(arg, &mut words);
        words.iter().for_each(|&w| put(&mut text, w));
        let src = src(g, u);
        put(&mut text, src.len() as u64);
        src.iter().for_each(|s| put(&mut text, u64::from(i - at[s.0 as usize])));
    }
    put(&mut text, roots.len() as u64);
    roots.iter().for_each(|r| put(&mut text, u64::from(at[r.0 as usize])));
    blake2b::digest(&text)
}

/// Appends a word as a LEB128 number: seven bits per byte, the lowest first.
fn put(text: &mut Vec<u8>, mut word: u64) {
    while word > 0x7f {
        text.push(word as u8 | 0x80);
        word >>= 7;
    }
    text.push(word as u8);
}

fn list(out: &mut Vec<u64>, tag: u64, items: impl ExactSizeIterator<Item = u64>) {
    out.extend([tag, items.len() as u64]);
    out.extend(items);
}

fn name(out: &mut Vec<u64>, name: &str) {
    out.push(name.len() as u64);
    label::put_bytes(name.as_bytes(), |word| out.push(word));
}

/// Encodes an argument as words. Each variant has its own tag; a new variant takes the next free one, so that keys and
/// labels of existing graphs stay the same.
pub(super) fn arg_words(arg: &Arg, out: &mut Vec<u64>) {
    match arg {
        Arg::None => out.push(0),
        Arg::Const(Scalar::Int(i)) => list(out, 1, [*i as u64].into_iter()),
        Arg::Const(Scalar::Float(b)) => list(out, 2, [*b].into_iter()),
        Arg::Buffer { id, len } => list(out, 3, [*id as u64, *len as u64].into_iter()),
        Arg::Param { slot, len } => list(out, 4, [*slot as u64, *len as u64].into_iter()),
        Arg::Var { name: var, min, max } => {
            list(out, 5, [*min as u64, *max as u64].into_iter());
            name(out, var);
        }
        Arg::Shape(s) => list(out, 6, s.iter().map(|&n| n as u64)),
        Arg::Axes(a) => list(out, 7, a.iter().map(|&n| n as u64)),
        Arg::Pairs(p) => {
            list(out, 8, p.iter().map(|p| p.0 as u64));
            list(out, 8, p.iter().map(|p| p.1 as u64));
        }
        Arg::Reduce(op, axes) => {
            list(out, 9, axes.iter().map(|&n| n as u64));
            name(out, reduce_name(*op));
        }
        Arg::Range(r) => {
            list(out, 10, [r.id as u64, r.lane as u64].into_iter());
            name(out, &kind_name(r.kind));
        }
        Arg::Strides(s) => {
            list(out, 11, s.iter().map(|s| s.0 as u64));
            list(out, 11, s.iter().map(|s| s.1 as u64));
        }
        Arg::Number(n) => list(out, 17, [*n as u64].into_iter()),
        Arg::Acc(id) => list(out, 12, [*id as u64].into_iter()),
        Arg::Scatter(how, axis) => {
            list(out, 14, [*axis as u64].into_iter());
            name(out, scatter_name(*how));
        }
        Arg::Scratch { id, len, space } => {
            list(out, 13, [*id as u64, *len as u64].into_iter());
            name(out, &space_name(*space));
        }
        Arg::Mma(layout) => {
            out.push(15);
            name(out, &layout.to_string());
        }
        Arg::Custom(c) => {
            list(out, 16, c.grid.iter().map(|&n| u64::from(n)));
            out.push(c.outputs as u64 * 2 + u64::from(c.ir.is_some()));
            name(out, &c.name);
            name(out, &c.code);
        }
        Arg::Recurrence(r) => {
            let key = r.key();
            let counts = [r.steps as u64, r.states as u64, r.sequences as u64];
            list(out, 18, counts.into_iter().chain([key as u64, (key >> 64) as u64]).collect::<Vec<_>>().into_iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_and_dtype_has_a_number_of_its_own() {
        for list in [&NAMES.0, &NAMES.1] {
            let mut used: Vec<u32> = list.iter().map(|&n| n as u32).filter(|&n| n != 0).collect();
            let n = used.len();
            used.sort_unstable();
            used.dedup();
            assert!(used.len() == n && n > 10);
        }
    }
}
