//! Added tokens, which are found in the text itself before the model sees it: special tokens, and further
//! tokens of a file.

use super::config::{err, id};
use super::split::Piece;
use super::unicode::is_rust_word;
use super::vocab::Vocab;
use crate::error::Result;
use crate::io::json::Json;
use rustc_hash::{FxHashMap, FxHashSet};

#[derive(Clone, Debug)]
struct Token {
    /// The text to search for.
    text: String,
    id: u32,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

/// Tokens by their first byte, longest first.
type Index = FxHashMap<u8, Vec<Token>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Added {
    raw: Index,
    normalized: Index,
    ids: FxHashMap<String, u32>,
    tokens: FxHashMap<u32, String>,
    special: FxHashSet<String>,
}

impl Added {
    /// Reads the list of added tokens. `normalize` is applied to those that are searched for in the normalized text.
    pub(super) fn new(list: &[Json], normalize: impl Fn(&str) -> Result<String>) -> Result<Added> {
        let mut added = Added::default();
        for t in list {
            let content =
                t.get("content").and_then(Json::as_str).ok_or_else(|| err("an added token without content"))?;
            let n = id(t.get("id").unwrap_or(&Json::Null))?;
            let flag = |key: &str| matches!(t.get(key), Some(Json::Bool(true)));
            if content.is_empty() {
                continue;
            }
            let token = |text: String| Token {
                text,
                id: n,
                single_word: flag("single_word"),
                lstrip: flag("lstrip"),
                rstrip: flag("rstrip"),
            };
            match flag("normalized") {
                true => insert(&mut added.normalized, token(normalize(content)?)),
                false => insert(&mut added.raw, token(content.to_owned())),
            }
            added.add(content, n, flag("special"));
        }
        Ok(added)
    }

    /// Adds a token that is searched for in the raw text.
    pub(super) fn push(&mut self, content: &str, n: u32, special: bool) {
        let text = content.to_owned();
        insert(&mut self.raw, Token { text, id: n, single_word: false, lstrip: false, rstrip: false });
        self.add(content, n, special);
    }

    fn add(&mut self, content: &str, n: u32, special: bool) {
        self.ids.insert(content.to_owned(), n);
        self.tokens.insert(n, content.to_owned());
        if special {
            self.special.insert(content.to_owned());
        }
    }

    pub(super) fn is_special(&self, token: &str) -> bool {
        self.special.contains(token)
    }

    pub(super) fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(&id).map(String::as_str)
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    /// How many added tokens are not in the model's vocabulary.
    pub(super) fn outside(&self, vocab: &Vocab) -> usize {
        self.ids.keys().filter(|t| vocab.id(t).is_none()).count()
    }

    pub(super) fn cut_raw(&self, p: Piece) -> Vec<Piece> {
        cut(&self.raw, p)
    }

    pub(super) fn cut_normalized(&self, p: Piece) -> Vec<Piece> {
        cut(&self.normalized, p)
    }
}

fn insert(index: &mut Index, t: Token) {
    let Some(&first) = t.text.as_bytes().first() else { return };
    let list = index.entry(first).or_default();
    // Of tokens with the same text, the one that was added first wins
    let at = list.iter().position(|o| o.text.len() < t.text.len()).unwrap_or(list.len());
    list.insert(at, t);
}

/// Cuts out the leftmost, longest matches as pieces of their own.
fn cut(index: &Index, p: Piece) -> Vec<Piece> {
    if index.is_empty() {
        return vec![p];
    }
    let text = p.text.text.as_str();
    let part = |a: usize, b: usize, token| Piece { text: p.text.slice(a, b), token, first: p.first && a == 0 };
    let (mut out, mut done, mut at) = (Vec::new(), 0, 0);
    while at < text.len() {
        let candidates = index.get(&text.as_bytes()[at]).map_or(&[][..], |l| l);
        let Some(t) = candidates.iter().find(|t| text.as_bytes()[at..].starts_with(t.text.as_bytes())) else {
            at += 1;
            continue;
        };
        let (mut start, mut end) = (at, at + t.text.len());
        at = end;
        if t.single_word {
            let word = |c: Option<char>| c.is_some_and(is_rust_word);
            if word(text[..start].chars().next_back()) || word(text[end..].chars().next()) {
                continue;
            }
        }
        if t.lstrip {
            start = text[..start].trim_end().len().max(done);
        }
        if t.rstrip {
            end += text[end..].len() - text[end..].trim_start().len();
        }
        // White space that the token before has taken is not taken again
        let (start, end) = (start.max(done), end.max(done));
        if done < start {
            out.push(part(done, start, None));
        }
        out.push(part(start, end, Some(t.id)));
        done = end;
    }
    if done < text.len() {
        out.push(part(done, text.len(), None));
    }
    out
}
