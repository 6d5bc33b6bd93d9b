//! Post-processors, which put special tokens around the tokens of a text, and decoders, which turn tokens into text.

use super::config::{Config, err, id, unknown};
use super::normalize::replace;
use super::regex::Regex;
use super::split::{Metaspace, Prepend, char_byte};
use crate::error::Result;
use crate::io::json::Json;

/// The most parts of a template, and the most special tokens of all its parts together.
const MAX_PARTS: usize = 1024;

/// A part of a template.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The tokens of the first text (0) or the second one (1), with this type id.
    Text(usize, u32),
    Special(Vec<u32>, u32),
}

/// Templates for one text and for two.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub single: Vec<Part>,
    pub pair: Vec<Part>,
}

/// Offsets leave out white space at the ends of tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trim {
    /// Whether a space may have been added before a text.
    pub prefix: bool,
}

/// What is done with the tokens of texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Post {
    /// `None` if no tokens are added.
    pub template: Option<Template>,
    pub trim: Option<Trim>,
}

impl Post {
    pub(super) fn new(c: &Config<'_>) -> Result<Post> {
        let special = |key: &str| -> Result<u32> {
            match c.get(key).and_then(Json::as_array) {
                Some([_, n]) => id(n),
                _ => Err(err(format!("`{key}` is no token with its number"))),
            }
        };
        let trim = || -> Result<Option<Trim>> {
            let trim = Trim { prefix: c.flag("add_prefix_space", true)? };
            Ok(c.flag("trim_offsets", true)?.then_some(trim))
        };
        Ok(match c.kind()? {
            "ByteLevel" => Post { template: None, trim: trim()? },
            "BertProcessing" | "RobertaProcessing" => {
                let (sep, cls) = (special("sep")?, special("cls")?);
                let roberta = c.kind()? == "RobertaProcessing";
                let one = |id, t| Part::Special(vec![id], t);
                let single = vec![one(cls, 0), Part::Text(0, 0), one(sep, 0)];
                let second = u32::from(!roberta);
                let mut pair = single.clone();
                pair.extend(roberta.then(|| one(sep, 0)));
                pair.extend([Part::Text(1, second), one(sep, second)]);
                let trim = if roberta { trim()? } else { None };
                Post { template: Some(Template { single, pair }), trim }
            }
            "TemplateProcessing" => {
                let template = Template { single: template(c, "single")?, pair: template(c, "pair")? };
                Post { template: Some(template), trim: None }
            }
            "Sequence" => {
                let mut all = Post::default();
                for one in c.list("processors", Post::new)? {
                    if all.template.is_some() && one.template.is_some() {
                        return Err(unknown("post-processor", "Sequence of several templates"));
                    }
                    all.template = all.template.or(one.template);
                    all.trim = all.trim.or(one.trim);
                }
                all
            }
            kind => return Err(unknown("post-processor", kind)),
        })
    }
}

fn template(c: &Config<'_>, key: &str) -> Result<Vec<Part>> {
    let parts = c.get(key).and_then(Json::as_array).ok_or_else(|| err(format!("the template `{key}` is no list")))?;
    let bad = || err(format!("the template `{key}` has a part that is none"));
    let mut out = Vec::with_capacity(parts.len());
    let mut ids_of_all = 0;
    for p in parts {
        let (kind, p) = p.as_object().and_then(|o| o.first()).ok_or_else(bad)?;
        let name = p.get("id").and_then(Json::as_str).ok_or_else(bad)?;
        let type_id = p.get("type_id").map(id).transpose()?.unwrap_or(0);
        out.push(match (kind.as_str(), name) {
            ("Sequence", "A") => Part::Text(0, type_id),
            ("Sequence", "B") => Part::Text(1, type_id),
            ("SpecialToken", name) => {
                let token = c.get("special_tokens").and_then(|t| t.get(name)).ok_or_else(bad)?;
                let ids = token.get("ids").and_then(Json::as_array).ok_or_else(bad)?;
                ids_of_all += ids.len();
                Part::Special(ids.iter().map(id).collect::<Result<_>>()?, type_id)
            }
            _ => return Err(bad()),
        });
        if out.len().max(ids_of_all) > MAX_PARTS {
            return Err(err(format!("the template `{key}` has more than {MAX_PARTS} parts or tokens")));
        }
    }
    Ok(out)
}

#[derive(Clone, Debug)]
pub(super) enum Decoder {
    ByteLevel,
    WordPiece { prefix: String, cleanup: bool },
    Metaspace(Metaspace),
    ByteFallback,
    Fuse,
    Strip { content: char, start: usize, stop: usize },
    Replace(Regex, String),
    Bpe(String),
    Ctc { pad: String, delimiter: String, cleanup: bool },
    Sequence(Vec<Decoder>),
}

impl Decoder {
    pub(super) fn new(c: &Config<'_>) -> Result<Decoder> {
        Ok(match c.kind()? {
            "ByteLevel" => Decoder::ByteLevel,
            "WordPiece" => {
                Decoder::WordPiece { prefix: c.text_or("prefix", "##")?.to_owned(), cleanup: c.flag("cleanup", true)? }
            }
            "Metaspace" => Decoder::Metaspace(Metaspace::new(c)?),
            "ByteFallback" => Decoder::ByteFallback,
            "Fuse" => Decoder::Fuse,
            "Strip" => {
                let (start, stop) = (c.size("start", 0)?, c.size("stop", 0)?);
                Decoder::Strip { content: c.character("content", ' ')?, start, stop }
            }
            "Replace" => Decoder::Replace(c.pattern()?, c.text("content")?.to_owned()),
            "BPEDecoder" => Decoder::Bpe(c.text_or("suffix", "</w>")?.to_owned()),
            "CTC" => Decoder::Ctc {
                pad: c.text_or("pad_token", "<pad>")?.to_owned(),
                delimiter: c.text_or("word_delimiter_token", "|")?.to_owned(),
                cleanup: c.flag("cleanup", true)?,
            },
            "Sequence" => Decoder::Sequence(c.list("decoders", Decoder::new)?),
            kind => return Err(unknown("decoder", kind)),
        })
    }

    /// The bytes that one token stands for; `None` for decoders where this depends on neighbouring tokens.
    pub(super) fn bytes(&self, token: &str) -> Option<Vec<u8>> {
        match self {
            Decoder::ByteLevel => {
                let raw = token.chars().map(char_byte).collect::<Option<Vec<u8>>>();
                Some(raw.unwrap_or_else(|| token.as_bytes().to_vec()))
            }
            Decoder::Metaspace(m) => Some(token.replace(m.mark, " ").into_bytes()),
            Decoder::ByteFallback => Some(byte_token(token).map_or_else(|| token.as_bytes().to_vec(), |b| vec![b])),
            // `Strip` follows `Fuse` and so removes characters only at both ends of the whole text
            Decoder::Fuse | Decoder::Strip { .. } => Some(token.as_bytes().to_vec()),
            Decoder::Replace(p, content) => replace(p, content, token).ok().map(String::into_bytes),
            Decoder::Sequence(list) => {
                if list.iter().any(|d| matches!(d, Decoder::ByteFallback))
                    && let Some(b) = byte_token(token)
                {
                    return Some(vec![b]);
                }
                list.iter().try_fold(token.as_bytes().to_vec(), |t, d| d.bytes(std::str::from_utf8(&t).ok()?))
            }
            Decoder::WordPiece { .. } | Decoder::Bpe(_) | Decoder::Ctc { .. } => None,
        }
    }

    pub(super) fn run(&self, tokens: Vec<String>) -> Result<Vec<String>> {
        Ok(match self {
            Decoder::ByteLevel => {
                let mut bytes = Vec::new();
                for t in &tokens {
                    match t.chars().map(char_byte).collect::<Option<Vec<u8>>>() {
                        Some(raw) => bytes.extend(raw),
                        None => bytes.extend(t.as_bytes()),
                    }
                }
                vec![String::from_utf8_lossy(&bytes).into_owned()]
            }
            Decoder::WordPiece { prefix, cleanup } => {
                let one = |(i, t): (usize, String)| {
                    let t = match t.strip_prefix(prefix.as_str()) {
                        _ if i == 0 => t,
                        Some(rest) => rest.to_owned(),
                        None => format!(" {t}"),
                    };
                    if *cleanup { clean(&t) } else { t }
                };
                tokens.into_iter().enumerate().map(one).collect()
            }
            Decoder::Metaspace(m) => {
                let one = |(i, t): (usize, String)| {
                    let drop = i == 0 && m.prepend != Prepend::Never;
                    t.chars().filter(|c| !drop || *c != m.mark).map(|c| if c == m.mark { ' ' } else { c }).collect()
                };
                tokens.into_iter().enumerate().map(one).collect()
            }
            Decoder::ByteFallback => from_bytes(tokens),
            Decoder::Fuse => vec![tokens.concat()],
            Decoder::Strip { content, start, stop } => {
                let one = |t: String| {
                    let mut t = t.as_str();
                    (0..*start).try_for_each(|_| t.strip_prefix(*content).map(|rest| t = rest));
                    (0..*stop).try_for_each(|_| t.strip_suffix(*content).map(|rest| t = rest));
                    t.to_owned()
                };
                tokens.into_iter().map(one).collect()
            }
            Decoder::Replace(p, content) => tokens.iter().map(|t| replace(p, content, t)).collect::<Result<_>>()?,
            Decoder::Bpe(suffix) => {
                let last = tokens.len().saturating_sub(1);
                let one = |(i, t): (usize, &String)| t.replace(suffix.as_str(), if i == last { "" } else { " " });
                tokens.iter().enumerate().map(one).collect()
            }
            Decoder::Ctc { pad, delimiter, cleanup } => {
                let mut tokens = tokens;
                tokens.dedup();
                let one = |t: String| {
                    let t = t.replace(pad.as_str(), "");
                    if *cleanup { clean(&t).replace(delimiter.as_str(), " ") } else { t }
                };
                tokens.into_iter().map(one).filter(|t| !t.is_empty()).collect()
            }
            Decoder::Sequence(list) => list.iter().try_fold(tokens, |t, d| d.run(t))?,
        })
    }
}

/// Removes the spaces before punctuation.
fn clean(t: &str) -> String {
    let pairs = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" do not", " don't"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    if !t.contains(' ') {
        return t.to_owned();
    }
    pairs.iter().fold(t.to_owned(), |t, (from, to)| t.replace(from, to))
}

/// The byte that a token of the form `<0x..>` stands for.
fn byte_token(t: &str) -> Option<u8> {
    let hex = t.strip_prefix("<0x")?.strip_suffix('>').filter(|h| h.len() == 2)?;
    u8::from_str_radix(hex, 16).ok()
}

/// Decodes runs of tokens `<0x..>` as UTF-8. A run that is not valid UTF-8 becomes one replacement
/// character for each byte.
fn from_bytes(tokens: Vec<String>) -> Vec<String> {
    let flush = |run: &mut Vec<u8>, out: &mut Vec<String>| {
        let n = run.len();
        match String::from_utf8(std::mem::take(run)) {
            Ok(t) if n > 0 => out.push(t),
            Ok(_) => {}
            Err(_) => out.extend(std::iter::repeat_n("\u{fffd}".to_owned(), n)),
        }
    };
    let (mut run, mut out) = (Vec::new(), Vec::with_capacity(tokens.len()));
    for t in tokens {
        match byte_token(&t) {
            Some(b) => run.push(b),
            None => {
                flush(&mut run, &mut out);
                out.push(t);
            }
        }
    }
    flush(&mut run, &mut out);
    out
}
