//! Structural keys: 128 bits that depend on ops, dtypes, arguments and shape of a graph, not on node numbers. Stable
//! across hosts and within a release; every cache is keyed by them.

use super::{Arg, Graph, UOp};
use crate::dtype::Scalar;

/// Two lanes of multiply-xorshift mixing (constants from SplitMix64 and xxHash64).
#[derive(Clone, Copy)]
struct Mixer(u64, u64);

impl Mixer {
    fn new(seed: u64) -> Mixer {
        Mixer(seed ^ 0x9E37_79B9_7F4A_7C15, seed ^ 0xC2B2_AE3D_27D4_EB4F)
    }

    fn word(&mut self, w: u64) {
        let mix = |h: u64, m: u64| {
            let x = (h ^ w).wrapping_mul(m);
            (x ^ (x >> 29)).wrapping_add(m).rotate_left(23)
        };
        self.0 = mix(self.0, 0xBF58_476D_1CE4_E5B9);
        self.1 = mix(self.1, 0x94D0_49BB_1331_11EB);
    }

    fn words(&mut self, list: impl ExactSizeIterator<Item = u64>) {
        self.word(list.len() as u64);
        list.for_each(|w| self.word(w));
    }

    fn bytes(&mut self, b: &[u8]) {
        self.words(b.iter().map(|&x| x as u64));
    }

    fn key(mut self) -> u128 {
        self.word(0x2545_F491_4F6C_DD1D);
        (self.0 as u128) << 64 | self.1 as u128
    }
}

/// The key of a graph with the given roots, in their order.
pub fn key(g: &Graph, roots: &[UOp]) -> u128 {
    let top = roots.iter().max().map_or(0, |r| r.0 as usize + 1);
    let mut keys = vec![0u128; top];
    for u in g.reachable(roots) {
        let mut m = Mixer::new(1);
        m.bytes(g.op(u).name().as_bytes());
        m.bytes(g.dtype(u).name().as_bytes());
        arg(&mut m, g.arg(u));
        m.word(g.src(u).len() as u64);
        for s in g.src(u) {
            let k = keys[s.0 as usize];
            m.word(k as u64);
            m.word((k >> 64) as u64);
        }
        keys[u.0 as usize] = m.key();
    }
    let mut m = Mixer::new(2);
    m.words(roots.iter().map(|r| keys[r.0 as usize] as u64 ^ (keys[r.0 as usize] >> 64) as u64).collect::<Vec<_>>().into_iter());
    m.key()
}

fn arg(m: &mut Mixer, a: &Arg) {
    match a {
        Arg::None => m.word(0),
        Arg::Const(Scalar::Int(i)) => m.words([1, *i as u64].into_iter()),
        Arg::Const(Scalar::Float(b)) => m.words([2, *b].into_iter()),
        Arg::Buffer { id, len } => m.words([3, *id as u64, *len as u64].into_iter()),
        Arg::Param { slot, len } => m.words([4, *slot as u64, *len as u64].into_iter()),
        Arg::Var { name, min, max } => {
            m.words([5, *min as u64, *max as u64].into_iter());
            m.bytes(name.as_bytes());
        }
        Arg::Shape(s) => {
            m.word(6);
            m.words(s.iter().map(|&n| n as u64));
        }
        Arg::Axes(a) => {
            m.word(7);
            m.words(a.iter().map(|&n| n as u64));
        }
        Arg::Pairs(p) => {
            m.word(8);
            p.iter().for_each(|&(a, b)| m.words([a as u64, b as u64].into_iter()));
        }
        Arg::Reduce(op, axes) => {
            m.words([9, *op as u64].into_iter());
            m.words(axes.iter().map(|&n| n as u64));
        }
        Arg::Range(r) => {
            m.words([10, r.id as u64, r.lane as u64].into_iter());
            m.bytes(format!("{:?}", r.kind).as_bytes());
        }
        Arg::Strides(s) => {
            m.word(11);
            s.iter().for_each(|&(id, c)| m.words([id as u64, c as u64].into_iter()));
        }
        Arg::Acc(id) => m.words([12, *id as u64].into_iter()),
        Arg::Scratch { id, len, space } => m.words([13, *id as u64, *len as u64, *space as u64].into_iter()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType::F32;
    use crate::uop::Op;

    #[test]
    fn equal_structure_has_one_key_whatever_the_numbering() {
        let (mut a, mut b) = (Graph::new(), Graph::new());
        b.float(7.0, F32);
        let sum = |g: &mut Graph, c: f64| {
            let p = g.param(0, F32, 4);
            let c = g.float(c, F32);
            g.binary(Op::Add, p, c)
        };
        let (x, y, z) = (sum(&mut a, 1.0), sum(&mut b, 1.0), sum(&mut b, 2.0));
        assert_eq!(key(&a, &[x]), key(&b, &[y]));
        assert_ne!(key(&b, &[y]), key(&b, &[z]));
        assert_ne!(key(&b, &[y, z]), key(&b, &[z, y]));
    }
}
