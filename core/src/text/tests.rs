//! Tests with malformed files. Results for valid files are compared with the reference in `tests/it/text.rs`.

use super::*;
use crate::io::testing::mutate;

const FILES: [&[u8]; 5] = [
    include_bytes!("../../../tests/fixtures/text/llama3.json"),
    include_bytes!("../../../tests/fixtures/text/llama.json"),
    include_bytes!("../../../tests/fixtures/text/bert.json"),
    include_bytes!("../../../tests/fixtures/text/unibyte.json"),
    include_bytes!("../../../tests/fixtures/text/prefix.json"),
];

const PLAIN: Unicode =
    Unicode { normalize: |_, t| t.to_owned(), clusters: |t| t.char_indices().map(|(i, c)| i + c.len_utf8()).collect() };

#[test]
fn hostile_tokenizers_are_errors() {
    let wordlevel = |more: &str| {
        let file =
            format!(r#"{{"model":{{"type":"WordLevel","vocab":{{"a":0,"<unk>":1}},"unk_token":"<unk>"}}{more}}}"#);
        Tokenizer::from_json(file.as_bytes(), PLAIN)
    };
    assert_eq!(wordlevel("").unwrap().encode("b").unwrap(), [1]);
    let nested =
        format!(r#"{}{{"type":"NFC"}}{}"#, r#"{"type":"Sequence","normalizers":["#.repeat(20), "]}".repeat(20));
    for bad in [
        r#","normalizer":{"type":"Precompiled","precompiled_charsmap":""}"#,
        r#","normalizer":{"type":"Replace","pattern":{"Regex":"("},"content":""}"#,
        r#","normalizer":{"type":"Replace","pattern":{},"content":""}"#,
        r#","pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<=a)b"},"behavior":"Isolated","invert":false}"#,
        r#","pre_tokenizer":{"type":"Metaspace","replacement":"ab"}"#,
        r#","added_tokens":[{"id":-1,"content":"x"}]"#,
        r#","added_tokens":[{"id":1}]"#,
        r#","post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[]}"#,
        r#","decoder":{"type":"Unheard"}"#,
        &format!(r#","normalizer":{nested}"#),
    ] {
        assert!(wordlevel(bad).is_err(), "{bad}");
    }
    for model in [
        r#"{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}"#,
        r#"{"type":"BPE","vocab":{"a":0,"b":1},"merges":["ab"]}"#,
        r#"{"type":"BPE","vocab":{"a":4294967296},"merges":[]}"#,
        r#"{"type":"BPE","vocab":{"a":4294967295},"merges":[]}"#,
        r#"{"type":"WordPiece","vocab":{"a":0},"unk_token":"b"}"#,
        r#"{"type":"Unigram","vocab":[["a",-1.0]],"unk_id":1}"#,
        r#"{"type":"Unigram","vocab":[["a"]]}"#,
        r#"{"type":"Unheard","vocab":{}}"#,
        "{}",
    ] {
        assert!(Tokenizer::from_json(format!(r#"{{"model":{model}}}"#).as_bytes(), PLAIN).is_err(), "{model}");
    }
}

#[test]
fn a_pattern_that_takes_too_long_is_an_error() {
    let file = br#"{"model":{"type":"WordLevel","vocab":{"<unk>":0},"unk_token":"<unk>"},
        "pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?:(?:a|a)+)+b"},"behavior":"Isolated","invert":false}}"#;
    let t = Tokenizer::from_json(file, PLAIN).unwrap();
    assert!(t.encode("ab").is_ok());
    assert_eq!(t.encode(&"a".repeat(80)).unwrap_err().code(), "E_VALUE");
}

#[test]
fn unknown_numbers_are_passed_over() {
    let t = Tokenizer::from_json(FILES[2], PLAIN).unwrap();
    assert_eq!(t.decode(&[u32::MAX, 1 << 20]).unwrap(), "");
    assert_eq!(t.token(2), Some("[CLS]"));
    assert_eq!(t.id("[SEP]"), Some(3));
    assert_eq!(t.len(), 500);
}

#[test]
fn mutations_never_panic() {
    for file in FILES {
        mutate(file, 150, |m| {
            if let Ok(t) = Tokenizer::from_json(m, PLAIN) {
                let ids = t.encode("Hello <s> wörld, 123 the\u{3000}café Word!").unwrap_or_default();
                drop(t.decode(&ids));
            }
        });
    }
}
