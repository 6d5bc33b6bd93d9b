//! Sorting along an axis. All orders are stable (equal elements keep their order), and NaN counts as largest, as in
//! torch.
//!
//! - Axes of at most [`RANK_LIMIT`] elements are sorted by rank: an element's position is the number of elements that
//!   precede it, which takes n^2 comparisons.
//! - Longer axes are sorted by a radix sort, least significant digit first, of unsigned keys in the order of the
//!   elements, of at most 32 bits (two words for 64-bit dtypes): linear work.
//! - For the k largest of many elements, the k-th one is found bit by bit by counting; the elements up to it are
//!   selected and sorted alone. Where it is less work, k minima are found one after the other, or groups of elements
//!   are first selected by their extreme element.

use super::{Tensor, check_axis};
use crate::{DType, Error, Result};

/// The most elements of an axis that is sorted by rank, with n^2 comparisons.
const RANK_LIMIT: usize = 512;
/// Bits of a digit of the radix sort.
const BITS: usize = 8;
/// Elements of a block of the radix sort. Within a block, the position among equal digits is found by comparing all
/// pairs.
const BLOCK: usize = 128;
/// The most elements that are selected one after the other, if a row has at least [`min_row_len_per_k`] times as many
/// elements.
const MAX_SEQUENTIAL_K: usize = 16;
/// The same limit for rows longer than [`RANK_LIMIT`] that are not selected by groups. It is larger, because the
/// alternative needs a kernel for each bit of a key and then has to compact what it selected.
const MAX_SEQUENTIAL_K_LONG_ROWS: usize = 48;
/// The number of elements of all rows from which on it pays to spend more kernels on looking at fewer elements.
const MIN_ELEMS_FOR_GROUPS: usize = 1 << 13;
/// The most elements of a group, whose least key alone decides whether the group is looked at.
const GROUP: usize = 256;
/// The number of pairwise comparisons in all rows from which on it pays to spend more kernels on fewer of them.
const MIN_COMPARISONS_FOR_GROUPS: usize = 1 << 20;
/// Rows that are stored transposed (so that vector lanes are rows) are padded to a multiple of this number, which is
/// the most lanes of any vector.
const LANES: usize = 16;

impl Tensor {
    /// The elements sorted along an axis, and their indices (i32).
    pub fn sort(&self, axis: i64, descending: bool) -> Result<(Tensor, Tensor)> {
        let index = self.argsort(axis, descending)?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// The indices (i32) that sort the elements along an axis.
    pub fn argsort(&self, axis: i64, descending: bool) -> Result<Tensor> {
        self.top_indices("argsort", axis, descending, None)
    }

    /// The `k` largest (or smallest) elements along an axis, sorted, and their indices (i32). `Error::Value` if `k`
    /// exceeds the axis' size.
    pub fn topk(&self, k: usize, axis: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let n = self.dim(axis)?;
        if k > n {
            return Err(Error::value("topk", format!("{k} of an axis of size {n}")));
        }
        let index = self.top_indices("topk", axis, largest, Some(k))?;
        Ok((self.gather(axis, &index)?, index))
    }

    /// As [`Tensor::topk`] of the largest elements of the last axis, for short axes: by comparing each with each.
    pub(crate) fn top_few(&self, k: usize) -> Result<(Tensor, Tensor)> {
        let index = self.detach().rank_order(true, k)?;
        Ok((self.gather(-1, &index)?, index))
    }

    /// The indices of the first `k` elements (all, if `None`) in sorted order; chooses the algorithm.
    fn top_indices(&self, name: &'static str, axis: i64, descending: bool, k: Option<usize>) -> Result<Tensor> {
        let a = check_axis(name, axis, self.rank())? as i64;
        let t = self.detach().move_axis(a, -1)?;
        let n = t.dim(-1)?;
        let k = k.unwrap_or(n);
        let t = if t.dtype() == DType::Bool { t.cast(DType::U8)? } else { t };
        let rows = t.numel() / n.max(1);
        let few =
            k <= MAX_SEQUENTIAL_K && min_row_len_per_k(rows, n) * k <= n || group_size(rows, n, k.max(1)).is_some();
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

    /// Bool: whether `self` strictly precedes `other` in the order.
    fn before(&self, other: &Tensor, descending: bool) -> Result<Tensor> {
        let (x, y) = if descending { (other, self) } else { (self, other) };
        let less = x.lt(y)?;
        if !self.dtype().is_float() {
            return Ok(less);
        }
        less.logical_or(y.isnan()?.logical_and(x.isnan()?.logical_not()?)?)
    }

    /// The indices of the first `k` elements of the last axis in sorted order, by rank.
    fn rank_order(&self, descending: bool, k: usize) -> Result<Tensor> {
        let n = self.dim(-1)?;
        let (x, y) = (self.unsqueeze(-1)?, self.unsqueeze(-2)?);
        let place = Tensor::iota(self.session(), n)?;
        let (i, j) = (place.unsqueeze(-1)?, place.unsqueeze(0)?);
        // y[j] precedes x[i] if it is smaller, or if neither is smaller and j < i
        let first = y.before(&x, descending)?;
        let tied = first.logical_or(x.before(&y, descending)?)?.logical_not()?;
        let ahead = first.logical_or(tied.logical_and(j.lt(&i)?)?)?;
        // the ranks are stored before the scattered write that follows, so that counting is vectorised
        let rank = ahead.cast(DType::I32)?.sum(&[-1], false)?.contiguous();
        place.expand(&rank.shape())?.scatter_unique(-1, &rank, k)
    }

    /// Unsigned keys, of one or two words of at most 32 bits, whose order is that of the elements (reversed if
    /// `descending`): the words, least significant first, and the number of bits of each. `Error::DType` for dtypes
    /// without an order.
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
                // the bits of negative numbers are in descending order
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

    /// The digit of a key that begins at bit `shift`, i32.
    fn digit(&self, shift: usize) -> Result<Tensor> {
        self.shift_right(shift as u32)?.bit_and((1u32 << BITS) - 1)?.cast(DType::I32)
    }

    /// How often each digit occurs along the last axis; values that are not digits are not counted.
    fn digit_counts(&self) -> Result<Tensor> {
        let mut shape = self.shape();
        *shape.last_mut().expect("digits have an axis") = 1 << BITS;
        let zeros = Tensor::zeros(self.session(), DType::I32, &shape)?;
        let ones = Tensor::ones(self.session(), DType::I32, &self.shape())?;
        zeros.scatter(-1, self, &ones, super::ScatterOp::Add)
    }

    /// [`Tensor::select_order`] for a `k` far below `n`: the `k` smallest keys lie in the `k` groups whose least keys
    /// are smallest, so those groups are selected first.
    fn select_in_groups(&self, bits: usize, k: usize, group: usize) -> Result<Tensor> {
        let (rows, n) = (self.dim(0)?, self.dim(1)?);
        let groups = n.div_ceil(group);
        let room = [(0, 0), (0, (groups * group - n) as i64)];
        let key = self.pad(&room, super::PadMode::Constant, u32::MAX)?.reshape(&[rows, groups, group])?.contiguous();
        let chosen = key.min(&[2], false)?.contiguous().select_order(bits, k)?;
        // the groups in the order of their elements, which decides between equal keys
        let chosen = chosen.gather(1, &chosen.rank_order(false, k)?)?.contiguous();
        let near = key.gather(1, &chosen.unsqueeze(-1)?.expand(&[rows, k, group])?)?.reshape(&[rows, k * group])?;
        let at = near.contiguous().select_order(bits, k)?;
        let first = chosen.gather(1, &at.floor_div(group as i32)?)?.mul(group as i32)?;
        first.add(at.modulo(group as i32)?)
    }

    /// [`Tensor::select_order`] by `k` minima: each one is the least key after the previous one, at its first position.
    /// Where there are many rows they are stored transposed, so that vector lanes are rows: no reduction across lanes
    /// is needed, and rows of any length have no tail.
    fn select_sequentially(&self, k: usize) -> Result<Tensor> {
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
                    // only the position is stored, and the key there is loaded again
                    let last = key.gather(1, at)?;
                    let later = key.gt(&last)?.logical_or(key.eq(&last)?.logical_and(place.gt(at)?)?)?;
                    (later.select(&key, u32::MAX)?, Some((last, at)))
                }
            };
            let least = rest.min(&[1], true)?;
            let mut here = key.eq(&least)?;
            if let Some((last, at)) = from {
                // of keys equal to the previous one, those at later positions
                let behind = least.gt(&last)?.select(-1, at)?;
                here = here.logical_and(place.gt(&behind)?)?;
            }
            found.push(here.select(&place, n as i32)?.min(&[1], true)?.contiguous());
        }
        Tensor::cat(&found.iter().collect::<Vec<_>>(), 1)?.narrow(0, 0, rows)
    }

    /// The indices of the `k` smallest keys of each row of `[rows, n]`, in sorted order: `[rows, k]`. The keys have
    /// `bits` bits.
    fn select_order(&self, bits: usize, k: usize) -> Result<Tensor> {
        let (rows, n) = (self.dim(0)?, self.dim(1)?);
        // for a small k, about as many groups as there are elements in the chosen groups
        let even = (n / k).isqrt().next_power_of_two().min(GROUP);
        let group =
            if k <= MAX_SEQUENTIAL_K && n > RANK_LIMIT && rows * n >= MIN_ELEMS_FOR_GROUPS { even } else { GROUP };
        if k <= RANK_LIMIT && 4 * k * group <= n {
            return self.select_in_groups(bits, k, group);
        }
        let groups = group_size(rows, n, k);
        let max_k = if n <= RANK_LIMIT || groups.is_some() { MAX_SEQUENTIAL_K } else { MAX_SEQUENTIAL_K_LONG_ROWS };
        if k <= max_k && min_row_len_per_k(rows, n) * k <= n {
            return self.select_sequentially(k);
        }
        if let Some(group) = groups {
            return self.select_in_groups(bits, k, group);
        }
        if n <= RANK_LIMIT {
            return self.rank_order(false, k);
        }
        let (s, key) = (self.session(), self.contiguous());
        let last = key.key_at(bits, k)?;
        // all smaller keys, and the first of those equal to the k-th
        let less = key.lt(&last)?;
        let left = less.cast(DType::I32)?.sum(&[1], true)?.neg()?.add(k as i32)?.contiguous();
        let equal = key.eq(&last)?;
        let early = equal.cast(DType::I32)?.cumsum(1)?.le(&left)?;
        let taken = less.logical_or(equal.logical_and(early)?)?;
        let place = taken.select(taken.cast(DType::I32)?.cumsum(1)?.sub(1)?, k as i32)?;
        let index = Tensor::iota(s, n)?.unsqueeze(0)?.expand(&[rows, n])?.scatter_unique(1, &place, k)?.contiguous();
        let chosen = key.gather(1, &index)?.contiguous();
        let order = if k <= RANK_LIMIT { chosen.rank_order(false, k)? } else { digit_order(&[(chosen, bits)])? };
        index.gather(1, &order)
    }

    /// The `k`-th smallest key of each row, `[rows, 1]`: the largest number for which fewer than `k` keys are smaller.
    /// Its bits are found from the highest to the lowest, each by counting.
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

/// The size of the groups for [`Tensor::select_in_groups`], or `None` where groups do not pay: comparing the groups'
/// minima and the elements of the chosen groups must be much less work than using all elements. The work of short rows
/// is the square of their length (sorting by rank), that of long rows is linear.
fn group_size(rows: usize, n: usize, k: usize) -> Option<usize> {
    let group = (n / k).isqrt().next_power_of_two().min(GROUP);
    let (first, second) = (n.div_ceil(group), k.saturating_mul(group));
    let pays = match n <= RANK_LIMIT {
        true => {
            2 * (first * first + second * second) <= n * n && rows.saturating_mul(n * n) >= MIN_COMPARISONS_FOR_GROUPS
        }
        false => first.saturating_add(second) <= n / 3,
    };
    (group > 1 && pays).then_some(group)
}

/// How many times `k` a row's length must be at least for [`Tensor::select_sequentially`], which takes a kernel for
/// each element.
fn min_row_len_per_k(rows: usize, n: usize) -> usize {
    match rows * n {
        _ if rows >= LANES => 4,
        MIN_ELEMS_FOR_GROUPS.. => 6,
        _ => 16,
    }
}

/// The indices `[rows, n]` that sort keys, by a radix sort; a key is given as words `[rows, n]`, least significant
/// first.
fn digit_order(words: &[(Tensor, usize)]) -> Result<Tensor> {
    let first = &words[0].0;
    let (s, rows, n) = (first.session(), first.dim(0)?, first.dim(1)?);
    let blocks = n.div_ceil(BLOCK);
    let size = blocks * BLOCK;
    // the padding of the last block has the largest key, and comes last
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
            // before an element: all smaller digits, and equal digits of earlier blocks
            let counts = digit.digit_counts()?.permute(&[0, 2, 1])?.reshape(&[rows, blocks << BITS])?;
            let start = counts.cumsum(1)?.sub(&counts)?.cast(DType::I32)?;
            let at = digit.mul(blocks)?.add(&block)?.reshape(&[rows, size])?;
            let to = start.gather(1, &at)?.add(rank.reshape(&[rows, size])?)?.cast(DType::I32)?.contiguous();
            index = index.scatter_unique(1, &to, size)?;
            if shift + BITS < *bits {
                key = key.scatter_unique(1, &to, size)?;
            }
        }
    }
    index.narrow(1, 0, n)
}
