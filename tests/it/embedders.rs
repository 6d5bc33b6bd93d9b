//! Encoders against transformers: embeddings of texts, and scores of pairs (`fixtures/embedders/make.py`).

use gradloom::llm::{Activations, Embedder, LanguageModel, LoadOptions, Pooling};
use gradloom::text::Encoding;
use gradloom::{DType, NativeHost, Result};
use gradloom_core::io::gguf::{self, Data, Gguf, Value};
use gradloom_core::io::json::Json;
use gradloom_core::io::safetensors::{self, SafeTensors};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/embedders")
}

fn try_load(path: &Path, device: &str) -> Option<Result<Embedder>> {
    let cuda = device == "cuda";
    if cuda {
        crate::emulator::load();
    }
    let device = here::device(device, gradloom::open(device, 2))?;
    // On CUDA products are of 16 bits unless that is said
    let options = LoadOptions { activations: cuda.then_some(Activations::F32), ..LoadOptions::default() };
    Some(Embedder::load(path, device, NativeHost::without_cache(), &options))
}

fn load(path: &Path, device: &str) -> Option<Embedder> {
    Some(try_load(path, device)?.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn expected(name: &str) -> Json {
    let file = std::fs::read(folder().join(name).join("expected.json")).expect("a file");
    Json::parse(&file).expect("JSON")
}

fn text<'a>(v: &'a Json, key: &str) -> &'a str {
    v.get(key).and_then(Json::as_str).expect("a text")
}

fn list<'a>(v: &'a Json, key: &str) -> &'a [Json] {
    v.get(key).and_then(Json::as_array).expect("a list")
}

fn ids(v: &Json) -> Vec<u32> {
    list(v, "ids").iter().map(|i| i.as_u64().expect("a token") as u32).collect()
}

fn close(what: &str, got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let most = want.iter().fold(0.0f64, |m, w| m.max(w.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((f64::from(*g) - w).abs() <= 1e-4 * most, "{what}: element {i} is {g}, not {w}");
    }
}

/// All texts at once, each alone, and again: the same vectors, and nothing compiled the second time.
fn vectors(path: &Path, name: &str, device: &str) {
    let what = format!("{} on {device}", path.display());
    let Some(mut m) = load(path, device) else { return };
    let want = expected(name);
    let (mut texts, mut wanted) = (Vec::new(), Vec::new());
    for t in list(&want, "texts") {
        let e = m.need_tokenizer().expect("a tokenizer").encode_with(text(t, "text"), None, true).expect("tokens");
        assert_eq!(e.ids, ids(t), "{what}");
        texts.push(e);
        wanted.push(list(t, "vector").iter().map(|x| x.as_f64().expect("a number")).collect::<Vec<_>>());
    }
    // Interpreters are slow
    let count = if device == "cpu" { 40 } else { 5 };
    let many: Vec<Encoding> = texts.iter().cycle().take(count).cloned().collect();
    let got = m.embed(&many).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (i, got) in got.iter().enumerate() {
        close(&format!("{what}, text {i}"), got, &wanted[i % texts.len()]);
    }
    for (e, want) in texts.iter().zip(&wanted).take(count / 2) {
        close(&what, &m.embed(std::slice::from_ref(e)).expect("a vector")[0], want);
    }
    m.embed(&texts[..3]).expect("vectors");
    let before = m.counters().programs;
    m.embed(&many).expect("vectors");
    m.embed(&texts[1..3]).expect("vectors");
    assert_eq!(m.counters().programs, before, "{what}: kernels were compiled for other texts");
}

fn scores(path: &Path, name: &str, device: &str) {
    let what = format!("{} on {device}", path.display());
    let Some(mut m) = load(path, device) else { return };
    let want = expected(name);
    let (mut pairs, mut wanted) = (Vec::new(), Vec::new());
    for p in list(&want, "pairs") {
        let t = m.need_tokenizer().expect("a tokenizer");
        let e = t.encode_pair_within(text(p, "query"), text(p, "document"), m.encoder().capacity()).expect("tokens");
        assert_eq!(e.ids, ids(p), "{what}");
        pairs.push(e);
        wanted.push(p.get("score").and_then(Json::as_f64).expect("a number"));
    }
    close(&what, &m.scores(&pairs).unwrap_or_else(|e| panic!("{what}: {e}")), &wanted);
    let e = m.embed(&pairs).expect_err("no vectors");
    assert_eq!(e.code(), "E_UNSUPPORTED");
}

macro_rules! embedders {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            let name = stringify!($name);
            vectors(&folder().join(name), name, "cpu");
            let gguf = folder().join(format!("{name}.gguf"));
            if gguf.exists() {
                vectors(&gguf, name, "cpu");
            }
        })*
    };
}

embedders!(bert, bertcls, nomic, roberta, mpnet);

#[test]
fn vectors_are_the_same_on_other_devices() {
    for device in ["eval", "wgpu", "vulkan", "cuda"] {
        vectors(&folder().join("bert.gguf"), "bert", device);
    }
    vectors(&folder().join("mpnet"), "mpnet", "wgpu");
    vectors(&folder().join("nomic.gguf"), "nomic", "wgpu");
}

#[test]
fn cross_encoders_score_pairs() {
    for device in ["cpu", "wgpu", "vulkan", "cuda"] {
        scores(&folder().join("bertrank"), "bertrank", device);
    }
    scores(&folder().join("bertrank.gguf"), "bertrank", "cpu");
    scores(&folder().join("robertarank"), "robertarank", "cpu");
    // Two separators between the texts of a pair
    for path in ["xlmrank", "xlmrank.gguf"] {
        scores(&folder().join(path), "xlmrank", "cpu");
    }
}

#[test]
fn long_documents_are_cut_and_long_texts_refused() {
    let Some(mut m) = load(&folder().join("bertrank"), "cpu") else { return };
    let t = m.need_tokenizer().expect("a tokenizer").clone();
    let long = "the cat ".repeat(200);
    let pair = t.encode_pair_within("a dog", &long, m.encoder().capacity()).expect("tokens");
    assert_eq!((pair.ids.len(), &pair.ids[..4], pair.ids[95]), (96, &[2, 6, 8, 3][..], 3));
    assert!(m.scores(&[pair]).expect("a score")[0].is_finite());
    let Some(mut m) = load(&folder().join("bert"), "cpu") else { return };
    let e = m.embed(&[t.encode_with(&long, None, true).expect("tokens")]).expect_err("too long");
    assert!(e.code() == "E_VALUE" && e.to_string().contains("402 tokens with room for 96"), "{e}");
    let bad = |ids: Vec<u32>| Encoding { type_ids: vec![0; ids.len()], ids, ..Encoding::default() };
    for ids in [vec![], vec![71]] {
        assert_eq!(m.embed(&[bad(ids)]).expect_err("bad").code(), "E_VALUE");
    }
    let ids: Vec<u32> = vec![2; 96];
    assert_eq!(m.embed(&[bad(ids)]).expect("the longest")[0].len(), 32);
    assert!(m.embed(&[]).expect("none").is_empty());
    assert_eq!(m.scores(&[bad(vec![2])]).expect_err("no head").code(), "E_UNSUPPORTED");
}

/// A copy of a folder with a changed configuration, or other tensors.
fn changed(name: &str, of: &str, config: &[(&str, &str)], tensors: impl Fn(&mut Vec<(String, Vec<usize>)>)) -> PathBuf {
    let to = std::env::temp_dir().join(format!("gradloom-embedders-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&to).expect("a folder");
    let mut text = std::fs::read_to_string(folder().join(of).join("config.json")).expect("a file");
    for (from, by) in config {
        assert!(text.contains(from));
        text = text.replace(from, by);
    }
    std::fs::write(to.join("config.json"), text).expect("written");
    let file = std::fs::read(folder().join(of).join("model.safetensors")).expect("a file");
    let parsed = SafeTensors::parse(&file).expect("tensors");
    let mut list: Vec<(String, Vec<usize>)> =
        parsed.entries.iter().map(|e| (e.name.clone(), e.shape.clone())).collect();
    tensors(&mut list);
    let bytes: Vec<Vec<u8>> = list.iter().map(|t| vec![0; 4 * t.1.iter().product::<usize>()]).collect();
    let list: Vec<_> = list.iter().zip(&bytes).map(|(t, b)| (t.0.as_str(), DType::F32, &t.1[..], &b[..])).collect();
    std::fs::write(to.join("model.safetensors"), safetensors::write(&list, &[]).expect("a file")).expect("written");
    to
}

#[test]
fn what_no_encoder_has_is_refused_by_name() {
    let refused = |path: &Path, code: &str, what: &str| {
        let Some(made) = try_load(path, "cpu") else { return };
        let e = made.err().unwrap_or_else(|| panic!("{what} is accepted"));
        assert!(e.code() == code && e.to_string().contains(what), "{what}: {e}");
    };
    let none = |_: &mut Vec<(String, Vec<usize>)>| {};
    for (from, to, what) in [
        ("\"gelu\"", "\"mish\"", "`mish`"),
        ("\"BertModel\"", "\"ModernBertModel\"", "`ModernBertModel`"),
        ("\"vocab_size\"", "\"is_decoder\": true, \"vocab_size\"", "`is_decoder`"),
        ("\"vocab_size\"", "\"position_embedding_type\": \"relative_key\", \"vocab_size\"", "relative_key"),
    ] {
        let path = changed("config", "bert", &[(from, to)], none);
        refused(&path, "E_UNSUPPORTED", what);
    }
    let path = changed("more", "bert", &[], |t| t.push(("encoder.layer.0.gate.weight".into(), vec![2, 2])));
    refused(&path, "E_UNSUPPORTED", "`encoder.layer.0.gate.weight`");
    let path = changed("less", "bert", &[], |t| t.retain(|t| !t.0.contains("layer.1.attention.self.query")));
    if let Some(mut m) = load(&path, "cpu") {
        let e = m
            .embed(&[Encoding { ids: vec![2], type_ids: vec![0], ..Encoding::default() }])
            .expect_err("a weight is missing");
        assert!(e.code() == "E_MODEL" && e.to_string().contains("blk.1.attn_q.weight"), "{e}");
    }
    let shaped = |of: &'static str, shape: Vec<usize>| {
        changed("shape", "bert", &[], move |t| t.iter_mut().filter(|t| t.0 == of).for_each(|t| t.1 = shape.clone()))
    };
    refused(&shaped("embeddings.position_embeddings.weight", vec![5, 32]), "E_MODEL", "`position_embd.weight`");
    refused(&shaped("embeddings.token_type_embeddings.weight", vec![2, 3]), "E_MODEL", "`token_types.weight`");
    let short = changed("short", "roberta", &[], |t| {
        t.iter_mut().filter(|t| t.0.contains("position")).for_each(|t| t.1 = vec![0, 32]);
    });
    refused(&short, "E_MODEL", "position_embeddings");
    // A decoder, and an encoder where a decoder is wanted
    refused(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm/llama"), "E_UNSUPPORTED", "`LlamaForCausalLM`");
    refused(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm/llama.gguf"), "E_UNSUPPORTED", "`llama`");
    for path in [folder().join("bert"), folder().join("bert.gguf")] {
        let made = LanguageModel::load(&path, gradloom::open("cpu", 1).expect("cpu"), NativeHost::without_cache(), 0);
        let e = made.err().expect("no decoder");
        assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("encoder"), "{e}");
    }
}

/// A copy of a GGUF file with other metadata.
fn changed_gguf(of: &Path, name: &str, key: &str, value: Value) -> PathBuf {
    let file = std::fs::read(of).expect("a file");
    let index = Gguf::parse(&file).expect("a GGUF file");
    let kept = index.metadata.iter().filter(|m| m.0 != key);
    let mut metadata: Vec<(&str, Value)> = kept.map(|(k, v)| (k.as_str(), v.clone())).collect();
    metadata.push((key, value));
    let data = |e: &'_ gguf::Entry| e.bytes(&file).expect("bytes").to_vec();
    let all: Vec<Vec<u8>> = index.entries.iter().map(data).collect();
    let entries = index.entries.iter().zip(&all);
    let list: Vec<Data<'_>> =
        entries.map(|(e, bytes)| Data { name: &e.name, kind: e.kind, shape: &e.shape, bytes }).collect();
    let to = std::env::temp_dir().join(format!("gradloom-embedders-{}-{name}.gguf", std::process::id()));
    std::fs::write(&to, gguf::write(&metadata, &list).expect("bytes")).expect("written");
    to
}

/// Files with changed bytes and configurations with changed numbers are loaded or refused; nothing panics.
#[test]
fn broken_files_are_refused() {
    let file = std::fs::read(folder().join("bertrank.gguf")).expect("a file");
    let header = Gguf::parse(&file).expect("a GGUF file").entries.iter().map(|e| e.range.start).min().expect("tensors");
    let to = std::env::temp_dir().join(format!("gradloom-embedders-{}-broken.gguf", std::process::id()));
    let (mut state, mut loaded) = (7u64, 0);
    let mut random = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut check = |path: &Path| {
        let Some(made) = try_load(path, "eval") else { return };
        // What is loaded may still have weights of other shapes than its graphs want
        match made.and_then(|m| m.encoder().pack(32).map(|_| ())) {
            Ok(()) => loaded += 1,
            Err(e) => assert!(e.code() != "E_INTERNAL", "{e}"),
        }
    };
    for _ in 0..300 {
        let mut bytes = file.clone();
        for _ in 0..=random(3) {
            bytes[random(header as usize)] = [0, 1, 2, 0x7f, 0x80, 0xff][random(6)];
        }
        std::fs::write(&to, &bytes).expect("written");
        check(&to);
    }
    for (key, value) in [
        ("hidden_size", "0"),
        ("hidden_size", "33"),
        ("num_attention_heads", "0"),
        ("num_attention_heads", "5"),
        ("num_attention_heads", "64"),
        ("num_hidden_layers", "1000000000000"),
        ("num_hidden_layers", "3"),
        ("max_position_embeddings", "0"),
        ("max_position_embeddings", "97"),
        ("pad_token_id", "1e300"),
        ("pad_token_id", "18446744073709551615"),
        ("pad_token_id", "4000000000000000000"),
        ("vocab_size", "[]"),
        ("layer_norm_eps", "\"x\""),
        ("type_vocab_size", "null"),
    ] {
        for of in ["roberta", "mpnet", "nomic"] {
            let text = std::fs::read_to_string(folder().join(of).join("config.json")).expect("a file");
            let Some(line) = text.lines().find(|l| l.contains(&format!("\"{key}\""))) else { continue };
            let by = format!(" \"{key}\": {value}{}", if line.ends_with(',') { "," } else { "" });
            let path = changed("number", of, &[(line, &by)], |_| {});
            check(&path);
        }
    }
    assert!(loaded > 10, "{loaded} are loaded");
}

/// The file of a decoder says which token's state is its text's embedding.
#[test]
fn decoders_pool_as_their_files_say() {
    use gradloom_core::dtype::Scalar;
    let of = |kind: i64| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm/llama.gguf");
        let value = Value::Scalar(DType::U32, Scalar::Int(kind));
        let path = changed_gguf(&path, &format!("pooling{kind}"), "llama.pooling_type", value);
        let device = here::device("cpu", gradloom::open("cpu", 2))?;
        Some(LanguageModel::load(&path, device, NativeHost::without_cache(), 64))
    };
    let Some(last) = of(3) else { return };
    let mut last = last.expect("it loads");
    assert_eq!(last.pooler().pooling, Pooling::Last);
    // The state of the last token does not change with the share of others, and that of a text of one token is the same
    let one = last.embed(&[9]).expect("a vector");
    let mut mean = of(1).expect("cpu").expect("it loads");
    close("one token", &one, &mean.embed(&[9]).expect("a vector").iter().map(|x| f64::from(*x)).collect::<Vec<_>>());
    let mut first = of(2).expect("cpu").expect("it loads");
    let of_first: Vec<f64> = first.embed(&[9, 4, 5]).expect("a vector").iter().map(|x| f64::from(*x)).collect();
    close("the first token", &one, &of_first);
    assert_ne!(last.embed(&[9, 4, 5]).expect("a vector"), mean.embed(&[9, 4, 5]).expect("a vector"));
    let e = of(9).expect("cpu").err().expect("unknown");
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("`llama.pooling_type` 9"), "{e}");
}
