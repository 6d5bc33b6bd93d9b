//! BLAKE2b with digests of 128 bits (RFC 7693): finding two inputs with the same digest takes about 2^64 attempts.

const IV: [u64; 8] = [
    0x6a09e667f3bcc908,
    0xbb67ae8584caa73b,
    0x3c6ef372fe94f82b,
    0xa54ff53a5f1d36f1,
    0x510e527fade682d1,
    0x9b05688c2b3e6c1f,
    0x1f83d9abfb41bd6b,
    0x5be0cd19137e2179,
];

#[rustfmt::skip]
const SIGMA: [[u8; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

const BLOCK: usize = 128;

/// The digest of some bytes, little-endian.
pub fn digest(bytes: &[u8]) -> u128 {
    let mut h = IV;
    h[0] ^= 0x0101_0000 ^ 16;
    let (mut rest, mut done) = (bytes, 0u64);
    while rest.len() > BLOCK {
        let (block, more) = rest.split_at(BLOCK);
        done += BLOCK as u64;
        compress(&mut h, block, done, 0);
        rest = more;
    }
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    compress(&mut h, &last, done + rest.len() as u64, u64::MAX);
    u128::from(h[1]) << 64 | u128::from(h[0])
}

fn compress(h: &mut [u64; 8], block: &[u8], done: u64, last: u64) {
    let mut m = [0u64; 16];
    for (word, bytes) in m.iter_mut().zip(block.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    }
    let mut v = [0u64; 16];
    v[..8].copy_from_slice(h);
    v[8..].copy_from_slice(&IV);
    v[12] ^= done;
    v[14] ^= last;
    for round in 0..12 {
        let s = &SIGMA[round % 10];
        let x = |i: usize| m[usize::from(s[i] & 15)];
        mix(&mut v, [0, 4, 8, 12], x(0), x(1));
        mix(&mut v, [1, 5, 9, 13], x(2), x(3));
        mix(&mut v, [2, 6, 10, 14], x(4), x(5));
        mix(&mut v, [3, 7, 11, 15], x(6), x(7));
        mix(&mut v, [0, 5, 10, 15], x(8), x(9));
        mix(&mut v, [1, 6, 11, 12], x(10), x(11));
        mix(&mut v, [2, 7, 8, 13], x(12), x(13));
        mix(&mut v, [3, 4, 9, 14], x(14), x(15));
    }
    for (i, h) in h.iter_mut().enumerate() {
        *h ^= v[i] ^ v[i + 8];
    }
}

#[inline(always)]
fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
    v[d] = (v[d] ^ v[a]).rotate_right(32);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(24);
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
    v[d] = (v[d] ^ v[a]).rotate_right(16);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(63);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_python_s_hashlib() {
        let hex = |bytes: &[u8]| -> String { digest(bytes).to_le_bytes().iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(hex(b""), "cae66941d9efbd404e4d88758ea67670");
        assert_eq!(hex(b"abc"), "cf4ab791c62b8d2b2109c90275287816");
        let count: Vec<u8> = (0..128).collect();
        assert_eq!(hex(&count), "a74787004ef589e31149183900d0294a");
        let long: Vec<u8> = (0..1000).map(|i| (i % 251) as u8).collect();
        assert_eq!(hex(&long), "bca120dfd89cd95d82898473a5b01c90");
    }
}
