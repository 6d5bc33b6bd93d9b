//! Ordered maps and sets with little code. Each type that std's B-trees are used with makes an instance of 4 to 6 kB,
//! and a page's modules had twenty. These are sorted lists in parts of bounded length, so that an insertion moves the
//! entries of one part at most. They have those methods of the B-trees that the project uses.

use std::borrow::Borrow;
use std::ops::Index;

/// The most entries of a part; one that would have more is split in two.
const MOST: usize = 512;

/// A map ordered by keys.
#[derive(Clone, Debug)]
pub struct SortedMap<K, V> {
    /// No part is empty, each is sorted, and the keys of a part are below those of the next.
    parts: Vec<Vec<(K, V)>>,
    len: usize,
}

/// An ordered set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortedSet<K>(SortedMap<K, ()>);

/// Maps are equal if their entries are, however these are split into parts.
impl<K: PartialEq, V: PartialEq> PartialEq for SortedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.parts.iter().flatten().eq(other.parts.iter().flatten())
    }
}

impl<K: Eq, V: Eq> Eq for SortedMap<K, V> {}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap { parts: Vec::new(), len: 0 }
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The position of the first entry that is not below a key, as a part and an index in it, and whether that entry
    /// has the key.
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, usize, bool)
    where
        K: Borrow<Q>,
    {
        let part = self.parts.partition_point(|p| p.last().is_some_and(|e| e.0.borrow() < key));
        match self.parts.get(part).map(|p| p.binary_search_by(|e| e.0.borrow().cmp(key))) {
            Some(Ok(at)) => (part, at, true),
            Some(Err(at)) => (part, at, false),
            None => (part, 0, false),
        }
    }

    /// The value of a key, if it is there.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (part, at, found) = self.place(key);
        found.then(|| &self.parts[part][at].1)
    }

    /// The value of a key, mutable.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (part, at, found) = self.place(key);
        found.then(|| &mut self.parts[part][at].1)
    }

    /// Is a key there?
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.place(key).2
    }

    /// Inserts an entry for a key that is not there, at its position.
    fn put(&mut self, mut part: usize, mut at: usize, key: K, value: V) -> &mut V {
        self.len += 1;
        if part == self.parts.len() {
            // after all others
            match part.checked_sub(1) {
                Some(last) => (part, at) = (last, self.parts[last].len()),
                None => self.parts.push(Vec::new()),
            }
        }
        if self.parts[part].len() == MOST {
            let half = self.parts[part].split_off(MOST / 2);
            self.parts.insert(part + 1, half);
            if at > MOST / 2 {
                (part, at) = (part + 1, at - MOST / 2);
            }
        }
        self.parts[part].insert(at, (key, value));
        &mut self.parts[part][at].1
    }

    /// The value of a key, inserted if the key is not there.
    pub fn or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let (part, at, found) = self.place(&key);
        if found { &mut self.parts[part][at].1 } else { self.put(part, at, key, value()) }
    }

    /// Sets the value of a key; returns the old value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (part, at, found) = self.place(&key);
        if found {
            return Some(std::mem::replace(&mut self.parts[part][at].1, value));
        }
        self.put(part, at, key, value);
        None
    }

    fn cut(&mut self, part: usize, at: usize) -> (K, V) {
        self.len -= 1;
        let entry = self.parts[part].remove(at);
        if self.parts[part].is_empty() {
            self.parts.remove(part);
        }
        entry
    }

    /// Removes an entry; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (part, at, found) = self.place(key);
        found.then(|| self.cut(part, at).1)
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.parts.iter().flatten().map(|e| (&e.0, &e.1))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.parts.iter().flatten().map(|e| &e.0)
    }

    /// The values, in their keys' order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.parts.iter().flatten().map(|e| &e.1)
    }

    /// The values in the order of their keys, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.parts.iter_mut().flatten().map(|e| &mut e.1)
    }

    /// Consumes the map; gives the values in the order of their keys.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.into_iter().map(|e| e.1)
    }

    /// Keeps the entries for which `stays` is true.
    pub fn retain(&mut self, mut stays: impl FnMut(&K, &mut V) -> bool) {
        self.parts.iter_mut().for_each(|p| p.retain_mut(|e| stays(&e.0, &mut e.1)));
        self.parts.retain(|p| !p.is_empty());
        self.len = self.parts.iter().map(Vec::len).sum();
    }

    /// The last entry whose key is below the given one.
    pub fn last_below(&self, key: &K) -> Option<(&K, &V)> {
        let (part, at, _) = self.place(key);
        let (part, at) = if at > 0 { (part, at - 1) } else { (part.checked_sub(1)?, usize::MAX) };
        let list = &self.parts[part];
        list.get(at.min(list.len() - 1)).map(|e| (&e.0, &e.1))
    }

    /// The first entry whose key is the given one or above it.
    pub fn first_from(&self, key: &K) -> Option<(&K, &V)> {
        let (part, at, _) = self.place(key);
        self.parts.get(part)?.get(at).map(|e| (&e.0, &e.1))
    }

    /// The last entry.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.parts.last()?.last().map(|e| (&e.0, &e.1))
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<(K, V)>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.into_iter().flatten()
    }
}

impl<'a, K: Ord, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter =
        std::iter::Map<std::iter::Flatten<std::slice::Iter<'a, Vec<(K, V)>>>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.parts.iter().flatten().map(|e| (&e.0, &e.1))
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        map.extend(entries);
        map
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SortedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Ord + Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("a key that is there")
    }
}

impl<K> Default for SortedSet<K> {
    fn default() -> Self {
        SortedSet(SortedMap::default())
    }
}

impl<K: Ord> SortedSet<K> {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Is a key there?
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Inserts a key; true if it was not there.
    pub fn insert(&mut self, key: K) -> bool {
        self.0.insert(key, ()).is_none()
    }

    /// Removes a key; true if it was there.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.remove(key).is_some()
    }

    /// Keeps the keys for which `stays` is true.
    pub fn retain(&mut self, mut stays: impl FnMut(&K) -> bool) {
        self.0.retain(|key, _| stays(key));
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.keys()
    }

    /// The first key.
    pub fn first(&self) -> Option<&K> {
        self.iter().next()
    }

    /// The first key that is the given one or above it.
    pub fn first_from(&self, key: &K) -> Option<&K> {
        self.0.first_from(key).map(|e| e.0)
    }

    /// Removes and returns the first key.
    pub fn pop_first(&mut self) -> Option<K> {
        if self.is_empty() { None } else { Some(self.0.cut(0, 0).0) }
    }

    /// Removes and returns the last key.
    pub fn pop_last(&mut self) -> Option<K> {
        let part = self.0.parts.len().checked_sub(1)?;
        let at = self.0.parts[part].len().checked_sub(1)?;
        Some(self.0.cut(part, at).0)
    }
}

impl<K> IntoIterator for SortedSet<K> {
    type Item = K;
    type IntoIter = std::iter::Map<<SortedMap<K, ()> as IntoIterator>::IntoIter, fn((K, ())) -> K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|e| e.0)
    }
}

impl<'a, K: Ord> IntoIterator for &'a SortedSet<K> {
    type Item = &'a K;
    type IntoIter = std::iter::Map<std::iter::Flatten<std::slice::Iter<'a, Vec<(K, ())>>>, fn(&'a (K, ())) -> &'a K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.parts.iter().flatten().map(|e| &e.0)
    }
}

impl<K: Ord> Extend<K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl<'a, K: Ord + Copy + 'a> Extend<&'a K> for SortedSet<K> {
    fn extend<I: IntoIterator<Item = &'a K>>(&mut self, keys: I) {
        for key in keys {
            self.insert(*key);
        }
    }
}

impl<K: Ord> FromIterator<K> for SortedSet<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut set = Self::default();
        set.extend(keys);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn a_map_is_what_a_tree_is() {
        let (mut ours, mut trees) = (SortedMap::<u32, u32>::new(), BTreeMap::<u32, u32>::new());
        let mut x = 7u32;
        // it grows to several parts and becomes empty again
        for turn in 0..40_000u32 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let key = (x >> 12) % 6000;
            let grows = turn < 20_000;
            if (x >> 8) % 3 < if grows { 2 } else { 1 } {
                assert_eq!(ours.insert(key, turn), trees.insert(key, turn));
            } else {
                assert_eq!(ours.remove(&key), trees.remove(&key));
            }
            assert_eq!((ours.len(), ours.is_empty()), (trees.len(), trees.is_empty()));
            assert_eq!(ours.get(&key), trees.get(&key));
            assert_eq!(ours.last_below(&key), trees.range(..key).next_back());
            assert_eq!(ours.first_from(&key), trees.range(key..).next());
            assert_eq!(ours.last_key_value(), trees.last_key_value());
            if turn % 1000 == 999 {
                assert!(ours.iter().eq(trees.iter()) && ours.keys().rev().eq(trees.keys().rev()));
                assert!(ours.values().eq(trees.values()) && ours.parts.iter().all(|p| (1..=MOST).contains(&p.len())));
            }
            if turn == 30_000 {
                *ours.or_insert_with(key, || 1) += 5;
                *trees.entry(key).or_insert(1) += 5;
                assert_eq!(ours[&key], trees[&key]);
                if let (Some(a), Some(b)) = (ours.get_mut(&key), trees.get_mut(&key)) {
                    (*a, *b) = (3, 3);
                }
            }
        }
        assert!(ours.parts.len() > 2);
        ours.retain(|key, value| {
            *value += 1;
            key % 7 > 0 && *key > 900
        });
        trees.retain(|key, value| {
            *value += 1;
            key % 7 > 0 && *key > 900
        });
        assert!((&ours).into_iter().eq(&trees) && ours.len() == trees.len());
        ours.values_mut().zip(trees.values_mut()).for_each(|(a, b)| (*a, *b) = (*a / 2, *b / 2));
        assert!(ours.clone().into_values().eq(trees.clone().into_values()));
        let again: SortedMap<u32, u32> = trees.iter().map(|(k, v)| (*k, *v)).collect();
        assert_eq!(again.len(), ours.len());
        assert!(again.into_iter().eq(trees));
    }

    #[test]
    fn keys_in_ascending_order_fill_parts_and_text_is_found_by_its_slice() {
        let mut map = SortedMap::new();
        for i in 0..5000 {
            map.insert(format!("{i:05}"), i);
        }
        assert_eq!((map.get("00017"), map.get("5"), map.contains_key("04999")), (Some(&17), None, true));
        assert!(map.parts.len() <= 2 * 5000 / MOST + 1);
        assert_eq!((map.remove("00017"), map.remove("00017")), (Some(17), None));
    }

    #[test]
    fn a_set_is_what_a_tree_is() {
        let (mut ours, mut tree) = (SortedSet::<u32>::new(), BTreeSet::<u32>::new());
        let mut x = 3u32;
        for _ in 0..6000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let key = (x >> 10) % 3000;
            match x >> 28 {
                0..9 => assert_eq!(ours.insert(key), tree.insert(key)),
                9..14 => assert_eq!(ours.remove(&key), tree.remove(&key)),
                14 => assert_eq!(ours.pop_first(), tree.pop_first()),
                _ => assert_eq!(ours.pop_last(), tree.pop_last()),
            }
            assert_eq!((ours.first(), ours.len()), (tree.first(), tree.len()));
            assert_eq!((ours.contains(&key), ours.first_from(&key)), (tree.contains(&key), tree.range(key..).next()));
        }
        assert!((&ours).into_iter().eq(&tree) && ours.iter().rev().eq(tree.iter().rev()));
        let copy: SortedSet<u32> = tree.iter().copied().collect();
        assert!(copy == ours && copy.into_iter().eq(tree));
    }
}
