//! Stable sorting by one instance of the standard library's sort. Each type and closure that std's sort is called with
//! makes another instance of about 4 kB, and the compiler sorts in some sixty places: that was a seventeenth of all
//! code in the browser's package.

use smallvec::SmallVec;
use std::cmp::Ordering;

/// Lists of at most this many elements are sorted by insertion, without allocating.
const FEW: usize = 16;

/// Sorts from the least to the greatest.
pub fn ascending<T: Ord>(list: &mut [T]) {
    by(list, T::cmp);
}

/// Sorts by a key, which is recomputed for every comparison.
pub fn by_key<T, K: Ord>(list: &mut [T], key: impl Fn(&T) -> K) {
    by(list, |a, b| key(a).cmp(&key(b)));
}

/// Sorts by a comparison.
pub fn by<T>(list: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut from = order(list.len(), &|a, b| compare(&list[a], &list[b]));
    // apply the permutation by swaps along its cycles
    for start in 0..list.len() {
        let mut at = start;
        while from[at] != start {
            let next = from[at];
            list.swap(at, next);
            from[at] = at;
            at = next;
        }
        from[at] = at;
    }
}

/// The indices of the list's elements in sorted order.
fn order(len: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> SmallVec<[usize; FEW]> {
    let mut places: SmallVec<[usize; FEW]> = (0..len).collect();
    if len > FEW {
        places.sort_by(|&a, &b| compare(a, b));
        return places;
    }
    for end in 1..len {
        let mut at = end;
        while at > 0 && compare(places[at], places[at - 1]).is_lt() {
            places.swap(at, at - 1);
            at -= 1;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_are_sorted_and_equals_keep_their_order() {
        for len in [0usize, 1, 2, 3, 15, 16, 17, 18, 40, 1000] {
            let list: Vec<(u64, usize)> = (0..len).map(|i| ((i as u64 * 2_654_435_761) >> 7 & 31, i)).collect();
            let (mut mine, mut std) = (list.clone(), list);
            by_key(&mut mine, |x| x.0);
            std.sort_by_key(|x| x.0);
            assert_eq!(mine, std);
            by(&mut mine, |a, b| b.1.cmp(&a.1));
            std.sort_by(|a, b| b.1.cmp(&a.1));
            assert_eq!(mine, std);
            ascending(&mut mine);
            std.sort();
            assert_eq!(mine, std);
        }
    }
}
