//! Normalizers: changes of the text before it is cut into words.

use super::aligned::Aligned;
use super::charsmap::{CharsMap, base64};
use super::config::{Config, unknown};
use super::regex::Regex;
use super::split::byte_level;
use super::unicode::Categories;
use crate::error::{Error, Result};

/// A normalized text may always have this many bytes, however short the original was.
const FREE_BYTES: u64 = 16 << 20;

/// A Unicode normalization form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    pub(super) fn run(&self, t: &mut Aligned, host: Unicode, first: &mut bool) -> Result<()> {
        let mut keep = |t: &mut Aligned, f: &dyn Fn(char) -> Option<char>| {
            *first &= t.text.chars().next().is_none_or(|c| f(c).is_some());
            t.filter_map(f);
        };
        match self {
            Normalizer::Bert { clean, chinese, accents, lower } => {
                if *clean {
                    keep(t, &|c| (!is_control(c)).then_some(if c.is_whitespace() { ' ' } else { c }));
                }
                if *chinese {
                    // Puts spaces around ideographs
                    t.flat_map(|c| {
                        let shown = if is_ideograph(c) { 0..3 } else { 1..2 };
                        [' ', c, ' '].into_iter().skip(shown.start).take(shown.len())
                    });
                }
                if *accents {
                    t.normalize(Form::Nfd, host);
                    keep(t, &|c| (!Categories::NONSPACING.has(c)).then_some(c));
                }
                if *lower {
                    t.flat_map(char::to_lowercase);
                }
            }
            Normalizer::Form(f) => t.normalize(*f, host),
            Normalizer::Lowercase => t.flat_map(char::to_lowercase),
            Normalizer::Strip { left, right } => {
                let start = if *left { t.text.len() - t.text.trim_start().len() } else { 0 };
                let end = if *right { t.text.trim_end().len().max(start) } else { t.text.len() };
                *first &= start == 0;
                *t = t.slice(start, end);
            }
            Normalizer::StripAccents => keep(t, &|c| (!Categories::MARK.has(c)).then_some(c)),
            Normalizer::Replace(pattern, content) => replace_in(t, pattern, content)?,
            Normalizer::Prepend(p) => t.prepend(p),
            Normalizer::Nmt => keep(t, &|c| (!is_nmt_control(c)).then(|| nmt_space(c))),
            Normalizer::ByteLevel => byte_level(t),
            Normalizer::Precompiled(map) => {
                // In ASCII the only grapheme cluster of two characters is CR LF
                let plain = t.text.is_ascii() && !t.text.contains('\r');
                let ends = if plain { (1..=t.text.len()).collect() } else { (host.clusters)(&t.text) };
                let text = t.text.clone();
                t.parts(&map.run(&text, &ends));
            }
            Normalizer::Sequence(list) => {
                let most = most_bytes(&t.text);
                for n in list {
                    n.run(t, host, first)?;
                    most.of(t.text.len())?;
                }
            }
        }
        Ok(())
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
    let mut out = Aligned::plain(text.to_owned());
    replace_in(&mut out, pattern, content)?;
    Ok(out.text)
}

fn replace_in(t: &mut Aligned, pattern: &Regex, content: &str) -> Result<()> {
    let found = pattern.find_all(&t.text)?;
    let gone: usize = found.iter().map(|r| r.1 - r.0).sum();
    most_bytes(&t.text).of(content.len().saturating_mul(found.len()).saturating_add(t.text.len() - gone))?;
    t.replace(&found, content);
    Ok(())
}

/// Control characters as BERT defines them; tab and line ends count as white space.
fn is_control(c: char) -> bool {
    matches!(c, '\0' | '\u{fffd}') || !matches!(c, '\t' | '\n' | '\r') && Categories::OTHER.has(c)
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
