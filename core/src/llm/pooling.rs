//! How the hidden states of a text's tokens become one vector: a weighted sum, whose weights follow from the text's length
//! and from what the model's files say (GGUF's `pooling_type`; `modules.json` and `1_Pooling/config.json` of
//! sentence-transformers).

use super::err;
use crate::error::{Error, Result};
use crate::io::gguf::{Gguf, Value};
use crate::io::json::Json;

/// Which states of a text count, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// All states equally.
    #[default]
    Mean,
    /// That of the first token, such as `[CLS]`.
    First,
    /// That of the last token.
    Last,
    /// The i-th state i times as much as the first one.
    Weighted,
    /// The sum of all states, divided by the root of their number.
    Root,
}

/// How a model makes embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooler {
    /// Which states count.
    pub pooling: Pooling,
    /// Whether vectors are divided by their length.
    pub normalised: bool,
}

impl Default for Pooler {
    fn default() -> Pooler {
        Pooler { pooling: Pooling::Mean, normalised: true }
    }
}

impl Pooling {
    /// The weight of each of `n` states.
    pub fn shares(self, n: usize) -> Vec<f32> {
        let only = |which: usize| (0..n).map(|i| f32::from(u8::from(i == which))).collect();
        match self {
            Pooling::Mean => vec![1.0 / n as f32; n],
            Pooling::First => only(0),
            Pooling::Last => only(n.saturating_sub(1)),
            Pooling::Weighted => (1..=n).map(|i| i as f32 / (n * (n + 1) / 2) as f32).collect(),
            Pooling::Root => vec![1.0 / (n as f32).sqrt(); n],
        }
    }
}

/// The flags of a `1_Pooling/config.json`.
const FLAGS: &[(&str, Pooling)] = &[
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_cls_token", Pooling::First),
    ("pooling_mode_lasttoken", Pooling::Last),
    ("pooling_mode_weightedmean_tokens", Pooling::Weighted),
    ("pooling_mode_mean_sqrt_len_tokens", Pooling::Root),
];

fn unsupported(what: String) -> Error {
    Error::Unsupported { what, context: "embeddings of texts".into() }
}

impl Pooler {
    /// What a GGUF file says: vectors have length 1, as in llama.cpp.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for an unknown `pooling_type`.
    pub fn from_gguf(file: &Gguf) -> Result<Pooler> {
        let arch = file.get("general.architecture").and_then(Value::as_str).unwrap_or_default();
        let pooling = match file.get(&format!("{arch}.pooling_type")).and_then(Value::as_u64) {
            None | Some(0 | 1) => Pooling::Mean,
            // Cross-encoders (4) read the first token, too
            Some(2 | 4) => Pooling::First,
            Some(3) => Pooling::Last,
            Some(n) => return Err(unsupported(format!("`{arch}.pooling_type` {n}"))),
        };
        Ok(Pooler { pooling, normalised: true })
    }

    /// What `modules.json` of sentence-transformers says; `read` gives the files that it names.
    ///
    /// # Errors
    /// `E_UNSUPPORTED` for other steps than pooling and normalisation, and for other kinds of pooling.
    pub fn from_modules(modules: &[u8], read: &dyn Fn(&str) -> Result<Vec<u8>>) -> Result<Pooler> {
        let json = Json::parse(modules)?;
        let list = json.as_array().ok_or_else(|| err("`modules.json` is no list"))?;
        let mut out = Pooler { normalised: false, ..Pooler::default() };
        for module in list {
            let text = |key: &str| module.get(key).and_then(Json::as_str).unwrap_or_default();
            match text("type").rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => out.normalised = true,
                "Pooling" => out.pooling = pooling(&read(&format!("{}/config.json", text("path")))?)?,
                other => return Err(unsupported(format!("module `{other}` of `modules.json`"))),
            }
        }
        Ok(out)
    }
}

fn pooling(file: &[u8]) -> Result<Pooling> {
    let json = Json::parse(file)?;
    if let Some(name) = json.get("pooling_mode").and_then(Json::as_str) {
        return Ok(match name {
            "mean" => Pooling::Mean,
            "cls" => Pooling::First,
            "lasttoken" => Pooling::Last,
            "weightedmean" => Pooling::Weighted,
            "mean_sqrt_len_tokens" => Pooling::Root,
            other => return Err(unsupported(format!("pooling `{other}`"))),
        });
    }
    let is_set = |f: &&(String, Json)| f.0.starts_with("pooling_mode_") && f.1 == Json::Bool(true);
    let mut chosen = json.as_object().unwrap_or_default().iter().filter(is_set).map(|f| f.0.as_str());
    match (chosen.next(), chosen.next()) {
        (None, _) => Ok(Pooling::Mean),
        (Some(name), None) => {
            let known = FLAGS.iter().find(|f| f.0 == name).map(|f| f.1);
            known.ok_or_else(|| unsupported(format!("pooling `{name}`")))
        }
        (Some(name), Some(other)) => Err(unsupported(format!("pooling `{name}` together with `{other}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for p in [Pooling::Mean, Pooling::First, Pooling::Last, Pooling::Weighted] {
            for n in [1, 2, 7] {
                let sum: f32 = p.shares(n).iter().sum();
                assert!((sum - 1.0).abs() < 1e-6, "{p:?} of {n}");
            }
            assert!(p.shares(0).is_empty());
        }
        assert_eq!(Pooling::First.shares(3), [1.0, 0.0, 0.0]);
        assert_eq!(Pooling::Last.shares(3), [0.0, 0.0, 1.0]);
        assert_eq!(Pooling::Weighted.shares(2), [1.0 / 3.0, 2.0 / 3.0]);
        assert_eq!(Pooling::Root.shares(4), [0.5; 4]);
    }

    #[test]
    fn modules_say_what_is_pooled() {
        let of = |config: &'static str, rest: &str| {
            let list = format!(
                r#"[{{"type":"sentence_transformers.models.Transformer","path":""}},
                {{"type":"sentence_transformers.models.Pooling","path":"1_Pooling"}}{rest}]"#
            );
            Pooler::from_modules(list.as_bytes(), &|name| {
                assert_eq!(name, "1_Pooling/config.json");
                Ok(config.as_bytes().to_vec())
            })
        };
        let last = r#"{"word_embedding_dimension":8,"pooling_mode_mean_tokens":false,"pooling_mode_lasttoken":true}"#;
        assert_eq!(of(last, "").unwrap(), Pooler { pooling: Pooling::Last, normalised: false });
        let unit = r#",{"type":"sentence_transformers.models.Normalize","path":"2_Normalize"}"#;
        let cls = r#"{"pooling_mode_cls_token":true}"#;
        assert_eq!(of(cls, unit).unwrap(), Pooler { pooling: Pooling::First, normalised: true });
        for (config, rest, what) in [
            (r#"{"pooling_mode_max_tokens":true}"#, "", "pooling_mode_max_tokens"),
            (r#"{"pooling_mode_max_tokens":true,"pooling_mode_mean_tokens":true}"#, "", "together with"),
            (cls, r#",{"type":"sentence_transformers.models.Dense","path":"2_Dense"}"#, "`Dense`"),
        ] {
            let e = of(config, rest).unwrap_err();
            assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains(what), "{e}");
        }
    }
}
