//! The command line. stdout has only results, progress goes to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage.

mod bench;
mod convert;
mod embed;
mod export;
mod files;
mod finetune;
mod generate;
mod inspect;
mod json;
mod kernels;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod style;
mod tune;
#[cfg(feature = "serve")]
mod viz;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use gradloom::NativeHost;
use gradloom::model::DataFiles;
use json::Json;
use std::path::PathBuf;
use std::process::ExitCode;
use style::{Color, Styled};

/// Environment variables, for `--help` and for the manual page.
const ENVIRONMENT: [(&str, &str); 7] = [
    (gradloom::choose::DEVICE_VARIABLE, "Device that `auto` selects: CPU, CUDA:1, CL ... (case-insensitive)"),
    (gradloom::debug::VARIABLE, "Debug output on stderr, from 1 (least) to 7 (most)"),
    (gradloom::tell::VARIABLE, "1, or an address: send events to the `gradloom viz` that listens there"),
    (gradloom::cache::FOLDER_VARIABLE, "Folder of the cache of compiled kernels, or `off`"),
    ("GRADLOOM_LLVM", "Path of the libLLVM that the device `llvm` loads"),
    ("GRADLOOM_CUDA_LIBRARY", "Path of the library that `cuda` devices load instead of the driver's libcuda"),
    ("NO_COLOR", "Disable colours; CLICOLOR_FORCE=1 enables them in files and pipes too"),
];

/// Compile and run neural networks on this machine's devices
#[derive(Parser)]
#[command(name = "gradloom", version, arg_required_else_help = true, styles = style::HELP, after_help = environment())]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print the result as one JSON object on stdout
    #[arg(long, global = true)]
    json: bool,
    /// Neither read nor write the cache of compiled kernels
    #[arg(long, global = true)]
    no_cache: bool,
    /// Folder of the cache of compiled kernels (default: GRADLOOM_CACHE, or the user's cache folder)
    #[arg(long, global = true, value_name = "FOLDER", conflicts_with = "no_cache")]
    cache_dir: Option<PathBuf>,
    /// Print no progress on stderr
    #[arg(long, short, global = true)]
    quiet: bool,
    /// When to colour text: auto, always or never
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Color::Auto, hide_possible_values = true)]
    color: Color,
}

#[derive(Subcommand)]
enum Command {
    /// Run a model on inputs and print or write its outputs
    Run {
        #[command(flatten)]
        job: Job,
        /// Write the outputs to this .npz file
        #[arg(long)]
        outputs: Option<PathBuf>,
        /// Compare the values of all nodes with those of this device, such as the reference `eval`, and name the first node that differs
        #[arg(long, value_name = "DEVICE")]
        compare: Option<String>,
        /// Relative error above which a value counts as different
        #[arg(long, default_value_t = 1e-3, requires = "compare")]
        tolerance: f64,
    },
    /// Measure the run time of a model
    Bench {
        #[command(flatten)]
        job: Job,
        #[command(flatten)]
        how: bench::Timing,
    },
    /// Search for faster kernels for a model on this machine; later runs use those found, which are kept in the cache
    Tune {
        #[command(flatten)]
        job: Job,
        /// Time budget of the search in seconds
        #[arg(long, default_value_t = 60.0)]
        budget: f64,
        /// Append the tuned kernels to this file, for --tuned on machines with the same kind of device
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
    },
    /// Compile a model ahead of time to C code, or to an ES module that runs on WebGPU or WebAssembly
    Export(export::Job),
    /// Convert a weight file to another format, or a TensorFlow Lite model to ONNX
    Convert(convert::Job),
    /// Generate text with a language model
    Generate(generate::Job),
    /// Chat with a language model; each line of stdin is a message
    Chat {
        #[command(flatten)]
        model: generate::Model,
        #[command(flatten)]
        how: generate::How,
        /// Maximum number of tokens per answer
        #[arg(long, default_value_t = 1024, visible_alias = "max-tokens")]
        tokens: usize,
    },
    /// Measure the perplexity of a language model on a text
    Perplexity {
        #[command(flatten)]
        model: generate::Model,
        /// Text file
        text: PathBuf,
    },
    /// Print vectors of texts (embeddings), one JSON list per text
    Embed(embed::Texts),
    /// Order documents by their relevance for a query, with a cross-encoder
    Rerank(embed::Documents),
    /// Train a low-rank adapter (LoRA) of a language model on texts
    Finetune(finetune::Job),
    /// Serve a language model, an embedder or a reranker over HTTP with an OpenAI-compatible API
    #[cfg(feature = "serve")]
    Serve {
        #[command(flatten)]
        model: generate::Model,
        #[command(flatten)]
        how: serve::How,
    },
    /// Show a running program live in the browser: kernels, the graph after each pass, memory, launches
    #[cfg(feature = "serve")]
    Viz(viz::Job),
    /// List the devices of this machine with limits, memory and drivers, and why others are unavailable
    Devices {
        /// Measure the arithmetic throughput and memory bandwidth of each device
        #[arg(long)]
        measure: bool,
    },
    /// Show a model's inputs, outputs and operators, and which of its nodes are unsupported and why
    Inspect {
        /// ONNX or TensorFlow Lite file
        model: PathBuf,
        /// Size of a symbolic dimension (repeatable; default: 1)
        #[arg(long, value_name = "NAME=SIZE")]
        size: Vec<String>,
        /// List every node with its output shapes
        #[arg(long)]
        nodes: bool,
        #[command(flatten)]
        data: Data,
    },
    /// List the kernels of a model in execution order
    Kernels {
        #[command(flatten)]
        job: Job,
        /// Print the source code of each kernel
        #[arg(long)]
        source: bool,
        /// Print the disassembly of each kernel
        #[arg(long)]
        asm: bool,
        /// Count the memory accesses by width, the operations and the barriers of each kernel; needs --no-cache
        #[arg(long)]
        counts: bool,
        /// Measure the run time of each kernel
        #[arg(long)]
        time: bool,
        /// Print the model's graph, its schedule and its kernels after the pass PASS, or after every pass if none is named
        #[arg(long, value_name = "PASS", num_args = 0..=1, default_missing_value = "all")]
        passes: Option<String>,
        /// Show only the kernel of this name
        #[arg(long, value_name = "NAME")]
        only: Option<String>,
    },
    /// Print a shell completion script; for bash: `source <(gradloom completions bash)`
    Completions {
        /// Shell to complete for
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the man page; to view it: `gradloom man | man -l -`
    Man,
}

/// A model with inputs on a device.
#[derive(Args)]
struct Job {
    /// ONNX or TensorFlow Lite file
    model: PathBuf,
    /// Device to run on, such as cpu or cuda (see `gradloom devices`)
    #[arg(long, default_value = "auto")]
    device: String,
    /// Number of threads of a CPU device, 0 for one per core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    #[command(flatten)]
    given: Given,
    /// File of tuned kernels written by `gradloom tune --save`
    #[arg(long, value_name = "FILE")]
    tuned: Option<PathBuf>,
    #[command(flatten)]
    data: Data,
}

/// Inputs from files.
#[derive(Args)]
struct Given {
    /// Input NAME from a .npy file (repeatable)
    #[arg(long, value_name = "NAME=FILE")]
    input: Vec<String>,
    /// All inputs from one .npz file
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    inputs: Option<PathBuf>,
}

/// Files of weights beside the model's own.
#[derive(Args)]
struct Data {
    /// Allow only this external data file, by the name that the model uses (repeatable); symbolic links and hidden files must
    /// be allowed by name (default: all other files below the model's folder)
    #[arg(long = "data", value_name = "NAME")]
    names: Vec<String>,
}

impl Data {
    fn files(&self) -> DataFiles {
        if self.names.is_empty() { DataFiles::Beneath } else { DataFiles::Only(self.names.clone()) }
    }
}

/// The reason why a command failed, as text for the user.
#[derive(Debug)]
struct Failure(String);

impl From<gradloom::Error> for Failure {
    fn from(e: gradloom::Error) -> Failure {
        Failure(format!("{e} [{}]", e.code()))
    }
}

type Outcome<T> = Result<T, Failure>;

/// Where compiled code is cached.
enum Cache {
    Default,
    At(PathBuf),
    Off,
}

impl Cache {
    fn host(&self, progress: Progress) -> NativeHost {
        let host = match self {
            Cache::Default => NativeHost::new(),
            Cache::At(folder) => NativeHost::with_cache(folder, gradloom::cache::LIMIT),
            Cache::Off => NativeHost::without_cache(),
        };
        if let Some(why) = host.refused() {
            progress.say(why);
        }
        host
    }
}

/// Prints progress on stderr.
#[derive(Clone, Copy)]
struct Progress(bool);

impl Progress {
    fn say(self, text: impl std::fmt::Display) {
        if self.0 {
            anstream::eprintln!("{text}");
        }
    }
}

fn main() -> ExitCode {
    if std::env::var_os("RUST_BACKTRACE").is_none_or(|v| v == "0") {
        // A panic is reported below like any other error
        std::panic::set_hook(Box::new(|_| {}));
    }
    let cli = Cli::parse();
    cli.color.settle();
    let json = cli.json;
    match contained(|| run(cli)) {
        Ok(data) => {
            use std::io::Write;
            // A closed pipe is the reader's choice and no error
            let _ = match json {
                true => writeln!(std::io::stdout().lock(), "{data}"),
                false => writeln!(anstream::stdout().lock(), "{}", data.to_text().trim_end()),
            };
            ExitCode::SUCCESS
        }
        Err(Failure(text)) => {
            anstream::eprintln!("{} {text}", Styled(style::ERROR, "error:"));
            ExitCode::from(1)
        }
    }
}

/// The environment variables for the end of `--help`.
fn environment() -> String {
    let title = style::HELP.get_header();
    let rows = ENVIRONMENT.map(|(name, what)| format!("\n  {} {what}", Styled(style::NAME, format_args!("{name:21}"))));
    format!("{title}Environment:{title:#}{}", rows.concat())
}

/// Runs a command; a panic in it is a failure like any other.
fn contained(command: impl FnOnce() -> Outcome<Json>) -> Outcome<Json> {
    gradloom::contain(|| Ok(command()))?
}

fn run(cli: Cli) -> Outcome<Json> {
    let progress = Progress(!cli.quiet);
    let cache = match (cli.no_cache, cli.cache_dir) {
        (true, _) => Cache::Off,
        (false, Some(folder)) => Cache::At(folder),
        (false, None) => Cache::Default,
    };
    match cli.command {
        Command::Run { job, outputs, compare, tolerance } => {
            let compare = compare.as_deref().map(|device| run::Reference { device, tolerance });
            run::run(&job, outputs.as_deref(), compare, &cache, progress)
        }
        Command::Bench { job, how } => bench::bench(&job, &how, &cache, progress),
        Command::Tune { job, budget, save } => tune::tune(&job, budget, save.as_deref(), &cache, progress),
        Command::Export(job) => export::export(&job, progress),
        Command::Convert(job) => convert::convert(&job, progress),
        Command::Generate(job) => generate::generate(&job, cli.json, &cache, progress),
        Command::Chat { model, how, tokens } => generate::chat(&model, &how, tokens, &cache, progress),
        Command::Embed(job) => embed::embed(&job, cli.json, &cache, progress),
        Command::Rerank(job) => embed::rerank(&job, cli.json, &cache, progress),
        Command::Finetune(job) => finetune::finetune(&job, &cache, progress),
        Command::Perplexity { model, text } => generate::perplexity(&model, &text, &cache, progress),
        #[cfg(feature = "serve")]
        Command::Serve { model, how } => serve::serve(&model, &how, &cache, progress),
        #[cfg(feature = "serve")]
        Command::Viz(job) => {
            let commands: Vec<String> = Cli::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
            viz::viz(&job, &commands, progress)
        }
        Command::Devices { measure } => Ok(inspect::devices(measure, progress)),
        Command::Inspect { model, size, nodes, data } => inspect::inspect(&model, &size, nodes, &data.files()),
        Command::Kernels { job, source, asm, counts, time, passes, only } => {
            kernels::kernels(&job, &kernels::Show { source, asm, counts, time, passes, only }, &cache, progress)
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "gradloom", &mut text);
            Ok(Json::text(String::from_utf8_lossy(&text)))
        }
        Command::Man => manual(),
    }
}

/// The manual page in troff: the program, then each command with its options.
fn manual() -> Outcome<Json> {
    let mut text = Vec::new();
    let mut program = Cli::command();
    program.build();
    let bad = |e: std::io::Error| Failure(e.to_string());
    clap_mangen::Man::new(program.clone()).render(&mut text).map_err(bad)?;
    for command in program.get_subcommands().filter(|c| c.get_name() != "help") {
        text.extend(format!(".SH \"GRADLOOM {}\"\n", command.get_name().to_uppercase()).bytes());
        let page = clap_mangen::Man::new(command.clone());
        page.render_description_section(&mut text).map_err(bad)?;
        page.render_options_section(&mut text).map_err(bad)?;
    }
    text.extend(b".SH ENVIRONMENT\n");
    for (name, what) in ENVIRONMENT {
        text.extend(format!(".TP\n\\fB{name}\\fR\n{what}\n").bytes());
    }
    Ok(Json::text(String::from_utf8_lossy(&text)))
}

impl Job {
    /// Opens the device and loads the model onto it.
    fn open(&self, cache: &Cache, progress: Progress) -> Outcome<gradloom::OnnxModel> {
        let device = open(&self.device, self.threads, progress)?;
        progress.say(format_args!("{} on {}", self.model.display(), device.target().name));
        let parsed = gradloom::model::parse_with(&self.model, &self.data.files())?;
        let mut model = gradloom::OnnxModel::with_host(parsed, device, cache.host(progress));
        if let Some(file) = &self.tuned {
            let lines = std::fs::read_to_string(file).map_err(|e| Failure(format!("{}: {e}", file.display())))?;
            let n = model.add_tuned(&lines)?;
            progress.say(format_args!("{n} tuned kernels from {}", file.display()));
        }
        Ok(model)
    }
}

/// Opens a device; says why `auto` chose a device that is not expected.
pub(crate) fn open(name: &str, threads: usize, progress: Progress) -> Outcome<Box<dyn gradloom::device::Device>> {
    if gradloom::choose::canonical(name) != "auto" {
        return Ok(gradloom::open(name, threads)?);
    }
    let choice = gradloom::contain(|| gradloom::choose::choose(threads))?;
    choice.reason.iter().for_each(|message| progress.say(format_args!("{message}")));
    Ok(choice.device)
}

impl From<Vec<(&str, Json)>> for Json {
    fn from(fields: Vec<(&str, Json)>) -> Json {
        Json::Object(fields.into_iter().map(|(k, v)| (k.to_string(), v)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_parts_that_not_every_build_has_are_theirs() {
        let names = ENVIRONMENT.map(|row| row.0);
        #[cfg(unix)]
        assert!(names.contains(&gradloom::llvm::VARIABLE));
        #[cfg(feature = "cuda")]
        assert!(names.contains(&gradloom::cuda::LIBRARY));
        assert!(names.contains(&"NO_COLOR"));
    }

    #[test]
    fn a_panic_is_a_failure() {
        let Failure(text) = contained(|| panic!("{} is wrong", 7)).unwrap_err();
        assert_eq!(text, "internal error: 7 is wrong [E_INTERNAL]");
    }
}
