//! `gradloom export`: compiles a model ahead of time, to C or to an ES module.

use super::json::Json;
use super::{Data, Failure, Given, Outcome, Progress, files, inspect};
use clap::{Args, ValueEnum};
use gradloom::export::{self, File, Recording, c, web};
use gradloom::io::HostTensor;
use gradloom::target::Target;
use std::path::{Path, PathBuf};

/// A model and what it becomes.
#[derive(Args)]
pub(crate) struct Job {
    /// ONNX or TensorFlow Lite file
    model: PathBuf,
    /// Kind of code to generate
    #[arg(long, value_enum)]
    target: To,
    /// Output folder, or for C a file NAME.c
    #[arg(long, short)]
    output: PathBuf,
    /// Size of a symbolic input dimension (repeatable; default: 1)
    #[arg(long, value_name = "NAME=SIZE", conflicts_with_all = ["input", "inputs"])]
    size: Vec<String>,
    #[command(flatten)]
    given: Given,
    /// Generate standard C99, without the vector extensions of gcc and clang
    #[arg(long)]
    standard: bool,
    /// f32 values in a vector register of the processor that runs the C code: 4 (SSE, NEON), 8 (AVX2) or 16 (AVX-512)
    /// [default: as this one, at most 8]
    #[arg(long, conflicts_with = "standard", value_parser = ["4", "8", "16"])]
    lanes: Option<String>,
    /// Where C code has its weights
    #[arg(long, value_enum, default_value_t)]
    weights: Weights,
    #[command(flatten)]
    data: Data,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// A C file and a header
    C,
    /// An ES module
    Web,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Weights {
    /// In the code up to 1 MiB, otherwise in a separate file
    #[default]
    Auto,
    /// In the code
    Array,
    /// In a separate file
    File,
}

pub(crate) fn export(job: &Job, progress: Progress) -> Outcome<Json> {
    let model = gradloom::model::parse_with(&job.model, &job.data.files())?;
    let inputs = if job.given.input.is_empty() && job.given.inputs.is_none() {
        files::zeros(&model, &inspect::sizes(&job.size)?)?
    } else {
        files::inputs(&job.given, &model)?
    };
    drop(model);
    let from = job.model.file_name().unwrap_or_default().to_string_lossy();
    let record = |target: &Target| {
        let model = gradloom::model::parse_with(&job.model, &job.data.files())?;
        export::record(model, target, &files::borrowed(&inputs))
    };
    let (folder, made) = match job.target {
        To::C => {
            let style = match job.lanes.as_ref().and_then(|n| n.parse().ok()) {
                _ if job.standard => c::Style::Standard,
                Some(lanes) => c::Style::Gnu { lanes },
                None => c::Style::default(),
            };
            let weights = match job.weights {
                Weights::Auto => c::Weights::BySize,
                Weights::Array => c::Weights::Array,
                Weights::File => c::Weights::File,
            };
            let recording = record(&style.target())?;
            said(&recording, progress);
            let is_file = job.output.extension().is_some_and(|e| e == "c");
            let (folder, name) = match (is_file, job.output.parent()) {
                (true, Some(parent)) => (parent.to_path_buf(), stem(&job.output)),
                _ => (job.output.clone(), stem(&job.model)),
            };
            (folder, c::files(&recording, &name, &from, weights)?)
        }
        To::Web => {
            // Shaders have no f64, so a model that needs it has no WebGPU version
            let without = |e: &gradloom::Error| progress.say(format_args!("without WebGPU: {e}"));
            let recordings = web::Recordings::new(record, without)?;
            said(&recordings.wasm, progress);
            recordings.webgpu.iter().for_each(|r| said(r, progress));
            (job.output.clone(), web::files(&recordings, &from)?)
        }
    };
    export::write(&folder, &made).map_err(|e| Failure(format!("{}: {e}", folder.display())))?;
    let row = |f: &File| {
        Json::from(vec![("file", Json::text(folder.join(&f.name).display())), ("bytes", Json::count(f.bytes.len()))])
    };
    let given = inputs.iter().map(|(name, t): &(String, HostTensor)| {
        Json::from(vec![
            ("name", Json::text(name)),
            ("dtype", Json::text(t.dtype)),
            ("shape", Json::Text(format!("{:?}", t.shape))),
        ])
    });
    Ok(Json::from(vec![("inputs", Json::List(given.collect())), ("files", Json::List(made.iter().map(row).collect()))]))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn said(r: &Recording, progress: Progress) {
    let weights: usize = r.constants.iter().map(Vec::len).sum();
    progress.say(format_args!(
        "{}: {} kernels, {} launches, {weights} bytes of weights, {} bytes of intermediate buffers",
        r.target.name,
        r.kernels.len(),
        r.steps.len(),
        r.arenas.iter().sum::<usize>()
    ));
}
