//! Matrix tiles: small matrices that one instruction multiplies, and how their elements are spread over the threads of a subgroup and over
//! the registers of each. This is data about hardware: no tile is chosen here, and what [`Op::Mma`](super::Op::Mma) computes follows from it.

use smallvec::SmallVec;
use std::fmt;

/// Are there matrix tiles in this build? Those of pages have none, and what is behind this constant is left out of them.
pub const BUILT: bool = cfg!(any(feature = "tiles", test));

/// A side of a product of two matrices, `[m, k]` times `[k, n]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Side {
    /// Rows of the product.
    M,
    /// Columns of the product.
    N,
    /// What is summed over.
    K,
}

/// A digit of a thread's or a register's number. It has `len` values, and a step of it is `step` elements along a side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Digit {
    /// Along which side.
    pub side: Side,
    /// How far.
    pub step: u8,
    /// Values of the digit.
    pub len: u8,
}

/// Where the elements of one matrix are: thread and register give an element's place as the sum of the steps of their digits. The first
/// digit is the fastest. Every element is in one register of one thread, unless the matrix lies in workgroup memory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Spread {
    /// Digits of a thread's number in its subgroup.
    pub threads: SmallVec<[Digit; 2]>,
    /// Digits of a register's number. Each is a tile axis of the values that a thread holds. Of a matrix in memory: digits of an element's
    /// number, of which the first are along the side whose elements are neighbours.
    pub registers: SmallVec<[Digit; 4]>,
    /// Of a matrix in workgroup memory, which threads hold nothing of: rows of each panel that it lies in ([`PANEL`]). 0 for others.
    pub panel: u16,
}

/// Elements of two bytes in a row of a panel: an array in workgroup memory whose rows have 128 bytes, as many as the memory has in all its
/// banks, with the eight pieces of 16 bytes of row `i` in the order of their numbers xor `i mod 8`. Neighbours of one row and pieces of eight
/// rows that stand below each other are in different banks alike. Panels of one array follow each other.
pub const PANEL: usize = 64;
/// Elements of a piece.
pub const PIECE: usize = 8;

/// Where in an array of panels the element lies that would be at this place if pieces kept their order.
pub fn swizzled(at: usize) -> usize {
    at ^ (at / PANEL % 8 * PIECE)
}

/// A matrix tile: the spread of both factors and of the product.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Layout {
    /// The left factor, `[m, k]`.
    pub a: Spread,
    /// The right factor, `[k, n]`.
    pub b: Spread,
    /// The product, `[m, n]`.
    pub c: Spread,
}

/// Elements that a matrix tile may have: a layout may come from a text.
const MOST: usize = 1 << 14;

/// Values of all digits, or more than any tile has.
fn count<'a>(digits: impl IntoIterator<Item = &'a Digit>) -> usize {
    digits.into_iter().fold(1, |n: usize, d| n.saturating_mul(d.len as usize))
}

/// How far along a side a number of these digits is.
fn along(digits: &[Digit], side: Side, mut number: usize) -> usize {
    let mut at = 0;
    for d in digits {
        let len = (d.len as usize).max(1);
        at += if d.side == side { number % len * d.step as usize } else { 0 };
        number /= len;
    }
    at
}

impl Spread {
    /// Does it lie in workgroup memory?
    pub fn in_memory(&self) -> bool {
        self.panel > 0
    }

    /// Digits that are tile axes of what a thread holds.
    pub fn axes(&self) -> &[Digit] {
        if self.in_memory() { &[] } else { &self.registers }
    }

    /// The side whose elements are neighbours in memory.
    pub fn near(&self) -> Option<Side> {
        self.registers.first().filter(|_| self.in_memory()).map(|d| d.side)
    }

    /// Where an element of a matrix in memory is that begins at the element `base` of its array.
    pub fn offset(&self, base: usize, near: usize, far: usize) -> usize {
        swizzled(base + self.far(near, far))
    }

    /// How far from the first one an element would be if pieces kept their order.
    pub fn far(&self, near: usize, far: usize) -> usize {
        far * PANEL + near % PANEL + near / PANEL * PANEL * self.panel as usize
    }

    /// Elements that each thread holds.
    pub fn held(&self) -> usize {
        count(self.axes())
    }

    /// The place along a side of what a thread holds in a register.
    pub fn place(&self, side: Side, thread: usize, register: usize) -> usize {
        along(&self.threads, side, thread) + along(&self.registers, side, register)
    }

    fn len(&self, side: Side) -> usize {
        count(self.threads.iter().chain(&self.registers).filter(|d| d.side == side))
    }

    /// Which thread and register, as `thread * held + register`, has the element at each place of a row-major matrix of these sides;
    /// `None` unless each has exactly one.
    pub fn slots(&self, rows: Side, columns: Side) -> Option<Vec<usize>> {
        let (n, held) = (self.len(columns), count(&self.registers));
        let elems = self.len(rows).saturating_mul(n);
        if elems != count(self.threads.iter().chain(&self.registers)) || !(1..=MOST).contains(&elems) {
            return None;
        }
        let mut slots = vec![usize::MAX; elems];
        for slot in 0..slots.len() {
            let (row, column) =
                (self.place(rows, slot / held, slot % held), self.place(columns, slot / held, slot % held));
            let place = slots.get_mut(row * n + column).filter(|s| column < n && **s == usize::MAX)?;
            *place = slot;
        }
        Some(slots)
    }
}

impl Layout {
    /// Elements along a side.
    pub fn len(&self, side: Side) -> usize {
        if side == Side::K { self.a.len(side) } else { self.c.len(side) }
    }

    /// Threads of the subgroup that multiplies together; 1 where a thread multiplies alone.
    pub fn threads(&self) -> usize {
        count(&self.c.threads)
    }

    /// Does each of the three matrices have its sides, and each element its place?
    pub fn is_whole(&self) -> bool {
        use Side::{K, M, N};
        let spreads = [(&self.a, M, K), (&self.b, K, N), (&self.c, M, N)];
        spreads.iter().all(|&(s, rows, columns)| {
            let sizes = s.len(rows) == self.len(rows) && s.len(columns) == self.len(columns);
            let held = count(&s.threads) == if s.in_memory() { 1 } else { self.threads() };
            sizes && held && s.slots(rows, columns).is_some()
        }) && !self.c.in_memory()
            && (self.b.in_memory() || !self.a.in_memory())
    }

    /// Does the right factor lie in workgroup memory? The left one does, too, or threads hold it.
    pub fn in_memory(&self) -> bool {
        self.b.in_memory()
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn read(text: &str) -> Option<Layout> {
        if !BUILT {
            return None;
        }
        let digits = |list: &str| list.split_whitespace().map(digit).collect::<Option<Vec<_>>>();
        let mut spreads = text.split(';').map(|spread| {
            if let Some((list, rows)) = spread.split_once('@') {
                let panel = rows.trim().parse().ok().filter(|&n| n > 0)?;
                return Some(Spread { threads: SmallVec::new(), registers: digits(list)?.into(), panel });
            }
            let (threads, registers) = spread.split_once('|')?;
            Some(Spread { threads: digits(threads)?.into(), registers: digits(registers)?.into(), panel: 0 })
        });
        let mut next = || spreads.next()?;
        let layout = Layout { a: next()?, b: next()?, c: next()? };
        spreads.next().is_none().then_some(layout)
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

/// The three spreads, each as digits of threads and digits of registers: `k2x4 m1x8 | k1x2 m8x2` is a thread's number of which the first
/// digit has 4 values, each 2 further along k, and the second 8, each the next row; and four registers. `k1x16 m1x64 @64` lies in panels of
/// 64 rows, with neighbours along k.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !BUILT {
            return Ok(());
        }
        let list = |digits: &[Digit]| {
            let name = |side| ["m", "n", "k"][side as usize];
            digits.iter().map(|d| format!("{}{}x{} ", name(d.side), d.step, d.len)).collect::<String>()
        };
        let spreads = [&self.a, &self.b, &self.c].map(|s| match s.panel {
            0 => format!("{}| {}", list(&s.threads), list(&s.registers)),
            rows => format!("{}@{rows}", list(&s.registers)),
        });
        f.write_str(spreads.map(|s| s.trim().to_string()).join("; ").as_str())
    }
}
