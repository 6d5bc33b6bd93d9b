//! From the tokens of one or two texts to a model's input: truncation, windows over texts that are too long, special
//! tokens around each window. What is kept, and the order of windows, follow Hugging Face's `truncate_encodings` and
//! `Encoding::truncate`.

use super::post::{Part, Trim};
use super::vocab::Token;
use crate::error::{Error, Result};
use std::ops::Range;

/// The most windows of one text or pair.
const MAX_WINDOWS: usize = 1 << 16;

/// Which text loses tokens where both are too long together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TruncationStrategy {
    /// The longer one, until both are equally long.
    #[default]
    LongestFirst,
    /// The first one.
    OnlyFirst,
    /// The second one.
    OnlySecond,
}

/// Where a text loses tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TruncationSide {
    /// At its end.
    #[default]
    Right,
    /// At its beginning.
    Left,
}

/// How texts that are too long are truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncation {
    /// The most tokens of a result, special ones included.
    pub max_length: usize,
    /// Which of two texts loses tokens.
    pub strategy: TruncationStrategy,
    /// Where it loses them.
    pub side: TruncationSide,
    /// How many tokens a window shares with the one before.
    pub stride: usize,
}

/// Options of [`Tokenizer::encode_windows`](super::Tokenizer::encode_windows).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncodeOptions {
    /// Whether the special tokens that the model expects are put around texts.
    pub special: bool,
    /// Whether offsets are computed.
    pub offsets: bool,
    /// How to truncate; default: as the tokenizer's file says.
    pub truncation: Option<Truncation>,
    /// Whether the tokens that truncation removes are in further windows.
    pub overflow: bool,
}

/// The tokens of a text, or of two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Encoding {
    /// The token ids.
    pub ids: Vec<u32>,
    /// For each token, 0 if it belongs to the first text and 1 for the second, where the model distinguishes the two.
    pub type_ids: Vec<u32>,
    /// For each token the text that it is from, 0 or 1; `None` for special tokens around the texts.
    pub sequence_ids: Vec<Option<u32>>,
    /// For each token the range of its text in bytes, `(0, 0)` for special tokens around the texts. All are `(0, 0)` unless
    /// offsets were asked for.
    pub offsets: Vec<(usize, usize)>,
}

impl Truncation {
    /// What is kept of each text beside `around` special tokens.
    pub(super) fn kept_ranges(&self, lens: &[usize], around: usize) -> Result<Vec<Range<usize>>> {
        let kept = self.kept(lens, self.max_length.saturating_sub(around))?;
        Ok(lens
            .iter()
            .zip(kept)
            .map(|(&len, kept)| match self.side {
                TruncationSide::Right => 0..kept,
                TruncationSide::Left => len - kept..len,
            })
            .collect())
    }

    /// Windows of each text, such that one of each are at most `max_length` tokens together with `around` others.
    pub(super) fn windows(&self, lens: &[usize], around: usize) -> Result<Vec<Vec<Range<usize>>>> {
        let most = self.kept(lens, self.max_length.saturating_sub(around))?;
        let windows = lens.iter().zip(most).map(|(&len, most)| self.cover(len, most)).collect::<Result<Vec<_>>>()?;
        let count = windows.iter().fold(1usize, |n, w| n.saturating_mul(w.len()));
        if count > MAX_WINDOWS {
            let (limit, wanted) = (MAX_WINDOWS as u64, count as u64);
            return Err(Error::Budget { what: "windows of a pair of texts", limit, wanted, node: None });
        }
        Ok(windows)
    }

    /// How many tokens of each text are kept, where `max` may be kept in all.
    fn kept(&self, lens: &[usize], max: usize) -> Result<Vec<usize>> {
        let all: usize = lens.iter().sum();
        if all <= max {
            return Ok(lens.to_vec());
        }
        let mut kept = lens.to_vec();
        let one = match self.strategy {
            TruncationStrategy::LongestFirst => {
                if let &[a, b] = lens {
                    // The shorter text is kept whole if it has at most half of the tokens
                    let short = a.min(b).min(max / 2);
                    return Ok(if a <= b { vec![short, max - short] } else { vec![max - short, short] });
                }
                return Ok(vec![max]);
            }
            TruncationStrategy::OnlyFirst => 0,
            TruncationStrategy::OnlySecond => 1,
        };
        let too_many = all - max;
        match kept.get_mut(one) {
            Some(n) if *n > too_many => *n -= too_many,
            Some(n) => {
                let which = if one == 0 { "first" } else { "second" };
                return Err(value(format!("the {which} text has {n} tokens, and {too_many} would have to be removed")));
            }
            None => return Err(value("there is no second text to truncate".into())),
        }
        Ok(kept)
    }

    /// Windows of at most `most` tokens over a text of `len`.
    fn cover(&self, len: usize, most: usize) -> Result<Vec<Range<usize>>> {
        if most >= len {
            return Ok(std::iter::once(0..len).collect());
        }
        let Some(step) = most.checked_sub(self.stride).filter(|&s| s > 0) else {
            let (stride, max) = (self.stride, self.max_length);
            return Err(value(format!(
                "a stride of {stride} in windows of {most} tokens (of {max} with special ones)"
            )));
        };
        let count = (len - most).div_ceil(step) + 1;
        Ok((0..count)
            .map(|i| match self.side {
                TruncationSide::Right => i * step..(i * step + most).min(len),
                TruncationSide::Left => (len - i * step).saturating_sub(most)..len - i * step,
            })
            .collect())
    }
}

/// How many special tokens a template has.
pub(super) fn around(parts: &[Part]) -> usize {
    parts.iter().map(|p| if let Part::Special(ids, _) = p { ids.len() } else { 0 }).sum()
}

/// Puts a window of each text and special tokens together.
pub(super) fn join(parts: &[Part], windows: &[&[Token]]) -> Encoding {
    let mut out = Encoding::default();
    for p in parts {
        let (kind, sequence) = match p {
            Part::Text(text, kind) => {
                let tokens = windows.get(*text).copied().unwrap_or_default();
                out.ids.extend(tokens.iter().map(|t| t.id));
                out.offsets.extend(tokens.iter().map(|t| (t.start, t.end)));
                (*kind, Some(*text as u32))
            }
            Part::Special(ids, kind) => {
                out.ids.extend(ids);
                (*kind, None)
            }
        };
        let n = out.ids.len();
        out.type_ids.resize(n, kind);
        out.sequence_ids.resize(n, sequence);
        out.offsets.resize(n, (0, 0));
    }
    out
}

impl Trim {
    /// The range of a token without the white space at its ends. One space before the first token of a text or window
    /// stays where it may have been added; several were not.
    pub(super) fn narrow(self, index: usize, token: &str, (mut start, mut end): (usize, usize)) -> (usize, usize) {
        // `Ġ` is the space of byte-level vocabularies
        let blank = |c: &char| *c == 'Ġ' || c.is_whitespace();
        let before = token.chars().take_while(blank).count();
        let after = token.chars().rev().take_while(blank).count();
        let added = self.prefix && before == 1 && (index == 0 || start == 0);
        start = (start + before - usize::from(added)).min(end);
        if after > 0 && end >= after {
            end = (end - after).max(start);
        }
        (start, end)
    }
}

fn value(what: String) -> Error {
    Error::value("encode", what)
}
