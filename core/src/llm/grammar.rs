//! Grammars over bytes, and which tokens may come next: what a model writes is then of a form that was asked for.
//!
//! A grammar is rules of alternatives of sets of bytes and further rules. What it is in the middle of is a set of stacks, each the place
//! where it is and the places where it goes on afterwards; stacks share their ends, so that equal ones have equal numbers, and the tokens
//! that may come in a state are found once. A token may come if its bytes may, one after the other. (Aho and Ullman 1972, chapter 2.)

use super::calls::is_word;
use crate::error::{Error, Result};
use crate::text::Tokenizer;
use crate::util::sort;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Symbols of a grammar.
const MOST_ITEMS: usize = 1 << 20;
/// Places that one byte may lead to.
const MOST_WAYS: usize = 1 << 12;
/// States whose tokens are kept.
const KEPT: usize = 64;
/// No stack goes on.
const NOTHING: u32 = u32::MAX;

/// Some of the 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set([u64; 4]);

impl Set {
    pub(super) fn ranges(list: &[(u8, u8)]) -> Set {
        let mut set = Set([0; 4]);
        for (low, high) in list {
            (*low..=*high).for_each(|b| set.0[usize::from(b >> 6)] |= 1 << (b & 63));
        }
        set
    }

    fn has(&self, b: u8) -> bool {
        self.0[usize::from(b >> 6)] >> (b & 63) & 1 == 1
    }
}

/// A part of an alternative.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Set(Set),
    Rule(u32),
    /// The alternative ends.
    End,
}

/// A grammar.
#[derive(Debug, Default)]
pub struct Grammar {
    items: Vec<Item>,
    /// Where the alternatives of each rule begin.
    rules: Vec<Vec<u32>>,
    start: u32,
    /// Special tokens that are words of calls stand for their text.
    words: bool,
}

impl Grammar {
    /// A rule whose alternatives come later.
    pub(super) fn reserve(&mut self) -> u32 {
        self.rules.push(Vec::new());
        self.rules.len() as u32 - 1
    }

    pub(super) fn define(&mut self, rule: u32, alternatives: &[Vec<Item>]) -> Result<()> {
        for a in alternatives {
            if self.items.len() + a.len() > MOST_ITEMS {
                return Err(Error::value("grammar", format!("it has more than {MOST_ITEMS} symbols")));
            }
            self.rules[rule as usize].push(self.items.len() as u32);
            self.items.extend(a);
            self.items.push(Item::End);
        }
        Ok(())
    }

    pub(super) fn add(&mut self, alternatives: &[Vec<Item>]) -> Result<Item> {
        let rule = self.reserve();
        self.define(rule, alternatives)?;
        Ok(Item::Rule(rule))
    }

    pub(super) fn show_words(&mut self) {
        self.words = true;
    }

    pub(super) fn set_start(&mut self, rule: u32) {
        self.start = rule;
    }
}

/// The bytes of a tokenizer's tokens, sorted.
#[derive(Debug)]
pub struct Vocabulary {
    /// With how many bytes are those of the one before.
    tokens: Vec<(Vec<u8>, u32, usize)>,
    /// Where the bytes of each token are.
    places: FxHashMap<u32, usize>,
    /// Special tokens that are words of calls.
    words: FxHashSet<u32>,
}

impl Vocabulary {
    /// Of all tokens that stand for text, and those that stand for words of calls.
    pub fn new(tokenizer: &Tokenizer, size: usize) -> Vocabulary {
        let ids = 0..u32::try_from(size).unwrap_or(u32::MAX);
        let word = |id: &u32| tokenizer.token(*id).is_some_and(is_word) && tokenizer.bytes(*id).is_none();
        let words: FxHashSet<u32> = ids.clone().filter(word).collect();
        let text = |id: u32| match words.contains(&id) {
            true => tokenizer.token(id).map(|t| t.as_bytes().to_vec()),
            false => tokenizer.bytes(id),
        };
        let bytes = |id: u32| text(id).filter(|b| !b.is_empty()).map(|b| (b, id, 0));
        let mut tokens: Vec<(Vec<u8>, u32, usize)> = ids.filter_map(bytes).collect();
        sort::by(&mut tokens, |a, b| a.0.cmp(&b.0).then(a.1.cmp(&b.1)));
        for i in 1..tokens.len() {
            tokens[i].2 = tokens[i].0.iter().zip(&tokens[i - 1].0).take_while(|(a, b)| a == b).count();
        }
        let places = tokens.iter().enumerate().map(|(i, t)| (t.1, i)).collect();
        Vocabulary { tokens, places, words }
    }
}

/// Stacks by their tops: each at a set of bytes. Sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    tops: Vec<u32>,
    /// The text may end here.
    ends: bool,
}

/// Follows a text through a grammar.
#[derive(Debug)]
pub struct Matcher {
    grammar: Arc<Grammar>,
    vocabulary: Arc<Vocabulary>,
    /// Places with the stack below them.
    stacks: Vec<(u32, u32)>,
    numbers: FxHashMap<(u32, u32), u32>,
    state: State,
    known: FxHashMap<State, Arc<Vec<u32>>>,
}

impl Matcher {
    /// At a text's beginning.
    ///
    /// # Errors
    /// `E_VALUE` for a grammar that no text fits, or that has too many ways to begin.
    pub fn new(grammar: &Arc<Grammar>, vocabulary: &Arc<Vocabulary>) -> Result<Matcher> {
        let mut m = Matcher {
            grammar: grammar.clone(),
            vocabulary: vocabulary.clone(),
            stacks: Vec::new(),
            numbers: FxHashMap::default(),
            state: State::default(),
            known: FxHashMap::default(),
        };
        let starts = grammar.rules.get(grammar.start as usize).cloned().unwrap_or_default();
        m.state = m.close(starts.into_iter().map(|a| (a, NOTHING)).collect())?;
        match m.state.tops.is_empty() && !m.state.ends {
            true => Err(Error::value("grammar", "no text fits it")),
            false => Ok(m),
        }
    }

    /// Are there calls, whose words may be special tokens? [`super::text_with_calls`] has their text.
    pub fn has_calls(&self) -> bool {
        self.grammar.words
    }

    /// May the text end here?
    pub fn may_end(&self) -> bool {
        self.state.ends
    }

    /// Can nothing follow?
    pub fn is_complete(&self) -> bool {
        self.state.tops.is_empty()
    }

    /// The tokens that may come next, by number.
    pub fn tokens(&mut self) -> Result<Arc<Vec<u32>>> {
        if let Some(known) = self.known.get(&self.state) {
            return Ok(known.clone());
        }
        let vocabulary = self.vocabulary.clone();
        let (mark, mut path, mut out) = (self.stacks.len(), vec![self.state.clone()], Vec::new());
        for (bytes, id, same) in &vocabulary.tokens {
            // states after each byte of the token before, as far as they are the same
            path.truncate(same + 1);
            while path.len() <= bytes.len() {
                let next = match path.last() {
                    Some(state) if !state.tops.is_empty() => self.next(&state.clone(), bytes[path.len() - 1])?,
                    _ => break,
                };
                path.push(next);
            }
            let fits = path.len() == bytes.len() + 1 && (self.grammar.words || !vocabulary.words.contains(id));
            if fits && path.last().is_some_and(|s| s.ends || !s.tops.is_empty()) {
                out.push(*id);
            }
        }
        // what was looked at need not be remembered
        self.stacks.truncate(mark);
        self.numbers.retain(|_, n| (*n as usize) < mark);
        let out = Arc::new(out);
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        self.known.insert(self.state.clone(), out.clone());
        Ok(out)
    }

    /// Takes a token.
    ///
    /// # Errors
    /// `E_VALUE` if it may not come here.
    pub fn take(&mut self, token: u32) -> Result<()> {
        let vocabulary = self.vocabulary.clone();
        let bytes = vocabulary.places.get(&token).and_then(|i| vocabulary.tokens.get(*i)).map(|t| &t.0[..]);
        let wrong = || Error::value("grammar", format!("token {token} may not come here"));
        let mut state = self.state.clone();
        for b in bytes.ok_or_else(wrong)? {
            state = self.next(&state, *b)?;
        }
        if state.tops.is_empty() && !state.ends {
            return Err(wrong());
        }
        self.state = state;
        Ok(())
    }

    fn next(&mut self, state: &State, byte: u8) -> Result<State> {
        let mut places = Vec::new();
        for top in &state.tops {
            let Some(&(at, below)) = self.stacks.get(*top as usize) else { continue };
            if matches!(self.grammar.items.get(at as usize), Some(Item::Set(s)) if s.has(byte)) {
                places.push((at + 1, below));
            }
        }
        self.close(places)
    }

    /// The stacks at sets of bytes that these places lead to.
    fn close(&mut self, mut places: Vec<(u32, u32)>) -> Result<State> {
        let grammar = self.grammar.clone();
        let mut state = State::default();
        let mut seen = FxHashSet::default();
        while let Some((at, below)) = places.pop() {
            if !seen.insert((at, below)) {
                continue;
            }
            if seen.len() > MOST_WAYS {
                return Err(Error::value("grammar", format!("a byte leads to more than {MOST_WAYS} places")));
            }
            match grammar.items.get(at as usize) {
                Some(Item::Set(_)) => state.tops.push(self.number(at, below)),
                Some(Item::Rule(r)) => {
                    // what ends afterwards need not be come back to
                    let last = matches!(grammar.items.get(at as usize + 1), Some(Item::End));
                    let below = if last { below } else { self.number(at + 1, below) };
                    let starts = grammar.rules.get(*r as usize).map_or(&[][..], Vec::as_slice);
                    places.extend(starts.iter().map(|a| (*a, below)));
                }
                Some(Item::End) | None => match self.stacks.get(below as usize) {
                    Some(place) => places.push(*place),
                    None => state.ends = true,
                },
            }
        }
        sort::by(&mut state.tops, u32::cmp);
        Ok(state)
    }

    fn number(&mut self, at: u32, below: u32) -> u32 {
        let next = self.stacks.len() as u32;
        let number = *self.numbers.entry((at, below)).or_insert(next);
        if number == next {
            self.stacks.push((at, below));
        }
        number
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Does a text fit, whose tokens are its bytes?
    pub(in super::super) fn fits(grammar: &Arc<Grammar>, text: &str) -> bool {
        let tokens: Vec<(Vec<u8>, u32, usize)> = (0..=255u8).map(|b| (vec![b], u32::from(b), 0)).collect();
        let places = tokens.iter().enumerate().map(|(i, t)| (t.1, i)).collect();
        let mut m =
            Matcher::new(grammar, &Arc::new(Vocabulary { tokens, places, words: FxHashSet::default() })).unwrap();
        text.bytes().all(|b| m.take(u32::from(b)).is_ok()) && m.may_end()
    }
}
