//! Normalizers: changes of the text before it is cut into words.

use super::charsmap::{CharsMap, base64};
use super::config::{Config, unknown};
use super::regex::Regex;
use super::split::byte_char;
use super::unicode::Categories;
use crate::error::{Error, Result};

/// A normalized text may always have this many bytes, however short the original was.
const FREE_BYTES: u64 = 16 << 20;

/// A Unicode normalization form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Canonical composition.
    Nfc,
    /// Canonical decomposition.
    Nfd,
    /// Compatibility composition.
    Nfkc,
    /// Compatibility decomposition.
    Nfkd,
}

/// Unicode functions of the host (`String.prototype.normalize` and `Intl.Segmenter`, or crates), so that
/// core needs no tables for them.
#[derive(Clone, Copy, Debug)]
pub struct Unicode {
    /// Normalizes a text.
    pub normalize: fn(Form, &str) -> String,
    /// The ends of a text's extended grapheme clusters, in bytes (UAX 29).
    pub clusters: fn(&str) -> Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) enum Normalizer {
    Bert { clean: bool, chinese: bool, accents: bool, lower: bool },
    Form(Form),
    Lowercase,
    Strip { left: bool, right: bool },
    StripAccents,
    Replace(Regex, String),
    Prepend(String),
    Nmt,
    ByteLevel,
    Precompiled(CharsMap),
    Sequence(Vec<Normalizer>),
}

impl Normalizer {
    pub(super) fn new(c: &Config<'_>) -> Result<Normalizer> {
        Ok(match c.kind()? {
            "BertNormalizer" => {
                let lower = c.flag("lowercase", true)?;
                Normalizer::Bert {
                    clean: c.flag("clean_text", true)?,
                    chinese: c.flag("handle_chinese_chars", true)?,
                    accents: c.flag("strip_accents", lower)?,
                    lower,
                }
            }
            "NFC" => Normalizer::Form(Form::Nfc),
            "NFD" => Normalizer::Form(Form::Nfd),
            "NFKC" => Normalizer::Form(Form::Nfkc),
            "NFKD" => Normalizer::Form(Form::Nfkd),
            "Lowercase" => Normalizer::Lowercase,
            "Strip" => Normalizer::Strip { left: c.flag("strip_left", true)?, right: c.flag("strip_right", true)? },
            "StripAccents" => Normalizer::StripAccents,
            "Replace" => Normalizer::Replace(c.pattern()?, c.text("content")?.to_owned()),
            "Prepend" => Normalizer::Prepend(c.text("prepend")?.to_owned()),
            "Nmt" => Normalizer::Nmt,
            "ByteLevel" => Normalizer::ByteLevel,
            "Precompiled" => Normalizer::Precompiled(CharsMap::new(&base64(c.text("precompiled_charsmap")?)?)?),
            "Sequence" => Normalizer::Sequence(c.list("normalizers", Normalizer::new)?),
            kind => return Err(unknown("normalizer", kind)),
        })
    }

    /// Normalizes a text. Sets `first` to false if the first character is removed.
    pub(super) fn run(&self, text: String, host: Unicode, first: &mut bool) -> Result<String> {
        // ASCII text is the same in all four forms
        let form = |f: Form, t: String| if t.is_ascii() { t } else { (host.normalize)(f, &t) };
        let mut keep = |t: &str, f: &dyn Fn(char) -> bool| -> String {
            *first &= t.chars().next().is_none_or(f);
            t.chars().filter(|&c| f(c)).collect()
        };
        Ok(match self {
            Normalizer::Bert { clean, chinese, accents, lower } => {
                let mut t = text;
                if *clean {
                    t = keep(&t, &|c| !is_control(c))
                        .chars()
                        .map(|c| if c.is_whitespace() { ' ' } else { c })
                        .collect();
                }
                if *chinese {
                    t = spaced(&t);
                }
                if *accents {
                    t = keep(&form(Form::Nfd, t), &|c| !Categories::NONSPACING.has(c));
                }
                if *lower { lowercase(&t) } else { t }
            }
            Normalizer::Form(f) => form(*f, text),
            Normalizer::Lowercase => lowercase(&text),
            Normalizer::Strip { left, right } => {
                let t = if *left { text.trim_start() } else { &text };
                *first &= t.len() == text.len() || !*left;
                if *right { t.trim_end().to_owned() } else { t.to_owned() }
            }
            Normalizer::StripAccents => keep(&text, &|c| !Categories::MARK.has(c)),
            Normalizer::Replace(pattern, content) => replace(pattern, content, &text)?,
            Normalizer::Prepend(p) => {
                if text.is_empty() {
                    text
                } else {
                    format!("{p}{text}")
                }
            }
            Normalizer::Nmt => keep(&text, &|c| !is_nmt_control(c)).chars().map(nmt_space).collect(),
            Normalizer::ByteLevel => text.bytes().map(byte_char).collect(),
            Normalizer::Precompiled(map) => {
                // In ASCII the only grapheme cluster of two characters is CR LF
                let plain = text.is_ascii() && !text.contains('\r');
                let ends = if plain { (1..=text.len()).collect() } else { (host.clusters)(&text) };
                map.run(&text, &ends)
            }
            Normalizer::Sequence(list) => {
                let most = most_bytes(&text);
                list.iter().try_fold(text, |t, n| {
                    let t = n.run(t, host, first)?;
                    most.of(t.len()).map(|()| t)
                })?
            }
        })
    }
}

/// The most bytes of a normalized text. Normalizers come from a file, and a few of them that each double
/// the text would exhaust memory.
struct Most(u64);

fn most_bytes(text: &str) -> Most {
    Most((16 * text.len() as u64).max(FREE_BYTES))
}

impl Most {
    fn of(&self, n: usize) -> Result<()> {
        if n as u64 <= self.0 {
            return Ok(());
        }
        Err(Error::Budget { what: "bytes of a normalized text", limit: self.0, wanted: n as u64, node: None })
    }
}

pub(super) fn replace(pattern: &Regex, content: &str, text: &str) -> Result<String> {
    let most = most_bytes(text);
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for (a, b) in pattern.find_all(text)? {
        out.push_str(&text[end..a]);
        most.of(out.len().saturating_add(content.len()))?;
        out.push_str(content);
        end = b;
    }
    out.push_str(&text[end..]);
    Ok(out)
}

fn lowercase(t: &str) -> String {
    t.chars().flat_map(char::to_lowercase).collect()
}

/// Control characters as BERT defines them; tab and line ends count as white space.
fn is_control(c: char) -> bool {
    matches!(c, '\0' | '\u{fffd}') || !matches!(c, '\t' | '\n' | '\r') && Categories::OTHER.has(c)
}

/// Puts spaces around ideographs.
fn spaced(t: &str) -> String {
    let mut out = String::with_capacity(t.len());
    for c in t.chars() {
        if is_ideograph(c) {
            out.extend([' ', c, ' ']);
        } else {
            out.push(c);
        }
    }
    out
}

/// The Unicode blocks that BERT treats as Chinese characters.
fn is_ideograph(c: char) -> bool {
    matches!(c as u32, 0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f)
}

fn is_nmt_control(c: char) -> bool {
    matches!(c as u32, 1..=8 | 0xb | 0xe..=0x1f | 0x7f | 0x8f | 0x9f)
}

fn nmt_space(c: char) -> char {
    let blank =
        matches!(c as u32, 9 | 0xa | 0xc | 0xd | 0x1680 | 0x200b..=0x200f | 0x2028 | 0x2029 | 0x2581 | 0xfeff | 0xfffd);
    if blank { ' ' } else { c }
}
