//! `gradloom convert`: converts weight files from one format to another, takes the weights out of ONNX models, and
//! converts TensorFlow Lite models to ONNX.

use super::json::Json;
use super::{Failure, Outcome, Progress};
use clap::{Args, ValueEnum};
use gradloom::dtype::Scalar;
use gradloom::io::gguf::{self, Gguf, Kind, Value};
use gradloom::io::weights::{self, Format};
use gradloom::io::{HostTensor, tflite};
use gradloom::model::{parse, read_file};
use gradloom::{DType, Runtime};
use std::path::{Path, PathBuf};

/// What is read and what it becomes.
#[derive(Args)]
pub(crate) struct Job {
    /// Input file: safetensors (or the index of a split model), GGUF, npz, a torch.save file, ONNX (its weights and other
    /// constants), or TensorFlow Lite
    from: PathBuf,
    /// Output file; its extension selects the format: .safetensors, .gguf or .npz for weights, .onnx for TensorFlow Lite
    to: PathBuf,
    /// Convert floating-point tensors to this data type; integers are kept
    #[arg(long, value_enum)]
    dtype: Option<Float>,
    /// Quantize matrices whose row length is a multiple of 32 to this GGUF type; other tensors are kept (.gguf output only).
    /// `q4_k` needs rows of a multiple of 256: other matrices become `q8_0`
    #[arg(long, value_enum, conflicts_with = "dtype")]
    quantize: Option<Blocks>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Float {
    F32,
    F16,
    Bf16,
}

#[derive(Clone, Copy, ValueEnum)]
enum Blocks {
    #[value(name = "q8_0")]
    Q8,
    #[value(name = "q4_0")]
    Q4,
    #[value(name = "q4_k")]
    Q4K,
}

impl Blocks {
    /// llama.cpp's number for files in which most tensors have this block format (`LLAMA_FTYPE`).
    fn file_type(self) -> i64 {
        match self {
            Blocks::Q8 => 7,
            Blocks::Q4 => 2,
            // "small": one type for all matrices
            Blocks::Q4K => 14,
        }
    }
}

/// A tensor of a file: elements, or blocks of GGUF.
struct Stored {
    name: String,
    shape: Vec<usize>,
    held: Held,
}

enum Held {
    Elements(HostTensor),
    Blocks(Kind, Vec<u8>),
}

/// The tensors of a file, and the metadata if it is GGUF.
#[derive(Default)]
struct Content {
    tensors: Vec<Stored>,
    metadata: Vec<(String, Value)>,
}

pub(crate) fn convert(job: &Job, progress: Progress) -> Outcome<Json> {
    let ending = job.to.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let file = read_file(&job.from)?;
    let (bytes, tensors) = if tflite::is_tflite(&file) {
        if ending != "onnx" || job.dtype.is_some() || job.quantize.is_some() {
            return Err(Failure(
                "a TensorFlow Lite model can only be converted to .onnx, without --dtype and --quantize".into(),
            ));
        }
        (tflite::to_onnx(&file)?, Json::Null)
    } else {
        let format = match Format::of_name(&format!("x.{ending}")) {
            Some(Format::Torch) | None => {
                let to = job.to.display();
                return Err(Failure(format!("{to}: weights are written as .safetensors, .gguf or .npz")));
            }
            Some(format) => format,
        };
        if job.quantize.is_some() && format != Format::Gguf {
            return Err(Failure("blocks of GGUF are for .gguf".into()));
        }
        let content = read(&job.from, file)?;
        progress.say(format_args!("{} tensors in {}", content.tensors.len(), job.from.display()));
        let count = Json::count(content.tensors.len());
        (write(format, content, job)?, count)
    };
    save(&job.to, &bytes)?;
    let to = Json::text(job.to.display());
    Ok(vec![("to", to), ("tensors", tensors), ("bytes", Json::count(bytes.len()))].into())
}

fn read(path: &Path, file: Vec<u8>) -> Outcome<Content> {
    if file.starts_with(b"GGUF") {
        let index = Gguf::parse(&file)?;
        let mut content = Content::default();
        for e in &index.entries {
            let bytes = e.bytes(&file)?;
            let held = match e.kind.plain() {
                Some(dtype) => Held::Elements(HostTensor::new(dtype, e.shape.clone(), bytes.to_vec())?),
                None => Held::Blocks(e.kind, bytes.to_vec()),
            };
            content.tensors.push(Stored { name: e.name.clone(), shape: e.shape.clone(), held });
        }
        content.metadata = index.metadata;
        return Ok(content);
    }
    let is_onnx = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"));
    if is_onnx || Format::of(&file).is_err() {
        match parse(path) {
            Ok(model) => {
                let stored =
                    |(name, t): (String, HostTensor)| Stored { name, shape: t.shape.clone(), held: Held::Elements(t) };
                let tensors = model.stored_tensors()?.into_iter().map(stored).collect();
                return Ok(Content { tensors, ..Content::default() });
            }
            Err(error) if is_onnx => return Err(error.into()),
            // the index of a split model, or nothing that is known
            Err(_) => {}
        }
    }
    drop(file);
    // Nothing is computed, so any device will do: the tensors stay in memory as they were read
    let mut host = Runtime::open("eval", 1)?;
    let mut content = Content::default();
    for (name, t) in gradloom::weights::load(path, &host.session().clone())? {
        let t = host.read(&t)?;
        content.tensors.push(Stored { name, shape: t.shape.clone(), held: Held::Elements(t) });
    }
    Ok(content)
}

/// The tensor's elements: decoded to f32 if it has blocks, otherwise in its own dtype.
fn elements(t: Stored) -> Outcome<HostTensor> {
    Ok(match t.held {
        Held::Elements(x) => x,
        Held::Blocks(kind, bytes) => gguf::decode(kind, &t.shape, &bytes)?,
    })
}

fn rounded(x: HostTensor, to: Option<Float>) -> HostTensor {
    let to = match to {
        None => return x,
        Some(Float::F32) => DType::F32,
        Some(Float::F16) => DType::F16,
        Some(Float::Bf16) => DType::BF16,
    };
    if x.dtype.is_float() { x.cast(to) } else { x }
}

fn write(format: Format, content: Content, job: &Job) -> Outcome<Vec<u8>> {
    if format != Format::Gguf {
        let mut list = Vec::new();
        for t in content.tensors {
            list.push((t.name.clone(), rounded(elements(t)?, job.dtype)));
        }
        let list: Vec<(&str, &HostTensor)> = list.iter().map(|(n, t)| (n.as_str(), t)).collect();
        return Ok(weights::write(format, &list)?);
    }
    let mut list = Vec::new();
    for t in content.tensors {
        let (name, shape) = (t.name.clone(), t.shape.clone());
        let (kind, bytes) = match t.held {
            Held::Blocks(kind, bytes) if job.dtype.is_none() && job.quantize.is_none() => (kind, bytes),
            _ => blocks(&name, rounded(elements(t)?, job.dtype), job.quantize)?,
        };
        list.push((name, kind, shape, bytes));
    }
    let tensors: Vec<_> =
        list.iter().map(|(name, kind, shape, bytes)| gguf::Data { name, kind: *kind, shape, bytes }).collect();
    let kept = |(k, v): &(String, Value)| match (k.as_str(), job.quantize) {
        // llama.cpp's number for the format of most tensors
        ("general.file_type", Some(to)) => (k.clone(), Value::Scalar(DType::U32, Scalar::Int(to.file_type()))),
        _ => (k.clone(), v.clone()),
    };
    let metadata: Vec<_> = content.metadata.iter().map(kept).collect();
    let metadata: Vec<_> = metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    Ok(gguf::write(&metadata, &tensors)?)
}

/// A tensor for a GGUF file: blocks if they were asked for and the shape permits them, else plain elements.
fn blocks(name: &str, x: HostTensor, quantize: Option<Blocks>) -> Outcome<(Kind, Vec<u8>)> {
    let fits = x.shape.len() == 2 && x.shape[1].is_multiple_of(32) && x.dtype.is_float();
    if let Some(to) = quantize.filter(|_| fits) {
        let values: Vec<f32> = x.to_f64().iter().map(|v| *v as f32).collect();
        let (kind, bytes) = match to {
            Blocks::Q4K if x.shape[1].is_multiple_of(256) => ("Q4_K", gguf::quantize_q4_k(&values)?),
            Blocks::Q8 | Blocks::Q4K => ("Q8_0", gguf::quantize_q8_0(&values)?),
            Blocks::Q4 => ("Q4_0", gguf::quantize_q4_0(&values)?),
        };
        let kind = Kind::from_name(kind).ok_or_else(|| Failure(format!("GGUF has no {kind}")))?;
        return Ok((kind, bytes));
    }
    let kind =
        Kind::of(x.dtype).ok_or_else(|| Failure(format!("tensor `{name}`: {} in GGUF is not supported", x.dtype)))?;
    Ok((kind, x.data))
}

/// Writes the whole file or nothing: an existing file is replaced only when the new one is complete.
fn save(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let bad = |e: std::io::Error| Failure(format!("{}: {e}", path.display()));
    std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, path)).map_err(bad)
}
