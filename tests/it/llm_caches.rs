//! Caches of keys and values: in other forms than f32, and the slices of them that layers with a window read.

use gradloom::engine::plan::Call;
use gradloom::llm::{LanguageModel, LoadOptions};
use gradloom::{DType, NativeHost};
use gradloom_tests::here;
use std::path::Path;

fn try_load(name: &str, device: &str, options: &LoadOptions) -> Option<gradloom::Result<LanguageModel>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm").join(name);
    let device = here::device(device, gradloom::open(device, 2))?;
    Some(LanguageModel::load_with(&path, device, NativeHost::without_cache(), options))
}

fn load(name: &str, device: &str, capacity: usize, texts: usize, cache: DType) -> Option<LanguageModel> {
    let options = LoadOptions { capacity, texts, cache, ..LoadOptions::default() };
    Some(try_load(name, device, &options)?.unwrap_or_else(|e| panic!("{name}: {e}")))
}

fn prompt(n: usize, seed: usize) -> Vec<u32> {
    (0..n).map(|i| ((7 * i * i + (3 + seed) * i + 2 * seed) % 46 + 2) as u32).collect()
}

/// Logits after a prompt and some tokens that are read one by one.
fn logits(m: &mut LanguageModel, text: &[u32]) -> Vec<f32> {
    m.begin(&text[..40]).expect("reads");
    text[40..].iter().for_each(|t| m.read(&[*t]).expect("reads"));
    m.logits().expect("logits")
}

/// The largest difference, relative to the largest number.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0f32, |m, (x, y)| m.max((x - y).abs())) / most
}

#[test]
fn keys_and_values_in_few_bits_change_logits_little() {
    let text = prompt(90, 1);
    for (name, devices) in [
        ("llama.gguf", &["cpu", "cpu:avx2", "wgpu", "eval"][..]),
        ("gemma2.gguf", &["cpu"]),
        ("gpt2", &["cpu"]),
        ("phi3", &["cpu"]),
    ] {
        let Some(mut m) = load(name, "cpu", 128, 1, DType::F32) else { return };
        let want = logits(&mut m, &text);
        for device in devices {
            for (cache, room) in [(DType::F16, 5e-3), (DType::I8, 5e-2)] {
                let Some(mut m) = load(name, device, 128, 1, cache) else { continue };
                let got = logits(&mut m, &text);
                let off = apart(&got, &want);
                assert!(off <= room && off > 0.0, "{name} on {device}, {cache:?}: {off}");
                assert!(m.decoder().caches().iter().any(|t| t.dtype() == cache));
            }
        }
    }
    let options = LoadOptions { capacity: 64, cache: DType::BF16, ..LoadOptions::default() };
    let e = try_load("llama.gguf", "cpu", &options).map(|made| made.err().expect("it is refused"));
    assert!(e.is_none_or(|e| e.code() == "E_DTYPE" && e.to_string().contains("i8")));
}

/// Of heads as wide as those of real models: the factors of rows take little.
#[test]
fn bytes_take_a_quarter() {
    let bytes = |cache: DType| -> Option<usize> {
        let m = load("mistral.gguf", "cpu", 128, 1, cache)?;
        Some(m.decoder().caches().iter().map(|t| t.numel() * t.dtype().size()).sum())
    };
    let (Some(f32s), Some(bytes)) = (bytes(DType::F32), bytes(DType::I8)) else { return };
    // 16 elements a head: a factor of four bytes for each
    assert_eq!(bytes, f32s / 4 + f32s / 16);
}

#[test]
fn several_texts_in_bytes_give_what_each_gives_alone() {
    for (name, device) in [("llama.gguf", "cpu"), ("mistral.gguf", "cpu"), ("llama.gguf", "wgpu")] {
        let texts = [prompt(60, 1), prompt(75, 2), prompt(41, 3)];
        let alone: Option<Vec<Vec<f32>>> =
            texts.iter().map(|t| Some(logits(&mut load(name, device, 128, 1, DType::I8)?, t))).collect();
        let (Some(alone), Some(mut m)) = (alone, load(name, device, 128, 3, DType::I8)) else { continue };
        for (i, t) in texts.iter().enumerate() {
            m.choose_text(i, 0).expect("there is room");
            m.begin(&t[..40]).expect("reads");
        }
        let mut got = vec![Vec::new(); 3];
        for step in 40..75 {
            let list: Vec<(usize, u32)> =
                (0..3).filter(|i| step < texts[*i].len()).map(|i| (i, texts[i][step])).collect();
            m.read_each(&list).expect("reads");
            let (all, vocabulary) = (m.logits_each().expect("logits"), m.decoder().vocabulary().expect("a vocabulary"));
            for (i, _) in list {
                got[i] = all[i * vocabulary..(i + 1) * vocabulary].to_vec();
            }
        }
        for (got, want) in got.iter().zip(&alone) {
            let off = apart(got, want);
            // a rounding of one byte more or less
            assert!(off <= 2e-2, "{name} on {device}: {off}");
        }
    }
}

/// How much a plan of one or several tokens computes does not depend on the room for keys, if all layers have a window.
#[test]
fn windows_read_a_slice_of_the_keys() {
    let flops = |name: &str, capacity: usize, n: usize| -> Option<u64> {
        let mut m = load(name, "cpu", capacity, 1, DType::F32)?;
        m.begin(&prompt(n, 1)).expect("reads");
        let plan = m.replay(n).expect("a plan").plan().clone();
        let program = |c: &Call| m.runtime().engine().program(c.program).map_or(0, |p| p.flops);
        Some(plan.calls.iter().map(program).sum())
    };
    for n in [1, 8, 32] {
        let of = |name: &str| Some([flops(name, 160, n)?, flops(name, 256, n)?]);
        let (Some(windowed), Some(global)) = (of("mistral.gguf"), of("llama.gguf")) else { return };
        assert_eq!(windowed[0], windowed[1], "{n} tokens");
        assert!(global[0] < global[1], "{n} tokens: {global:?}");
    }
}
