//! `wasm`: builds the web crate to `web/pkg` with cargo, then wasm-bindgen as a library (so that no tool must be
//! installed, and its version is the one in Cargo.lock). Either of two toolchains compiles it, see [`Toolchain`]; each
//! has its own target folder, because two compilers would invalidate each other's output. wasm-opt (132, `-Oz`) makes
//! the module 8% smaller but its compressed download 10% larger, so it is not used.

use crate::{imports, order, sh, split};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use wasm_bindgen_cli_support::Bindgen;

/// The target triple of the web build.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// The parts of `gradloom-web` that are loaded on demand, with their exports: see `web/ts/src/wasm-parts.ts`.
const PARTS: [split::Part<'_>; 12] = [
    split::Part {
        name: "onnx",
        after: None,
        exports: &[
            "runtime_decodeStrings",
            "runtime_drifts",
            "runtime_encodeStrings",
            "runtime_modelGraph",
            "runtime_modelInfo",
            "runtime_onnx",
            "runtime_recreateModel",
            "runtime_runAgain",
            "runtime_runModel",
            "runtime_withOutputs",
        ],
    },
    split::Part { name: "lengths", after: Some("onnx"), exports: &["runtime_lengthNotes", "runtime_setLengths"] },
    split::Part { name: "rare", after: Some("onnx"), exports: &["runtime_onnxRare"] },
    split::Part {
        name: "learn",
        after: Some("onnx"),
        exports: &[
            "__wbg_trained_free",
            "runtime_train",
            "trained_file",
            "trained_forward",
            "trained_parameters",
            "trained_values",
            "trained_weights",
        ],
    },
    split::Part {
        name: "weights",
        after: None,
        exports: &["runtime_saveWeights", "runtime_shards", "safetensorsIndex"],
    },
    split::Part {
        name: "graphs",
        after: None,
        exports: &[
            "__wbg_captured_free",
            "captured_run",
            "runtime_capture",
            "runtime_graph",
            "runtime_overwrite",
            "runtime_upload",
        ],
    },
    split::Part {
        name: "loops",
        after: None,
        exports: &[
            "__wbg_irkernelhandle_free",
            "irkernelhandle_params",
            "runtime_launchIrKernel",
            "runtime_parseIrKernel",
        ],
    },
    split::Part { name: "attention", after: None, exports: &["fuseAttention"] },
    // `debug` uses the same cost estimates as tuning: if they were in separate parts, that shared code would be in the
    // module that every page loads
    split::Part { name: "tune", after: None, exports: &["runtime_debug", "runtime_tune"] },
    split::Part { name: "wasm", after: None, exports: &["runtime_workerGone", "wasmRuntime"] },
    split::Part { name: "webgpu", after: None, exports: &["runtime_customKernel", "webgpuRuntime"] },
    split::Part { name: "share", after: Some("webgpu"), exports: &["runtime_fromGpuBuffer", "runtime_gpuBuffer"] },
];

/// Part of the names of std's functions that format floats, 20 kB, which must not be linked into the web module.
const STD_FLOAT_FORMATTING: &str = "flt2dec";

/// The features of `gradloom-web-extra`: each is a module that the package loads on first use.
const EXTRAS: [&str; 7] = ["text", "files", "chat", "ops", "forms", "llm", "encoder"];

/// The toolchain that compiles for wasm32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Toolchain {
    /// rustup's cargo with the target's standard library from rustup.
    Rustup,
    /// Debian's rustc-web, cargo-web and lld; the standard library is built from rust-web-src.
    Debian,
}

impl Toolchain {
    /// The toolchain that is usable on this machine. `GRADLOOM_WASM_TOOLCHAIN=rustup|debian` forces one.
    pub(crate) fn find() -> Result<Toolchain, String> {
        let forced = std::env::var("GRADLOOM_WASM_TOOLCHAIN").unwrap_or_default();
        match forced.as_str() {
            "" if rustup_ready() => Ok(Toolchain::Rustup),
            "" if debian_missing().is_none() => Ok(Toolchain::Debian),
            "rustup" if rustup_ready() => Ok(Toolchain::Rustup),
            "rustup" => Err(format!("rustup has no {TARGET}")),
            "" | "debian" => match debian_missing() {
                None => Ok(Toolchain::Debian),
                Some(what) => Err(format!("no compiler for {TARGET}: rustup does not have it, and {what}")),
            },
            other => Err(format!("GRADLOOM_WASM_TOOLCHAIN is `{other}`; it may be `rustup` or `debian`")),
        }
    }

    /// A short description for messages.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Toolchain::Rustup => "rustup's",
            Toolchain::Debian => "Debian's rustc-web, with its standard library built here",
        }
    }

    /// Its build output folder, relative to the root.
    fn target_dir(self) -> &'static str {
        match self {
            Toolchain::Rustup => "target/wasm",
            Toolchain::Debian => "target/wasm-debian",
        }
    }

    /// A cargo command line that builds for wasm32.
    fn cargo(self) -> Command {
        match self {
            Toolchain::Rustup => {
                let mut command = Command::new("cargo");
                command.args(["rustc", "--target", TARGET]);
                command
            }
            Toolchain::Debian => {
                let mut command = Command::new("/usr/bin/cargo");
                command.args(["rustc", "--target", TARGET, "-Zbuild-std=std,panic_abort"]);
                command.env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
                command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "/usr/bin/wasm-ld");
                command
            }
        }
    }
}

/// Whether rustup's rustc has the target's standard library.
fn rustup_ready() -> bool {
    let printed = sh::quiet(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    printed.is_ok_and(|dir| Path::new(dir.trim()).is_dir())
}

/// The reason why Debian's toolchain cannot be used: a package that is missing or too old.
fn debian_missing() -> Option<String> {
    let pieces = [
        ("/usr/bin/cargo", "cargo-web"),
        ("/usr/bin/rustc", "rustc-web"),
        ("/usr/bin/wasm-ld", "lld"),
        ("/usr/lib/rustlib/src/rust/library/std/Cargo.toml", "rust-web-src"),
    ];
    if let Some((_, package)) = pieces.iter().find(|(file, _)| !sysroot_file(file).exists()) {
        return Some(format!("Debian's {package} is missing"));
    }
    let printed = sh::quiet(Command::new("/usr/bin/rustc").arg("--version")).unwrap_or_default();
    let needed = env!("CARGO_PKG_RUST_VERSION");
    match minor_version(&printed) >= minor_version(&format!("rustc {needed}")) {
        true => None,
        false => Some(format!("Debian's is {}, where {needed} is needed", printed.trim())),
    }
}

/// The minor version: 95 of `rustc 1.95.0 (..)`.
fn minor_version(printed: &str) -> Option<u32> {
    printed.split_whitespace().nth(1)?.split('.').nth(1)?.parse().ok()
}

/// Debian keeps the library sources under a folder named by version and links it; follow the compiler's own sysroot.
fn sysroot_file(file: &str) -> PathBuf {
    let Some(rest) = file.strip_prefix("/usr/lib/rustlib") else { return PathBuf::from(file) };
    let sysroot = sh::quiet(Command::new("/usr/bin/rustc").args(["--print", "sysroot"])).unwrap_or("/usr".into());
    PathBuf::from(format!("{}/lib/rustlib{rest}", sysroot.trim()))
}

/// Builds `web/pkg`; with `--tests` the test module instead, into `tests/web/pkg`. With `--names` functions keep their
/// names, and panics the places that they report, for profiles and for `scripts/functions.mjs`.
pub(crate) fn build(root: &Path, args: &[&str]) -> Result<(), String> {
    let keep_names = args.contains(&"--names");
    if args.contains(&"--tests") {
        let tests =
            Build { package: "gradloom-web-tests", feature: "", name: "gradloom_web_tests", keep_names, parts: &[] };
        return build_module(root, &tests, "wasm-tests", "tests/web/pkg");
    }
    let _ = std::fs::remove_dir_all(root.join("web/pkg"));
    let main = Build { package: "gradloom-web", feature: "", name: "gradloom_web", keep_names, parts: &PARTS };
    let names = EXTRAS.map(|feature| format!("gradloom_{feature}"));
    let extras = EXTRAS.iter().zip(&names).map(|(feature, name)| Build {
        package: "gradloom-web-extra",
        feature,
        name,
        keep_names,
        parts: &[],
    });
    for part in std::iter::once(main).chain(extras) {
        build_module(root, &part, "wasm", "web/pkg")?;
    }
    sh::node(root, "scripts/size.mjs", &["web/pkg"])
}

/// One wasm module to build: the package and feature (or none), the name of its files, whether functions keep their
/// names, and its parts.
struct Build<'a> {
    package: &'a str,
    feature: &'a str,
    name: &'a str,
    keep_names: bool,
    parts: &'a [split::Part<'a>],
}

/// Compiles a module and writes its bindings to a folder.
fn build_module(root: &Path, part: &Build<'_>, profile: &str, folder: &str) -> Result<(), String> {
    let Build { package, feature, name, keep_names, parts } = *part;
    let toolchain = Toolchain::find().map_err(|why| format!("{why}\nrun `cargo xtask setup`"))?;
    println!("wasm: compiling with {}", toolchain.describe());
    let start = Instant::now();
    let out = root.join(toolchain.target_dir());
    let mut cargo = toolchain.cargo();
    // The places in source files that panics report are 3% of what a page downloads. A build with names has them.
    if !keep_names {
        cargo.args(["--config", &format!("target.{TARGET}.rustflags=['-Zlocation-detail=none']")]);
        cargo.env("RUSTC_BOOTSTRAP", "1");
    }
    cargo.args(["--package", package, "--lib", "--features", feature, "--profile", profile, "--target-dir"]).arg(&out);
    if !parts.is_empty() {
        cargo.args(["--", "-Clink-arg=--emit-relocs"]);
    }
    // These are set by the cargo that runs xtask, and would make the inner cargo use the wrong compiler.
    cargo.env_remove("CARGO").env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    if toolchain == Toolchain::Debian {
        cargo.env_remove("RUSTUP_TOOLCHAIN");
    }
    sh::run(cargo.current_dir(root))?;
    let input = out.join(TARGET).join(profile).join(format!("{}.wasm", package.replace('-', "_")));
    println!("wasm: {name} compiled in {:.1} s, {}", start.elapsed().as_secs_f64(), size_of(&input)?);

    let pkg = root.join(folder);
    let failed = |file: &Path, error: std::io::Error| format!("{}: {error}", file.display());
    std::fs::create_dir_all(&pkg).map_err(|error| failed(&pkg, error))?;
    let compiled = std::fs::read(&input).map_err(|error| failed(&input, error))?;
    let linked = if parts.is_empty() { None } else { Some(split::LinkedModule::new(&compiled)?) };
    if let Some(first) = linked.as_ref().and_then(|l| l.names_containing(STD_FLOAT_FORMATTING).first().copied()) {
        return Err(format!("{name} writes a float by std's formats ({first}): see core/src/util/decimal.rs"));
    }
    let mut bindgen = Bindgen::new();
    match &linked {
        Some(linked) => bindgen.input_bytes(name, linked.with_numbered_names()?),
        None => bindgen.input_path(&input),
    };
    bindgen
        .out_name(name)
        .web(true)
        .and_then(|bindgen| {
            bindgen.typescript(true).omit_default_module_path(false);
            bindgen.remove_name_section(!keep_names && linked.is_none()).remove_producers_section(true);
            bindgen.generate(&pkg)
        })
        .map_err(|error| format!("wasm-bindgen failed: {error:#}"))?;
    let (module, script) = (pkg.join(format!("{name}_bg.wasm")), pkg.join(format!("{name}.js")));
    let bound = std::fs::read(&module).map_err(|error| failed(&module, error))?;
    let glue = std::fs::read_to_string(&script).map_err(|error| failed(&script, error))?;
    let (bound, glue) = imports::number_imports(&bound, &glue)?;
    std::fs::write(&script, glue).map_err(|error| failed(&script, error))?;
    let mut modules = match &linked {
        Some(linked) => linked.split(&bound, parts, keep_names)?,
        None => vec![order::by_similarity(&bound)?],
    };
    let mut files = vec![module];
    if linked.is_some() {
        files.extend(parts.iter().map(|part| pkg.join(format!("gradloom_{}_bg.wasm", part.name))));
        // for hosts that are given the module's bytes and cannot load parts
        files.push(pkg.join("gradloom_whole_bg.wasm"));
        modules.extend(linked.map(|l| l.split(&bound, &[], keep_names)).transpose()?.into_iter().flatten());
    }
    for (file, module) in files.iter().zip(modules) {
        std::fs::write(file, module).map_err(|error| failed(file, error))?;
        println!("wasm: {} in {folder}, {}", file.file_name().unwrap_or_default().display(), size_of(file)?);
    }
    Ok(())
}

fn size_of(file: &Path) -> Result<String, String> {
    let bytes = std::fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    Ok(format!("{:.1} kB", bytes as f64 / 1000.0))
}
