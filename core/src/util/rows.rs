//! The rows of an array that is stored inside a larger one.

/// The offset, in elements, of each row of an array of sizes `shape` that starts at the origin of an array of sizes
/// `room`, in order.
pub fn rows<'a>(shape: &'a [usize], room: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
    let count = shape.iter().rev().skip(1).product();
    (0..count).map(move |r| {
        let (mut rest, mut at, mut stride) = (r, 0, room.last().copied().unwrap_or(1));
        for (n, m) in shape.iter().zip(room).rev().skip(1) {
            at += rest % n * stride;
            rest /= n;
            stride *= m;
        }
        at
    })
}
