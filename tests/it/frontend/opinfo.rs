//! Samples of torch's own operator tests, of which [`gradloom_tests::opinfo`] tells more, on native devices. All of them on any
//! device: `npm run conformance:torch`.

use super::host::eval;
use gradloom_core::device::EvalDevice;
use gradloom_core::engine::Engine;
use gradloom_core::target::{Lang, Target};
use gradloom_core::{DType, Session, Tensor};
use gradloom_tests::here;
use gradloom_tests::opinfo::{Outcome, Sample, Types, recorded, run, samples};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The environment variable GRADLOOM_OP picks operators by a part of their name.
pub(super) fn picked() -> impl Fn(&str) -> bool {
    let only = std::env::var("GRADLOOM_OP").unwrap_or_default();
    move |name: &str| name.contains(&only)
}

/// Runs every `every`-th sample, each one of those that are picked by name, and fails if any differs.
fn check(every: usize, mut run: impl FnMut(Sample) -> Result<(), String>) {
    let picked = picked();
    let every = if std::env::var("GRADLOOM_OP").is_ok_and(|o| !o.is_empty()) { 1 } else { every };
    let mut errors: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for s in samples().into_iter().filter(|s| picked(s.name)).step_by(every) {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(s))).unwrap_or_else(|_| Err("a panic".into()));
        if let Err(e) = outcome {
            errors.entry(s.name).or_default().push(format!("{}: {e}", s.line));
        }
    }
    let text: Vec<String> = errors.iter().map(|(n, l)| format!("{n}\n    {}", l.join("\n    "))).collect();
    assert!(errors.is_empty(), "{} operators differ:\n{}", errors.len(), text.join("\n"));
}

/// Samples through a device, in the `nth` of their element types.
fn on(engine: &mut Engine, every: usize, nth: usize) {
    let session = Session::new();
    check(every, |s| {
        let Some(&dtype) = s.dtypes().get(nth) else { return Ok(()) };
        match run(engine, &session, s, dtype) {
            // shaders have no f64: a refusal, not a wrong number
            Outcome::Pass | Outcome::Refused(_) => Ok(()),
            Outcome::Wrong(e) | Outcome::Broken(e) => Err(e),
        }
    });
}

#[test]
fn opinfo_samples_are_torchs() {
    check(1, |s| {
        // of its own: without an engine nothing ever leaves a session's graph, and what follows would take longer and longer
        let session = Session::new();
        let case = s.read(&session, Types { float: DType::F32, int: DType::I32 });
        let (outs, grads) = case.build(&session, DType::F32).map_err(|e| e.to_string())?;
        let all: Vec<&Tensor> = outs.iter().chain(&grads).collect();
        let wrong = case.check(eval(&all), outs.len(), 5e-6);
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    });
}

#[test]
fn the_table_covers_opinfo() {
    let (known, asked): (BTreeSet<&str>, BTreeSet<&str>) =
        (samples().iter().map(|s| s.name).collect(), recorded().map(|s| s.name).collect());
    let missing: Vec<&&str> = asked.difference(&known).collect();
    eprintln!("{} of {} operators; missing: {missing:?}", known.len(), asked.len());
    assert!(known.len() >= 350, "only {} operators", known.len());
}

/// Every other sample, to save time.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
#[test]
fn opinfo_samples_are_torchs_on_the_cpu() {
    let engine = || here::device("cpu", gradloom::open("cpu", 2)).map(Engine::new);
    let (Some(mut first), Some(mut second)) = (engine(), engine()) else { return };
    on(&mut first, 2, 0);
    on(&mut second, 7, 1);
}

/// Programs as shaders get them, run by the interpreter: a sample.
#[test]
fn opinfo_samples_are_torchs_with_a_shaders_capabilities() {
    let target = Target { lang: Lang::Eval, ..Target::wgsl("shader").with_f16().with_subgroup(8) };
    on(&mut Engine::new(Box::new(EvalDevice::new(target))), 9, 0);
}

/// Programs as WebAssembly gets them, run by the interpreter: a sample.
#[test]
fn opinfo_samples_are_torchs_with_webassemblys_capabilities() {
    let target = Target { lang: Lang::Eval, ..Target::wasm(true, 1) };
    on(&mut Engine::new(Box::new(EvalDevice::new(target))), 11, 0);
}

/// A compiler process per kernel is slow: a sample.
#[test]
fn opinfo_samples_are_torchs_through_the_c_compiler() {
    let Some(device) = here::device("c", gradloom::c::CDevice::new()) else { return };
    on(&mut Engine::new(Box::new(device)), 61, 0);
}

/// The driver's compiler is slow: a sample.
#[test]
fn opinfo_samples_are_torchs_through_opencl() {
    let Some(device) = here::device("opencl", gradloom::opencl::OpenClDevice::new()) else { return };
    on(&mut Engine::new(Box::new(device)), 906, 0);
}

/// On a GPU or a software driver: a sample, as compiling takes long there.
#[cfg(feature = "wgpu")]
#[test]
fn opinfo_samples_are_torchs_on_wgpu() {
    let Some(device) = here::device("wgpu", gradloom::wgpu::WgpuDevice::new()) else { return };
    on(&mut Engine::new(Box::new(device)), 23, 0);
}
