//! A text that remembers where in the original text each of its bytes comes from, through normalizers and cuts.
//!
//! What a character that was inserted, or composed of several, is aligned with follows Hugging Face's `NormalizedString`
//! (tokenizers, `tokenizer/normalizer.rs`), since offsets are compared with those. Alignment is optional: a text without
//! it costs little more than a `String` does, and [`Aligned::original`] alone names the code that alignment needs, so that
//! modules of pages which never ask for offsets do not have it.

use super::normalize::{Form, Unicode};
use crate::error::{Error, Result};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A text, and for each of its bytes the range of the original text in bytes.
#[derive(Clone, Debug)]
pub(super) struct Aligned {
    pub text: String,
    spans: Option<Spans>,
}

#[derive(Clone, Debug)]
struct Spans {
    ranges: Vec<(u32, u32)>,
    /// [`change`] and [`normalized`].
    change: fn(&mut Aligned, Vec<Change>),
    normalized: fn(&mut Aligned, Form, Unicode, &str),
}

/// A character of a new text, and 1 if it is inserted; otherwise it takes the place of one character of the old text and
/// of as many more as the number is below zero.
type Change = (char, i32);

impl Aligned {
    /// A text without alignment.
    pub(super) fn plain(text: String) -> Aligned {
        Aligned { text, spans: None }
    }

    /// An original text: every character comes from itself.
    pub(super) fn original(text: &str) -> Result<Aligned> {
        if u32::try_from(text.len()).is_err() {
            let (limit, wanted) = (u64::from(u32::MAX), text.len() as u64);
            return Err(Error::Budget { what: "bytes of a text with offsets", limit, wanted, node: None });
        }
        let mut ranges = Vec::with_capacity(text.len());
        for (i, c) in text.char_indices() {
            let end = i + c.len_utf8();
            ranges.resize(end, (i as u32, end as u32));
        }
        Ok(Aligned { text: text.to_owned(), spans: Some(Spans { ranges, change, normalized }) })
    }

    /// A part of the text.
    pub(super) fn slice(&self, start: usize, end: usize) -> Aligned {
        let spans = self.spans.as_ref().map(|s| Spans { ranges: s.ranges[start..end].to_vec(), ..*s });
        Aligned { text: self.text[start..end].to_owned(), spans }
    }

    /// The range of the original text from which a range of bytes comes; empty without alignment.
    pub(super) fn span(&self, start: usize, end: usize) -> (usize, usize) {
        let ranges = self.spans.as_ref().and_then(|s| s.ranges.get(start..end.min(s.ranges.len())));
        match ranges {
            Some([only]) => (only.0 as usize, only.1 as usize),
            Some([first, .., last]) => (first.0 as usize, last.1 as usize),
            _ => (0, 0),
        }
    }

    /// Replaces the text by characters, each of which is aligned with the byte of the old text at an index.
    fn rebuild(&mut self, chars: &mut dyn Iterator<Item = (char, usize)>) {
        let mut text = String::with_capacity(self.text.len());
        match &mut self.spans {
            None => text.extend(chars.map(|c| c.0)),
            Some(s) => {
                let old = std::mem::take(&mut s.ranges);
                for (c, from) in chars {
                    text.push(c);
                    s.ranges.resize(text.len(), old.get(from).or(old.last()).copied().unwrap_or_default());
                }
            }
        }
        self.text = text;
    }

    /// Replaces each character by some others.
    pub(super) fn flat_map<I: Iterator<Item = char>>(&mut self, f: impl Fn(char) -> I) {
        let old = std::mem::take(&mut self.text);
        self.rebuild(&mut old.char_indices().flat_map(|(i, c)| f(c).map(move |d| (d, i))));
    }

    /// Keeps and replaces the characters for which there is one.
    pub(super) fn filter_map(&mut self, f: &dyn Fn(char) -> Option<char>) {
        let old = std::mem::take(&mut self.text);
        self.rebuild(&mut old.char_indices().filter_map(|(i, c)| f(c).map(|d| (d, i))));
    }

    /// Inserts a text before the first character, with which it is aligned.
    pub(super) fn prepend(&mut self, before: &str) {
        if self.text.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.text);
        let before = before.chars().map(|c| (c, 0));
        self.rebuild(&mut before.chain(old.char_indices().map(|(i, c)| (c, i))));
    }

    /// Replaces ranges of bytes by a text, which is aligned with the last character of each.
    pub(super) fn replace(&mut self, ranges: &[(usize, usize)], content: &str) {
        let old = std::mem::take(&mut self.text);
        let mut chars = Vec::with_capacity(old.len());
        let mut next = ranges.iter().peekable();
        for (i, c) in old.char_indices() {
            if next.peek().is_none_or(|r| i < r.0) {
                chars.push((c, i));
            }
            if let Some(r) = next.next_if(|r| i + c.len_utf8() == r.1) {
                chars.extend(content.chars().map(|c| (c, r.1 - 1)));
            }
        }
        self.rebuild(&mut chars.into_iter());
    }

    /// Replaces parts of the text, given as pairs of the old part and the new one, which together are the whole text.
    /// Characters take the places of characters in order: of a part that grows the last ones are inserted, and of one
    /// that shrinks the last one takes the places that are left.
    pub(super) fn parts(&mut self, parts: &[(&str, &str)]) {
        let Some(change) = self.spans.as_ref().map(|s| s.change) else {
            self.text = parts.iter().map(|p| p.1).collect();
            return;
        };
        let mut chars: Vec<Change> = Vec::with_capacity(self.text.len());
        for (old, new) in parts {
            let before = old.chars().count();
            chars.extend(new.chars().enumerate().map(|(i, c)| (c, i32::from(i >= before))));
            let gone = before.saturating_sub(new.chars().count());
            if let Some(last) = chars.last_mut() {
                last.1 -= gone as i32;
            }
        }
        change(self, chars);
    }

    /// Replaces the text by its normalization form.
    pub(super) fn normalize(&mut self, form: Form, host: Unicode) {
        // ASCII text is the same in all four forms
        if self.text.is_ascii() {
            return;
        }
        let result = (host.normalize)(form, &self.text);
        match self.spans.as_ref().map(|s| s.normalized) {
            Some(f) => f(self, form, host, &result),
            None => self.text = result,
        }
    }
}

/// Replaces the text by characters that take the places of others.
fn change(t: &mut Aligned, chars: Vec<Change>) {
    let old = std::mem::take(&mut t.text);
    let (mut left, mut at) = (old.chars(), 0usize);
    let mut placed = chars.into_iter().map(|(c, change)| {
        let from = if change > 0 { at.saturating_sub(1) } else { at };
        let gone = if change > 0 { 0 } else { 1 + change.unsigned_abs() as usize };
        at += left.by_ref().take(gone).map(char::len_utf8).sum::<usize>();
        (c, from)
    });
    t.rebuild(&mut placed);
}

/// Replaces the text by the `result` of normalization. The host gives nothing else, so the changes are found again: each
/// character is decomposed by itself, the marks that this inserts are counted, and each character of the result has used
/// up its own decomposition. Equal characters never overtake each other, so a queue for each is enough.
fn normalized(t: &mut Aligned, form: Form, host: Unicode, result: &str) {
    let mut known: FxHashMap<(Form, char), String> = FxHashMap::default();
    let mut decomposed = |form: Form, c: char| -> String {
        let apply = || (host.normalize)(form, c.encode_utf8(&mut [0; 4]));
        if c.is_ascii() { c.to_string() } else { known.entry((form, c)).or_insert_with(apply).clone() }
    };
    let (apart, composes) = match form {
        Form::Nfc => (Form::Nfd, true),
        Form::Nfkc => (Form::Nfkd, true),
        form => (form, false),
    };
    let mut queues: FxHashMap<char, VecDeque<i32>> = FxHashMap::default();
    for c in t.text.chars() {
        for (i, d) in decomposed(apart, c).chars().enumerate() {
            queues.entry(d).or_default().push_back(i32::from(i > 0));
        }
    }
    let mut taken = |d: char| queues.get_mut(&d).and_then(VecDeque::pop_front).unwrap_or(0);
    let changes = result.chars().map(|c| {
        let parts = if composes { decomposed(Form::Nfd, c) } else { c.to_string() };
        (c, parts.chars().map(|d| taken(d) - 1).sum::<i32>() + 1)
    });
    let changes = changes.collect();
    change(t, changes);
}
