//! A language model over HTTP, on a free port of the loopback address: what clients send and get.

use gradloom::NativeHost;
use gradloom::llm::{LanguageModel, Sampler, SamplingOptions};
use gradloom::serve::{Limits, Server};
use gradloom_core::io::json::Json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// A token of this model is a character; there is room for 256.
pub(crate) fn model(texts: usize) -> LanguageModel {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm/llama");
    let device = gradloom::open("cpu", 1).expect("a device");
    LanguageModel::load_for(&path, device, NativeHost::without_cache(), 0, texts).expect("it loads")
}

pub(crate) fn server(texts: usize, limits: Limits) -> Server {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    Server::start(model(texts), "tiny", local, limits).expect("it starts")
}

/// HTTP/1.0, whose bodies end where the connection does.
pub(crate) fn send(to: SocketAddr, method: &str, path: &str, kind: &str, body: &[u8]) -> TcpStream {
    let mut s = TcpStream::connect(to).expect("it listens");
    s.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let head = format!("{method} {path} HTTP/1.0\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", body.len());
    s.write_all(head.as_bytes()).expect("sent");
    // a body that is too large may be answered before all of it is sent
    let _ = s.write_all(body);
    s
}

pub(crate) fn rest(mut s: TcpStream) -> (u16, String) {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    // what is sent after an answer to a body that is too large resets the connection
    while let Ok(n @ 1..) = s.read(&mut part) {
        all.extend(&part[..n]);
    }
    let all = String::from_utf8(all).expect("UTF-8");
    let (head, body) = all.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, body.to_owned())
}

pub(crate) fn get(to: SocketAddr, path: &str) -> (u16, String) {
    rest(send(to, "GET", path, "text/plain", b""))
}

pub(crate) fn post(to: SocketAddr, path: &str, body: &str) -> (u16, String) {
    rest(send(to, "POST", path, "application/json", body.as_bytes()))
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"))
}

pub(crate) fn at<'a>(mut v: &'a Json, path: &str) -> &'a Json {
    for key in path.split('.') {
        v = match key.parse::<usize>() {
            Ok(i) => &v.as_array().unwrap_or_else(|| panic!("no list at {key} of {path}"))[i],
            Err(_) => v.get(key).unwrap_or_else(|| panic!("no {key} of {path}")),
        };
    }
    v
}

pub(crate) fn completion(to: SocketAddr, fields: &str) -> Json {
    let (status, body) = post(to, "/v1/completions", &format!("{{\"model\":\"tiny\",{fields}}}"));
    assert_eq!(status, 200, "{body}");
    json(&body)
}

/// The text that the model gives by itself.
pub(crate) fn alone(m: &mut LanguageModel, prompt: &str, n: usize) -> String {
    let t = m.tokenizer().expect("a tokenizer").clone();
    let mut out = Vec::new();
    m.begin(&t.encode(prompt).expect("tokens")).expect("reads");
    m.generate(n, &mut Sampler::new(&SamplingOptions::default()).expect("options"), false, |_, token| {
        out.push(token);
        Ok(true)
    })
    .expect("generates");
    t.decode(&out).expect("text")
}

pub(crate) fn metric(to: SocketAddr, name: &str) -> f64 {
    let (status, text) = get(to, "/metrics");
    assert_eq!(status, 200);
    let line = text.lines().find_map(|l| l.strip_prefix(&format!("gradloom_{name} ")));
    line.and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Asks again until it is so.
pub(crate) fn becomes(to: SocketAddr, what: &str, name: &str, is: impl Fn(f64) -> bool) {
    let begin = Instant::now();
    while !is(metric(to, name)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: {name} is {}", metric(to, name));
        std::thread::yield_now();
    }
}

/// The pieces of a stream, without the last word.
fn pieces(body: &str) -> Vec<Json> {
    let lines: Vec<&str> = body.split("\n\n").filter(|l| !l.is_empty()).collect();
    let (end, pieces) = lines.split_last().expect("pieces");
    assert_eq!(*end, "data: [DONE]");
    pieces.iter().map(|l| json(l.strip_prefix("data: ").expect("data"))).collect()
}

#[test]
fn texts_are_those_of_the_model() {
    let s = server(2, Limits::default());
    let to = s.address();
    let mut m = model(1);
    let want = alone(&mut m, "once upon", 40);
    let r = completion(to, r#""prompt":"once upon","max_tokens":40,"temperature":0,"ignore_eos":true"#);
    assert_eq!(at(&r, "choices.0.text").as_str(), Some(&want[..]));
    assert_eq!(at(&r, "choices.0.finish_reason").as_str(), Some("length"));
    assert_eq!(at(&r, "object").as_str(), Some("text_completion"));
    let usage = |r: &Json| {
        ["prompt_tokens", "completion_tokens", "total_tokens"].map(|k| at(r, "usage").get(k).and_then(Json::as_u64))
    };
    assert_eq!(usage(&r), [Some(10), Some(40), Some(50)]);
    // the same text again is not read again
    let again = completion(to, r#""prompt":"once upon","max_tokens":40,"temperature":0,"ignore_eos":true"#);
    assert_eq!(at(&again, "choices.0.text").as_str(), Some(&want[..]));
    assert_eq!(at(&again, "usage.prompt_tokens_details.cached_tokens").as_u64(), Some(9));
    // tokens instead of text
    let ids: Vec<String> =
        m.tokenizer().expect("one").encode("once upon").expect("ids").iter().map(u32::to_string).collect();
    let r =
        completion(to, &format!(r#""prompt":[{}],"max_tokens":7,"temperature":0,"ignore_eos":true"#, ids.join(",")));
    assert_eq!(at(&r, "choices.0.text").as_str(), Some(&alone(&mut m, "once upon", 7)[..]));
    // a stop string, and a bias
    let (stop, before) = (&want[9..12], want.find(&want[9..12]).expect("it is there"));
    let r = completion(
        to,
        &format!(r#""prompt":"once upon","max_tokens":40,"temperature":0,"ignore_eos":true,"stop":{stop:?}"#),
    );
    assert_eq!(at(&r, "choices.0.text").as_str(), Some(&want[..before]));
    assert_eq!(at(&r, "choices.0.finish_reason").as_str(), Some("stop"));
    let r = completion(to, r#""prompt":"once","max_tokens":5,"temperature":1,"logit_bias":{"3":100}"#);
    assert_eq!(at(&r, "choices.0.text").as_str(), Some("bbbbb"));
    // seeds
    let of = |seed: u32| completion(to, &format!(r#""prompt":"x","max_tokens":30,"temperature":1.5,"seed":{seed}"#));
    let text = |r: &Json| at(r, "choices.0.text").as_str().map(str::to_owned);
    assert_eq!(text(&of(5)), text(&of(5)));
    assert_ne!(text(&of(5)), text(&of(6)));
    s.stop().expect("it ends");
}

#[test]
fn chats_and_streams() {
    let s = server(2, Limits::default());
    let to = s.address();
    let want = alone(&mut model(1), "system: be kind user: hello assistant: ", 30);
    let messages = r#""model":"tiny","temperature":0,"max_tokens":30,"ignore_eos":true,"messages":[{"role":"developer","content":"be kind"},
        {"role":"user","content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}]"#;
    let (status, body) = post(to, "/v1/chat/completions", &format!("{{{messages}}}"));
    assert_eq!(status, 200, "{body}");
    let r = json(&body);
    assert_eq!(at(&r, "choices.0.message.content").as_str(), Some(&want[..]));
    assert_eq!(at(&r, "choices.0.message.role").as_str(), Some("assistant"));
    let with = r#","stream":true,"stream_options":{"include_usage":true}"#;
    let (status, body) = post(to, "/v1/chat/completions", &format!("{{{messages}{with}}}"));
    assert_eq!(status, 200, "{body}");
    let all = pieces(&body);
    let (usage, all) = all.split_last().expect("pieces");
    assert_eq!(at(usage, "usage.completion_tokens").as_u64(), Some(30));
    assert_eq!(at(usage, "choices").as_array().map(<[Json]>::len), Some(0));
    assert_eq!(at(&all[0], "choices.0.delta.role").as_str(), Some("assistant"));
    let text = |p: &Json| at(p, "choices.0.delta").get("content").and_then(Json::as_str).unwrap_or_default().to_owned();
    assert_eq!(all.iter().map(text).collect::<String>(), want);
    assert!(all.len() > 10, "{} pieces", all.len());
    assert_eq!(at(all.last().expect("one"), "choices.0.finish_reason").as_str(), Some("length"));
    let (_, body) = post(
        to,
        "/v1/completions",
        r#"{"model":"tiny","prompt":"ab","max_tokens":4,"stream":true,"seed":1,"ignore_eos":true}"#,
    );
    let reasons: Vec<Option<String>> =
        pieces(&body).iter().map(|p| at(p, "choices.0.finish_reason").as_str().map(str::to_owned)).collect();
    assert_eq!(reasons.last(), Some(&Some("length".to_owned())));
    s.stop().expect("it ends");
}

#[test]
fn answers_have_the_form_that_was_asked_for() {
    let s = server(4, Limits::default());
    let to = s.address();
    let schema =
        r#"{"type":"object","properties":{"ok":{"type":"boolean"},"n":{"type":"integer"}},"required":["ok","n"]}"#;
    let ask = |seed: u32, format: &str| {
        let fields = r#""model":"tiny","max_tokens":120,"messages":[{"role":"user","content":"hello"}]"#;
        post(to, "/v1/chat/completions", &format!(r#"{{{fields},"seed":{seed},"response_format":{format}}}"#))
    };
    let of = |schema: &str| format!(r#"{{"type":"json_schema","json_schema":{{"name":"x","schema":{schema}}}}}"#);
    std::thread::scope(|scope| {
        for seed in 0..6 {
            scope.spawn(move || {
                let (status, body) = ask(seed, &of(schema));
                assert_eq!(status, 200, "{body}");
                let r = json(&body);
                let text = at(&r, "choices.0.message.content").as_str().expect("text");
                if at(&r, "choices.0.finish_reason").as_str() == Some("stop") {
                    let made = json(text);
                    assert!(
                        matches!(at(&made, "ok"), Json::Bool(_)) && matches!(at(&made, "n"), Json::Int(_)),
                        "{text}"
                    );
                } else {
                    assert!(text.starts_with('{'), "{text}");
                }
            });
        }
    });
    let (status, body) = ask(1, r#"{"type":"json_object"}"#);
    assert!(
        status == 200 && at(&json(&body), "choices.0.message.content").as_str().is_some_and(|t| t.starts_with('{'))
    );
    for wrong in
        [of(r#"{"type":"string","pattern":"a"}"#), r#"{"type":"xml"}"#.into(), r#"{"type":"json_schema"}"#.into()]
    {
        let (status, body) = ask(1, &wrong);
        assert_eq!((status, at(&json(&body), "error.param").as_str()), (400, Some("response_format")), "{body}");
    }
    s.stop().expect("it ends");
}

#[test]
fn chances_are_those_of_the_model() {
    let s = server(2, Limits::default());
    let to = s.address();
    let mut m = model(1);
    let t = m.tokenizer().expect("a tokenizer").clone();
    let mut ids = t.encode("once upon").expect("tokens");
    let body = r#""prompt":"once upon","max_tokens":8,"ignore_eos":true"#;
    // what is chosen does not change what the model says of it
    let r = completion(to, &format!(r#"{body},"temperature":0,"logprobs":3"#));
    let biased = completion(to, &format!(r#"{body},"temperature":1,"seed":3,"logit_bias":{{"3":100}},"logprobs":0"#));
    assert_eq!(at(&biased, "choices.0.text").as_str(), Some("bbbbbbbb"));
    let list = |r: &Json, key: &str| at(r, &format!("choices.0.logprobs.{key}")).as_array().expect("a list").to_vec();
    for i in 0..8 {
        m.begin(&ids).expect("reads");
        let logits: Vec<f64> = m.logits().expect("logits").iter().map(|x| f64::from(*x)).collect();
        let all = logits.iter().map(|x| x.exp()).sum::<f64>().ln();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let written = |t_: usize| t.token(t_ as u32).expect("a token").to_owned();
        let close = |got: &Json, want: f64| {
            let got = got.as_f64().expect("a number");
            assert!((got - want).abs() < 1e-3, "{got}, not {want}");
        };
        assert_eq!(list(&r, "tokens")[i].as_str(), Some(&*written(order[0])));
        close(&list(&r, "token_logprobs")[i], logits[order[0]] - all);
        let best = list(&r, "top_logprobs")[i].as_object().expect("tokens").to_vec();
        assert_eq!(
            best.iter().map(|b| b.0.clone()).collect::<Vec<_>>(),
            order[..3].iter().map(|t| written(*t)).collect::<Vec<_>>()
        );
        best.iter().zip(&order).for_each(|(b, t)| close(&b.1, logits[*t] - all));
        assert_eq!(list(&r, "text_offset")[i].as_u64(), Some(i as u64));
        if i == 0 {
            close(&list(&biased, "token_logprobs")[0], logits[3] - all);
            assert_eq!(list(&biased, "top_logprobs")[0].as_object().map(<[_]>::len), Some(0));
        }
        ids.push(order[0] as u32);
    }
    let chat = r#""model":"tiny","temperature":0,"max_tokens":5,"ignore_eos":true,"logprobs":true,"top_logprobs":2,
        "messages":[{"role":"user","content":"hello"}]"#;
    let r = json(&post(to, "/v1/chat/completions", &format!("{{{chat}}}")).1);
    let whole = at(&r, "choices.0.logprobs.content").as_array().expect("tokens").to_vec();
    assert_eq!(whole.len(), 5);
    let text: String = whole.iter().map(|c| c.get("token").and_then(Json::as_str).expect("a token")).collect();
    assert_eq!(at(&r, "choices.0.message.content").as_str(), Some(&*text));
    assert!(whole.iter().all(|c| at(c, "top_logprobs.0.token") == at(c, "token")
        && at(c, "top_logprobs").as_array().is_some_and(|l| l.len() == 2)));
    assert_eq!(at(&whole[0], "bytes.0").as_u64(), Some(u64::from(text.as_bytes()[0])));
    let (_, body) = post(to, "/v1/chat/completions", &format!(r#"{{{chat},"stream":true}}"#));
    let parts = pieces(&body);
    let parts = parts.iter().filter_map(|p| at(p, "choices.0.logprobs").get("content").and_then(Json::as_array));
    let parts: Vec<&Json> = parts.flatten().collect();
    assert_eq!(parts.len(), whole.len());
    for (part, c) in parts.iter().zip(&whole) {
        assert_eq!(at(part, "token"), at(c, "token"));
        // the prompt is not read again, so that sums come in another order
        let log = |c: &Json| at(c, "logprob").as_f64().expect("a number");
        assert!((log(part) - log(c)).abs() < 1e-4);
    }
    s.stop().expect("it ends");
}

#[test]
fn several_answers_are_those_of_several_requests() {
    let s = server(3, Limits::default());
    let to = s.address();
    let of = |seed: u32| {
        let r = completion(
            to,
            &format!(r#""prompt":"x","max_tokens":12,"temperature":1.5,"ignore_eos":true,"seed":{seed}"#),
        );
        at(&r, "choices.0.text").as_str().expect("text").to_owned()
    };
    let want: Vec<String> = (5..9).map(of).collect();
    let body = r#""prompt":["x","ab"],"n":4,"max_tokens":12,"temperature":1.5,"ignore_eos":true,"seed":5"#;
    let r = completion(to, body);
    let choices = at(&r, "choices").as_array().expect("choices");
    let text = |i: usize| at(&choices[i], "text").as_str().expect("text").to_owned();
    assert_eq!((0..4).map(text).collect::<Vec<_>>(), want);
    assert_eq!(
        choices.iter().map(|c| at(c, "index").as_u64()).collect::<Vec<_>>(),
        (0..8).map(Some).collect::<Vec<_>>()
    );
    assert_eq!(at(&r, "usage.completion_tokens").as_u64(), Some(96));
    // both prompts once
    assert_eq!(at(&r, "usage.prompt_tokens").as_u64(), Some(2 + 3));
    let with = r#","stream":true,"stream_options":{"include_usage":true}"#;
    let (_, body) = post(to, "/v1/completions", &format!("{{\"model\":\"tiny\",{body}{with}}}"));
    let all = pieces(&body);
    let (usage, all) = all.split_last().expect("pieces");
    assert_eq!(at(usage, "usage.completion_tokens").as_u64(), Some(96));
    let mut got = vec![String::new(); 8];
    for p in all {
        got[at(p, "choices.0.index").as_u64().expect("a number") as usize] +=
            at(p, "choices.0.text").as_str().expect("text");
    }
    assert_eq!(got, (0..8).map(text).collect::<Vec<_>>());
    let ends = all.iter().filter(|p| at(p, "choices.0.finish_reason").as_str() == Some("length"));
    assert_eq!(ends.count(), 8);
    s.stop().expect("it ends");
}

#[test]
fn functions_are_called_with_arguments_that_fit() {
    let s = server(4, Limits::default());
    let to = s.address();
    let tools = r#"[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"enum":["rome","oslo"]},
        "days":{"type":"integer"}},"required":["city"]}}},{"type":"function","function":{"name":"now","parameters":{"type":"object",
        "properties":{},"additionalProperties":false}}}]"#;
    let ask = |more: &str| {
        let fields = r#""model":"tiny","max_tokens":200,"messages":[{"role":"user","content":"hello"}]"#;
        let (status, body) = post(to, "/v1/chat/completions", &format!(r#"{{{fields},"tools":{tools},{more}}}"#));
        assert_eq!(status, 200, "{body}");
        body
    };
    let fits = |call: &Json| {
        let arguments = json(at(call, "function.arguments").as_str().expect("text"));
        match at(call, "function.name").as_str() {
            Some("weather") => assert!(["rome", "oslo"].contains(&at(&arguments, "city").as_str().expect("a city"))),
            Some("now") => assert_eq!(arguments.as_object().map(<[_]>::len), Some(0)),
            other => panic!("{other:?}"),
        }
        assert!(at(call, "id").as_str().is_some_and(|id| id.starts_with("call_")));
        assert_eq!(at(call, "type").as_str(), Some("function"));
    };
    let must = json(&ask(r#""tool_choice":"required","n":4,"seed":1"#));
    for choice in at(&must, "choices").as_array().expect("choices") {
        assert_eq!(at(choice, "finish_reason").as_str(), Some("tool_calls"), "{choice:?}");
        assert_eq!(at(choice, "message.content"), &Json::Null);
        fits(at(choice, "message.tool_calls.0"));
    }
    let this = json(&ask(r#""tool_choice":{"type":"function","function":{"name":"now"}},"seed":2"#));
    assert_eq!(at(&this, "choices.0.message.tool_calls.0.function.name").as_str(), Some("now"));
    // the same, piece by piece
    let all = pieces(&ask(r#""tool_choice":"required","seed":1,"stream":true"#));
    let calls: Vec<&Json> = all.iter().filter_map(|p| at(p, "choices.0.delta").get("tool_calls")).collect();
    assert_eq!(calls.len(), 1);
    let call = at(calls[0], "0");
    assert_eq!(at(call, "index").as_u64(), Some(0));
    fits(call);
    assert_eq!(at(call, "function"), at(&must, "choices.0.message.tool_calls.0.function"));
    assert_eq!(at(all.last().expect("one"), "choices.0.finish_reason").as_str(), Some("tool_calls"));
    // text is text, where a call may come but need not, and where none may come
    for more in [r#""tool_choice":"none","temperature":0"#, r#""logit_bias":{"38":-100},"temperature":0"#] {
        let r = json(&ask(more));
        assert!(at(&r, "choices.0.message.content").as_str().is_some_and(|t| !t.is_empty()), "{r:?}");
        assert_ne!(at(&r, "choices.0.finish_reason").as_str(), Some("tool_calls"));
    }
    // what was called before is read as the template has it
    let before = r#"{"model":"tiny","max_tokens":3,"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":null,"tool_calls":[
        {"id":"call_1","type":"function","function":{"name":"now","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"noon"}]}"#;
    assert_eq!(post(to, "/v1/chat/completions", before).0, 200);
    s.stop().expect("it ends");
}

#[test]
fn vectors_models_and_health() {
    let s = server(1, Limits::default());
    let to = s.address();
    assert_eq!(get(to, "/health"), (200, r#"{"status":"ok"}"#.to_owned()));
    // the page for people, which may load nothing from elsewhere
    let (status, page) = get(to, "/");
    assert_eq!((status, page.contains("data-serves=\"chat\"")), (200, true), "{page:.400}");
    let loads = ["src=", "href=\"http", "url(http", "@import"].map(|each| page.contains(each));
    assert_eq!(loads, [false; 4], "the page loads from elsewhere");
    let list = json(&get(to, "/v1/models").1);
    assert_eq!(at(&list, "data.0.id").as_str(), Some("tiny"));
    assert_eq!(get(to, "/v1/models/tiny").0, 200);
    assert_eq!(get(to, "/v1/models/large").0, 404);
    let (status, body) = post(to, "/v1/embeddings", r#"{"model":"tiny","input":["hello","a","hello"]}"#);
    assert_eq!(status, 200, "{body}");
    let r = json(&body);
    let vector = |i: usize| -> Vec<f64> {
        at(&r, &format!("data.{i}.embedding"))
            .as_array()
            .expect("a list")
            .iter()
            .map(|x| x.as_f64().expect("a number"))
            .collect()
    };
    let m = &mut model(1);
    let ids = m.tokenizer().expect("one").encode("hello").expect("ids");
    let want = m.embed(&ids).expect("a vector");
    assert!(vector(0).len() == 32 && vector(0).iter().zip(&want).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-5));
    assert!(vector(0) == vector(2) && vector(0) != vector(1));
    let (_, body) = post(to, "/v1/embeddings", r#"{"model":"tiny","input":"hello","encoding_format":"base64"}"#);
    let packed = json(&body);
    assert_eq!(at(&packed, "data.0.embedding").as_str().map(str::len), Some(172));
    assert_eq!(at(&packed, "usage.total_tokens").as_u64(), Some(6));
    s.stop().expect("it ends");
}

#[test]
fn what_is_wrong_is_refused_in_the_known_form() {
    let s = server(1, Limits { body_bytes: 4000, tokens: 100, ..Limits::default() });
    let to = s.address();
    let long = format!(r#"{{"model":"tiny","prompt":"{}"}}"#, "a".repeat(256));
    let huge = format!(r#"{{"model":"tiny","prompt":"{}"}}"#, "a".repeat(5000));
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let text = "/v1/completions";
    let chat = "/v1/chat/completions";
    for (path, body, status, code, param) in [
        (text, "{\"model\":", 400, "invalid_json", ""),
        (text, "\u{0}", 400, "invalid_json", ""),
        (text, &deep, 400, "invalid_json", ""),
        (text, "[]", 400, "", ""),
        (text, r#"{"prompt":"a"}"#, 400, "", "model"),
        (text, r#"{"model":"gpt-4","prompt":"a"}"#, 404, "model_not_found", "model"),
        (text, r#"{"model":"tiny"}"#, 400, "", "prompt"),
        (text, r#"{"model":"tiny","prompt":{"a":1}}"#, 400, "", "prompt"),
        (text, r#"{"model":"tiny","prompt":[1,48]}"#, 400, "", "prompt"),
        (text, r#"{"model":"tiny","prompt":[1,-1]}"#, 400, "", "prompt"),
        (text, r#"{"model":"tiny","prompt":"a","n":0}"#, 400, "", "n"),
        (text, r#"{"model":"tiny","prompt":"a","n":129}"#, 400, "", "n"),
        (text, r#"{"model":"tiny","prompt":["a","b","c"],"n":100}"#, 400, "", "n"),
        (text, r#"{"model":"tiny","prompt":"a","best_of":2}"#, 400, "unsupported", "best_of"),
        (text, r#"{"model":"tiny","prompt":"a","logprobs":6}"#, 400, "", "logprobs"),
        (text, r#"{"model":"tiny","prompt":"a","echo":true}"#, 400, "unsupported", "echo"),
        (text, r#"{"model":"tiny","prompt":"a","temperature":"hot"}"#, 400, "", "temperature"),
        (text, r#"{"model":"tiny","prompt":"a","temperature":-1}"#, 400, "", "temperature"),
        (text, r#"{"model":"tiny","prompt":"a","max_tokens":0}"#, 400, "", "max_tokens"),
        (text, r#"{"model":"tiny","prompt":"a","max_tokens":101}"#, 400, "", "max_tokens"),
        (text, r#"{"model":"tiny","prompt":"a","stop":[1]}"#, 400, "", "stop"),
        (text, r#"{"model":"tiny","prompt":"a","logit_bias":{"48":1}}"#, 400, "", "logit_bias"),
        (text, r#"{"model":"tiny","prompt":"a","logit_bias":{"x":1}}"#, 400, "", "logit_bias"),
        (text, r#"{"model":"tiny","prompt":"a","seed":"x"}"#, 400, "", "seed"),
        (text, &long, 400, "context_length_exceeded", "prompt"),
        (text, &huge, 413, "body_too_large", ""),
        (chat, r#"{"model":"tiny","messages":[]}"#, 400, "", "messages"),
        (chat, r#"{"model":"tiny","messages":[{"content":"a"}]}"#, 400, "", "messages"),
        (
            chat,
            r#"{"model":"tiny","messages":[{"role":"user","content":[{"type":"image_url"}]}]}"#,
            400,
            "",
            "messages",
        ),
        (chat, r#"{"model":"tiny","messages":[{"role":"user"}],"top_logprobs":2}"#, 400, "", "top_logprobs"),
        (chat, r#"{"model":"tiny","messages":[{"role":"user"}],"logprobs":1}"#, 400, "", "logprobs"),
        (chat, r#"{"model":"tiny","messages":[{"role":"user"}],"tool_choice":"required"}"#, 400, "", "tool_choice"),
        (chat, r#"{"model":"tiny","messages":[{"role":"user"}],"tools":[{"type":"web"}]}"#, 400, "E_VALUE", "tools"),
        ("/v1/embeddings", r#"{"model":"tiny","input":[]}"#, 400, "", "input"),
        ("/v1/embeddings", r#"{"model":"tiny","input":"a","encoding_format":"hex"}"#, 400, "", "encoding_format"),
        ("/v1/images", "{}", 404, "unknown_url", ""),
        ("/health", "{}", 405, "", ""),
    ] {
        let (got, answer) = post(to, path, body);
        assert_eq!(got, status, "{body}: {answer}");
        let e = json(&answer);
        let field = |name: &str| at(&e, "error").get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
        assert_eq!((&field("code")[..], &field("param")[..]), (code, param), "{body}: {answer}");
        assert!(!field("message").is_empty() && field("type") == "invalid_request_error", "{answer}");
    }
    let (status, _) = rest(send(to, "POST", text, "text/plain", br#"{"model":"tiny","prompt":"a"}"#));
    assert_eq!(status, 415, "a page of another origin could send it");
    completion(to, r#""prompt":"a""#);
    s.stop().expect("it ends");
}

#[test]
fn eight_at_once_share_steps_and_get_what_each_gets_alone() {
    let s = server(8, Limits::default());
    let to = s.address();
    let mut m = model(1);
    let prompts: Vec<String> = (0..8).map(|i| "tell me a story about it ".repeat(i % 3 + 1) + &i.to_string()).collect();
    let want: Vec<String> = prompts.iter().map(|p| alone(&mut m, p, 100)).collect();
    let ask = |p: &String| {
        let r = completion(to, &format!(r#""prompt":{p:?},"max_tokens":100,"temperature":0,"ignore_eos":true"#));
        at(&r, "choices.0.text").as_str().expect("text").to_owned()
    };
    let got: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = prompts.iter().map(|p| scope.spawn(move || ask(p))).collect();
        all.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    assert_eq!(got, want);
    let (steps, tokens) = (metric(to, "decode_steps_total"), metric(to, "decode_step_tokens_total"));
    assert!(tokens == 8.0 * 99.0 && tokens / steps > 2.0, "{tokens} tokens in {steps} steps");
    s.stop().expect("it ends");
}

#[test]
fn clients_that_leave_end_their_texts() {
    let s = server(2, Limits::default());
    let to = s.address();
    let body = br#"{"model":"tiny","prompt":"go on","max_tokens":240,"stream":true,"ignore_eos":true,"temperature":0}"#;
    for i in 0..12 {
        let mut c = send(to, "POST", "/v1/completions", "application/json", body);
        let mut some = vec![0; 100 * (i % 3)];
        c.read_exact(&mut some).expect("a beginning");
    }
    // some never send what they promised
    for _ in 0..4 {
        let mut c = TcpStream::connect(to).expect("it listens");
        c.write_all(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
            .expect("sent");
    }
    becomes(to, "clients left", "requests_running", |n| n == 0.0);
    let ended = ["done", "left", "failed"].map(|n| metric(to, &format!("requests_{n}_total")));
    assert!(ended[0] + ended[1] <= 12.0 && ended[2] == 0.0, "{ended:?}");
    completion(to, r#""prompt":"a""#);
    s.stop().expect("it ends");
}

#[test]
fn queues_and_times_have_ends() {
    let s = server(1, Limits { queue: 1, ..Limits::default() });
    let to = s.address();
    let body = r#"{"model":"tiny","prompt":"go on","max_tokens":240,"ignore_eos":true,"temperature":0}"#;
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|_| scope.spawn(|| post(to, "/v1/completions", body).0)).collect();
        all.into_iter().map(|t| t.join().expect("an answer")).collect()
    });
    assert!(codes.contains(&200) && codes.contains(&429) && codes.iter().all(|c| matches!(c, 200 | 429)), "{codes:?}");
    s.stop().expect("it ends");
    let s = server(1, Limits { time: Duration::ZERO, ..Limits::default() });
    let (status, body) = post(s.address(), "/v1/completions", body);
    assert_eq!((status, at(&json(&body), "error.code").as_str()), (504, Some("timeout")));
    s.stop().expect("it ends");
}

#[test]
fn many_requests_leave_nothing_behind() {
    let s = server(4, Limits::default());
    let to = s.address();
    let ask = |i: usize| {
        let r = completion(to, &format!(r#""prompt":"number {i}","max_tokens":6,"seed":{i}"#));
        assert!(at(&r, "usage.completion_tokens").as_u64() <= Some(6));
    };
    let eight = |rounds: std::ops::Range<usize>| {
        std::thread::scope(|scope| {
            (0..8).for_each(|c| {
                _ = scope.spawn({
                    let rounds = rounds.clone();
                    move || rounds.for_each(|i| ask(8 * i + c))
                })
            });
        });
    };
    eight(0..10);
    let held = ["device_bytes", "programs_total", "graph_nodes"].map(|n| metric(to, n));
    eight(10..125);
    let now = ["device_bytes", "programs_total", "graph_nodes"].map(|n| metric(to, n));
    assert_eq!(held, now);
    // a text is counted once its client has it
    becomes(to, "all are done", "requests_done_total", |n| n == 1000.0);
    s.stop().expect("it ends");
}

#[test]
fn a_server_that_ends_lets_texts_end() {
    let s = server(1, Limits::default());
    let to = s.address();
    let body = br#"{"model":"tiny","prompt":"go on","max_tokens":200,"stream":true,"ignore_eos":true,"temperature":0}"#;
    let mut c = send(to, "POST", "/v1/completions", "application/json", body);
    let mut some = [0; 64];
    c.read_exact(&mut some).expect("a beginning");
    s.stop().expect("it ends");
    let mut all = String::new();
    c.read_to_string(&mut all).expect("the rest");
    assert!(all.ends_with("data: [DONE]\n\n"), "{all}");
    assert!(TcpStream::connect(to).is_err(), "it still listens");
}
