//! Quantised weights on devices: the same numbers as decoded on the host, in small memory.

use gradloom::Runtime;
use gradloom::io::gguf::{self, Data, Kind, quantize_q8_0};
use gradloom::io::{HostTensor, npz, weights};
use std::path::Path;
use std::sync::Arc;

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/io").join(name)).unwrap()
}

fn blocks_decode_on(device: &str) {
    let mut rt = Runtime::open(device, 2).unwrap();
    let want = npz::read(&fixture("quants.npz")).unwrap();
    for (name, t) in weights::tensors(rt.session(), Arc::new(fixture("quants.gguf"))).unwrap() {
        let Some(want) = want.iter().find(|w| w.0 == name) else { continue };
        let t = t.cast(gradloom::DType::F32).unwrap();
        assert!(rt.read(&t).unwrap().data == want.1.data, "{name} on {device}");
    }
}

#[test]
fn blocks_decode_to_the_same_bits() {
    blocks_decode_on("eval");
    #[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
    blocks_decode_on("cpu");
}

/// Products of a vector with each matrix, without its elements.
fn blocks_are_multiplied_on(device: &str, activations: gguf::Activations) {
    if device == "cuda" {
        crate::emulator::load();
    }
    let Some(dev) = gradloom_tests::here::device(device, gradloom::open(device, 2)) else { return };
    let mut rt = Runtime::with_host(dev, gradloom::NativeHost::without_cache());
    let file = fixture("quants.gguf");
    let index = gguf::Gguf::parse(&file).unwrap();
    let mut kinds = 0;
    for (entry, rows) in index.entries.iter().flat_map(|e| [2, 7, 16, 96, 128].map(|rows| (e, rows))) {
        let (name, cols) = (&entry.name, entry.shape.last().copied().unwrap_or(0));
        // the fixture's rows again and again, each time from another block on
        let row = entry.kind.block_bytes() * (cols / entry.kind.block_elems()).max(1);
        let raw = entry.bytes(&file).unwrap();
        if entry.kind.plain().is_some() || raw.len() < row || cols == 0 {
            continue;
        }
        let blocks = raw.chunks_exact(entry.kind.block_bytes()).cycle().skip(rows % 3);
        let raw: Vec<u8> = blocks.take(rows * row / entry.kind.block_bytes()).flatten().copied().collect();
        let plain = gguf::decode(entry.kind, &[rows, cols], &raw).unwrap().to_f64();
        let own = gguf::write(&[], &[Data { name: "w", kind: entry.kind, shape: &[rows, cols], bytes: &raw }]).unwrap();
        let own = own.into();
        let Some((_, w, Some(packed))) =
            gguf::matrices(rt.session(), &own, &|_| gguf::Use::Product(activations)).unwrap().pop()
        else {
            panic!("{name}: a kind without blocks to multiply with")
        };
        assert_eq!(packed.shape(), [rows, cols], "{name}");
        assert_eq!(rt.read(&w).unwrap().to_f64(), plain, "{name}, {rows} rows on {device}");
        let in_order = gguf::matrices(rt.session(), &own, &|_| gguf::Use::Rows).unwrap().pop();
        let Some((_, w, None)) = in_order else { panic!("{name}: rows that are taken have no blocks") };
        assert_eq!(rt.read(&w).unwrap().to_f64(), plain, "{name}, {rows} rows in order on {device}");
        let x: Vec<f32> = (0..cols).map(|i| ((i * 7919) % 257) as f32 / 64.0 - 2.0).collect();
        let x_t = rt_tensor(&rt, &x, &[cols]);
        let got = rt.read(&packed.product(&x_t).unwrap()).unwrap().to_f64();
        assert_eq!(got.len(), rows, "{name}");
        for (row, got) in plain.chunks(cols).zip(&got) {
            let terms = || row.iter().zip(&x).map(|(w, x)| w * f64::from(*x));
            let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            assert!((got - want).abs() <= 2e-6 * size, "{name}, {rows} rows on {device}: {got} is not {want}");
        }
        assert!(packed.product(&x_t.narrow(0, 0, cols / 2).unwrap()).is_err(), "{name}: half a vector");
        kinds += 1;
    }
    assert!(kinds >= 20 * 5, "{kinds} matrices");
}

#[test]
fn vectors_are_multiplied_with_blocks() {
    for device in ["eval", "cpu", "c", "wgpu"] {
        blocks_are_multiplied_on(device, gguf::Activations::F32);
    }
}

/// Of matrices whose codes are words, row by row, as GPUs have them.
#[test]
fn vectors_are_multiplied_with_words_of_rows() {
    for device in ["eval", "cpu", "wgpu"] {
        blocks_are_multiplied_on(device, gguf::Activations::F16);
    }
    #[cfg(target_os = "linux")]
    blocks_are_multiplied_on("cuda", gguf::Activations::F16);
}

/// Products of rounded vectors with each matrix: as a sum over each 32 integers, exact, with their scale.
fn rounded_vectors_are_multiplied_on(device: &str, activations: gguf::Activations) {
    if device == "cuda" {
        crate::emulator::load();
    }
    let Some(dev) = gradloom_tests::here::device(device, gradloom::open(device, 2)) else { return };
    let mut rt = Runtime::with_host(dev, gradloom::NativeHost::without_cache());
    let file = fixture("quants.gguf");
    let index = gguf::Gguf::parse(&file).unwrap();
    let mut kinds = 0;
    let sizes = if device == "eval" { &[(16, 1)][..] } else { &[(16, 1), (96, 3), (128, 8)] };
    for (entry, &(rows, n)) in index.entries.iter().flat_map(|e| sizes.iter().map(move |s| (e, s))) {
        let name = &entry.name;
        if entry.kind.plain().is_some() || entry.range.is_empty() {
            continue;
        }
        let cols = 2 * entry.kind.block_elems().max(32);
        let blocks = entry.bytes(&file).unwrap().chunks_exact(entry.kind.block_bytes()).cycle().skip(rows % 3);
        let raw: Vec<u8> = blocks.take(rows * cols / entry.kind.block_elems()).flatten().copied().collect();
        let plain = gguf::decode(entry.kind, &[rows, cols], &raw).unwrap().to_f64();
        let own = gguf::write(&[], &[Data { name: "w", kind: entry.kind, shape: &[rows, cols], bytes: &raw }]).unwrap();
        let list = gguf::matrices(rt.session(), &own.into(), &|_| gguf::Use::Product(activations)).unwrap().pop();
        let Some((_, w, Some(packed))) = list else { panic!("{name}: a kind without blocks to multiply with") };
        let Some(words) = packed.words() else { panic!("{name}: a kind without integer products") };
        assert_eq!(rt.read(&w).unwrap().to_f64(), plain, "{name}, {rows} rows on {device}");
        // the last vector is zero, and one of the first has a scale of its own for each 32
        let x = |i: usize| ((i * 7919) % 257) as f32 / 64.0 - 2.0;
        let x: Vec<f32> = (0..n * cols)
            .map(|i| if n > 1 && i / cols == n - 1 { 0.0 } else { x(i) * (1 + i / 32 % 5) as f32 })
            .collect();
        let x_t = rt_tensor(&rt, &x, &[n, cols]);
        let got = rt.read(&words.products(&x_t).unwrap()).unwrap().to_f64();
        assert_eq!(got.len(), n * rows, "{name}");
        let most = if activations == gguf::Activations::I8 { 127.0 } else { 127.0 * 256.0 + 127.0 };
        let rounded: Vec<f64> = x
            .chunks(32)
            .flat_map(|x| {
                let scale = x.iter().fold(0.0f32, |m, x| m.max(x.abs())) * (1.0 / most);
                let turn = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                x.iter().map(move |x| f64::from((x * turn).round_ties_even() * scale)).collect::<Vec<_>>()
            })
            .collect();
        for (i, got) in got.iter().enumerate() {
            let (row, x) = (&plain[i % rows * cols..][..cols], &rounded[i / rows * cols..][..cols]);
            let terms = || row.iter().zip(x).map(|(w, x)| w * x);
            let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            assert!((got - want).abs() <= 4e-6 * size, "{name}, {rows} rows on {device}: {i} is {got}, not {want}");
        }
        let half = x_t.narrow(1, 0, cols / 2).unwrap();
        assert!(words.products(&half).is_err(), "{name}: half a vector");
        kinds += 1;
    }
    assert!(kinds >= 20 * sizes.len(), "{kinds} matrices");
}

#[test]
fn rounded_vectors_are_multiplied_with_blocks() {
    use gguf::Activations::{I8, I16, I16Pairs};
    let (long, short) = (I16Pairs { short: false, several: true }, I16Pairs { short: true, several: true });
    for (device, activations) in [
        ("cpu", I8),
        ("cpu", I16),
        ("cpu", long),
        ("cpu:avx512", I8),
        ("cpu:avx2", I16),
        ("cpu:avx2", long),
        ("cpu:avx2", short),
        ("eval", I16),
        ("eval", long),
        ("eval", short),
    ] {
        rounded_vectors_are_multiplied_on(device, activations);
    }
    #[cfg(target_os = "linux")]
    rounded_vectors_are_multiplied_on("cuda", I16);
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn a_product_with_packed_weights_keeps_them_packed() {
    let (n, k) = (1024, 2048);
    let w: Vec<f32> = (0..n * k).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let blocks = quantize_q8_0(&w).unwrap();
    let file = gguf::write(&[], &[Data { name: "w", kind: Kind::Q8_0, shape: &[n, k], bytes: &blocks }]).unwrap();
    let plain = gguf::decode(Kind::Q8_0, &[n, k], &blocks).unwrap().to_f64();
    let x: Vec<f32> = (0..k).map(|i| (i % 13) as f32 - 6.0).collect();
    let mut rt = Runtime::open("cpu", 2).unwrap();
    let list = weights::tensors(rt.session(), Arc::new(file)).unwrap();
    let x = rt_tensor(&rt, &x, &[1, k]);
    let y = x.matmul(&list[0].1.transpose(0, 1).unwrap()).unwrap();
    let got = rt.read(&y).unwrap().to_f64();
    for (row, got) in plain.chunks(k).zip(&got) {
        let want: f64 = row.iter().enumerate().map(|(i, w)| w * ((i % 13) as f64 - 6.0)).sum();
        assert!((got - want).abs() < 1e-2, "{got} is not {want}");
    }
    let peak = rt.counters().peak_bytes;
    assert!(peak < n * k * 2, "{peak} bytes: the weights were unpacked");
}

fn rt_tensor(rt: &Runtime, x: &[f32], shape: &[usize]) -> gradloom::Tensor {
    let t = HostTensor::from_f32(shape.to_vec(), x).unwrap();
    gradloom::Tensor::from_bytes(rt.session(), t.dtype, shape, gradloom::engine::Bytes::new(t.data)).unwrap()
}
