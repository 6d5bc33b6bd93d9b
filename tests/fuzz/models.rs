//! ONNX models changed by their structure, for every operator that we have: each is inspected, and some are run on `cpu:guarded`, where
//! a page that nobody may touch lies behind each buffer, and compared with the evaluator.

use crate::findings::{Run, corpus};
use crate::memory::Asked;
use crate::panics::panics;
use gradloom::io::HostTensor;
use gradloom::io::onnx::{Model, NoExternalData, Report, inspect};
use gradloom::{NativeHost, OnnxModel};
use gradloom_core::Error;
use gradloom_tests::mutants::{Mutant, Mutants, SUITES, budget, differ};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Models of an ordinary run; of so many that are accepted one is run.
const ROUNDS: u64 = 40_000;
const RUN_ONE_IN: u64 = 4;
/// What looking at a model may ask for, besides a multiple of its file.
const MOST_BYTES: usize = 1 << 30;
/// Far longer than any of these models takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks at a model; what is wrong, or what is known of it.
fn inspected(file: &[u8]) -> Result<Option<Report>, String> {
    let asked = Asked::now();
    let start = Instant::now();
    let report = panics(|| inspect(file.to_vec(), Arc::new(NoExternalData), &BTreeMap::new()).ok())?;
    let (bytes, time) = (asked.bytes(), start.elapsed());
    if bytes > MOST_BYTES + 4 * file.len() {
        return Err(format!("{bytes} bytes"));
    }
    if time > PATIENCE { Err(format!("{time:?}")) } else { Ok(report) }
}

/// Runs a model on a device: its outputs, or the error.
fn ran(file: &[u8], inputs: &[(String, HostTensor)], device: &str) -> Result<Vec<(String, HostTensor)>, Error> {
    let model = Model::parse(file.to_vec())?.with_budget(budget());
    let device = gradloom::open(device, 1)?;
    let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let mut model = OnnxModel::with_host(model, device, NativeHost::without_cache());
    let out = model.run(&inputs)?;
    if model.counters().fallbacks > 0 {
        return Err(Error::Internal("opts were chosen that do not fit a kernel".into()));
    }
    Ok(out)
}

/// What came of running a model.
#[derive(Default)]
struct Outcome {
    computed: bool,
    refused: bool,
}

/// Runs a model on guarded memory and on the evaluator, if it is small.
fn run_both(m: &mut Mutant, report: &Report) -> Result<Outcome, String> {
    let Some(inputs) = m.feeds(report) else { return Ok(Outcome::default()) };
    let start = Instant::now();
    let fast = panics(|| ran(&m.file, &inputs, "cpu:guarded"))?;
    if start.elapsed() > PATIENCE {
        return Err(format!("a run of {:?}", start.elapsed()));
    }
    let slow = panics(|| ran(&m.file, &inputs, "eval"))?;
    let computed = Outcome { computed: true, ..Outcome::default() };
    match (fast, slow) {
        (Err(Error::Internal(what)), _) | (_, Err(Error::Internal(what))) => Err(format!("internal error: {what}")),
        (Ok(_), Ok(_)) if m.edges => Ok(computed),
        (Ok(a), Ok(b)) => differ(&a, &b).map_or(Ok(computed), Err),
        // what a model asks for is refused before a device is asked, so all of them refuse it
        (Ok(_), Err(e)) => Err(format!("only eval says {e}")),
        (Err(e), Ok(_)) => Err(format!("only cpu:guarded says {e}")),
        (Err(_), Err(_)) => Ok(Outcome { refused: true, ..Outcome::default() }),
    }
}

/// What makes a finding another one: the place of a panic, or the kind.
fn kind(op: &str, what: &str) -> String {
    match what.split_whitespace().find(|w| w.contains(".rs:")) {
        Some(place) => place.to_owned(),
        None => format!("{op} {}", what.split(|c: char| c.is_ascii_digit()).next().unwrap_or("")),
    }
}

#[test]
fn changed_models_do_no_harm() {
    let mut run = Run::new("models", ROUNDS);
    for path in corpus("models") {
        let mut m = Mutant::kept(std::fs::read(&path).expect("a model"));
        let found =
            inspected(&m.file).and_then(|report| report.map_or(Ok(Outcome::default()), |r| run_both(&mut m, &r)));
        assert!(found.is_ok(), "{}: {}", path.display(), found.err().unwrap_or_default());
    }
    let suites = SUITES.map(|suite| {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/onnx/{suite}.zip"))).expect("cases")
    });
    let mutants = Mutants::new(suites.iter().map(Vec::as_slice)).expect("models");
    let (mut looked, mut accepted, mut refused) = (0, 0, 0);
    let mut computed = vec![0u64; mutants.ops().len()];
    let mut known = BTreeSet::new();
    for round in 0.. {
        if !run.goes_on(round) {
            break;
        }
        let mut m = mutants.get(run.seed.wrapping_mul(1 << 40).wrapping_add(round));
        looked += 1;
        let found = inspected(&m.file).and_then(|report| {
            let Some(report) = report.filter(Report::is_supported) else { return Ok(Outcome::default()) };
            accepted += 1;
            if accepted % RUN_ONE_IN == 0 { run_both(&mut m, &report) } else { Ok(Outcome::default()) }
        });
        match found {
            Ok(did) => {
                computed[m.op] += u64::from(did.computed);
                refused += u64::from(did.refused);
            }
            Err(what) => {
                let op = mutants.ops()[m.op].1;
                if known.insert(kind(op, &what)) {
                    run.found(&format!("{op}-{}-{round}.onnx", run.seed), &m.file, &what);
                }
            }
        }
    }
    let never: Vec<&str> = mutants.ops().iter().zip(&computed).filter(|(_, n)| **n == 0).map(|(o, _)| o.1).collect();
    println!("operators of which no model was run: {}", never.join(" "));
    let sum: u64 = computed.iter().sum();
    run.end(&format!(
        "{looked} models inspected, {accepted} accepted, {sum} run, {refused} refused by all devices when run"
    ));
}
