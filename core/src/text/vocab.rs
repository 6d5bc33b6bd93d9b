//! A vocabulary: tokens and their ids.

use super::config::err;
use crate::error::Result;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A token and the bytes of its word that it covers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub id: u32,
    pub start: usize,
    pub end: usize,
}

/// The largest allowed token id.
const MAX_ID: u32 = 1 << 24;

/// Tokens by id, and ids by token.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocab {
    ids: FxHashMap<Arc<str>, u32>,
    tokens: FxHashMap<u32, Arc<str>>,
}

impl Vocab {
    /// An empty vocabulary with capacity for about `n` tokens.
    pub(super) fn of_about(n: usize) -> Vocab {
        let mut v = Vocab::default();
        v.ids.reserve(n);
        v.tokens.reserve(n);
        v
    }

    pub(super) fn add(&mut self, token: &str, id: u32) -> Result<()> {
        if id > MAX_ID {
            return Err(err(format!("a token with the number {id}")));
        }
        let token: Arc<str> = token.into();
        self.tokens.insert(id, token.clone());
        self.ids.insert(token, id);
        Ok(())
    }

    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }

    pub(super) fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(&id).map(|t| &**t)
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The tokens `<0x00>` to `<0xFF>` for the bytes of a text, if all of them are in the vocabulary.
    pub(super) fn bytes(&self, text: &str) -> Option<Vec<u32>> {
        text.bytes().map(|b| self.id(&format!("<0x{b:02X}>"))).collect()
    }
}
