//! `gradloom finetune`: trains a low-rank adapter on texts.

use super::generate::Model;
use super::json::Json;
use super::{Cache, Failure, Outcome, Progress};
use clap::{Args, ValueEnum};
use gradloom::io::json::Json as Value;
use gradloom::llm::{AdapterFile, Finetune, LanguageModel, Lora, RateSchedule};
use gradloom::text::ChatOptions;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What learns from what.
#[derive(Args)]
pub(crate) struct Job {
    #[command(flatten)]
    model: Model,
    /// Training data: a text file, or .jsonl with `text` or chat `messages` in each line
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Output folder, or .safetensors file, of the adapter; adapter_config.json and optimizer.safetensors are written beside it
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Total number of optimiser steps, including those before --resume
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Batch size: number of texts per step
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Maximum length of a training text in tokens; longer texts are split
    #[arg(long, default_value_t = 128)]
    length: usize,
    /// Rank of the adapter
    #[arg(long, default_value_t = 8)]
    rank: usize,
    /// LoRA alpha: the adapter's scale is alpha / rank (default: twice the rank)
    #[arg(long)]
    alpha: Option<f64>,
    /// Matrix to adapt in each layer, such as q_proj (repeatable; default: all)
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Continue training this adapter, a PEFT folder or safetensors file or a GGUF file, with its rank, alpha and matrices; an optimizer.safetensors
    /// beside it restores the optimiser state and step count
    #[arg(long, value_name = "ADAPTER", conflicts_with_all = ["rank", "alpha", "target", "lora"])]
    resume: Option<PathBuf>,
    /// Peak learning rate
    #[arg(long, default_value_t = 2e-4)]
    rate: f64,
    /// Learning rate after the warm-up: constant, or decaying to 0 at the last step
    #[arg(long, value_enum, default_value = "constant")]
    schedule: Schedule,
    /// Number of warm-up steps over which the learning rate rises linearly from 0
    #[arg(long, value_name = "STEPS", default_value_t = 0)]
    warmup: usize,
    /// Decoupled weight decay (AdamW), multiplied by the learning rate
    #[arg(long, default_value_t = 0.0)]
    weight_decay: f64,
    /// Random seed for the adapter's initial values and the order of texts
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Schedule {
    Constant,
    Linear,
    Cosine,
}

pub(crate) fn finetune(job: &Job, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let [folder, config, file, optimizer] = places(&job.out);
    let wanted = job.length.checked_next_multiple_of(128).unwrap_or(usize::MAX);
    let mut model = job.model.load(wanted, 1, cache, progress)?;
    let from = match &job.resume {
        Some(path) => Some(model.read_adapter(&AdapterFile::new(path))?),
        None => None,
    };
    let state = match job.resume.as_deref().map(|path| places(path)[3].clone()).filter(|path| path.exists()) {
        Some(path) => Some(std::fs::read(&path).map_err(|e| failed(&path, &e))?),
        None => None,
    };
    let texts = read(&job.data, &model)?;
    let alpha = job.alpha.unwrap_or(2.0 * job.rank as f64);
    let how = Finetune {
        lora: Lora { rank: job.rank, alpha, targets: job.target.clone(), seed: job.seed },
        steps: job.steps,
        batch: job.batch,
        time: job.length,
        from,
        state,
        rate: job.rate,
        schedule: match job.schedule {
            Schedule::Constant => RateSchedule::Constant,
            Schedule::Linear => RateSchedule::Linear,
            Schedule::Cosine => RateSchedule::Cosine,
        },
        warmup: job.warmup,
        weight_decay: job.weight_decay,
        ..Finetune::default()
    };
    let (mut losses, start) = (Vec::new(), Instant::now());
    let learned = model.finetune(&texts, &how, |step, loss| {
        losses.push(loss);
        if step % 10 == 9 || step + 1 == job.steps {
            let last = &losses[losses.len().saturating_sub(10)..];
            progress.say(format_args!("step {}: loss {:.4}", step + 1, last.iter().sum::<f64>() / last.len() as f64));
        }
        true
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let put = |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).map_err(|e| failed(path, &e));
    std::fs::create_dir_all(&folder).map_err(|e| failed(&folder, &e))?;
    put(&config, learned.config.as_bytes())?;
    put(&file, &learned.file)?;
    put(&optimizer, &learned.state)?;
    Ok(Json::from(vec![
        ("out", Json::text(&job.out.display().to_string())),
        ("steps", Json::count(losses.len())),
        ("first_loss", Json::Num(losses.first().copied().unwrap_or(f64::NAN), 6)),
        ("last_loss", Json::Num(losses.last().copied().unwrap_or(f64::NAN), 6)),
        ("seconds", Json::Num(seconds, 3)),
        ("losses", Json::List(losses.iter().map(|&l| Json::Num(l, 6)).collect())),
    ]))
}

fn failed(path: &Path, e: &std::io::Error) -> Failure {
    Failure(format!("{}: {e}", path.display()))
}

/// The output folder, and in it the paths of the adapter's two files and of the optimiser's state.
fn places(out: &Path) -> [PathBuf; 4] {
    let is_file = out.extension().is_some_and(|e| e == "safetensors");
    let folder = if is_file { out.parent().unwrap_or(Path::new("")).to_owned() } else { out.to_owned() };
    let file = if is_file { out.to_owned() } else { folder.join("adapter_model.safetensors") };
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    [folder.clone(), folder.join("adapter_config.json"), file, folder.join("optimizer.safetensors")]
}

/// The tokens of each text in a file.
fn read(path: &Path, model: &LanguageModel) -> Outcome<Vec<Vec<u32>>> {
    let text = std::fs::read_to_string(path).map_err(|e| failed(path, &e))?;
    let tokenizer = model.need_tokenizer()?;
    if path.extension().is_none_or(|e| e != "jsonl") {
        return Ok(vec![tokenizer.encode(&text)?]);
    }
    let bad = |line: usize, what: &str| Failure(format!("{}, line {}: {what}", path.display(), line + 1));
    let mut out = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let entry = Value::parse(line.as_bytes()).map_err(|e| bad(at, &e.to_string()))?;
        if let Some(text) = entry.get("text").and_then(Value::as_str) {
            out.push(tokenizer.encode(text)?);
        } else if let Some(messages) = entry.get("messages") {
            let none = || bad(at, "the model has no supported chat template");
            let text = model.chat().ok_or_else(none)?.apply(messages, &ChatOptions::default())?;
            out.push(tokenizer.encode_with(&text, None, false)?.ids);
        } else {
            return Err(bad(at, "expected `text` or `messages`"));
        }
    }
    Ok(out)
}
