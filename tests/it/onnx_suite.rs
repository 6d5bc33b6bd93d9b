//! A slice of the ONNX backend suite, and operators of `com.microsoft` and `ai.onnx.ml` and graphs whose sizes depend on the data
//! against onnxruntime, on native devices. The whole suite:
//! `npm run conformance:onnx`.

use gradloom::{NativeHost, OnnxModel};
use gradloom_core::io::HostTensor;
use gradloom_core::io::onnx::Model;
use gradloom_tests::onnx_suite::{Case, read};
use std::path::Path;

fn run(case: &Case, device: &str) -> Result<(), String> {
    let opened = gradloom::open(device, 1).map_err(|e| e.to_string())?;
    let model = Model::parse(case.model.clone()).map_err(|e| e.to_string())?;
    let mut model = OnnxModel::with_host(model, opened, NativeHost::without_cache());
    let sets: Vec<_> = case.sets(model.model()).collect();
    for set in sets {
        let (inputs, want) = set.map_err(|e| e.to_string())?;
        let inputs: Vec<(&str, HostTensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
        case.check(&model.run(&inputs).map_err(|e| e.to_string())?, &want)?;
    }
    Ok(())
}

/// All cases of all files.
fn check(device: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/onnx");
    let mut wrong = Vec::new();
    for (file, least) in
        [("slice.zip", 150), ("contrib.zip", 130), ("dynamic.zip", 15), ("ml.zip", 40), ("opset.zip", 45)]
    {
        let cases = read(&std::fs::read(folder.join(file)).unwrap()).unwrap();
        assert!(cases.len() >= least, "{file} has {} cases", cases.len());
        wrong.extend(cases.iter().filter_map(|c| run(c, device).err().map(|e| format!("{}: {e}", c.name))));
    }
    assert!(wrong.is_empty(), "{device}:\n{}", wrong.join("\n"));
}

#[test]
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
fn the_slice_passes_on_the_processor() {
    check("cpu");
}
