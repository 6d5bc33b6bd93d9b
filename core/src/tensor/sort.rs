//! Sorting along an axis, stable: equal elements keep their order, NaN counts as largest (as torch).
//!
//! Short axes are sorted by rank: an element goes to the place that is the number of elements before it, with n^2
//! comparisons. Long ones by the digits of keys of 32 bits, whose order is that of the elements, least digit first: linear.
//! The largest of many are those up to the last one of them, whose bits are found by counting, and are sorted alone; where that is less work,
//! groups are chosen by their largest elements first, and a few elements are looked for one after the other.

use super::{Tensor, check_axis};
use crate::{DType, Error, Result};

/// Longest axis sorted by counting ranks.
const RANK_LIMIT: usize = 512;
/// Bits of a digit.
const BITS: usize = 8;
/// Elements of a block, whose equal digits are counted pair by pair.
const BLOCK: usize = 128;
/// As many of the largest elements are looked for one after the other, if a row has [`few_of`] times as many.
const FEW: usize = 16;
/// As many of long rows, for which the other way is a kernel for each bit of a key, and putting what it finds side by side.
const DOZENS: usize = 48;
/// Elements of all rows from which on looking at fewer of them is worth more kernels.
const MANY: usize = 1 << 13;
/// Elements, at most, of which only the least one decides whether the others are looked at.
const GROUP: usize = 256;
/// Comparisons of all rows, of elements with each other, that are worth more kernels.
const PAIRS: usize = 1 << 20;
/// Rows whose elements lie side by side come to a multiple of this many: as many as lanes of any vector.
const LANES: usize = 16;

impl Tensor {
    /// Sorted values and their indices (i32) along an axis.
    pub fn sort(&self, axis: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let index = self.argsort(axis, descending)?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// Indices (i32) that sort an axis.
    pub fn argsort(&self, axis: i64, descending: bool) -> Result<Tensor> {
        self.top_indices("argsort", axis, descending, None)
    }

    /// The `k` largest (or smallest) elements along an axis, in order, and their indices (i32).
    pub fn topk(&self, k: usize, axis: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let n = self.dim(axis)?;
        if k > n {
            return Err(Error::value("topk", format!("{k} of an axis of size {n}")));
        }
        let index = self.top_indices("topk", axis, largest, Some(k))?;
        Ok((self.gather(axis, &index)?, index))
    }

    fn top_indices(&self, name: &'static str, axis: i64, descending: bool, k: Option<usize>) -> Result<Tensor> {
        let a = check_axis(name, axis, self.rank())? as i64;
        let t = self.detach().move_axis(a, -1)?;
        let n = t.dim(-1)?;
        let k = k.unwrap_or(n);
        let t = if t.dtype() == DType::Bool { t.cast(DType::U8)? } else { t };
        let rows = t.numel() / n.max(1);
        let few = k <= FEW && few_of(rows, n) * k <= n || in_groups(rows, n, k.max(1)).is_some();
        let few = few && t.dtype().size() <= 4;
        if n <= RANK_LIMIT && !few || t.numel() == 0 || k == 0 {
            return t.rank_order(descending, k)?.move_axis(-1, a);
        }
        let lead = t.shape()[..t.rank() - 1].to_vec();
        let words = t.reshape(&[t.numel() / n, n])?.sort_keys(descending)?;
        let index = match words.as_slice() {
            [(key, bits)] if 4 * k <= n => key.select_order(*bits, k)?,
            _ => digit_order(&words)?.narrow(-1, 0, k)?,
        };
        let mut shape = lead;
        shape.push(k);
        index.reshape(&shape)?.move_axis(-1, a)
    }

    /// Is `self` strictly before `other` in the order?
    fn before(&self, other: &Tensor, descending: bool) -> Result<Tensor> {
        let (x, y) = if descending { (other, self) } else { (self, other) };
        let less = x.lt(y)?;
        if !self.dtype().is_float() {
            return Ok(less);
        }
        less.logical_or(y.isnan()?.logical_and(x.isnan()?.logical_not()?)?)
    }

    fn rank_order(&self, descending: bool, k: usize) -> Result<Tensor> {
        let n = self.dim(-1)?;
        let (x, y) = (self.unsqueeze(-1)?, self.unsqueeze(-2)?);
        let place = Tensor::iota(self.session(), n)?;
        let (i, j) = (place.unsqueeze(-1)?, place.unsqueeze(0)?);
        // y[j] goes before x[i] if it is smaller, or neither is and j < i
        let first = y.before(&x, descending)?;
        let tied = first.logical_or(x.before(&y, descending)?)?.logical_not()?;
        let ahead = first.logical_or(tied.logical_and(j.lt(&i)?)?)?;
        // counts apart from the scattered write that follows: they are vectors' work
        let rank = ahead.cast(DType::I32)?.sum(&[-1], false)?.contiguous();
        place.expand(&rank.shape())?.moved_to(-1, &rank, k)
    }

    /// Unsigned words of at most 32 bits each, the least one first, that are in the order of the elements, and their bits.
    fn sort_keys(&self, descending: bool) -> Result<Vec<(Tensor, usize)>> {
        use DType::*;
        let words = match self.dtype() {
            U8 => vec![(self.cast(U32)?, 8)],
            U16 => vec![(self.cast(U32)?, 16)],
            U32 => vec![(self.clone(), 32)],
            I8 => vec![(self.cast(I32)?.add(128)?.cast(U32)?, 8)],
            I16 => vec![(self.cast(I32)?.add(32768)?.cast(U32)?, 16)],
            I32 => vec![(self.bitcast(U32)?.bit_xor(1u32 << 31)?, 32)],
            F16 | BF16 => return self.cast(F32)?.sort_keys(descending),
            F32 => {
                // zeros are equal, whatever their sign
                let bits = self.eq(0.0)?.select(0.0, self)?.bitcast(U32)?;
                let negative = bits.ge(1u32 << 31)?;
                let key = bits.bit_xor(negative.select(bits.full_like(u32::MAX)?, 1u32 << 31)?)?;
                vec![(self.isnan()?.select(u32::MAX, key)?, 32)]
            }
            F64 => {
                let bits = self.eq(0.0)?.select(0.0, self)?.bitcast(I64)?;
                // those of negative numbers fall
                let key = bits.lt(0)?.select(bits.bit_xor(i64::MAX)?, &bits)?;
                let key = self.isnan()?.select(i64::MAX, key)?;
                return key.sort_keys(descending);
            }
            I64 | U64 => {
                let bits = self.bitcast(U64)?;
                let (low, high) = (bits.cast(U32)?, bits.shift_right(32)?.cast(U32)?);
                let sign = if self.dtype() == I64 { 1u32 << 31 } else { 0 };
                vec![(low, 32), (high.bit_xor(sign)?, 32)]
            }
            dtype => return Err(Error::DType { op: "sort", dtype, why: "it has no order".into() }),
        };
        let turned = |(key, bits): (Tensor, usize)| {
            let ones = if bits == 32 { u32::MAX } else { (1u32 << bits) - 1 };
            Ok((if descending { key.bit_xor(ones)? } else { key }, bits))
        };
        words.into_iter().map(turned).collect()
    }

    /// The digit of a key from bit `shift`, i32.
    fn digit(&self, shift: usize) -> Result<Tensor> {
        self.shift_right(shift as u32)?.bit_and((1u32 << BITS) - 1)?.cast(DType::I32)
    }

    /// How often each digit occurs along the last axis; numbers that are none do not count.
    fn digit_counts(&self) -> Result<Tensor> {
        let mut shape = self.shape();
        *shape.last_mut().expect("digits have an axis") = 1 << BITS;
        let zeros = Tensor::zeros(self.session(), DType::I32, &shape)?;
        let ones = Tensor::ones(self.session(), DType::I32, &self.shape())?;
        zeros.scatter(-1, self, &ones, super::ScatterOp::Add)
    }

    /// The same for a `k` that is far less than `n`: the smallest keys lie in the `k` groups whose least keys are smallest.
    fn select_in_groups(&self, bits: usize, k: usize, group: usize) -> Result<Tensor> {
        let (rows, n) = (self.dim(0)?, self.dim(1)?);
        let groups = n.div_ceil(group);
        let room = [(0, 0), (0, (groups * group - n) as i64)];
        let key = self.pad(&room, super::PadMode::Constant, u32::MAX)?.reshape(&[rows, groups, group])?.contiguous();
        let chosen = key.min(&[2], false)?.contiguous().select_order(bits, k)?;
        // in the order of their elements, which decides between equal ones
        let chosen = chosen.gather(1, &chosen.rank_order(false, k)?)?.contiguous();
        let near = key.gather(1, &chosen.unsqueeze(-1)?.expand(&[rows, k, group])?)?.reshape(&[rows, k * group])?;
        let at = near.contiguous().select_order(bits, k)?;
        let first = chosen.gather(1, &at.floor_div(group as i32)?)?.mul(group as i32)?;
        first.add(at.modulo(group as i32)?)
    }

    /// The same, one after the other: the least of what comes after the one before, and the first place where that is. Many rows lie side by
    /// side in memory for that, so that lanes are rows: nothing is combined across lanes, and rows of any length have no rest.
    fn select_each(&self, k: usize) -> Result<Tensor> {
        let (rows, n) = (self.dim(0)?, self.dim(1)?);
        let key = if rows < LANES {
            self.contiguous()
        } else {
            let room = (rows.next_multiple_of(LANES) - rows) as i64;
            let key = self.pad(&[(0, room), (0, 0)], super::PadMode::Constant, u32::MAX)?;
            key.transpose(0, 1)?.contiguous().transpose(0, 1)?
        };
        let place = Tensor::iota(self.session(), n)?.unsqueeze(0)?;
        let mut found: Vec<Tensor> = Vec::new();
        for _ in 0..k {
            let (rest, from) = match found.last() {
                None => (key.clone(), None),
                Some(at) => {
                    // one place says it all: the key there is read again, and only it is stored
                    let last = key.gather(1, at)?;
                    let later = key.gt(&last)?.logical_or(key.eq(&last)?.logical_and(place.gt(at)?)?)?;
                    (later.select(&key, u32::MAX)?, Some((last, at)))
                }
            };
            let least = rest.min(&[1], true)?;
            let mut here = key.eq(&least)?;
            if let Some((last, at)) = from {
                // of keys that are equal to the one before, those behind it
                let behind = least.gt(&last)?.select(-1, at)?;
                here = here.logical_and(place.gt(&behind)?)?;
            }
            found.push(here.select(&place, n as i32)?.min(&[1], true)?.contiguous());
        }
        Tensor::cat(&found.iter().collect::<Vec<_>>(), 1)?.narrow(0, 0, rows)
    }

    /// Indices of the `k` smallest keys `[rows, n]`, in their order.
    fn select_order(&self, bits: usize, k: usize) -> Result<Tensor> {
        let (rows, n) = (self.dim(0)?, self.dim(1)?);
        // of a few about as many groups as elements in those that are chosen
        let even = (n / k).isqrt().next_power_of_two().min(GROUP);
        let group = if k <= FEW && n > RANK_LIMIT && rows * n >= MANY { even } else { GROUP };
        if k <= RANK_LIMIT && 4 * k * group <= n {
            return self.select_in_groups(bits, k, group);
        }
        let groups = in_groups(rows, n, k);
        let few = if n <= RANK_LIMIT || groups.is_some() { FEW } else { DOZENS };
        if k <= few && few_of(rows, n) * k <= n {
            return self.select_each(k);
        }
        if let Some(group) = groups {
            return self.select_in_groups(bits, k, group);
        }
        if n <= RANK_LIMIT {
            return self.rank_order(false, k);
        }
        let (s, key) = (self.session(), self.contiguous());
        let last = key.key_at(bits, k)?;
        // what is smaller, and of what is equal the first
        let less = key.lt(&last)?;
        let left = less.cast(DType::I32)?.sum(&[1], true)?.neg()?.add(k as i32)?.contiguous();
        let equal = key.eq(&last)?;
        let early = equal.cast(DType::I32)?.cumsum(1)?.le(&left)?;
        let taken = less.logical_or(equal.logical_and(early)?)?;
        let place = taken.select(taken.cast(DType::I32)?.cumsum(1)?.sub(1)?, k as i32)?;
        let index = Tensor::iota(s, n)?.unsqueeze(0)?.expand(&[rows, n])?.moved_to(1, &place, k)?.contiguous();
        let chosen = key.gather(1, &index)?.contiguous();
        let order = if k <= RANK_LIMIT { chosen.rank_order(false, k)? } else { digit_order(&[(chosen, bits)])? };
        index.gather(1, &order)
    }

    /// The `k`-th smallest of the keys of each row, `[rows, 1]`: the largest number than which fewer keys are smaller. Its bits are found one
    /// after the other, the upper ones first, by counting.
    fn key_at(&self, bits: usize, k: usize) -> Result<Tensor> {
        let mut last = Tensor::zeros(self.session(), DType::U32, &[self.dim(0)?, 1])?;
        for bit in (0..bits).rev() {
            let more = last.bit_or(1u32 << bit)?;
            let smaller = self.lt(&more)?.cast(DType::I32)?.sum(&[1], true)?;
            last = smaller.lt(k as i32)?.select(&more, &last)?.contiguous();
        }
        Ok(last)
    }
}

/// Elements of the groups in which the `k` smallest of `n` are looked for first, where these and what lies in the chosen ones are much less than
/// all: of short rows, whose elements are compared with each other, and of long ones, which are gone through in order.
fn in_groups(rows: usize, n: usize, k: usize) -> Option<usize> {
    let group = (n / k).isqrt().next_power_of_two().min(GROUP);
    let (first, second) = (n.div_ceil(group), k.saturating_mul(group));
    let pays = match n <= RANK_LIMIT {
        true => 2 * (first * first + second * second) <= n * n && rows.saturating_mul(n * n) >= PAIRS,
        false => first.saturating_add(second) <= n / 3,
    };
    (group > 1 && pays).then_some(group)
}

/// How many times as many elements as are looked for a row of `n` has at least, if they are found one after the other: each takes a kernel.
fn few_of(rows: usize, n: usize) -> usize {
    match rows * n {
        _ if rows >= LANES => 4,
        MANY.. => 6,
        _ => 16,
    }
}

/// Indices that sort keys `[rows, n]`, given as words, the least one first.
fn digit_order(words: &[(Tensor, usize)]) -> Result<Tensor> {
    let first = &words[0].0;
    let (s, rows, n) = (first.session(), first.dim(0)?, first.dim(1)?);
    let blocks = n.div_ceil(BLOCK);
    let size = blocks * BLOCK;
    // what fills the last block has the largest key and comes last
    let fill = |key: &Tensor| key.pad(&[(0, 0), (0, (size - n) as i64)], super::PadMode::Constant, u32::MAX);
    let place = Tensor::iota(s, BLOCK)?;
    let earlier = place.unsqueeze(0)?.lt(place.unsqueeze(1)?)?;
    let block = Tensor::iota(s, blocks)?.unsqueeze(1)?;
    let mut index = Tensor::iota(s, size)?.unsqueeze(0)?.expand(&[rows, size])?;
    for (i, (key, bits)) in words.iter().enumerate() {
        let mut key = fill(key)?;
        if i > 0 {
            key = key.gather(1, &index)?;
        }
        for shift in (0..*bits).step_by(BITS) {
            let digit = key.digit(shift)?.reshape(&[rows, blocks, BLOCK])?.contiguous();
            let same = digit.unsqueeze(-1)?.eq(digit.unsqueeze(-2)?)?.logical_and(&earlier)?;
            let rank = same.cast(DType::I32)?.sum(&[-1], false)?.contiguous();
            // elements with smaller digits, and those of earlier blocks
            let counts = digit.digit_counts()?.permute(&[0, 2, 1])?.reshape(&[rows, blocks << BITS])?;
            let start = counts.cumsum(1)?.sub(&counts)?.cast(DType::I32)?;
            let at = digit.mul(blocks)?.add(&block)?.reshape(&[rows, size])?;
            let to = start.gather(1, &at)?.add(rank.reshape(&[rows, size])?)?.cast(DType::I32)?.contiguous();
            index = index.moved_to(1, &to, size)?;
            if shift + BITS < *bits {
                key = key.moved_to(1, &to, size)?;
            }
        }
    }
    index.narrow(1, 0, n)
}
