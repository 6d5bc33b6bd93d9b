//! A small strict JSON reader (RFC 8259) and a writer. Nesting is limited, duplicate keys are errors, and memory is
//! limited to a multiple of the text. There are no schemas here, and no serde.
#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::error::{Error, Result};
use crate::util::decimal::Shown;
use crate::util::{decimal, sort};

/// The deepest nesting of arrays and objects that is accepted.
pub const MAX_DEPTH: usize = 64;

/// A JSON value. Objects keep the order of the text.
#[derive(Clone, PartialEq, Debug)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction or exponent that fits an i64.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Str(String),
    /// An array.
    Array(Vec<Json>),
    /// An object; keys are distinct.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a whole text: one value, optionally surrounded by white space.
    pub fn parse(text: &[u8]) -> Result<Json> {
        let text =
            std::str::from_utf8(text).map_err(|e| Error::format("json", "not UTF-8", Some(e.valid_up_to() as u64)))?;
        // Memory is limited to 4 times the text plus 64 MiB, since a two-byte `0,` becomes a 32-byte value.
        let budget = text.len().saturating_mul(4).saturating_add(64 << 20);
        let mut p = Parser { text, pos: 0, budget };
        let value = p.value(0)?;
        p.space();
        if p.pos != text.len() {
            return Err(p.error("text after the value"));
        }
        Ok(value)
    }

    /// The member `key` of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.as_object()?.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[(String, Json)]> {
        if let Json::Object(m) = self { Some(m) } else { None }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&[Json]> {
        if let Json::Array(v) = self { Some(v) } else { None }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Json::Str(s) = self { Some(s) } else { None }
    }

    /// The value, if it is an integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        if let Json::Int(i) = self { u64::try_from(*i).ok() } else { None }
    }

    /// The value as f64, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Int(i) => Some(*i as f64),
            Json::Float(f) => Some(*f),
            _ => None,
        }
    }
}

/// Appends a value on one line. NaN and infinities, which JSON cannot express, become null.
pub fn write(out: &mut String, json: &Json) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Int(i) => out.push_str(&i.to_string()),
        Json::Float(f) if f.is_finite() => out.push_str(&Shown(*f).to_string()),
        Json::Float(_) => out.push_str("null"),
        Json::Str(s) => write_str(out, s),
        Json::Array(list) => {
            out.push('[');
            for (i, v) in list.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write(out, v);
            }
            out.push(']');
        }
        Json::Object(fields) => {
            out.push('{');
            for (i, (k, v)) in fields.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                write_str(out, k);
                out.push(':');
                write(out, v);
            }
            out.push('}');
        }
    }
}

/// Appends `s` as a JSON string.
pub fn write_str(out: &mut String, s: &str) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
    budget: usize,
}

impl Parser<'_> {
    fn error(&self, what: impl Into<String>) -> Error {
        Error::format("json", what, Some(self.pos as u64))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.pos += 1;
        }
    }

    /// Skips white space, and consumes `b` if it follows.
    fn eat(&mut self, b: u8) -> bool {
        self.space();
        let yes = self.peek() == Some(b);
        self.pos += usize::from(yes);
        yes
    }

    fn expect(&mut self, b: u8) -> Result<()> {
        if self.eat(b) { Ok(()) } else { Err(self.error(format!("`{}` expected", b as char))) }
    }

    fn charge(&mut self, bytes: usize) -> Result<()> {
        match self.budget.checked_sub(bytes) {
            Some(left) => self.budget = left,
            None => return Err(self.error("too many values for the size of the text")),
        }
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.charge(2 * size_of::<Json>())?;
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Str),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err(self.error("a value expected")),
            None => Err(self.error("the text ends inside a value")),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json> {
        if !self.text.get(self.pos..).is_some_and(|t| t.starts_with(word)) {
            return Err(self.error("a value expected"));
        }
        self.pos += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        self.expect(b'[')?;
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            self.expect(b',')?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        self.expect(b'{')?;
        let mut members: Vec<(String, Json)> = Vec::new();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.charge(2 * size_of::<String>())?;
            self.expect(b':')?;
            members.push((key, self.value(depth + 1)?));
            if self.eat(b'}') {
                break;
            }
            self.expect(b',')?;
        }
        // Found by sorting instead of hashing: keys that are made to collide must not cost quadratic time.
        let mut keys: Vec<&str> = members.iter().map(|(k, _)| k.as_str()).collect();
        sort::ascending(&mut keys);
        if let Some(twice) = keys.windows(2).find(|w| w.first() == w.last()).and_then(|w| w.first()) {
            return Err(self.error(format!("the key `{twice}` appears twice")));
        }
        Ok(Json::Object(members))
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.pos;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.pos += 1;
        }
        if self.pos == start { Err(self.error("a digit expected")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Json> {
        let start = self.pos;
        self.pos += usize::from(self.peek() == Some(b'-'));
        let zero = self.peek() == Some(b'0');
        let first = self.pos;
        self.digits()?;
        if zero && self.pos - first > 1 {
            return Err(self.error("a number with a leading zero"));
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            self.pos += 1;
            self.digits()?;
            whole = false;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.pos += 1;
            self.pos += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
            whole = false;
        }
        let text = self.text.get(start..self.pos).unwrap_or_default();
        if let (true, Ok(i)) = (whole, text.parse()) {
            return Ok(Json::Int(i));
        }
        decimal::parse(text).map(Json::Float).ok_or_else(|| self.error("not a number"))
    }

    fn string(&mut self) -> Result<String> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a string expected"));
        }
        self.pos += 1;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.pos..).unwrap_or_default();
            let Some(n) = rest.find(|c: char| c == '"' || c == '\\' || (c as u32) < 0x20) else {
                return Err(self.error("the text ends inside a string"));
            };
            out.push_str(rest.get(..n).unwrap_or_default());
            self.pos += n + 1;
            match rest.as_bytes().get(n) {
                Some(b'"') => return Ok(out),
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.error("a control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let c = self.peek();
        self.pos += 1;
        Ok(match c {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let hi = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&hi) {
                    let pair = self.text.get(self.pos..).is_some_and(|t| t.starts_with("\\u"));
                    self.pos += if pair { 2 } else { 0 };
                    let lo = if pair { self.hex4()? } else { 0 };
                    if !(0xdc00..0xe000).contains(&lo) {
                        return Err(self.error("half of a surrogate pair"));
                    }
                    0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00)
                } else {
                    hi
                };
                char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair"))?
            }
            _ => return Err(self.error("an unknown escape")),
        })
    }

    fn hex4(&mut self) -> Result<u32> {
        let digits = self.text.get(self.pos..self.pos + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        let code = code.ok_or_else(|| self.error("four hexadecimal digits expected"))?;
        self.pos += 4;
        Ok(code)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::io::testing::mutate;

    const SAMPLE: &str = r#" {"a": [1, -2.5e3, 0, 9223372036854775807, 18446744073709551615],
        "b\n\"\u00e9\ud83d\ude00": {"x": null, "y": true}, "": false} "#;

    #[test]
    fn a_document_is_read() {
        let j = Json::parse(SAMPLE.as_bytes()).unwrap();
        let a = j.get("a").unwrap().as_array().unwrap();
        assert_eq!(a[1], Json::Float(-2500.0));
        assert_eq!(a[3].as_u64(), Some(i64::MAX as u64));
        assert_eq!(a[4], Json::Float(u64::MAX as f64));
        assert_eq!(j.get("b\n\"é😀").unwrap().get("y"), Some(&Json::Bool(true)));
        let mut s = String::new();
        write_str(&mut s, "b\n\"é😀\u{1}");
        assert_eq!(Json::parse(s.as_bytes()).unwrap().as_str(), Some("b\n\"é😀\u{1}"));
    }

    #[test]
    fn bad_texts_are_errors() {
        let deep = "[".repeat(100_000);
        let bad = [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800\\u0041\"",
            "\"\\udc00\"",
            "\"\\u12g4\"",
            "\"\\u+123\"",
            "\"a\nb\"",
            "{\"a\":1,\"a\":2}",
            "1 2",
            "{a:1}",
            "'a'",
            "NaN",
            "[1 2]",
            &deep,
        ];
        for b in bad {
            assert!(Json::parse(b.as_bytes()).is_err(), "{b:.20}");
        }
        assert!(Json::parse(b"\"\xff\"").is_err());
        assert!(Json::parse(format!("{}1{}", "[".repeat(60), "]".repeat(60)).as_bytes()).is_ok());
    }

    #[test]
    fn truncations_and_mutations_never_panic() {
        let text = SAMPLE.trim_end();
        for n in 0..text.len() {
            assert!(Json::parse(&text.as_bytes()[..n]).is_err(), "at {n}");
        }
        mutate(SAMPLE.as_bytes(), 20_000, |m| drop(Json::parse(m)));
    }
}
