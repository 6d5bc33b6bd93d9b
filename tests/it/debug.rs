//! `DEBUG=N`: what each level shows of a small computation.

use gradloom::debug::Debug;
use gradloom::{NativeHost, Runtime, Tensor};
use gradloom_core::device::{Device, NullDevice};
use gradloom_core::target::Target;
use std::sync::{Arc, Mutex};

/// What is printed at a level on this machine's own device.
fn shown(level: u8) -> String {
    let device = gradloom::open("cpu", 1).expect("this machine's own device");
    let (text, value) = shown_by(device, level);
    assert_eq!(value, [262_144.0]);
    text
}

/// What is printed at a level, and what a device computes.
fn shown_by(device: Box<dyn Device>, level: u8) -> (String, Vec<f32>) {
    let text: Arc<Mutex<String>> = Arc::default();
    let to = text.clone();
    let out = move |line: &str| *to.lock().expect("nobody panics here") += &format!("{line}\n");
    let host = NativeHost::without_cache().debug(Debug::new(level, Box::new(out)));
    let mut rt = Runtime::with_host(device, host);
    let x = Tensor::new(rt.session(), &[1.0f32; 4096], &[64, 64]).expect("an input");
    let y = x.matmul(&x).and_then(|y| y.sum(&[], false)).expect("a graph");
    let value = rt.to_vec::<f32>(&y).expect("a value");
    let text = text.lock().expect("nobody panics here");
    (text.clone(), value)
}

#[test]
fn code_of_other_targets_is_shown_as_their_text() {
    for (target, code) in [(Target::wasm(true, 1), "f32x4.relaxed_madd"), (Target::wgsl("wgpu"), "@compute")] {
        let shown = |level| shown_by(Box::new(NullDevice::new(target.clone())), level).0;
        assert!(shown(4).contains(code) && !shown(3).contains(code), "{}", shown(4));
    }
}

#[test]
fn each_level_shows_more() {
    let levels: Vec<String> = (1..=7).map(shown).collect();
    // what a level is the first to show
    let news = [
        (1, "kernel "),
        (2, "GFLOP/s"),
        (3, "opts: "),
        (3, "parameter 0: "),
        (3, "  estimate: "),
        (3, "  memory: "),
        (5, "// as scheduled"),
        (6, "// pass 1"),
        (6, "linearize"),
    ];
    for (first, what) in news {
        for (level, text) in (1..).zip(&levels) {
            assert_eq!(text.contains(what), level >= first, "level {level}, {what}:\n{text}");
        }
    }
    if cfg!(target_arch = "x86_64") {
        assert!(levels[6].contains("vmovups") && !levels[5].contains("vmovups"), "machine code is of level 7");
    }
}
