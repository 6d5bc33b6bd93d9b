//! A map for values that can be made again: each entry has a size and the time of its last use, so that the least
//! recently used ones can be removed when all together are too large.

use rustc_hash::FxHashMap;

/// Entries by key.
pub struct Lru<V> {
    entries: FxHashMap<u128, Entry<V>>,
    /// Number of uses so far, which serves as the time.
    now: u64,
    bytes: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    used: u64,
}

impl<V> Default for Lru<V> {
    fn default() -> Self {
        Lru { entries: FxHashMap::default(), now: 0, bytes: 0 }
    }
}

impl<V> Lru<V> {
    /// Bytes of all entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Every value, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|e| &e.value)
    }

    /// Is there such an entry?
    pub fn contains(&self, key: u128) -> bool {
        self.entries.contains_key(&key)
    }

    /// The value of a key, which becomes the most recently used.
    pub fn get(&mut self, key: u128) -> Option<&V> {
        self.now += 1;
        let entry = self.entries.get_mut(&key)?;
        entry.used = self.now;
        Some(&entry.value)
    }

    /// Adds an entry as the most recently used one, replacing one of the same key.
    pub fn insert(&mut self, key: u128, value: V, bytes: usize) {
        self.now += 1;
        let old = self.entries.insert(key, Entry { value, bytes, used: self.now });
        self.bytes = self.bytes + bytes - old.map_or(0, |e| e.bytes);
    }

    /// Of the entries that may go, removes the least recently used quarter, at least one.
    pub fn take_oldest(&mut self, may_go: impl Fn(&V) -> bool) -> Vec<(u128, V)> {
        let mut ages: Vec<(u64, u128)> =
            self.entries.iter().filter(|e| may_go(&e.1.value)).map(|(key, e)| (e.used, *key)).collect();
        super::sort::ascending(&mut ages);
        ages.truncate(ages.len().div_ceil(4));
        let mut out = Vec::with_capacity(ages.len());
        for (_, key) in ages {
            if let Some(entry) = self.entries.remove(&key) {
                self.bytes -= entry.bytes;
                out.push((key, entry.value));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut l = Lru::default();
        (0..8).for_each(|i| l.insert(i, i as u32, 10));
        assert_eq!(l.get(0), Some(&0));
        l.insert(2, 2, 30);
        assert_eq!(l.bytes(), 100);
        let gone = l.take_oldest(|v| *v != 1);
        assert_eq!(gone, vec![(3, 3), (4, 4)], "0 and 2 were used since, and 1 may not go");
        assert!(l.bytes() == 80 && l.contains(1) && !l.contains(3));
        while !l.take_oldest(|_| true).is_empty() {}
        assert_eq!((l.bytes(), l.values().count()), (0, 0));
    }
}
