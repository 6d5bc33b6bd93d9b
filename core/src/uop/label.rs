//! Labels of kernels: 128-bit structural hashes by which files of tuned opts, in releases and in applications, name a
//! kernel. Like the keys of `hash`, labels depend on structure alone, but the hash is not cryptographic: two kernels
//! with the same label are easily constructed. So they may only select opts, never results: opts that belong to another
//! kernel change the speed of a kernel but not what it computes, and opts that do not apply to it are ignored.

use super::hash::arg_words;
use super::{Graph, Op, UOp};
use crate::DType;
use std::sync::LazyLock;

/// The label of the given roots of a graph; their order matters.
pub fn of(g: &Graph, roots: &[UOp]) -> u128 {
    let nodes = g.reachable(roots);
    let mut labels = vec![0u128; nodes.last().map_or(0, |u| u.0 as usize + 1)];
    let mut words = Vec::new();
    for u in nodes {
        let mut m = Mixer::new();
        m.word(NAMES.0[g.op(u) as usize]);
        m.word(NAMES.1[g.dtype(u) as usize]);
        words.clear();
        arg_words(g.arg(u), &mut words);
        words.iter().for_each(|&w| m.word(w));
        m.word(g.src(u).len() as u64);
        g.src(u).iter().for_each(|s| m.wide(labels[s.0 as usize]));
        labels[u.0 as usize] = m.finish();
    }
    let mut m = Mixer::new();
    m.word(roots.len() as u64);
    roots.iter().for_each(|r| m.wide(labels[r.0 as usize]));
    m.finish()
}

/// The label of arbitrary bytes.
pub fn of_bytes(bytes: &[u8]) -> u128 {
    let mut m = Mixer::new();
    m.bytes(bytes);
    m.finish()
}

/// Passes bytes on as little-endian words, the last of which is padded with zeros.
pub(super) fn put_bytes(bytes: &[u8], mut put: impl FnMut(u64)) {
    for chunk in bytes.chunks(8) {
        let mut w = [0; 8];
        w[..chunk.len()].copy_from_slice(chunk);
        put(u64::from_le_bytes(w));
    }
}

/// The numbers that stand for ops and for dtypes in labels and keys: labels of their names, so that reordering the
/// enums changes neither.
pub(super) static NAMES: LazyLock<(Vec<u64>, Vec<u64>)> = LazyLock::new(|| {
    let of = |name: &str| of_bytes(name.as_bytes()) as u64;
    let mut ops = vec![0; 256];
    Op::ALL.iter().for_each(|&op| ops[op as usize] = of(&op.name()));
    let mut dtypes = vec![0; 256];
    DType::ALL.iter().chain(&[DType::Void]).for_each(|&dt| dtypes[dt as usize] = of(dt.name()));
    (ops, dtypes)
});

/// The hash state: two 64-bit multiply-xorshift lanes with different odd multipliers, which are mixed into each other
/// at each word and avalanched at the end.
struct Mixer {
    a: u64,
    b: u64,
}

impl Mixer {
    fn new() -> Mixer {
        let mut m = Mixer { a: 0x243F_6A88_85A3_08D3, b: 0x1319_8A2E_0370_7344 }; // digits of pi
        m.word(1);
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
        put_bytes(bytes, |word| self.word(word));
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
