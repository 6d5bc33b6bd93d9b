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

/// Lives are listed by blocks of this many steps, so that only neighbours in time are compared.
const BLOCK: usize = 32;

/// What no layout can go below: the most bytes that live at one step, each rounded up to `align`.
pub fn lower_bound(lives: &[Life], align: usize) -> usize {
    let mut changes: Vec<(usize, bool, usize)> = Vec::with_capacity(lives.len() * 2);
    for l in lives {
        let size = l.bytes.max(1).next_multiple_of(align.max(1));
        // at one step those that end are still there when others begin
        changes.extend([(l.first, false, size), (l.last, true, size)]);
    }
    changes.sort_unstable();
    let (mut now, mut most) = (0usize, 0);
    for (_, ends, size) in changes {
        now = if ends { now - size } else { now.saturating_add(size) };
        most = most.max(now);
    }
    most
}

/// Places temporaries. Opens a new arena where one would outgrow `max_bytes`, and for pairs of one step that must be
/// `apart`. Offsets are multiples of `align`. Tries a few orders and keeps the best, unless the first reaches the bound.
pub fn plan(lives: &[Life], align: usize, max_bytes: usize, apart: impl Fn(usize, usize) -> bool) -> Layout {
    type Rank = fn(&Life) -> (std::cmp::Reverse<usize>, usize);
    let orders: [Rank; 3] = [
        |l| (std::cmp::Reverse(l.bytes), l.first),
        |l| (std::cmp::Reverse(l.bytes.saturating_mul(l.last - l.first + 1)), l.first),
        |l| (std::cmp::Reverse(l.last - l.first), l.first),
    ];
    let bound = lower_bound(lives, align);
    let total = |l: &Layout| l.arenas.iter().sum::<usize>();
    let mut best: Option<Layout> = None;
    // placing is quadratic where much lives at once, as in training
    let tries = if lives.len() > 2000 { 1 } else { orders.len() };
    for rank in &orders[..tries] {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.sort_by_key(|&i| (rank(&lives[i]), i));
        let layout = place(lives, &order, align, max_bytes, &apart);
        if best.as_ref().is_none_or(|b| total(&layout) < total(b)) {
            best = Some(layout);
        }
        if best.as_ref().is_some_and(|b| total(b) <= bound) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Places temporaries greedily in this order, each at the lowest free offset.
fn place(
    lives: &[Life],
    order: &[usize],
    align: usize,
    max_bytes: usize,
    apart: &impl Fn(usize, usize) -> bool,
) -> Layout {
    let round = |n: usize| n.next_multiple_of(align.max(1));
    let mut out = Layout { places: vec![(0, 0); lives.len()], arenas: Vec::new() };
    let blocks = lives.iter().map(|l| l.last / BLOCK + 1).max().unwrap_or(0);
    // lives placed in each arena, by the blocks they touch
    let mut placed: Vec<Vec<Vec<usize>>> = Vec::new();
    let mut busy: Vec<(usize, usize)> = Vec::new();
    for &i in order {
        let life = lives[i];
        let size = round(life.bytes.max(1));
        let span = life.first / BLOCK..life.last / BLOCK + 1;
        let mut arena = 0;
        loop {
            if arena == placed.len() {
                placed.push(vec![Vec::new(); blocks]);
                out.arenas.push(0);
            }
            busy.clear();
            let mut conflict = false;
            for block in span.clone() {
                for &j in &placed[arena][block] {
                    let other = lives[j];
                    // one that spans several of our blocks counts in the first
                    if block != span.start.max(other.first / BLOCK) {
                        continue;
                    }
                    conflict |= apart(i, j);
                    if other.first <= life.last && life.first <= other.last {
                        let at = out.places[j].1;
                        busy.push((at, at + round(other.bytes.max(1))));
                    }
                }
            }
            if conflict {
                arena += 1;
                continue;
            }
            busy.sort_unstable();
            let mut at = 0;
            for &(start, end) in &busy {
                if at + size <= start {
                    break;
                }
                at = at.max(end);
            }
            if at + size <= max_bytes || out.arenas[arena] == 0 {
                out.places[i] = (arena, at);
                out.arenas[arena] = out.arenas[arena].max(at + size);
                span.for_each(|block| placed[arena][block].push(i));
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
        assert_eq!(lower_bound(&lives, 256), 2048);
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
            let l = plan(&lives, 64, usize::MAX, |_, _| false);
            let bound = lower_bound(&lives, 64);
            assert!(!overlap(&lives, &l) && bound <= l.arenas[0] && l.arenas[0] <= bound * 5 / 4, "{l:?} over {bound}");
        }
    }
}
