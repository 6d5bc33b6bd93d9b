//! Adapters of language models: logits are those of a model whose weights have them merged, whatever file the adapter and the model come
//! from, and a switch compiles nothing.

use gradloom::llm::{AdapterFile, LanguageModel, LoadOptions};
use gradloom::{DType, NativeHost};
use gradloom_core::dtype::Scalar;
use gradloom_core::io::gguf::{self, Data, Gguf, Kind, Value};
use gradloom_core::io::safetensors::{self, SafeTensors};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

const PROMPT: [u32; 9] = [5, 9, 14, 3, 40, 33, 21, 2, 7];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm")
}

/// A folder for this test's files.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("gradloom-adapters-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Numbers of an adapter.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| (((i * 7919 + seed * 104729) % 211) as f32 / 211.0 - 0.5) * 0.6).collect()
}

/// An adapted matrix: its name in safetensors files, `[outputs, inputs]`, and the factors.
pub(crate) struct Made {
    name: String,
    shape: [usize; 2],
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Made {
    /// `B A`, `[outputs, inputs]`.
    fn product(&self, rank: usize) -> Vec<f32> {
        let [outputs, inputs] = self.shape;
        let at = |o: usize, i: usize| (0..rank).map(|r| self.b[o * rank + r] * self.a[r * inputs + i]).sum::<f32>();
        (0..outputs * inputs).map(|at_| at(at_ / inputs, at_ % inputs)).collect()
    }
}

/// Factors for some matrices of a model's folder.
pub(crate) fn made(model: &str, parts: &[&str], rank: usize, seed: usize) -> Vec<Made> {
    let file = std::fs::read(fixtures().join(model).join("model.safetensors")).expect("a model");
    let index = SafeTensors::parse(&file).expect("safetensors");
    let chosen = index.entries.iter().filter(|e| parts.iter().any(|p| e.name.ends_with(&format!("{p}.weight"))));
    let one = |(i, e): (usize, &safetensors::Entry)| Made {
        name: e.name.clone(),
        shape: [e.shape[0], e.shape[1]],
        a: numbers(rank * e.shape[1], seed + 2 * i),
        b: numbers(rank * e.shape[0], seed + 2 * i + 1),
    };
    chosen.enumerate().map(one).collect()
}

/// Writes PEFT's files.
pub(crate) fn peft(into: &Path, list: &[Made], rank: usize, alpha: f64) {
    std::fs::create_dir_all(into).expect("a folder");
    let config =
        format!(r#"{{"peft_type": "LORA", "r": {rank}, "lora_alpha": {alpha}, "bias": "none", "use_dora": false}}"#);
    std::fs::write(into.join("adapter_config.json"), config).expect("written");
    let mut tensors = Vec::new();
    for m in list {
        let stem = m.name.strip_suffix(".weight").expect("a weight");
        let name = |half: &str| format!("base_model.model.{stem}.lora_{half}.weight");
        tensors.push((name("A"), vec![rank, m.shape[1]], bytes(&m.a)));
        tensors.push((name("B"), vec![m.shape[0], rank], bytes(&m.b)));
    }
    let list: Vec<_> = tensors.iter().map(|(n, s, b)| (n.as_str(), DType::F32, &s[..], &b[..])).collect();
    std::fs::write(into.join("adapter_model.safetensors"), safetensors::write(&list, &[]).expect("a file"))
        .expect("written");
}

/// The model's folder with the adapter in its weights.
fn merged(model: &str, into: &Path, list: &[Made], rank: usize, scale: f32) {
    std::fs::create_dir_all(into).expect("a folder");
    let from = fixtures().join(model);
    std::fs::copy(from.join("config.json"), into.join("config.json")).expect("copied");
    let file = std::fs::read(from.join("model.safetensors")).expect("a model");
    let index = SafeTensors::parse(&file).expect("safetensors");
    let tensors: Vec<_> = index
        .entries
        .iter()
        .map(|e| {
            let mut values: Vec<f32> = e.to_host(&file).expect("a tensor").to_f64().iter().map(|&x| x as f32).collect();
            if let Some(m) = list.iter().find(|m| m.name == e.name) {
                values.iter_mut().zip(m.product(rank)).for_each(|(w, d)| *w += scale * d);
            }
            (e.name.clone(), e.shape.clone(), bytes(&values))
        })
        .collect();
    let list: Vec<_> = tensors.iter().map(|(n, s, b)| (n.as_str(), DType::F32, &s[..], &b[..])).collect();
    std::fs::write(into.join("model.safetensors"), safetensors::write(&list, &[]).expect("a file")).expect("written");
}

fn load(path: &Path, device: &str, adapters: Vec<AdapterFile>) -> Option<LanguageModel> {
    let device = here::device(device, gradloom::open(device, 2))?;
    let options = LoadOptions { capacity: 64, adapters, ..LoadOptions::default() };
    Some(LanguageModel::load_with(path, device, NativeHost::without_cache(), &options).expect("a model"))
}

/// Logits after a prompt and one token more.
fn logits(m: &mut LanguageModel) -> Vec<f32> {
    m.begin(&PROMPT).expect("read");
    m.read(&[11]).expect("read");
    m.logits().expect("logits")
}

fn close(what: &str, got: &[f32], want: &[f32]) {
    let most = want.iter().fold(0f32, |m, w| m.max(w.abs()));
    let off = got.iter().zip(want).fold(0f32, |m, (g, w)| m.max((g - w).abs())) / most;
    assert!(got.len() == want.len() && off <= 1e-4, "{what}: {off:.1e} off");
}

fn differ(what: &str, a: &[f32], b: &[f32]) {
    let most = a.iter().fold(0f32, |m, x| m.max(x.abs()));
    assert!(a.iter().zip(b).any(|(x, y)| (x - y).abs() > 1e-2 * most), "{what}: the adapter does nothing");
}

#[test]
fn logits_are_those_of_merged_weights() {
    let temp = folder("merged");
    // neighbours in GGUF; halves; projections in one; inputs first in the file
    let cases: [(&str, &[&str]); 4] = [
        ("llama", &["q_proj", "k_proj", "v_proj", "down_proj"]),
        ("qwen2", &["q_proj", "o_proj", "gate_proj"]),
        ("phi3", &["qkv_proj", "gate_up_proj"]),
        ("gemma3", &["k_proj", "up_proj"]),
    ];
    for (model, parts) in cases {
        let list = made(model, parts, 3, 5);
        assert!(list.len() >= parts.len(), "{model} has such matrices");
        peft(&temp.join("peft"), &list, 3, 6.0);
        merged(model, &temp.join("merged"), &list, 3, 2.0);
        let file = || vec![AdapterFile::new(temp.join("peft"))];
        for device in ["cpu", "wgpu"] {
            let Some(mut want) = load(&temp.join("merged"), device, vec![]) else { continue };
            let want = logits(&mut want);
            for path in [fixtures().join(model), fixtures().join(format!("{model}.gguf"))] {
                let what = format!("{} on {device}", path.display());
                let Some(mut m) = load(&path, device, file()) else { continue };
                let plain = logits(&mut m);
                let Some(mut own) = load(&path, device, vec![]) else { continue };
                close(&format!("{what}, without it"), &plain, &logits(&mut own));
                m.use_adapter(Some("peft")).expect("an adapter");
                let got = logits(&mut m);
                close(&what, &got, &want);
                differ(&what, &got, &plain);
            }
        }
    }
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn files_of_gguf_are_adapters_too() {
    let temp = folder("gguf");
    let list = made("llama", &["q_proj", "v_proj"], 2, 9);
    merged("llama", &temp.join("merged"), &list, 2, 0.5);
    let heads = Gguf::parse(&std::fs::read(fixtures().join("llama.gguf")).expect("a file")).expect("GGUF");
    let heads = heads.get("llama.attention.head_count").and_then(Value::as_u64).expect("heads") as usize;
    let mut tensors = Vec::new();
    for m in &list {
        let layer: usize = m.name.split('.').nth(2).and_then(|n| n.parse().ok()).expect("a layer");
        let is_q = m.name.contains("q_proj");
        let weight = format!("blk.{layer}.{}.weight", if is_q { "attn_q" } else { "attn_v" });
        let half = m.shape[0] / heads / 2;
        // as llama.cpp's converter has rows of queries
        let rows: Vec<usize> = (0..m.shape[0])
            .map(|row| if is_q { row / (2 * half) * 2 * half + row % 2 * half + row % (2 * half) / 2 } else { row })
            .collect();
        let b: Vec<f32> = rows.iter().flat_map(|&r| m.b[2 * r..2 * r + 2].to_vec()).collect();
        tensors.push((format!("{weight}.lora_a"), vec![2, m.shape[1]], bytes(&m.a)));
        tensors.push((format!("{weight}.lora_b"), vec![m.shape[0], 2], bytes(&b)));
    }
    let text = |s: &str| Value::Str(s.to_owned());
    let alpha = Value::Scalar(DType::F32, Scalar::float(1.0));
    let metadata = [
        ("general.type", text("adapter")),
        ("general.architecture", text("llama")),
        ("adapter.type", text("lora")),
        ("adapter.lora.alpha", alpha),
    ];
    let data: Vec<Data<'_>> =
        tensors.iter().map(|(name, shape, bytes)| Data { name, kind: Kind::F32, shape, bytes }).collect();
    let path = temp.join("tone.gguf");
    std::fs::write(&path, gguf::write(&metadata, &data).expect("a file")).expect("written");
    let Some(mut merged) = load(&temp.join("merged"), "cpu", vec![]) else { return };
    let want = logits(&mut merged);
    for model in ["llama.gguf", "llama"] {
        let Some(mut m) = load(&fixtures().join(model), "cpu", vec![AdapterFile::new(&path)]) else { return };
        m.use_adapter(Some("tone")).expect("an adapter");
        close(model, &logits(&mut m), &want);
    }
    // twice the scale is not the same
    let twice = AdapterFile { scale: 2.0, ..AdapterFile::new(&path) };
    let Some(mut m) = load(&fixtures().join("llama"), "cpu", vec![twice]) else { return };
    m.use_adapter(Some("tone")).expect("an adapter");
    differ("twice", &logits(&mut m), &want);
    // not every system removes files that are mapped
    drop((merged, m));
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn a_switch_compiles_nothing() {
    let temp = folder("switch");
    let wide = made("llama", &["q_proj", "down_proj"], 5, 1);
    let narrow = made("llama", &["q_proj", "v_proj"], 2, 40);
    peft(&temp.join("wide"), &wide, 5, 5.0);
    peft(&temp.join("narrow"), &narrow, 2, 2.0);
    merged("llama", &temp.join("merged-wide"), &wide, 5, 1.0);
    merged("llama", &temp.join("merged-narrow"), &narrow, 2, 1.0);
    for device in ["cpu", "wgpu"] {
        let files = ["wide", "narrow"].map(|n| AdapterFile::new(temp.join(n))).to_vec();
        let Some(mut m) = load(&fixtures().join("llama.gguf"), device, files) else { continue };
        assert_eq!((m.adapters(), m.adapter()), (vec!["wide", "narrow"], None));
        let plain = logits(&mut m);
        let before = m.counters();
        for round in 0..2 {
            for name in ["wide", "narrow"] {
                m.use_adapter(Some(name)).expect("an adapter");
                assert_eq!(m.adapter(), Some(name));
                let Some(mut want) = load(&temp.join(format!("merged-{name}")), device, vec![]) else { continue };
                close(&format!("{name} on {device}, round {round}"), &logits(&mut m), &logits(&mut want));
            }
            m.use_adapter(None).expect("none");
            assert_eq!(logits(&mut m), plain, "{device}: without one it is what it was");
        }
        let after = m.counters();
        assert_eq!((after.programs, after.plans), (before.programs, before.plans), "{device}");
    }
    std::fs::remove_dir_all(&temp).expect("removed");
}

#[test]
fn what_is_no_adapter_of_the_model_is_refused() {
    let temp = folder("refused");
    let refused = |path: &Path| {
        let device = gradloom::open("eval", 1).expect("a device");
        let adapters = vec![AdapterFile::new(path)];
        let options = LoadOptions { capacity: 16, adapters, ..LoadOptions::default() };
        let made =
            LanguageModel::load_with(&fixtures().join("llama.gguf"), device, NativeHost::without_cache(), &options);
        made.err().expect("it loads").to_string()
    };
    assert!(refused(&fixtures().join("llama.gguf")).contains("no LoRA adapter"));
    assert!(refused(&temp).contains("adapter_config.json"));
    let mut list = made("llama", &["q_proj"], 2, 3);
    list.iter_mut().for_each(|m| m.name = m.name.replace("q_proj", "s_proj"));
    peft(&temp, &list, 2, 1.0);
    assert!(refused(&temp).contains("s_proj` is no matrix of architecture llama"));
    let mut list = made("llama", &["q_proj"], 2, 3);
    list.iter_mut().for_each(|m| (m.shape[1], m.a) = (m.shape[1] + 1, numbers(2 * (m.shape[1] + 1), 1)));
    peft(&temp, &list, 2, 1.0);
    assert!(refused(&temp).contains("the adapter is of"));
    peft(&temp, &made("llama", &["q_proj"], 2, 3), 2, 1.0);
    std::fs::write(temp.join("adapter_config.json"), r#"{"peft_type": "LORA", "lora_alpha": 1, "use_dora": true}"#)
        .expect("written");
    assert!(refused(&temp).contains("no LoRA"));
    std::fs::remove_dir_all(&temp).expect("removed");
}
