//! Collecting elements one at a time. Std's `collect` into an ordered collection sorts first, which adds a sort of 4 kB
//! to a page's module for each element type.

/// Collects the elements by inserting them one by one.
pub fn gather<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut all = C::default();
    all.extend(items);
    all
}
