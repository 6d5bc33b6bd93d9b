//! Finds which axes a reshape merges and splits. In: the two shapes. Out: minimal groups of adjacent axes that hold the
//! same elements on both sides. For example `[6, 4] -> [2, 3, 4]` has the groups `[6] -> [2, 3]` and `[4] -> [4]`.
//! Facts about an axis are carried over a reshape by its group.

use smallvec::SmallVec;
use std::ops::Range;

/// Axes of both sides that hold the same elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// Axes of the first shape.
    pub(crate) from: Range<usize>,
    /// Axes of the second shape.
    pub(crate) to: Range<usize>,
}

impl Group {
    /// Is the group one axis that the reshape leaves as it is?
    pub(crate) fn is_axis(&self) -> bool {
        self.from.len() == 1 && self.to.len() == 1
    }
}

/// The groups of two shapes with the same number of elements, in order. Trailing axes of length 1 may form a group that
/// is empty on the other side. If there are no elements, all axes are one group.
pub(crate) fn groups(from: &[usize], to: &[usize]) -> SmallVec<[Group; 6]> {
    let (m, n) = (from.len(), to.len());
    let mut out = SmallVec::new();
    if from.contains(&0) || to.contains(&0) {
        out.push(Group { from: 0..m, to: 0..n });
        return out;
    }
    let next = |shape: &[usize], at: &mut usize| {
        let len = shape.get(*at).copied();
        *at += usize::from(len.is_some());
        len.unwrap_or(1)
    };
    let (mut i, mut j) = (0, 0);
    while i < m || j < n {
        let (first, second) = (i, j);
        let (mut a, mut b) = (next(from, &mut i), next(to, &mut j));
        while a != b && (i < m || j < n) {
            if a < b && i < m || j == n {
                a = a.saturating_mul(next(from, &mut i));
            } else {
                b = b.saturating_mul(next(to, &mut j));
            }
        }
        out.push(Group { from: first..i, to: second..j });
    }
    out
}

/// The group that contains an axis of the second shape.
pub(crate) fn group_of(from: &[usize], to: &[usize], axis: usize) -> Group {
    let found = groups(from, to).into_iter().find(|g| g.to.contains(&axis));
    found.unwrap_or(Group { from: 0..from.len(), to: 0..to.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(from: &[usize], to: &[usize]) -> Vec<String> {
        groups(from, to).iter().map(|g| format!("{:?} {:?}", &from[g.from.clone()], &to[g.to.clone()])).collect()
    }

    #[test]
    fn groups_are_as_small_as_can_be() {
        assert_eq!(text(&[2, 3, 4], &[2, 12]), ["[2] [2]", "[3, 4] [12]"]);
        assert_eq!(text(&[6, 4], &[2, 3, 4]), ["[6] [2, 3]", "[4] [4]"]);
        assert_eq!(text(&[4, 6], &[8, 3]), ["[4, 6] [8, 3]"]);
        assert_eq!(text(&[2, 3], &[2, 1, 3, 1]), ["[2] [2]", "[3] [1, 3]", "[] [1]"]);
        assert_eq!(text(&[1, 5], &[5]), ["[1, 5] [5]"]);
        assert_eq!(text(&[], &[1, 1]), ["[] [1]", "[] [1]"]);
        assert_eq!(text(&[3, 0], &[0, 7]), ["[3, 0] [0, 7]"]);
        assert_eq!(group_of(&[6, 4], &[2, 3, 4], 1), Group { from: 0..1, to: 0..2 });
        assert!(group_of(&[6, 4], &[2, 3, 4], 2).is_axis());
    }

    /// Groups follow each other without a gap, and each holds the same number of elements on both sides.
    #[test]
    fn groups_cover_both_sides() {
        let shapes: [&[usize]; 6] = [&[24], &[2, 12], &[4, 1, 6], &[3, 8, 1], &[2, 2, 2, 3], &[1, 24]];
        for from in shapes {
            for to in shapes {
                let (mut i, mut j) = (0, 0);
                for g in groups(from, to) {
                    assert_eq!((g.from.start, g.to.start), (i, j), "{from:?} {to:?}");
                    (i, j) = (g.from.end, g.to.end);
                    let elems = |shape: &[usize], at: &Range<usize>| shape[at.clone()].iter().product::<usize>();
                    assert_eq!(elems(from, &g.from), elems(to, &g.to), "{from:?} {to:?}");
                }
                assert_eq!((i, j), (from.len(), to.len()));
            }
        }
    }
}
