//! Arena planning: temporaries of a plan share memory when their lifetimes do not overlap.

/// A temporary: bytes, and the first and last step that touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Size.
    pub bytes: usize,
    /// First step.
    pub first: usize,
    /// Last step, inclusive.
    pub last: usize,
}

/// Places in arenas, in the order of the lives given.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// `(arena, byte offset)` of each temporary.
    pub places: Vec<(usize, usize)>,
    /// Bytes of each arena.
    pub arenas: Vec<usize>,
}

/// Places temporaries greedily, largest first, at the lowest free offset; opens a new arena where one would outgrow
/// `max_bytes`, and for pairs that must be `apart`. Offsets are multiples of `align`.
pub fn plan(lives: &[Life], align: usize, max_bytes: usize, apart: impl Fn(usize, usize) -> bool) -> Layout {
    let round = |n: usize| n.next_multiple_of(align.max(1));
    let mut by_size: Vec<usize> = (0..lives.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(lives[i].bytes), lives[i].first, i));
    let mut out = Layout { places: vec![(0, 0); lives.len()], arenas: Vec::new() };
    let mut placed: Vec<Vec<usize>> = Vec::new();
    for &i in &by_size {
        let life = lives[i];
        let size = round(life.bytes.max(1));
        let mut arena = 0;
        loop {
            if arena == placed.len() {
                placed.push(Vec::new());
                out.arenas.push(0);
            }
            if placed[arena].iter().any(|&j| apart(i, j)) {
                arena += 1;
                continue;
            }
            let mut busy: Vec<(usize, usize)> = placed[arena]
                .iter()
                .filter(|&&j| lives[j].first <= life.last && life.first <= lives[j].last)
                .map(|&j| (out.places[j].1, out.places[j].1 + round(lives[j].bytes.max(1))))
                .collect();
            busy.sort_unstable();
            let mut at = 0;
            for (start, end) in busy {
                if at + size <= start {
                    break;
                }
                at = at.max(end);
            }
            if at + size <= max_bytes || placed[arena].is_empty() {
                out.places[i] = (arena, at);
                out.arenas[arena] = out.arenas[arena].max(at + size);
                placed[arena].push(i);
                break;
            }
            arena += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(lives: &[Life], l: &Layout) -> bool {
        (0..lives.len()).any(|i| {
            (0..i).any(|j| {
                let (a, b) = (lives[i], lives[j]);
                let together = a.first <= b.last && b.first <= a.last;
                let (p, q) = (l.places[i], l.places[j]);
                together && p.0 == q.0 && p.1 < q.1 + b.bytes && q.1 < p.1 + a.bytes
            })
        })
    }

    #[test]
    fn a_chain_needs_two_places() {
        let lives: Vec<Life> = (0..10).map(|i| Life { bytes: 1000, first: i, last: i + 1 }).collect();
        let l = plan(&lives, 256, usize::MAX, |_, _| false);
        assert!(!overlap(&lives, &l));
        assert_eq!(l.arenas, vec![2048]);
        let l = plan(&lives, 256, usize::MAX, |i, j| i.abs_diff(j) == 1);
        assert!(l.places.windows(2).all(|p| p[0].0 != p[1].0));
        assert_eq!(l.arenas, vec![1024, 1024]);
    }

    #[test]
    fn random_lives_never_overlap_and_arenas_respect_the_limit() {
        let mut x = 12345u64;
        let mut rnd = |n: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((x >> 33) % n) as usize
        };
        for _ in 0..50 {
            let lives: Vec<Life> = (0..40)
                .map(|_| {
                    let first = rnd(30);
                    Life { bytes: 1 + rnd(5000), first, last: first + rnd(8) }
                })
                .collect();
            let l = plan(&lives, 64, 8192, |_, _| false);
            assert!(!overlap(&lives, &l));
            assert!(l.arenas.iter().all(|&a| a <= 8192));
        }
    }
}
