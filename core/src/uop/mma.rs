//! Matrix tiles: small matrices that one GPU instruction multiplies, and how their elements are distributed over the
//! threads of a subgroup and the registers of each thread. A [`Layout`] describes one hardware instruction and is the
//! argument of [`Op::Mma`](super::Op::Mma), whose result it defines. Which tile a kernel uses is decided elsewhere.
//!
//! Numbers of threads and registers are written as mixed-radix numbers: `k2x4 m1x8` describes a thread's number whose
//! first (fastest) digit has 4 values, each 2 elements further along side k, and whose second digit has 8 values, each
//! one further along side m. So thread 5 = 1 + 4 * 1 holds elements that begin at k = 2, m = 1.

use smallvec::SmallVec;
use std::fmt;

/// Does this build support matrix tiles? Builds for the browser do not: the code guarded by this constant is left out
/// of them.
pub const MATRIX_TILES_ENABLED: bool = cfg!(any(feature = "tiles", test));

/// A dimension of a product of two matrices, `[m, k]` times `[k, n]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Side {
    /// Rows of the product.
    M,
    /// Columns of the product.
    N,
    /// The dimension that is summed over.
    K,
}

/// One digit of a thread's or a register's number in mixed radix: it has `len` values, and increasing it by one moves
/// `step` elements along a side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Digit {
    /// The side along which it moves.
    pub side: Side,
    /// Elements per step.
    pub step: u8,
    /// Number of values of the digit (its radix).
    pub len: u8,
}

/// The distribution of the elements of one matrix: a thread's number and a register's number give an element's
/// coordinates, as the sum over their digits of value times step. The first digit is the fastest. Every element is in
/// exactly one register of one thread, unless the matrix lies in workgroup memory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Distribution {
    /// Digits of a thread's number in its subgroup.
    pub threads: SmallVec<[Digit; 2]>,
    /// Digits of a register's number. Each is a tile axis of the values that a thread holds. For a matrix in workgroup
    /// memory: digits of an element's number, the first of which is along the side that is contiguous in memory.
    pub registers: SmallVec<[Digit; 4]>,
    /// For a matrix in workgroup memory, none of which is in registers: the number of rows of each panel that it lies
    /// in ([`PANEL_ROW_ELEMS`]). 0 for a matrix in registers.
    pub panel: u16,
}

/// Elements (of two bytes) in a row of a panel. A panel is an array in workgroup memory whose rows have 128 bytes,
/// which is one word of each memory bank, in a swizzled order: a row consists of eight chunks of 16 bytes, and chunk
/// `p` of row `i` is stored at position `p xor (i mod 8)`. So neither reading along a row nor reading the same chunk of
/// eight consecutive rows has bank conflicts. A matrix with longer rows is cut into several panels, which follow each
/// other in memory.
pub const PANEL_ROW_ELEMS: usize = 64;
/// Elements of one chunk of a panel's row (16 bytes).
pub const SWIZZLE_CHUNK_ELEMS: usize = 8;

/// The swizzled position, in an array of panels, of the element that would be at position `at` without swizzling.
pub fn swizzled(at: usize) -> usize {
    at ^ (at / PANEL_ROW_ELEMS % 8 * SWIZZLE_CHUNK_ELEMS)
}

/// The layout of a matrix tile: the distribution of both factors and of the product.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Layout {
    /// The left factor, `[m, k]`.
    pub a: Distribution,
    /// The right factor, `[k, n]`.
    pub b: Distribution,
    /// The product, `[m, n]`.
    pub c: Distribution,
}

/// The most elements that a matrix of a tile may have. It bounds the work on layouts, since they may be parsed from a
/// text that is not trusted.
const MAX_TILE_ELEMS: usize = 1 << 14;

/// The number of values of a number with these digits: the product of their lengths, which saturates.
fn count<'a>(digits: impl IntoIterator<Item = &'a Digit>) -> usize {
    digits.into_iter().fold(1, |n: usize, d| n.saturating_mul(d.len as usize))
}

/// The coordinate along `side` that `number`, written in these digits, stands for.
fn coordinate_of(digits: &[Digit], side: Side, mut number: usize) -> usize {
    let mut at = 0;
    for d in digits {
        let len = (d.len as usize).max(1);
        at += if d.side == side { number % len * d.step as usize } else { 0 };
        number /= len;
    }
    at
}

impl Distribution {
    /// Does it lie in workgroup memory?
    pub fn in_memory(&self) -> bool {
        self.panel > 0
    }

    /// The digits that are tile axes of a thread's value: those of the register's number, none for a matrix in memory.
    pub fn axes(&self) -> &[Digit] {
        if self.in_memory() { &[] } else { &self.registers }
    }

    /// For a matrix in workgroup memory: the side along which elements are contiguous. `None` for one in registers.
    pub fn contiguous_side(&self) -> Option<Side> {
        self.registers.first().filter(|_| self.in_memory()).map(|d| d.side)
    }

    /// The position in its array of an element of a matrix in workgroup memory. The matrix begins at position `base`;
    /// `along` is the element's coordinate along the contiguous side ([`Distribution::contiguous_side`]), and `across`
    /// that along the other side.
    pub fn swizzled_offset(&self, base: usize, along: usize, across: usize) -> usize {
        swizzled(base + self.linear_offset(along, across))
    }

    /// The offset of that element from the beginning of its matrix without swizzling, in elements.
    pub fn linear_offset(&self, along: usize, across: usize) -> usize {
        let (panel, column) = (along / PANEL_ROW_ELEMS, along % PANEL_ROW_ELEMS);
        across * PANEL_ROW_ELEMS + column + panel * PANEL_ROW_ELEMS * self.panel as usize
    }

    /// Number of elements that each thread holds in registers.
    pub fn held(&self) -> usize {
        count(self.axes())
    }

    /// The coordinate along `side` of the element that a thread holds in a register.
    pub fn coordinate(&self, side: Side, thread: usize, register: usize) -> usize {
        coordinate_of(&self.threads, side, thread) + coordinate_of(&self.registers, side, register)
    }

    fn len(&self, side: Side) -> usize {
        count(self.threads.iter().chain(&self.registers).filter(|d| d.side == side))
    }

    /// For each element of the matrix with these sides, in row-major order, the thread and register that hold it, as
    /// `thread * held + register`. `None` unless every element is held exactly once.
    pub fn slots(&self, rows: Side, columns: Side) -> Option<Vec<usize>> {
        let (n, held) = (self.len(columns), count(&self.registers));
        let elems = self.len(rows).saturating_mul(n);
        if elems != count(self.threads.iter().chain(&self.registers)) || !(1..=MAX_TILE_ELEMS).contains(&elems) {
            return None;
        }
        let mut slots = vec![usize::MAX; elems];
        for slot in 0..slots.len() {
            let (thread, register) = (slot / held, slot % held);
            let (row, column) = (self.coordinate(rows, thread, register), self.coordinate(columns, thread, register));
            let owner = slots.get_mut(row * n + column).filter(|s| column < n && **s == usize::MAX)?;
            *owner = slot;
        }
        Some(slots)
    }
}

impl Layout {
    /// Number of elements along a side.
    pub fn len(&self, side: Side) -> usize {
        if side == Side::K { self.a.len(side) } else { self.c.len(side) }
    }

    /// Number of threads that compute one product together; 1 where each thread computes its own.
    pub fn threads(&self) -> usize {
        count(&self.c.threads)
    }

    /// Is the layout consistent? The sides of the three matrices agree, every element is held exactly once, by as many
    /// threads as the product has, and only the right factor or both factors lie in workgroup memory.
    pub fn is_consistent(&self) -> bool {
        use Side::{K, M, N};
        let distributions = [(&self.a, M, K), (&self.b, K, N), (&self.c, M, N)];
        distributions.iter().all(|&(s, rows, columns)| {
            let sizes = s.len(rows) == self.len(rows) && s.len(columns) == self.len(columns);
            let held = count(&s.threads) == if s.in_memory() { 1 } else { self.threads() };
            sizes && held && s.slots(rows, columns).is_some()
        }) && !self.c.in_memory()
            && (self.b.in_memory() || !self.a.in_memory())
    }

    /// Does the right factor lie in workgroup memory? The left factor then lies there as well or is held in registers.
    pub fn in_memory(&self) -> bool {
        self.b.in_memory()
    }

    /// Parses the text that [`fmt::Display`] writes.
    pub fn read(text: &str) -> Option<Layout> {
        if !MATRIX_TILES_ENABLED {
            return None;
        }
        let digits = |list: &str| list.split_whitespace().map(digit).collect::<Option<Vec<_>>>();
        let mut distributions = text.split(';').map(|part| {
            if let Some((list, rows)) = part.split_once('@') {
                let panel = rows.trim().parse().ok().filter(|&n| n > 0)?;
                return Some(Distribution { threads: SmallVec::new(), registers: digits(list)?.into(), panel });
            }
            let (threads, registers) = part.split_once('|')?;
            Some(Distribution { threads: digits(threads)?.into(), registers: digits(registers)?.into(), panel: 0 })
        });
        let mut next = || distributions.next()?;
        let layout = Layout { a: next()?, b: next()?, c: next()? };
        distributions.next().is_none().then_some(layout)
    }
}

fn digit(text: &str) -> Option<Digit> {
    let (step, len) = text.get(1..)?.split_once('x')?;
    let side = match text.as_bytes()[0] {
        b'm' => Side::M,
        b'n' => Side::N,
        b'k' => Side::K,
        _ => return None,
    };
    Some(Digit { side, step: step.parse().ok()?, len: len.parse().ok()? })
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The three distributions, separated by semicolons, each as the digits of a thread's number, a bar, and those of a
/// register's number. `k2x4 m1x8 | k1x2 m8x2` has 32 threads: the first digit of a thread's number has 4 values, each 2
/// further along k, and the second has 8, each one row further along m; each thread holds four registers.
/// `k1x16 m1x64 @64` is a matrix in workgroup memory, in panels of 64 rows, contiguous along k.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !MATRIX_TILES_ENABLED {
            return Ok(());
        }
        let list = |digits: &[Digit]| {
            let name = |side| ["m", "n", "k"][side as usize];
            digits.iter().map(|d| format!("{}{}x{} ", name(d.side), d.step, d.len)).collect::<String>()
        };
        let distributions = [&self.a, &self.b, &self.c].map(|s| match s.panel {
            0 => format!("{}| {}", list(&s.threads), list(&s.registers)),
            rows => format!("{}@{rows}", list(&s.registers)),
        });
        f.write_str(distributions.map(|s| s.trim().to_string()).join("; ").as_str())
    }
}
