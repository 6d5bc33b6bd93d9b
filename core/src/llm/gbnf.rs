//! Grammars of texts in GBNF, the notation of llama.cpp (`grammars/README.md` there): rules `name ::= alternatives` of
//! strings, classes of characters, groups, other rules, and repetitions. The text follows the rule `root`.
//!
//! Rules may call each other and themselves, but not as their first symbol (left recursion): a match would call for ever
//! before it reads a character. Symbols that stand for tokens (`<..>`) are not here: these grammars are of texts.

use super::grammar::{Grammar, Item, Set};
use super::pattern::{Range, others};
use super::schema::{MAX_DEPTH, MOST_COUNTED, literal};
use crate::error::{Error, Result};
use rustc_hash::FxHashMap;

/// All characters, divided where the length of their UTF-8 changes.
const ALL: &[Range] = &[(0, 0x7f), (0x80, 0x7ff), (0x800, 0xd7ff), (0xe000, 0xffff), (0x10000, 0x10ffff)];

/// A rule that was named.
struct Named {
    rule: u32,
    /// Where its name comes first.
    at: usize,
    is_defined: bool,
}

impl Grammar {
    /// Reads a grammar in GBNF.
    ///
    /// # Errors
    /// `E_FORMAT` with line and column for wrong syntax, for rules that are missing, defined twice or left-recursive;
    /// `E_UNSUPPORTED` for symbols that stand for tokens.
    pub fn from_gbnf(text: &str) -> Result<Grammar> {
        let mut r = Reader { text, at: 0, g: Grammar::default(), rules: FxHashMap::default(), order: Vec::new() };
        r.space(true);
        while r.at < text.len() {
            r.rule()?;
        }
        let of = |name: &String| r.rules.get(name);
        if let Some((name, n)) = r.order.iter().filter_map(|name| Some((name, of(name)?))).find(|n| !n.1.is_defined) {
            return Err(r.error(n.at, &format!("the rule `{name}` is not defined")));
        }
        let Some(root) = r.rules.get("root") else { return Err(r.error(text.len(), "there is no rule `root`")) };
        r.g.set_start(root.rule);
        let is_recursive = r.g.left_recursive();
        let recursive = |n: &&Named| is_recursive.get(n.rule as usize).copied().unwrap_or(false);
        match r.order.iter().filter_map(|name| Some((name, of(name)?))).find(|n| recursive(&n.1)) {
            Some((name, n)) => Err(r.error(n.at, &format!("the rule `{name}` calls itself as its first symbol"))),
            None => Ok(r.g),
        }
    }

    /// One character of these ranges.
    fn character(&mut self, ranges: &[Range]) -> Result<Item> {
        let (mut ascii, mut ways) = (Vec::new(), Vec::new());
        for (range, of) in ranges.iter().flat_map(|r| ALL.iter().map(move |of| (r, of))) {
            match (char::from_u32(range.0.max(of.0)), char::from_u32(range.1.min(of.1))) {
                (Some(a), Some(b)) if a <= b && b.is_ascii() => ascii.push((a as u8, b as u8)),
                (Some(a), Some(b)) if a <= b => {
                    let (a, b) = (a.to_string(), b.to_string());
                    ways.push(vec![self.between(a.as_bytes(), b.as_bytes(), (0x80, 0xbf))?]);
                }
                _ => {}
            }
        }
        if !ascii.is_empty() {
            ways.push(vec![Item::Set(Set::ranges(&ascii))]);
        }
        self.add(&ways)
    }
}

/// A grammar that is being read.
struct Reader<'a> {
    text: &'a str,
    /// The number of bytes that were read.
    at: usize,
    g: Grammar,
    rules: FxHashMap<String, Named>,
    /// The rules' names in the order in which they come first.
    order: Vec<String>,
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

impl<'a> Reader<'a> {
    fn error(&self, at: usize, what: &str) -> Error {
        let before = self.text.get(..at).unwrap_or(self.text);
        let (line, last) = (before.matches('\n').count() + 1, before.rsplit('\n').next().unwrap_or_default());
        Error::format("grammar", format!("line {line}, column {}: {what}", last.chars().count() + 1), None)
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        let found = self.peek().map_or("the end".into(), |c| format!("`{}`", c.escape_debug()));
        Err(self.error(self.at, &format!("{what} is wanted, not {found}")))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, what: &str) -> bool {
        let is_next = self.rest().starts_with(what);
        self.at += if is_next { what.len() } else { 0 };
        is_next
    }

    /// Blanks and comments, and ends of lines if `lines` is true.
    fn space(&mut self, lines: bool) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\r' | '\n') if lines => self.at += 1,
                Some('#') => self.at += self.rest().find(['\r', '\n']).unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    fn name(&mut self) -> &'a str {
        let rest = self.rest();
        let name = &rest[..rest.find(|c| !is_in_name(c)).unwrap_or(rest.len())];
        self.at += name.len();
        name
    }

    /// The rule of this name, which is at `at`.
    fn named(&mut self, name: &str, at: usize) -> &mut Named {
        if !self.rules.contains_key(name) {
            self.order.push(name.to_owned());
        }
        let g = &mut self.g;
        self.rules.entry(name.to_owned()).or_insert_with(|| Named { rule: g.reserve(), at, is_defined: false })
    }

    fn rule(&mut self) -> Result<()> {
        let (at, name) = (self.at, self.name());
        if name.is_empty() {
            return self.wrong("the name of a rule");
        }
        let named = self.named(name, at);
        if std::mem::replace(&mut named.is_defined, true) {
            return Err(self.error(at, &format!("the rule `{name}` is defined twice")));
        }
        let rule = named.rule;
        self.space(false);
        if !self.eat("::=") {
            return self.wrong("`::=`");
        }
        self.space(true);
        let all = self.alternatives(0)?;
        self.g.define(rule, &all)?;
        if !matches!(self.peek(), None | Some('\r' | '\n')) {
            return self.wrong("a symbol or the end of the line");
        }
        self.space(true);
        Ok(())
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Vec<Item>>> {
        if depth > MAX_DEPTH {
            return Err(self.error(self.at, &format!("groups are deeper than {MAX_DEPTH}")));
        }
        let mut all = Vec::new();
        loop {
            all.push(self.sequence(depth)?);
            if !self.eat("|") {
                return Ok(all);
            }
            self.space(true);
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Vec<Item>> {
        let mut all = Vec::new();
        while let Some(mut item) = self.symbol(depth)? {
            self.space(depth > 0);
            while let Some(counts) = self.counts(depth)? {
                item = self.g.repeated(&[item], &[], counts)?;
            }
            all.push(item);
        }
        Ok(all)
    }

    /// A symbol without its repetitions, if another one comes.
    fn symbol(&mut self, depth: usize) -> Result<Option<Item>> {
        let at = self.at;
        Ok(Some(match self.peek() {
            Some('"') => {
                self.at += 1;
                let mut text = String::new();
                while !self.eat("\"") {
                    let (at, code) = (self.at, self.code()?);
                    text.push(char::from_u32(code).ok_or_else(|| self.error(at, "this is no character"))?);
                }
                self.g.add(&[literal(&text)])?
            }
            Some('[') => {
                let ranges = self.class()?;
                self.g.character(&ranges)?
            }
            Some('.') => {
                self.at += 1;
                self.g.character(ALL)?
            }
            Some('(') => {
                self.at += 1;
                self.space(true);
                let all = self.alternatives(depth + 1)?;
                if !self.eat(")") {
                    return self.wrong("`)`");
                }
                self.g.add(&all)?
            }
            Some('<' | '!') => {
                let Error::Format { what, .. } = self.error(at, "a symbol that stands for tokens") else {
                    return Ok(None);
                };
                return Err(Error::Unsupported { what, context: "a grammar".into() });
            }
            Some(c) if is_in_name(c) => {
                let name = self.name();
                Item::Rule(self.named(name, at).rule)
            }
            _ => return Ok(None),
        }))
    }

    /// How often the symbol before comes, if that is said here.
    fn counts(&mut self, depth: usize) -> Result<Option<(u64, Option<u64>)>> {
        let counts = if self.eat("*") {
            (0, None)
        } else if self.eat("+") {
            (1, None)
        } else if self.eat("?") {
            (0, Some(1))
        } else if self.eat("{") {
            self.space(depth > 0);
            let least = self.number()?;
            self.space(depth > 0);
            let mut most = least;
            if self.eat(",") {
                self.space(depth > 0);
                let is_open = self.peek() == Some('}');
                most = if is_open { None } else { self.number()? };
                if !is_open && most.is_none() {
                    return self.wrong("a number or `}`");
                }
            } else if least.is_none() {
                return self.wrong("a number");
            }
            self.space(depth > 0);
            if !self.eat("}") {
                return self.wrong("`}`");
            }
            let least = least.unwrap_or(0);
            if most.is_some_and(|most| most < least) {
                return Err(self.error(self.at, "the second number is smaller than the first"));
            }
            (least, most)
        } else {
            return Ok(None);
        };
        self.space(depth > 0);
        Ok(Some(counts))
    }

    fn number(&mut self) -> Result<Option<u64>> {
        let (at, rest) = (self.at, self.rest());
        let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
        self.at += digits.len();
        match digits.parse::<u64>() {
            _ if digits.is_empty() => Ok(None),
            Ok(n) if n <= MOST_COUNTED => Ok(Some(n)),
            _ => Err(self.error(at, &format!("at most {MOST_COUNTED} repetitions are counted"))),
        }
    }

    fn class(&mut self) -> Result<Vec<Range>> {
        let at = self.at;
        self.at += 1;
        let (is_negated, mut all) = (self.eat("^"), Vec::new());
        while !self.eat("]") {
            let low = self.code()?;
            // A dash before the end is a character
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let high = if is_range && self.eat("-") { self.code()? } else { low };
            if low > high {
                return Err(self.error(at, "a class with a range that ends before it begins"));
            }
            all.push((low, high));
        }
        let all = if is_negated { others(&all) } else { all };
        match all.is_empty() || all.iter().all(|r| r.0 > r.1) {
            true => Err(self.error(at, "a class of no character")),
            false => Ok(all),
        }
    }

    /// The number of a character, which may be written as an escape.
    fn code(&mut self) -> Result<u32> {
        let at = self.at;
        let hex = |r: &mut Reader<'_>, n: usize| {
            let digits = r.rest().get(..n).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
            let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok()).filter(|&code| code <= 0x10ffff);
            r.at += n;
            code.ok_or_else(|| r.error(at, "an escape is wrong"))
        };
        match self.next() {
            None | Some('\r' | '\n') => Err(self.error(at, "the string or class does not end")),
            Some('\\') => match self.next() {
                Some('x') => hex(self, 2),
                Some('u') => hex(self, 4),
                Some('U') => hex(self, 8),
                Some('t') => Ok(0x9),
                Some('n') => Ok(0xa),
                Some('r') => Ok(0xd),
                Some(c @ ('\\' | '"' | '[' | ']' | '-' | '^')) => Ok(c.into()),
                _ => Err(self.error(at, "an escape is wrong")),
            },
            Some(c) => Ok(c.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::tests::{fits, matcher};
    use super::*;
    use std::sync::Arc;

    fn grammar(text: &str) -> Arc<Grammar> {
        Arc::new(Grammar::from_gbnf(text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }

    #[test]
    fn texts_fit_their_grammar() {
        for (text, good, bad) in [
            ("root ::= \"yes\" | \"no\"", &["yes", "no"][..], &["", "ye", "yesno"][..]),
            ("root ::= \"a\"* \"b\"+ \"c\"?", &["b", "aab", "bbc"], &["", "a", "ac", "bcc"]),
            ("root ::= (\"a\" | \"bc\")+", &["a", "bc", "abca"], &["", "b", "abb"]),
            ("root ::= [a-cx] [^a-c] .", &["aé😀", "xz\n"], &["ab.", "dz.", "a"]),
            ("root ::= [a-]", &["a", "-"], &["b"]),
            (
                r#"root ::= "\"\\\x41\u00e9\U0001F600\[\n" [\x00-\x1f\]]"#,
                &["\"\\Aé😀[\n]", "\"\\Aé😀[\n\t"],
                &["\"\\Aé😀[\n["],
            ),
            ("root ::= \"a\"{2} \"b\"{1,} \"c\"{0,2} \"d\" {,1}", &["aab", "aabbccd"], &["ab", "aabccc", "aabdd"]),
            ("root ::= \"ab\"{2,3}", &["abab", "ababab"], &["ab", "abb"]),
            ("root ::= \"a\" \"\" x\nx ::= \"b\" x | \"\" # to the end\n", &["a", "abbb"], &["", "b"]),
            (
                "# first\nroot  ::=\n  item (\",\"\n   item)* # lists\n\nitem ::= [0-9]+ |\n [a-z]",
                &["1", "12,a,3"],
                &["1,", "ab"],
            ),
            (
                "root ::= e\r\ne ::= t (\"+\" t)*\r\nt ::= [0-9] | \"(\" e \")\"\r\n",
                &["1", "(1+2)+((3))"],
                &["1+", "(1", "1)"],
            ),
            ("root ::= a a\na ::= \"x\" | \"\" | a", &["", "x", "xx"], &["y"]),
            ("root ::= (\"a\"*)* \"b\"", &["b", "aab"], &["a", "ba"]),
            ("root ::= [^\\n]* \"\\n\"", &["\n", "añ\n"], &["a", "\n\n"]),
        ] {
            let g = grammar(text);
            let words = g.to_words();
            assert_eq!(Grammar::from_words(&words).map(|g| g.to_words()).as_ref(), Some(&words));
            assert!(
                (0..words.len().min(40))
                    .all(|n| Grammar::from_words(&words[..n]).is_none_or(|g| g.to_words().len() == n))
            );
            let g = Arc::new(Grammar::from_words(&words).unwrap());
            good.iter().for_each(|s| assert!(fits(&g, s), "{text} refuses {s:?}"));
            bad.iter().for_each(|s| assert!(!fits(&g, s), "{text} takes {s:?}"));
        }
        let deep = grammar("root ::= \"[\" root \"]\" | \"x\"");
        assert!(fits(&deep, &format!("{}x{}", "[".repeat(10_000), "]".repeat(10_000))));
    }

    /// Grammars with changed characters are read or refused.
    #[test]
    fn any_text_is_a_grammar_or_is_not() {
        let from = "root ::= (\"a\" | [^b-z]{2,3} x)* # no\nx ::= \"\\x41\\u00e9\" .+ y?\ny ::= root \"é\" | \"\"\n";
        let with: Vec<char> = "\"[](){}|*+?^-\\,.:=# \n\r\txuU019aroé<!".chars().collect();
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        let mut read = 0;
        for _ in 0..4000 {
            let mut text: Vec<char> = from.chars().collect();
            for _ in 0..=random(4) {
                let at = random(text.len());
                match random(3) {
                    0 => text[at] = with[random(with.len())],
                    1 => text.insert(at, with[random(with.len())]),
                    _ => text.truncate(at.max(1)),
                }
            }
            match Grammar::from_gbnf(&text.into_iter().collect::<String>()) {
                Ok(g) => {
                    read += 1;
                    let Ok(mut m) = matcher(&Arc::new(g)) else { continue };
                    let _ = "aaAéq".bytes().try_for_each(|b| m.take(b.into()));
                }
                Err(e) => assert!(matches!(e.code(), "E_FORMAT" | "E_UNSUPPORTED"), "{e}"),
            }
        }
        assert!(read > 100, "{read} are grammars");
    }

    #[test]
    fn what_is_wrong_has_its_line_and_column() {
        for (text, place) in [
            ("", "line 1, column 1: there is no rule `root`"),
            ("a ::= \"b\"", "there is no rule `root`"),
            ("root ::= a", "line 1, column 10: the rule `a` is not defined"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule `root` is defined twice"),
            ("root = \"a\"", "line 1, column 6: `::=` is wanted, not `=`"),
            ("root ::= \"a\" ]", "line 1, column 14: a symbol or the end of the line is wanted, not `]`"),
            ("root ::= (\"a\"\n  \"é\" ", "line 2, column 7: `)` is wanted, not the end"),
            ("root ::= \"a", "line 1, column 12: the string or class does not end"),
            ("root ::= [a\n]", "line 1, column 12: the string or class does not end"),
            ("root ::= \"é\\q\"", "line 1, column 12: an escape is wrong"),
            ("root ::= \"\\ud800\"", "line 1, column 11: this is no character"),
            ("root ::= \"\\U00110000\"", "an escape is wrong"),
            ("root ::= \"\\x4é\"", "an escape is wrong"),
            ("root ::= []", "line 1, column 10: a class of no character"),
            ("root ::= [^\\x00-\\U0010FFFF]", "a class of no character"),
            ("root ::= [z-a]", "a range that ends before it begins"),
            ("root ::= \"a\"{3,2}", "smaller than the first"),
            ("root ::= \"a\"{}", "line 1, column 14: a number is wanted"),
            ("root ::= \"a\"{1,x}", "a number or `}` is wanted, not `x`"),
            ("root ::= \"a\"{1000000}", "at most 4096"),
            ("root ::= \"a\"{99999999999999999999}", "at most 4096"),
            ("root ::= \"b\"\n  * \"a\"", "line 2, column 3: the name of a rule is wanted, not `*`"),
            ("root ::= root \"a\" | \"b\"", "line 1, column 1: the rule `root` calls itself as its first symbol"),
            (
                "root ::= \"x\" a\na ::= b \"a\" | \"c\"\nb ::= c\nc ::= \"d\"? a \"e\"",
                "column 14: the rule `a` calls itself",
            ),
            ("root ::= (root \"a\")? \"b\"", "the rule `root` calls itself"),
        ] {
            let e = Grammar::from_gbnf(text).unwrap_err();
            assert!(e.code() == "E_FORMAT" && e.to_string().contains(place), "{text:?}: {e}");
        }
        for text in ["root ::= <[12]>", "root ::= \"a\" !<think>"] {
            let e = Grammar::from_gbnf(text).unwrap_err();
            assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("line 1, column"), "{e}");
        }
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(5000), ")".repeat(5000));
        assert!(Grammar::from_gbnf(&deep).unwrap_err().to_string().contains("deeper than 128"));
        let large = format!("root ::= {}", "\"a\"{4096}".repeat(1000));
        assert_eq!(Grammar::from_gbnf(&large).unwrap_err().code(), "E_VALUE");
        let long: String = (0..500).map(|i| format!("r{i} ::= r{} | \"\"\n", i + 1)).collect();
        assert!(fits(&grammar(&format!("root ::= \"a\" r0\n{long}r500 ::= \"b\"")), "a"));
    }
}
