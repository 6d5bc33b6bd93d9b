//! Grammars of strings from regular expressions, for the keyword `pattern` of JSON Schema. The syntax is that of
//! ECMA-262 (section 22.2), of which expressions of a whole string are here, from `^` to `$`: characters, classes,
//! groups, alternatives and quantifiers. What a context-free grammar does not express, or only by a large one, is
//! refused: expressions that fit a part of a string, conditions on what is around, and references to groups.
//!
//! A character is written as itself, or with a short escape where JSON requires one: other control characters, and
//! escapes by number, are left out, so that every text of the grammar fits the expression.

use super::grammar::Item;
use super::schema::{Builder, MAX_DEPTH, MOST_COUNTED, lacks, one};
use crate::error::{Error, Result};
use crate::util::sort;
use std::str::Chars;

/// Characters from the first to the last.
pub(super) type Range = (u32, u32);

const DIGITS: &[Range] = &[(0x30, 0x39)];
const WORD: &[Range] = &[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)];
const SPACE: &[Range] = &[
    (0x9, 0xd),
    (0x20, 0x20),
    (0xa0, 0xa0),
    (0x1680, 0x1680),
    (0x2000, 0x200a),
    (0x2028, 0x2029),
    (0x202f, 0x202f),
    (0x205f, 0x205f),
    (0x3000, 0x3000),
    (0xfeff, 0xfeff),
];
const LINE_ENDS: &[Range] = &[(0xa, 0xa), (0xd, 0xd), (0x2028, 0x2029)];

/// Characters that stand in a JSON string as they are, divided where the length of their UTF-8 changes.
const PLAIN: &[Range] =
    &[(0x20, 0x21), (0x23, 0x5b), (0x5d, 0x7e), (0x80, 0x7ff), (0x800, 0xd7ff), (0xe000, 0xffff), (0x10000, 0x10ffff)];
/// Characters that JSON escapes, and the letter after the backslash.
const ESCAPED: &[(u32, u8)] =
    &[(0x8, b'b'), (0x9, b't'), (0xa, b'n'), (0xc, b'f'), (0xd, b'r'), (0x22, b'"'), (0x5c, b'\\')];

impl Builder<'_> {
    /// The strings that fit a regular expression, without quotation marks.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an expression that is not for whole strings, or has a part that no grammar is made of.
    pub(super) fn pattern(&mut self, text: &str) -> Result<Item> {
        let mut p = Pattern { b: self, text, rest: text.chars() };
        if p.rest.next() != Some('^') {
            return Err(p.lacks("no `^` at its beginning"));
        }
        let all = p.alternatives(0)?;
        if p.rest.as_str() != "$" {
            return Err(p.lacks("no `$` at its end"));
        }
        match all.len() {
            1 => self.g.add(&all),
            _ => Err(p.lacks("alternatives that are not in a group")),
        }
    }

    /// A character of these ranges.
    fn one_of(&mut self, ranges: &[Range]) -> Result<Item> {
        let (mut ascii, mut escaped, mut ways) = (Vec::new(), Vec::new(), Vec::new());
        for range in ranges {
            escaped.extend(ESCAPED.iter().filter(|e| range.0 <= e.0 && e.0 <= range.1).map(|e| (e.1, e.1)));
            for plain in PLAIN {
                let both = (char::from_u32(range.0.max(plain.0)), char::from_u32(range.1.min(plain.1)));
                match both {
                    (Some(a), Some(b)) if a <= b && b.is_ascii() => ascii.push((a as u8, b as u8)),
                    (Some(a), Some(b)) if a <= b => {
                        let (a, b) = (a.to_string(), b.to_string());
                        ways.push(vec![self.g.between(a.as_bytes(), b.as_bytes(), (0x80, 0xbf))?]);
                    }
                    _ => {}
                }
            }
        }
        if !ascii.is_empty() {
            ways.push(vec![one(&ascii)]);
        }
        if !escaped.is_empty() {
            ways.push(vec![one(&[(b'\\', b'\\')]), one(&escaped)]);
        }
        match ways.is_empty() {
            true => Err(lacks("keyword `pattern` with a class of no character".into())),
            false => self.g.add(&ways),
        }
    }
}

/// An expression that is being read.
struct Pattern<'p, 'a> {
    b: &'p mut Builder<'a>,
    text: &'p str,
    rest: Chars<'p>,
}

impl Pattern<'_, '_> {
    fn lacks(&self, what: &str) -> Error {
        lacks(format!("keyword `pattern` with {what}: `{}`", self.text))
    }

    /// The error for what was read last.
    fn unknown(&self) -> Error {
        let read = self.text.len() - self.rest.as_str().len();
        self.lacks(&format!("unknown syntax after {read} bytes"))
    }

    fn eat(&mut self, c: char) -> bool {
        let is_next = self.rest.as_str().starts_with(c);
        if is_next {
            self.rest.next();
        }
        is_next
    }

    /// Alternatives up to the end of the group or of the expression.
    fn alternatives(&mut self, depth: usize) -> Result<Vec<Vec<Item>>> {
        if depth > MAX_DEPTH {
            return Err(self.lacks("too many groups in groups"));
        }
        let (mut all, mut last) = (Vec::new(), Vec::new());
        loop {
            if self.eat('|') {
                all.push(std::mem::take(&mut last));
            } else if matches!(self.rest.clone().next(), None | Some(')' | '$')) {
                all.push(last);
                return Ok(all);
            } else {
                last.push(self.term(depth)?);
            }
        }
    }

    /// An atom and how often it comes.
    fn term(&mut self, depth: usize) -> Result<Item> {
        let atom = self.atom(depth)?;
        let counts = if self.eat('*') {
            (0, None)
        } else if self.eat('+') {
            (1, None)
        } else if self.eat('?') {
            (0, Some(1))
        } else if self.eat('{') {
            self.counts()?
        } else {
            return Ok(atom);
        };
        // Few or many: the same strings fit
        self.eat('?');
        self.b.g.repeated(&[atom], &[], counts)
    }

    /// `m}`, `m,}` or `m,n}`.
    fn counts(&mut self) -> Result<(u64, Option<u64>)> {
        let (inside, after) = self.rest.as_str().split_once('}').ok_or_else(|| self.unknown())?;
        let number = |s: &str| s.parse::<u64>().ok().filter(|&n| n <= MOST_COUNTED && !s.starts_with('+'));
        let (least, most) = match inside.split_once(',') {
            None => (number(inside), number(inside).map(Some)),
            Some((least, "")) => (number(least), Some(None)),
            Some((least, most)) => (number(least), number(most).map(Some)),
        };
        self.rest = after.chars();
        match (least, most) {
            (Some(least), Some(most)) if most.is_none_or(|most| least <= most) => Ok((least, most)),
            _ => Err(self.unknown()),
        }
    }

    fn atom(&mut self, depth: usize) -> Result<Item> {
        let ranges = match self.rest.next() {
            Some('(') => {
                if self.eat('?') && !self.eat(':') {
                    return Err(self.unknown());
                }
                let all = self.alternatives(depth + 1)?;
                return if self.eat(')') { self.b.g.add(&all) } else { Err(self.unknown()) };
            }
            Some('[') => self.class()?,
            Some('.') => others(LINE_ENDS),
            Some('\\') => self.escape()?,
            None | Some('^' | '*' | '+' | '?' | '{' | '}' | ']') => return Err(self.unknown()),
            Some(c) => vec![(c.into(), c.into())],
        };
        self.b.one_of(&ranges)
    }

    /// What a backslash stands for, with what follows it.
    fn escape(&mut self) -> Result<Vec<Range>> {
        Ok(match self.rest.next() {
            Some('d') => DIGITS.to_vec(),
            Some('D') => others(DIGITS),
            Some('w') => WORD.to_vec(),
            Some('W') => others(WORD),
            Some('s') => SPACE.to_vec(),
            Some('S') => others(SPACE),
            Some('t') => vec![(0x9, 0x9)],
            Some('n') => vec![(0xa, 0xa)],
            Some('f') => vec![(0xc, 0xc)],
            Some('r') => vec![(0xd, 0xd)],
            Some(c) if !c.is_alphanumeric() => vec![(c.into(), c.into())],
            _ => return Err(self.unknown()),
        })
    }

    /// The characters of a class, after its `[`.
    fn class(&mut self) -> Result<Vec<Range>> {
        let (is_negated, mut all) = (self.eat('^'), Vec::new());
        while !self.eat(']') {
            let low = self.class_atom()?;
            // A dash before the end is a character
            if !self.rest.as_str().starts_with('-') || self.rest.as_str().starts_with("-]") {
                all.extend(low);
                continue;
            }
            self.eat('-');
            match (&low[..], &self.class_atom()?[..]) {
                ([low], [high]) if low.0 == low.1 && high.0 == high.1 && low.0 <= high.0 => all.push((low.0, high.0)),
                _ => return Err(self.unknown()),
            }
        }
        Ok(if is_negated { others(&all) } else { all })
    }

    fn class_atom(&mut self) -> Result<Vec<Range>> {
        match self.rest.next() {
            Some('\\') => self.escape(),
            Some(c) => Ok(vec![(c.into(), c.into())]),
            None => Err(self.unknown()),
        }
    }
}

/// All other characters.
pub(super) fn others(list: &[Range]) -> Vec<Range> {
    let mut list = list.to_vec();
    sort::ascending(&mut list);
    let (mut next, mut out) = (0, Vec::new());
    for (low, high) in list {
        if next < low {
            out.push((next, low - 1));
        }
        next = next.max(high + 1);
    }
    out.push((next, 0x10ffff));
    out
}

#[cfg(test)]
mod tests {
    use super::super::grammar::Grammar;
    use super::super::grammar::tests::fits;
    use super::*;
    use crate::io::json::{Json, write_str};
    use std::sync::Arc;

    fn grammar(pattern: &str) -> Result<Arc<Grammar>> {
        let fields = [("type", "string"), ("pattern", pattern)];
        let fields = fields.map(|(k, v)| (k.to_owned(), Json::Str(v.to_owned()))).to_vec();
        Grammar::from_schema(&Json::Object(fields)).map(Arc::new)
    }

    #[test]
    fn strings_fit_their_pattern() {
        for (pattern, good, bad) in [
            ("^$", &[""][..], &["a"][..]),
            ("^abc$", &["abc"], &["", "ab", "abcd", "xabc"]),
            (r"^\d{3}-\d{4}$", &["123-4567"], &["123-456", "1234567", "a23-4567"]),
            ("^[A-Z]{2,3}[0-9]*$", &["AB", "ABC", "AB12345"], &["A", "ABCD", "Ab1", "1AB"]),
            (
                "^(red|green|dark (?:blue|grey))$",
                &["red", "green", "dark blue", "dark grey"],
                &["dark", "dark red", ""],
            ),
            ("^(ab?|c)+$", &["a", "ab", "abac", "cab"], &["", "b", "abb"]),
            (r"^[^@\s]+@[\w.-]+\.[a-z]{2,}$", &["a+b@c-d.e.org", "é@x.de"], &["a b@c.org", "@c.org", "a@c.o", "a@c"]),
            (r"^\S*?$", &["", "añ😀"], &["a b", "\u{3000}", "a\tb"]),
            (r#"^["\\/]\n.$"#, &["\"\nx", "\\\né", "/\n\"", "/\n\t"], &["\"\n\n", "x\nx", "/n."]),
            ("^[а-яё]+$", &["ёлка", "я"], &["Я", "z", "ѐ"]),
            ("^[ᆀ-𐍈]$", &["ᆀ", "한", "\u{ffff}", "𐍈", "𐀀"], &["ᅿ", "𐍉", "a", "😀"]),
            ("^[^a-z]$", &["A", "é", "😀", "\""], &["a", "z", "AA", ""]),
            ("^a{0}b{2}c{1,}$", &["bbc", "bbccc"], &["abbc", "bc", "bb"]),
            ("^[a-]$", &["a", "-"], &["b"]),
            (r"^(a|)\$\.(b*)*$", &["a$.", "$.bbb"], &["a$x", "aa$."]),
        ] {
            let g = grammar(pattern).unwrap();
            let text = |s: &str| {
                let mut out = String::new();
                write_str(&mut out, s);
                out
            };
            good.iter().for_each(|s| assert!(fits(&g, &text(s)), "{pattern} refuses {s:?}"));
            bad.iter().for_each(|s| assert!(!fits(&g, &text(s)), "{pattern} takes {s:?}"));
        }
        let g = grammar("^.$").unwrap();
        for text in ["\"\"", "\"\\\"", "\"\u{80}\"x", "\"a", "a\"", "\"\\q\"", "\"\n\""] {
            assert!(!fits(&g, text), "{text:?} is no string of JSON");
        }
    }

    #[test]
    fn patterns_that_no_grammar_has_are_refused() {
        let no_wholes = ["", "a", "^a", "a$", "^a|b$", "^a$b", "^a)$", "^(a$)", "^a^b$", r"^a\$"];
        let no_syntax = ["^(a", "^[a$", "^a}$", "^*$", "^a**$", "^a+++$", "^a{3,2}$", "^a{x}$", "^a{2$", "^[z-a]$"];
        let others =
            [r"^\bx$", r"^(a)\1$", "^(?=a)a$", "^(?<n>a)$", r"^\p{L}$", r"^\u0041$", r"^[\d-x]$", "^a{5000}$", "^[]$"];
        for pattern in no_wholes.iter().chain(&no_syntax).chain(&others) {
            let e = grammar(pattern).unwrap_err();
            assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("`pattern`"), "{pattern}: {e}");
        }
        let deep = format!("^{}{}$", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(grammar(&deep).unwrap_err().code(), "E_UNSUPPORTED");
        let both = Json::parse(br#"{"type": "string", "pattern": "^a*$", "maxLength": 3}"#).unwrap();
        assert!(Grammar::from_schema(&both).unwrap_err().to_string().contains("maxLength"));
    }
}
