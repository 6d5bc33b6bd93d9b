//! The CPU device: every sample program through the x86-64 emitter, in both instruction sets and with threads.
#![cfg(target_arch = "x86_64")]

use gradloom::cpu::{CpuDevice, detect};
use gradloom_core::DType;
use gradloom_core::device::Device;
use gradloom_core::render::x86::X86;
use gradloom_core::render::{Code, Renderer, Source};
use gradloom_core::target::{Isa, Target};
use gradloom_tests::here;
use gradloom_tests::nodes::MakeNodes;
use gradloom_tests::runner::run_samples;

fn conformance(isa: Isa, threads: usize) {
    let name = if isa == Isa::Avx2 { "cpu:avx2" } else { "cpu:avx512" };
    if here::device(name, detect().filter(|&have| have >= isa).ok_or("not this processor")).is_none() {
        return;
    }
    let mut dev = CpuDevice::with_isa(isa, threads).expect("the device opens");
    assert!(run_samples(&mut dev, &X86) > 100);
}

#[test]
fn samples_avx2() {
    conformance(Isa::Avx2, 1);
}

#[test]
fn samples_avx512() {
    conformance(Isa::Avx512, 1);
}

#[test]
fn samples_with_dot_products() {
    conformance(Isa::Avx512Vnni, 1);
    conformance(Isa::Avx512Bf16, 1);
}

#[test]
fn samples_threads() {
    conformance(Isa::Avx2, 3);
}

/// A matmul tile of `rows` x `regs` vectors: the kernel's text and its result against the sum.
fn tile(isa: Isa, rows: usize, regs: usize) -> String {
    use gradloom_core::DType::F32;
    use gradloom_core::uop::AxisKind;
    use gradloom_tests::programs::{Build, Data};

    let t = Target::x86(isa, 1);
    let (l, k) = (t.caps.lanes, 9);
    let n = regs * l;
    let value = |i: usize| (i * 7 % 23) as f64 - 11.0;
    let (a, w) = (Data::new(F32, rows * k, value), Data::new(F32, k * n, |i| value(i + 3)));
    let want = Data::new(F32, rows * n, |i| (0..k).map(|q| a.f(i / n * k + q) * w.f(q * n + i % n)).sum());
    let mut b = Build::new(&t);
    let (x, z, y) = (b.input(a), b.input(w), b.output(want));
    let (mi, ni) = (b.tile(rows, AxisKind::Upcast, false), b.tile(regs, AxisKind::Upcast, false));
    let lane = b.tile(l, AxisKind::Upcast, true);
    let (zero, none) = (b.g.float(0.0, F32), b.g.idx(0));
    let acc = b.acc(0, zero, &[mi, ni, lane]);
    let r = b.open(k, AxisKind::Reduce);
    let at = b.times(r, n as i64);
    let (av, bv) = (b.load(x, r, &[(mi, k as i64)], F32), b.load(z, at, &[(ni, l as i64), (lane, 1)], F32));
    let u = b.mul_add(acc, av, bv);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    b.store(y, none, &[(mi, n as i64), (ni, l as i64), (lane, 1)], v);
    let s = b.finish("tile");
    let code = X86.render(&s.program, &t).expect("the tile renders");
    let Code::Bytes(bytes) = &code else { panic!("machine code is bytes") };
    let text = gradloom::disasm::disassemble(bytes);
    if detect().is_none_or(|have| have < isa) {
        return text;
    }
    let mut dev = CpuDevice::with_isa(isa, 1).expect("the device opens");
    let kernel = Device::compile(&mut dev, &[Source::new(&s.program, code)]).expect("compiles")[0];
    let got = gradloom_tests::runner::run_one(&mut dev, &s, kernel).expect("runs");
    s.check(&got).unwrap_or_else(|e| panic!("{rows}x{regs} {isa:?}: {e}"));
    text
}

/// Compares with a file of `golden`, or writes it.
fn golden(name: &str, text: &str) {
    let path = format!("{}/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden file is writable");
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{name}: run with BLESS=1 if the change is meant");
}

#[test]
fn matmul_tile_stays_in_registers() {
    let text = tile(Isa::Avx2, 6, 2);
    golden("x86_tile_6x16", &text);
    assert!(!text.contains("[rsp"), "spills:\n{text}");
    assert_eq!(text.matches("vfmadd231ps").count(), 12, "{text}");
    let text = tile(Isa::Avx512, 6, 2);
    golden("x86_tile_6x32_avx512", &text);
    assert!(!text.contains("[rsp") && text.contains("zmm"), "{text}");
}

/// Lanes two apart: a load of each half, one of them by the permutation itself, whose indices stay in a register.
#[test]
fn every_other_element_is_one_permutation() {
    use gradloom_core::DType::F32;
    use gradloom_core::uop::AxisKind;
    use gradloom_tests::programs::{Build, Data};

    let t = Target::x86(Isa::Avx512, 1);
    let (l, regs, taps) = (t.caps.lanes, 3, 5);
    let value = |i: usize| (i * 7 % 23) as f64 - 11.0;
    let (x, w) = (Data::new(F32, 2 * regs * l + taps, value), Data::new(F32, taps, |i| value(i + 3)));
    let want = Data::new(F32, regs * l, |i| (0..taps).map(|q| x.f(2 * i + q) * w.f(q)).sum());
    let mut b = Build::new(&t);
    let (x, w, y) = (b.input(x), b.input(w), b.output(want));
    let (ni, lane) = (b.tile(regs, AxisKind::Upcast, false), b.tile(l, AxisKind::Upcast, true));
    let (zero, none) = (b.g.float(0.0, F32), b.g.idx(0));
    let acc = b.acc(0, zero, &[ni, lane]);
    let r = b.open(taps, AxisKind::Reduce);
    let (xv, wv) = (b.load(x, r, &[(ni, 2 * l as i64), (lane, 2)], F32), b.load(w, r, &[], F32));
    let u = b.mul_add(acc, xv, wv);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    b.store(y, none, &[(ni, l as i64), (lane, 1)], v);
    let s = b.finish("pairs");
    let code = X86.render(&s.program, &t).expect("the kernel renders");
    let Code::Bytes(bytes) = &code else { panic!("machine code is bytes") };
    let text = gradloom::disasm::disassemble(bytes);
    assert_eq!(text.matches("vpermt2ps").count(), regs, "{text}");
    // the indices, the first halves, and what is stored
    assert_eq!(text.matches("vmovups").count(), 1 + regs + regs, "{text}");
    if detect().is_some_and(|have| have >= Isa::Avx512) {
        let mut dev = CpuDevice::with_isa(Isa::Avx512, 1).expect("the device opens");
        let kernel = Device::compile(&mut dev, &[Source::new(&s.program, code)]).expect("compiles")[0];
        let got = gradloom_tests::runner::run_one(&mut dev, &s, kernel).expect("runs");
        s.check(&got).expect("every other element");
    }
}

/// More sums than registers are in a stack frame of several pages, each of which is touched in order: Windows maps a thread's stack page by page.
#[test]
fn large_frames_are_touched_page_by_page() {
    use gradloom_core::DType::F32;
    use gradloom_core::uop::AxisKind;
    use gradloom_tests::programs::{Build, Data};

    let t = Target::x86(Isa::Avx2, 1);
    let (l, sums, taps) = (t.caps.lanes, 500, 3);
    let value = |i: usize| (i * 7 % 23) as f64 - 11.0;
    let (x, w) = (Data::new(F32, sums * l + taps, value), Data::new(F32, taps, |i| value(i + 3)));
    let want = Data::new(F32, sums * l, |i| (0..taps).map(|q| x.f(i + q) * w.f(q)).sum());
    let mut b = Build::new(&t);
    let (x, w, y) = (b.input(x), b.input(w), b.output(want));
    let (ni, lane) = (b.tile(sums, AxisKind::Upcast, false), b.tile(l, AxisKind::Upcast, true));
    let (zero, none) = (b.g.float(0.0, F32), b.g.idx(0));
    let acc = b.acc(0, zero, &[ni, lane]);
    let r = b.open(taps, AxisKind::Reduce);
    let (xv, wv) = (b.load(x, r, &[(ni, l as i64), (lane, 1)], F32), b.load(w, r, &[], F32));
    let u = b.mul_add(acc, xv, wv);
    let e = b.end(r, &[u]);
    let v = b.read(acc, &[e]);
    b.store(y, none, &[(ni, l as i64), (lane, 1)], v);
    let s = b.finish("frame");
    let code = X86.render(&s.program, &t).expect("the kernel renders");
    let Code::Bytes(bytes) = &code else { panic!("machine code is bytes") };
    let text = gradloom::disasm::disassemble(bytes);
    for page in 1..=3 {
        assert!(text.contains(&format!("[rsp-{page}000h]")), "page {page}:\n{text}");
    }
    if detect().is_some() {
        // on a thread whose stack nothing else has touched
        let run = std::thread::spawn(move || {
            let mut dev = CpuDevice::with_isa(Isa::Avx2, 1).expect("the device opens");
            let kernel = Device::compile(&mut dev, &[Source::new(&s.program, code)]).expect("compiles")[0];
            let got = gradloom_tests::runner::run_one(&mut dev, &s, kernel).expect("runs");
            s.check(&got).expect("all sums");
        });
        run.join().expect("it runs to its end");
    }
}

/// The text of a kernel of dot products of three rows and two vectors.
fn dot(isa: Isa, a: DType, b: DType, group: usize) -> String {
    let t = Target::x86(isa, 1);
    let s = gradloom_tests::programs::dot(&t, a, b, group);
    match X86.render(&s.program, &t).expect("the kernel renders") {
        Code::Bytes(bytes) => gradloom::disasm::disassemble(&bytes),
        _ => panic!("machine code is bytes"),
    }
}

#[test]
fn narrow_products_are_dot_products() {
    use DType::*;
    for (a, b, group, isa) in
        [(BF16, BF16, 2, Isa::Avx512Bf16), (U8, I8, 4, Isa::Avx512Vnni), (I8, I8, 4, Isa::Avx512Vnni)]
    {
        let text = dot(isa, a, b, group);
        golden(&format!("x86_dot_{a}_{b}"), &text);
        let (dots, products) = (text.matches("vdpbf16ps").count(), text.matches("vpdpbusd").count());
        // three rows by two vectors; the sum of each vector if no factor is unsigned
        let want = if a == BF16 { (6, 0) } else { (0, if a == b { 8 } else { 6 }) };
        assert_eq!((dots, products), want, "{text}");
        assert!(!text.contains("[rsp"), "spills:\n{text}");
        // held to less, the same program has none
        for isa in [Isa::Avx2, Isa::Avx512] {
            let text = dot(isa, a, b, group);
            assert!(!text.contains("vdpbf16ps") && !text.contains("vpdpbusd"), "{text}");
            assert_eq!(text.contains("zmm"), isa == Isa::Avx512, "{text}");
        }
    }
}

/// Of all pages of the process, with code of both kinds in it.
#[cfg(target_os = "linux")]
#[test]
fn no_page_is_writable_and_executable() {
    use gradloom_core::render::llvm::LlvmRenderer;
    fn kernel(dev: &mut dyn Device, renderer: &dyn Renderer) {
        let t = dev.target().clone();
        let s = gradloom_tests::programs::matmul(&t, 8, 2 * t.caps.lanes, 8);
        let code = renderer.render(&s.program, &t).expect("the program renders");
        let k = dev.compile(&[Source::new(&s.program, code)]).expect("it compiles")[0];
        s.check(&gradloom_tests::runner::run_one(dev, &s, k).expect("it runs")).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("linux has maps");
        let has =
            |line: &str, what: &[char]| what.iter().all(|c| line.split(' ').nth(1).is_some_and(|p| p.contains(*c)));
        let own = maps.lines().filter(|l| has(l, &['x']) && !l.contains('/') && !l.contains('['));
        assert!(own.count() > 0, "code is in pages without a file:\n{maps}");
        let bad: Vec<&str> = maps.lines().filter(|l| has(l, &['w', 'x'])).collect();
        assert!(bad.is_empty(), "writable and executable: {bad:?}");
    }
    let Some(isa) = here::device("cpu", detect().ok_or("no AVX2")) else { return };
    kernel(&mut CpuDevice::with_isa(isa, 1).expect("the device opens"), &X86);
    if let Some(mut dev) = here::device("llvm", gradloom::llvm::open(1)) {
        kernel(&mut dev, &LlvmRenderer);
    }
}

#[test]
fn tiles_beyond_the_registers_spill_and_are_right() {
    for (isa, rows, regs) in [(Isa::Avx2, 8, 4), (Isa::Avx2, 3, 9), (Isa::Avx512, 12, 4), (Isa::Avx2, 30, 1)] {
        let text = tile(isa, rows, regs);
        assert!(text.contains("[rsp"), "{rows}x{regs} {isa:?} was to spill:\n{text}");
    }
}

/// What training a small convolutional network asks for: results, and gradients of input and weight.
fn convolutions(device: &str, threads: usize) -> Vec<f32> {
    use gradloom::tensor::{ConvOpts, PoolOpts};
    use gradloom::{Runtime, Tensor};
    let mut rt = Runtime::open(device, threads).expect("the device opens");
    let s = rt.session().clone();
    let mut out = Vec::new();
    for (shape, k, stride) in [([2usize, 3, 14, 24], 5usize, 1), ([3, 2, 10, 11], 3, 1), ([2, 2, 13, 23], 3, 2)] {
        let numbers = |n: usize, m: i64| (0..n as i64).map(|i| (i * i % m - m / 2) as f32 * 0.125).collect::<Vec<_>>();
        let x = Tensor::new(&s, &numbers(shape.iter().product(), 23), &shape).expect("x");
        let w = Tensor::new(&s, &numbers(4 * shape[1] * k * k, 19), &[4, shape[1], k, k]).expect("w");
        let y = x.conv(&w, None, &ConvOpts::new().stride(&[stride])).and_then(|y| y.relu()).expect("conv");
        let p = y.max_pool(&PoolOpts::new(&[2, 2])).expect("pool");
        let loss = p.mul(&p).and_then(|p| p.sum(&[], false)).expect("loss");
        for t in loss.grad(&[&x, &w]).expect("gradients").iter().chain([&y]) {
            out.extend(rt.to_vec::<f32>(t).expect("values"));
        }
    }
    out
}

#[test]
fn gradients_of_convolutions_are_those_of_the_evaluator() {
    let want = convolutions("eval", 1);
    for (device, threads) in [("cpu:avx2", 1), ("cpu", 1), ("cpu", 2)] {
        let got = convolutions(device, threads);
        assert_eq!(got.len(), want.len());
        for (i, (a, b)) in got.iter().zip(&want).enumerate() {
            assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{device} x{threads}: element {i} is {a}, wanted {b}");
        }
    }
}

/// Sums that are cut into pieces, exactly.
#[test]
fn long_sums_are_exact() {
    use gradloom::{Runtime, Tensor};
    const N: usize = 16_384;
    for threads in [1, 2] {
        let mut rt = Runtime::open("cpu", threads).expect("the device opens");
        let s = rt.session().clone();
        let [a, b]: [Vec<f32>; 2] = [7, 5].map(|m| (0..N * 16).map(|i| (i / 3 % m) as f32 - 2.0).collect());
        let (x, y) = (Tensor::new(&s, &a, &[N, 16]).expect("x"), Tensor::new(&s, &b, &[N, 16]).expect("y"));
        let product = x.t().and_then(|x| x.matmul(&y)).expect("product");
        let all = x.sum(&[], false).expect("sum");
        let got = rt.to_vec::<f32>(&product).expect("values");
        for (at, v) in got.iter().enumerate() {
            let want: f32 = (0..N).map(|r| a[r * 16 + at / 16] * b[r * 16 + at % 16]).sum();
            assert_eq!(*v, want, "element {at}, {threads} threads");
        }
        assert_eq!(rt.to_vec::<f32>(&all).expect("values"), [a.iter().sum::<f32>()]);
    }
}

/// The text of the last kernel that computes a tensor.
fn text_of(isa: Isa, make: impl Fn(&gradloom::Session) -> gradloom::Result<gradloom::Tensor>) -> String {
    text_for(Target::x86(isa, 1), make)
}

fn text_for(t: Target, make: impl Fn(&gradloom::Session) -> gradloom::Result<gradloom::Tensor>) -> String {
    let dev = gradloom_core::device::NullDevice::new(t);
    let mut rt = gradloom::Runtime::on(Box::new(dev));
    let t = make(&rt.session().clone()).expect("a graph");
    let replay = rt.realize(&[&t]).expect("compiles");
    let last = replay.plan().calls.last().expect("a kernel").program;
    match &rt.engine().program(last).expect("it was compiled").source.code {
        Code::Bytes(bytes) => gradloom::disasm::disassemble(bytes),
        _ => panic!("machine code is bytes"),
    }
}

#[test]
fn results_beyond_the_caches_are_written_past_them() {
    use gradloom::Tensor;
    for isa in [Isa::Avx2, Isa::Avx512] {
        let double = |rows: usize| text_of(isa, |s| Tensor::empty(s, DType::F32, &[rows, 1024])?.mul(2.0));
        let (small, large) = (double(1 << 10), double(1 << 14));
        assert!(!small.contains("vmovnt") && !small.contains("sfence"), "{small}");
        assert!(large.contains("vmovntps") && large.contains("sfence"), "{large}");
    }
}

#[test]
fn rows_of_sliding_windows_are_loaded_once() {
    use gradloom::Tensor;
    use gradloom::tensor::ConvOpts;
    for isa in [Isa::Avx2, Isa::Avx512] {
        let text = text_of(isa, |s| {
            let [x, w] = [[1, 8, 68, 68], [8, 1, 5, 5]].map(|shape| Tensor::empty(s, DType::F32, &shape));
            x?.conv(&w?, None, &ConvOpts::new().groups(8))
        });
        let lines = text.lines().filter(|l| l.contains("vfmadd231ps"));
        let (all, from_memory) = (lines.clone().count(), lines.filter(|l| l.contains('[')).count());
        // of the rows of a tile and those of its taps only the first and the last are read once
        assert!(all >= 20 && 4 * from_memory <= all, "{from_memory} of {all}:\n{text}");
    }
}

#[test]
fn rows_under_masks_are_loaded_once() {
    use gradloom::Tensor;
    use gradloom::tensor::ConvOpts;
    let text = text_of(Isa::Avx512, |s| {
        let [x, w] = [[1, 8, 14, 14], [8, 1, 3, 3]].map(|shape| Tensor::empty(s, DType::F32, &shape));
        x?.conv(&w?, None, &ConvOpts::new().groups(8).padding(&[1]))
    });
    let count = |what: &str| text.lines().filter(|l| l.contains(what)).count();
    let (all, masked, masks) = (count("vfmadd231ps"), count("{k1}{z},["), count("vpmovd2m"));
    // rows amid the map have one mask a column, and what a tap below reads the one above has read, as far as there are registers
    assert!(all >= 40 && 0 < masks && 3 * masks <= masked && masked < all, "{masked} and {masks} of {all}:\n{text}");
}

#[test]
fn rows_that_are_read_again_are_fetched_ahead() {
    use gradloom::Tensor;
    let rows = |n: usize| text_of(Isa::Avx512, |s| Tensor::empty(s, DType::F32, &[n, 1024])?.softmax(-1));
    // one line a vector of the last pass, of which there are four side by side; small tensors stay in the caches
    assert_eq!(rows(1 << 10).matches("prefetcht1").count(), 4);
    assert_eq!(rows(16).matches("prefetcht1").count(), 0);
}

/// Codes of blocks lie so: each line of a row is loaded once, by an instruction of its own, and all of them are fetched for the next row.
#[test]
fn every_line_of_a_row_is_fetched_ahead() {
    use gradloom::Tensor;
    let text = text_of(Isa::Avx512, |s| {
        let x = Tensor::empty(s, DType::F32, &[2048, 5, 4, 16])?;
        let line = |i: usize| x.narrow(2, i, 1)?.squeeze(2);
        let sum = line(0)?.mul(line(2)?)?.sub(line(1)?.mul(line(3)?)?)?;
        sum.sum(&[1], false)
    });
    let lines = |what: &str| text.lines().filter(|l| l.contains(what)).count();
    let loads = text.lines().filter(|l| l.contains("zmm") && l.contains('[') && !l.contains("vmovups [")).count();
    assert!(loads >= 4 && lines("prefetcht1") == loads, "{} of {loads} are fetched:\n{text}", lines("prefetcht1"));
}

/// Conditions that one choice reads are compared into mask registers and joined there, and values are those of the evaluator.
#[test]
fn conditions_of_choices_stay_in_mask_registers() {
    use gradloom::{Runtime, Session, Tensor};
    let choose = |s: &Session, n: usize| {
        let numbers = |by: usize| (0..n).map(|i| ((i * by) % 7) as u32 * 0x2aaa_aaaa).collect::<Vec<_>>();
        let [x, y] = [3, 5].map(|by| Tensor::new(s, &numbers(by), &[n]));
        let (x, y) = (x?, y?);
        let floats = |t: &Tensor| t.bitcast(DType::F32);
        // unsigned, signed and float comparisons, one of them negated, some with NaN
        let small = x.lt(&y)?.logical_and(x.bitcast(DType::I32)?.gt(y.bitcast(DType::I32)?)?)?;
        let either = small.logical_or(floats(&x)?.lt(floats(&y)?)?.logical_not()?)?;
        either.logical_xor(&x.eq(&y)?)?.select(&x, &y)
    };
    let text = text_of(Isa::Avx512, |s| choose(s, 1024));
    assert!(text.contains("vpcmpltud k") && text.contains("kandw") && text.contains("korw"), "{text}");
    assert!(!text.contains("vpmovm2d") && !text.contains("vpmovd2m"), "{text}");
    let values = |device: &str| {
        let mut rt = Runtime::open(device, 1).expect("the device opens");
        let t = choose(&rt.session().clone(), 1003).expect("a graph");
        rt.to_vec::<u32>(&t).expect("values")
    };
    let want = values("eval");
    assert!(want.iter().any(|v| *v != want[0]));
    for device in ["cpu:avx2", "cpu"] {
        assert_eq!(values(device), want, "{device}");
    }
}

/// Only the last step of a row that no vector divides is masked.
#[test]
fn rows_are_masked_at_their_end_alone() {
    use gradloom::Tensor;
    let sums = |n: usize| text_of(Isa::Avx512, |s| Tensor::empty(s, DType::F32, &[64, n])?.sum(&[1], false));
    let (even, odd) = (sums(1024), sums(1000));
    // of the four vectors of the last step two are whole, one is masked and one is empty
    assert_eq!((even.matches("{k1}").count(), odd.matches("{k1}").count()), (0, 1), "{odd}");
    assert_eq!(even.matches("vaddps zmm").count() + 4, odd.matches("vaddps zmm").count(), "{odd}");
}

/// Statistics of rows of lengths around those of vectors, with a NaN and infinities among them.
fn row_statistics(device: &str) -> Vec<f32> {
    use gradloom::{Runtime, Tensor};
    let mut rt = Runtime::open(device, 1).expect("the device opens");
    let s = rt.session().clone();
    let mut out = Vec::new();
    for n in [5, 15, 16, 17, 33, 63, 65, 129, 197, 1000] {
        let mut x: Vec<f32> = (0..n * 4).map(|i| (i * i % 37) as f32 * 0.25 - 4.0).collect();
        (x[n + n / 2], x[3 * n - 1], x[3 * n]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let x = Tensor::new(&s, &x, &[4, n]).expect("x");
        let product = x.mul(0.01).and_then(|x| x.add(1.0)).and_then(|x| x.prod(&[1], false));
        let all = [x.sum(&[1], false), x.max(&[1], false), x.min(&[1], false), x.softmax(-1), product];
        for t in all {
            out.extend(rt.to_vec::<f32>(&t.expect("a graph")).expect("values"));
        }
    }
    out
}

#[test]
fn statistics_of_rows_are_those_of_the_evaluator() {
    let want = row_statistics("eval");
    for device in ["cpu:avx2", "cpu"] {
        for (i, (a, b)) in row_statistics(device).iter().zip(&want).enumerate() {
            let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * (1.0 + b.abs());
            assert!(same, "{device}: element {i} is {a}, wanted {b}");
        }
    }
}

/// An opt that would make one reduction run over the axis of another is refused.
#[test]
fn axes_of_different_reductions_do_not_change_places() {
    use gradloom_core::codegen::Opt;
    use gradloom_core::codegen::axes::Kernel;
    use gradloom_core::schedule::Ast;
    use gradloom_core::uop::{AxisKind, Graph, Op, ReduceOp};
    let mut g = Graph::new();
    let (n, t) = (8, Target::x86(Isa::Avx2, 1));
    let row = g.range(n, 0, AxisKind::Loop);
    let steps = [1, 2, 3].map(|id| g.range(n, id, AxisKind::Reduce));
    let (from, to, c) = (g.param(1, DType::F32, n * n), g.param(0, DType::F32, n), g.idx(n as i64));
    let [first, second, third] = steps.map(|r| {
        let start = g.binary(Op::Mul, row, c);
        let at = g.binary(Op::Add, start, r);
        let index = g.index(from, at);
        g.load(index)
    });
    let most = g.reduce_over(first, ReduceOp::Max, &steps[..1]);
    let product = g.binary(Op::Mul, second, third);
    let product = g.binary(Op::Mul, product, most);
    let sum = g.reduce_over(product, ReduceOp::Add, &steps[1..]);
    let index = g.index(to, row);
    let store = g.store(index, sum);
    let sink = g.sink(&[store]);
    let swap = |a: u8, b: u8| {
        let mut k = Kernel::new(&Ast::new(g.clone(), sink));
        k.apply(&Opt::swap(a, b), &t)
    };
    assert!(swap(1, 2).is_err() && swap(3, 1).is_err());
    swap(2, 3).expect("two axes of one reduction");
}

/// What lies outside of a window is zero, also times infinity; and it costs no branch at each element.
#[test]
fn padding_is_read_from_zeros() {
    use gradloom::tensor::ConvOpts;
    use gradloom::{Runtime, Tensor};
    let conv = |x: &Tensor, w: &Tensor| x.conv(w, None, &ConvOpts::new().padding(&[1]));
    let empty = |s: &gradloom::Session, shape: &[usize]| Tensor::empty(s, DType::F32, shape);
    // a machine on which padding is not stored
    let mut t = Target::x86(Isa::Avx512, 1);
    t.machine.padded_load_ns = [0.0; 2];
    let text = text_for(t, |s| conv(&empty(s, &[1, 32, 14, 14])?, &empty(s, &[32, 32, 3, 3])?));
    let (loads, branches) = (text.matches("vbroadcastss").count(), text.matches(" je ").count());
    assert!(text.contains("cmove") && loads > 20 && branches == 0, "{loads} loads, {branches} branches:\n{text}");
    let run = |device: &str| -> Vec<f32> {
        let mut rt = Runtime::open(device, 1).expect("the device opens");
        let s = rt.session().clone();
        let mut w: Vec<f32> = (0..32 * 32 * 9).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
        (w[0], w[32 * 9 * 5 + 8]) = (f32::INFINITY, f32::NEG_INFINITY);
        let x: Vec<f32> = (0..32 * 196).map(|i| (i * 5 % 19) as f32 - 8.5).collect();
        let x = Tensor::new(&s, &x, &[1, 32, 14, 14]).expect("x");
        let y = conv(&x, &Tensor::new(&s, &w, &[32, 32, 3, 3]).expect("w")).expect("conv");
        rt.to_vec::<f32>(&y).expect("values")
    };
    let want = run("eval");
    assert!(want.iter().any(|v| v.is_nan()) && want.iter().any(|v| v.is_finite()));
    for device in ["cpu:avx2", "cpu"] {
        for (i, (a, b)) in run(device).iter().zip(&want).enumerate() {
            assert!(a == b || a.is_nan() && b.is_nan(), "{device}: element {i} is {a}, wanted {b}");
        }
    }
}
