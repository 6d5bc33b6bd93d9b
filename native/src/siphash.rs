//! SipHash-2-4 with a digest of 128 bits: a keyed hash that distinguishes files which this user wrote from files of
//! others. After Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), and their reference implementation.

/// A key of 128 bits.
pub(crate) type Key = [u8; 16];

/// The digest of `bytes` under a key.
pub(crate) fn siphash(key: &Key, bytes: &[u8]) -> [u8; 16] {
    let half = |i: usize| word(&key[8 * i..8 * i + 8]);
    let (a, b) = (half(0), half(1));
    let mut v = [a ^ 0x736f6d6570736575, b ^ 0x646f72616e646f6d ^ 0xee, a ^ 0x6c7967656e657261, b ^ 0x7465646279746573];
    let mut absorb = |m: u64| {
        v[3] ^= m;
        rounds(&mut v, 2);
        v[0] ^= m;
    };
    let mut blocks = bytes.chunks_exact(8);
    blocks.by_ref().for_each(|block| absorb(word(block)));
    absorb(word(blocks.remainder()) | (bytes.len() as u64) << 56);
    let mut out = [0; 16];
    for (half, change) in out.chunks_exact_mut(8).zip([(2, 0xee), (1, 0xdd)]) {
        v[change.0] ^= change.1;
        rounds(&mut v, 4);
        half.copy_from_slice(&(v[0] ^ v[1] ^ v[2] ^ v[3]).to_le_bytes());
    }
    out
}

/// Up to eight bytes as a little-endian number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))
}

fn rounds(v: &mut [u64; 4], n: usize) {
    for _ in 0..n {
        let [a, b, c, d] = v;
        (*a, *c) = (a.wrapping_add(*b), c.wrapping_add(*d));
        (*b, *d) = (b.rotate_left(13) ^ *a, d.rotate_left(16) ^ *c);
        *a = a.rotate_left(32);
        (*c, *a) = (c.wrapping_add(*b), a.wrapping_add(*d));
        (*b, *d) = (b.rotate_left(17) ^ *c, d.rotate_left(21) ^ *a);
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_reference_implementation() {
        let key: Key = std::array::from_fn(|i| i as u8);
        let hex = |n: u8| -> String {
            let bytes: Vec<u8> = (0..n).collect();
            siphash(&key, &bytes).iter().map(|b| format!("{b:02x}")).collect()
        };
        assert_eq!(hex(0), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(1), "da87c1d86b99af44347659119b22fc45");
        assert_eq!(hex(8), "3b62a9ba6258f5610f83e264f31497b4");
        assert_eq!(hex(63), "5150d1772f50834a503e069a973fbd7c");
    }
}
