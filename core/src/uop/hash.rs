//! Structural keys: 128 bits that depend only on what a graph computes, not on node numbers, host, word size or the
//! order of enums. They key every cache, also those that outlive a process, so the mixing is our own and never
//! changes silently: changing it must change [`VERSION`].

use super::print::{kind_name, reduce_name, scatter_name, space_name};
use super::{Arg, Graph, Op, UOp};
use crate::DType;
use crate::dtype::Scalar;
use std::sync::LazyLock;

/// Part of every key.
pub const VERSION: u64 = 1;

/// The key of some roots of a graph, in their order.
pub fn key(g: &Graph, roots: &[UOp]) -> u128 {
    let nodes = g.reachable(roots);
    let mut keys = vec![0u128; nodes.last().map_or(0, |u| u.0 as usize + 1)];
    for u in nodes {
        keys[u.0 as usize] = node(g.op(u), g.dtype(u), g.arg(u), g.src(u), &keys);
    }
    all(roots, &keys)
}

/// The key of some roots with their buffers replaced by params, numbered in the order of a walk from the roots: what
/// [`key`] is of the graph that `engine::close` makes. With the buffer of each param.
pub fn closed_key(g: &Graph, roots: &[UOp]) -> (u128, Vec<u32>) {
    let mut externals: Vec<u32> = Vec::new();
    let mut keys = vec![0u128; roots.iter().max().map_or(0, |u| u.0 as usize + 1)];
    for u in g.from_roots(roots) {
        keys[u.0 as usize] = match (g.op(u), g.arg(u)) {
            (Op::Buffer, Arg::Buffer { id, len }) => {
                externals.push(*id);
                let param = Arg::Param { slot: externals.len() as u32 - 1, len: *len };
                node(Op::Param, g.dtype(u), &param, &[], &keys)
            }
            (op, arg) => node(op, g.dtype(u), arg, g.value_src(u), &keys),
        };
    }
    (all(roots, &keys), externals)
}

fn node(op: Op, dtype: DType, arg: &Arg, src: &[UOp], keys: &[u128]) -> u128 {
    let mut m = Mixer::new();
    m.word(NAMES.0[op as usize]);
    m.word(NAMES.1[dtype as usize]);
    m.arg(arg);
    m.word(src.len() as u64);
    src.iter().for_each(|s| m.wide(keys[s.0 as usize]));
    m.finish()
}

fn all(roots: &[UOp], keys: &[u128]) -> u128 {
    let mut m = Mixer::new();
    m.word(roots.len() as u64);
    roots.iter().for_each(|r| m.wide(keys[r.0 as usize]));
    m.finish()
}

/// The key of any bytes, for what is cached beside graphs.
pub fn key_bytes(bytes: &[u8]) -> u128 {
    let mut m = Mixer::new();
    m.bytes(bytes);
    m.finish()
}

/// Hashes of op and dtype names, so that reordering the enums changes no key.
static NAMES: LazyLock<(Vec<u64>, Vec<u64>)> = LazyLock::new(|| {
    let of = |name: &str| key_bytes(name.as_bytes()) as u64;
    let mut ops = vec![0; 256];
    Op::ALL.iter().for_each(|&op| ops[op as usize] = of(&op.name()));
    let mut dtypes = vec![0; 256];
    DType::ALL.iter().chain(&[DType::Void]).for_each(|&dt| dtypes[dt as usize] = of(dt.name()));
    (ops, dtypes)
});

/// Two multiply-xorshift lanes with different odd constants, crossed at each word and avalanched at the end.
struct Mixer {
    a: u64,
    b: u64,
}

impl Mixer {
    fn new() -> Mixer {
        let mut m = Mixer { a: 0x243F_6A88_85A3_08D3, b: 0x1319_8A2E_0370_7344 }; // digits of pi
        m.word(VERSION);
        m
    }

    fn word(&mut self, v: u64) {
        let a = (self.a ^ v).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let b = (self.b.rotate_left(23) ^ v).wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        self.a = a ^ (a >> 29) ^ b.rotate_left(32);
        self.b = b ^ (b >> 31);
    }

    fn wide(&mut self, v: u128) {
        self.word(v as u64);
        self.word((v >> 64) as u64);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut w = [0; 8];
            w[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(w));
        }
    }

    fn text(&mut self, s: &str) {
        self.bytes(s.as_bytes());
    }

    fn list(&mut self, tag: u64, items: impl ExactSizeIterator<Item = u64>) {
        self.word(tag);
        self.word(items.len() as u64);
        items.for_each(|v| self.word(v));
    }

    /// Each variant has a tag of its own, in the order they were introduced.
    fn arg(&mut self, arg: &Arg) {
        match arg {
            Arg::None => self.word(0),
            Arg::Const(Scalar::Int(i)) => self.list(1, [*i as u64].into_iter()),
            Arg::Const(Scalar::Float(b)) => self.list(2, [*b].into_iter()),
            Arg::Buffer { id, len } => self.list(3, [*id as u64, *len as u64].into_iter()),
            Arg::Param { slot, len } => self.list(4, [*slot as u64, *len as u64].into_iter()),
            Arg::Var { name, min, max } => {
                self.list(5, [*min as u64, *max as u64].into_iter());
                self.text(name);
            }
            Arg::Shape(s) => self.list(6, s.iter().map(|&n| n as u64)),
            Arg::Axes(a) => self.list(7, a.iter().map(|&n| n as u64)),
            Arg::Pairs(p) => {
                self.list(8, p.iter().map(|p| p.0 as u64));
                self.list(8, p.iter().map(|p| p.1 as u64));
            }
            Arg::Reduce(op, axes) => {
                self.list(9, axes.iter().map(|&n| n as u64));
                self.text(reduce_name(*op));
            }
            Arg::Range(r) => {
                self.list(10, [r.id as u64, r.lane as u64].into_iter());
                self.text(&kind_name(r.kind));
            }
            Arg::Strides(s) => {
                self.list(11, s.iter().map(|s| s.0 as u64));
                self.list(11, s.iter().map(|s| s.1 as u64));
            }
            Arg::Acc(id) => self.list(12, [*id as u64].into_iter()),
            Arg::Scatter(how, axis) => {
                self.list(14, [*axis as u64].into_iter());
                self.text(scatter_name(*how));
            }
            Arg::Scratch { id, len, space } => {
                self.list(13, [*id as u64, *len as u64].into_iter());
                self.text(&space_name(*space));
            }
        }
    }

    fn finish(self) -> u128 {
        fn avalanche(mut x: u64) -> u64 {
            x = (x ^ (x >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
            x = (x ^ (x >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
            x ^ (x >> 33)
        }
        let (a, b) = (avalanche(self.a), avalanche(self.b ^ self.a.rotate_left(17)));
        (a as u128) << 64 | b as u128
    }
}
