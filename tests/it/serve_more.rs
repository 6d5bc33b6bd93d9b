//! More of what a server does: grammars, adapters and guesses of a request; embeddings and reranking by encoders.

use crate::llm_adapters::{folder, made, peft};
use crate::serve::{alone, at, completion, get, json, metric, model, post, server};
use gradloom::NativeHost;
use gradloom::access::Access;
use gradloom::llm::{AdapterFile, Embedder, LanguageModel, LoadOptions};
use gradloom::serve::{Limits, Server};
use gradloom_core::io::json::Json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn of_encoder(name: &str) -> Server {
    let device = gradloom::open("cpu", 1).expect("a device");
    let path = fixtures().join("embedders").join(name);
    let model = Embedder::load(&path, device, NativeHost::without_cache(), &LoadOptions::default()).expect("it loads");
    Server::start_embedder(model, "tiny", SocketAddr::from(([127, 0, 0, 1], 0)), Limits::default()).expect("it starts")
}

fn expected(name: &str) -> Json {
    json(&std::fs::read_to_string(fixtures().join("embedders").join(name).join("expected.json")).expect("a file"))
}

#[test]
fn embeddings_are_those_of_the_encoder() {
    let s = of_encoder("bert");
    let to = s.address();
    let want = expected("bert");
    let list = at(&want, "texts").as_array().expect("a list");
    let inputs: Vec<String> =
        (0..70).map(|i| format!("{:?}", at(&list[i % list.len()], "text").as_str().unwrap())).collect();
    let ask = |inputs: &str| post(to, "/v1/embeddings", &format!(r#"{{"model":"tiny","input":{inputs}}}"#));
    std::thread::scope(|scope| {
        for part in [&inputs[..], &inputs[..3], &inputs[1..2]] {
            let (ask, part) = (&ask, part.join(","));
            scope.spawn(move || {
                let (status, body) = ask(&format!("[{part}]"));
                assert_eq!(status, 200, "{body}");
                let r = json(&body);
                for d in at(&r, "data").as_array().expect("a list") {
                    assert_eq!(at(d, "embedding").as_array().map(<[Json]>::len), Some(32));
                }
            });
        }
    });
    let r = json(&ask(&format!("[{}]", inputs.join(","))).1);
    for (i, d) in at(&r, "data").as_array().expect("a list").iter().enumerate() {
        let numbers =
            |v: &Json| -> Vec<f64> { v.as_array().expect("a list").iter().filter_map(Json::as_f64).collect() };
        let (got, want) = (numbers(at(d, "embedding")), numbers(at(&list[i % list.len()], "vector")));
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "text {i}");
    }
    assert_eq!(at(&r, "usage.total_tokens").as_u64(), Some(17 * (9 + 16 + 4 + 30) + 9 + 16));
    let long = format!("{:?}", "the cat ".repeat(100));
    for (path, body, param) in [
        ("/v1/embeddings", format!(r#"{{"model":"tiny","input":{long}}}"#), "input"),
        ("/v1/embeddings", r#"{"model":"tiny","input":"a","lora":"x"}"#.into(), "lora"),
        ("/v1/completions", r#"{"model":"tiny","prompt":"a"}"#.into(), "model"),
        ("/v1/chat/completions", r#"{"model":"tiny","messages":[]}"#.into(), "model"),
        ("/v1/rerank", r#"{"model":"tiny","query":"a","documents":["b"]}"#.into(), "model"),
    ] {
        let (status, answer) = post(to, path, &body);
        assert_eq!((status, at(&json(&answer), "error.param").as_str()), (400, Some(param)), "{answer}");
    }
    assert!(metric(to, "prompt_tokens_total") > 1000.0);
    s.stop().expect("it ends");
}

#[test]
fn documents_are_ordered_by_relevance() {
    let s = of_encoder("bertrank");
    let to = s.address();
    let want = expected("bertrank");
    for p in at(&want, "pairs").as_array().expect("a list") {
        let text = |key: &str| at(p, key).as_str().expect("a text").to_owned();
        let fields = format!(r#""query":{:?},"documents":["boats and money",{:?}]"#, text("query"), text("document"));
        let (status, body) = post(to, "/v1/rerank", &format!(r#"{{"model":"tiny",{fields}}}"#));
        assert_eq!(status, 200, "{body}");
        let r = json(&body);
        let list = at(&r, "results").as_array().expect("a list");
        let score = |d: &Json| at(d, "relevance_score").as_f64().expect("a number");
        assert!(list.len() == 2 && score(&list[0]) >= score(&list[1]));
        let own = list.iter().find(|d| at(d, "index").as_u64() == Some(1)).expect("the second");
        let logit = at(p, "score").as_f64().expect("a number");
        assert!((score(own) - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-4, "{body}");
    }
    let ask = |fields: &str| post(to, "/v1/rerank", &format!(r#"{{"model":"tiny",{fields}}}"#));
    let (_, body) = ask(r#""query":"cat","documents":["a",{"text":"the cat"},"b"],"top_n":2,"return_documents":true"#);
    let r = json(&body);
    let list = at(&r, "results").as_array().expect("a list");
    assert!(list.len() == 2 && list.iter().all(|d| at(d, "document.text").as_str().is_some()), "{body}");
    for (fields, param) in [
        (r#""query":"a""#, "documents"),
        (r#""query":"a","documents":[]"#, "documents"),
        (r#""query":"a","documents":[3]"#, "documents"),
        (r#""documents":["a"]"#, "query"),
        (r#""query":"a","documents":["a"],"top_n":0"#, "top_n"),
    ] {
        let (status, answer) = ask(fields);
        assert_eq!((status, at(&json(&answer), "error.param").as_str()), (400, Some(param)), "{answer}");
    }
    let (status, answer) = post(to, "/v1/embeddings", r#"{"model":"tiny","input":"a"}"#);
    assert_eq!((status, at(&json(&answer), "error.param").as_str()), (400, Some("model")), "{answer}");
    s.stop().expect("it ends");
}

#[test]
fn texts_follow_a_grammar_of_the_request() {
    let s = server(2, Limits::default());
    let to = s.address();
    let grammar = "root ::= item (\",\" item){2}\nitem ::= \"a\" | \"[\" [0-9]+ \"]\"";
    for seed in 0..4 {
        let fields = format!(r#""prompt":"list: ","max_tokens":60,"seed":{seed},"grammar":{grammar:?}"#);
        let r = completion(to, &fields);
        let text = at(&r, "choices.0.text").as_str().expect("a text");
        let items: Vec<&str> = text.split(',').collect();
        if at(&r, "choices.0.finish_reason").as_str() == Some("stop") {
            assert_eq!(items.len(), 3, "{text}");
            assert!(items.iter().all(|i| *i == "a" || i.starts_with('[') && i.ends_with(']')), "{text}");
        }
    }
    for (fields, what) in
        [(r#""grammar":"root ::= ("#, "line 1, column 11"), (r#""grammar":"a ::= b"#, "line 1, column 7")]
    {
        let (status, body) = post(to, "/v1/completions", &format!(r#"{{"model":"tiny","prompt":"a",{fields}"}}"#));
        assert_eq!((status, at(&json(&body), "error.param").as_str()), (400, Some("grammar")), "{body}");
        assert!(body.contains(what), "{body}");
    }
    let both = r#"{"model":"tiny","prompt":"a","grammar":"root ::= \"a\"","response_format":{"type":"json_object"}}"#;
    assert_eq!(post(to, "/v1/completions", both).0, 400);
    s.stop().expect("it ends");
}

#[test]
fn a_request_chooses_its_adapter() {
    let files = folder("served");
    for (name, seed) in [("first", 1), ("second", 50)] {
        let list = made("llama", &["q_proj", "v_proj", "down_proj"], 3, seed);
        peft(&files.join(name), &list, 3, 6.0);
    }
    let load = |texts: usize| {
        let adapters = ["first", "second"].map(|n| AdapterFile::new(files.join(n))).to_vec();
        let options = LoadOptions { texts, adapters, ..LoadOptions::default() };
        let device = gradloom::open("cpu", 1).expect("a device");
        LanguageModel::load_with(&fixtures().join("llm/llama"), device, NativeHost::without_cache(), &options)
            .expect("it loads")
    };
    let mut m = load(1);
    let names = ["", "first", "second"];
    let want = names.map(|name| {
        m.use_adapter(Some(name).filter(|n| !n.is_empty())).expect("it is there");
        alone(&mut m, "once upon", 12)
    });
    assert!(want[0] != want[1] && want[1] != want[2]);
    let s =
        Server::start(load(3), "tiny", SocketAddr::from(([127, 0, 0, 1], 0)), Limits::default()).expect("it starts");
    let to = s.address();
    let ids: Vec<String> = {
        let list = json(&get(to, "/v1/models").1);
        at(&list, "data").as_array().expect("a list").iter().map(|d| at(d, "id").as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids, ["tiny", "tiny:first", "tiny:second"]);
    assert_eq!(get(to, "/v1/models/tiny:second").0, 200);
    let rest = r#""prompt":"once upon","max_tokens":12,"temperature":0,"ignore_eos":true"#;
    let ask = |i: usize| {
        let body = match (i % 3, i % 2) {
            (0, _) => format!(r#"{{"model":"tiny",{rest}}}"#),
            (n, 0) => format!(r#"{{"model":"tiny","lora":"{}",{rest}}}"#, names[n]),
            (n, _) => format!(r#"{{"model":"tiny:{}",{rest}}}"#, names[n]),
        };
        let (status, body) = post(to, "/v1/completions", &body);
        assert_eq!(status, 200, "{body}");
        let r = json(&body);
        assert_eq!(at(&r, "choices.0.text").as_str(), Some(&want[i % 3][..]), "request {i}");
    };
    // Requests for different adapters at once: each has its own
    std::thread::scope(|scope| (0..18).for_each(|i| _ = scope.spawn(move || ask(i))));
    for (body, status) in [
        (format!(r#"{{"model":"tiny","lora":"third",{rest}}}"#), 400),
        (format!(r#"{{"model":"tiny:first","lora":"second",{rest}}}"#), 400),
        (format!(r#"{{"model":"tiny:third",{rest}}}"#), 404),
        (format!(r#"{{"model":"tiny","lora":"",{rest}}}"#), 200),
    ] {
        assert_eq!(post(to, "/v1/completions", &body).0, status, "{body}");
    }
    s.stop().expect("it ends");
}

#[test]
fn guesses_change_no_text() {
    let s = server(2, Limits::default());
    let to = s.address();
    let prompt = "one two three one two three one two three one two ";
    let mut m = model(1);
    for (n, end) in [(60, 60), (1, 1), (2, 2), (250, 256 - prompt.len() as u64)] {
        let want = alone(&mut m, prompt, n);
        let fields = format!(r#""prompt":"{prompt}","max_tokens":{n},"temperature":0,"ignore_eos":true,"guess":true"#);
        let r = completion(to, &fields);
        assert_eq!(at(&r, "choices.0.text").as_str(), Some(&want[..]), "{n} tokens");
        assert_eq!(at(&r, "usage.completion_tokens").as_u64(), Some(end), "{n} tokens");
    }
    assert!(metric(to, "guessed_tokens_total") > 0.0);
    s.stop().expect("it ends");
}

/// An answer to a request whose head has these lines, as its status, its head in lower case, and its body.
fn ask(to: SocketAddr, first: &str, lines: &str, body: &str) -> (u16, String, String) {
    let mut s = TcpStream::connect(to).expect("it listens");
    let length = body.len();
    write!(s, "{first} HTTP/1.1\r\n{lines}connection: close\r\ncontent-length: {length}\r\n\r\n{body}").expect("sent");
    let mut all = String::new();
    s.read_to_string(&mut all).expect("an answer");
    let (head, body) = all.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, head.to_lowercase(), body.to_owned())
}

#[test]
fn pages_of_others_neither_ask_nor_read() {
    let s = server(1, Limits::default());
    let to = s.address();
    let question = r#"{"model":"tiny","prompt":"a","max_tokens":1}"#;
    // A name that was made to resolve to this machine: refused everywhere, whatever else is right
    for (first, body) in [
        ("GET /", ""),
        ("GET /v1/models", ""),
        ("GET /metrics", ""),
        ("GET /none", ""),
        ("POST /v1/completions", question),
    ] {
        let lines = "host: evil.example\r\norigin: http://evil.example\r\ncontent-type: application/json\r\n";
        let (status, head, body) = ask(to, first, lines, body);
        assert!(status == 403 && !head.contains("access-control"), "{first}: {head}");
        let e = json(&body);
        assert_eq!(at(&e, "error.code").as_str(), Some("host_not_allowed"), "{body}");
        assert!(at(&e, "error.message").as_str().is_some_and(|m| m.contains("--allow-host evil.example")), "{body}");
    }
    let (status, ..) = ask(to, "GET /v1/models", "", "");
    assert!(matches!(status, 400 | 403), "HTTP/1.1 needs a host: {status}");
    for host in [to.to_string(), format!("localhost:{}", to.port())] {
        let (status, ..) = ask(to, "GET /v1/models", &format!("host: {host}\r\n"), "");
        assert_eq!(status, 200, "{host}");
    }
    // A page of another origin may send a request without a preflight, but not read the answer, and asks in vain for more
    let lines = format!("host: {to}\r\norigin: https://app.example\r\n");
    let (_, head, _) = ask(to, "GET /v1/models", &lines, "");
    assert!(!head.contains("access-control"), "{head}");
    let preflight =
        lines.clone() + "access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n";
    let (status, head, _) = ask(to, "OPTIONS /v1/completions", &preflight, "");
    assert!(status == 405 && !head.contains("access-control"), "{head}");
    s.stop().expect("it ends");
}

#[test]
fn allowed_names_and_origins_are_answered() {
    let list = |s: &str| vec![s.to_owned()];
    let access = Access::new(&list("box.local"), &list("https://app.example")).expect("names");
    let s = server(1, Limits { access, ..Limits::default() });
    let to = s.address();
    let (status, head, _) = ask(to, "GET /v1/models", "host: BOX.local:80\r\n", "");
    assert!(status == 200 && head.contains("vary: origin") && !head.contains("allow-origin"), "{head}");
    let lines = |origin: &str| format!("host: box.local\r\norigin: {origin}\r\ncontent-type: application/json\r\n");
    let asks = "access-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\n";
    let (status, head, _) = ask(to, "OPTIONS /v1/completions", &(lines("https://app.example") + asks), "");
    assert_eq!(status, 204);
    for field in
        ["allow-origin: https://app.example", "allow-methods: get, post", "allow-headers: authorization,content-type"]
    {
        assert!(head.contains(&format!("access-control-{field}")), "{field}: {head}");
    }
    let question = r#"{"model":"tiny","prompt":"a","max_tokens":1}"#;
    for (body, status) in [(question, 200), ("{", 400)] {
        let (got, head, _) = ask(to, "POST /v1/completions", &lines("https://app.example"), body);
        assert!(got == status && head.contains("allow-origin: https://app.example"), "{got}: {head}");
    }
    let (status, head, _) = ask(to, "OPTIONS /v1/completions", &(lines("https://evil.example") + asks), "");
    assert!(status == 405 && !head.contains("access-control"), "{head}");
    s.stop().expect("it ends");
}
