//! A text that remembers where in the original text each of its bytes comes from, through normalizers and cuts.
//!
//! What a character that was inserted, or composed of several, is aligned with follows Hugging Face's `NormalizedString`
//! (tokenizers, `tokenizer/normalizer.rs`), since offsets are compared with those. Alignment is optional: a text without
//! it costs what a `String` does.

use super::normalize::{Form, Unicode};
use crate::error::{Error, Result};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A text, and for each of its bytes the range of the original text in bytes.
#[derive(Clone, Debug)]
pub(super) struct Aligned {
    pub text: String,
    spans: Option<Vec<(u32, u32)>>,
}

impl Aligned {
    /// A text without alignment.
    pub(super) fn plain(text: String) -> Aligned {
        Aligned { text, spans: None }
    }

    /// An original text: every character comes from itself.
    pub(super) fn original(text: &str) -> Result<Aligned> {
        if u32::try_from(text.len()).is_err() {
            return Err(Error::Budget {
                what: "bytes of a text with offsets",
                limit: u64::from(u32::MAX),
                wanted: text.len() as u64,
                node: None,
            });
        }
        let mut spans = Vec::with_capacity(text.len());
        for (i, c) in text.char_indices() {
            let end = i + c.len_utf8();
            spans.resize(end, (i as u32, end as u32));
        }
        Ok(Aligned { text: text.to_owned(), spans: Some(spans) })
    }

    /// A part of the text.
    pub(super) fn slice(&self, start: usize, end: usize) -> Aligned {
        let spans = self.spans.as_ref().map(|s| s[start..end].to_vec());
        Aligned { text: self.text[start..end].to_owned(), spans }
    }

    /// The range of the original text from which a range of bytes comes; empty without alignment.
    pub(super) fn span(&self, start: usize, end: usize) -> (usize, usize) {
        let range = self.spans.as_ref().and_then(|s| s.get(start..end.min(s.len())));
        match range {
            Some([only]) => (only.0 as usize, only.1 as usize),
            Some([first, .., last]) => (first.0 as usize, last.1 as usize),
            _ => (0, 0),
        }
    }

    /// Replaces the text by characters, each with a change: 1 for one that is inserted, and otherwise it takes the place
    /// of one character and of as many more as the change is below zero.
    fn transform(&mut self, chars: impl Iterator<Item = (char, i32)>) {
        let Some(spans) = &mut self.spans else {
            self.text = chars.map(|c| c.0).collect();
            return;
        };
        let mut text = String::with_capacity(self.text.len());
        let mut out: Vec<(u32, u32)> = Vec::with_capacity(spans.len());
        let (mut old, mut at) = (self.text.chars(), 0);
        let end = spans.last().map_or((0, 0), |s| (s.1, s.1));
        for (c, change) in chars {
            let from = if change > 0 { at.max(1) - 1 } else { at };
            let span = spans.get(from).copied().unwrap_or(end);
            let gone = if change > 0 { 0 } else { 1 + change.unsigned_abs() as usize };
            at += old.by_ref().take(gone).map(char::len_utf8).sum::<usize>();
            text.push(c);
            out.resize(text.len(), span);
        }
        self.text = text;
        *spans = out;
    }

    /// Replaces each character by some others, the first of which takes its place.
    pub(super) fn flat_map<I: Iterator<Item = char>>(&mut self, f: impl Fn(char) -> I) {
        let old = std::mem::take(&mut self.text);
        self.text.clone_from(&old);
        self.transform(old.chars().flat_map(|c| f(c).zip(std::iter::once(0).chain(std::iter::repeat(1)))));
    }

    /// Replaces each character by another one.
    pub(super) fn map(&mut self, f: impl Fn(char) -> char) {
        self.flat_map(|c| std::iter::once(f(c)));
    }

    /// Keeps the characters for which `f` is true.
    pub(super) fn retain(&mut self, f: impl Fn(char) -> bool) {
        if let Some(spans) = &mut self.spans {
            let mut at = 0;
            let kept = self.text.chars().flat_map(|c| std::iter::repeat_n(f(c), c.len_utf8()));
            let kept: Vec<bool> = kept.collect();
            spans.retain(|_| {
                at += 1;
                kept[at - 1]
            });
        }
        self.text.retain(f);
    }

    /// Inserts a text before the first character, with which it is aligned.
    pub(super) fn prepend(&mut self, before: &str) {
        if self.text.is_empty() {
            return;
        }
        self.text.insert_str(0, before);
        if let Some(spans) = &mut self.spans {
            let first = spans[0];
            spans.splice(0..0, std::iter::repeat_n(first, before.len()));
        }
    }

    /// Replaces ranges of bytes by a text, which is aligned with the last character of each; `within` is asked whether
    /// the text may become so long.
    pub(super) fn replace(
        &mut self,
        ranges: &[(usize, usize)],
        content: &str,
        within: impl Fn(usize) -> Result<()>,
    ) -> Result<()> {
        let mut text = String::with_capacity(self.text.len());
        let mut out = self.spans.as_ref().map(|s| Vec::with_capacity(s.len()));
        let mut done = 0;
        for &(a, b) in ranges {
            text.push_str(&self.text[done..a]);
            within(text.len().saturating_add(content.len()))?;
            text.push_str(content);
            if let (Some(out), Some(spans)) = (&mut out, &self.spans) {
                out.extend_from_slice(&spans[done..a]);
                out.resize(text.len(), spans[b - 1]);
            }
            done = b;
        }
        text.push_str(&self.text[done..]);
        if let (Some(out), Some(spans)) = (&mut out, &self.spans) {
            out.extend_from_slice(&spans[done..]);
        }
        (self.text, self.spans) = (text, out);
        Ok(())
    }

    /// Replaces parts of the text, given as pairs of the old part and the new one, which together are the whole text.
    /// Characters take the places of characters in order: of a part that grows the last ones are inserted, and of one
    /// that shrinks the last one takes the places that are left.
    pub(super) fn parts<'a>(&mut self, parts: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut chars: Vec<(char, i32)> = Vec::with_capacity(self.text.len());
        for (old, new) in parts {
            let before = old.chars().count();
            chars.extend(new.chars().enumerate().map(|(i, c)| (c, i32::from(i >= before))));
            let after = new.chars().count();
            if after < before
                && let Some(last) = chars.last_mut()
            {
                last.1 -= (before - after) as i32;
            }
        }
        self.transform(chars.into_iter());
    }

    /// Replaces the text by its normalization form. The host gives only the result, so the changes are found again: each
    /// character is decomposed by itself, the marks that this inserts are counted, and each character of the result has
    /// used up its own decomposition. Equal characters never overtake each other, so a queue for each is enough.
    pub(super) fn normalize(&mut self, form: Form, host: Unicode) {
        // ASCII text is the same in all four forms
        if self.text.is_ascii() {
            return;
        }
        let result = (host.normalize)(form, &self.text);
        if self.spans.is_none() || result == self.text {
            self.text = result;
            return;
        }
        let mut known: FxHashMap<(Form, char), String> = FxHashMap::default();
        let mut decomposed = |form: Form, c: char| -> String {
            if c.is_ascii() {
                return c.to_string();
            }
            known.entry((form, c)).or_insert_with(|| (host.normalize)(form, c.encode_utf8(&mut [0; 4]))).clone()
        };
        let (apart, composes) = match form {
            Form::Nfc => (Form::Nfd, true),
            Form::Nfkc => (Form::Nfkd, true),
            form => (form, false),
        };
        let mut queues: FxHashMap<char, VecDeque<i32>> = FxHashMap::default();
        for c in self.text.chars() {
            for (i, d) in decomposed(apart, c).chars().enumerate() {
                queues.entry(d).or_default().push_back(i32::from(i > 0));
            }
        }
        let mut taken = |d: char| queues.get_mut(&d).and_then(VecDeque::pop_front).unwrap_or(0);
        let mut chars = Vec::with_capacity(result.len());
        for c in result.chars() {
            let change = match composes {
                true => decomposed(Form::Nfd, c).chars().map(|d| taken(d) - 1).sum::<i32>() + 1,
                false => taken(c),
            };
            chars.push((c, change));
        }
        self.transform(chars.into_iter());
    }
}
