//! The CPU device: every sample program through the x86-64 emitter, in both instruction sets and with threads.
#![cfg(all(unix, target_arch = "x86_64"))]

use gradloom::cpu::{CpuDevice, detect};
use gradloom_core::render::x86::X86;
use gradloom_core::target::Isa;
use gradloom_tests::runner::run_samples;

fn conformance(isa: Isa, threads: usize) {
    if detect().is_none_or(|have| have < isa) {
        eprintln!("this machine has no {isa:?}: not tested");
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
fn samples_threads() {
    conformance(Isa::Avx2, 3);
}

/// A matmul tile of `rows` x `regs` vectors: the kernel's text and its result against the sum.
fn tile(isa: Isa, rows: usize, regs: usize) -> String {
    use gradloom_core::DType::F32;
    use gradloom_core::render::{Code, Renderer, Source};
    use gradloom_core::target::Target;
    use gradloom_core::uop::AxisKind;
    use gradloom_tests::programs::{Build, Data};

    let t = Target::x86(isa, 1);
    let (l, k) = (t.lanes, 9);
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
    let kernel = gradloom::device::Device::compile(&mut dev, &[Source::new(&s.program, code)]).expect("compiles")[0];
    let got = gradloom_tests::runner::run_one(&mut dev, &s, kernel).expect("runs");
    s.check(&got).unwrap_or_else(|e| panic!("{rows}x{regs} {isa:?}: {e}"));
    text
}

#[test]
fn matmul_tile_stays_in_registers() {
    let text = tile(Isa::Avx2, 6, 2);
    let golden = include_str!("../golden/x86_tile_6x16.txt");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/x86_tile_6x16.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).expect("the golden file is writable");
        return;
    }
    assert!(!text.contains("[rsp"), "spills:\n{text}");
    assert_eq!(text.matches("vfmadd231ps").count(), 12, "{text}");
    assert_eq!(text, golden, "run with BLESS=1 if the change is meant");
}

#[test]
fn tiles_beyond_the_registers_spill_and_are_right() {
    for (isa, rows, regs) in [(Isa::Avx2, 8, 4), (Isa::Avx2, 3, 9), (Isa::Avx512, 12, 4), (Isa::Avx2, 30, 1)] {
        let text = tile(isa, rows, regs);
        assert!(text.contains("[rsp"), "{rows}x{regs} {isa:?} was to spill:\n{text}");
    }
}
