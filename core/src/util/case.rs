//! Upper and lower case of texts as Unicode defines them, by the same rules as std. `to_lowercase` and `to_uppercase`
//! of [`str`] add 35 kB of tables and code to the browser's package; this adds a tenth of that. `case.bin` is generated
//! from std's results, see the tests.

use std::sync::OnceLock;

/// Numbers in LEB128: for each direction (lower, upper) runs of characters, then characters that map to several; then
/// the ranges of characters that are skipped when looking for the end of a word, and those of characters that have
/// case.
static TABLE: &[u8] = include_bytes!("case.bin");

/// Each of the characters `start`, `start + step` .. `last` maps to itself plus `by`.
struct Run {
    start: u32,
    last: u32,
    step: u32,
    by: i32,
}

#[derive(Default)]
struct Direction {
    runs: Vec<Run>,
    several: Vec<(u32, Vec<u32>)>,
}

#[derive(Default)]
struct Cases {
    lower: Direction,
    upper: Direction,
    ignorable: Vec<(u32, u32)>,
    cased: Vec<(u32, u32)>,
}

static CASES: OnceLock<Cases> = OnceLock::new();

fn number(at: &mut &[u8]) -> u32 {
    let (mut n, mut shift) = (0, 0);
    while let Some((&b, rest)) = at.split_first() {
        *at = rest;
        n |= u32::from(b & 127) << shift;
        shift += 7;
        if b < 128 {
            break;
        }
    }
    n
}

fn direction(at: &mut &[u8]) -> Direction {
    let mut d = Direction::default();
    let mut before = 0;
    for _ in 0..number(at) {
        let start = before + number(at);
        let (turns, step, by) = (number(at), number(at), number(at));
        before = start + turns * step;
        d.runs.push(Run { start, last: before, step, by: (by >> 1) as i32 ^ -((by & 1) as i32) });
    }
    before = 0;
    for _ in 0..number(at) {
        before += number(at);
        d.several.push((before, (0..number(at)).map(|_| number(at)).collect()));
    }
    d
}

fn ranges(at: &mut &[u8]) -> Vec<(u32, u32)> {
    let mut before = 0;
    let n = number(at);
    let range = |_| {
        let first = before + number(at);
        before = first + number(at);
        (first, before)
    };
    (0..n).map(range).collect()
}

fn cases() -> &'static Cases {
    CASES.get_or_init(|| {
        let at = &mut &*TABLE;
        Cases { lower: direction(at), upper: direction(at), ignorable: ranges(at), cased: ranges(at) }
    })
}

impl Direction {
    fn push(&self, c: char, out: &mut String) {
        let u = c as u32;
        if let Some((_, several)) = self.several.iter().find(|s| s.0 == u) {
            out.extend(several.iter().filter_map(|&c| char::from_u32(c)));
            return;
        }
        let run = self.runs.iter().find(|r| r.start <= u && u <= r.last && (u - r.start).is_multiple_of(r.step));
        out.push(run.and_then(|r| char::from_u32(u.wrapping_add_signed(r.by))).unwrap_or(c));
    }
}

fn has(ranges: &[(u32, u32)], c: char) -> bool {
    ranges.iter().any(|&(first, last)| (first..=last).contains(&(c as u32)))
}

/// Is the next character that is not skipped one with case?
fn meets_cased(mut chars: impl Iterator<Item = char>) -> bool {
    chars.find(|&c| !has(&cases().ignorable, c)).is_some_and(|c| has(&cases().cased, c))
}

/// The text in lower case.
pub fn lower(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut out = String::with_capacity(text.len());
    for (i, c) in text.char_indices() {
        let (before, after) = (text[..i].chars().rev(), text[i + c.len_utf8()..].chars());
        match c {
            // sigma is the only letter whose form depends on its position in a word
            '\u{3a3}' => out.push(if meets_cased(before) && !meets_cased(after) { '\u{3c2}' } else { '\u{3c3}' }),
            c => cases().lower.push(c, &mut out),
        }
    }
    out
}

/// The text in upper case.
pub fn upper(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| cases().upper.push(c, &mut out));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(mut n: u32, out: &mut Vec<u8>) {
        while n > 127 {
            out.push(n as u8 | 128);
            n >>= 7;
        }
        out.push(n as u8);
    }

    fn put_direction(map: impl Fn(char) -> Vec<u32>, out: &mut Vec<u8>) {
        let mut runs: Vec<(u32, u32, u32, i32)> = Vec::new();
        let mut several: Vec<(u32, Vec<u32>)> = Vec::new();
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let (u, to) = (c as u32, map(c));
            let [one] = to[..] else {
                several.push((u, to));
                continue;
            };
            let by = one as i32 - u as i32;
            if by == 0 {
                continue;
            }
            match runs.last_mut() {
                Some((start, last, step, same))
                    if *same == by && u - *last <= 2 && (*start == *last || u - *last == *step) =>
                {
                    (*step, *last) = (u - *last, u);
                }
                _ => runs.push((u, u, 1, by)),
            }
        }
        put(runs.len() as u32, out);
        let mut before = 0;
        for (start, last, step, by) in runs {
            let by = ((by << 1) ^ (by >> 31)) as u32;
            for n in [start - before, (last - start) / step, step, by] {
                put(n, out);
            }
            before = last;
        }
        put(several.len() as u32, out);
        before = 0;
        for (u, to) in several {
            put(u - before, out);
            put(to.len() as u32, out);
            to.into_iter().for_each(|n| put(n, out));
            before = u;
        }
    }

    fn put_ranges(has: impl Fn(char) -> bool, out: &mut Vec<u8>) {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for c in (0..=0x0010_ffff).filter_map(char::from_u32).filter(|&c| has(c)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == c as u32 => *last = c as u32,
                _ => ranges.push((c as u32, c as u32)),
            }
        }
        put(ranges.len() as u32, out);
        let mut before = 0;
        for (first, last) in ranges {
            put(first - before, out);
            put(last - first, out);
            before = last;
        }
    }

    /// The table, generated from std. Whether a character has case or is skipped is found out from the case of a sigma
    /// next to it.
    fn made() -> Vec<u8> {
        let ends = |text: String| text.to_lowercase().ends_with('\u{3c2}');
        let cased = |c: char| ends(format!("{c}\u{3a3}"));
        let ignorable = |c: char| !cased(c) && ends(format!("A{c}\u{3a3}"));
        let mut out = Vec::new();
        put_direction(|c| c.to_lowercase().map(u32::from).collect(), &mut out);
        put_direction(|c| c.to_uppercase().map(u32::from).collect(), &mut out);
        put_ranges(ignorable, &mut out);
        put_ranges(cased, &mut out);
        out
    }

    #[test]
    fn the_table_is_that_of_std() {
        let made = made();
        let file = std::env::temp_dir().join("case.bin");
        if made != TABLE {
            std::fs::write(&file, &made).unwrap();
        }
        assert!(made == TABLE, "std has other characters now: {} is the new table", file.display());
    }

    #[test]
    fn every_character_and_the_ends_of_words_are_as_in_std() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let text = format!("{c}\u{e9}");
            assert_eq!((lower(&text), upper(&text)), (text.to_lowercase(), text.to_uppercase()), "{text}");
        }
        let parts = ["\u{3a3}", "A", "\u{387}", " ", "\u{301}", "\u{130}", "\u{df}", "1", "'"];
        for i in 0..parts.len().pow(4) {
            let text: String = (0..4).map(|k| parts[i / parts.len().pow(k) % parts.len()]).collect();
            assert_eq!((lower(&text), upper(&text)), (text.to_lowercase(), text.to_uppercase()), "{text}");
        }
    }
}
