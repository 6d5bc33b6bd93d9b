//! Tokenizers against what Hugging Face's gives (`tests/fixtures/make_text.py`), and the same tokenizers in GGUF metadata.

use gradloom::DType;
use gradloom::dtype::Scalar;
use gradloom::io::HostTensor;
use gradloom::io::gguf::{self, Gguf, Value};
use gradloom::io::json::Json;
use gradloom::text::{EncodeOptions, Tokenizer, Truncation, TruncationSide, TruncationStrategy, UNICODE, load};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/text")
}

fn samples() -> Json {
    Json::parse(&std::fs::read(folder().join("samples.json")).unwrap()).unwrap()
}

fn texts(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect()
}

fn ids(list: &Json) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as u32).collect()
}

#[test]
fn every_kind_of_tokenizer_agrees_with_the_reference() {
    let samples = samples();
    let all = texts(samples.get("texts").unwrap());
    let pair = texts(samples.get("pair").unwrap());
    for name in ["gpt2", "llama3", "llama", "suffix", "prefix", "bert", "unigram", "unibyte", "words", "sentence"] {
        let t = load(&folder().join(format!("{name}.json"))).unwrap();
        let want = samples.get(name).unwrap();
        let decoded = texts(want.get("decoded").unwrap());
        for ((text, want), decoded) in all.iter().zip(want.get("ids").unwrap().as_array().unwrap()).zip(decoded) {
            let got = t.encode(text).unwrap();
            assert_eq!(got, ids(want), "{name}: {text:?}");
            assert_eq!(t.decode(&got).unwrap(), decoded, "{name}: {text:?}");
        }
        let got = t.encode_pair(pair[0], pair[1]).unwrap();
        assert_eq!(got.ids, ids(want.get("pair").unwrap()), "{name}");
        assert_eq!(got.type_ids, ids(want.get("types").unwrap()), "{name}");
    }
}

/// Tokens in order of their numbers.
fn tokens(json: &Json) -> Vec<String> {
    let vocab = json.get("model").unwrap().get("vocab").unwrap().as_object().unwrap();
    let mut list: Vec<(u64, &String)> = vocab.iter().map(|(t, n)| (n.as_u64().unwrap(), t)).collect();
    list.sort_unstable();
    list.into_iter().map(|t| t.1.clone()).collect()
}

fn through_gguf(metadata: &[(&str, Value)]) -> Tokenizer {
    let file = gguf::write(metadata, &[]).unwrap();
    Tokenizer::from_gguf(&Gguf::parse(&file).unwrap(), UNICODE).unwrap()
}

#[test]
fn gguf_metadata_gives_the_same_tokens() {
    let samples = samples();
    let all = texts(samples.get("texts").unwrap());
    let read = |name: &str| Json::parse(&std::fs::read(folder().join(format!("{name}.json"))).unwrap()).unwrap();
    let text = |t: &str| Value::Str(t.into());
    let number = |n: i64| Value::Scalar(DType::U32, Scalar::Int(n));
    let same = |name: &str, t: &Tokenizer| {
        for (text, want) in all.iter().zip(samples.get(name).unwrap().get("ids").unwrap().as_array().unwrap()) {
            assert_eq!(t.encode(text).unwrap(), ids(want), "{name}: {text:?}");
        }
    };
    // byte-level BPE; the added token is a control token
    let json = read("gpt2");
    let merges = json.get("model").unwrap().get("merges").unwrap().as_array().unwrap();
    let merges = merges.iter().map(|m| texts(m).join(" ")).collect();
    let list = tokens(&json);
    let kinds = list.iter().map(|t| if t == "<|endoftext|>" { 3i32 } else { 1 }).flat_map(i32::to_le_bytes).collect();
    let kinds = HostTensor::new(DType::I32, vec![list.len()], kinds).unwrap();
    let gpt2 = through_gguf(&[
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", Value::Strings(list)),
        ("tokenizer.ggml.token_type", Value::Array(kinds)),
        ("tokenizer.ggml.merges", Value::Strings(merges)),
    ]);
    same("gpt2", &gpt2);
    // WordPiece, with words marked instead of what continues them
    let list: Vec<String> = tokens(&read("bert"))
        .iter()
        .map(|t| match t.strip_prefix("##") {
            Some(rest) => rest.to_owned(),
            None if t.starts_with('[') && t.len() > 2 => t.clone(),
            None => format!("▁{t}"),
        })
        .collect();
    let kinds = list.iter().map(|t| if t.starts_with('[') { 3i32 } else { 1 }).flat_map(i32::to_le_bytes).collect();
    let kinds = HostTensor::new(DType::I32, vec![list.len()], kinds).unwrap();
    let mut bert = through_gguf(&[
        ("tokenizer.ggml.model", text("bert")),
        ("tokenizer.ggml.tokens", Value::Strings(list)),
        ("tokenizer.ggml.token_type", Value::Array(kinds)),
        ("tokenizer.ggml.cls_token_id", number(2)),
        ("tokenizer.ggml.seperator_token_id", number(3)),
        ("tokenizer.ggml.unknown_token_id", number(1)),
    ]);
    bert.set_max_length(Some(40));
    same("bert", &bert);
    // SentencePiece: pairs merge by the score of what they become
    let list = ["<unk>", "<s>", "▁", "a", "b", "c", "ab", "bc", "▁a", "abc", "<0xC3>", "<0xA9>"];
    let scores = [0.0, 0.0, -9.0, -9.0, -9.0, -9.0, -2.0, -1.0, -3.0, -4.0, 0.0, 0.0];
    let llama = through_gguf(&[
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", Value::Strings(list.map(str::to_owned).to_vec())),
        ("tokenizer.ggml.scores", Value::Array(HostTensor::from_f32(vec![12], &scores).unwrap())),
        ("tokenizer.ggml.bos_token_id", number(1)),
    ]);
    // `bc` is the best pair, then `a` goes to the mark
    assert_eq!(llama.encode("abc é").unwrap(), [1, 8, 7, 2, 10, 11]);
    assert_eq!(llama.decode(&[8, 7, 2, 10, 11]).unwrap(), "abc é");
}

/// Against Hugging Face's tokenizers with the models' own patterns (`make_pre.py`).
#[test]
fn pre_tokenizers_of_gguf_files_cut_as_the_models_own() {
    let file = Json::parse(&std::fs::read(folder().join("pre.json")).unwrap()).unwrap();
    let strings = |key: &str| Value::Strings(texts(file.get(key).unwrap()).into_iter().map(str::to_owned).collect());
    let named = |pre: &str| {
        let metadata = [
            ("tokenizer.ggml.model", Value::Str("gpt2".into())),
            ("tokenizer.ggml.pre", Value::Str(pre.into())),
            ("tokenizer.ggml.tokens", strings("tokens")),
            ("tokenizer.ggml.merges", strings("merges")),
        ];
        let file = gguf::write(&metadata, &[]).unwrap();
        Tokenizer::from_gguf(&Gguf::parse(&file).unwrap(), UNICODE)
    };
    let all = texts(file.get("texts").unwrap());
    for (name, want) in file.get("names").unwrap().as_object().unwrap() {
        let t = named(name).unwrap();
        for (text, want) in all.iter().zip(want.as_array().unwrap()) {
            let got = t.encode(text).unwrap();
            assert_eq!(got, ids(want), "{name}: {text:?}");
            assert_eq!(t.decode(&got).unwrap(), *text, "{name}");
        }
    }
    let e = named("own-cuts").unwrap_err();
    assert!(e.code() == "E_UNSUPPORTED" && e.to_string().contains("pre-tokenizer `own-cuts`"), "{e}");
}

fn choice<T: Copy>(how: &Json, key: &str, choices: &[(&str, T)]) -> T {
    let name = how.get(key).unwrap().as_str().unwrap();
    choices.iter().find(|c| c.0 == name).unwrap().1
}

/// Against Hugging Face's tokenizers (`make_offsets.py`), which count characters.
#[test]
fn offsets_and_windows_agree_with_the_reference() {
    let file = Json::parse(&std::fs::read(folder().join("offsets.json")).unwrap()).unwrap();
    let chars = |t: &str| t.char_indices().map(|(i, _)| i).chain([t.len()]).collect::<Vec<_>>();
    for (name, cases) in file.as_object().unwrap() {
        let t = load(&folder().join(format!("{name}.json"))).unwrap();
        for case in cases.as_array().unwrap() {
            let text = case.get("text").unwrap().as_str().unwrap();
            let pair = case.get("pair").and_then(Json::as_str);
            let how = case.get("how").unwrap();
            let size = |key: &str| how.get(key).and_then(Json::as_u64).map(|n| n as usize);
            let truncation = size("max_length").map(|max_length| Truncation {
                max_length,
                stride: size("stride").unwrap(),
                side: choice(how, "direction", &[("right", TruncationSide::Right), ("left", TruncationSide::Left)]),
                strategy: choice(
                    how,
                    "strategy",
                    &[
                        ("longest_first", TruncationStrategy::LongestFirst),
                        ("only_first", TruncationStrategy::OnlyFirst),
                        ("only_second", TruncationStrategy::OnlySecond),
                    ],
                ),
            });
            let options = EncodeOptions { special: true, offsets: true, truncation, overflow: true };
            let got = t.encode_windows(text, pair, &options);
            let place = format!("{name}: {text:?} {pair:?} {truncation:?}");
            let Some(want) = case.get("windows").unwrap().as_array() else {
                assert_eq!(got.unwrap_err().code(), "E_VALUE", "{place}");
                continue;
            };
            let got = got.unwrap();
            assert_eq!(got.len(), want.len(), "{place}");
            let bytes = [chars(text), chars(pair.unwrap_or_default())];
            for (got, want) in got.iter().zip(want) {
                assert_eq!(got.ids, ids(want.get("ids").unwrap()), "{place}");
                let offsets = want.get("offsets").unwrap().as_array().unwrap().iter().zip(&got.sequence_ids);
                let offsets = offsets.map(|(o, s)| {
                    let at = |i: usize| s.map_or(0, |s| bytes[s as usize][ids(o)[i] as usize]);
                    (at(0), at(1))
                });
                assert_eq!(got.offsets, offsets.collect::<Vec<_>>(), "{place}");
            }
            let numbers = |key: &str| want[0].get(key).unwrap().as_array().unwrap();
            let of = |list: &[Json]| list.iter().map(|n| n.as_u64().map(|n| n as u32)).collect::<Vec<_>>();
            assert_eq!(got[0].sequence_ids, of(numbers("sequences")), "{place}");
            assert_eq!(got[0].type_ids.iter().map(|&n| Some(n)).collect::<Vec<_>>(), of(numbers("types")), "{place}");
            // tokens are the same with offsets and without
            let plain = t.encode_windows(text, pair, &EncodeOptions { offsets: false, ..options }).unwrap();
            assert!(plain.iter().zip(&got).all(|(p, g)| p.ids == g.ids && p.offsets.iter().all(|&o| o == (0, 0))));
        }
    }
}

#[test]
fn windows_that_cannot_be_are_errors() {
    let t = load(&folder().join("bert.json")).unwrap();
    let truncation = |max_length, stride, strategy| {
        let truncation = Some(Truncation { max_length, stride, strategy, side: TruncationSide::Right });
        EncodeOptions { special: true, offsets: true, truncation, overflow: true }
    };
    let long = "word ".repeat(600);
    for (options, says) in [
        (truncation(8, 6, TruncationStrategy::LongestFirst), "a stride of 6 in windows of 6 tokens"),
        (truncation(2, 0, TruncationStrategy::LongestFirst), "windows of 0 tokens"),
        (truncation(8, 0, TruncationStrategy::OnlySecond), "no second text"),
    ] {
        let e = t.encode_windows(&long, None, &options).unwrap_err();
        assert!(e.code() == "E_VALUE" && e.to_string().contains(says), "{e}");
    }
    let e = t.encode_windows("a", Some(&long), &truncation(8, 0, TruncationStrategy::OnlyFirst)).unwrap_err();
    assert!(e.to_string().contains("the first text has 1 tokens"), "{e}");
    // a window of one text beside each of the other
    let e = t.encode_windows(&long, Some(&long), &truncation(5, 0, TruncationStrategy::LongestFirst)).unwrap_err();
    assert_eq!(e.code(), "E_BUDGET");
}
