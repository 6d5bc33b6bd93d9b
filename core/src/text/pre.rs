//! The pre-tokenizers of byte-level BPE that GGUF files name (`tokenizer.ggml.pre`): the patterns are those of the
//! models' own `tokenizer.json`. A name that is not here is an error, since other cuts would give other tokens.

use super::config::unknown;
use super::regex::Regex;
use super::split::{Behavior, GPT2, Split};
use crate::error::Result;

const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Words of Mistral's and OpenAI's later tokenizers: capital letters, then small ones. `END` stands for what may follow
/// a word, and `DIGITS` for how many digits are one piece.
const CASES: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+END",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*END",
    r"|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);
/// Letters with cases, those of them that the models' own file lists. Some are written by their numbers, since editors
/// replace them by others.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ\u1F5F-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBEῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDB",
    r"ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ",
    r"ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
);

/// The cuts of the pre-tokenizer of this name, before bytes become characters; and whether a piece that is a token by
/// itself is not merged from parts.
///
/// # Errors
/// `E_UNSUPPORTED` for a name that is not known.
pub(super) fn cuts(name: &str) -> Result<(Vec<Split>, bool)> {
    let pattern =
        |text: &str| Ok(Split::Pattern { pattern: Regex::new(text)?, behavior: Behavior::Isolated, invert: false });
    let all = |texts: &[&str]| texts.iter().map(|t| pattern(t)).collect::<Result<Vec<_>>>();
    let single_digits = |text: &str| Ok::<_, crate::Error>(vec![Split::Digits(Behavior::Isolated), pattern(text)?]);
    let ignores_merges =
        matches!(name, "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "midm-2.0" | "lfm2" | "tekken");
    let list = match name {
        "default" | "gpt-2" | "gpt2" | "phi-2" | "mpt" | "olmo" | "jais" | "gigachat" | "a.x-4.0" | "mellum"
        | "exaone4" | "trillion" | "granite-docling" => all(&[GPT2])?,
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "pixtral" | "midm-2.0" | "lfm2" | "smaug-bpe" | "dbrx"
        | "glm4" | "chatglm-bpe" => all(&[LLAMA3])?,
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "megrez" | "kormo" | "hunyuan" | "solar-open" | "grok-2" => {
            all(&[&LLAMA3.replace("{1,3}", "")])?
        }
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            single_digits(GPT2)?
        }
        "tekken" => all(&[&CASES.replace("END", "").replace("DIGITS", "")])?,
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => {
            all(&[&CASES.replace("END", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?").replace("DIGITS", "{1,3}")])?
        }
        "falcon" => {
            let mut list = vec![Split::Punctuation(Behavior::Contiguous)];
            list.extend(all(&[GPT2, "[0-9][0-9][0-9]"])?);
            list
        }
        "deepseek-llm" => {
            let rest = r"\s?[!-/:-~！-／：-～‘-‟　-。]+";
            all(&[r"[\r\n]", DEEPSEEK_LETTERS, rest, r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+"])?
        }
        "deepseek-coder" => all(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"])?,
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => all(&[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3])?,
        "seed-coder" => {
            let own = LLAMA3.replace("{1,3}", "").replace(r"\p{N}]+[\r\n]*", r"\p{N}\r\n]+");
            all(&[&own])?
        }
        "bloom" | "poro-chat" | "gpt3-finnish" => all(&[BLOOM])?,
        "viking" => {
            let mut list = all(&[BLOOM])?;
            list.push(Split::Digits(Behavior::Isolated));
            list
        }
        name => return Err(unknown("pre-tokenizer", name)),
    };
    Ok((list, ignores_merges))
}
