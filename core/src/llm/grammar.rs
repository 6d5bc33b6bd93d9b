//! Grammars over bytes, and which tokens may come next, so that generated text has the form that was asked for.
//!
//! A grammar is a list of rules; a rule has alternatives, each a sequence of byte sets and further rules. The state of
//! a match is a set of stacks: the top of a stack is the current position in an alternative, the entries below are the
//! positions to return to. Stacks share their lower entries, and equal stacks have equal numbers; so equal states are
//! recognised, and the tokens allowed in a state are computed once. A token is allowed if its bytes are, one after the
//! other. (Aho and Ullman 1972, chapter 2.)

use super::calls::is_marker;
use crate::error::{Error, Result};
use crate::text::Tokenizer;
use crate::util::sort;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// The most symbols of a grammar.
const MOST_ITEMS: usize = 1 << 20;
/// The most positions that one byte may lead to; beyond it the grammar is refused as too ambiguous.
const MOST_WAYS: usize = 1 << 12;
/// The number of states whose allowed tokens are cached.
const KEPT: usize = 64;
/// In place of a rule's number among words ([`Grammar::to_words`]): the end of an alternative, and a set, whose words follow.
const END_WORD: u32 = u32::MAX;
const SET_WORD: u32 = u32::MAX - 1;
/// In place of the number of a stack: the empty stack.
const NOTHING: u32 = u32::MAX;

/// A set of bytes.
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

    fn item(list: &[(u8, u8)]) -> Item {
        Item::Set(Set::ranges(list))
    }

    fn has(&self, b: u8) -> bool {
        self.0[usize::from(b >> 6)] >> (b & 63) & 1 == 1
    }
}

/// A symbol of an alternative.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Set(Set),
    Rule(u32),
    /// The end of the alternative.
    End,
}

/// A context-free grammar over bytes.
#[derive(Debug, Default)]
pub struct Grammar {
    items: Vec<Item>,
    /// Of each rule, the indices in `items` where its alternatives begin.
    rules: Vec<Vec<u32>>,
    start: u32,
    /// Whether special tokens that are markers of function calls stand for their text.
    words: bool,
}

impl Grammar {
    /// The grammar as numbers, for another module of a page.
    pub fn to_words(&self) -> Vec<u32> {
        let mut out = vec![self.start, u32::from(self.words), self.rules.len() as u32];
        for starts in &self.rules {
            out.push(starts.len() as u32);
            out.extend(starts);
        }
        for item in &self.items {
            match item {
                Item::End => out.push(END_WORD),
                Item::Rule(rule) => out.push(*rule),
                Item::Set(set) => {
                    out.push(SET_WORD);
                    out.extend(set.0.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]));
                }
            }
        }
        out
    }

    /// The grammar of [`Grammar::to_words`]; `None` if the words are no grammar.
    pub fn from_words(words: &[u32]) -> Option<Grammar> {
        let mut words = words.iter().copied();
        let mut g = Grammar { start: words.next()?, words: words.next()? == 1, ..Grammar::default() };
        for _ in 0..words.next()? {
            let count = words.next()?;
            g.rules.push((0..count).map(|_| words.next()).collect::<Option<_>>()?);
        }
        while let Some(word) = words.next() {
            g.items.push(match word {
                END_WORD => Item::End,
                SET_WORD => {
                    let mut set = [0; 4];
                    for part in &mut set {
                        *part = u64::from(words.next()?) | u64::from(words.next()?) << 32;
                    }
                    Item::Set(Set(set))
                }
                rule => Item::Rule(rule),
            });
        }
        Some(g)
    }

    /// Reserves a rule whose alternatives are defined later.
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

    /// The byte strings from `low` to `high`, which have the same length; bytes after the first one are in `range`.
    pub(super) fn between(&mut self, low: &[u8], high: &[u8], range: (u8, u8)) -> Result<Item> {
        let ([l, low @ ..], [h, high @ ..]) = (low, high) else { return self.add(&[Vec::new()]) };
        let ((l, h), len) = ((*l, *h), low.len());
        if len == 0 {
            return Ok(Set::item(&[(l, h)]));
        }
        if l == h {
            let rest = self.between(low, high, range)?;
            return self.add(&[vec![Set::item(&[(l, l)]), rest]]);
        }
        // The first bytes after which any others follow
        let (mut from, mut to) = (l, h);
        let (least, most) = (vec![range.0; len], vec![range.1; len]);
        let mut ways = Vec::new();
        if low != least {
            ways.push(vec![Set::item(&[(l, l)]), self.between(low, &most, range)?]);
            from += 1;
        }
        if high != most {
            ways.push(vec![Set::item(&[(h, h)]), self.between(&least, high, range)?]);
            to -= 1;
        }
        if from <= to {
            ways.push([vec![Set::item(&[(from, to)])], vec![Set::item(&[range]); len]].concat());
        }
        self.add(&ways)
    }

    /// Repeats `what` from `least` to `most` times (without limit if `None`), with `between` in between.
    pub(super) fn repeated(
        &mut self,
        what: &[Item],
        between: &[Item],
        (least, most): (u64, Option<u64>),
    ) -> Result<Item> {
        // What may follow the first one
        let mut rest = match most {
            Some(0) => return self.add(&[Vec::new()]),
            Some(_) => self.add(&[Vec::new()])?,
            None => {
                let rule = self.reserve();
                let again = [between, what, &[Item::Rule(rule)]].concat();
                self.define(rule, &[Vec::new(), again])?;
                Item::Rule(rule)
            }
        };
        for n in (1..most.unwrap_or(least.max(1))).rev() {
            // What may follow the n-th one
            let mut all = vec![[between, what, &[rest]].concat()];
            all.extend((n >= least).then(Vec::new));
            rest = self.add(&all)?;
        }
        let mut all = vec![[what, &[rest]].concat()];
        all.extend((least == 0).then(Vec::new));
        self.add(&all)
    }

    pub(super) fn show_words(&mut self) {
        self.words = true;
    }

    pub(super) fn set_start(&mut self, rule: u32) {
        self.start = rule;
    }

    /// Of each rule, whether it is part of a cycle of rules that call each other as their first symbol, or after symbols
    /// that may be empty. A rule that calls itself as its last symbol is none: that adds nothing to a stack.
    pub(super) fn left_recursive(&self) -> Vec<bool> {
        let may_be_empty = self.may_be_empty();
        let mut calls: Vec<Vec<u32>> = vec![Vec::new(); self.rules.len()];
        for (rule, starts) in self.rules.iter().enumerate() {
            for start in starts {
                for (item, after) in self.alternative(*start).zip(self.alternative(*start + 1).map(Some).chain([None]))
                {
                    let Item::Rule(called) = item else { break };
                    if called as usize != rule || after.is_some() {
                        calls[rule].push(called);
                    }
                    if !may_be_empty[called as usize] {
                        break;
                    }
                }
            }
        }
        // Rules that are called by none of the others are part of no cycle, and neither are those that call none
        let mut is_left = vec![true; self.rules.len()];
        for _ in 0..2 {
            let mut callers = vec![0usize; calls.len()];
            calls.iter().flatten().for_each(|c| callers[*c as usize] += 1);
            let mut free: Vec<usize> = (0..calls.len()).filter(|&r| callers[r] == 0).collect();
            while let Some(rule) = free.pop() {
                is_left[rule] = false;
                for called in std::mem::take(&mut calls[rule]) {
                    callers[called as usize] -= 1;
                    if callers[called as usize] == 0 {
                        free.push(called as usize);
                    }
                }
            }
            let mut turned: Vec<Vec<u32>> = vec![Vec::new(); calls.len()];
            for (rule, list) in (0u32..).zip(&calls) {
                list.iter().for_each(|c| turned[*c as usize].push(rule));
            }
            calls = turned;
        }
        is_left
    }

    /// The symbols of an alternative, from this one to its end.
    fn alternative(&self, from: u32) -> impl Iterator<Item = Item> {
        let rest = self.items.get(from as usize..).unwrap_or_default();
        rest.iter().copied().take_while(|item| !matches!(item, Item::End))
    }

    /// Of each rule, whether the empty text fits it.
    fn may_be_empty(&self) -> Vec<bool> {
        // The alternatives of rules alone: how many of the rules are not known to fit the empty text, and whose they are
        let (mut left, mut whose) = (Vec::new(), Vec::new());
        let mut is_in: Vec<Vec<u32>> = vec![Vec::new(); self.rules.len()];
        let (mut empty, mut new) = (vec![false; self.rules.len()], Vec::new());
        for (rule, starts) in self.rules.iter().enumerate() {
            for start in starts.iter().filter(|s| self.alternative(**s).all(|i| matches!(i, Item::Rule(_)))) {
                let number = left.len() as u32;
                left.push(self.alternative(*start).count());
                whose.push(rule);
                for item in self.alternative(*start) {
                    let Item::Rule(called) = item else { continue };
                    is_in[called as usize].push(number);
                }
                if left[number as usize] == 0 {
                    new.push(rule);
                }
            }
        }
        while let Some(rule) = new.pop() {
            if std::mem::replace(&mut empty[rule], true) {
                continue;
            }
            for &number in &is_in[rule] {
                left[number as usize] -= 1;
                if left[number as usize] == 0 {
                    new.push(whose[number as usize]);
                }
            }
        }
        empty
    }
}

/// The bytes of a tokenizer's tokens, in sorted order.
#[derive(Debug)]
pub struct Vocabulary {
    /// Bytes and id of each token, and how many leading bytes are the same as those of the token before.
    tokens: Vec<(Vec<u8>, u32, usize)>,
    /// Of each token id, its index in `tokens`.
    places: FxHashMap<u32, usize>,
    /// The ids of special tokens that are markers of function calls.
    words: FxHashSet<u32>,
}

impl Vocabulary {
    /// Of all tokens that stand for text, and of special tokens that are markers of function calls.
    pub fn new(tokenizer: &Tokenizer, size: usize) -> Vocabulary {
        let ids = 0..u32::try_from(size).unwrap_or(u32::MAX);
        let word = |id: &u32| tokenizer.token(*id).is_some_and(is_marker) && tokenizer.bytes(*id).is_none();
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

/// A set of stacks, given by their numbers in ascending order. The top of each is at a byte set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    tops: Vec<u32>,
    /// Whether the text may end here.
    ends: bool,
}

/// Follows a text through a grammar.
#[derive(Debug)]
pub struct Matcher {
    grammar: Arc<Grammar>,
    vocabulary: Arc<Vocabulary>,
    /// Stacks: the position at the top, and the number of the stack below.
    stacks: Vec<(u32, u32)>,
    numbers: FxHashMap<(u32, u32), u32>,
    state: State,
    known: FxHashMap<State, Arc<Vec<u32>>>,
}

impl Matcher {
    /// A matcher at the beginning of a text.
    ///
    /// # Errors
    /// `E_VALUE` for a grammar that no text fits, or that is too ambiguous at its beginning.
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

    /// Does the grammar allow function calls, whose markers may be special tokens?
    /// [`super::text_with_calls`] decodes these.
    pub fn has_calls(&self) -> bool {
        self.grammar.words
    }

    /// May the text end here?
    pub fn may_end(&self) -> bool {
        self.state.ends
    }

    /// Is the text complete, so that nothing can follow?
    pub fn is_complete(&self) -> bool {
        self.state.tops.is_empty()
    }

    /// The ids of the tokens that may come next.
    pub fn tokens(&mut self) -> Result<Arc<Vec<u32>>> {
        if let Some(known) = self.known.get(&self.state) {
            return Ok(known.clone());
        }
        let vocabulary = self.vocabulary.clone();
        let (mark, mut path, mut out) = (self.stacks.len(), vec![self.state.clone()], Vec::new());
        for (bytes, id, same) in &vocabulary.tokens {
            // Keeps the states after those bytes that the token shares with the one before
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
        // Stacks that were only tried out are forgotten
        self.stacks.truncate(mark);
        self.numbers.retain(|_, n| (*n as usize) < mark);
        let out = Arc::new(out);
        if self.known.len() >= KEPT {
            self.known.clear();
        }
        self.known.insert(self.state.clone(), out.clone());
        Ok(out)
    }

    /// Advances by a token.
    ///
    /// # Errors
    /// `E_VALUE` if the token is not allowed here.
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

    /// Follows rules and ends of alternatives from these positions to all stacks whose top is at a byte set.
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
                    // After the last symbol of an alternative there is nothing to return to (tail call)
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

    /// A matcher with one token for each byte.
    pub(in super::super) fn matcher(grammar: &Arc<Grammar>) -> Result<Matcher> {
        let tokens: Vec<(Vec<u8>, u32, usize)> = (0..=255u8).map(|b| (vec![b], u32::from(b), 0)).collect();
        let places = tokens.iter().enumerate().map(|(i, t)| (t.1, i)).collect();
        Matcher::new(grammar, &Arc::new(Vocabulary { tokens, places, words: FxHashSet::default() }))
    }

    /// Does a text fit, with one token for each byte?
    pub(in super::super) fn fits(grammar: &Arc<Grammar>, text: &str) -> bool {
        let mut m = matcher(grammar).unwrap();
        text.bytes().all(|b| m.take(u32::from(b)).is_ok()) && m.may_end()
    }
}
