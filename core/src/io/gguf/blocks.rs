//! Decodes blocks of ggml's quantised types to f32 on the host, the reference for the decoding graphs of
//! [`super::graph`], and extracts the scales and codes that [`super::planes`] stores in another form than the file.
//!
//! Each function reads one whole block of its type and writes all of its elements. Lengths come from [`Kind`] and
//! indices from masked bits, so nothing here depends on what a file claims. The product of a scale and a quantised
//! integer is exact in f32; the other operations are in ggml's order.

use super::kinds::Kind;
use half::{bf16, f16};

/// The values that the 4-bit codes of IQ4_NL and IQ4_XS stand for.
pub(super) const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// The values of the 16 4-bit floats (e2m1), doubled so that they are integers; block scales are halved to compensate.
pub(super) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The tables with an offset added, so that the entries are unsigned bytes: 127 and 12.
pub(super) static IQ4_BYTES: [u8; 16] = plus(&IQ4, 127);
pub(super) static E2M1_BYTES: [u8; 16] = plus(&E2M1, 12);

/// The entries of a table plus a number that leaves none below zero.
pub(super) const fn plus(table: &[i8; 16], offset: i16) -> [u8; 16] {
    let (mut out, mut i) = ([0; 16], 0);
    while i < 16 {
        let x = table[i] as i16 + offset;
        assert!(x >= 0 && x < 256);
        out[i] = x as u8;
        i += 1;
    }
    out
}

/// The code books of the IQ types, one after the other, 2 or 4 bits a value; written by `tests/fixtures/make_gguf.py`.
/// The constants below are the byte offsets of the books.
static GRIDS: &[u8; 9216] = include_bytes!("grids.bin");
const IQ2_XXS: usize = 0;
const IQ2_XS: usize = 512;
const IQ2_S: usize = 1536;
const IQ1: usize = 3584;
const IQ3_XXS: usize = 7680;
const IQ3_S: usize = 8192;

/// The elements of whole blocks. Kinds of plain elements other than floats give zeros; `decode` handles those itself.
pub(super) fn dequantize(kind: Kind, bytes: &[u8]) -> Vec<f32> {
    let elems = kind.block_elems();
    let mut out = vec![0f32; bytes.len() / kind.block_bytes() * elems];
    for (b, y) in bytes.chunks_exact(kind.block_bytes()).zip(out.chunks_exact_mut(elems)) {
        block(kind, b, y);
    }
    out
}

fn block(kind: Kind, b: &[u8], y: &mut [f32]) {
    match kind {
        Kind::F32 => y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        Kind::F16 => y[0] = half(b, 0),
        Kind::BF16 => y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        Kind::F64 | Kind::I8 | Kind::I16 | Kind::I32 | Kind::I64 => {}
        Kind::Q4_0 => fill(y, |i| half(b, 0) * f32::from(nibble(&b[2..], i, 16) as i8 - 8)),
        Kind::Q4_1 => fill(y, |i| half(b, 0) * f32::from(nibble(&b[4..], i, 16)) + half(b, 2)),
        Kind::Q5_0 => fill(y, |i| {
            let q = nibble(&b[6..], i, 16) | bit(&b[2..], i) << 4;
            half(b, 0) * f32::from(q as i8 - 16)
        }),
        Kind::Q5_1 => fill(y, |i| {
            let q = nibble(&b[8..], i, 16) | bit(&b[4..], i) << 4;
            half(b, 0) * f32::from(q) + half(b, 2)
        }),
        Kind::Q8_0 => fill(y, |i| f32::from(b[2 + i] as i8) * half(b, 0)),
        Kind::Q8_1 => fill(y, |i| f32::from(b[4 + i] as i8) * half(b, 0)),
        Kind::Q8_K => {
            let d = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            fill(y, |i| d * f32::from(b[4 + i] as i8));
        }
        Kind::Q2_K => fill(y, |i| {
            let (d, min, s) = (half(b, 80), half(b, 82), b[i / 16]);
            let q = b[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            d * f32::from(s & 15) * f32::from(q) - min * f32::from(s >> 4)
        }),
        Kind::Q3_K => {
            let scales = q3_scales(&b[96..]);
            fill(y, |i| {
                let low = b[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
                let high = b[i % 32] >> (i / 32) & 1;
                half(b, 108) * f32::from(scales[i / 16]) * f32::from(low as i8 - 4 * (1 - high as i8))
            });
        }
        Kind::Q4_K => {
            let (scales, mins) = q4_scales(&b[4..]);
            fill(y, |i| {
                let q = nibble(&b[16 + i / 64 * 32..], i % 64, 32);
                half(b, 0) * f32::from(scales[i / 32]) * f32::from(q) - half(b, 2) * f32::from(mins[i / 32])
            });
        }
        Kind::Q5_K => {
            let (scales, mins) = q4_scales(&b[4..]);
            fill(y, |i| {
                let q = nibble(&b[48 + i / 64 * 32..], i % 64, 32) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
                half(b, 0) * f32::from(scales[i / 32]) * f32::from(q) - half(b, 2) * f32::from(mins[i / 32])
            });
        }
        Kind::Q6_K => fill(y, |i| {
            let low = nibble(&b[i / 128 * 64..], i % 128, 64);
            let high = b[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            half(b, 208) * f32::from(b[192 + i / 16] as i8) * f32::from((low | high << 4) as i8 - 32)
        }),
        Kind::TQ1_0 => {
            let mut codes = [0; 256];
            ternary_codes(b, &mut codes);
            fill(y, |i| half(b, 52) * (f32::from(codes[i]) - 1.0));
        }
        Kind::TQ2_0 => fill(y, |i| {
            let q = b[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            half(b, 64) * (f32::from(q) - 1.0)
        }),
        Kind::IQ4_NL => fill(y, |i| half(b, 0) * code(&IQ4, nibble(&b[2..], i, 16))),
        Kind::IQ4_XS => {
            let scales = iq4_scales(b);
            fill(y, |i| {
                let q = nibble(&b[8 + i / 32 * 16..], i % 32, 16);
                half(b, 0) * f32::from(scales[i / 32]) * code(&IQ4, q)
            });
        }
        Kind::MXFP4 => {
            let d = e8m0_half(b[0]).to_f32();
            fill(y, |i| d * code(&E2M1, nibble(&b[1..], i, 16)));
        }
        Kind::NVFP4 => fill(y, |i| {
            let g = i / 16;
            e4m3_half(b[g]) * code(&E2M1, nibble(&b[4 + g * 8..], i % 16, 8))
        }),
        Kind::IQ2_XXS => fill(y, |i| {
            let at = 2 + i / 32 * 8;
            let s = word(b, at + 4);
            let d = half(b, 0) * (0.5 + (s >> 28) as f32) * 0.25;
            d * iq2(IQ2_XXS, b[at + i % 32 / 8].into(), i % 8) * sign(packed_signs(s, i % 32 / 8), i % 8)
        }),
        Kind::IQ2_XS => fill(y, |i| {
            let q = short(b, 2 + i / 8 * 2);
            let d = half(b, 0) * (0.5 + f32::from(b[66 + i / 32] >> (i / 16 % 2 * 4) & 15)) * 0.25;
            d * iq2(IQ2_XS, (q & 511).into(), i % 8) * sign(with_parity((q >> 9) as u8), i % 8)
        }),
        Kind::IQ2_S => fill(y, |i| {
            let k = i / 8;
            let q = usize::from(b[2 + k]) | usize::from(b[66 + k / 4] >> (k % 4 * 2) & 3) << 8;
            let d = half(b, 0) * (0.5 + f32::from(b[74 + i / 32] >> (i / 16 % 2 * 4) & 15)) * 0.25;
            d * iq2(IQ2_S, q, i % 8) * sign(b[34 + k], i % 8)
        }),
        Kind::IQ3_XXS => fill(y, |i| {
            const VALUES: [u8; 8] = [4, 12, 20, 28, 36, 44, 52, 62];
            let s = word(b, 66 + i / 32 * 4);
            let d = half(b, 0) * (0.5 + (s >> 28) as f32) * 0.5;
            let v = VALUES[iq3(IQ3_XXS, b[2 + i / 4].into(), i % 4)];
            d * f32::from(v) * sign(packed_signs(s, i % 32 / 8), i % 8)
        }),
        Kind::IQ3_S => fill(y, |i| {
            let k = i / 4;
            let q = usize::from(b[2 + k]) | usize::from(b[66 + k / 8] >> (k % 8) & 1) << 8;
            let d = half(b, 0) * f32::from(1 + 2 * (b[106 + i / 64] >> (i / 32 % 2 * 4) & 15));
            d * (1.0 + 2.0 * iq3(IQ3_S, q, i % 4) as f32) * sign(b[74 + i / 8], i % 8)
        }),
        Kind::IQ1_S => fill(y, |i| {
            let (k, h) = (i / 8, short(b, 34 + i / 32 * 2));
            let d = half(b, 0) * f32::from(2 * (h >> 12 & 7) + 1);
            let delta = if h & 0x8000 == 0 { 0.125 } else { -0.125 };
            let q = usize::from(b[2 + k]) | usize::from(h >> (k % 4 * 3) & 7) << 8;
            d * (iq1(q, i % 8) + delta)
        }),
        Kind::IQ1_M => {
            let s = [short(b, 48), short(b, 50), short(b, 52), short(b, 54)];
            let d = s[0] >> 12 | (s[1] & 0xf000) >> 8 | (s[2] & 0xf000) >> 4 | (s[3] & 0xf000);
            let d = f16::from_bits(d).to_f32();
            fill(y, |i| {
                let k = i / 8;
                let d = d * f32::from(2 * (s[i / 64] >> (i / 16 % 4 * 3) & 7) + 1);
                let h = b[32 + k / 2] >> (k % 2 * 4) & 15;
                let delta = if h & 8 == 0 { 0.125 } else { -0.125 };
                d * (iq1(usize::from(b[k]) | usize::from(h & 7) << 8, i % 8) + delta)
            });
        }
    }
}

/// The codes of a block whose kind has a code book, for the tables of [`super::packed`]. For IQ3 the upper of four bits
/// is the sign and the others are the value; for IQ2 the same with three bits; for IQ1 the upper bit is the sign of the
/// shift, and the others are the value plus one. Eight codes at a time, as the bytes of a word.
pub(super) fn book_codes(kind: Kind, b: &[u8], out: &mut [u8; 256]) {
    for (k, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (part, group) = (k / 4, k % 4);
        let codes = match kind {
            Kind::IQ2_XXS => {
                let at = 2 + part * 8;
                twos(IQ2_XXS, b[at + group].into()) | ones(packed_signs(word(b, at + 4), group)) << 2
            }
            Kind::IQ2_XS => {
                let q = short(b, 2 + k * 2);
                twos(IQ2_XS, (q & 511).into()) | ones(with_parity((q >> 9) as u8)) << 2
            }
            Kind::IQ2_S => {
                let q = usize::from(b[2 + k]) | usize::from(b[66 + part] >> (group * 2) & 3) << 8;
                twos(IQ2_S, q) | ones(b[34 + k]) << 2
            }
            Kind::IQ3_XXS => {
                let at = 2 + 2 * k;
                let values = fours(IQ3_XXS, [b[at].into(), b[at + 1].into()]);
                values | ones(packed_signs(word(b, 66 + part * 4), group)) << 3
            }
            Kind::IQ3_S => {
                let q = |i: usize| usize::from(b[2 + i]) | usize::from(b[66 + i / 8] >> (i % 8) & 1) << 8;
                fours(IQ3_S, [q(2 * k), q(2 * k + 1)]) | ones(b[74 + k]) << 3
            }
            Kind::IQ1_S => {
                let h = short(b, 34 + part * 2);
                let q = usize::from(b[2 + k]) | usize::from(h >> (group * 3) & 7) << 8;
                twos(IQ1, q) | all((h >> 15) as u8) << 2
            }
            _ => {
                let h = b[32 + k / 2] >> (k % 2 * 4) & 15;
                let q = usize::from(b[k]) | usize::from(h & 7) << 8;
                twos(IQ1, q) | all(h >> 3) << 2
            }
        };
        *out = codes.to_le_bytes();
    }
}

/// One number in all bytes of a word.
fn all(byte: u8) -> u64 {
    u64::from(byte) * 0x0101_0101_0101_0101
}

/// The bits of a byte as the bytes of a word.
fn ones(bits: u8) -> u64 {
    let each = all(bits) & 0x8040_2010_0804_0201;
    (each + all(0x7F)) >> 7 & all(1)
}

/// The eight values of 2 bits of an entry of a code book, as the bytes of a word.
fn twos(book: usize, q: usize) -> u64 {
    let x = u64::from(short(GRIDS, book + q * 2));
    let x = (x | x << 24) & 0x0000_00FF_0000_00FF;
    let x = (x | x << 12) & 0x000F_000F_000F_000F;
    (x | x << 6) & 0x0303_0303_0303_0303
}

/// The four values of each of two entries of a code book whose values have 3 of 4 bits, as the bytes of a word.
fn fours(book: usize, q: [usize; 2]) -> u64 {
    let [x, y] = q.map(|q| u64::from(short(GRIDS, book + q * 2)));
    let x = x | y << 32;
    let x = (x | x << 8) & 0x00FF_00FF_00FF_00FF;
    (x | x << 4) & 0x0707_0707_0707_0707
}

/// The scale of a block whose kind has a code book, and factor `g` of it: the factors are odd numbers, for 16 or 32
/// elements each. The scale contains the fractions of the kind's formula.
pub(super) fn book_scale(kind: Kind, b: &[u8]) -> f32 {
    match kind {
        Kind::IQ3_XXS => half(b, 0) * 0.25,
        Kind::IQ3_S => half(b, 0),
        Kind::IQ1_M => {
            let s = [short(b, 48), short(b, 50), short(b, 52), short(b, 54)];
            f16::from_bits(s[0] >> 12 | (s[1] & 0xf000) >> 8 | (s[2] & 0xf000) >> 4 | (s[3] & 0xf000)).to_f32() * 0.125
        }
        _ => half(b, 0) * 0.125,
    }
}

pub(super) fn book_factor(kind: Kind, b: &[u8], g: usize) -> u8 {
    let s = match kind {
        Kind::IQ2_XXS => (word(b, 2 + g * 8 + 4) >> 28) as u8,
        Kind::IQ2_XS => nibble_of(b[66 + g / 2], g),
        Kind::IQ2_S => nibble_of(b[74 + g / 2], g),
        Kind::IQ3_XXS => (word(b, 66 + g * 4) >> 28) as u8,
        Kind::IQ3_S => nibble_of(b[106 + g / 2], g),
        Kind::IQ1_S => (short(b, 34 + g * 2) >> 12 & 7) as u8,
        _ => (short(b, 48 + g / 4 * 2) >> (g % 4 * 3) & 7) as u8,
    };
    1 + 2 * s
}

/// The lower nibble of a byte for an even number, the upper one for an odd number.
fn nibble_of(byte: u8, number: usize) -> u8 {
    byte >> (number % 2 * 4) & 15
}

/// The codes of TQ1_0, 0 to 2.
pub(super) fn ternary_codes(b: &[u8], out: &mut [u8; 256]) {
    const POW: [u8; 5] = [1, 3, 9, 27, 81];
    for (i, out) in out.iter_mut().enumerate() {
        let q = match i {
            0..160 => b[i % 32].wrapping_mul(POW[i / 32]),
            160..240 => b[32 + i % 16].wrapping_mul(POW[(i - 160) / 16]),
            _ => b[48 + i % 4].wrapping_mul(POW[(i - 240) / 4]),
        };
        *out = ((u16::from(q) * 3) >> 8) as u8;
    }
}

fn fill(y: &mut [f32], f: impl Fn(usize) -> f32) {
    y.iter_mut().enumerate().for_each(|(i, y)| *y = f(i));
}

fn half(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

fn short(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Element `i` of `2n` nibbles in `n` bytes: elements `0..n` are the low nibbles, elements `n..2n` the high nibbles.
fn nibble(b: &[u8], i: usize, n: usize) -> u8 {
    b[i % n] >> (i / n * 4) & 15
}

fn bit(b: &[u8], i: usize) -> u8 {
    b[i / 8] >> (i % 8) & 1
}

fn code(table: &[i8; 16], q: u8) -> f32 {
    f32::from(table[usize::from(q & 15)])
}

/// The 16 scales of Q3_K: low 4 bits in 8 bytes, high 2 bits in 4.
pub(super) fn q3_scales(s: &[u8]) -> [i8; 16] {
    std::array::from_fn(|j| {
        let high = s[8 + j % 4] >> (j / 4 * 2) & 3;
        (nibble(s, j, 8) | high << 4) as i8 - 32
    })
}

/// The 8 scales and 8 minima of Q4_K and Q5_K, 6 bits each.
pub(super) fn q4_scales(s: &[u8]) -> ([u8; 8], [u8; 8]) {
    let six = |at: usize, shift: usize| {
        move |j: usize| match j {
            0..4 => s[at + j] & 63,
            _ => s[4 + j] >> shift & 15 | (s[at + j - 4] >> 2) & 48,
        }
    };
    (std::array::from_fn(six(0, 0)), std::array::from_fn(six(4, 4)))
}

/// The 8 scales of a block of IQ4_XS.
pub(super) fn iq4_scales(b: &[u8]) -> [i8; 8] {
    let high = short(b, 2);
    std::array::from_fn(|j| {
        let low = b[4 + j / 2] >> (j % 2 * 4) & 15;
        (low | ((high >> (2 * j)) & 3) as u8 * 16) as i8 - 32
    })
}

/// Half of `2^(e-127)`, the e8m0 scale of MXFP4; every such value is a bf16. The factor 1/2 cancels the doubling of
/// [`E2M1`].
pub(super) fn e8m0_half(e: u8) -> bf16 {
    bf16::from_bits(if e < 2 { 0x20 << e } else { u16::from(e - 1) << 7 })
}

/// Half of an unsigned e4m3 scale of NVFP4 (the factor 1/2 cancels the doubling of [`E2M1`]).
pub(super) fn e4m3_half(x: u8) -> f32 {
    let (e, m) = (i32::from(x >> 3 & 15), f32::from(x & 7));
    match (x, e) {
        (0 | 0x7f, _) => 0.0,
        (_, 0) => m * 2f32.powi(-10),
        _ => (1.0 + m / 8.0) * 2f32.powi(e - 8),
    }
}

/// Adds the eighth sign bit to seven: the file omits it because the number of set bits is always even.
fn with_parity(s: u8) -> u8 {
    s & 127 | ((s & 127).count_ones() as u8 & 1) << 7
}

fn packed_signs(word: u32, k: usize) -> u8 {
    with_parity((word >> (7 * k)) as u8)
}

fn sign(signs: u8, i: usize) -> f32 {
    if signs >> i & 1 == 0 { 1.0 } else { -1.0 }
}

/// Value `j` of entry `q` of the IQ2 code book at byte offset `book`.
fn iq2(book: usize, q: usize, j: usize) -> f32 {
    const VALUES: [u8; 4] = [8, 25, 43, 0];
    f32::from(VALUES[usize::from(GRIDS[book + q * 2 + j / 4] >> (j % 4 * 2) & 3)])
}

fn iq1(q: usize, j: usize) -> f32 {
    f32::from(GRIDS[IQ1 + q * 2 + j / 4] >> (j % 4 * 2) & 3) - 1.0
}

fn iq3(book: usize, q: usize, j: usize) -> usize {
    usize::from(GRIDS[book + q * 2 + j / 2] >> (j % 2 * 4) & 7)
}
