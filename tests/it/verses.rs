//! The small language model of our own (tests/models/verses): what it writes is what numpy computes from its weights, and the tokens of its
//! tokenizer are those of Hugging Face's (tests/models/verses/expected.py).

use gradloom::DType;
use gradloom::NativeHost;
use gradloom::io::json::Json;
use gradloom::llm::{Activations, LanguageModel, LoadOptions, Sampler, SamplingOptions};
use gradloom_tests::here;
use std::path::Path;

#[test]
fn a_model_of_our_own_writes_what_numpy_computes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/verses");
    let expected = Json::parse(&std::fs::read(folder.join("expected.json")).expect("a file")).expect("JSON");
    let text = |key: &str| expected.get(key).and_then(Json::as_str).expect("a text");
    let ids = |key: &str| -> Vec<u32> {
        let list = expected.get(key).and_then(Json::as_array).expect("a list");
        list.iter().map(|i| i.as_u64().expect("a token") as u32).collect()
    };
    let (prompt, want) = (ids("ids"), ids("tokens"));
    for name in ["cpu", "wgpu"] {
        let Some(device) = here::device(name, gradloom::open(name, 2)) else { continue };
        let file = folder.join("verses-q8_0.gguf");
        let mut model = LanguageModel::load(&file, device, NativeHost::without_cache(), 256).expect("a model");
        let tokenizer = model.tokenizer().expect("a tokenizer").clone();
        assert_eq!(tokenizer.encode(text("prompt")).expect("tokens"), prompt, "{name}");
        assert!(model.chat().is_some(), "{name}: it has a template");
        let mut got = Vec::new();
        model.begin(&prompt).expect("reads");
        let mut sampler = Sampler::new(&SamplingOptions::default()).expect("options");
        let taken = model.generate(want.len(), &mut sampler, false, |_, t| {
            got.push(t);
            Ok(true)
        });
        taken.expect("generates");
        assert_eq!(got, want, "{name}");
        assert_eq!(tokenizer.decode(&got).expect("text"), text("text"), "{name}");
    }
}

/// Rounded activations, and keys and values in f16: what they change of the logits at each of these positions, and of what the model writes.
#[test]
fn activations_and_caches_that_are_rounded_change_little() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/verses");
    let expected = Json::parse(&std::fs::read(folder.join("expected.json")).expect("a file")).expect("JSON");
    let ids = |key: &str| -> Vec<u32> {
        let list = expected.get(key).and_then(Json::as_array).expect("a list");
        list.iter().map(|i| i.as_u64().expect("a token") as u32).collect()
    };
    let (prompt, written) = (ids("ids"), ids("tokens"));
    let logits = |activations: Activations, cache: DType| -> Option<Vec<Vec<f32>>> {
        let device = here::device("cpu", gradloom::open("cpu", 2))?;
        let (file, host) = (folder.join("verses-q8_0.gguf"), NativeHost::without_cache());
        let options = LoadOptions { capacity: 256, activations: Some(activations), cache, ..LoadOptions::default() };
        let mut model = LanguageModel::load_with(&file, device, host, &options).expect("a model");
        let one = |i: usize| {
            let text: Vec<u32> = prompt.iter().chain(&written[..i]).copied().collect();
            model.begin(&text).expect("reads");
            model.logits().expect("logits")
        };
        Some((0..written.len()).map(one).collect())
    };
    let Some(plain) = logits(Activations::F32, DType::F32) else { return };
    let best = |x: &[f32]| (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).expect("a token");
    let all = [
        (Activations::I16, DType::F32, 1e-4, 1.0),
        (Activations::I8, DType::F32, 3e-2, 0.9),
        (Activations::F16, DType::F32, 1e-3, 1.0),
        (Activations::F32, DType::F16, 2e-3, 0.98),
        (Activations::I16, DType::F16, 2e-3, 0.98),
    ];
    for (activations, cache, room, same) in all {
        let got = logits(activations, cache).expect("a device");
        let (mut off, mut agree) = (0.0f32, 0);
        for (got, plain) in got.iter().zip(&plain) {
            let most = plain.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            off = got.iter().zip(plain).fold(off, |m, (a, b)| m.max((a - b).abs() / most));
            agree += usize::from(best(got) == best(plain));
        }
        println!(
            "{activations:?}, cache {cache}: {off:.1e} of the largest logit off, {agree} of {} tokens the same",
            plain.len()
        );
        assert!(off <= room, "{activations:?}: {off} of the largest logit off");
        assert!(agree as f64 >= same * plain.len() as f64, "{activations:?}: {agree} of {} tokens", plain.len());
    }
}
