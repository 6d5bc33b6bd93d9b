//! Models compiled ahead of time, run by what their users have: C by a compiler, ES modules by node. What `npm run test:export` loads in Chromium is
//! left in `tests/tmp/export`. `npm run test:export` does this with all models.

use crate::models::{arrays, error, folder};
use gradloom::Error;
use gradloom::export::{self, Recording, c, web};
use gradloom::io::HostTensor;
use gradloom::io::onnx::Model;
use gradloom::model::parse;
use gradloom::target::Target;
use gradloom_tests::here;
use gradloom_tests::hostile::one_node;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Small ones of different kinds: convolutions, attention with several inputs and outputs, an encoder of texts, and what people have.
const FEW: [&str; 4] = ["zoo_densenet", "zoo_llama_past", "zoo_t5_encoder", "magika"];
/// The others that are one plan.
const MANY: [&str; 9] = [
    "zoo_mamba",
    "hibari_oov",
    "hibari_oov_gb",
    "ppocr_cls",
    "ppocrv4_det",
    "esrgan_slim_x2",
    "style_multistyle26",
    "style_predict_qdq",
    "selfie_segmentation",
];

fn models() -> Vec<&'static str> {
    let all = std::env::var_os("GRADLOOM_EXPORT").is_some_and(|v| v == "all");
    FEW.into_iter().chain(MANY.into_iter().filter(|_| all)).collect()
}

struct Case {
    name: &'static str,
    file: PathBuf,
    inputs: Vec<(String, HostTensor)>,
    expected: Vec<(String, HostTensor)>,
}

impl Case {
    fn new(name: &'static str) -> Case {
        let dir = folder(name);
        let file = ["model.onnx", "model.tflite"].map(|f| dir.join(f)).into_iter().find(|f| f.exists());
        let (inputs, expected) = (arrays(&dir.join("input.npz")), arrays(&dir.join("expected.npz")));
        Case { name, file: file.expect("a model"), inputs, expected }
    }

    fn record(&self, target: &Target) -> Recording {
        let inputs: Vec<(&str, HostTensor)> = self.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        let recording = export::record(parse(&self.file).unwrap(), target, &inputs);
        recording.unwrap_or_else(|e| panic!("{} for {}: {e}", self.name, target.name))
    }

    fn input(&self, name: &str) -> &HostTensor {
        &self.inputs.iter().find(|i| i.0 == name).expect("an input").1
    }

    /// Compares the files `out0.bin`, `out1.bin` .. with what is expected.
    fn compare(&self, r: &Recording, dir: &Path, how: &str) {
        // 8-bit numbers round differently from onnxruntime's
        let limit = if self.name == "style_predict_qdq" { 3e-2 } else { 1e-3 };
        assert_eq!(r.outputs.len(), self.expected.len(), "{}", self.name);
        for (i, port) in r.outputs.iter().enumerate() {
            let data = std::fs::read(dir.join(format!("out{i}.bin"))).unwrap();
            let got = HostTensor::new(port.dtype, port.shape.clone(), data).unwrap();
            let want = &self.expected.iter().find(|e| e.0 == port.name).expect("an output").1;
            let e = error(&got, want);
            assert!(e <= limit, "{} by {how}, `{}`: off by {e:.1e}", self.name, port.name);
        }
    }
}

fn tmp(parts: &[&str]) -> PathBuf {
    let mut dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tmp/export");
    dir.extend(parts);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn done(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// What it begins with.
const HARNESS: &str = r#"#include "model.h"
#include <stdio.h>
#include <stdlib.h>
static void get(const char *name, void *to, size_t n) {
  FILE *f = fopen(name, "rb");
  if (!f || fread(to, 1, n, f) != n) { perror(name); exit(1); }
  fclose(f);
}
static void put(const char *name, const void *from, size_t n) {
  FILE *f = fopen(name, "wb");
  if (!f || fwrite(from, 1, n, f) != n) { perror(name); exit(1); }
  fclose(f);
}
"#;

/// A program that reads the inputs, runs the model twice, and writes the outputs.
fn main_of(r: &Recording, weights: Option<usize>) -> String {
    let mut out = String::from(HARNESS);
    let (mut read, mut write, mut args) = (String::new(), String::new(), Vec::new());
    for (kind, ports) in [("in", &r.inputs), ("out", &r.outputs)] {
        for (i, p) in ports.iter().enumerate() {
            let _ = writeln!(out, "static uint64_t {kind}{i}[{}];", p.bytes() / 8 + 1);
            let _ = match kind {
                "in" => writeln!(read, "  get(\"{kind}{i}.bin\", {kind}{i}, {});", p.bytes()),
                _ => writeln!(write, "  put(\"{kind}{i}.bin\", {kind}{i}, {});", p.bytes()),
            };
            args.push(format!("(void *){kind}{i}"));
        }
    }
    if let Some(n) = weights {
        let _ = writeln!(out, "static uint64_t weights[{}];", n / 8 + 1);
        let _ = writeln!(read, "  get(\"model.weights\", weights, {n});\n  model_weights(weights);");
    }
    let run = format!("  model_run({});\n", args.join(", "));
    out + "int main(void) {\n" + &read + &run + &run + &write + "  return 0;\n}\n"
}

fn check_c(style: c::Style, weights: c::Weights, tag: &str, options: &[&str]) {
    if here::device("c", gradloom::open("c", 1)).is_none() {
        return;
    }
    let check = |model| {
        let case = Case::new(model);
        let r = case.record(&style.target());
        let dir = tmp(&[tag, model]);
        let files = c::files(&r, "model", "model.onnx", weights).unwrap();
        let weights = files.iter().find(|f| f.name == "model.weights").map(|f| f.bytes.len());
        export::write(&dir, &files).unwrap();
        std::fs::write(dir.join("main.c"), main_of(&r, weights)).unwrap();
        for (i, p) in r.inputs.iter().enumerate() {
            std::fs::write(dir.join(format!("in{i}.bin")), &case.input(&p.name).data).unwrap();
        }
        done(Command::new("cc").current_dir(&dir).args(options).args(["model.c", "main.c", "-o", "model", "-lm"]));
        done(Command::new("./model").current_dir(&dir));
        case.compare(&r, &dir, tag);
    };
    // the compiler takes five to twenty seconds for some of them, and each is one file
    let next = Mutex::new(models().into_iter());
    let work = || {
        loop {
            let Some(model) = next.lock().unwrap().next() else { return };
            check(model);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| (0..threads).for_each(|_| drop(s.spawn(work))));
}

#[test]
fn c_with_vectors_gives_what_is_expected() {
    let options =
        ["-std=gnu11", "-O1", "-march=native", "-fwrapv", "-Wall", "-Wno-psabi", "-Wno-unused-function", "-Werror"];
    check_c(c::Style::default(), c::Weights::BySize, "c", &options);
}

#[test]
fn standard_c_gives_what_is_expected() {
    let options = ["-std=c99", "-O1", "-pedantic", "-Wall", "-Wno-parentheses", "-Wno-unused-function", "-Werror"];
    check_c(c::Style::Standard, c::Weights::File, "c99", &options);
}

#[test]
fn a_module_gives_what_is_expected() {
    for model in models() {
        let case = Case::new(model);
        let record = |t: &Target| Ok(case.record(t));
        let recordings = web::Recordings::new(record, |e| panic!("{model}: {e}")).unwrap();
        let wasm = &recordings.wasm;
        let dir = tmp(&["web", model]);
        let files = web::files(&recordings, "model.onnx").unwrap();
        export::write(&dir, &files).unwrap();
        std::fs::write(dir.join("package.json"), "{ \"type\": \"module\" }\n").unwrap();
        for (i, p) in wasm.inputs.iter().enumerate() {
            std::fs::write(dir.join(format!("in{i}.bin")), &case.input(&p.name).data).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("lib/export.mjs");
        print!("{model}\n{}", done(Command::new("node").arg(script).arg(&dir)));
        case.compare(wasm, &dir, "wasm");
    }
}

#[test]
fn what_needs_a_device_meanwhile_is_refused_by_name() {
    let refusal = |op: &str| {
        let x = HostTensor::from_f32(vec![4], &[0.0, 1.0, 2.0, 0.0]).unwrap();
        let model = Model::parse(one_node(op, &["x"], 1, &[], &[])).unwrap();
        match export::record(model, &web::wasm_target(), &[("x", x)]) {
            Err(Error::Unsupported { what, context }) => {
                assert_eq!(context, "export");
                what
            }
            Err(e) => panic!("{op}: {e}"),
            Ok(_) => panic!("{op} was exported"),
        }
    };
    let what = refusal("NonZero");
    assert!(what.contains("depends on what is computed") && what.contains("NonZero"), "{what}");
    let what = refusal("RandomUniformLike");
    assert!(what.contains("random numbers"), "{what}");
}
