//! Language models whose matrices are quantised, against the same models with their elements as f32.

use super::llm::{apart, close, folder, temp};
use gradloom::llm::{Activations, LanguageModel, LoadOptions};
use gradloom::{DType, NativeHost};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::gguf::{self, Data, Gguf, Kind, Value};
use gradloom_tests::here;
use std::path::Path;

/// A generator of bytes (linear congruential).
fn random_bytes(mut seed: u32) -> impl FnMut() -> u8 {
    move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    }
}

/// Blocks that stand for numbers about as large as a layer's weights.
fn blocks(kind: Kind, elems: usize) -> Vec<u8> {
    let scale: u16 = if kind == Kind::Q8_0 { 0x1a00 } else { 0x2800 };
    let mut byte = random_bytes(1);
    let mut out = Vec::new();
    for _ in 0..elems / kind.block_elems() {
        let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| byte()).collect();
        block[..2].copy_from_slice(&(scale | u16::from(byte())).to_le_bytes());
        match kind {
            Kind::Q4_1 | Kind::Q5_1 => block[2..4].copy_from_slice(&(0xb400 | u16::from(byte())).to_le_bytes()),
            Kind::MXFP4 => block[0] = 120,
            _ => {}
        }
        out.extend(block);
    }
    out
}

/// Activations far beyond what f16 holds are rounded as others are.
#[test]
fn large_activations_are_rounded_too() {
    let file = std::fs::read(folder().join("llama.gguf")).expect("a file");
    let index = Gguf::parse(&file).expect("a GGUF file");
    let metadata: Vec<_> = index.metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let of = |e: &gguf::Entry| {
        let plain = gguf::decode(e.kind, &e.shape, e.bytes(&file).expect("bytes")).expect("elements").to_f64();
        let by = if e.name.ends_with("ffn_norm.weight") { 1e5 } else { 1.0 };
        match e.shape.len() {
            1 => (Kind::F32, plain.iter().flat_map(|x| ((x * by) as f32).to_le_bytes()).collect::<Vec<u8>>()),
            _ => (Kind::F16, plain.iter().flat_map(|x| half::f16::from_f64(*x).to_le_bytes()).collect()),
        }
    };
    let tensors: Vec<_> = index.entries.iter().map(|e| (e, of(e))).collect();
    let list: Vec<Data<'_>> =
        tensors.iter().map(|(e, (kind, bytes))| Data { name: &e.name, kind: *kind, shape: &e.shape, bytes }).collect();
    let path = std::env::temp_dir().join(format!("gradloom-llm-large-{}.gguf", std::process::id()));
    std::fs::write(&path, gguf::write(&metadata, &list).expect("a file")).expect("written");
    let logits = |activations: Activations| {
        let device = gradloom::open("eval", 1).expect("a device");
        let options = LoadOptions { capacity: 64, activations: Some(activations), ..LoadOptions::default() };
        let mut m = LanguageModel::load_with(&path, device, NativeHost::without_cache(), &options).expect("a model");
        m.begin(&[5, 9, 14, 3, 40, 33, 21, 2]).expect("read");
        m.logits().expect("logits")
    };
    let (want, got) = (logits(Activations::F32), logits(Activations::F16));
    let most = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
    let off = got.iter().zip(&want).fold(0.0f32, |m, (g, w)| if g.is_nan() { f32::NAN } else { m.max((g - w).abs()) });
    assert!(most > 0.0 && off <= 2e-3 * most, "{off} off, {most} the largest");
    std::fs::remove_file(&path).expect("removed");
}

/// A model whose matrices are quantised gives what it gives with their elements as f32.
#[test]
fn quantised_weights_are_read_as_their_elements() {
    let file = std::fs::read(folder().join("llama.gguf")).expect("a file");
    let index = Gguf::parse(&file).expect("a GGUF file");
    let metadata: Vec<_> = index.metadata.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    let temp = std::env::temp_dir().join(format!("gradloom-llm-blocks-{}", std::process::id()));
    std::fs::create_dir_all(&temp).expect("a folder");
    for kind in [Kind::Q8_0, Kind::Q4_0, Kind::Q4_1, Kind::Q5_0, Kind::Q5_1, Kind::IQ4_NL, Kind::MXFP4] {
        let written = |packed: bool| {
            let of = |e: &gguf::Entry| match e.shape[..] {
                [rows, width] if width % kind.block_elems() == 0 => {
                    let raw = blocks(kind, rows * width);
                    let plain = gguf::decode(kind, &e.shape, &raw).expect("elements");
                    if packed { (kind, raw) } else { (Kind::F32, plain.data) }
                }
                _ => (e.kind, e.bytes(&file).expect("bytes").to_vec()),
            };
            let tensors: Vec<_> = index.entries.iter().map(|e| (e, of(e))).collect();
            let list: Vec<Data<'_>> = tensors
                .iter()
                .map(|(e, (kind, bytes))| Data { name: &e.name, kind: *kind, shape: &e.shape, bytes })
                .collect();
            let path = temp.join(if packed { "packed.gguf" } else { "plain.gguf" });
            std::fs::write(&path, gguf::write(&metadata, &list).expect("a file")).expect("written");
            path
        };
        let (packed, plain) = (written(true), written(false));
        let logits = |path: &Path, device: &str, activations: Activations| -> Option<Vec<f32>> {
            let device = here::device(device, gradloom::open(device, 2))?;
            let host = NativeHost::without_cache();
            let options = LoadOptions { capacity: 64, activations: Some(activations), ..LoadOptions::default() };
            let mut m = LanguageModel::load_with(path, device, host, &options).expect("a model");
            m.begin(&[5, 9, 14, 3, 40, 33, 21, 2, 7]).expect("read");
            Some(m.logits().expect("logits"))
        };
        let want: Vec<f64> =
            logits(&plain, "cpu", Activations::F32).expect("a device").iter().map(|x| f64::from(*x)).collect();
        for device in ["cpu", "cpu:avx2", "wgpu"] {
            if let Some(got) = logits(&packed, device, Activations::F32) {
                close(&format!("{} on {device}", kind.name()), &got, &want);
            }
        }
        // what rounding changes is little, and the same on all devices
        let most = want.iter().fold(0.0f64, |m, w| m.max(w.abs()));
        // Q5_0 was 1.01e-4 and IQ4_NL 1.17e-4 off, the others at most 5e-5
        let sixteen = if matches!(kind, Kind::Q5_0 | Kind::IQ4_NL | Kind::MXFP4) { 2e-4 } else { 1e-4 };
        for (activations, room) in [(Activations::I16, sixteen), (Activations::I8, 3e-2), (Activations::F16, 2e-3)] {
            let name = format!("{} and {activations:?}", kind.name());
            let Some(got) = logits(&packed, "cpu", activations) else { continue };
            let off = got.iter().zip(&want).fold(0.0f64, |m, (g, w)| m.max((f64::from(*g) - w).abs())) / most;
            println!("{name}: {off:.1e} of the largest logit off");
            assert!(off <= room, "{name}: {off} off");
            #[cfg(target_os = "linux")]
            if activations == Activations::F16 {
                crate::emulator::load();
                let got = logits(&packed, "cuda", activations).expect("an emulated GPU");
                let off = got.iter().zip(&want).fold(0.0f64, |m, (g, w)| m.max((f64::from(*g) - w).abs())) / most;
                assert!(off <= room, "{name} on cuda: {off} off");
                continue;
            }
            if let Some(other) = logits(&packed, "cpu:avx2", activations) {
                let got: Vec<f64> = got.iter().map(|x| f64::from(*x)).collect();
                close(&format!("{name} on cpu:avx2"), &other, &got);
            }
        }
    }
    std::fs::remove_dir_all(&temp).expect("removed");
}

/// Random blocks of a kind whose numbers are about as large as a layer's weights of 256 inputs.
fn blocks_of_256(kind: Kind, elems: usize) -> Vec<u8> {
    let scales: &[(usize, f32)] = match kind {
        Kind::Q8_0 => &[(0, 8e-4)],
        Kind::Q4_0 => &[(0, 0.0135)],
        Kind::Q5_1 => &[(0, 0.0065), (2, -0.1)],
        Kind::Q2_K => &[(80, 0.006), (82, 0.009)],
        Kind::Q3_K => &[(108, 0.0014)],
        Kind::Q4_K => &[(0, 3e-4), (2, 0.00225)],
        Kind::Q5_K => &[(0, 1.5e-4), (2, 0.0023)],
        Kind::Q6_K => &[(208, 4.4e-5)],
        Kind::IQ4_XS => &[(0, 5e-5)],
        Kind::TQ1_0 => &[(52, 0.05)],
        Kind::TQ2_0 => &[(64, 0.05)],
        Kind::IQ3_XXS => &[(0, 4e-4)],
        Kind::IQ3_S => &[(0, 4e-4)],
        Kind::IQ2_XXS | Kind::IQ2_XS | Kind::IQ2_S => &[(0, 6e-4)],
        Kind::IQ1_S => &[(0, 0.01)],
        _ => &[],
    };
    let mut byte = random_bytes(kind as u32 + 1);
    let mut out = Vec::new();
    for _ in 0..elems / kind.block_elems() {
        let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| byte()).collect();
        for &(at, scale) in scales {
            let scale = half::f16::from_f32(scale * (1.0 + f32::from(byte()) / 512.0));
            block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
        }
        match kind {
            Kind::MXFP4 => block[0] = 120 + byte() % 2,
            Kind::NVFP4 => block[..4].iter_mut().for_each(|scale| *scale = 16 + *scale % 8),
            // the scale is in the upper four bits of four words of 16 bits
            Kind::IQ1_M => {
                let scale = half::f16::from_f32(0.01).to_bits();
                (0..4).for_each(|i| block[49 + 2 * i] = block[49 + 2 * i] & 15 | ((scale >> (4 * i) & 15) as u8) << 4);
            }
            _ => {}
        }
        out.extend(block);
    }
    out
}

/// A model of width 256, with a mixture of experts or without, whose matrices are of this kind, or have the same
/// elements as f32.
fn of_width_256(path: &Path, kind: Kind, has_experts: bool, packed: bool) {
    let name = if has_experts { "qwen3moe" } else { "qwen3" };
    let count = |n: i64| Value::Scalar(DType::U32, Scalar::Int(n));
    let keys = [
        ("block_count", count(2)),
        ("context_length", count(64)),
        ("embedding_length", count(256)),
        ("attention.head_count", count(4)),
        ("attention.head_count_kv", count(2)),
        ("attention.key_length", count(64)),
        ("attention.layer_norm_rms_epsilon", Value::Scalar(DType::F32, Scalar::float(1e-6))),
        ("expert_count", count(if has_experts { 4 } else { 0 })),
        ("expert_used_count", count(2)),
    ];
    let keys: Vec<(String, Value)> = keys.map(|(key, value)| (format!("{name}.{key}"), value)).to_vec();
    let mut metadata: Vec<(&str, Value)> = keys.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    metadata.push(("general.architecture", Value::Str(name.into())));
    let mut shapes = vec![
        ("token_embd".to_owned(), vec![48, 256]),
        ("output_norm".into(), vec![256]),
        ("output".into(), vec![48, 256]),
    ];
    for i in 0..2 {
        let mut of = |part: &str, shape: &[usize]| shapes.push((format!("blk.{i}.{part}"), shape.to_vec()));
        of("attn_norm", &[256]);
        of("ffn_norm", &[256]);
        of("attn_q_norm", &[64]);
        of("attn_k_norm", &[64]);
        of("attn_q", &[256, 256]);
        of("attn_k", &[128, 256]);
        of("attn_v", &[128, 256]);
        of("attn_output", &[256, 256]);
        let (end, lead) = if has_experts { ("_exps", &[4][..]) } else { ("", &[][..]) };
        of(&format!("ffn_gate{end}"), &[lead, &[512, 256]].concat());
        of(&format!("ffn_up{end}"), &[lead, &[512, 256]].concat());
        of(&format!("ffn_down{end}"), &[lead, &[256, 512]].concat());
        if has_experts {
            of("ffn_gate_inp", &[4, 256]);
        }
    }
    let made = |(name, shape): &(String, Vec<usize>)| {
        let elems: usize = shape.iter().product();
        if shape.len() == 1 || name.ends_with("gate_inp") {
            let spread = if shape.len() == 1 { 1.0 } else { 0.1 };
            let one =
                |i: usize| ((i * 7919 % 257) as f32 / 257.0 - 0.5) * spread + if spread == 1.0 { 1.0 } else { 0.0 };
            return (format!("{name}.weight"), Kind::F32, (0..elems).flat_map(|i| one(i).to_le_bytes()).collect());
        }
        let raw = blocks_of_256(kind, elems);
        match packed {
            true => (format!("{name}.weight"), kind, raw),
            false => (format!("{name}.weight"), Kind::F32, gguf::decode(kind, shape, &raw).expect("elements").data),
        }
    };
    let tensors: Vec<(String, Kind, Vec<u8>)> = shapes.iter().map(made).collect();
    let list = tensors.iter().zip(&shapes);
    let list: Vec<Data<'_>> =
        list.map(|((name, kind, bytes), (_, shape))| Data { name, kind: *kind, shape, bytes }).collect();
    std::fs::write(path, gguf::write(&metadata, &list).expect("a file")).expect("written");
}

/// Kinds of blocks of up to 256 elements, in products and in mixtures of experts, whose chosen experts alone are read.
#[test]
fn blocks_of_256_elements_are_read_as_their_elements() {
    let temp = temp("k-quants");
    let (packed, plain) = (temp.join("packed.gguf"), temp.join("plain.gguf"));
    let logits = |path: &Path, device: &str, activations: Activations| -> Option<(Vec<f32>, usize)> {
        let device = here::device(device, gradloom::open(device, 2))?;
        let options = LoadOptions { capacity: 64, activations: Some(activations), ..LoadOptions::default() };
        let host = NativeHost::without_cache();
        let mut m = LanguageModel::load_with(path, device, host, &options).expect("a model");
        // Several tokens at once, and one by one
        m.begin(&[5, 9, 14, 3, 40, 33, 21, 2]).expect("read");
        m.read(&[7]).expect("read");
        m.read(&[30]).expect("read");
        let peak = m.counters().peak_bytes;
        Some((m.logits().expect("logits"), peak))
    };
    let k = [Kind::Q2_K, Kind::Q3_K, Kind::Q4_K, Kind::Q5_K, Kind::Q6_K];
    let books = [Kind::IQ3_XXS, Kind::IQ3_S, Kind::IQ2_XXS, Kind::IQ2_XS, Kind::IQ2_S, Kind::IQ1_S, Kind::IQ1_M];
    let others = [Kind::MXFP4, Kind::NVFP4, Kind::IQ4_XS, Kind::Q5_1, Kind::TQ1_0, Kind::TQ2_0];
    let dense = k.into_iter().chain(others).chain(books).map(|kind| (kind, false));
    let mixed = [Kind::Q8_0, Kind::Q4_0, Kind::Q4_K, Kind::Q6_K, Kind::MXFP4].map(|kind| (kind, true));
    for (kind, has_experts) in dense.chain(mixed) {
        let name = format!("{} {}", kind.name(), if has_experts { "experts" } else { "matrices" });
        of_width_256(&packed, kind, has_experts, true);
        of_width_256(&plain, kind, has_experts, false);
        let Some((want, _)) = logits(&plain, "cpu", Activations::F32) else { return };
        let want: Vec<f64> = want.iter().map(|x| f64::from(*x)).collect();
        let bytes = std::fs::metadata(&packed).expect("a file").len() as usize;
        let often = matches!(kind, Kind::Q4_K | Kind::Q6_K | Kind::MXFP4);
        for device in ["cpu", "cpu:avx2", "wgpu"].into_iter().take(if often { 3 } else { 1 }) {
            if let Some((got, peak)) = logits(&packed, device, Activations::F32) {
                close(&format!("{name} on {device}"), &got, &want);
                // The experts of one matrix take two megabytes once decoded
                assert!(!has_experts || peak < bytes + 1_500_000, "{name} on {device}: {peak} bytes, {bytes} packed");
            }
        }
        if let Some((got, _)) = logits(&packed, "cpu", Activations::I16) {
            let got: Vec<f64> = got.iter().map(|x| f64::from(*x)).collect();
            assert!(apart(&got, &want) < 1e-3, "{name}: {} off", apart(&got, &want));
        }
    }
    std::fs::remove_dir_all(&temp).expect("removed");
}
