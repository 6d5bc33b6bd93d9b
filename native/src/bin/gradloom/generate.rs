//! `gradloom generate` continues a text with a language model, `gradloom chat` talks to it, `gradloom perplexity`
//! measures how well it predicts a text. Also the options of language models that other commands share.

use super::json::Json;
use super::style::{self, Styled};
use super::{Cache, Failure, Outcome, Progress};
use clap::Args;
use gradloom::DType;
use gradloom::io::HostTensor;
use gradloom::llm::{
    Activations, AdapterFile, Embedder, End, Grammar, LanguageModel, LoadOptions, Matcher, Sampler, SamplingOptions,
    Stream, Vocabulary,
};
use gradloom::text::ChatOptions;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// A language model on a device.
#[derive(Args)]
pub(crate) struct Model {
    /// GGUF file, or folder with config.json, safetensors files and tokenizer.json
    model: PathBuf,
    /// Device to run on, such as cpu or wgpu (see `gradloom devices`)
    #[arg(long, default_value = "auto")]
    device: String,
    /// Number of threads of a CPU device, 0 for one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Context length in tokens, at most the model's; 0 for as much as the command needs (4096 for chat and serve)
    #[arg(long, default_value_t = 0)]
    context: usize,
    /// Data type of activations in matrix products: `f32`; `f16` for products of several tokens; `i16` or `i8` for quantised matrices
    /// (default: the fastest on the device that changes logits by at most 0.2% of the largest)
    #[arg(long, value_name = "DTYPE")]
    activations: Option<Kind>,
    /// Data type of the KV cache: `f16` halves its memory and changes logits by some thousandths, `q8` takes about a quarter
    /// and changes them by some hundredths
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    cache_dtype: CacheKind,
    /// LoRA adapter: PEFT folder or safetensors file, or GGUF file, multiplied by SCALE (default: 1). `serve` takes several
    /// (repeatable): those with a NAME are used by requests that ask for them
    #[arg(long, value_name = "[NAME=]FILE[=SCALE]")]
    lora: Vec<String>,
}

/// See [`LoadOptions::cache`].
#[derive(Clone, Copy, clap::ValueEnum)]
enum CacheKind {
    F32,
    F16,
    Q8,
}

/// See [`Activations`].
#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    F32,
    F16,
    I16,
    I8,
}

/// How tokens are chosen.
#[derive(Args)]
pub(crate) struct How {
    /// Sampling temperature; 0 for greedy decoding
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Sample from the K most likely tokens; 0 for no limit
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Sample from the most likely tokens whose probabilities add up to this (nucleus sampling); 1 for no limit
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Sample from tokens with at least this fraction of the highest probability; 0 for no limit
    #[arg(long, default_value_t = 0.0)]
    min_p: f64,
    /// Penalty on tokens of the prompt and the generated text; above 1 makes them less likely
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Value subtracted from the logit of each token generated so far
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f64,
    /// Value subtracted from a token's logit for each time it was generated
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f64,
    /// Add NUMBER to the logit of the token id TOKEN (repeatable); -inf forbids the token
    #[arg(long, value_name = "TOKEN=NUMBER")]
    logit_bias: Vec<String>,
    /// Random seed for sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop before this string (repeatable)
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Constrain the output to JSON that matches the JSON schema in this file
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Constrain the output to the grammar in this file, in the notation of llama.cpp (GBNF)
    #[arg(long, value_name = "FILE", conflicts_with = "schema")]
    grammar: Option<PathBuf>,
}

impl How {
    fn sampler(&self, model: &LanguageModel) -> Outcome<Sampler> {
        let mut sampler = Sampler::new(&SamplingOptions {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition: self.repetition_penalty,
            presence: self.presence_penalty,
            frequency: self.frequency_penalty,
            bias: self.logit_bias.iter().map(|b| bias(b)).collect::<Outcome<_>>()?,
            seed: self.seed,
        })?;
        let read = |file: &PathBuf| std::fs::read(file).map_err(|e| Failure(format!("{}: {e}", file.display())));
        let grammar = match (&self.schema, &self.grammar) {
            (Some(file), _) => Some(Grammar::from_schema(&gradloom::io::json::Json::parse(&read(file)?)?)?),
            (None, Some(file)) => {
                let text =
                    String::from_utf8(read(file)?).map_err(|_| Failure(format!("{} is not UTF-8", file.display())))?;
                Some(Grammar::from_gbnf(&text)?)
            }
            (None, None) => None,
        };
        if let Some(grammar) = grammar.map(Arc::new) {
            let tokenizer = model.need_tokenizer()?;
            let vocabulary = Arc::new(Vocabulary::new(tokenizer, model.decoder().vocabulary()?));
            sampler.constrain(Matcher::new(&grammar, &vocabulary)?, model.ends());
        }
        Ok(sampler)
    }
}

/// Parses `[NAME=]FILE[=SCALE]`; whether it has a name. If a file of the whole text exists, it is meant, since a file's
/// name may contain `=`.
fn adapter(text: &str) -> (AdapterFile, bool) {
    let is_there = |path: &str| Path::new(path).exists();
    let scaled = text.rsplit_once('=').and_then(|(path, scale)| Some((path, scale.parse::<f64>().ok()?)));
    let (path, scale) = scaled.filter(|_| !is_there(text)).unwrap_or((text, 1.0));
    match path.split_once('=').filter(|(name, _)| !name.is_empty() && !is_there(path)) {
        Some((name, path)) => (AdapterFile { scale, name: name.to_owned(), ..AdapterFile::new(path) }, true),
        None => (AdapterFile { scale, ..AdapterFile::new(path) }, false),
    }
}

fn bias(text: &str) -> Outcome<(u32, f32)> {
    let parts = text.split_once('=').and_then(|(token, by)| Some((token.parse().ok()?, by.parse().ok()?)));
    parts.ok_or_else(|| Failure(format!("--logit-bias {text}: expected TOKEN=NUMBER, such as 15=-2.5")))
}

/// What to generate.
#[derive(Args)]
pub(crate) struct Job {
    #[command(flatten)]
    model: Model,
    /// Prompt
    #[arg(long, conflicts_with = "prompt_tokens", required_unless_present = "prompt_tokens")]
    prompt: Option<String>,
    /// Prompt as token ids: a JSON list, or a file that contains one
    #[arg(long, value_name = "JSON")]
    prompt_tokens: Option<String>,
    /// Maximum number of tokens to generate
    #[arg(long, default_value_t = 128, visible_alias = "max-tokens")]
    tokens: usize,
    /// Continue after end-of-text tokens
    #[arg(long)]
    ignore_end: bool,
    /// Speculative decoding by prompt lookup: faster for repetitive text, same tokens; greedy decoding only
    #[arg(long, conflicts_with = "logits")]
    guess: bool,
    /// Write the logits of every step to this .npz file, as the array `logits` [tokens, vocabulary]
    #[arg(long, value_name = "FILE")]
    logits: Option<PathBuf>,
    /// Number of times to generate; with --json, `runs` has the times of each
    #[arg(long, default_value_t = 1, value_name = "TIMES")]
    repeat: usize,
    /// Measure each kernel of a step that reads TOKENS tokens (default: 1), and print the times instead of the result
    #[arg(long, value_name = "TOKENS", num_args = 0..=1, default_missing_value = "1")]
    profile: Option<usize>,
    /// Also print the source code of each kernel
    #[arg(long, requires = "profile")]
    source: bool,
    #[command(flatten)]
    how: How,
}

/// Times the kernels of a step; kernels with the same code are one row.
fn profile(model: &mut LanguageModel, tokens: usize, source: bool) -> Outcome<Json> {
    let (plan, times) = model.profile(tokens, 20)?;
    let mut rows: Vec<(u128, usize, f64)> = Vec::new();
    for (c, time) in plan.calls.iter().zip(&times) {
        match rows.iter_mut().find(|r| r.0 == c.program) {
            Some(r) => (r.1, r.2) = (r.1 + 1, r.2 + time),
            None => rows.push((c.program, 1, *time)),
        }
    }
    let target = model.runtime().engine().device().target().clone();
    let mut list = Vec::new();
    for (key, n, seconds) in rows {
        let Some(p) = model.runtime().engine().program(key) else { continue };
        let opts = p.program.iter().flat_map(|p| p.opts.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ");
        let each = seconds / n as f64;
        let mut row = vec![
            ("name", Json::text(&p.source.name)),
            ("calls", Json::count(n)),
            ("us", Json::Num(each * 1e6, 1)),
            ("all_us", Json::Num(seconds * 1e6, 1)),
            ("gflops", Json::Num(p.flops as f64 / each / 1e9, 1)),
            ("gb_s", Json::Num(p.bytes as f64 / each / 1e9, 1)),
            ("grid", Json::count(p.grid.iter().map(|&g| g as usize).product())),
            ("opts", Json::Text(opts)),
        ];
        if source {
            row.push(("source", Json::Text(super::kernels::text(p, &target))));
        }
        list.push(Json::from(row));
    }
    Ok(Json::from(vec![("step_us", Json::Num(times.iter().sum::<f64>() * 1e6, 1)), ("kernels", Json::List(list))]))
}

/// The capacity in tokens for this job, no larger than needed because the work on keys grows with it. No token of a
/// prompt is shorter than a byte.
fn capacity(job: &Job) -> usize {
    let text = job.prompt.as_ref().map_or(0, |p| 2 * p.len() + 16);
    let listed = job.prompt_tokens.as_ref().map_or(0, |_| prompt(job, None).map_or(0, |ids| ids.len()));
    text.max(listed).saturating_add(job.tokens).checked_next_multiple_of(128).unwrap_or(usize::MAX)
}

fn load(m: &Model, wanted: usize, cache: &Cache, progress: Progress) -> Outcome<(LanguageModel, f64)> {
    let start = Instant::now();
    let model = m.load(wanted, 1, cache, progress)?;
    Ok((model, start.elapsed().as_secs_f64() * 1e3))
}

impl Model {
    /// Loads the model for `texts` texts, each with a capacity of `wanted` tokens unless `--context` says otherwise. Its
    /// adapter, if there is one, is in use.
    pub(super) fn load(
        &self,
        wanted: usize,
        texts: usize,
        cache: &Cache,
        progress: Progress,
    ) -> Outcome<LanguageModel> {
        if self.lora.len() > 1 {
            return Err(Failure("--lora: one adapter at a time; `serve` takes several".into()));
        }
        let mut model = self.load_all(wanted, texts, cache, progress)?;
        let name = model.adapters().first().map(|name| (*name).to_owned());
        model.use_adapter(name.as_deref())?;
        Ok(model)
    }

    /// As [`Model::load`] with several adapters, of which the one without a name is in use.
    pub(super) fn load_all(
        &self,
        wanted: usize,
        texts: usize,
        cache: &Cache,
        progress: Progress,
    ) -> Outcome<LanguageModel> {
        let adapters: Vec<(AdapterFile, bool)> = self.lora.iter().map(|text| adapter(text)).collect();
        let mut unnamed = adapters.iter().filter(|a| !a.1).map(|a| a.0.name.clone());
        let name = unnamed.next();
        if unnamed.next().is_some() {
            return Err(Failure("--lora: of several adapters all but one need names, NAME=FILE".into()));
        }
        let device = self.open(progress)?;
        let capacity = if self.context == 0 { wanted } else { self.context };
        let host = cache.host(progress);
        let activations = self.activations();
        let cache = match self.cache_dtype {
            CacheKind::F32 => DType::F32,
            CacheKind::F16 => DType::F16,
            CacheKind::Q8 => DType::I8,
        };
        let adapters = adapters.into_iter().map(|a| a.0).collect();
        let options = LoadOptions { capacity, texts, activations, cache, adapters };
        let mut model = LanguageModel::load_with(&self.model, device, host, &options)?;
        model.use_adapter(name.as_deref())?;
        Ok(model)
    }

    /// Loads the model if it is an encoder, with room for texts of `--context` tokens.
    pub(super) fn load_embedder(&self, cache: &Cache, progress: Progress) -> Outcome<Embedder> {
        if !self.lora.is_empty() {
            return Err(Failure("--lora: encoders have no adapters".into()));
        }
        let device = self.open(progress)?;
        let activations = self.activations();
        let options = LoadOptions { capacity: self.context, activations, ..LoadOptions::default() };
        Ok(Embedder::load(&self.model, device, cache.host(progress), &options)?)
    }

    fn open(&self, progress: Progress) -> Outcome<Box<dyn gradloom::device::Device>> {
        let device = crate::open(&self.device, self.threads, progress)?;
        progress.say(format_args!("{} on {}", self.model.display(), device.target().name));
        Ok(device)
    }

    fn activations(&self) -> Option<Activations> {
        self.activations.map(|kind| match kind {
            Kind::F32 => Activations::F32,
            Kind::F16 => Activations::F16,
            Kind::I16 => Activations::I16,
            Kind::I8 => Activations::I8,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.model
    }

    /// The name of the model's file or folder.
    #[cfg(feature = "serve")]
    pub(super) fn name(&self) -> String {
        let stem = self.model.file_stem().map(|n| n.to_string_lossy().into_owned());
        stem.unwrap_or_else(|| "model".into())
    }
}

/// The tokens of the prompt; `model` encodes a text.
fn prompt(job: &Job, model: Option<&LanguageModel>) -> Outcome<Vec<u32>> {
    if let (Some(text), Some(model)) = (&job.prompt, model) {
        let none = |e| Failure(format!("the model's tokenizer cannot be used, use --prompt-tokens: {e}"));
        return Ok(model.need_tokenizer().map_err(none)?.encode(text)?);
    }
    let given = job.prompt_tokens.as_deref().unwrap_or_default();
    let text = if given.trim_start().starts_with('[') {
        given.to_owned()
    } else {
        std::fs::read_to_string(given).map_err(|e| Failure(format!("{given}: {e}")))?
    };
    let bad = || Failure("--prompt-tokens: expected a JSON list of token ids".into());
    let list = gradloom::io::json::Json::parse(text.as_bytes())?;
    let ids = list.as_array().ok_or_else(bad)?.iter();
    ids.map(|i| i.as_u64().and_then(|i| u32::try_from(i).ok()).ok_or_else(bad)).collect()
}

/// The generated tokens, and when each was generated.
struct Made {
    tokens: Vec<u32>,
    text: String,
    /// Milliseconds from the start to each token.
    at: Vec<f64>,
    logits: Vec<f32>,
    end: &'static str,
    guessed: gradloom::llm::GuessStats,
}

impl Made {
    fn first(&self) -> f64 {
        self.at.first().copied().unwrap_or(f64::NAN)
    }

    fn gaps(&self) -> Vec<f64> {
        self.at.windows(2).map(|w| w[1] - w[0]).collect()
    }

    fn run(&self) -> Json {
        let gaps = self.gaps().into_iter().map(|g| Json::Num(g, 3)).collect();
        Json::from(vec![("prefill_ms", Json::Num(self.first(), 3)), ("decode_ms", Json::List(gaps))])
    }
}

/// What is printed during the generation.
#[derive(Clone, Copy, PartialEq)]
enum Say {
    Text,
    /// A line when the first token is there.
    First,
    Nothing,
}

fn once(model: &mut LanguageModel, job: &Job, ids: &[u32], what: Say) -> Outcome<Made> {
    let mut sampler = job.how.sampler(model)?;
    ids.iter().for_each(|&t| sampler.see_prompt(t));
    let start = Instant::now();
    model.choose_text(0, 0)?;
    model.begin(ids)?;
    let mut stream = Stream::new(&job.how.stop);
    let (mut text, mut tokens, mut at) = (String::new(), Vec::new(), Vec::new());
    let mut logits = Vec::new();
    let mut on_token = |m: &mut LanguageModel, token: u32| {
        at.push(start.elapsed().as_secs_f64() * 1e3);
        if what == Say::First && at.len() == 1 {
            say("{\"event\":\"first\"}\n");
        }
        tokens.push(token);
        if job.logits.is_some() {
            logits.extend(m.logits()?);
        }
        let Some(t) = m.tokenizer() else { return Ok(true) };
        let new = stream.push(token, &|ids| t.decode(ids))?;
        if what == Say::Text {
            say(&new);
        }
        text += &new;
        Ok(!stream.stopped())
    };
    let (end, guessed) = match job.guess {
        true if !sampler.is_greedy() => return Err(Failure("--guess needs greedy decoding (--temperature 0)".into())),
        true => model.generate_guessing(job.tokens, !job.ignore_end, &mut on_token)?,
        false => (model.generate(job.tokens, &mut sampler, !job.ignore_end, &mut on_token)?, Default::default()),
    };
    if let Some(t) = model.tokenizer() {
        let rest = stream.finish(&|ids| t.decode(ids))?;
        if what == Say::Text {
            say(&rest);
        }
        text += &rest;
    }
    let end = match end {
        _ if stream.stopped() => "stop",
        End::Token => "end",
        End::Length => "length",
        End::Caller => "caller",
        End::Room => "room",
    };
    Ok(Made { tokens, text, at, logits, end, guessed })
}

pub(crate) fn generate(job: &Job, json: bool, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let (mut model, load_ms) = load(&job.model, capacity(job), cache, progress)?;
    let ids = prompt(job, Some(&model))?;
    let made = once(&mut model, job, &ids, if json { Say::First } else { Say::Text })?;
    let mut runs = vec![made.run()];
    for _ in 1..job.repeat {
        runs.push(once(&mut model, job, &ids, Say::Nothing)?.run());
    }
    if let Some(path) = &job.logits {
        let rows = made.tokens.len();
        let all = HostTensor::from_f32(vec![rows, made.logits.len() / rows.max(1)], &made.logits)?;
        super::files::write(path, &[("logits".to_owned(), all)])?;
    }
    if let Some(tokens) = job.profile {
        return profile(&mut model, tokens, job.source);
    }
    let (first, gaps) = (made.first(), made.gaps());
    let decode = gaps.len() as f64 * 1e3 / gaps.iter().sum::<f64>();
    let prefill = ids.len() as f64 * 1e3 / first;
    let c = model.counters();
    if !json {
        let made = made.tokens.len();
        let rates = format!(
            "prompt: {} tokens, {prefill:.1} tokens/s; generated: {made} tokens, {decode:.1} tokens/s",
            ids.len()
        );
        progress.say(format_args!("\n{}", Styled(style::FAINT, rates)));
        return Ok(Json::Text(String::new()));
    }
    Ok(Json::from(vec![
        ("load_ms", Json::Num(load_ms, 3)),
        ("prompt_tokens", Json::count(ids.len())),
        ("threads", Json::count(job.model.threads)),
        ("prefill_tokens_s", Json::Num(prefill, 2)),
        ("decode_tokens_s", Json::Num(decode, 2)),
        ("first_token_ms", Json::Num(first, 3)),
        ("peak_bytes", Json::count(c.peak_bytes)),
        ("programs", Json::Int(c.programs as i64)),
        ("runs", Json::List(runs)),
        ("tokens", Json::List(made.tokens.iter().map(|&t| Json::Int(i64::from(t))).collect())),
        ("guesses", Json::count(made.guessed.guesses)),
        ("guesses_right", Json::count(made.guessed.right)),
        ("end", Json::text(made.end)),
        ("text", Json::Text(made.text)),
    ]))
}

pub(crate) fn chat(m: &Model, how: &How, tokens: usize, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let (mut model, _) = load(m, 4096, cache, progress)?;
    (model.need_tokenizer()?, model.need_chat()?);
    let mut messages = Vec::new();
    // A prompt is shown only if a person sits at a terminal
    let ask = std::io::stdin().is_terminal();
    loop {
        if ask {
            anstream::eprint!("{} ", Styled(style::NAME, ">"));
        }
        let Some(line) = std::io::stdin().lock().lines().next() else { break };
        let line = line.map_err(|e| Failure(e.to_string()))?;
        messages.push(message("user", &line));
        let options = ChatOptions { add_generation_prompt: true, ..ChatOptions::default() };
        let all = gradloom::io::json::Json::Array(messages.clone());
        let (Some(chat), Some(t)) = (model.chat(), model.tokenizer()) else { break };
        let text = chat.apply(&all, &options)?;
        // The template writes the special tokens itself
        let ids = t.encode_with(&text, None, false)?.ids;
        model.begin(&ids)?;
        let (mut stream, mut answer) = (Stream::new(&how.stop), String::new());
        let mut sampler = how.sampler(&model)?;
        ids.iter().for_each(|&t| sampler.see_prompt(t));
        model.generate(tokens, &mut sampler, true, |m, token| {
            let Some(t) = m.tokenizer() else { return Ok(false) };
            let new = stream.push(token, &|ids| t.decode(ids))?;
            say(&new);
            answer += &new;
            Ok(!stream.stopped())
        })?;
        if let Some(t) = model.tokenizer() {
            let rest = stream.finish(&|ids| t.decode(ids))?;
            answer += &rest;
            say(&rest);
        }
        say("\n");
        messages.push(message("assistant", &answer));
    }
    if ask {
        anstream::eprintln!();
    }
    Ok(Json::Text(String::new()))
}

pub(crate) fn perplexity(m: &Model, file: &Path, cache: &Cache, progress: Progress) -> Outcome<Json> {
    let text = std::fs::read_to_string(file).map_err(|e| Failure(format!("{}: {e}", file.display())))?;
    let mut model = m.load(512, 1, cache, progress)?;
    let ids = model.need_tokenizer()?.encode(&text)?;
    let start = Instant::now();
    let likelihood = model.perplexity_of(&ids)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Json::from(vec![
        ("perplexity", Json::Num(likelihood.perplexity(), 4)),
        ("nats_per_token", Json::Num(likelihood.nats / likelihood.tokens as f64, 6)),
        ("tokens", Json::count(likelihood.tokens)),
        ("tokens_s", Json::Num(ids.len() as f64 / seconds, 1)),
    ]))
}

fn message(role: &str, content: &str) -> gradloom::io::json::Json {
    use gradloom::io::json::Json as Value;
    let field = |name: &str, text: &str| (name.to_owned(), Value::Str(text.to_owned()));
    Value::Object(vec![field("role", role), field("content", content)])
}

/// Writes to stdout at once; a closed pipe is the reader's choice and no error.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
