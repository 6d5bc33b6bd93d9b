//! Loads adapters of language models from files, and switches between them.

use super::LanguageModel;
use crate::model::read_file;
use gradloom_core::llm::{Adapter, Decoder};
use gradloom_core::{Error, Result};
use std::path::{Path, PathBuf};

/// An adapter in a file.
#[derive(Clone, Debug)]
pub struct AdapterFile {
    /// The name by which it is used.
    pub name: String,
    /// A folder with `adapter_config.json` and `adapter_model.safetensors` (PEFT), that safetensors file, or a GGUF file (llama.cpp).
    pub path: PathBuf,
    /// A factor of what it adds to matrices.
    pub scale: f64,
}

impl AdapterFile {
    /// An adapter with the name of its file or folder, and a factor of 1.
    pub fn new(path: impl Into<PathBuf>) -> AdapterFile {
        let path = path.into();
        let name = path.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        AdapterFile { name, path, scale: 1.0 }
    }
}

/// Reads adapters for a model.
pub(super) fn read(files: &[AdapterFile], decoder: &Decoder) -> Result<Vec<(String, Adapter)>> {
    let mut out: Vec<(String, Adapter)> = Vec::with_capacity(files.len());
    for f in files {
        if out.iter().any(|a| a.0 == f.name) {
            return Err(Error::value("adapters", format!("two are called `{}`", f.name)));
        }
        let bad = |e: Error| match e {
            Error::Input { .. } => e,
            e => Error::Input { name: f.path.display().to_string(), what: e.to_string() },
        };
        out.push((f.name.clone(), one(&f.path, f.scale, decoder).map_err(bad)?));
    }
    Ok(out)
}

fn one(path: &Path, scale: f64, decoder: &Decoder) -> Result<Adapter> {
    let arch = decoder.config().arch;
    if path.is_dir() {
        return peft(path, &path.join("adapter_model.safetensors"), scale, decoder);
    }
    let file = read_file(path)?;
    match file.starts_with(b"GGUF") {
        true => Adapter::from_gguf(arch, &file, scale),
        false => peft(path.parent().unwrap_or(Path::new("")), path, scale, decoder),
    }
}

fn peft(folder: &Path, file: &Path, scale: f64, decoder: &Decoder) -> Result<Adapter> {
    let config = read_file(&folder.join("adapter_config.json"))?;
    Adapter::from_peft(decoder.config().arch, &config, &read_file(file)?, scale)
}

impl LanguageModel {
    /// The names of the loaded adapters.
    pub fn adapters(&self) -> Vec<&str> {
        self.adapters.iter().map(|a| a.0.as_str()).collect()
    }

    /// Reads an adapter file and adds it as [`LanguageModel::add_adapter`] does; returns its name.
    ///
    /// # Errors
    /// Those of that method, and `E_INPUT` for a file that is not a readable adapter.
    pub fn read_adapter(&mut self, file: &AdapterFile) -> Result<String> {
        for (name, adapter) in read(std::slice::from_ref(file), &self.decoder)? {
            self.add_adapter(&name, adapter)?;
        }
        Ok(file.name.clone())
    }

    /// Adds an adapter, which [`LanguageModel::use_adapter`] can then put into use. If the existing buffers lack its
    /// matrices or rank, plans are made anew, no adapter is in use, and the texts read so far are forgotten.
    ///
    /// # Errors
    /// `E_VALUE` for a name that is taken, `E_MODEL` for an adapter of a matrix that the model lacks, or
    /// has in another shape.
    pub fn add_adapter(&mut self, name: &str, adapter: Adapter) -> Result<()> {
        if self.adapters.iter().any(|a| a.0 == name) {
            return Err(Error::value("adapters", format!("one is called `{name}` already")));
        }
        if !self.decoder.has_capacity_for(&adapter) {
            let all: Vec<Adapter> = self.adapters.iter().map(|a| &a.1).chain([&adapter]).cloned().collect();
            self.decoder.set_adapters(&all)?;
            self.rt.realize(&self.decoder.adapter_buffers())?;
            self.ready.clear();
            self.texts.iter_mut().for_each(Vec::clear);
            (self.adapter, self.last) = (None, None);
        }
        self.adapters.push((name.to_owned(), adapter));
        Ok(())
    }

    /// The name of the adapter in use.
    pub fn adapter(&self) -> Option<&str> {
        self.adapter.and_then(|i| self.adapters.get(i)).map(|a| a.0.as_str())
    }

    /// Puts an adapter, or none, into use for what is read from now on. Texts read before are forgotten.
    /// Nothing is compiled.
    ///
    /// # Errors
    /// `E_VALUE` for an unknown name.
    pub fn use_adapter(&mut self, name: Option<&str>) -> Result<()> {
        let find = |name: &str| {
            let none = || Error::value("adapters", format!("none is called `{name}`; there are {:?}", self.adapters()));
            self.adapters.iter().position(|a| a.0 == name).ok_or_else(none)
        };
        let now = name.map(find).transpose()?;
        if now == self.adapter {
            return Ok(());
        }
        let bytes = self.decoder.adapter_bytes(now.and_then(|i| self.adapters.get(i)).map(|a| &a.1));
        for (t, bytes) in self.decoder.adapter_buffers().into_iter().zip(bytes) {
            self.rt.write(t, &bytes)?;
        }
        self.adapter = now;
        self.texts.iter_mut().for_each(Vec::clear);
        self.last = None;
        Ok(())
    }
}
