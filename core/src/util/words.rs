//! Operations on words of four bytes, which the interpreter and constant folding share.

/// The sum of the four products of the bytes of two words: unsigned bytes of `a` times signed bytes of `b`.
pub fn dot_bytes(a: i64, b: i64) -> i64 {
    let (a, b) = ((a as u32).to_le_bytes(), (b as u32).to_le_bytes());
    a.iter().zip(b).map(|(&a, b)| i64::from(a) * i64::from(b as i8)).sum()
}

/// The sum of the two products of the signed halves of two words.
pub fn dot_pairs(a: i64, b: i64) -> i64 {
    let half = |x: i64, at: i64| i64::from((x >> at) as i16);
    half(a, 0) * half(b, 0) + half(a, 16) * half(b, 16)
}

/// The bytes of a table of four words that the lower four bits of each byte of a word choose, as an i32.
pub fn lookup_bytes(word: i64, table: [i64; 4]) -> i64 {
    let byte = |at: i64| {
        let index = (word >> at) as usize & 15;
        (table[index / 4] >> (index % 4 * 8) & 255) << at
    };
    i64::from((byte(0) | byte(8) | byte(16) | byte(24)) as i32)
}
