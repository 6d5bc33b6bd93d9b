//! What the compiler makes of the benchmark's networks on each kind of target, kernel by kernel: how many there are, the opts of each, and the time
//! that the cost model predicts for it, with the resource that bounds it.
//! Every pass leaves a graph in which the rules of the spec hold that its row in the table names.
//! A change of it is seen in `tests/golden/pins`; `BLESS=1 cargo test -p gradloom-tests --test it pins` takes it over.

use gradloom_core::DType;
use gradloom_core::codegen::cost::{Cost, cost};
use gradloom_core::codegen::{Program, compile_watched};
use gradloom_core::target::{Isa, Sm, Target};
use gradloom_tests::networks::{BENCHMARKS, Net, build, kernels, load};
use gradloom_tests::targets::{changed, wgsl_hardware};
use std::fmt::Write;
use std::path::Path;

/// Microseconds with three significant digits, so that the last bits of a prediction do not show.
fn microseconds(ns: f64) -> String {
    let us = ns / 1e3;
    let digits = format!("{us:.0}").trim_start_matches('0').len();
    let unit = 10f64.powi(digits as i32 - 3);
    format!("{:.*} us", 3usize.saturating_sub(digits), (us / unit).round() * unit)
}

/// A line for each different kernel: launches, name, work, grid and workgroup, predicted time of one launch and what bounds it, opts.
fn line(p: &Program, launches: usize, c: &Cost, t: &Target) -> String {
    let mut s = format!("  {launches} x {} {} flop {} B", p.name, p.flops, p.bytes);
    if t.caps.has_local {
        let text = |v: [u32; 3]| format!("{}x{}x{}", v[0], v[1], v[2]);
        let _ = write!(s, " grid {} of {}", text(p.grid), text(p.local));
    }
    let _ = write!(s, ", {} by {}", microseconds(c.ns), c.bound);
    let opts: Vec<String> = p.opts.iter().map(ToString::to_string).collect();
    format!("{s}: {}", if opts.is_empty() { "-".into() } else { opts.join(", ") })
}

fn pinned(file: &str, t: &Target) {
    pinned_of(file, t, DType::F32, &BENCHMARKS);
}

/// The same for some of them, with weights, inputs and values of another dtype.
fn pinned_of(file: &str, t: &Target, float: DType, names: &[&str]) {
    let mut text = String::new();
    for &name in names {
        let net = Net::of(float);
        let outs = build(&net, name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let nodes = load(&net, &outs, t).unwrap_or_else(|e| panic!("{name}: {e}"));
        let list = kernels(&net, &nodes, t).unwrap_or_else(|e| panic!("{name} on {file}: {e}"));
        let (mut lines, mut ns) = (String::new(), 0.0);
        let (launches, different) = (list.iter().map(|k| k.1).sum::<usize>(), list.len());
        for (ast, launches) in list {
            let mut broken = None;
            let p = compile_watched(&ast, t, None, &mut |pass, lowering| {
                broken = broken.take().or(lowering.verify(pass).err());
            });
            let p = p.unwrap_or_else(|e| panic!("{name} on {file}: {e}"));
            assert!(broken.is_none(), "{name} on {file}: {broken:?}");
            assert_eq!(p.refused, 0, "{name} on {file}: opts that do not fit {}", p.name);
            let c = cost(&p, t);
            ns += c.ns * launches as f64;
            let _ = writeln!(lines, "{}", line(&p, launches, &c, t));
        }
        let _ = writeln!(
            text,
            "{name}: {launches} launches, {different} kernels, {}\n{}",
            microseconds(ns),
            lines.trim_end()
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/pins/{file}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).expect("the file is writable");
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(want.lines()).find(|(a, b)| a != b);
    assert!(text == want, "{file}: {differs:?}; run with BLESS=1 if the change is meant");
}

#[test]
fn avx2() {
    pinned("x86-avx2", &Target::x86(Isa::Avx2, 1));
}

#[test]
fn avx512() {
    pinned("x86-avx512", &Target::x86(Isa::Avx512, 1));
}

#[test]
fn avx512_of_two_threads() {
    pinned("x86-avx512-2", &Target::x86(Isa::Avx512, 2));
}

#[test]
fn wasm() {
    pinned("wasm", &Target::wasm(false, 1));
}

#[test]
fn webgpu_at_its_least() {
    pinned("wgsl", &Target::wgsl("webgpu"));
}

#[test]
fn webgpu_on_hardware() {
    pinned("wgsl-hardware", &changed(wgsl_hardware().with_words(), |t| t.limits.max_buffers = 10));
}

#[test]
fn webgpu_emulated() {
    pinned("wgsl-emulated", &Target::wgsl("webgpu").emulated());
}

fn cuda(major: u32, minor: u32) -> Target {
    Target::cuda("cuda", Sm::of(major, minor).expect("a known capability"))
}

#[test]
fn cuda_of_8_0() {
    pinned("cuda-sm80", &cuda(8, 0));
}

#[test]
fn cuda_of_9_0_in_f16() {
    // those without a recurrence, whose states are of f32
    let names: Vec<&str> =
        BENCHMARKS.into_iter().filter(|name| !name.starts_with("lstm") && *name != "blocks").collect();
    pinned_of("cuda-sm90a-f16", &cuda(9, 0), DType::F16, &names);
}
