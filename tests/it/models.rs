//! Real models on every native device: each output within 1e-3 of the largest expected value.

use gradloom::codegen::cost::cost;
use gradloom::io::json::Json;
use gradloom::io::onnx::Input;
use gradloom::io::{HostTensor, npz};
use gradloom::{DType, OnnxModel};
use gradloom_tests::here;
use std::path::{Path, PathBuf};

/// The committed models, and how far an output may be off in units of the largest expected value: the ones with 8-bit numbers
/// round differently from onnxruntime, which differs from itself as much with and without its optimisations.
fn models() -> Vec<(String, f64)> {
    let list = Json::parse(include_str!("../models/models.json").as_bytes()).unwrap();
    let mut list: Vec<_> =
        list.as_object().unwrap().iter().map(|(name, limit)| (name.clone(), limit.as_f64().unwrap())).collect();
    // the one tflite file; LiteRT computed what is expected of it
    list.push(("selfie_segmentation".into(), 1e-3));
    list
}

/// A file of `.cache/models`, unless it was not fetched: then the test is left out, but not under `npm test`.
pub(crate) fn cached(file: &str, source: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/models").join(file);
    if path.exists() {
        return Some(path);
    }
    // `npm test` fetches it and sets this
    assert!(std::env::var_os("GRADLOOM_MODELS").is_none(), "{} is missing", path.display());
    here::left_out(file, &format!("run `node scripts/fetch-models.mjs {source}` first"));
    None
}

pub(crate) fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(model)
}

pub(crate) fn arrays(path: &Path) -> Vec<(String, HostTensor)> {
    npz::read(&std::fs::read(path).unwrap()).unwrap()
}

/// The largest difference over the largest expected value; every value must be there and finite.
pub(crate) fn error(got: &HostTensor, want: &HostTensor) -> f64 {
    assert_eq!(got.shape, want.shape);
    let (a, b) = (got.to_f64(), want.to_f64());
    assert!(a.iter().all(|x| x.is_finite()));
    let scale = b.iter().fold(0f64, |m, x| m.max(x.abs())).max(1e-30);
    a.iter().zip(&b).fold(0f64, |m, (x, y)| m.max((x - y).abs())) / scale
}

/// Runs the models that `wanted` names, all of them if it names none.
fn check(device: &str, wanted: &[&str]) {
    let all = models();
    assert!(wanted.iter().all(|w| all.iter().any(|m| m.0 == *w)), "{wanted:?}");
    for (model, limit) in all.iter().filter(|m| wanted.is_empty() || wanted.contains(&m.0.as_str())) {
        let dir = folder(model);
        let file = ["model.onnx", "model.tflite"].map(|f| dir.join(f)).into_iter().find(|f| f.exists());
        compare(device, model, &file.expect("a model"), *limit);
    }
}

fn compare(device: &str, model: &str, file: &Path, limit: f64) {
    let dir = folder(model);
    let Some(opened) = here::device(device, gradloom::open(device, 2)) else { return };
    let mut m = OnnxModel::load(file, opened).unwrap_or_else(|e| panic!("{model}: {e}"));
    let inputs = arrays(&dir.join("input.npz"));
    let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let expected = arrays(&dir.join("expected.npz"));
    // the second run replays the plan
    for round in 0..2 {
        let out = m.run(&inputs).unwrap_or_else(|e| panic!("{model} on {device}: {e}"));
        assert_eq!(out.len(), expected.len(), "{model}");
        assert_eq!(m.counters().fallbacks, 0, "{model} on {device}: opts were chosen that do not fit");
        for (name, want) in &expected {
            let got = &out.iter().find(|o| o.0 == *name).unwrap_or_else(|| panic!("{model} has no output {name}")).1;
            let e = error(got, want);
            assert!(e <= limit, "{model} on {device}, run {round}, `{name}`: off by {e:.1e}");
        }
    }
}

#[test]
fn a_cache_stays_on_the_device() {
    let file = folder("zoo_llama_past").join("model.onnx");
    let past = ["past_k0", "past_v0", "past_k1", "past_v1"];
    let i64s = |v: &[i64], shape: &[usize]| {
        HostTensor::new(DType::I64, shape.to_vec(), v.iter().flat_map(|x| x.to_le_bytes()).collect()).unwrap()
    };
    let start = |seed: usize| {
        let v = (0..48).flat_map(|i| ((i * 7 + seed) as f32).sin().to_le_bytes()).collect();
        HostTensor::new(DType::F32, vec![1, 2, 3, 8], v).unwrap()
    };
    for device in ["eval", "cpu"] {
        let mut m = OnnxModel::load(&file, gradloom::open(device, 2).unwrap()).unwrap();
        let mut hosts: Vec<HostTensor> = (0..4).map(start).collect();
        let mut cache: Vec<Input> = (0..4).map(|i| Input::Host(start(i))).collect();
        for step in 0..4usize {
            let ids = i64s(&[step as i64 * 7 + 1], &[1, 1]);
            let mask = i64s(&vec![1; 4 + step], &[1, 4 + step]);
            let mut list = vec![("input_ids", ids.clone()), ("attention_mask", mask.clone())];
            list.extend(past.iter().copied().zip(hosts));
            let want = m.run(&list).unwrap();
            let mut list = vec![("input_ids", Input::Host(ids)), ("attention_mask", Input::Host(mask))];
            list.extend(past.iter().copied().zip(cache));
            let inputs = m.inputs_of(list).unwrap();
            let got = m.run_on(&inputs).unwrap();
            for ((name, got), (_, want)) in got.iter().zip(&want) {
                assert_eq!(m.read(got).unwrap(), *want, "{device}, step {step}: {name}");
            }
            hosts = want.into_iter().skip(1).map(|o| o.1).collect();
            cache = got.into_iter().skip(1).map(|o| Input::Tensor(o.1)).collect();
        }
        // one tensor twice: the second is read
        let last: Vec<Input> = cache
            .iter()
            .map(|_| match &cache[0] {
                Input::Tensor(t) => Input::Tensor(t.clone()),
                Input::Host(t) => Input::Host(t.clone()),
            })
            .collect();
        let rest = |n: usize| vec![("input_ids", i64s(&[5], &[1, 1])), ("attention_mask", i64s(&vec![1; n], &[1, n]))];
        let mut list = rest(8);
        list.extend(past.iter().map(|name| (*name, hosts[0].clone())));
        let want = m.run(&list).unwrap();
        let mut list: Vec<(&str, Input)> = rest(8).into_iter().map(|(name, t)| (name, Input::Host(t))).collect();
        list.extend(past.iter().copied().zip(last));
        let inputs = m.inputs_of(list).unwrap();
        let got = m.run_on(&inputs).unwrap();
        assert_eq!(m.read(&got[0].1).unwrap(), want[0].1, "{device}");
        // another model has another session
        let mut other = OnnxModel::load(&file, gradloom::open(device, 2).unwrap()).unwrap();
        assert!(other.read(&got[0].1).is_err());
        assert!(other.inputs_of(vec![("past_k0", Input::Tensor(got[0].1.clone()))]).is_err());
    }
}

/// The models that are fetched: `tests/models` has only what goes in and comes out.
fn check_fetched(device: &str) {
    let list = Json::parse(include_str!("../models/fetched.json").as_bytes()).unwrap();
    for (model, limit) in list.as_object().unwrap() {
        if let Some(file) = cached(&format!("{model}/model.onnx"), "yolo") {
            compare(device, model, &file, limit.as_f64().unwrap());
        }
    }
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn models_run_on_the_processor() {
    check("cpu", &[]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn models_run_on_avx2() {
    check("cpu:avx2", &[]);
}

#[test]
fn models_run_through_the_c_compiler() {
    // one: a compiler process is slow
    check("c", &["silero_vad_op18_ifless"]);
}

#[test]
fn models_run_through_llvm() {
    // compiling takes LLVM a hundred times as long as the emitter: not the models of many kernels
    check("llvm", &["magika", "silero_vad_op18_ifless", "ppocr_cls", "hibari_oov"]);
}

#[test]
fn models_run_in_the_interpreter() {
    check("eval", &["silero_vad_op15", "hibari_oov"]);
}

#[test]
#[cfg(feature = "wgpu")]
fn models_run_on_wgpu() {
    check("wgpu", &[]);
}

#[test]
fn models_run_on_vulkan() {
    let wanted =
        ["silero_vad_op15", "silero_vad_op18_ifless", "style_multistyle26", "ppocr_cls", "hibari_oov", "magika"];
    check("vulkan", &wanted);
}

#[test]
fn models_run_on_vulkan_as_on_hardware() {
    check("vulkan:hardware", &["silero_vad_op15", "ppocr_cls"]);
}

/// Are all models wanted on devices that take minutes for them? `npm run test:vulkan -- --models` and `npm run test:long` ask for it.
fn all_models() -> bool {
    std::env::var_os("GRADLOOM_ALL_MODELS").is_some()
}

#[test]
fn all_models_run_on_vulkan_where_asked() {
    if all_models() {
        check("vulkan", &[]);
    }
}

#[test]
fn models_run_on_opencl() {
    check("opencl", &["silero_vad_op15", "silero_vad_op18_ifless", "hibari_oov", "magika"]);
}

#[test]
fn models_run_on_opencl_as_on_hardware() {
    check("opencl:hardware", &["silero_vad_op15"]);
}

#[test]
fn all_models_run_on_opencl_where_asked() {
    if all_models() {
        check("opencl", &[]);
        check("opencl:hardware", &["ppocr_cls"]);
    }
}

/// Small ones: the emulator of NVIDIA's driver interprets every instruction.
#[test]
#[cfg(target_os = "linux")]
fn models_run_on_the_emulator_of_cuda() {
    crate::emulator::load();
    check("cuda", &["silero_vad_op15", "zoo_llama_past"]);
}

#[test]
#[cfg(target_os = "linux")]
fn more_models_run_on_the_emulator_of_cuda_where_asked() {
    if all_models() {
        crate::emulator::load();
        let wanted =
            ["silero_vad_op18_ifless", "ppocr_cls", "hibari_oov", "zoo_densenet", "zoo_mamba", "zoo_t5_encoder"];
        check("cuda", &wanted);
    }
}

/// A software driver runs what is made for hardware: workgroup tiles, reductions that threads share.
#[test]
#[cfg(feature = "wgpu")]
fn models_run_as_on_a_gpu_of_hardware() {
    check("wgpu:hardware", &["silero_vad_op15", "style_multistyle26", "ppocr_cls"]);
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn fetched_models_run_on_the_processor() {
    check_fetched("cpu");
}

#[test]
#[cfg(feature = "wgpu")]
fn fetched_models_run_on_wgpu() {
    check_fetched("wgpu");
}

/// A model all of whose values are outputs, as `gradloom run --compare` runs it: other kernels than those of the model alone, for
/// each of which what the heuristic proposes must fit, and have a cost.
#[test]
fn every_value_of_a_model_is_compiled_as_proposed() {
    let mut priced = 0;
    let mut wrong = Vec::new();
    for device in ["null", "null:wgsl-hardware", "null:wgsl-software", "null:tiles", "null:wasm"] {
        for (model, _) in models() {
            let dir = folder(&model);
            let file = ["model.onnx", "model.tflite"].map(|f| dir.join(f)).into_iter().find(|f| f.exists());
            let parsed = gradloom::model::parse(&file.expect("a model")).expect("a model");
            let host = gradloom::NativeHost::without_cache();
            let opened = gradloom::open(device, 1).expect("a device without hardware");
            let mut every = OnnxModel::with_host(parsed.with_every_value(), opened, host);
            let inputs = arrays(&dir.join("input.npz"));
            let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
            // nothing is computed, so what depends on values may fail
            let _ = every.run(&inputs);
            let c = every.counters();
            assert!(c.programs > 0, "{model} on {device}: nothing was compiled");
            let plan = every.plan(&inputs).ok().flatten().unwrap_or_default();
            let target = every.engine().device().target().clone();
            for call in &plan.calls {
                let Some(p) = every.engine().program(call.program).and_then(|c| c.program.clone()) else { continue };
                let c = cost(&p, &target);
                let said =
                    c.ns.is_finite() && c.ns > 0.0 && c.footprint.is_finite() && c.moved.iter().all(|&m| m >= 0.0);
                assert!(said, "{model} on {device}: {} takes {c:?}", p.name);
                priced += 1;
            }
            if c.fallbacks > 0 {
                wrong.push(format!("{model} on {device}: {} of {}", c.fallbacks, c.programs));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(priced > 2000, "{priced} kernels have a cost");
}
