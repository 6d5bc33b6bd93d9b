//! The small language model of our own (tests/models/verses): what it writes is what numpy computes from its weights, and the tokens of its
//! tokenizer are those of Hugging Face's (tests/models/verses/expected.py).

use gradloom::NativeHost;
use gradloom::io::json::Json;
use gradloom::llm::{Choice, LanguageModel, Sampler};
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
        let mut sampler = Sampler::new(&Choice::default()).expect("options");
        let taken = model.generate(want.len(), &mut sampler, false, |_, t| {
            got.push(t);
            Ok(true)
        });
        taken.expect("generates");
        assert_eq!(got, want, "{name}");
        assert_eq!(tokenizer.decode(&got).expect("text"), text("text"), "{name}");
    }
}
