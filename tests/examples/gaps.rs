//! How long a page could do nothing else: for each model the longest pieces of parsing, planning, compiling, bringing weights to the
//! device and running, in milliseconds. usage: gaps DEVICE [MODEL FILE]..

use gradloom_core::engine::Engine;
use gradloom_core::interrupt::{Go, Interrupt};
use gradloom_core::io::onnx::{Model, Runner};
use gradloom_core::io::{HostTensor, npz, tflite};
use gradloom_core::{Error, Session};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Milliseconds of the longest pieces by kind.
type Longest = BTreeMap<&'static str, f64>;

fn note(longest: &mut Longest, kind: &'static str, since: Instant) {
    let ms = since.elapsed().as_secs_f64() * 1e3;
    let most = longest.entry(kind).or_default();
    *most = most.max(ms);
}

fn run(device: &str, file: &Path) -> gradloom_core::Result<Longest> {
    let mut longest = Longest::new();
    let mut bytes = std::fs::read(file).map_err(|e| Error::value("file", e.to_string()))?;
    let start = Instant::now();
    if tflite::is_tflite(&bytes) {
        bytes = tflite::to_onnx(&bytes)?;
        note(&mut longest, "convert", start);
    }
    let start = Instant::now();
    let model = Arc::new(Model::parse(bytes)?);
    note(&mut longest, "parse", start);
    let mut engine = Engine::new(gradloom::open(device, 1)?);
    // within a piece the engine looks too
    let last = Arc::new(Mutex::new((Instant::now(), 0f64)));
    let seen = last.clone();
    engine.set_interrupt(Interrupt::asking(move || {
        let mut l = seen.lock().expect("one thread");
        *l = (Instant::now(), l.1.max(l.0.elapsed().as_secs_f64() * 1e3));
        Ok(Go::On)
    }));
    let mut runner = Runner::new(model, &Session::new());
    let inputs = npz::read(&std::fs::read(file.with_file_name("input.npz")).unwrap_or_default())?;
    let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let start = Instant::now();
    let inputs =
        runner.inputs(inputs.into_iter().map(|(n, t)| (n, gradloom_core::io::onnx::Input::Host(t))).collect())?;
    let mut run = runner.begin_in_pieces(&mut engine, inputs)?;
    note(&mut longest, "begin", start);
    loop {
        while !runner.ready(&mut engine, &mut run)? {
            engine.device().sync()?;
        }
        let (plans, brings, submits, programs) =
            (run.plans(), run.uploads(), run.is_submitting(), engine.counters().programs);
        let start = Instant::now();
        *last.lock().expect("one thread") = (start, 0.0);
        let out = runner.step_once(&mut engine, &mut run, 1 << 26)?;
        let compiled = engine.counters().programs > programs;
        let kind = match () {
            _ if compiled => "compile",
            _ if plans => "plan",
            _ if brings => "bring",
            _ if submits => "submit",
            _ => "read",
        };
        // from the last look on
        let (since, inside) = *last.lock().expect("one thread");
        note(&mut longest, kind, since);
        let most = longest.entry(kind).or_default();
        *most = most.max(inside);
        if out.is_some() {
            return Ok(longest);
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or_else(|| "cpu".into());
    let mut files: Vec<PathBuf> = args.map(PathBuf::from).collect();
    if files.is_empty() {
        let dirs = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).expect("models");
        let each = dirs.flatten().flat_map(|d| ["model.onnx", "model.tflite"].map(|f| d.path().join(f)));
        files = each.filter(|f| f.exists()).collect();
        files.sort();
    }
    for file in files {
        let name = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        match run(&device, &file) {
            Ok(longest) => {
                let all: Vec<String> = longest.iter().map(|(kind, ms)| format!("{kind} {ms:.1}")).collect();
                println!("{name}: {}", all.join(", "));
            }
            Err(e) => println!("{name}: {e}"),
        }
    }
}
