//! Texts of a form that was asked for: which texts a schema lets through, and what is written when tokens are drawn at random.

use gradloom::llm::{Calls, Grammar, Matcher, Sampler, SamplingOptions, Vocabulary};
use gradloom::text::{self, Tokenizer};
use gradloom_core::io::json::Json;
use std::path::Path;
use std::sync::Arc;

/// A token is a character, of few.
fn tokenizer() -> Tokenizer {
    text::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm/llama/tokenizer.json")).expect("a tokenizer")
}

fn matcher(schema: &str, tokenizer: &Tokenizer) -> gradloom::Result<Matcher> {
    let grammar = Grammar::from_schema(&Json::parse(schema.as_bytes()).expect("JSON"))?;
    Matcher::new(&Arc::new(grammar), &Arc::new(Vocabulary::new(tokenizer, 48)))
}

/// Does a text fit as a whole? Each token must be among those that may come.
fn fits(schema: &str, text: &str) -> bool {
    let t = tokenizer();
    let mut m = matcher(schema, &t).unwrap_or_else(|e| panic!("{schema}: {e}"));
    for id in t.encode_with(text, None, false).expect("tokens").ids {
        let may = m.tokens().expect("tokens").contains(&id);
        assert_eq!(may, m.take(id).is_ok(), "{schema}: {text}");
        if !may {
            return false;
        }
    }
    m.may_end()
}

const PERSON: &str = r##"{"type":"object","properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer"},
    "tags":{"type":"array","items":{"enum":["a","bc"]},"minItems":1,"maxItems":3},"next":{"anyOf":[{"type":"null"},{"$ref":"#"}]}},
    "required":["name","tags"],"additionalProperties":false}"##;

#[test]
fn texts_fit_their_schema() {
    for (schema, good, bad) in [
        (r#"{"type":"integer"}"#, "0|-1|12", "01|-|1.5|a|"),
        (r#"{"type":"number"}"#, "1.25|-0.5|1e5|2e-10", "1.|.5|1e|--1"),
        (r#"{"type":"boolean"}"#, "true|false", "tru|truefalse|null"),
        (r#"{"enum":["x",1,null]}"#, "\"x\"|1|null", "x|2|\"x"),
        (r#"{"type":"string","minLength":1,"maxLength":3}"#, "\"a\"|\"abc\"", "\"\"|\"abcd\"|abc"),
        (r#"{"type":["string","null"]}"#, "null|\"\"", "1"),
        (r#"{"type":"array","items":{"type":"integer"},"minItems":2}"#, "[1,2]|[ 1, 2,3]", "[]|[1]|[1,]|[1 2]"),
        (r#"{"type":"array","maxItems":0}"#, "[]", "[1]"),
        ("{}", "{\"a\": [1, {}]}|null|\"x\"", "{a:1}|[}"),
        (
            r#"{"type":"object","additionalProperties":{"type":"integer"}}"#,
            "{}|{\"a\":1, \"b\":2}",
            "{\"a\":\"b\"}|{\"a\":1,}",
        ),
        (
            PERSON,
            "{\"name\":\"x\",\"tags\":[\"a\"]}|{ \"name\": \"bo\", \"age\": 7, \"tags\": [\"bc\", \"a\"] }|\
             {\"name\":\"\",\"tags\":[\"a\"],\"next\":{\"name\":\"\",\"tags\":[\"a\"],\"next\":null}}",
            "{}|{\"name\":\"x\"}|{\"tags\":[\"a\"],\"name\":\"x\"}|{\"name\":\"x\",\"tags\":[]}|{\"name\":\"x\",\"tags\":[\"c\"]}|\
             {\"name\":\"x\",\"tags\":[\"a\"],}|{\"name\":\"x\",\"tags\":[\"a\"],\"z\":1}",
        ),
    ] {
        good.split('|').for_each(|t| assert!(fits(schema, t), "{schema} refuses {t}"));
        bad.split('|').for_each(|t| assert!(!fits(schema, t), "{schema} takes {t}"));
    }
}

#[test]
fn what_is_drawn_at_random_fits() {
    let t = tokenizer();
    for seed in 0..40 {
        let mut s =
            Sampler::new(&SamplingOptions { temperature: 1.0, seed, ..SamplingOptions::default() }).expect("options");
        s.constrain(matcher(PERSON, &t).expect("a grammar"), &[1]);
        assert!(!s.is_greedy());
        let mut out = Vec::new();
        while !s.is_complete() && out.len() < 4000 {
            // brackets close more often than not, or texts have no end
            let mut logits = vec![0.0f32; 48];
            t.encode_with("}n", None, false).expect("tokens").ids.iter().for_each(|i| logits[*i as usize] = 4.0);
            let token = s.choose(&mut logits);
            s.see(token);
            out.push(token);
        }
        assert!(s.failed().is_none() && s.is_complete(), "seed {seed}: {:?}", s.failed());
        let text = t.decode(&out).expect("text");
        let json = Json::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"));
        let tags = json.get("tags").and_then(Json::as_array).expect("a list");
        assert!((1..=3).contains(&tags.len()) && json.get("name").and_then(Json::as_str).is_some(), "{text}");
        assert!(json.get("age").is_none_or(|a| matches!(a, Json::Int(_))), "{text}");
    }
}

#[test]
fn schemas_that_cannot_be_are_refused_by_name() {
    let t = tokenizer();
    let error = |schema: &str| matcher(schema, &t).err().unwrap_or_else(|| panic!("{schema} is taken"));
    for (schema, code, name) in [
        (r#"{"type":"string","pattern":"a+"}"#, "E_UNSUPPORTED", "pattern"),
        (r#"{"properties":{"a":{"minimum":3}}}"#, "E_UNSUPPORTED", "minimum"),
        (r#"{"allOf":[{},{}]}"#, "E_UNSUPPORTED", "allOf"),
        (r#"{"type":"text"}"#, "E_VALUE", "text"),
        (r##"{"$ref":"#/$defs/x"}"##, "E_VALUE", "$defs/x"),
        (r##"{"$ref":"#"}"##, "E_VALUE", "no text"),
        (r#"{"type":"string","minLength":100000}"#, "E_VALUE", "minLength"),
        (r#"{"type":"array","minItems":3,"maxItems":1}"#, "E_VALUE", "maxItems"),
        (r#"{"type":"object","required":["a"]}"#, "E_VALUE", "required"),
        ("[]", "E_VALUE", "object"),
    ] {
        let e = error(schema);
        assert!(e.code() == code && e.to_string().contains(name), "{schema}: {e}");
    }
    // what the vocabulary cannot write
    let mut s = Sampler::new(&SamplingOptions::default()).expect("options");
    s.constrain(matcher(r#"{"const":"é"}"#, &t).expect("a grammar"), &[1]);
    let quote = s.choose(&mut [0.0; 48]);
    s.see(quote);
    s.choose(&mut [0.0; 48]);
    assert_eq!(s.failed().map(gradloom::Error::code), Some("E_VALUE"));
}

#[test]
fn special_tokens_that_begin_calls_may_come_where_there_are_calls_and_are_shown() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm/llama/tokenizer.json");
    let file = std::fs::read_to_string(path).expect("a file");
    let added = |id: u32, text: &str| {
        format!(
            r#"{{"id": {id}, "content": "{text}", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}"#
        )
    };
    let all = format!(r#", {}, {}], "normalizer""#, added(48, "[TOOL_CALLS]"), added(49, "<|end|>"));
    let file = file.replacen(r#"], "normalizer""#, &all, 1);
    let t = Tokenizer::from_json(file.as_bytes(), text::UNICODE).expect("a tokenizer");
    let of = |grammar: gradloom::Result<Grammar>| {
        Matcher::new(&Arc::new(grammar.expect("a grammar")), &Arc::new(Vocabulary::new(&t, 50))).expect("a matcher")
    };
    let tools = Json::parse(br#"[{"name": "now"}]"#).expect("JSON");
    let id = |text: &str| t.id(text).expect(text);
    let mut m = of(Grammar::from_tools(&tools, &Calls::May, true));
    let may = m.tokens().expect("tokens");
    assert!(m.has_calls() && may.contains(&48) && !may.contains(&49) && may.contains(&id("x")));
    m.take(48).expect("a mark");
    let may = m.tokens().expect("tokens");
    assert!(may.contains(&id("n")) && !may.contains(&id("x")), "a call follows");
    let mut plain = of(Grammar::from_schema(&Json::parse(br#"{"type": "string"}"#).expect("JSON")));
    plain.take(id("\"")).expect("a string begins");
    assert!(!plain.has_calls() && !plain.tokens().expect("tokens").contains(&48), "no token of calls elsewhere");
    let mut ids = vec![id("a"), 48, 49];
    ids.extend(["n", "o", "w"].map(id));
    assert_eq!(t.decode_with_calls(&ids).expect("text"), "a[TOOL_CALLS]now");
    assert_eq!(t.decode(&ids).expect("text"), "anow");
}
