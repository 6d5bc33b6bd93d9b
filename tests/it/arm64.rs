//! The AArch64 emitter on any machine: every sample program becomes code whose words and layout are those of a kernel. That the code is right
//! is seen where it runs: `npm run test:arm`.

use gradloom_core::render::{Code, render};
use gradloom_core::target::Target;
use gradloom_tests::programs::samples;

const RET: u32 = 0xd65f_03c0;

#[test]
fn samples_become_code() {
    become_code(&Target::arm64(2));
    become_code(&Target::arm64(2).with_words());
}

fn become_code(t: &Target) {
    let all = samples(t);
    assert!(all.len() > 300, "only {} samples", all.len());
    for s in &all {
        let name = &s.program.name;
        let code = render(&s.program, t).unwrap_or_else(|e| panic!("{name}: {e}"));
        let Code::Bytes(bytes) = code else { panic!("{name} is no machine code") };
        let words: Vec<u32> = bytes.chunks(4).map(|w| u32::from_le_bytes(w.try_into().expect("whole words"))).collect();
        assert_eq!(words.last(), Some(&RET), "{name} returns at its end");
        let returns = words.iter().filter(|&&w| w == RET).count();
        assert_eq!(returns, 1, "{name} returns once");
    }
}

#[test]
fn the_device_that_runs_nothing_compiles_for_it() {
    use gradloom::{Runtime, Tensor};
    let mut rt = Runtime::open("null:arm64", 1).expect("it needs no machine");
    let x = Tensor::new(rt.session(), &[1f32, 2.0, 3.0, 4.0, 5.0], &[5]).unwrap();
    let y = x.softmax(0).unwrap();
    rt.realize(&[&y]).unwrap();
    assert!(rt.counters().launches > 0);
}
