//! Chat templates against what jinja2 makes of them, set up as transformers does (`tests/fixtures/make_chat.py`).

use gradloom::io::json::Json;
use gradloom::text::{ChatOptions, ChatTemplate, DateTime, now};

fn file() -> Json {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/text/chat.json");
    Json::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn list<'a>(json: &'a Json, key: &str) -> &'a [Json] {
    json.get(key).unwrap().as_array().unwrap()
}

#[test]
fn templates_write_what_jinja2_writes() {
    let file = file();
    let now = Some(DateTime { year: 2025, month: 3, day: 9, hour: 7, minute: 5, second: 2 });
    let mut texts = 0;
    for (name, source) in file.get("templates").unwrap().as_object().unwrap() {
        let mut template = ChatTemplate::new(source.as_str().unwrap()).unwrap();
        for (token, text) in [("bos_token", "<s>"), ("eos_token", "</s>"), ("pad_token", "<pad>")] {
            template.set_token(token, text);
        }
        let wanted = list(file.get("texts").unwrap(), name);
        for (i, (given, want)) in list(&file, "conversations").iter().zip(wanted).enumerate() {
            let known = ["messages", "tools", "add_generation_prompt"];
            let rest = given.as_object().unwrap().iter().filter(|(k, _)| !known.contains(&k.as_str()));
            let options = ChatOptions {
                add_generation_prompt: given.get("add_generation_prompt") == Some(&Json::Bool(true)),
                tools: given.get("tools").cloned(),
                variables: rest.cloned().collect(),
                now,
            };
            let got = template.apply(given.get("messages").unwrap(), &options).ok();
            assert_eq!(got.as_deref(), want.get("text").and_then(Json::as_str), "{name}, conversation {i}");
            texts += usize::from(got.is_some());
        }
    }
    assert!(texts > 200, "{texts}");
}

#[test]
fn a_config_names_its_template_and_its_tokens() {
    let one = br#"{"bos_token":"<b>","eos_token":{"content":"<e>","lstrip":false},"chat_template":"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"}"#;
    let several = br#"{"chat_template":[{"name":"default","template":"d"},{"name":"tool_use","template":"t"}]}"#;
    let messages = Json::parse(br#"[{"role":"user","content":"x"}]"#).unwrap();
    let text = |file: &[u8], name| {
        ChatTemplate::from_config(file, name).unwrap().apply(&messages, &ChatOptions::default()).unwrap()
    };
    assert_eq!(text(one, None), "<b>x<e>");
    assert_eq!((text(several, None), text(several, Some("tool_use"))), ("d".into(), "t".into()));
    assert!(ChatTemplate::from_config(several, Some("rag")).is_err());
    assert!(ChatTemplate::from_config(b"{}", None).is_err());
}

#[test]
fn hostile_templates_are_errors() {
    let messages = Json::parse(br#"[{"role":"user","content":"x"}]"#).unwrap();
    for source in [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ 'x' | indent(1000000000000, true) }}",
        "{{ [1] | batch(1000000000000, 0) | list }}",
        "{{ '{:>1000000000000}'.format(1) }}",
        "{{ messages | tojson(indent=1000000000000) }}",
        "{{ ''[::-1] }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|length }}",
        "{% macro f(s) %}{{ f(s ~ s)|length }}{% endmacro %}{{ f('x') }}",
        "{% set ns = namespace(s='xx') %}{% for i in range(9) %}{% set ns.s = ns.s|replace('x', ns.s) %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s='xx') %}{% for i in range(9) %}{% set ns.s = ns.s.replace('x', ns.s) %}{% endfor %}{{ ns.s }}",
        "{% set s = 'x' * 4000000 %}{% set t %}{% for i in range(9000) %}{{ s }}{% endfor %}{% endset %}{{ t|length }}",
        "{% set s = 'x' * 4000000 %}{{ [s, s, s]|join|length }}",
        "{% set s = 'x' * 5000000 %}{{ s|length }}",
        "{{ strftime_now('%Y') }}",
        "{% include 'other' %}",
        "{{ messages.0.content.__class__.x }}",
    ] {
        let run = ChatTemplate::new(source).and_then(|t| t.apply(&messages, &ChatOptions::default()));
        let error = run.expect_err(source).to_string();
        assert!(error.contains("template"), "{error}");
    }
    let error = ChatTemplate::new("{% for %}").err().expect("a loop over nothing");
    assert!(error.to_string().contains("line 1"), "{error}");
    assert!(ChatTemplate::new("x").unwrap().apply(&Json::Null, &ChatOptions::default()).is_err());
}

#[test]
fn now_is_a_date() {
    let d = now();
    assert!(d.year >= 2025 && (1..=12).contains(&d.month) && (1..=31).contains(&d.day) && d.hour < 24);
}
