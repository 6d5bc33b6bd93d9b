//! Reads the files of a language model: one or several GGUF files, or a folder in Hugging Face's format.

use super::background::Background;
use super::{Activations, Decoder, Encoder, Pooler, ends, ends_of};
use crate::mapped::map_file;
use crate::model::read_file;
use crate::text::{self, ChatTemplate, Tokenizer};
use crate::weights;
use gradloom_core::engine::Bytes;
use gradloom_core::io::gguf::{Gguf, Value};
use gradloom_core::io::json::Json;
use gradloom_core::tensor::Session;
use gradloom_core::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tokenizer and the chat template, or why the model has none.
pub(super) type Text = (Result<Arc<Tokenizer>>, Result<Arc<ChatTemplate>>);
/// The decoder, the tokenizer and chat template, the tokens that end a text, and how embeddings are made.
pub(super) type Parts = (Decoder, Background<Text>, Vec<u32>, Pooler);

/// Is the model in this file or folder an encoder?
pub(super) fn is_encoder(path: &Path) -> Result<bool> {
    if path.is_dir() {
        return Encoder::is_json(&read_file(&path.join("config.json"))?);
    }
    Ok(opened(path)?.1.first().is_some_and(Encoder::is_gguf))
}

/// The error of a model that continues no texts, where one that does is wanted.
pub(super) fn no_decoder(path: &Path) -> Error {
    let context = "an encoder, which continues no texts: it is for embeddings or reranking";
    Error::Unsupported { what: format!("generating text with `{}`", path.display()), context: context.into() }
}

/// The files of a GGUF model, and their indices.
pub(super) fn opened(path: &Path) -> Result<(Vec<Bytes>, Vec<Gguf>)> {
    let names = parts(path);
    let mut files = Vec::with_capacity(names.len());
    for name in &names {
        let file = map_file(name)?;
        if !file.starts_with(b"GGUF") {
            let what = "a GGUF file, or a folder with config.json and safetensors, is wanted";
            return Err(Error::Input { name: name.display().to_string(), what: what.into() });
        }
        files.push(file);
    }
    let indices = files.iter().map(|file| Gguf::parse(file)).collect::<Result<Vec<_>>>()?;
    let index = indices.first().ok_or_else(|| Error::Internal("a path names a file".into()))?;
    if index.part().1 != files.len() as u64 {
        let (part, of) = index.part();
        let what = format!("it is part {} of {of}: the files are called x-00001-of-{of:05}.gguf and so on", part + 1);
        return Err(Error::Input { name: path.display().to_string(), what });
    }
    Ok((files, indices))
}

pub(super) fn from_gguf(path: &Path, session: &Session, capacity: usize, activations: Activations) -> Result<Parts> {
    let (files, indices) = opened(path)?;
    if indices.first().is_some_and(Encoder::is_gguf) {
        return Err(no_decoder(path));
    }
    let (decoder, index) = Decoder::from_indexed(session, &files, indices, capacity, activations)?;
    let (ends, pooler) = (ends(&index), Pooler::from_gguf(&index)?);
    Ok((decoder, Background::new(move || text_of(&index))?, ends, pooler))
}

/// As [`from_gguf`], of an encoder.
pub(super) fn encoder_from_gguf(
    path: &Path,
    session: &Session,
    capacity: usize,
    activations: Activations,
) -> Result<(Encoder, Background<Text>)> {
    let (files, indices) = opened(path)?;
    let (encoder, index) = Encoder::from_indexed(session, &files, indices, capacity, activations)?;
    Ok((encoder, Background::new(move || text_of(&index))?))
}

/// The tokenizer and the chat template. Their errors are for those who ask for them: a model without these can still be
/// given tokens.
fn text_of(index: &Gguf) -> Text {
    let tokenizer = Tokenizer::from_gguf(index, text::UNICODE);
    let mut chat = ChatTemplate::from_gguf(index);
    let id = |key: &str| index.get(&format!("tokenizer.ggml.{key}")).and_then(Value::as_u64).map(|n| n as u32);
    if let (Ok(chat), Ok(t)) = (&mut chat, &tokenizer) {
        for (name, key) in [("bos_token", "bos_token_id"), ("eos_token", "eos_token_id")] {
            if let Some(text) = id(key).and_then(|id| t.token(id)) {
                chat.set_token(name, text);
            }
        }
    }
    (tokenizer.map(Arc::new), chat.map(Arc::new))
}

/// The files of a split model, given the name of any of them, `x-00002-of-00003.gguf`; for any other name
/// that file alone.
fn parts(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let all = || {
        let (front, of) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = front.rsplit_once('-')?;
        let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
        let count = of.parse::<usize>().ok().filter(|_| digits(number) && digits(of))?;
        Some((1..=count).map(|i| path.with_file_name(format!("{stem}-{i:05}-of-{of}.gguf"))).collect::<Vec<_>>())
    };
    all().filter(|list| !list.is_empty()).unwrap_or_else(|| vec![path.to_owned()])
}

pub(super) fn from_folder(path: &Path, session: &Session, capacity: usize) -> Result<Parts> {
    let config = read_file(&path.join("config.json"))?;
    if Encoder::is_json(&config)? {
        return Err(no_decoder(path));
    }
    let decoder = Decoder::from_tensors(session, &config, weights::mapped(&weights_in(path), session)?, capacity)?;
    let mut ends = Vec::new();
    for file in
        [have(path, "generation_config.json").and_then(|p| read_file(&p).ok()), Some(config)].into_iter().flatten()
    {
        ends.extend(ends_of(&file)?);
    }
    let folder = path.to_owned();
    Ok((decoder, Background::new(move || text_in(&folder))?, ends, pooler_in(path)?))
}

/// As [`from_folder`], of an encoder.
pub(super) fn encoder_from_folder(
    path: &Path,
    session: &Session,
    capacity: usize,
) -> Result<(Encoder, Background<Text>)> {
    let config = read_file(&path.join("config.json"))?;
    let tensors = weights::mapped(&weights_in(path), session)?;
    let encoder = Encoder::from_tensors(session, &config, tensors, pooler_in(path)?, capacity)?;
    let folder = path.to_owned();
    Ok((encoder, Background::new(move || text_in(&folder))?))
}

fn weights_in(folder: &Path) -> PathBuf {
    have(folder, "model.safetensors.index.json").unwrap_or_else(|| folder.join("model.safetensors"))
}

/// How embeddings are made, as the files of sentence-transformers say it.
fn pooler_in(folder: &Path) -> Result<Pooler> {
    match have(folder, "modules.json") {
        Some(file) => Pooler::from_modules(&read_file(&file)?, &|name| read_file(&folder.join(name))),
        None => Ok(Pooler::default()),
    }
}

fn have(folder: &Path, name: &str) -> Option<PathBuf> {
    Some(folder.join(name)).filter(|p| p.exists())
}

fn text_in(folder: &Path) -> Text {
    let lacks = |name: &str| Error::Input { name: folder.display().to_string(), what: format!("it has no {name}") };
    let tokenizer = have(folder, "tokenizer.json").ok_or_else(|| lacks("tokenizer.json")).and_then(|p| text::load(&p));
    let settings = have(folder, "tokenizer_config.json");
    let chat = match have(folder, "chat_template.jinja") {
        Some(source) => template(&source, settings.as_deref()),
        None => settings.ok_or_else(|| lacks("chat template")).and_then(|p| text::load_chat(&p)),
    };
    (tokenizer.map(Arc::new), chat.map(Arc::new))
}

/// A template in a file of its own, with the special tokens that the tokenizer's settings name.
fn template(source: &Path, settings: Option<&Path>) -> Result<ChatTemplate> {
    let source = String::from_utf8_lossy(&read_file(source)?).into_owned();
    let mut out = ChatTemplate::new(&source)?;
    let settings = settings.map(read_file).transpose()?.map(|file| Json::parse(&file)).transpose()?;
    let named = settings.as_ref().and_then(Json::as_object).unwrap_or_default();
    for (key, value) in named.iter().filter(|(key, _)| key.ends_with("_token")) {
        if let Some(text) = value.as_str().or_else(|| value.get("content")?.as_str()) {
            out.set_token(key, text);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_split_model_names_all() {
        let names = |name: &str| parts(Path::new(name));
        let all = ["a/x-y-00001-of-00002.gguf", "a/x-y-00002-of-00002.gguf"].map(PathBuf::from);
        assert_eq!(names("a/x-y-00002-of-00002.gguf"), all);
        for alone in ["x.gguf", "x-1-of-2.gguf", "x-00001-of-00000.gguf", "one-of-many.gguf", "x-00001-of-00002"] {
            assert_eq!(names(alone), [PathBuf::from(alone)]);
        }
    }
}
