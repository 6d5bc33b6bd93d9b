//! Caches of keys and values: in other forms than f32, and the rings of rows in which layers with a window keep them.

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

/// How much a plan of one or several tokens computes does not depend on the room for keys if all layers have a window, and
/// neither does what their caches take.
#[test]
fn windows_keep_a_ring_of_keys() {
    let measured = |name: &str, capacity: usize, n: usize| -> Option<(u64, usize)> {
        let mut m = load(name, "cpu", capacity, 1, DType::F32)?;
        m.begin(&prompt(n, 1)).expect("reads");
        let plan = m.replay(n).expect("a plan").plan().clone();
        let program = |c: &Call| m.runtime().engine().program(c.program).map_or(0, |p| p.flops);
        let flops = plan.calls.iter().map(program).sum();
        Some((flops, m.decoder().caches().iter().map(|t| t.numel()).sum()))
    };
    for n in [1, 8, 32] {
        let of = |name: &str| Some([measured(name, 192, n)?, measured(name, 256, n)?]);
        let (Some(windowed), Some(global)) = (of("mistral.gguf"), of("llama.gguf")) else { return };
        assert_eq!(windowed[0], windowed[1], "{n} tokens");
        assert!(global[0].0 < global[1].0 && global[0].1 < global[1].1, "{n} tokens: {global:?}");
    }
    // One of two layers, and one of six, attends to all tokens
    for name in ["gemma2.gguf", "gemma3.gguf"] {
        let of = |capacity: usize| Some(measured(name, capacity, 1)?.1);
        let (Some(less), Some(more)) = (of(192), of(256)) else { return };
        let room = load(name, "cpu", 256, 1, DType::F32).expect("a model");
        let c = room.decoder().config();
        let globals = c.global.iter().filter(|g| **g).count();
        assert_eq!(more - less, 64 * 2 * c.kv_heads * c.head_width * globals, "{name}");
    }
}

/// The logits after a text which is read in pieces of these lengths.
fn in_pieces(m: &mut LanguageModel, text: &[u32], lengths: &[usize]) -> Vec<f32> {
    m.choose_text(0, 0).expect("a text");
    let (mut at, mut lengths) = (0, lengths.iter().cycle());
    while at < text.len() {
        let end = (at + lengths.next().expect("a length")).min(text.len());
        m.read(&text[at..end]).expect("reads");
        at = end;
    }
    m.logits().expect("logits")
}

/// Whatever chunks a text is read in, where the ring of rows begins anew within a chunk, too. Token by token the numbers are those of
/// transformers (`llm.rs`).
#[test]
fn long_texts_do_not_depend_on_chunks() {
    for (name, device, cache) in [
        ("mistral.gguf", "cpu", DType::F32),
        ("gemma2.gguf", "cpu", DType::F32),
        ("gemma3.gguf", "cpu:guarded", DType::F32),
        ("gemma3.gguf", "wgpu", DType::F32),
        ("mistral.gguf", "eval", DType::F32),
        ("gemma2.gguf", "cpu", DType::I8),
    ] {
        let text = prompt(250, 4);
        let Some(mut m) = load(name, device, 256, 1, cache) else { continue };
        let want = in_pieces(&mut m, &text, &[1]);
        let room = if cache == DType::F32 { 1e-4 } else { 5e-2 };
        for lengths in [&[250][..], &[7], &[130, 3], &[100, 31, 20]] {
            let off = apart(&in_pieces(&mut m, &text, lengths), &want);
            assert!(off <= room, "{name} on {device} in pieces of {lengths:?}: {off}");
        }
    }
}

/// A text goes back as far as its windows are still there, and is read anew else.
#[test]
fn texts_go_back_as_far_as_windows_are_there() {
    for name in ["mistral.gguf", "gemma3.gguf"] {
        let (Some(mut m), Some(mut fresh)) =
            (load(name, "cpu", 256, 1, DType::F32), load(name, "cpu", 256, 1, DType::F32))
        else {
            return;
        };
        let text = prompt(240, 5);
        let mut reads = |m: &mut LanguageModel, text: &[u32], kept: usize| {
            assert_eq!(m.shared(0, &text[..text.len() - 1]), kept, "{name}");
            m.begin(text).expect("reads");
            fresh.choose_text(0, 0).expect("a text");
            fresh.begin(text).expect("reads");
            let off = apart(&m.logits().expect("logits"), &fresh.logits().expect("logits"));
            assert!(off <= 1e-4, "{name}: {off}, {kept} kept");
        };
        let after = |n: usize, seed: usize| [&text[..n], &prompt(5, seed)[..]].concat();
        reads(&mut m, &text, 0);
        // 160 rows, of which a window of 24 must be there
        reads(&mut m, &after(200, 6), 200);
        reads(&mut m, &after(120, 7), 120);
        // Written before the text went back for the first time
        reads(&mut m, &after(90, 8), 0);
        // Nothing was lost yet
        reads(&mut m, &after(10, 9), 10);
        assert!(m.choose_text(0, 3).is_ok());
        reads(&mut m, &text, 3);
        assert_eq!(m.choose_text(0, 20).expect_err("it is lost").code(), "E_VALUE");
        reads(&mut m, &after(20, 6), 0);
    }
}

#[test]
fn several_long_texts_give_what_each_gives_alone() {
    for (name, device) in [("mistral.gguf", "cpu"), ("gemma2.gguf", "cpu:guarded"), ("gemma3.gguf", "wgpu")] {
        let texts = [prompt(230, 1), prompt(190, 2), prompt(41, 3)];
        let alone: Option<Vec<Vec<f32>>> =
            texts.iter().map(|t| Some(logits(&mut load(name, device, 256, 1, DType::F32)?, t))).collect();
        let (Some(alone), Some(mut m)) = (alone, load(name, device, 256, 3, DType::F32)) else { continue };
        for (i, t) in texts.iter().enumerate() {
            m.choose_text(i, 0).expect("there is room");
            m.read(&t[..t.len() - 30]).expect("reads");
        }
        let mut got = Vec::new();
        for step in 0..30 {
            let list: Vec<(usize, u32)> = texts.iter().enumerate().map(|(i, t)| (i, t[t.len() - 30 + step])).collect();
            m.read_each(&list).expect("reads");
            got = m.logits_each().expect("logits");
        }
        for (got, want) in got.chunks(alone[0].len()).zip(&alone) {
            let off = apart(got, want);
            assert!(off <= 1e-4, "{name} on {device}: {off}");
        }
    }
}

/// A chunk overwrites nothing that its first token attends to.
#[test]
fn chunks_longer_than_a_ring_are_refused() {
    let Some(m) = load("mistral.gguf", "cpu", 256, 1, DType::F32) else { return };
    let refused = |n: usize| m.decoder().states(n).err().map(|e| e.code());
    assert_eq!((refused(137), refused(138), refused(0)), (None, Some("E_MODEL"), Some("E_MODEL")));
}
