//! The ONNX backend suite on a device: `onnx_suite CASES.zip [DEVICE] [FILTER]`. A line for each case (pass, random, refused, WRONG or
//! BROKEN, with the reason) and a summary; fails if anything is wrong or broken.
//!
//! Refused is an error before anything runs that names what is missing. Broken is any other: a device that fails, a panic, or
//! no end within a minute.

use gradloom::NativeHost;
use gradloom::model::OnnxModel;
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::Model;
use gradloom_core::{Error, Result};
use gradloom_tests::onnx_suite::{Case, read};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

/// Seconds that one case may take.
const LIMIT: Duration = Duration::from_secs(60);

fn outcome(case: &Case, device: &str) -> (&'static str, String) {
    match catch_unwind(AssertUnwindSafe(|| run(case, device))) {
        Ok(Ok(Ok(()))) if case.is_random() => ("random", String::new()),
        Ok(Ok(Ok(()))) => ("pass", String::new()),
        Ok(Ok(Err(what))) => ("WRONG", what),
        Ok(Err(e)) => {
            let typed = matches!(
                e,
                Error::Unsupported { .. }
                    | Error::Model { node: Some(_), .. }
                    | Error::Input { .. }
                    | Error::Format { .. }
            );
            (if typed { "refused" } else { "BROKEN" }, format!("{e} [{}]", e.code()))
        }
        Err(_) => ("BROKEN", "a panic".to_string()),
    }
}

/// The case's outputs against what is expected.
fn run(case: &Case, device: &str) -> Result<Result<(), String>> {
    let model = Model::parse(case.model.clone())?;
    let mut model = OnnxModel::with_host(model, gradloom::open(device, 1)?, NativeHost::without_cache());
    let sets: Vec<_> = case.sets(model.model()).collect();
    for set in sets {
        let (inputs, want) = set?;
        let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        if let Err(what) = case.check(&model.run(&inputs)?, &want) {
            return Ok(Err(what));
        }
    }
    Ok(Ok(()))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = args.first() else {
        eprintln!("onnx_suite CASES.zip [DEVICE] [FILTER]");
        return ExitCode::from(2);
    };
    let device = args.get(1).cloned().unwrap_or_else(|| "cpu".to_string());
    let filter = args.get(2).cloned().unwrap_or_default();
    let cases = std::fs::read(path).map_err(|e| e.to_string()).and_then(|b| read(&b).map_err(|e| e.to_string()));
    let cases = match cases {
        Ok(cases) => cases,
        Err(e) => {
            eprintln!("{path}: {e}");
            return ExitCode::FAILURE;
        }
    };
    std::panic::set_hook(Box::new(|p| eprintln!("{p}")));
    let mut count: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for case in cases.into_iter().filter(|c| c.name.contains(&filter)) {
        let (kind, name) = (case.name.split('/').next().unwrap_or("").to_string(), case.name.clone());
        let (send, receive) = mpsc::channel();
        let device = device.clone();
        std::thread::spawn(move || send.send(outcome(&case, &device)));
        let (what, why) = receive.recv_timeout(LIMIT).unwrap_or(("BROKEN", "no end".to_string()));
        println!("{what} {name} {}", why.replace('\n', " "));
        *count.entry((kind, what)).or_default() += 1;
    }
    let mut bad = false;
    for ((kind, what), n) in &count {
        println!("{kind}: {n} {what}");
        bad |= what.chars().all(char::is_uppercase);
    }
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
