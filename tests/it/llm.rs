//! Language models against transformers: logits, and the tokens that they choose.

use gradloom::llm::{Activations, LanguageModel, LoadOptions, Sampler, SamplingOptions, Stream};
use gradloom::{NativeHost, Result};
use gradloom_core::io::gguf::{self, Data, Gguf, Kind};
use gradloom_core::io::json::Json;
use gradloom_tests::here;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm")
}

/// What transformers computed.
struct Expected {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    first: Vec<f64>,
    last: Vec<f64>,
}

fn expected(name: &str) -> Expected {
    let file = std::fs::read(folder().join(name).join("expected.json")).expect("a file");
    let file = Json::parse(&file).expect("JSON");
    let list = |key: &str| file.get(key).and_then(Json::as_array).expect("a list").to_vec();
    let ids = |key: &str| list(key).iter().map(|i| i.as_u64().expect("a token") as u32).collect();
    let floats = |key: &str| list(key).iter().map(|i| i.as_f64().expect("a number")).collect();
    Expected { prompt: ids("prompt"), tokens: ids("tokens"), first: floats("first"), last: floats("last") }
}

fn load(path: &Path, device: &str, capacity: usize) -> Option<LanguageModel> {
    let device = here::device(device, gradloom::open(device, 2))?;
    let made = LanguageModel::load(path, device, NativeHost::without_cache(), capacity);
    Some(made.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn close(what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let most = want.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= 1e-4 * most, "{what}: logit {i} is {g}, not {w}");
    }
}

fn greedy() -> Sampler {
    Sampler::new(&SamplingOptions::default()).expect("options")
}

/// The first `n` tokens after the prompt.
fn follows(path: &Path, device: &str, want: &Expected, n: usize) {
    let what = format!("{} on {device}", path.display());
    let Some(mut m) = load(path, device, 0) else { return };
    m.begin(&want.prompt).unwrap_or_else(|e| panic!("{what}: {e}"));
    close(&what, &m.logits().expect("logits"), &want.first);
    let (mut got, mut programs) = (Vec::new(), Vec::new());
    let counted = |m: &mut LanguageModel, got: &mut Vec<u32>, n: usize| {
        m.generate(n, &mut greedy(), false, |_, t| {
            got.push(t);
            Ok(true)
        })
        .unwrap_or_else(|e| panic!("{what}: {e}"));
        m.counters().programs
    };
    programs.push(counted(&mut m, &mut got, 3));
    m.read(&got[2..]).expect("reads on");
    programs.push(counted(&mut m, &mut got, n - 3));
    assert_eq!(got, want.tokens[..n], "{what}");
    assert_eq!(programs[0], programs[1], "{what}: kernels were compiled for later tokens");
    if n == want.tokens.len() {
        close(&what, &m.logits().expect("logits"), &want.last);
    }
}

fn both(name: &str) {
    let want = expected(name);
    follows(&folder().join(name), "cpu", &want, want.tokens.len());
    follows(&folder().join(format!("{name}.gguf")), "cpu", &want, want.tokens.len());
}

macro_rules! models {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            both(stringify!($name));
        })*
    };
}

models!(llama, llama3, mistral, qwen2, qwen3, phi3, gemma, gemma2, gemma3, olmo, olmo2, stablelm, gpt2);

#[test]
fn other_devices_choose_the_same_tokens() {
    for (device, n) in [("cpu:guarded", 24), ("cpu:avx2", 24), ("llvm", 12), ("c", 6), ("wgpu", 12), ("eval", 12)] {
        follows(&folder().join("llama.gguf"), device, &expected("llama"), n);
    }
}

#[test]
fn what_texts_have_in_common_is_read_once() {
    let Some(mut m) = load(&folder().join("llama.gguf"), "cpu", 64) else { return };
    let want = expected("llama");
    let prompt = &want.prompt;
    m.begin(prompt).expect("read");
    let mut other = prompt[..20].to_vec();
    other.extend([5, 6, 7]);
    m.begin(&other).expect("read");
    let got = m.logits().expect("logits");
    let Some(mut fresh) = load(&folder().join("llama.gguf"), "cpu", 64) else { return };
    fresh.begin(&other).expect("read");
    let all: Vec<f64> = fresh.logits().expect("logits").iter().map(|x| f64::from(*x)).collect();
    close("a text that begins as the one before", &got, &all);
    m.begin(prompt).expect("read");
    close("the first one again", &m.logits().expect("logits"), &want.first);
}

#[test]
fn draws_are_decided_by_the_seed() {
    let Some(mut m) = load(&folder().join("llama.gguf"), "cpu", 64) else { return };
    let mut draw = |seed: u64| -> Vec<u32> {
        let how = SamplingOptions {
            temperature: 1.5,
            top_k: 20,
            top_p: 0.95,
            repetition: 1.1,
            seed,
            ..SamplingOptions::default()
        };
        let mut out = Vec::new();
        m.begin(&[2, 3, 4]).expect("read");
        let mut sampler = Sampler::new(&how).expect("options");
        m.generate(20, &mut sampler, false, |_, t| {
            out.push(t);
            Ok(true)
        })
        .expect("generates");
        out
    };
    let (a, b, c) = (draw(1), draw(1), draw(2));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let of = |path: &Path, capacity: usize| {
        let device = gradloom::open("eval", 1).expect("a device");
        LanguageModel::load(path, device, NativeHost::without_cache(), capacity).err().expect("it loads").to_string()
    };
    let temp = std::env::temp_dir().join(format!("gradloom-llm-{}", std::process::id()));
    std::fs::create_dir_all(&temp).expect("a folder");
    let config = std::fs::read_to_string(folder().join("llama/config.json")).expect("a file");
    let weights = temp.join("model.safetensors");
    std::fs::copy(folder().join("llama/model.safetensors"), &weights).expect("a copy");
    let with = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        std::fs::write(temp.join("config.json"), config.replace(from, to)).expect("a file");
        of(&temp, 0)
    };
    let e = with("LlamaForCausalLM", "MambaForCausalLM");
    assert!(e.contains("MambaForCausalLM") && e.contains("qwen3"), "{e}");
    let e = with("\"default\"", "\"yarn\"");
    assert!(e.contains("yarn") && e.contains("llama"), "{e}");
    let e = with("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    assert!(e.contains("blk.2.attn_output.weight"), "{e}");
    let e = with("\"num_attention_heads\": 4", "\"num_attention_heads\": 0");
    assert!(e.contains("0 heads"), "{e}");
    std::fs::write(temp.join("x.gguf"), b"nothing").expect("a file");
    assert!(of(&temp.join("x.gguf"), 0).contains("GGUF"));
    std::fs::remove_dir_all(&temp).expect("removed");
    let Some(mut m) = load(&folder().join("llama.gguf"), "eval", 16) else { return };
    assert_eq!(m.begin(&[]).unwrap_err().code(), "E_VALUE");
    assert_eq!(m.begin(&[48]).unwrap_err().code(), "E_VALUE");
    assert_eq!(m.begin(&[3; 17]).unwrap_err().code(), "E_VALUE");
    m.begin(&[3; 16]).expect("there is room");
}

#[test]
fn a_text_ends_where_a_stop_string_begins() -> Result<()> {
    let letters = |ids: &[u32]| Ok(ids.iter().map(|&i| char::from(b'a' + i as u8)).collect::<String>());
    let mut s = Stream::new(&["cd".into()]);
    let text: Vec<String> = (0..5).map(|i| s.push(i, &letters)).collect::<Result<_>>()?;
    assert_eq!(text.concat() + &s.finish(&letters)?, "ab");
    assert!(s.stopped());
    Ok(())
}

/// Blocks that stand for numbers about as large as a layer's weights.
fn blocks(kind: Kind, elems: usize) -> Vec<u8> {
    let scale: u16 = if kind == Kind::Q8_0 { 0x1a00 } else { 0x2800 };
    let mut seed = 1u32;
    let mut byte = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let mut out = Vec::new();
    for _ in 0..elems / kind.block_elems() {
        let mut block: Vec<u8> = (0..kind.block_bytes()).map(|_| byte()).collect();
        block[..2].copy_from_slice(&(scale | u16::from(byte())).to_le_bytes());
        if kind == Kind::Q4_1 {
            block[2..4].copy_from_slice(&(0xb400 | u16::from(byte())).to_le_bytes());
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
    for kind in [Kind::Q8_0, Kind::Q4_0, Kind::Q4_1, Kind::Q5_0, Kind::IQ4_NL] {
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
        for (activations, room) in [(Activations::I16, 1e-4), (Activations::I8, 3e-2), (Activations::F16, 2e-3)] {
            let name = format!("{} and {activations:?}", kind.name());
            let Some(got) = logits(&packed, "cpu", activations) else { continue };
            let off = got.iter().zip(&want).fold(0.0f64, |m, (g, w)| m.max((f64::from(*g) - w).abs())) / most;
            println!("{name}: {off:.1e} of the largest logit off");
            assert!(off <= room, "{name}: {off} off");
            #[cfg(target_os = "linux")]
            if activations == Activations::F16 {
                crate::cuda::emulated();
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
