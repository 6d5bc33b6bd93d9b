//! Reads the objects of a `tokenizer.json`: typed members with default values.

use super::regex::Regex;
use crate::error::{Error, Result};
use crate::io::json::Json;

pub(super) fn err(what: impl Into<String>) -> Error {
    Error::format("tokenizer", what, None)
}

pub(super) fn unknown(what: &str, name: &str) -> Error {
    Error::Unsupported { what: format!("the {what} `{name}`"), context: "tokenizer".into() }
}

/// The deepest nesting of components.
const MAX_DEPTH: usize = 8;

/// The object of one component.
#[derive(Clone, Copy)]
pub(super) struct Config<'a> {
    json: &'a Json,
    depth: usize,
}

impl<'a> Config<'a> {
    /// A member of the file as a component; `None` if it is missing or null.
    pub(super) fn member(json: &'a Json, key: &str) -> Option<Config<'a>> {
        json.get(key).filter(|j| **j != Json::Null).map(|json| Config { json, depth: 0 })
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Json> {
        self.json.get(key).filter(|j| **j != Json::Null)
    }

    /// The component's `type`.
    pub(super) fn kind(&self) -> Result<&'a str> {
        self.text("type")
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str> {
        self.get(key).and_then(Json::as_str).ok_or_else(|| err(format!("`{key}` is no text")))
    }

    pub(super) fn text_or(&self, key: &str, default: &'static str) -> Result<&'a str> {
        if self.get(key).is_none() { Ok(default) } else { self.text(key) }
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Json::Bool(b)) => Ok(*b),
            Some(_) => Err(err(format!("`{key}` is no bool"))),
        }
    }

    pub(super) fn size(&self, key: &str, default: usize) -> Result<usize> {
        let Some(v) = self.get(key) else { return Ok(default) };
        let n = v.as_u64().and_then(|n| usize::try_from(n).ok());
        n.ok_or_else(|| err(format!("`{key}` is no size")))
    }

    pub(super) fn character(&self, key: &str, default: char) -> Result<char> {
        let Some(v) = self.get(key) else { return Ok(default) };
        let mut chars = v.as_str().unwrap_or_default().chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(c),
            _ => Err(err(format!("`{key}` is no character"))),
        }
    }

    /// `pattern`: `{"String": ..}` or `{"Regex": ..}`.
    pub(super) fn pattern(&self) -> Result<Regex> {
        let p = self.get("pattern").ok_or_else(|| err("a pattern is missing"))?;
        match (p.get("String").and_then(Json::as_str), p.get("Regex").and_then(Json::as_str)) {
            (Some(s), _) => Ok(Regex::literal(s)),
            (_, Some(r)) => Regex::new(r),
            _ => Err(err("a pattern is neither a String nor a Regex")),
        }
    }

    /// A list of components.
    pub(super) fn list<T>(&self, key: &str, f: impl Fn(&Config<'a>) -> Result<T>) -> Result<Vec<T>> {
        let items = self.get(key).and_then(Json::as_array).ok_or_else(|| err(format!("`{key}` is no list")))?;
        if self.depth >= MAX_DEPTH {
            return Err(err("components are nested too deep"));
        }
        items.iter().map(|json| f(&Config { json, depth: self.depth + 1 })).collect()
    }
}

/// A token's id.
pub(super) fn id(j: &Json) -> Result<u32> {
    j.as_u64().and_then(|n| u32::try_from(n).ok()).ok_or_else(|| err("a token's number is none"))
}
