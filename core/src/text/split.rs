//! Pre-tokenizers: they cut a text into pieces; no token spans two pieces.

use super::aligned::Aligned;
use super::config::{Config, unknown};
use super::regex::Regex;
use super::unicode::{is_punctuation, is_rust_word};
use crate::error::Result;

/// A part of the text, or an added token that was found in it; the latter is not cut any further.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub text: Aligned,
    pub token: Option<u32>,
    /// Whether the piece is at the beginning of the text.
    pub first: bool,
}

/// What happens to the parts of a text that a pattern matches (Hugging Face's `SplitDelimiterBehavior`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Behavior {
    Removed,
    Isolated,
    MergedWithPrevious,
    MergedWithNext,
    Contiguous,
}

#[derive(Clone, Debug)]
pub(super) enum Split {
    Bert,
    ByteLevel { prefix: bool, pattern: Option<Regex> },
    Metaspace(Metaspace),
    Whitespace,
    WhitespaceSplit,
    Punctuation(Behavior),
    Digits(Behavior),
    Delimiter(char),
    Pattern { pattern: Regex, behavior: Behavior, invert: bool },
    FixedLength(usize),
    Sequence(Vec<Split>),
}

#[derive(Clone, Debug)]
pub(super) struct Metaspace {
    pub mark: char,
    pub prepend: Prepend,
    pub split: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Prepend {
    Always,
    First,
    Never,
}

/// The regular expression by which GPT-2 cuts a text into words.
pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

impl Metaspace {
    pub(super) fn new(c: &Config<'_>) -> Result<Metaspace> {
        let prepend = match c.text_or("prepend_scheme", "always")? {
            "first" => Prepend::First,
            "never" => Prepend::Never,
            _ if !c.flag("add_prefix_space", true)? => Prepend::Never,
            _ => Prepend::Always,
        };
        Ok(Metaspace { mark: c.character("replacement", '▁')?, prepend, split: c.flag("split", true)? })
    }
}

impl Split {
    pub(super) fn new(c: &Config<'_>) -> Result<Split> {
        Ok(match c.kind()? {
            "BertPreTokenizer" => Split::Bert,
            "ByteLevel" => Split::ByteLevel {
                prefix: c.flag("add_prefix_space", true)?,
                pattern: if c.flag("use_regex", true)? { Some(Regex::new(GPT2)?) } else { None },
            },
            "Metaspace" => Split::Metaspace(Metaspace::new(c)?),
            "Whitespace" => Split::Whitespace,
            "WhitespaceSplit" => Split::WhitespaceSplit,
            "Punctuation" => Split::Punctuation(behavior(c, "Isolated")?),
            "Digits" if c.flag("individual_digits", false)? => Split::Digits(Behavior::Isolated),
            "Digits" => Split::Digits(Behavior::Contiguous),
            "CharDelimiterSplit" => Split::Delimiter(c.character("delimiter", ' ')?),
            "Split" => Split::Pattern {
                pattern: c.pattern()?,
                behavior: behavior(c, "Isolated")?,
                invert: c.flag("invert", false)?,
            },
            "FixedLength" => Split::FixedLength(c.size("length", 5)?.max(1)),
            "Sequence" => Split::Sequence(c.list("pretokenizers", Split::new)?),
            kind => return Err(unknown("pre-tokenizer", kind)),
        })
    }

    /// Cuts all pieces that are not tokens yet.
    pub(super) fn run(&self, pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        if let Split::Sequence(list) = self {
            return list.iter().try_fold(pieces, |p, s| s.run(p));
        }
        let mut out = Vec::with_capacity(pieces.len());
        for p in pieces {
            if p.token.is_some() { out.push(p) } else { self.piece(p, &mut out)? }
        }
        Ok(out)
    }

    fn piece(&self, mut p: Piece, out: &mut Vec<Piece>) -> Result<()> {
        match self {
            Split::Bert => {
                let mut words = Vec::new();
                cut(&p, chars(&p, char::is_whitespace), Behavior::Removed, false, &mut words);
                for w in words {
                    cut(&w, chars(&w, is_punctuation), Behavior::Isolated, false, out);
                }
            }
            Split::ByteLevel { prefix, pattern } => {
                if *prefix && !p.text.text.starts_with(' ') {
                    p.text.prepend(" ");
                }
                let start = out.len();
                match pattern {
                    Some(r) => cut(&p, r.find_all(&p.text.text)?, Behavior::Isolated, false, out),
                    None => out.push(p),
                }
                for p in &mut out[start..] {
                    byte_level(&mut p.text);
                }
            }
            Split::Metaspace(m) => {
                p.text.filter_map(&|c| Some(if c == ' ' { m.mark } else { c }));
                let wanted = m.prepend == Prepend::Always || m.prepend == Prepend::First && p.first;
                if wanted && !p.text.text.starts_with(m.mark) {
                    p.text.prepend(m.mark.encode_utf8(&mut [0; 4]));
                }
                match m.split {
                    true => cut(&p, chars(&p, |c| c == m.mark), Behavior::MergedWithNext, false, out),
                    false => out.push(p),
                }
            }
            Split::Whitespace => {
                // Runs of word characters, and runs of other characters that are not white space
                let mut words = Vec::new();
                cut(&p, chars(&p, char::is_whitespace), Behavior::Removed, false, &mut words);
                for w in words {
                    cut(&w, chars(&w, is_rust_word), Behavior::Contiguous, false, out);
                }
            }
            Split::WhitespaceSplit => cut(&p, chars(&p, char::is_whitespace), Behavior::Removed, false, out),
            Split::Punctuation(b) => cut(&p, chars(&p, is_punctuation), *b, false, out),
            Split::Digits(b) => cut(&p, chars(&p, char::is_numeric), *b, false, out),
            Split::Delimiter(d) => cut(&p, chars(&p, |c| c == *d), Behavior::Removed, false, out),
            Split::Pattern { pattern, behavior, invert } => {
                cut(&p, pattern.find_all(&p.text.text)?, *behavior, *invert, out);
            }
            Split::FixedLength(n) => {
                let text = &p.text.text;
                let ends: Vec<usize> = text.char_indices().map(|c| c.0).step_by(*n).chain([text.len()]).collect();
                let ranges = ends.windows(2).map(|w| (w[0], w[1])).collect();
                cut(&p, ranges, Behavior::Isolated, false, out);
            }
            Split::Sequence(_) => {}
        }
        Ok(())
    }
}

fn behavior(c: &Config<'_>, default: &'static str) -> Result<Behavior> {
    Ok(match c.text_or("behavior", default)? {
        "Removed" => Behavior::Removed,
        "Isolated" => Behavior::Isolated,
        "MergedWithPrevious" => Behavior::MergedWithPrevious,
        "MergedWithNext" => Behavior::MergedWithNext,
        "Contiguous" => Behavior::Contiguous,
        other => return Err(unknown("behavior", other)),
    })
}

/// Byte ranges of the single characters for which `f` is true.
fn chars(p: &Piece, f: impl Fn(char) -> bool) -> Vec<(usize, usize)> {
    p.text.text.char_indices().filter(|&(_, c)| f(c)).map(|(i, c)| (i, i + c.len_utf8())).collect()
}

/// Cuts a piece at the matches of a pattern (if `invert` is set, at the text between the matches), and
/// appends the non-empty parts.
fn cut(p: &Piece, matches: Vec<(usize, usize)>, behavior: Behavior, invert: bool, out: &mut Vec<Piece>) {
    let mut parts: Vec<(usize, usize, bool)> = Vec::with_capacity(matches.len() * 2 + 1);
    let mut end = 0;
    for (a, b) in matches {
        if end < a {
            parts.push((end, a, invert));
        }
        parts.push((a, b, !invert));
        end = b;
    }
    let len = p.text.text.len();
    if end < len {
        parts.push((end, len, invert));
    }
    let mut joined: Vec<(usize, usize)> = Vec::with_capacity(parts.len());
    match behavior {
        Behavior::Isolated => joined.extend(parts.iter().map(|p| (p.0, p.1))),
        Behavior::Removed => joined.extend(parts.iter().filter(|p| !p.2).map(|p| (p.0, p.1))),
        Behavior::Contiguous | Behavior::MergedWithPrevious => {
            let mut before = None;
            for (a, b, found) in parts {
                let joins = match behavior {
                    Behavior::Contiguous => before == Some(found),
                    _ => found && before == Some(false),
                };
                match joined.last_mut() {
                    Some(last) if joins => last.1 = b,
                    _ => joined.push((a, b)),
                }
                before = Some(found);
            }
        }
        Behavior::MergedWithNext => {
            let mut after = None;
            for (a, b, found) in parts.into_iter().rev() {
                match joined.last_mut() {
                    Some(last) if found && after == Some(false) => last.0 = a,
                    _ => joined.push((a, b)),
                }
                after = Some(found);
            }
            joined.reverse();
        }
    }
    for (a, b) in joined {
        out.push(Piece { text: p.text.slice(a, b), token: None, first: p.first && a == 0 });
    }
}

/// Replaces each byte by its character in byte-level vocabularies.
pub(super) fn byte_level(t: &mut Aligned) {
    t.flat_map(|c| {
        let (mut bytes, len) = ([0; 4], c.len_utf8());
        c.encode_utf8(&mut bytes);
        bytes.into_iter().take(len).map(byte_char)
    });
}

/// The printable character that represents a byte in byte-level vocabularies.
fn byte_char(b: u8) -> char {
    let code = match b {
        0..=0x20 => 256 + u32::from(b),
        0x7f..=0xa0 => 289 - 0x7f + u32::from(b),
        0xad => 323,
        _ => u32::from(b),
    };
    char::from_u32(code).unwrap_or('?')
}

/// The byte that a character of a byte-level vocabulary represents.
pub(super) fn char_byte(c: char) -> Option<u8> {
    match c as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 256..=288 => Some((code - 256) as u8),
        code @ 289..=322 => Some((code - 289 + 0x7f) as u8),
        323 => Some(0xad),
        _ => None,
    }
}
