//! The regular expressions of tokenizers: alternatives, groups, classes with Unicode categories, repetition, lookahead.
//! Patterns come from untrusted files, so they run on a backtracking machine with an explicit stack and a limit of
//! steps. The first alternative that matches wins, as in Perl. Not supported: captures, back references, lookbehind.

use super::unicode::{Categories, is_word};
use crate::error::{Error, Result};

/// The most instructions of a compiled pattern.
const MAX_CODE: usize = 4096;
/// The deepest nesting of groups and classes.
const MAX_DEPTH: usize = 24;
/// The limit of matching steps, for each byte of the text.
const STEPS: usize = 1000;

#[derive(Clone, Debug)]
enum Item {
    Range(char, char),
    Category(Categories, bool),
    Space(bool),
    Word(bool),
    Set(Set),
}

#[derive(Clone, Debug, Default)]
struct Set {
    items: Vec<Item>,
    negate: bool,
    fold: bool,
}

impl Set {
    fn has(&self, c: char) -> bool {
        let one = |c: char| {
            self.items.iter().any(|i| match i {
                Item::Range(a, b) => (*a..=*b).contains(&c),
                Item::Category(k, yes) => k.has(c) == *yes,
                Item::Space(yes) => c.is_whitespace() == *yes,
                // Oniguruma counts these superscripts and fractions as word characters
                Item::Word(yes) => (is_word(c) || matches!(c, '²' | '³' | '¹' | '¼' | '½' | '¾')) == *yes,
                Item::Set(s) => s.has(c),
            })
        };
        let found = one(c) || self.fold && folded(c).into_iter().any(one);
        found != self.negate
    }
}

/// The other cases of a letter, where these are single letters, too.
fn folded(c: char) -> [char; 3] {
    fn single(mut letters: impl Iterator<Item = char>, c: char) -> char {
        letters.next().filter(|_| letters.next().is_none()).unwrap_or(c)
    }
    let lower = |c: char| single(c.to_lowercase(), c);
    let upper = single(c.to_uppercase(), c);
    [lower(c), upper, lower(upper)]
}

#[derive(Clone, Debug)]
enum Node {
    Empty,
    Set(Set),
    Start,
    End,
    Seq(Vec<Node>),
    Alt(Vec<Node>),
    Repeat(Box<Node>, u32, u32, How),
    Look(Box<Node>, bool),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Greedy,
    Lazy,
    Possessive,
}

#[derive(Clone, Debug)]
enum Code {
    Set(Set),
    /// Matches a set as often as possible, from a least to a greatest number of times; on failure gives back one
    /// character at a time, unless the flag (possessive) is set.
    Many(Set, u32, u32, bool),
    /// Tries the first address, then the second one.
    Split(usize, usize),
    Jump(usize),
    /// Lookahead over the code that follows: continues at the address if that code matches (true), or if it
    /// does not (false).
    Look(bool, usize),
    Start,
    End,
    Match,
}

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Regex {
    code: Vec<Code>,
}

fn bad(pattern: &str, what: &str) -> Error {
    Error::Unsupported { what: format!("the pattern `{pattern}`: {what}"), context: "tokenizer".into() }
}

impl Regex {
    pub(super) fn new(pattern: &str) -> Result<Regex> {
        let mut p = Parser { pattern, rest: pattern, fold: false };
        let node = p.alternatives(0)?;
        if !p.rest.is_empty() {
            return Err(bad(pattern, "an unmatched `)`"));
        }
        let mut code = Vec::new();
        emit(&node, &mut code).ok_or_else(|| bad(pattern, "it is too long"))?;
        code.push(Code::Match);
        Ok(Regex { code })
    }

    /// A pattern that matches a text literally.
    pub(super) fn literal(text: &str) -> Regex {
        let one = |c| Code::Set(Set { items: vec![Item::Range(c, c)], ..Set::default() });
        Regex { code: text.chars().map(one).chain([Code::Match]).collect() }
    }

    /// Byte ranges of all non-overlapping matches, without empty ones.
    pub(super) fn find_all(&self, text: &str) -> Result<Vec<(usize, usize)>> {
        let mut out = Vec::new();
        let mut steps = (text.len() + 1).saturating_mul(STEPS);
        let mut stack = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let end = self.run(0, text, at, &mut stack, &mut steps)?;
            match end {
                Some(end) if end > at => {
                    out.push((at, end));
                    at = end;
                }
                _ => at += char_at(text, at).map_or(1, char::len_utf8),
            }
        }
        Ok(out)
    }

    /// Runs the code at `pc` from the offset `at`. Gives the end of the match.
    fn run(
        &self,
        pc: usize,
        text: &str,
        at: usize,
        stack: &mut Vec<State>,
        steps: &mut usize,
    ) -> Result<Option<usize>> {
        let floor = stack.len();
        let (mut pc, mut at) = (pc, at);
        loop {
            *steps = steps.checked_sub(1).ok_or_else(|| Error::value("tokenizer", "a pattern takes too long"))?;
            let next = match self.code.get(pc) {
                Some(Code::Match) => {
                    stack.truncate(floor);
                    return Ok(Some(at));
                }
                Some(Code::Set(s)) => match char_at(text, at) {
                    Some(c) if s.has(c) => Some((pc + 1, at + c.len_utf8())),
                    _ => None,
                },
                Some(Code::Many(s, min, max, keep)) => {
                    let (mut n, mut end, mut least) = (0, at, at);
                    while n < *max {
                        match char_at(text, end) {
                            Some(c) if s.has(c) => end += c.len_utf8(),
                            _ => break,
                        }
                        n += 1;
                        if n == *min {
                            least = end;
                        }
                    }
                    *steps = steps.saturating_sub(n as usize / 8);
                    if !keep && end > least && n > *min {
                        stack.push(State { pc: pc + 1, at: end, least });
                    }
                    (n >= *min).then_some((pc + 1, end))
                }
                Some(Code::Split(a, b)) => {
                    stack.push(State { pc: *b, at, least: at });
                    Some((*a, at))
                }
                Some(Code::Jump(to)) => Some((*to, at)),
                Some(Code::Look(yes, end)) => {
                    let found = self.run(pc + 1, text, at, stack, steps)?.is_some();
                    (found == *yes).then_some((*end, at))
                }
                Some(Code::Start) => (at == 0).then_some((pc + 1, at)),
                Some(Code::End) => (at == text.len()).then_some((pc + 1, at)),
                None => None,
            };
            (pc, at) = match next {
                Some(next) => next,
                None => match back(stack, floor, text) {
                    Some(next) => next,
                    None => return Ok(None),
                },
            };
        }
    }
}

/// A state to backtrack to: continue at `pc` from the offset `at`; after a repetition, then from each earlier character
/// down to `least`.
struct State {
    pc: usize,
    at: usize,
    least: usize,
}

fn back(stack: &mut Vec<State>, floor: usize, text: &str) -> Option<(usize, usize)> {
    if stack.len() <= floor {
        return None;
    }
    let s = stack.last_mut()?;
    if s.at == s.least {
        let s = stack.pop()?;
        return Some((s.pc, s.at));
    }
    s.at -= text.get(..s.at).and_then(|t| t.chars().next_back()).map_or(1, char::len_utf8);
    let next = (s.pc, s.at);
    if s.at == s.least {
        stack.pop();
    }
    Some(next)
}

fn char_at(text: &str, at: usize) -> Option<char> {
    text.get(at..)?.chars().next()
}

/// Appends the code of a node; `None` if the code becomes too long.
fn emit(node: &Node, code: &mut Vec<Code>) -> Option<()> {
    if code.len() > MAX_CODE {
        return None;
    }
    match node {
        Node::Empty => {}
        Node::Set(s) => code.push(Code::Set(s.clone())),
        Node::Start => code.push(Code::Start),
        Node::End => code.push(Code::End),
        Node::Seq(list) => list.iter().try_for_each(|n| emit(n, code))?,
        Node::Alt(list) => {
            let mut ends = Vec::new();
            for (i, n) in list.iter().enumerate() {
                if i + 1 == list.len() {
                    emit(n, code)?;
                    break;
                }
                let split = code.len();
                code.push(Code::Split(split + 1, 0));
                emit(n, code)?;
                ends.push(code.len());
                code.push(Code::Jump(0));
                code[split] = Code::Split(split + 1, code.len());
            }
            for e in ends {
                code[e] = Code::Jump(code.len());
            }
        }
        Node::Repeat(n, min, max, how) => match (&**n, how) {
            (Node::Set(s), How::Greedy | How::Possessive) => {
                code.push(Code::Many(s.clone(), *min, *max, *how == How::Possessive));
            }
            (n, how) => {
                for _ in 0..*min {
                    emit(n, code)?;
                }
                let mut splits = Vec::new();
                let again = *max == u32::MAX;
                for _ in 0..if again { 1 } else { max - min } {
                    splits.push(code.len());
                    code.push(Code::Match);
                    emit(n, code)?;
                }
                if again {
                    code.push(Code::Jump(splits[0]));
                }
                for s in splits {
                    let (inside, after) = (s + 1, code.len());
                    code[s] = if *how == How::Lazy { Code::Split(after, inside) } else { Code::Split(inside, after) };
                }
            }
        },
        Node::Look(n, yes) => {
            let at = code.len();
            code.push(Code::Match);
            emit(n, code)?;
            code.push(Code::Match);
            code[at] = Code::Look(*yes, code.len());
        }
    }
    Some(())
}

struct Parser<'a> {
    pattern: &'a str,
    rest: &'a str,
    fold: bool,
}

impl Parser<'_> {
    fn bad(&self, what: &str) -> Error {
        bad(self.pattern, what)
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn next(&mut self) -> Result<char> {
        let mut chars = self.rest.chars();
        let c = chars.next().ok_or_else(|| self.bad("it ends too early"))?;
        self.rest = chars.as_str();
        Ok(c)
    }

    fn alternatives(&mut self, depth: usize) -> Result<Node> {
        if depth > MAX_DEPTH {
            return Err(self.bad("groups are nested too deep"));
        }
        let mut list = vec![self.sequence(depth)?];
        while self.eat("|") {
            list.push(self.sequence(depth)?);
        }
        Ok(if list.len() == 1 { list.remove(0) } else { Node::Alt(list) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node> {
        let mut list = Vec::new();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let atom = self.atom(depth)?;
            list.push(self.repeated(atom)?);
        }
        Ok(if list.len() == 1 { list.remove(0) } else { Node::Seq(list) })
    }

    fn repeated(&mut self, atom: Node) -> Result<Node> {
        let (min, max) = if self.eat("*") {
            (0, u32::MAX)
        } else if self.eat("+") {
            (1, u32::MAX)
        } else if self.eat("?") {
            (0, 1)
        } else if self.rest.starts_with('{') {
            match self.bounds() {
                Some(b) => b,
                None => return Ok(atom),
            }
        } else {
            return Ok(atom);
        };
        let how = if self.eat("+") {
            How::Possessive
        } else if self.eat("?") {
            How::Lazy
        } else {
            How::Greedy
        };
        if min > max || min > 1000 || max != u32::MAX && max > 1000 {
            return Err(self.bad("a repetition that is too long"));
        }
        if how == How::Possessive && !matches!(atom, Node::Set(_)) {
            return Err(self.bad("a possessive repetition of a group"));
        }
        if matches!(atom, Node::Repeat(..) | Node::Empty | Node::Start | Node::End | Node::Look(..)) {
            return Err(self.bad("a repetition of what is no text"));
        }
        Ok(Node::Repeat(Box::new(atom), min, max, how))
    }

    /// `{n}`, `{n,}`, `{n,m}`, `{,m}`; any other brace is a literal.
    fn bounds(&mut self) -> Option<(u32, u32)> {
        let (inside, rest) = self.rest.get(1..)?.split_once('}')?;
        let number = |s: &str| s.parse::<u32>().ok();
        let bounds = match inside.split_once(',') {
            None => (number(inside)?, number(inside)?),
            Some(("", b)) => (0, number(b)?),
            Some((a, "")) => (number(a)?, u32::MAX),
            Some((a, b)) => (number(a)?, number(b)?),
        };
        self.rest = rest;
        Some(bounds)
    }

    fn atom(&mut self, depth: usize) -> Result<Node> {
        match self.next()? {
            '(' => self.group(depth),
            '[' => {
                let mut s = self.set(depth)?;
                s.fold = self.fold;
                Ok(Node::Set(s))
            }
            '.' => Ok(Node::Set(Set { items: vec![Item::Range('\n', '\n')], negate: true, fold: false })),
            '^' => Ok(Node::Start),
            '$' => Ok(Node::End),
            '\\' => match self.rest.chars().next() {
                Some('A') => {
                    self.next()?;
                    Ok(Node::Start)
                }
                Some('z' | 'Z') => {
                    self.next()?;
                    Ok(Node::End)
                }
                _ => Ok(self.one(Self::escape)?),
            },
            '*' | '+' | '?' => Err(self.bad("a repetition of nothing")),
            c => Ok(Node::Set(Set { items: vec![Item::Range(c, c)], negate: false, fold: self.fold })),
        }
    }

    fn one(&mut self, f: fn(&mut Self) -> Result<Item>) -> Result<Node> {
        Ok(Node::Set(Set { items: vec![f(self)?], negate: false, fold: self.fold }))
    }

    fn group(&mut self, depth: usize) -> Result<Node> {
        let outer = self.fold;
        let look = if self.eat("?=") {
            Some(true)
        } else if self.eat("?!") {
            Some(false)
        } else {
            None
        };
        if look.is_none() && self.eat("?") {
            // `?i:`, `?:`, or `?i)`, whose setting holds to the end of the enclosing group
            let off = self.eat("-");
            if self.eat("i") {
                self.fold = !off;
            }
            if self.eat(")") {
                return Ok(Node::Empty);
            }
            if !self.eat(":") {
                return Err(self.bad("a group of an unknown kind"));
            }
        }
        let inner = self.alternatives(depth + 1)?;
        if !self.eat(")") {
            return Err(self.bad("a group without end"));
        }
        self.fold = outer;
        Ok(match look {
            Some(yes) => Node::Look(Box::new(inner), yes),
            // A single set stays a set, so that a possessive repetition may follow
            None if matches!(inner, Node::Set(_)) => inner,
            None => Node::Seq(vec![inner]),
        })
    }

    fn set(&mut self, depth: usize) -> Result<Set> {
        if depth > MAX_DEPTH {
            return Err(self.bad("classes are nested too deep"));
        }
        let mut s = Set { negate: self.eat("^"), ..Set::default() };
        let mut first = true;
        loop {
            if self.rest.starts_with("&&") || self.rest.starts_with("[:") {
                return Err(self.bad("a class of an unknown kind"));
            }
            let item = match self.next()? {
                ']' if !first => return Ok(s),
                '[' => Item::Set(self.set(depth + 1)?),
                '\\' => self.escape()?,
                c => Item::Range(c, c),
            };
            first = false;
            let range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            s.items.push(match item {
                Item::Range(a, _) if range => {
                    self.next()?;
                    let b = match self.next()? {
                        '\\' => self.escape()?,
                        c => Item::Range(c, c),
                    };
                    match b {
                        Item::Range(b, _) if a <= b => Item::Range(a, b),
                        _ => return Err(self.bad("a range without end")),
                    }
                }
                item => item,
            });
        }
    }

    /// Parses the escape after a backslash.
    fn escape(&mut self) -> Result<Item> {
        let c = self.next()?;
        let literal = |c| Item::Range(c, c);
        Ok(match c {
            's' | 'S' => Item::Space(c == 's'),
            'w' | 'W' => Item::Word(c == 'w'),
            'd' | 'D' => Item::Category(Categories::DIGIT, c == 'd'),
            'n' => literal('\n'),
            'r' => literal('\r'),
            't' => literal('\t'),
            'f' => literal('\u{c}'),
            'v' => literal('\u{b}'),
            'x' | 'u' => {
                let n = if self.eat("{") {
                    self.rest.find('}').unwrap_or(0)
                } else if c == 'x' {
                    2
                } else {
                    4
                };
                let digits = self.rest.get(..n).unwrap_or_default();
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
                self.rest = self.rest.get(n..).unwrap_or_default();
                self.eat("}");
                literal(code.ok_or_else(|| self.bad("a bad code point"))?)
            }
            'p' | 'P' => {
                let name = if self.eat("{") {
                    let (name, rest) = self.rest.split_once('}').ok_or_else(|| self.bad("a category without end"))?;
                    self.rest = rest;
                    name.to_owned()
                } else {
                    self.next()?.to_string()
                };
                let (name, negate) = name.strip_prefix('^').map_or((name.as_str(), false), |n| (n, true));
                let k = Categories::from_name(name).ok_or_else(|| self.bad("an unknown category"))?;
                Item::Category(k, (c == 'p') != negate)
            }
            c if c.is_ascii_alphanumeric() => return Err(self.bad(&format!("the escape `\\{c}`"))),
            c => literal(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pattern: &str, text: &str) -> Vec<String> {
        let found = Regex::new(pattern).unwrap().find_all(text).unwrap();
        found.iter().map(|&(a, b)| text[a..b].to_owned()).collect()
    }

    #[test]
    fn patterns_match_as_in_perl() {
        let gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
        assert_eq!(
            all(gpt2, "It's  a test,\n\n42x é"),
            ["It", "'s", " ", " a", " test", ",", "\n", "\n", "42", "x", " é"]
        );
        let llama = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
        assert_eq!(all(llama, "I'LL pay $12345 \n\n ok"), ["I", "'LL", " pay", " $", "123", "45", " \n\n", " ok"]);
        assert_eq!(all("a|ab", "abab"), ["a", "a"]);
        assert_eq!(all("(?:ab)+c?", "xababcab"), ["ababc", "ab"]);
        assert_eq!(all("a+?b*", "aab"), ["a", "ab"]);
        assert_eq!(all(r"[\w-]{2,3}", "a-b-c d"), ["a-b", "-c"]);
        assert_eq!(all(r"[^a-c\]]+", "abxd]"), ["xd"]);
        assert_eq!(all(r"\x41\u{e9}|^B|C$", "BAéBC"), ["B", "Aé", "C"]);
        assert_eq!(all("x*", "aaxxa"), ["xx"]);
        assert_eq!(all("(?i)k", "K\u{212a}"), ["K", "\u{212a}"]);
        // a ligature whose capital form has two letters does not match either of them
        assert_eq!(all("(?i)[st]", "ſT\u{fb05}"), ["ſ", "T"]);
        assert_eq!(all("a{2}{", "aa{"), ["aa{"]);
    }

    #[test]
    fn bad_patterns_are_errors_and_slow_ones_end() {
        for p in [
            "(",
            ")",
            "[",
            "[a",
            "*",
            "a**",
            r"\p{Foo}",
            r"\p{L",
            r"(?<=a)b",
            r"\1",
            "(?:(?:ab){1000}){1000}",
            "a{5,2}",
            r"\",
            "(a*)++",
        ] {
            assert!(Regex::new(p).is_err(), "{p}");
        }
        assert!(Regex::new(&"(".repeat(100_000)).is_err());
        assert!(Regex::new(&"[".repeat(100_000)).is_err());
        assert!(Regex::new("(?:a*)*b").unwrap().find_all("aaaa").is_err());
        assert!(Regex::new("(?:(?:a|a)+)+b").unwrap().find_all(&"a".repeat(60)).is_err());
        assert!(Regex::new(r"\s+(?!\S)|\s+").unwrap().find_all(&" ".repeat(100_000)).is_ok());
    }
}
