//! Tokenizers of GGUF files: byte-level BPE (`gpt2`), SentencePiece's BPE (`llama`), WordPiece (`bert`), Unigram (`t5`).

use super::added::Added;
use super::bpe::{Bpe, Merges};
use super::charsmap::CharsMap;
use super::config::{err, unknown};
use super::normalize::{Normalizer, Unicode};
use super::post::{Decoder, Part, Post, Template};
use super::regex::Regex;
use super::split::{Metaspace, Prepend, Split};
use super::vocab::Vocab;
use super::words::{Unigram, WordPiece};
use super::{TokenModel, Tokenizer, pre};
use crate::error::Result;
use crate::io::gguf::{Gguf, Value};
use crate::util::sort;

/// Values of `tokenizer.ggml.token_type`.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

impl Tokenizer {
    /// Reads the tokenizer in a GGUF file's metadata.
    pub fn from_gguf(file: &Gguf, host: Unicode) -> Result<Tokenizer> {
        let get = |key: &str| file.get(&format!("tokenizer.ggml.{key}"));
        let kind = get("model").and_then(Value::as_str).ok_or_else(|| err("the file has no tokenizer"))?;
        let tokens = get("tokens").and_then(Value::as_strings).ok_or_else(|| err("the file has no tokens"))?;
        let scores = get("scores").and_then(Value::as_array).map(|a| a.to_f64()).unwrap_or_default();
        let kinds = get("token_type").and_then(Value::as_array).map(|a| a.to_i64()).unwrap_or_default();
        let one = |key: &str| get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let flag = |key: &str, default: bool| get(key).and_then(Value::as_bool).unwrap_or(default);
        let mut added = Added::default();
        for ((i, t), kind) in (0u32..).zip(tokens).zip(&kinds) {
            if matches!(*kind, CONTROL | USER_DEFINED) && !t.is_empty() {
                added.push(t, i, *kind == CONTROL);
            }
        }
        let score = |i: usize| scores.get(i).copied().unwrap_or(0.0);
        let space = flag("add_space_prefix", true);
        let metaspace =
            |split: bool| Metaspace {
                mark: '▁', prepend: if space { Prepend::First } else { Prepend::Never }, split
            };
        let sentences = Decoder::Sequence(vec![
            Decoder::Replace(Regex::literal("▁"), " ".into()),
            Decoder::ByteFallback,
            Decoder::Fuse,
            Decoder::Strip { content: ' ', start: usize::from(space), stop: 0 },
        ]);
        let (mut normalizer, split, decoder, model);
        normalizer = None;
        match kind {
            "gpt2" => {
                let vocab = vocab(tokens.iter().map(String::as_str))?;
                let merges = get("merges").and_then(Value::as_strings).ok_or_else(|| err("the file has no merges"))?;
                let pairs = merges.iter().map(|m| m.split_once(' ').ok_or_else(|| err(format!("`{m}` is no merge"))));
                let merges = Merges::list(&vocab, pairs, "")?;
                let pre = get("pre").and_then(Value::as_str).unwrap_or("default");
                let (mut cuts, ignore_merges) = pre::cuts(pre)?;
                cuts.push(Split::ByteLevel { prefix: flag("add_space_prefix", false), pattern: None });
                split = Split::Sequence(cuts);
                decoder = Decoder::ByteLevel;
                model = TokenModel::Bpe(Bpe { ignore_merges, ..plain(vocab, merges, None) });
            }
            "llama" => {
                let vocab = vocab(tokens.iter().map(String::as_str))?;
                let mut order: Vec<usize> = (0..tokens.len()).collect();
                sort::by(&mut order, |&a, &b| score(b).total_cmp(&score(a)));
                // Tokens of equal score have equal rank: among such pairs the leftmost is merged first
                let mut ranks = vec![0u32; tokens.len()];
                let mut rank = 0;
                for (k, &i) in order.iter().enumerate() {
                    if k > 0 && score(i) != score(order[k - 1]) {
                        rank = k as u32;
                    }
                    ranks[i] = rank;
                }
                split = Split::Metaspace(metaspace(false));
                decoder = sentences;
                let unk = one("unknown_token_id").or(Some(0)).filter(|&u| (u as usize) < tokens.len());
                let bpe = Bpe { byte_fallback: true, fuse_unk: true, ..plain(vocab, Merges::Scores(ranks), unk) };
                model = TokenModel::Bpe(bpe);
            }
            "bert" => {
                // These files mark tokens that begin a word and not those that continue one; WordPiece marks the latter
                let renamed: Vec<String> = tokens
                    .iter()
                    .map(|t| match t.strip_prefix('▁') {
                        Some(word) => word.to_owned(),
                        None if t.starts_with('[') && t.ends_with(']') && t.len() > 2 => t.clone(),
                        None => format!("##{t}"),
                    })
                    .collect();
                let vocab = vocab(renamed.iter().map(String::as_str))?;
                normalizer = Some(Normalizer::Bert { clean: true, chinese: true, accents: true, lower: true });
                split = Split::Bert;
                decoder = Decoder::WordPiece { prefix: "##".into(), cleanup: true };
                let unk = one("unknown_token_id").or_else(|| vocab.id("[UNK]"));
                let unk = unk.ok_or_else(|| err("there is no unknown token"))?;
                model = TokenModel::WordPiece(WordPiece { vocab, unk, prefix: "##".into(), max_chars: 100 });
            }
            "t5" => {
                let mut steps = Vec::new();
                if let Some(map) = get("precompiled_charsmap").and_then(Value::as_array) {
                    steps.push(Normalizer::Precompiled(CharsMap::new(&map.data)?));
                }
                if flag("remove_extra_whitespaces", false) {
                    steps.push(Normalizer::Strip { left: true, right: true });
                    steps.push(Normalizer::Replace(Regex::new(" {2,}")?, " ".into()));
                }
                normalizer = Some(Normalizer::Sequence(steps));
                let scored: Vec<(&str, f64)> = tokens.iter().enumerate().map(|(i, t)| (t.as_str(), score(i))).collect();
                split = Split::Metaspace(metaspace(true));
                decoder = sentences;
                model = TokenModel::Unigram(Unigram::from_tokens(&scored, one("unknown_token_id"), false)?);
            }
            kind => return Err(unknown("model", kind)),
        }
        let bert = kind == "bert";
        let begin =
            one("bos_token_id").or(one("cls_token_id")).filter(|_| flag("add_bos_token", bert || kind == "llama"));
        let end_id = if bert { one("seperator_token_id").or(one("eos_token_id")) } else { one("eos_token_id") };
        // Between two texts XLM-R, whose tokenizers are of this kind, has one more token
        let separates = flag("add_sep_token", kind == "t5" && get("seperator_token_id").is_some());
        let between = one("seperator_token_id").filter(|_| separates && !bert);
        let end = end_id.filter(|_| flag("add_eos_token", bert || kind == "t5"));
        Ok(Tokenizer {
            normalizer,
            split: Some(split),
            model,
            added,
            post: Post { template: Some(around(begin, end, between, bert)), trim: None },
            decoder: Some(decoder),
            truncation: None,
            host,
        })
    }
}

fn vocab<'a>(tokens: impl Iterator<Item = &'a str>) -> Result<Vocab> {
    let mut v = Vocab::of_about(tokens.size_hint().0);
    for (i, t) in (0..).zip(tokens) {
        v.add(t, i)?;
    }
    Ok(v)
}

fn plain(vocab: Vocab, merges: Merges, unk: Option<u32>) -> Bpe {
    let (prefix, suffix) = (String::new(), String::new());
    Bpe { vocab, merges, unk, prefix, suffix, fuse_unk: false, byte_fallback: false, ignore_merges: false }
}

fn around(begin: Option<u32>, end: Option<u32>, between: Option<u32>, types: bool) -> Template {
    let one = |id: Option<u32>, t| id.map(|id| Part::Special(vec![id], t));
    let single: Vec<Part> = one(begin, 0).into_iter().chain([Part::Text(0, 0)]).chain(one(end, 0)).collect();
    let mut pair = single.clone();
    let second = u32::from(types);
    pair.extend(one(between, 0).into_iter().chain([Part::Text(1, second)]).chain(one(end, second)));
    Template { single, pair }
}
