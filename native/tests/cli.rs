//! The command line from outside: data on stdout, progress on stderr, exit codes 0, 1, 2.

use gradloom::DType;
use gradloom::io::json::Json;
use gradloom::io::onnx::Model;
use gradloom::io::{HostTensor, npz};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn gradloom(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gradloom")).args(args).output().expect("the binary runs")
}

fn model(name: &str, file: &str) -> String {
    let p = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/models").join(name).join(file);
    p.to_str().expect("a plain path").to_string()
}

fn fixture(file: &str) -> String {
    let p = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/io").join(file);
    p.to_str().expect("a plain path").to_string()
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn embedder(name: &str) -> String {
    let p = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/embedders").join(name);
    p.to_str().expect("a plain path").to_string()
}

/// Runs a committed model and compares with what onnxruntime gave.
fn run_model(name: &str, device: &str, tolerance: f64) {
    let out = scratch(&format!("{name}-{}.npz", device.replace(':', "-")));
    let (m, i, o) = (model(name, "model.onnx"), model(name, "input.npz"), out.to_str().expect("a plain path"));
    let r = gradloom(&["run", &m, "--inputs", &i, "--outputs", o, "--device", device, "--threads", "2", "--json"]);
    assert!(r.status.success(), "{name}: {}", text(&r.stderr));
    assert!(text(&r.stdout).starts_with("{\"device\""), "{}", text(&r.stdout));
    assert!(text(&r.stderr).contains("compiled"), "progress belongs on stderr");
    let read = |p: &Path| npz::read(&std::fs::read(p).expect("the file is there")).expect("an npz");
    let (got, want) = (read(&out), read(Path::new(&model(name, "expected.npz"))));
    assert_eq!(got.len(), want.len());
    for (key, w) in &want {
        let g = &got.iter().find(|g| g.0 == *key).unwrap_or_else(|| panic!("output {key}")).1;
        assert_eq!((g.dtype, &g.shape), (w.dtype, &w.shape), "{name} {key}");
        let (g, w) = (g.to_f64(), w.to_f64());
        let scale = w.iter().fold(0f64, |m, x| m.max(x.abs()));
        let worst = g.iter().zip(&w).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(g.iter().all(|v| v.is_finite()), "{name} {key} is not finite");
        assert!(worst <= tolerance * scale, "{name} {key}: off by {worst} of {scale}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn runs_models_on_the_cpu() {
    // the suite of models runs all of them
    for name in ["silero_vad_op18_ifless", "ppocr_cls"] {
        for device in ["cpu", "cpu:avx2"] {
            run_model(name, device, 1e-3);
        }
    }
}

#[test]
fn lists_devices_as_json() {
    let r = gradloom(&["devices", "--json"]);
    assert!(r.status.success());
    assert!(text(&r.stdout).contains("{\"name\":\"eval\",\"available\":true"), "{}", text(&r.stdout));
}

/// The texts of a list in the JSON of `gradloom kernels`.
fn texts<'a>(out: &'a Json, list: &str) -> Vec<&'a str> {
    let items = out.get(list).and_then(Json::as_array).unwrap_or_else(|| panic!("no list `{list}`"));
    items.iter().map(|t| t.as_str().expect("a text")).collect()
}

#[test]
fn kernels_are_shown_after_each_pass() {
    let m = model("magika", "model.onnx");
    let show = |passes: &[&str]| {
        let r = gradloom(&[&["kernels", &m, "--device", "null:wasm", "--json", "--passes"], passes].concat());
        assert!(r.status.success(), "{}", text(&r.stderr));
        Json::parse(&r.stdout).expect("JSON")
    };
    let all = show(&[]);
    let schedule = texts(&all, "schedule");
    let names: Vec<&str> = schedule.iter().filter_map(|t| t.strip_prefix("// ")?.split(':').next()).collect();
    assert_eq!(names, ["unroll", "simplify", "cuts", "rows", "lower"], "the passes that change the plan");
    assert!(schedule[2].contains("\n// stored: %"), "{}", schedule[2]);
    assert!(schedule[3].contains("\n// rows %"), "{}", schedule[3]);
    assert!(schedule[4].contains("\n// kernel 0 writes buffers ["), "{}", schedule[4]);
    let kernels = all.get("list").and_then(Json::as_array).expect("kernels");
    for kernel in kernels {
        let passes = kernel.get("passes").and_then(Json::as_str).expect("a text");
        assert!(passes.contains("// as scheduled\n") && passes.contains("\n// linearize: "), "{passes}");
    }
    assert_eq!(texts(&show(&["rows"]), "schedule"), [schedule[3]]);
    assert_eq!(texts(&show(&["opts"]), "schedule"), Vec::<&str>::new());
    let r = gradloom(&["kernels", &m, "--device", "null:wasm", "--passes", "none"]);
    assert_eq!(r.status.code(), Some(1));
    assert!(
        text(&r.stderr).contains("there is no pass `none`; there are loaded, integer-sums, "),
        "{}",
        text(&r.stderr)
    );
}

#[test]
fn the_code_of_wasm_kernels_is_instructions() {
    let m = model("magika", "model.onnx");
    for what in ["--source", "--asm"] {
        let r = gradloom(&["kernels", &m, "--device", "null:wasm", what, "--no-cache"]);
        let out = text(&r.stdout);
        assert!(r.status.success(), "{}", text(&r.stderr));
        assert!(out.contains("v128.load") && out.contains("local.get"), "{out}");
        assert!(!out.contains("(bad)") && !out.contains("not shown"), "{out}");
    }
}

#[test]
fn inspects_a_model() {
    let r = gradloom(&["inspect", &model("magika", "model.onnx"), "--json"]);
    let out = text(&r.stdout);
    assert!(r.status.success(), "{}", text(&r.stderr));
    for part in ["\"opset\":15", "\"name\":\"bytes\",\"dtype\":\"i32\"", "\"name\":\"target_label\"", "\"op\":\"Conv\""]
    {
        assert!(out.contains(part), "no {part} in {out}");
    }
}

#[test]
fn inspect_lists_every_node_that_is_refused() {
    let refused = fixture("refused.onnx");
    let r = gradloom(&["inspect", &refused, "--size", "batch=4", "--nodes", "--json"]);
    let out = text(&r.stdout);
    assert!(r.status.success(), "what is refused is the answer, not a failure: {}", text(&r.stderr));
    let json = Json::parse(out.as_bytes()).expect("JSON");
    assert!(matches!(json.get("supported"), Some(Json::Bool(false))), "{out}");
    let list = |name: &str| json.get(name).and_then(Json::as_array).unwrap_or_else(|| panic!("no {name} in {out}"));
    let names = |name: &str| -> Vec<&str> { list(name).iter().filter_map(|n| n.get("node")?.as_str()).collect() };
    assert_eq!(names("refused"), ["`decode` (ImageDecoder)"], "{out}");
    let why = list("refused")[0].get("why").and_then(Json::as_str).expect("a reason");
    assert!(why.contains("ImageDecoder"), "{why}");
    let states: Vec<&str> = list("nodes").iter().filter_map(|n| n.get("state")?.as_str()).collect();
    assert_eq!(states, ["supported", "refused", "follows", "supported"], "{out}");
    assert!(out.contains("f32 [4, 3]"), "sizes are known with `batch`: {out}");
    // the same file is refused when it is run, by the same name
    let r = gradloom(&["run", &refused, "--device", "eval"]);
    assert_eq!(r.status.code(), Some(1));
    assert!(text(&r.stderr).contains("decode"), "{}", text(&r.stderr));

    let r = gradloom(&["inspect", &model("zoo_mamba", "model.onnx")]);
    let out = text(&r.stdout);
    assert!(r.status.success() && out.contains("supported") && !out.contains("follows"), "{out}");
}

/// `run --compare eval`: every node's value on two devices.
#[cfg(target_arch = "x86_64")]
#[test]
fn compare_names_the_first_node_that_drifts() {
    let (m, i) = (model("zoo_llama_past", "model.onnx"), model("zoo_llama_past", "input.npz"));
    let run = |tolerance: &str| {
        let more = ["--device", "cpu", "--compare", "eval", "--tolerance", tolerance, "--json"];
        let r = gradloom(&[&["run", &m, "--inputs", &i][..], &more].concat());
        assert!(r.status.success(), "{}", text(&r.stderr));
        Json::parse(&r.stdout).expect("JSON")
    };
    let verdict = |j: &Json| j.get("verdict").and_then(Json::as_str).expect("a verdict").to_string();
    let fine = run("1e-3");
    assert!(verdict(&fine).starts_with("all ") && verdict(&fine).ends_with(" values agree"), "{}", verdict(&fine));
    assert!(matches!(fine.get("first_drift"), Some(Json::Null)));
    // sums in another order differ in their last bits: the first such node is named
    let exact = run("1e-12");
    let first = exact.get("first_drift").expect("a drift");
    let (node, got) = (first.get("node").and_then(Json::as_str).expect("its node"), verdict(&exact));
    assert_eq!(got, format!("{node} is the first to drift"));
    let number = |name: &str| first.get(name).and_then(Json::as_str).expect(name).parse::<f64>().expect("a number");
    assert!(number("max_abs") > 0.0 && number("max_abs") < 1e-5, "{got}");
    let r = gradloom(&["run", &m, "--inputs", &i, "--tolerance", "1"]);
    assert_eq!(r.status.code(), Some(2), "a tolerance of no comparison");
}

#[test]
fn sizes_and_files_that_do_not_fit_are_named() {
    let refused = fixture("refused.onnx");
    let r = gradloom(&["inspect", &refused, "--size", "batsh=4"]);
    assert_eq!(r.status.code(), Some(1));
    assert!(text(&r.stderr).contains("batsh") && text(&r.stderr).contains("batch"), "{}", text(&r.stderr));
    let files = [
        ("quants.gguf", "GGUF"),
        ("torch_zip.pt", "PyTorch"),
        ("torch_old.pt", "PyTorch"),
        ("small.safetensors", "safetensors"),
        ("stored.npz", "npz"),
    ];
    for (file, kind) in files {
        for command in ["inspect", "run"] {
            let r = gradloom(&[command, &fixture(file)]);
            let said = text(&r.stderr);
            assert_eq!(r.status.code(), Some(1), "{file}: {said}");
            assert!(said.contains(&format!("it holds weights ({kind})")), "{file}: {said}");
        }
    }
}

#[test]
fn failures_exit_with_1_and_name_what_is_wrong() {
    let m = model("silero_vad_op15", "model.onnx");
    let npz = model("magika", "input.npz");
    let junk = scratch("junk.onnx");
    std::fs::write(&junk, b"not a model").expect("scratch is writable");
    let junk = junk.to_str().expect("a plain path");
    let cases: [(&[&str], &str); 5] = [
        (&["run", "nowhere.onnx", "--inputs", &npz], "nowhere.onnx"),
        (&["run", junk, "--inputs", &npz], "onnx"),
        (&["run", &m, "--inputs", &npz], "bytes"),
        (&["run", &m, "--device", "eval"], "missing"),
        (&["run", &m, "--device", "toaster"], "toaster"),
    ];
    for (args, part) in cases {
        let r = gradloom(args);
        assert_eq!(r.status.code(), Some(1), "{args:?}: {}", text(&r.stderr));
        assert!(r.stdout.is_empty(), "{args:?} wrote data: {}", text(&r.stdout));
        assert!(text(&r.stderr).contains(part), "{args:?}: no `{part}` in {}", text(&r.stderr));
    }
}

/// Without a driver of CUDA, or with a library in its place that is not there, one sentence says so.
#[cfg(feature = "cuda")]
#[test]
fn a_missing_cuda_driver_is_one_sentence() {
    const LIBRARY: &str = "GRADLOOM_CUDA_LIBRARY";
    let m = model("silero_vad_op15", "model.onnx");
    let nowhere = scratch("no-such-driver.so");
    // a machine with a GPU of NVIDIA's has nothing to say in the first case
    let has_gpu = gradloom::cuda::list().is_ok_and(|all| !all.is_empty());
    let cases = [(None, "NVIDIA driver"), (Some(&nowhere), "no-such-driver.so cannot be loaded")];
    for (library, part) in cases.into_iter().skip(usize::from(has_gpu)) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradloom"));
        command.args(["run", &m, "--device", "cuda"]).env_remove(LIBRARY);
        if let Some(path) = library {
            command.env(LIBRARY, path);
        }
        let r = command.output().expect("the binary runs");
        let said = text(&r.stderr);
        assert_eq!(r.status.code(), Some(1), "{said}");
        assert!(r.stdout.is_empty(), "{}", text(&r.stdout));
        assert!(said.starts_with("error: device cuda: ") && said.ends_with(" [E_DEVICE]\n"), "{said}");
        assert_eq!((said.lines().count(), said.matches("device cuda").count()), (1, 1), "{said}");
        assert!(said.contains(part) && said.contains(LIBRARY) == library.is_some(), "{said}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [&["fly"][..], &["run"], &["bench", "x.onnx", "--runs", "many"]] {
        assert_eq!(gradloom(args).status.code(), Some(2), "{args:?}");
    }
}

/// Tokens as transformers chooses them, the first event before the result, and a sentence for whoever runs a language model as a graph.
#[test]
fn language_models_go_on_with_a_text() {
    let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/llm").join(name);
    let expected = std::fs::read(fixture("llama/expected.json")).expect("the fixture is there");
    let expected = Json::parse(&expected).expect("JSON");
    let ids = |j: &Json, key: &str| -> Vec<u64> {
        let list = j.get(key).and_then(Json::as_array).unwrap_or_else(|| panic!("{key} is a list"));
        list.iter().map(|i| i.as_u64().expect("a token")).collect()
    };
    let (prompt, want) = (format!("{:?}", ids(&expected, "prompt")), ids(&expected, "tokens"));
    let file = fixture("llama.gguf").to_str().expect("a plain path").to_owned();
    let args = ["--prompt-tokens", &prompt, "--tokens", "24", "--ignore-end", "--threads", "1", "--json", "--no-cache"];
    let r = gradloom(&[&["generate", &file][..], &args].concat());
    assert!(r.status.success(), "{}", text(&r.stderr));
    let printed = text(&r.stdout);
    let (first, result) = printed.split_once('\n').expect("two lines");
    assert_eq!(first, "{\"event\":\"first\"}");
    let result = Json::parse(result.trim().as_bytes()).expect("JSON");
    assert_eq!(ids(&result, "tokens"), want[..24]);
    for key in ["load_ms", "prefill_tokens_s", "decode_tokens_s", "first_token_ms", "peak_bytes"] {
        let value = result.get(key).and_then(Json::as_f64);
        assert!(value.is_some_and(|v| v.is_finite() && v > 0.0), "{key}: {value:?}");
    }
    let r = gradloom(&["run", &file]);
    assert_eq!(r.status.code(), Some(1));
    assert!(text(&r.stderr).contains("gradloom generate"), "{}", text(&r.stderr));
    // from the beginning each time, and one event
    let r = gradloom(&[&["generate", &file][..], &args, &["--repeat", "3"]].concat());
    let printed = text(&r.stdout);
    let result = Json::parse(printed.lines().nth(1).expect("two lines").as_bytes()).expect("JSON");
    assert_eq!(ids(&result, "tokens"), want[..24]);
    assert_eq!(result.get("runs").and_then(Json::as_array).map(<[_]>::len), Some(3));
    let r = gradloom(&[&["generate", &file][..], &args, &["--profile", "8"]].concat());
    let result = Json::parse(text(&r.stdout).lines().nth(1).expect("two lines").as_bytes()).expect("JSON");
    assert!(result.get("step_us").and_then(Json::as_f64).is_some_and(|t| t > 0.0));
    let r = gradloom(&["generate", &file, "--prompt-tokens", "[99999999]", "--tokens", "1"]);
    assert_eq!(r.status.code(), Some(1));
    assert!(text(&r.stderr).contains("99999999"), "{}", text(&r.stderr));
}

/// Three steps and three more are six: the same losses, and the same bytes of the adapter and of the optimiser's state. Without that state the
/// adapter goes on from where it is, and its steps are counted anew.
#[test]
fn texts_are_embedded_and_documents_ordered() {
    let how = ["--device", "cpu", "--threads", "1", "--no-cache"];
    let texts = ["The cat sat on the mat.", "boats"];
    let lines = gradloom(&[&["embed", &embedder("bert")][..], &texts, &how].concat());
    assert!(lines.status.success(), "{}", text(&lines.stderr));
    let out = text(&lines.stdout);
    let vectors: Vec<Json> = out.lines().map(|l| Json::parse(l.as_bytes()).expect("JSON")).collect();
    let r = gradloom(&[&["embed", &embedder("bert.gguf"), "--json"][..], &texts, &how].concat());
    let all = Json::parse(&r.stdout).expect("JSON");
    let own = all.get("embeddings").and_then(Json::as_array).expect("a list");
    assert_eq!((vectors.len(), own.len(), all.get("tokens").and_then(Json::as_u64)), (2, 2, Some(13)));
    for (a, b) in vectors.iter().zip(own) {
        let numbers = |v: &Json| v.as_array().expect("a list").iter().filter_map(Json::as_f64).collect::<Vec<_>>();
        let (a, b) = (numbers(a), numbers(b));
        assert!(a.len() == 32 && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4));
        assert!((a.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-4);
    }
    let documents = ["A dog ran over the hill.", "the mat", "money"];
    let ask = |extra: &[&str]| {
        gradloom(&[&["rerank", &embedder("bertrank"), "--query", "the cat"][..], &documents, &how, extra].concat())
    };
    let r = ask(&["--json", "--top", "2"]);
    let all = Json::parse(&r.stdout).expect("JSON");
    let list = all.get("results").and_then(Json::as_array).expect("a list");
    let score = |i: usize| list[i].get("score").and_then(Json::as_f64).expect("a number");
    assert!(list.len() == 2 && score(0) >= score(1), "{}", text(&r.stdout));
    assert!(text(&ask(&[]).stdout).contains("A dog ran"));
    for (args, what) in [
        (vec!["rerank", "--query", "a", "b"], "classification head"),
        (vec!["generate", "--prompt", "a"], "an encoder"),
        (vec!["embed", "--lora", "x", "a"], "encoders have no adapters"),
    ] {
        let r = gradloom(&[&args[..1], &[&embedder("bert")], &args[1..], &how].concat());
        assert!(r.status.code() == Some(1) && text(&r.stderr).contains(what), "{}", text(&r.stderr));
    }
}

#[test]
fn a_grammar_in_a_file_says_what_may_come() {
    let file = scratch("grammar.gbnf");
    let path = file.to_str().expect("a plain path");
    let verses = model("verses", "verses-q8_0.gguf");
    let run = |grammar: &str| {
        std::fs::write(&file, grammar).expect("written");
        let how = ["--grammar", path, "--max-tokens", "40", "--device", "cpu", "--threads", "1", "--quiet"];
        gradloom(&[&["generate", &verses, "--prompt", "And the LORD spake unto "][..], &how].concat())
    };
    let r = run("root ::= (\"Moses\" | \"Aaron\") \", \" [0-9]{2} # a number\n");
    let made = text(&r.stdout);
    let (name, number) = made.trim_end().split_once(", ").unwrap_or_else(|| panic!("{made}, {}", text(&r.stderr)));
    assert!(matches!(name, "Moses" | "Aaron") && number.len() == 2 && number.parse::<u8>().is_ok(), "{made}");
    let r = run("root ::= \"a\"\nb ::= [");
    assert!(r.status.code() == Some(1) && text(&r.stderr).contains("line 2, column 8"), "{}", text(&r.stderr));
}

#[test]
fn a_training_that_resumes_is_one_that_never_ended() {
    let folder = scratch("finetune");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let place = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    let line = "The time has come, the Walrus said, to talk of many things.\n";
    std::fs::write(place("texts.txt"), line.repeat(4)).expect("written");
    let (model, data) = (model("verses", "verses-q8_0.gguf"), place("texts.txt"));
    let train = |out: &str, steps: &str, more: &[&str]| {
        let out = place(out);
        let how = ["--batch", "2", "--length", "16", "--rate", "1e-2", "--warmup", "2", "--weight-decay", "0.1"];
        let always = [
            "finetune",
            &model,
            "--data",
            &data,
            "--out",
            &out,
            "--steps",
            steps,
            "--threads",
            "1",
            "--json",
            "--no-cache",
        ];
        gradloom(&[&always[..], &how, more].concat())
    };
    let losses = |r: Output| -> Vec<f64> {
        assert!(r.status.success(), "{}", text(&r.stderr));
        let result = Json::parse(text(&r.stdout).trim().as_bytes()).expect("JSON");
        let list = result.get("losses").and_then(Json::as_array).expect("losses");
        list.iter().map(|l| l.as_f64().expect("a number")).collect()
    };
    let bytes = |file: &str| std::fs::read(place(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let new = ["--rank", "2", "--target", "q_proj"];
    let (whole, half) = (losses(train("whole", "6", &new)), losses(train("half", "3", &new)));
    assert_eq!((half.len(), &half[..]), (3, &whole[..3]));
    let (from, alone) = (place("half"), place("half/adapter_model.safetensors"));
    assert_eq!(losses(train("more", "6", &["--resume", &from])), whole[3..]);
    for file in ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"] {
        assert_eq!(bytes(&format!("more/{file}")), bytes(&format!("whole/{file}")), "{file}");
    }
    // by the file's name, to another one
    assert_eq!(losses(train("file/here.safetensors", "6", &["--resume", &alone])), whole[3..]);
    assert_eq!(bytes("file/here.safetensors"), bytes("whole/adapter_model.safetensors"));

    let r = train("none", "3", &["--resume", &from]);
    assert_eq!(r.status.code(), Some(1));
    assert!(text(&r.stderr).contains("3 steps are done, 3 are wanted in all"), "{}", text(&r.stderr));
    let r = train("none", "6", &["--resume", &place("nothing")]);
    assert_eq!(r.status.code(), Some(1));
    assert!(text(&r.stderr).contains("nothing"), "{}", text(&r.stderr));
    assert_eq!(train("none", "6", &["--resume", &from, "--rank", "2"]).status.code(), Some(2));
    assert!(!folder.join("none").exists(), "nothing is written of what failed");

    std::fs::remove_file(place("half/optimizer.safetensors")).expect("removed");
    let anew = losses(train("anew", "3", &["--resume", &from]));
    assert_eq!(anew.len(), 3);
    assert!(anew.iter().zip(&whole[3..]).any(|(a, b)| a != b), "{anew:?}");
    assert!(anew[0] != half[0], "it began where the adapter was: {anew:?}");
}

/// Weights go through formats and come back as they were; floats are rounded, and blocks of GGUF made and read, where that is asked for.
#[test]
fn converts_weights() {
    let folder = scratch("convert");
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |name: &str| folder.join(name).to_str().expect("a plain path").to_string();
    let values: Vec<f32> = (0..128).map(|i| (i as f32 - 60.0) / 37.0).collect();
    let matrix = HostTensor::from_f32(vec![2, 64], &values).expect("a tensor");
    let codes = HostTensor::from_i64(vec![3], &[1, -2, 3]).expect("a tensor");
    let given = [("w", &matrix), ("codes", &codes)];
    std::fs::write(at("a.npz"), npz::write(&given).expect("an npz")).expect("written");
    let convert = |from: &str, to: &str, more: &[&str]| {
        let r = gradloom(&[&["convert", &at(from), &at(to), "--json"], more].concat());
        assert!(r.status.success(), "{from} to {to}: {}", text(&r.stderr));
        assert!(text(&r.stdout).contains("\"tensors\":2"), "{}", text(&r.stdout));
    };
    let back = |name: &str| {
        convert(name, "back.npz", &[]);
        let list = npz::read(&std::fs::read(at("back.npz")).expect("a file")).expect("an npz");
        let of = |name: &str| list.iter().find(|t| t.0 == name).expect("the tensor").1.clone();
        assert_eq!(of("codes").to_i64(), [1, -2, 3]);
        assert_eq!(of("w").shape, [2, 64]);
        of("w")
    };
    convert("a.npz", "b.safetensors", &[]);
    convert("b.safetensors", "c.gguf", &[]);
    assert_eq!(back("c.gguf").data, matrix.data);
    convert("c.gguf", "half.safetensors", &["--dtype", "f16"]);
    assert_eq!(back("half.safetensors").data, matrix.cast(DType::F16).data);
    let size = |name: &str| std::fs::metadata(at(name)).expect("a file").len();
    for (blocks, step) in [("q8_0", 1.0 / 127.0), ("q4_0", 1.0 / 8.0)] {
        let name = format!("{blocks}.gguf");
        convert("b.safetensors", &name, &["--quantize", blocks]);
        assert!(size(&name) < size("c.gguf"));
        let largest = values.iter().fold(0f32, |m, x| m.max(x.abs()));
        for (got, want) in back(&name).to_f64().iter().zip(&values) {
            assert!((got - f64::from(*want)).abs() <= f64::from(largest) * step, "{blocks}: {got} for {want}");
        }
        // blocks go from file to file as they are
        convert(&name, "again.gguf", &[]);
        assert_eq!(std::fs::read(at("again.gguf")).expect("a file"), std::fs::read(at(&name)).expect("a file"));
    }
    for (to, more, why) in [
        ("x.pt", &[][..], "weights are written as .safetensors, .gguf or .npz"),
        ("x.npz", &["--quantize", "q8_0"], "blocks of GGUF are for .gguf"),
    ] {
        let r = gradloom(&[&["convert", &at("a.npz"), &at(to)], more].concat());
        assert_eq!(r.status.code(), Some(1));
        assert!(text(&r.stderr).contains(why), "{}", text(&r.stderr));
        assert!(!Path::new(&at(to)).exists());
    }
}

#[test]
fn takes_the_weights_out_of_an_onnx_model() {
    let folder = scratch("weights_of_onnx");
    std::fs::create_dir_all(&folder).expect("a folder");
    let from = model("ppocr_cls", "model.onnx");
    let bytes = std::fs::read(&from).expect("the model");
    // found by what it is, whatever it is called
    let unnamed = folder.join("model.bin");
    std::fs::write(&unnamed, &bytes).expect("written");
    let want = Model::parse(bytes).expect("a model").stored_tensors().expect("its tensors");
    for path in [Path::new(&from), &unnamed] {
        let to = folder.join("weights.npz");
        let r = gradloom(&["convert", path.to_str().expect("a plain path"), to.to_str().expect("a plain path")]);
        assert!(r.status.success(), "{}", text(&r.stderr));
        let list = npz::read(&std::fs::read(&to).expect("a file")).expect("an npz");
        assert_eq!(list.len(), want.len());
        let floats = want.iter().filter(|(_, t)| t.dtype == DType::F32 && t.shape.len() == 4).count();
        assert!(floats > 20, "{floats} kernels of convolutions");
        for (name, tensor) in &want {
            let got = &list.iter().find(|t| t.0 == *name).expect("the tensor").1;
            assert_eq!((&got.shape, &got.data), (&tensor.shape, &tensor.data), "{name}");
        }
    }
    // a model that is cut off is told of as a model, not as weights
    let cut = folder.join("cut.onnx");
    std::fs::write(&cut, &std::fs::read(&from).expect("the model")[..1000]).expect("written");
    let r = gradloom(&["convert", cut.to_str().expect("a plain path"), folder.join("x.npz").to_str().expect("plain")]);
    assert!(!r.status.success() && text(&r.stderr).contains("onnx"), "{}", text(&r.stderr));
}

#[test]
fn converts_a_tflite_model_that_then_runs() {
    let from = format!("{}/../tests/fixtures/tflite", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read_dir(from).expect("the folder").filter_map(|f| Some(f.ok()?.path()));
    let file = file.filter(|p| p.extension().is_some_and(|e| e == "tflite")).min().expect("a model");
    let to = scratch("converted.onnx");
    let to = to.to_str().expect("a plain path");
    let r = gradloom(&["convert", file.to_str().expect("a plain path"), to]);
    assert!(r.status.success(), "{}", text(&r.stderr));
    let r = gradloom(&["inspect", to, "--json"]);
    assert!(r.status.success() && text(&r.stdout).contains("\"inputs\""), "{}", text(&r.stderr));
}

#[test]
fn shells_and_man_are_told_of_all_commands() {
    for args in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]] {
        let r = gradloom(args);
        assert!(r.status.success(), "{}", text(&r.stderr));
        for word in ["convert", "perplexity", "kernels", "quantize", "embed", "rerank", "grammar"] {
            assert!(text(&r.stdout).to_lowercase().contains(word), "{args:?} lacks {word}");
        }
    }
}

#[test]
fn the_environment_is_told_of() {
    let (help, man) = (gradloom(&["--help"]), gradloom(&["man"]));
    let page = text(&man.stdout);
    let part = page.split_once(".SH ENVIRONMENT").expect("a part of the manual").1;
    let guide = include_str!("../../docs/guide/debugging.md");
    for name in ["DEV", "DEBUG", "VIZ", "GRADLOOM_CACHE", "GRADLOOM_LLVM", "GRADLOOM_CUDA_LIBRARY", "NO_COLOR"] {
        for place in [&text(&help.stdout), part, guide] {
            assert!(place.contains(name), "{name} is not told of");
        }
    }
}

#[test]
fn colours_are_for_terminals_and_who_asks() {
    let args = ["inspect", &model("ppocr_cls", "model.onnx")];
    let plain = gradloom(&args);
    let coloured = gradloom(&[&args[..], &["--color", "always"]].concat());
    let (a, b) = (text(&plain.stdout), text(&coloured.stdout));
    assert!(!a.contains('\u{1b}') && b.contains('\u{1b}'), "{b}");
    assert_eq!(anstream::adapter::strip_str(&b).to_string(), a);
    let json = gradloom(&[&args[..], &["--color", "always", "--json"]].concat());
    assert!(!text(&json.stdout).contains('\u{1b}'), "data has no colours");
    let failed = ["inspect", "no such file", "--color", "always"];
    assert!(text(&gradloom(&failed).stderr).starts_with("\u{1b}[1m"), "an error is marked");
    assert!(text(&gradloom(&failed[..2]).stderr).starts_with("error: "));
}
