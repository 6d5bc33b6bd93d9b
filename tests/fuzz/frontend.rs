//! Random programs of the frontend on every device, against the evaluator.

use crate::findings::{Run, corpus};
use gradloom::NativeHost;
use gradloom::debug::Debug;
use gradloom_core::dtype::Scalar;
use gradloom_core::engine::{Bytes, Engine};
use gradloom_core::{DType, Result, Session, Tensor};
use gradloom_tests::graphs::{Outcome, Program, fits, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Programs of an ordinary run, over all devices.
const ROUNDS: u64 = 2000;
/// Programs after which an engine is made anew: its caches only grow.
const ENGINE_ROUNDS: u64 = 100;

/// Devices, and of a hundred programs those that each runs, more where a kernel is compiled in less time.
const DEVICES: [(&str, std::ops::Range<u64>); 6] =
    [("cpu", 0..48), ("cpu:avx2", 48..68), ("eval", 68..78), ("wgpu", 78..90), ("llvm", 90..99), ("c", 99..100)];

/// The devices of a run: those that `GRADLOOM_FUZZ_DEVICES` names, with equal shares, or [`DEVICES`]. One that is named twice runs twice as
/// many, two at a time.
fn devices() -> Vec<(&'static str, std::ops::Range<u64>)> {
    let Ok(names) = std::env::var("GRADLOOM_FUZZ_DEVICES") else { return DEVICES.to_vec() };
    let names: Vec<&'static str> = names.leak().split(',').collect();
    let n = names.len() as u64;
    let part = |(i, name): (u64, &'static str)| (name, 100 * i / n..100 * (i + 1) / n);
    (0..n).zip(names).map(part).collect()
}

/// A device with a session of its own.
struct Place {
    device: &'static str,
    engine: Engine,
    session: Session,
}

impl Place {
    /// None where this machine has not what the device needs.
    fn open(device: &'static str) -> Option<Place> {
        let dev = gradloom::open(device, 1).ok()?;
        let mut engine = Engine::with_host(dev, Box::new(NativeHost::without_cache()));
        // with DEBUG=6 a finding shows what it is compiled to
        if let Some(debug) = Debug::of_environment() {
            engine.watch(Some(Box::new(debug)));
        }
        Some(Place { device, engine, session: Session::new() })
    }

    /// What is wrong with a program here. After a panic all is made anew.
    fn wrong(&mut self, p: &Program, refused: &mut u64) -> Option<String> {
        match catch_unwind(AssertUnwindSafe(|| run(&mut self.engine, &self.session, p))) {
            Ok(Outcome::Same) => None,
            Ok(Outcome::Refused) => {
                *refused += 1;
                None
            }
            Ok(Outcome::Wrong(what)) => Some(what),
            Err(panic) => {
                *self = Place::open(self.device).expect("it was open before");
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without words");
                Some(format!("panic: {text}"))
            }
        }
    }
}

/// The programs of one device: how many ran, and how many need a dtype that it lacks.
fn on_device(device: &'static str, share: &std::ops::Range<u64>, run: &mut Run) -> Option<(u64, u64)> {
    let mut place = Place::open(device)?;
    let (mut n, mut refused) = (0, 0);
    for round in 0.. {
        if !run.goes_on(round) {
            break;
        }
        if !share.contains(&(round % 100)) {
            continue;
        }
        n += 1;
        if n % ENGINE_ROUNDS == 0 {
            place = Place::open(device)?;
        }
        let seed = run.seed.wrapping_mul(1 << 32).wrapping_add(round);
        let program = Program::random(seed);
        if let Some(first) = place.wrong(&program, &mut refused) {
            // what is about compiling shows in an engine that has not compiled it yet
            let anew = |p: &Program| Place::open(device).and_then(|mut place| place.wrong(p, &mut 0));
            let short = program.shrink(|p| anew(p).is_some());
            let what = anew(&short).unwrap_or_else(|| format!("only after others, {first}"));
            let text = short.describe() + &format!("# {device}, seed {seed}: {}\n", what.replace('\n', " "));
            run.found(&format!("{}-{seed}.txt", device.replace(':', "-")), text.as_bytes(), &format!("{what}\n{text}"));
        }
    }
    Some((n, refused))
}

#[test]
fn programs_have_the_evaluators_values() {
    let mut whole = Run::new("frontend", ROUNDS);
    let (mut done, devices) = (Vec::new(), devices());
    // a panic is a finding, which says where it comes from
    std::thread::scope(|scope| {
        let parts: Vec<_> = devices
            .iter()
            .map(|(device, share)| {
                let mut part = whole.part("frontend", 1.0);
                scope.spawn(move || {
                    let n = on_device(device, share, &mut part);
                    (*device, n, part)
                })
            })
            .collect();
        for p in parts {
            let (device, n, part) = p.join().expect("panics are findings");
            done.push(match n {
                Some((n, 0)) => format!("{device} {n}"),
                Some((n, refused)) => format!("{device} {n} ({refused} refused)"),
                None => format!("{device} is not here"),
            });
            whole.join(part);
        }
    });
    whole.end(&done.join(", "));
}

#[test]
fn programs_that_failed_once_hold() {
    for (device, _) in devices() {
        let Some(mut place) = Place::open(device) else { continue };
        for file in corpus("frontend") {
            let text = std::fs::read_to_string(&file).expect("a program");
            let program = Program::parse(&text).unwrap_or_else(|| panic!("{} is no program", file.display()));
            let name = Path::new(&file).display().to_string();
            assert_eq!(place.wrong(&program, &mut 0), None, "{name} on {device}:\n{}", program.describe());
        }
    }
}

/// Devices that compile for machines that are not here.
const COMPILED_ONLY: [&str; 7] =
    ["null:cuda", "null:tiles", "null:wgsl", "null:wgsl-hardware", "null:wgsl-software", "null:wasm", "null:arm64"];

/// What is wrong with compiling a program for a device that runs nothing.
fn unfit(device: &'static str, p: &Program) -> Option<String> {
    let compiled = catch_unwind(AssertUnwindSafe(|| {
        let mut place = Place::open(device).expect("a device that runs nothing");
        fits(&mut place.engine, &place.session, p)
    }));
    match compiled {
        Ok(Ok(true) | Err(gradloom_core::Error::Unsupported { .. })) => None,
        Ok(Ok(false)) => Some("opts were chosen that do not fit the kernel".into()),
        Ok(Err(e)) => Some(e.to_string()),
        Err(_) => Some("panic".into()),
    }
}

#[test]
fn programs_compile_for_machines_that_are_not_here() {
    let mut run = Run::new("frontend", ROUNDS / 4);
    let mut round = 0;
    while run.goes_on(round) {
        let device = COMPILED_ONLY[round as usize % COMPILED_ONLY.len()];
        let seed = (run.seed + 1).wrapping_mul(1 << 32).wrapping_add(round);
        let program = Program::random(seed);
        if unfit(device, &program).is_some() {
            let short = program.shrink(|p| unfit(device, p).is_some());
            let what = unfit(device, &short).expect("it fails, however short");
            let text = short.describe() + &format!("# {device}, seed {seed}: {}\n", what.replace('\n', " "));
            run.found(&format!("{}-{seed}.txt", device.replace(':', "-")), text.as_bytes(), &format!("{what}\n{text}"));
        }
        round += 1;
    }
    run.end("programs that are compiled only");
}

#[test]
fn programs_that_failed_once_compile_for_machines_that_are_not_here() {
    for file in corpus("frontend") {
        let text = std::fs::read_to_string(&file).expect("a program");
        let program = Program::parse(&text).unwrap_or_else(|| panic!("{} is no program", file.display()));
        for device in COMPILED_ONLY {
            assert_eq!(unfit(device, &program), None, "{} on {device}", file.display());
        }
    }
}

/// One of the six comparisons, of tensors and of numbers.
fn compare(how: usize, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match how {
        0 => x.lt(y),
        1 => x.le(y),
        2 => x.gt(y),
        3 => x.ge(y),
        4 => x.eq(y),
        _ => x.ne(y),
    }
}

fn holds(how: usize, x: f64, y: f64) -> bool {
    [x < y, x <= y, x > y, x >= y, x == y, x != y][how]
}

/// The sum of what comparing labels with all classes selects: a loss and an embedding, without a gather.
#[test]
fn labels_of_every_integer_select_their_classes() {
    const LABELS: [i64; 6] = [0, 1, 9, 127, 200, -1];
    for (device, _) in devices() {
        let Ok(dev) = gradloom::open(device, 1) else { continue };
        let mut rt = gradloom::Runtime::with_host(dev, NativeHost::without_cache());
        let s = rt.session().clone();
        // compiling takes longer elsewhere
        let lengths: &[usize] = if matches!(device, "cpu" | "eval") { &[10, 128, 256, 257] } else { &[256] };
        let comparisons = if device == "c" { 4..5 } else { 0..6 };
        let mut cases = Vec::new();
        for dt in DType::ALL.into_iter().filter(|d| d.is_int()) {
            let wrapped = |v: i64| Scalar::Int(v).cast(DType::I64, dt);
            let bytes: Vec<u8> = LABELS
                .iter()
                .flat_map(|&v| {
                    let mut b = [0; 8];
                    wrapped(v).write(dt, &mut b);
                    b[..dt.size()].to_vec()
                })
                .collect();
            let labels = Tensor::from_bytes(&s, dt, &[LABELS.len(), 1], Bytes::new(bytes)).unwrap();
            for &n in lengths {
                let classes = Tensor::arange(&s, 0.0, n as f64, 1.0, DType::I32).unwrap().cast(dt).unwrap();
                let numbers: Vec<f32> = (0..n).map(|i| i as f32 + 1.0).collect();
                let table = Tensor::new(&s, &numbers, &[n]).unwrap();
                for how in comparisons.clone() {
                    for turned in [false, true] {
                        let (x, y) = if turned { (&classes, &labels) } else { (&labels, &classes) };
                        let mask = compare(how, x, y).unwrap();
                        let sum = mask.select(&table, 0.0).unwrap().sum(&[-1], false).unwrap();
                        let want = LABELS.map(|l| {
                            let l = wrapped(l).as_f64_of(dt);
                            let class = |i: usize| wrapped(i as i64).as_f64_of(dt);
                            let selects =
                                |i: usize| if turned { holds(how, class(i), l) } else { holds(how, l, class(i)) };
                            (0..n).filter(|&i| selects(i)).map(|i| numbers[i]).sum::<f32>()
                        });
                        cases.push((format!("{dt}, {n} classes, comparison {how}, turned {turned}"), sum, want));
                    }
                }
            }
        }
        rt.realize(&cases.iter().map(|c| &c.1).collect::<Vec<_>>()).unwrap();
        for (what, sum, want) in &cases {
            assert_eq!(rt.to_vec::<f32>(sum).unwrap(), want, "{what} on {device}");
        }
    }
}

/// The loss of a classifier does not depend on the type of its labels.
#[test]
fn losses_take_labels_of_every_integer() {
    for (device, _) in devices() {
        let Ok(dev) = gradloom::open(device, 1) else { continue };
        let mut rt = gradloom::Runtime::with_host(dev, NativeHost::without_cache());
        let s = rt.session().clone();
        let logits: Vec<f32> = (0..4 * 256).map(|i| (i * 37 % 101) as f32 / 16.0).collect();
        let logits = Tensor::new(&s, &logits, &[4, 256]).unwrap();
        let labels = Tensor::new(&s, &[0i32, 3, 100, 127], &[4]).unwrap();
        let want = rt.to_vec::<f32>(&logits.cross_entropy(&labels, None, 0.1).unwrap()).unwrap();
        for dt in DType::ALL.into_iter().filter(|d| d.is_int()) {
            let loss = logits.cross_entropy(&labels.cast(dt).unwrap(), None, 0.1).unwrap();
            let stored = labels.cast(dt).unwrap().to_storage().unwrap();
            let same = logits.cross_entropy(&stored, None, 0.1).unwrap();
            for loss in [loss, same] {
                let got = rt.to_vec::<f32>(&loss).unwrap();
                assert!((got[0] - want[0]).abs() < 1e-5, "{got:?}, not {want:?}, with {dt} on {device}");
            }
        }
    }
}
