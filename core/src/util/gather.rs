//! Collections filled an element at a time. The standard way into an ordered one sorts first, with a sort for each type of
//! element: 4 kB each in a page's module.

/// The elements, put in one by one.
pub fn gather<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut all = C::default();
    all.extend(items);
    all
}
