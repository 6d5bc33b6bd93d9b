//! Separates the blocks of a quantised tensor into planes (all scales, all low bits, all high bits), with rows
//! interleaved. A plane is not stored on the host: its bytes are computed from the file's bytes when they are copied to
//! a device's memory, once, by as many threads as the device uses.

use super::Kind;
use super::blocks::{self, e4m3_half, e8m0_half};
use super::packed;
use crate::dtype::DType;
use crate::engine::{Bytes, HostBytes};
use half::bf16;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// How many rows of a matrix may be interleaved element by element; the largest number that divides the rows is used.
/// Interleaved rows are the vector lanes of a product: operands are contiguous loads, no sum runs across lanes, and the
/// rows' scales are contiguous too.
const GROUPS: [usize; 3] = [64, 32, 16];

/// The number of rows that are interleaved in a matrix of `rows` rows; 1 if no entry of [`GROUPS`] divides it.
pub(super) fn group_of(rows: usize) -> usize {
    GROUPS.into_iter().find(|g| rows.is_multiple_of(*g)).unwrap_or(1)
}

/// The part of a plane that comes from one block.
#[derive(Clone, Copy)]
pub(super) struct Plane {
    pub(super) dtype: DType,
    /// Elements per block.
    pub(super) n: usize,
    from: From,
}

#[derive(Clone, Copy)]
enum From {
    /// Copied from the block, from this byte offset on.
    At(usize),
    /// Computed by this function: (bytes of the block, bytes of the plane).
    Computed(fn(&[u8], &mut [u8])),
}

impl Plane {
    fn bytes(&self) -> usize {
        self.n * self.dtype.size()
    }
}

/// The most bytes per block of a computed plane ([`From::Computed`]), the size of the buffer for one block's result.
const MAX_COMPUTED_BYTES: usize = 128;

const fn at(dtype: DType, n: usize, at: usize) -> Plane {
    Plane { dtype, n, from: From::At(at) }
}

const fn computed(dtype: DType, n: usize, by: fn(&[u8], &mut [u8])) -> Plane {
    assert!(n * dtype.size() <= MAX_COMPUTED_BYTES);
    Plane { dtype, n, from: From::Computed(by) }
}

fn fill<T: Copy>(out: &mut [u8], of: &[T], f: impl Fn(T) -> u8) {
    out.iter_mut().zip(of).for_each(|(to, x)| *to = f(*x));
}

fn four_scales(b: &[u8], out: &mut [u8]) {
    out.copy_from_slice(&blocks::q4_scales(&b[4..]).0);
}

fn four_minima(b: &[u8], out: &mut [u8]) {
    out.copy_from_slice(&blocks::q4_scales(&b[4..]).1);
}

/// The fifth bits of the codes of 32 elements, bit `e` of element `e` in a file. Here bit `e / 4` of byte `e % 4`, as four
/// neighbours are in a word of codes.
fn fifth_bits(b: &[u8], out: &mut [u8]) {
    out.fill(0);
    for e in 0..32 {
        out[e % 4] |= (b[e / 8] >> (e % 8) & 1) << (e / 4);
    }
}

/// Bits `from..from + N` of the codes of a block of 256 elements, in the order of ggml's formats: neighbours are in
/// neighbouring bytes, and a field of the bytes is full after `run` of them.
fn pack<const N: usize>(codes: &[u8; 256], from: usize, run: usize, out: &mut [u8]) {
    let (fields, mask) = (8 / N, (1u8 << N) - 1);
    out.fill(0);
    for (i, codes) in codes.chunks_exact(run).enumerate() {
        let (at, shift) = (i / fields * run, i % fields * N);
        let Some(out) = out.get_mut(at..at + run) else { return };
        out.iter_mut().zip(codes).for_each(|(out, code)| *out |= (code >> from & mask) << shift);
    }
}

fn of_book(kind: Kind, b: &[u8]) -> [u8; 256] {
    let mut codes = [0; 256];
    blocks::book_codes(kind, b, &mut codes);
    codes
}

/// The planes of a kind with a code book: a scale, its factors, and codes for a table of at most 16 entries, in 4 bits
/// (IQ3) or in 1 and 2 bits.
macro_rules! book {
    ($kind:ident, $factors:literal, [$($codes:expr),+]) => {
        const {
            &[
                computed(DType::F32, 1, |b, out| {
                    out.copy_from_slice(&blocks::book_scale(Kind::$kind, b).to_le_bytes());
                }),
                computed(DType::U8, $factors, |b, out| {
                    out.iter_mut().enumerate().for_each(|(g, out)| *out = blocks::book_factor(Kind::$kind, b, g));
                }),
                $($codes),+
            ]
        }
    };
    ($kind:ident 4, $factors:literal) => {
        book!($kind, $factors, [computed(DType::U8, 128, |b, out| pack::<4>(&of_book(Kind::$kind, b), 0, 16, out))])
    };
    ($kind:ident 3, $factors:literal) => {
        book!($kind, $factors, [
            computed(DType::U8, 32, |b, out| pack::<1>(&of_book(Kind::$kind, b), 2, 32, out)),
            computed(DType::U8, 64, |b, out| pack::<2>(&of_book(Kind::$kind, b), 0, 32, out))
        ])
    };
}

/// The 4-bit codes of a block of NVFP4, which has 16 elements in 8 bytes, with 32 elements in 16 bytes.
fn nvfp4_codes(b: &[u8], out: &mut [u8]) {
    let code = |e: usize| b[4 + e / 16 * 8 + e % 8] >> (e / 8 % 2 * 4) & 15;
    for (i, out) in out.iter_mut().enumerate() {
        let e = i / 16 * 32 + i % 16;
        *out = code(e) | code(e + 16) << 4;
    }
}

/// The planes of a kind; empty for a kind that is decoded to f32 at load, which only formats of intermediate results
/// (Q8_1, Q8_K) are.
pub(super) fn planes(kind: Kind) -> &'static [Plane] {
    use DType::{BF16, F16, I8, U8};
    match kind {
        Kind::Q4_0 | Kind::IQ4_NL => const { &[at(F16, 1, 0), at(U8, 16, 2)] },
        Kind::Q4_1 => const { &[at(F16, 1, 0), at(F16, 1, 2), at(U8, 16, 4)] },
        Kind::Q5_0 => const { &[at(F16, 1, 0), computed(U8, 4, |b, out| fifth_bits(&b[2..], out)), at(U8, 16, 6)] },
        Kind::Q5_1 => {
            const { &[at(F16, 1, 0), at(F16, 1, 2), computed(U8, 4, |b, out| fifth_bits(&b[4..], out)), at(U8, 16, 8)] }
        }
        Kind::Q8_0 => const { &[at(F16, 1, 0), at(I8, 32, 2)] },
        Kind::Q2_K => {
            const {
                &[
                    at(F16, 1, 80),
                    at(F16, 1, 82),
                    computed(U8, 16, |b, out| fill(out, &b[..16], |s| s & 15)),
                    computed(U8, 16, |b, out| fill(out, &b[..16], |s| s >> 4)),
                    at(U8, 64, 16),
                ]
            }
        }
        Kind::Q3_K => {
            const {
                &[
                    at(F16, 1, 108),
                    computed(I8, 16, |b, out| fill(out, &blocks::q3_scales(&b[96..]), |s| s as u8)),
                    at(U8, 32, 0),
                    at(U8, 64, 32),
                ]
            }
        }
        Kind::Q4_K => {
            const {
                &[
                    at(F16, 1, 0),
                    at(F16, 1, 2),
                    computed(U8, 8, four_scales),
                    computed(U8, 8, four_minima),
                    at(U8, 128, 16),
                ]
            }
        }
        Kind::Q5_K => {
            const {
                &[
                    at(F16, 1, 0),
                    at(F16, 1, 2),
                    computed(U8, 8, four_scales),
                    computed(U8, 8, four_minima),
                    at(U8, 32, 16),
                    at(U8, 128, 48),
                ]
            }
        }
        Kind::Q6_K => const { &[at(F16, 1, 208), at(I8, 16, 192), at(U8, 64, 128), at(U8, 128, 0)] },
        Kind::TQ2_0 => const { &[at(F16, 1, 64), at(U8, 64, 0)] },
        Kind::TQ1_0 => {
            const {
                &[
                    at(F16, 1, 52),
                    computed(U8, 64, |b, out| {
                        let mut codes = [0; 256];
                        blocks::ternary_codes(b, &mut codes);
                        pack::<2>(&codes, 0, 32, out);
                    }),
                ]
            }
        }
        Kind::IQ3_XXS => book!(IQ3_XXS 4, 8),
        Kind::IQ3_S => book!(IQ3_S 4, 8),
        Kind::IQ2_XXS => book!(IQ2_XXS 3, 8),
        Kind::IQ2_XS => book!(IQ2_XS 3, 16),
        Kind::IQ2_S => book!(IQ2_S 3, 16),
        Kind::IQ1_S => book!(IQ1_S 3, 8),
        Kind::IQ1_M => book!(IQ1_M 3, 16),
        Kind::NVFP4 => {
            const {
                &[
                    computed(BF16, 4, |b, out| {
                        let scales = out.as_chunks_mut::<2>().0.iter_mut().zip(b);
                        scales.for_each(|(out, s)| *out = bf16::from_f32(e4m3_half(*s)).to_le_bytes());
                    }),
                    computed(U8, 32, nvfp4_codes),
                ]
            }
        }
        Kind::IQ4_XS => {
            const {
                &[
                    at(F16, 1, 0),
                    computed(I8, 8, |b, out| fill(out, &blocks::iq4_scales(b), |s| s as u8)),
                    at(U8, 128, 8),
                ]
            }
        }
        Kind::MXFP4 => {
            const { &[computed(BF16, 1, |b, out| out.copy_from_slice(&e8m0_half(b[0]).to_le_bytes())), at(U8, 16, 1)] }
        }
        _ => &[],
    }
}

/// The order of the elements in the planes of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Order {
    pub(super) kind: Kind,
    /// Number of rows that are interleaved.
    pub(super) group: usize,
    /// Blocks per row.
    pub(super) blocks: usize,
    /// Codes are stored as i32 words of four neighbours along a row. If rows are interleaved, the bytes are unsigned
    /// ([`has_signed_codes`]).
    pub(super) words: bool,
}

/// True if the kind's codes are signed bytes. In interleaved words 128 is added to each, since those hold unsigned
/// bytes.
pub(super) fn has_signed_codes(kind: Kind) -> bool {
    kind == Kind::Q8_0
}

impl Order {
    /// Dtype of a plane's elements, and how many a block has as `[runs, len]`. Of the `runs` runs of `len` elements the
    /// first elements of all runs come first, then all second elements: a product processes all runs at once, and so
    /// reads one sequential stream.
    pub(super) fn elements(&self, plane: usize) -> (DType, [usize; 2]) {
        let p = planes(self.kind)[plane];
        if self.words {
            return match packed::has_codes(self.kind, plane) {
                true => (DType::I32, [1, p.n / 4]),
                false => (p.dtype, [1, p.n]),
            };
        }
        // Without interleaved rows the file's order is kept.
        let len = if self.group > 1 { packed::run_of(self.kind, plane, p.n) } else { p.n };
        (p.dtype, [p.n / len, len])
    }

    /// The plane of the blocks in `raw`, computed when its bytes are read.
    pub(super) fn plane(self, raw: &Bytes, plane: usize) -> Bytes {
        let len = raw.len() / self.kind.block_bytes() * planes(self.kind)[plane].bytes();
        Bytes::of(Arc::new(Interleaved { raw: raw.clone(), order: self, plane, len, all: OnceLock::new() }))
    }
}

/// Bytes of a cache line, the smallest of all target machines.
const LINE: usize = 64;

/// A plane as bytes that are computed from the blocks on demand.
struct Interleaved {
    raw: Bytes,
    order: Order,
    plane: usize,
    len: usize,
    /// All bytes, computed if a caller asks for them as a slice in host memory.
    all: OnceLock<Vec<u8>>,
}

impl HostBytes for Interleaved {
    fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> &[u8] {
        self.all.get_or_init(|| {
            let mut all = vec![0; self.len];
            self.write(0, &mut all);
            all
        })
    }

    fn step(&self) -> Option<usize> {
        Some(self.order.group * self.order.blocks * planes(self.order.kind)[self.plane].bytes())
    }

    fn release_hint(&self, _range: Range<usize>) {
        self.raw.release_hint();
    }

    fn write(&self, at: usize, out: &mut [u8]) {
        let (dtype, shape) = self.order.elements(self.plane);
        match dtype.size() {
            1 => self.write_interleaved::<1>(shape, at, out),
            2 => self.write_interleaved::<2>(shape, at, out),
            _ => self.write_interleaved::<4>(shape, at, out),
        }
    }
}

/// Interleaves the words of one block of all rows in a group: first word 0 of every row, then word 1 of every row, and
/// so on. `from` begins at the first row's words; each further row is `row` bytes later. Processes four words of two
/// rows at a time, as pairs in whole registers: one word at a time takes more than twice as long.
fn interleave_words(from: &[u8], row: usize, group: usize, flip: u8, out: &mut [u8]) {
    const LOW: u64 = 0xffff_ffff;
    let flip = u64::from_ne_bytes([flip; 8]);
    let quarters = |out| <[u8]>::as_chunks_mut::<8>(out).0.iter_mut();
    for (k, out) in out.chunks_exact_mut(16 * group).enumerate() {
        let (first, second) = out.split_at_mut(out.len() / 2);
        let (half, other) = (first.len() / 2, second.len() / 2);
        let ((a, b), (c, d)) = (first.split_at_mut(half), second.split_at_mut(other));
        let to = quarters(a).zip(quarters(b)).zip(quarters(c).zip(quarters(d)));
        for (from, ((a, b), (c, d))) in from.chunks(2 * row).zip(to) {
            let words = |r: usize| {
                let four =
                    from.get(r * row + 16 * k..).and_then(|from| from.first_chunk::<16>()).copied().unwrap_or([0; 16]);
                let whole = u128::from_le_bytes(four);
                [whole as u64 ^ flip, (whole >> 64) as u64 ^ flip]
            };
            let ([w, x], [y, z]) = (words(0), words(1));
            *a = (w & LOW | y << 32).to_le_bytes();
            *b = (w >> 32 | y & !LOW).to_le_bytes();
            *c = (x & LOW | z << 32).to_le_bytes();
            *d = (x >> 32 | z & !LOW).to_le_bytes();
        }
    }
}

impl Interleaved {
    /// Writes the plane from byte `at` on, which must be the start of a group of rows, to `out`. Elements have `SIZE`
    /// bytes.
    fn write_interleaved<const SIZE: usize>(&self, [runs, len]: [usize; 2], at: usize, out: &mut [u8]) {
        let Order { kind, group, blocks, words } = self.order;
        let (plane, one) = (planes(kind)[self.plane], kind.block_bytes());
        let (n, row) = (runs * len, blocks * one);
        let to = group * blocks * plane.bytes();
        let flip = if words && has_signed_codes(kind) && packed::has_codes(kind, self.plane) { 0x80 } else { 0 };
        let rows = self.raw.get(at / to * group * row..).unwrap_or(&[]);
        let place = match plane.from {
            From::At(at) => at,
            From::Computed(_) => 0,
        };
        if group == 1 && matches!(plane.from, From::At(_)) {
            for (from, to) in rows.chunks_exact(one).zip(out.chunks_exact_mut(plane.bytes())) {
                from.get(place..place + to.len()).into_iter().for_each(|from| to.copy_from_slice(from));
            }
            return;
        }
        let by_words = SIZE == 4 && runs == 1 && n % 4 == 0 && group % 2 == 0 && matches!(plane.from, From::At(_));
        let mut own = [0; MAX_COMPUTED_BYTES];
        for (from, out) in rows.chunks_exact(group * row).zip(out.chunks_exact_mut(to)) {
            // Load one byte of every cache line in address order first: the loops below jump from row to row, and would
            // wait for each line separately.
            std::hint::black_box(from.iter().step_by(LINE).fold(0, |sum, b| sum ^ b));
            if by_words {
                for (block, out) in out.chunks_exact_mut(n * group * SIZE).enumerate() {
                    interleave_words(from.get(block * one + place..).unwrap_or(&[]), row, group, flip, out);
                }
                continue;
            }
            let out = out.as_chunks_mut::<SIZE>().0;
            // The cache lines of this block in all rows of the group stay in the first-level cache during the loop.
            for (block, out) in out.chunks_exact_mut(n * group).enumerate() {
                let from = from.get(block * one..).unwrap_or(&[]);
                for (place, out) in out.chunks_exact_mut(group).enumerate() {
                    let element = place % runs * len + place / runs;
                    let From::At(at) = plane.from else { break };
                    let from = from.get(at + element * SIZE..).unwrap_or(&[]);
                    for (from, to) in from.chunks(row).zip(&mut *out) {
                        *to = from.first_chunk().copied().unwrap_or(*to);
                    }
                    if flip != 0 {
                        out.as_flattened_mut().iter_mut().for_each(|b| *b ^= flip);
                    }
                }
                let From::Computed(by) = plane.from else { continue };
                for (r, from) in from.chunks(row).take(group).enumerate() {
                    by(from, &mut own[..plane.bytes()]);
                    for (element, x) in own[..plane.bytes()].as_chunks::<SIZE>().0.iter().enumerate() {
                        out[(element % len * runs + element / len) * group + r] = *x;
                    }
                }
            }
        }
    }
}
