//! The WASM renderer: every sample program is rendered, validated, linked into one module, and run by node.

use gradloom_core::render::wasm::{DriverStep, Kernel, MAX_PAGES, link, render};
use gradloom_core::target::Target;
use gradloom_tests::programs::{Sample, samples};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where in the memory image what is.
struct Image {
    bytes: Vec<u8>,
    steps: usize,
    scratch: usize,
    sync: usize,
    /// Address of each sample's buffers.
    bufs: Vec<Vec<usize>>,
}

/// A memory image with the samples' data, and a step per sample that runs kernel `i`.
fn image(samples: &[&Sample], kernels: &[Kernel]) -> Image {
    let mut bytes = vec![0; 64];
    let mut put = |data: &[u8]| {
        let at = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(16), 0xAA);
        at
    };
    let words = |v: &[u32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut bufs = Vec::new();
    let mut steps = Vec::new();
    for (i, s) in samples.iter().enumerate() {
        let at: Vec<usize> = s.data.iter().map(|d| put(&d.bytes())).collect();
        let table = put(&words(&at.iter().map(|&a| a as u32).collect::<Vec<_>>()));
        let vars = put(&words(&s.vars));
        let step = DriverStep { kernel: i as u32, bufs: table as u32, vars: vars as u32, grid: s.program.grid[0] };
        steps.extend(step.to_bytes());
        bufs.push(at);
    }
    let steps = put(&steps);
    let sync = put(&[0; 64]);
    let scratch = put(&vec![0xFF; kernels.iter().map(|k| k.scratch as usize).max().unwrap_or(0)]);
    Image { bytes, steps, scratch, sync, bufs }
}

fn temp(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");
    std::fs::create_dir_all(&dir).expect("a folder for temporary files");
    dir.join(name)
}

/// Runs the image in node; the memory afterwards and what node printed.
fn node(tag: &str, module: &[u8], image: &Image, n: usize, repeat: usize, flags: &[&str]) -> (Vec<u8>, String) {
    let (m, i, o) = (temp(&format!("{tag}.wasm")), temp(&format!("{tag}.in")), temp(&format!("{tag}.out")));
    std::fs::write(&m, module).unwrap();
    std::fs::write(&i, &image.bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lib/wasm_run.mjs");
    let numbers = [image.steps, n, image.scratch, image.sync, repeat].map(|v| v.to_string());
    let out = Command::new("node").args(flags).arg(script).args([&m, &i, &o]).args(&numbers).output().expect("node");
    assert!(out.status.success(), "node: {}", String::from_utf8_lossy(&out.stderr));
    (std::fs::read(&o).unwrap(), String::from_utf8_lossy(&out.stdout).trim().to_string())
}

fn validate(module: &[u8]) {
    let features = wasmparser::WasmFeatures::default();
    if let Err(e) = wasmparser::Validator::new_with_features(features).validate_all(module) {
        panic!("the linked module is not valid: {e}");
    }
}

/// Renders, links, validates, runs and compares all samples of a target.
fn check_all(tag: &str, t: &Target, flags: &[&str]) {
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
    let module = link(&kernels, false, MAX_PAGES);
    validate(&module);
    let image = image(&batch, &kernels);
    let (memory, printed) = node(tag, &module, &image, batch.len(), 0, flags);
    for (s, bufs) in batch.iter().zip(&image.bufs) {
        let got: Vec<Vec<u8>> =
            s.data.iter().zip(bufs).map(|(d, &at)| memory[at..at + d.bytes().len()].to_vec()).collect();
        failures.extend(s.check(&got).err());
    }
    assert!(failures.is_empty(), "{} of {} fail ({printed}):\n{}", failures.len(), all.len(), failures.join("\n"));
    assert!(printed.contains("\"failed\":[]"), "{printed}");
    println!("{tag}: {} samples, module {} bytes, {printed}", all.len(), module.len());
}

#[test]
fn samples_plain() {
    check_all("plain", &Target::wasm(false, 1), &[]);
}

#[test]
fn samples_relaxed() {
    check_all("relaxed", &Target::wasm(true, 1), &["--experimental-wasm-relaxed-simd"]);
}

#[test]
fn shared_module_is_valid() {
    let t = Target::wasm(false, 4);
    let kernels: Vec<Kernel> = samples(&t).iter().filter_map(|s| render(&s.program, &t).ok()).collect();
    validate(&link(&kernels, true, MAX_PAGES));
}
