//! The WASM renderer: every sample program is rendered, validated, linked into one module, and run by node.

use gradloom_core::render::wasm::{
    DriverStep, Kernel, MAX_PAGES, SLACK, STEP_WORDS, SYNC_BYTES, driver, instructions, link, relaxed_simd_probe,
    render,
};
use gradloom_core::target::Target;
use gradloom_core::uop::{Op, UOp};
use gradloom_tests::programs::{Sample, samples};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where in the memory image what is.
struct Image {
    bytes: Vec<u8>,
    steps: usize,
    scratch: usize,
    scratch_bytes: usize,
    sync: usize,
    /// Address of each sample's buffers.
    bufs: Vec<Vec<usize>>,
}

/// As they lie in memory.
fn little_endian(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// A memory image with the samples' data, and a step per sample that runs kernel `i`. Alone, a thread has half of them as steps of little work.
fn image(samples: &[&Sample], kernels: &[Kernel], threads: usize) -> Image {
    let mut bytes = vec![0xAA; SLACK];
    let mut put = |data: &[u8]| {
        let at = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(16), 0xAA);
        at
    };
    let mut bufs = Vec::new();
    let mut steps = Vec::new();
    for (i, s) in samples.iter().enumerate() {
        let at: Vec<usize> = s.data.iter().map(|d| put(&d.bytes())).collect();
        let table = put(&little_endian(&at.iter().map(|&a| a as u32).collect::<Vec<_>>()));
        let vars = put(&little_endian(&s.vars));
        let short = if threads == 1 && i % 2 == 1 { DriverStep::SERIAL | DriverStep::SHORT } else { 0 };
        let kernel = i as u32 | short;
        let step = DriverStep { kernel, bufs: table as u32, vars: vars as u32, grid: s.program.grid[0], first: 0 };
        steps.extend(little_endian(&step.words()));
        bufs.push(at);
    }
    let steps = put(&steps);
    let sync = put(&[0; SYNC_BYTES]);
    let scratch_bytes = kernels.iter().map(|k| k.scratch as usize).max().unwrap_or(0);
    let scratch = put(&vec![0xFF; scratch_bytes * threads]);
    bytes.extend([0xAA; SLACK]);
    Image { bytes, steps, scratch, scratch_bytes, sync, bufs }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm")
}

fn file(name: &str) -> PathBuf {
    folder().join(name)
}

/// Runs the image in node; the memory afterwards and what node printed.
fn node(tag: &str, kernels: &[Kernel], image: &Image, threads: usize, repeat: usize) -> (Vec<u8>, String) {
    let printed = script("wasm_run.mjs", tag, kernels, image, kernels.len(), threads, repeat);
    (std::fs::read(file(&format!("{tag}.out"))).unwrap(), printed)
}

/// Runs a script of `tests/lib` on the image's first `n` steps; what it printed.
fn script(name: &str, tag: &str, kernels: &[Kernel], image: &Image, n: usize, threads: usize, repeat: usize) -> String {
    let dir = folder();
    std::fs::create_dir_all(&dir).expect("a folder for temporary files");
    let module = link(kernels, threads > 1, MAX_PAGES);
    let driver = driver(threads > 1, MAX_PAGES);
    validate(&module);
    validate(&driver);
    std::fs::write(file(&format!("{tag}.wasm")), &module).unwrap();
    std::fs::write(file(&format!("{tag}.driver.wasm")), &driver).unwrap();
    std::fs::write(file(&format!("{tag}.in")), &image.bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lib").join(name);
    let numbers = [image.steps, n, image.scratch, image.scratch_bytes, image.sync, kernels.len(), threads, repeat];
    let mut command = Command::new("node");
    command.arg("--experimental-wasm-relaxed-simd").arg(script).arg(&dir).arg(tag);
    let out = command.args(numbers.map(|v| v.to_string())).output().expect("node");
    assert!(out.status.success(), "node: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_string()
}

fn validate(module: &[u8]) {
    let features = wasmparser::WasmFeatures::default();
    if let Err(e) = wasmparser::Validator::new_with_features(features).validate_all(module) {
        panic!("the linked module is not valid: {e}");
    }
}

/// Renders, links, validates, runs and compares all samples of a target.
fn check_all(tag: &str, t: &Target) {
    let all = samples(t);
    let mut failures = Vec::new();
    let (mut batch, mut kernels) = (Vec::new(), Vec::new());
    for s in &all {
        match render(&s.program, t) {
            Ok(k) => {
                let module = link(std::slice::from_ref(&k), false, MAX_PAGES);
                match wasmparser::Validator::new().validate_all(&module) {
                    Ok(_) => {
                        kernels.push(k);
                        batch.push(s);
                    }
                    Err(e) => failures.push(format!("{}: invalid: {e}", s.program.name)),
                }
            }
            Err(e) => failures.push(format!("{}: {e}", s.program.name)),
        }
    }
    let image = image(&batch, &kernels, t.limits.threads);
    let (memory, printed) = node(tag, &kernels, &image, t.limits.threads, 0);
    let mut memories = vec![("", memory)];
    if t.limits.threads > 1 {
        memories.extend(
            ["alone", "workers", "paced"]
                .map(|mode| (mode, std::fs::read(file(&format!("{tag}.{mode}.out"))).unwrap())),
        );
    }
    for (mode, memory) in &memories {
        for (s, bufs) in batch.iter().zip(&image.bufs) {
            let got: Vec<Vec<u8>> =
                s.data.iter().zip(bufs).map(|(d, &at)| memory[at..at + d.bytes().len()].to_vec()).collect();
            failures.extend(s.check(&got).err().map(|e| format!("{mode} {e}")));
        }
    }
    assert!(failures.is_empty(), "{} of {} fail ({printed}):\n{}", failures.len(), all.len(), failures.join("\n"));
    assert!(printed.contains("\"failed\":[]"), "{printed}");
}

#[test]
fn samples_plain() {
    check_all("plain", &Target::wasm(false, 1));
}

#[test]
fn samples_relaxed() {
    check_all("relaxed", &Target::wasm(true, 1));
}

#[test]
fn samples_threads() {
    check_all("threads", &Target::wasm(false, 3));
}

/// A step that fails between two that do not: whoever it fails for, the job ends there, and everybody hears of it.
#[test]
fn a_failure_ends_the_job() {
    let t = Target::wasm(false, 3);
    let all = samples(&t);
    let shared: Vec<&Sample> = all.iter().filter(|s| s.program.grid[0] > 7).take(2).collect();
    let kernels: Vec<Kernel> = shared.iter().map(|s| render(&s.program, &t).expect("renders")).collect();
    let missing = kernels.len() as u32;
    let bad = |kernel: u32| DriverStep { kernel, bufs: 0, vars: 0, grid: 1000, first: 0 };
    for (tag, first, second) in [
        ("fail.shared", None, Some(missing)),
        ("fail.serial", None, Some(missing | DriverStep::SERIAL)),
        ("fail.first", Some(missing), None),
        ("fail.posted", Some(missing | DriverStep::SERIAL), None),
    ] {
        let mut image = image(&shared, &kernels, t.limits.threads);
        let good = image.bytes[image.steps..][..2 * STEP_WORDS * 4].chunks(STEP_WORDS * 4).map(<[u8]>::to_vec);
        let [one, other]: [Vec<u8>; 2] = good.collect::<Vec<_>>().try_into().expect("two steps");
        let steps = match (first, second) {
            (Some(f), _) => vec![little_endian(&bad(f).words()), one, other],
            (_, s) => vec![one, little_endian(&bad(s.expect("a bad step")).words()), other],
        };
        image.steps = image.bytes.len();
        image.bytes.extend(steps.concat());
        let printed = script("wasm_fail.mjs", tag, &kernels, &image, 3, t.limits.threads, 0);
        for mode in ["alone", "workers", "all"] {
            let memory = std::fs::read(file(&format!("{tag}.{mode}.out"))).unwrap();
            for (i, (s, bufs)) in shared.iter().zip(&image.bufs).enumerate() {
                let of = |memory: &[u8]| -> Vec<Vec<u8>> {
                    s.data.iter().zip(bufs).map(|(d, &at)| memory[at..at + d.bytes().len()].to_vec()).collect()
                };
                if i == 0 && first.is_none() {
                    s.check(&of(&memory)).unwrap_or_else(|e| panic!("{tag} {mode}: {e}"));
                } else {
                    assert!(of(&memory) == of(&image.bytes), "{tag} {mode}: step {i} ran ({printed})");
                }
            }
        }
        assert!(printed.contains("\"caught\"") && !printed.contains(":0}"), "{tag}: {printed}");
    }
}

#[test]
fn masked_loops_are_shorter() {
    let t = Target::wasm(true, 1);
    let all = samples(&t);
    let masked = all.iter().map(|s| &s.program).filter(|p| p.name.starts_with("masked_attention"));
    let mut n = 0;
    for p in masked {
        let computed = |u: &&UOp| p.g.const_int(p.g.src_at(**u, 0)).is_none();
        let mut loops = p.order.iter().filter(|&&u| p.g.op(u) == Op::Range && p.g.kind(u).is_loop());
        assert!(loops.any(|u| computed(&u)), "{}: all blocks are computed", p.name);
        n += 1;
    }
    assert!(n > 2);
}

/// The instructions of a module's only function, as another printer has them.
fn printed(module: &[u8]) -> Vec<String> {
    let text = wasmprinter::print_bytes(module).expect("a module");
    let lines = text.lines().map(str::trim).skip_while(|l| !l.starts_with("(func "));
    lines.skip(1).take_while(|l| *l != ")").filter(|l| !l.starts_with("(local")).map(words).collect()
}

/// A line without labels and alignment.
fn words(line: &str) -> String {
    let line = line.trim().split("(;").next().unwrap_or_default().split(";;").next().unwrap_or_default();
    let kept = line.split_whitespace().filter(|w| !w.starts_with("align="));
    kept.map(|w| w.trim_end_matches(')')).collect::<Vec<_>>().join(" ")
}

#[test]
fn instructions_are_printed_as_others_print_them() {
    let mut lines = 0;
    for t in [Target::wasm(false, 1), Target::wasm(true, 1), Target::wasm(true, 1).with_pairs()] {
        for s in samples(&t) {
            let kernel = render(&s.program, &t).expect("a kernel");
            let text = instructions(&kernel.to_bytes());
            let ours: Vec<String> = text.lines().filter(|l| !l.starts_with("(local")).map(words).collect();
            let theirs = printed(&link(std::slice::from_ref(&kernel), false, MAX_PAGES));
            // the function's own end is a parenthesis there
            assert_eq!(
                ours.split_last().map(|(end, rest)| (end.as_str(), rest)),
                Some(("end", &*theirs)),
                "{}",
                s.program.name
            );
            lines += theirs.len();
        }
    }
    assert!(lines > 10_000, "{lines} lines");
    let cut = instructions(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0x07, 0xfe, 0x00, 0x0b]);
    assert_eq!(cut, "  i32.const 7\n;; 2 bytes that are not shown\n");
}

#[test]
fn relaxed_simd_probe_is_valid_only_with_it() {
    use wasmparser::{Validator, WasmFeatures};
    let with = WasmFeatures::default();
    let without = with.difference(WasmFeatures::RELAXED_SIMD);
    let probe = relaxed_simd_probe();
    assert!(Validator::new_with_features(with).validate_all(&probe).is_ok());
    assert!(Validator::new_with_features(without).validate_all(&probe).is_err());
}

/// Not a gate: prints the speed of a 512 matmul with a 4x8 tile.
#[test]
#[ignore = "a measurement; run with --ignored --nocapture"]
fn matmul_speed() {
    for (tag, relaxed, threads) in [("mm", false, 1), ("mm_relaxed", true, 1), ("mm_threads", false, 2)] {
        let t = Target::wasm(relaxed, threads);
        let s = gradloom_tests::programs::matmul(&t, 512, 512, 512);
        let kernels = [render(&s.program, &t).expect("renders")];
        let image = image(&[&s], &kernels, threads);
        let (_, printed) = node(tag, &kernels, &image, threads, 20);
        let ms: f64 = printed.split("\"ms\":").nth(1).and_then(|s| s.split(',').next()).unwrap().parse().unwrap();
        let (gflops, bytes) = (2.0 * 512f64.powi(3) / ms / 1e6, kernels[0].body.len());
        println!("{tag}: {gflops:.1} GFLOP/s, kernel {bytes} bytes ({printed})");
    }
}
